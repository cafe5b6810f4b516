// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
)

// Flushers are the components that buffer behind the logs of one extension.
// All logs of the extension share them: which sink holds frames of which log
// is known to the sinks alone.
type Flushers struct {
	logger *zap.Logger
	count  atomic.Int64 // len(entries), for FlushBound on the refusal path

	mu      sync.Mutex
	entries []*flusherEntry // guarded by mu
}

// flusherEntry is one registered flusher. Whoever holds turn is calling it.
type flusherEntry struct {
	id      component.ID
	flusher barrier.Flusher
	turn    chan struct{} // capacity 1; a value in it is a running call

	running atomic.Pointer[context.Context] // of the running call; nil without one
	gone    context.Context                 // ends when the flusher is unregistered
}

// overrun reports that the running call has outlived its context.
func (e *flusherEntry) overrun() bool {
	ctx := e.running.Load()
	return ctx != nil && (*ctx).Err() != nil
}

// NewFlushers returns an empty registry.
func NewFlushers(logger *zap.Logger) *Flushers {
	return &Flushers{logger: logger}
}

// Register adds fl. A component may register several flushers under its ID
// (one per signal). unregister may be called more than once; a call of Flush
// that runs at that moment has its context cancelled and is not waited for, so
// that a flusher may unregister while it holds what its Flush waits for.
func (f *Flushers) Register(id component.ID, fl barrier.Flusher) (unregister func(), err error) {
	if fl == nil {
		return nil, fmt.Errorf("register flusher of %q: it is nil", id)
	}
	gone, leave := context.WithCancel(context.Background())
	e := &flusherEntry{id: id, flusher: fl, turn: make(chan struct{}, 1), gone: gone}

	f.mu.Lock()
	f.entries = append(f.entries, e)
	f.count.Store(int64(len(f.entries)))
	f.mu.Unlock()

	return func() {
		f.mu.Lock()
		if i := slices.Index(f.entries, e); i >= 0 {
			f.entries = slices.Delete(f.entries, i, i+1)
			f.count.Store(int64(len(f.entries)))
		}
		f.mu.Unlock()
		leave()
	}, nil
}

// Len is how many flushers are registered. It is an atomic load.
func (f *Flushers) Len() int {
	if f == nil {
		return 0
	}
	return int(f.count.Load())
}

// Flush asks every flusher to flush, side by side, and returns when all have
// answered, after bound, or when ctx ends, whichever is first. A flusher that
// ignores its context is left running and is not asked again before it has
// returned. Results change nothing (what was not finished is not settled) and
// are only logged, at debug level.
func (f *Flushers) Flush(ctx context.Context, bound time.Duration) {
	if f == nil || bound <= 0 {
		return
	}
	f.mu.Lock()
	entries := slices.Clone(f.entries)
	f.mu.Unlock()
	if len(entries) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	answered := make(chan struct{}, len(entries))
	for _, e := range entries {
		go func() {
			f.ask(ctx, e)
			answered <- struct{}{}
		}()
	}
	// The context ends with this call even when a flusher goes on: it is how
	// that flusher learns that nobody waits any more.
	defer cancel()
	for range entries {
		select {
		case <-answered:
		case <-ctx.Done():
			return
		}
	}
}

// ask calls one flusher, after the call another log may have running.
func (f *Flushers) ask(ctx context.Context, e *flusherEntry) {
	if e.overrun() {
		f.logger.Debug("Flusher not asked: an earlier call still runs past its time", zap.Stringer("flusher", e.id))
		return
	}
	select {
	case e.turn <- struct{}{}:
	case <-e.gone.Done():
		return
	case <-ctx.Done():
		f.logger.Debug("Flusher not asked: another call of it took all the time", zap.Stringer("flusher", e.id))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.gone, cancel)()

	begin := time.Now()
	e.running.Store(&ctx)
	err := callFlusher(ctx, e.flusher)
	e.running.Store(nil)
	<-e.turn

	switch {
	case err == nil:
		f.logger.Debug("Flushed", zap.Stringer("flusher", e.id), zap.Duration("took", time.Since(begin)))
	case errors.As(err, new(*panicError)):
		f.logger.Error("Flusher panicked", zap.Stringer("flusher", e.id), zap.Error(err))
	default:
		f.logger.Debug("Flush did not finish", zap.Stringer("flusher", e.id), zap.Duration("took", time.Since(begin)), zap.Error(err))
	}
}

func callFlusher(ctx context.Context, fl barrier.Flusher) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return fl.Flush(ctx)
}

// panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }
