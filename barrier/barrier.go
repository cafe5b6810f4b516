// SPDX-License-Identifier: Apache-2.0

// Package barrier is the contract between a write-ahead log, the components
// that buffer behind it, and the extension that keeps its time.
//
// A component that returns nil from Consume before its data is durable must
// hold a handle on the frames it was given:
//
//	release, ok := barrier.Retain(ctx)
//	if !ok {
//		return consumeSynchronously(ctx, data) // no log upstream
//	}
//	buffer(data, func(err error) { release(err == nil) })
//	return nil
//
// The log does not reclaim retained frames; it delivers them again after
// release(false) or a restart. A component that buffers also registers a
// [Flusher] with every [Registry] among host.GetExtensions, so that a log that
// is running out of room can ask for its data to be made durable early.
//
// Everything here is safe for concurrent use unless it says otherwise.
package barrier // import "github.com/otelweir/weir/barrier"

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pipeline"
)

// Position is a place in a log: the number of frame bytes ever put into the
// log before it. Positions only grow and have no gaps.
type Position uint64

// FrameRef names one frame: where it begins and how many items (log records,
// spans, data points, samples) it carries.
type FrameRef struct {
	Position Position
	Items    int
}

// FrameRange names the frames whose data one Consume call carries, in the
// order of the data. All are of one tenant and one signal of one log.
type FrameRange struct {
	LogID  [16]byte
	Tenant string
	Signal pipeline.Signal
	Frames []FrameRef
}

type contextKey struct{}

type delivery struct {
	frames FrameRange
	retain func() (release func(durable bool), ok bool)
}

// NewContext returns a context that carries r and the way to retain it. Logs
// call it before Consume; tests of sinks may.
func NewContext(ctx context.Context, r FrameRange, retain func() (release func(durable bool), ok bool)) context.Context {
	return context.WithValue(ctx, contextKey{}, &delivery{frames: r, retain: retain})
}

// FrameRangeFromContext returns the frames being consumed; ok is false when
// no log is behind ctx.
func FrameRangeFromContext(ctx context.Context) (r FrameRange, ok bool) {
	d, ok := ctx.Value(contextKey{}).(*delivery)
	if !ok {
		return FrameRange{}, false
	}
	return d.frames, true
}

// Retain keeps the frames being consumed unsettled until release is called.
// It must be called before Consume returns nil.
//
// release(true) says the data is durable; release(false) asks for it to be
// delivered again. Only the first call of one release counts; it may come from
// any goroutine and does nothing once the log is closed or when the Consume
// that took it failed. The frames are settled when every release taken on them
// was called with true.
//
// ok is false when no log is behind ctx: then Consume must not return nil
// before the data is durable.
func Retain(ctx context.Context) (release func(durable bool), ok bool) {
	d, ok := ctx.Value(contextKey{}).(*delivery)
	if !ok || d.retain == nil {
		return nil, false
	}
	return d.retain()
}

// Flusher is a component that buffers behind a log.
type Flusher interface {
	// Flush makes durable what was consumed before the call, as far as it
	// can until ctx ends, and releases the handles held on it.
	Flush(ctx context.Context) error
}

// Log is a write-ahead log as its maintenance sees it. Barrier and Housekeep
// are called from one goroutine.
type Log interface {
	// Barrier records durably what was settled.
	Barrier(ctx context.Context, why Occasion) error
	// Housekeep unlinks at most maxUnlinks settled segments.
	Housekeep(ctx context.Context, maxUnlinks int) (Progress, error)
	// Pressure delivers a value when the log wants both passes early.
	Pressure() <-chan struct{}
	// Status is a consistent-enough picture for people. It may be called
	// from any goroutine at any time.
	Status() Status
}

// Occasion is why a barrier runs. It decides whether the sinks are asked to
// flush before it (see [Schedule].Flush).
type Occasion uint8

const (
	// Regular: its interval is over. The log has the sinks flush if it finds
	// that necessary: when it refuses, or too much of it waits for sinks.
	Regular Occasion = iota
	// Early: the log asked for it by Pressure. Sinks are not flushed, or a
	// busy log would make small files of everything.
	Early
	// Final: the log is shutting down, and the sinks are always flushed.
	Final
)

// Progress says what a housekeeping pass did.
type Progress struct {
	Planned   int `json:"planned"`   // segments the pass set out to unlink
	Removed   int `json:"removed"`   // segments unlinked and recorded
	Remaining int `json:"remaining"` // segments still eligible, or whose unlink is being retried
}

// Registry is implemented by extensions that run the maintenance of logs. A
// sink registers its flusher with every Registry among host.GetExtensions.
type Registry interface {
	// RegisterLog starts maintaining l. unregister stops it, waits for a
	// running pass, and may be called more than once. The schedule stays
	// usable after that: its instants then no longer move.
	RegisterLog(id component.ID, l Log) (s Schedule, unregister func(), err error)
	// RegisterFlusher adds f to those asked by [Schedule].Flush.
	RegisterFlusher(id component.ID, f Flusher) (unregister func(), err error)
}

// Schedule publishes when maintenance is due. Instants carry a monotonic
// reading; every method is an atomic load except Flush.
type Schedule interface {
	NextBarrier() time.Time
	NextHousekeeping() time.Time
	BarrierInterval() time.Duration
	HousekeepingInterval() time.Duration
	// FlushBound is how long Flush may take: min(10 s, BarrierInterval/2)
	// when a flusher is registered, else 0.
	FlushBound() time.Duration
	// PressureWatermark is the fraction of the byte limit above which a log
	// asks for early maintenance; 0 turns that off.
	PressureWatermark() float64
	// Flush asks every registered flusher to flush, side by side, and
	// returns when all are done or after FlushBound. What was not finished
	// is simply not settled.
	Flush(ctx context.Context)
}
