// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile ../../internal/tools/go.mod mdatagen metadata.yaml

// Package otlpwalreceiver receives OTLP over gRPC and HTTP, writes every
// request to a write-ahead log, acknowledges it once the bytes are on stable
// storage, and delivers the log to the pipelines.
//
// A request is never decoded on its way in: the log keeps the protobuf as it
// was received. What can refuse it, in which order, and what the refusal looks
// like on the wire is contract §1 and §2; package refusal has the table.
//
// One instance serves all signals and both protocols ([NewFactory]). It owns
// the log's directory from Start to Shutdown, and binds its listeners only
// once the log is open, recovered, maintained and being delivered.
package otlpwalreceiver // import "github.com/otelweir/weir/receiver/otlpwalreceiver"
