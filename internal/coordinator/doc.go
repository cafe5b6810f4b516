// SPDX-License-Identifier: Apache-2.0

// Package coordinator decides what enters a log and when its maintenance does
// what. It admits frames in one fixed sequence under the journal lock, commits
// them in groups under the writer turn, keeps the refusal latch, computes the
// Retry-After of a refusal, and runs the steps of a barrier and of a
// housekeeping pass.
//
// It knows nothing of transports, and of files only what the journal tells it.
//
// Ownership: everything that decides about admission (latch, pass results) is
// guarded by the journal lock, which is held for integer work only; text,
// records and refusals are made after it is released. What metrics and the
// status page read is atomic. Barrier and Housekeep are called by the log's
// maintenance goroutine and by nobody else.
package coordinator // import "github.com/otelweir/weir/internal/coordinator"
