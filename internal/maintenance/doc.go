// SPDX-License-Identifier: Apache-2.0

// Package maintenance keeps the time of a write-ahead log: one goroutine per
// log runs its barriers and its housekeeping passes, one after another, on two
// cadences and early when the log reports pressure.
//
// The goroutine never touches the log's files itself and never decides what a
// pass does; both are the log's. What it owns is the order (no two passes of
// one log overlap), the spacing, and the due instants it publishes, from which
// the log computes the Retry-After of a refusal. All time here is monotonic: a
// wall clock that is set back or forward moves nothing.
//
// A panic in a pass is not recovered: it may have left the log locked or half
// changed, and the process that comes next recovers it from its files. One in
// a flusher, which is somebody else's code, is recovered and logged.
//
// Source of the rules: contract §3 (published instants) and §5 (the two
// cadences, pressure, the flush bound).
package maintenance // import "github.com/otelweir/weir/internal/maintenance"
