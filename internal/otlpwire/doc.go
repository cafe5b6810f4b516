// SPDX-License-Identifier: Apache-2.0

// Package otlpwire walks an OTLP request once, without decoding it: is it
// valid, how many items does it carry, how deep are its values nested, how
// much memory will it take when it is decoded?
//
// A log acknowledges raw bytes and decodes them much later. So valid means
// exactly what pdata makes of the bytes, not what the protobuf specification
// says: a request that is acknowledged here and does not decode there could
// never be delivered, and one that is refused here although the Collector's own
// receiver takes it would be a regression for who replaces that by this. pdata
// differs from the specification in places — it does not check UTF-8, takes the
// field number modulo 2³², ends a group at its first scalar — and this package
// differs with it. That is why it has its own readers of varints, tags and
// groups (wire.go) instead of protowire's, which are stricter.
//
//	tables.go      what pdata knows of OTLP: fields, wire types, struct sizes
//	program.go     the tables, made ready for the walk
//	wire.go        varints, lengths, unknown fields, as pdata reads them
//	walk.go        the walk
//	flat.go        messages taken in one step
//	estimate.go    what Go's allocator makes of strings and growing slices
//	references.go  string-table references of profiles, which pdata resolves
//	json.go        whether pdata decodes JSON, before it does
//
// The package must never allocate on success, keep the payload, or panic on
// any input.
package otlpwire // import "github.com/otelweir/weir/internal/otlpwire"
