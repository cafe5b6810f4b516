// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

type flushFunc func(ctx context.Context) error

func (f flushFunc) Flush(ctx context.Context) error { return f(ctx) }

var sinkID = component.MustNewID("sink")

func register(t *testing.T, f *Flushers, fl flushFunc) (unregister func()) {
	t.Helper()
	unregister, err := f.Register(sinkID, fl)
	require.NoError(t, err)
	return unregister
}

func TestFlushersAreAskedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		for range 5 {
			defer register(t, f, func(context.Context) error {
				time.Sleep(2 * time.Second)
				return nil
			})()
		}
		begin := time.Now()
		f.Flush(t.Context(), 10*time.Second)
		assert.Equal(t, 2*time.Second, time.Since(begin))
	})
}

func TestFlushBound(t *testing.T) {
	for _, tc := range []struct {
		interval, want time.Duration
	}{
		{time.Second, 500 * time.Millisecond},
		{20 * time.Second, 10 * time.Second},
		{time.Hour, 10 * time.Second},
	} {
		assert.Equal(t, tc.want, Config{BarrierInterval: tc.interval}.FlushBound(), "barrier interval %v", tc.interval)
	}
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		l := Start(newScriptedLog(), testConfig(8*time.Second, 10*time.Second), f, zap.NewNop())
		defer l.Stop()
		assert.Zero(t, l.FlushBound())
		unregister := register(t, f, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		assert.Equal(t, 4*time.Second, l.FlushBound())
		begin := time.Now()
		l.Flush(t.Context())
		assert.Equal(t, 4*time.Second, time.Since(begin), "the loop's flush ends at its bound")
		unregister()
		assert.Zero(t, l.FlushBound())
		l.Flush(t.Context())
		assert.Equal(t, 4*time.Second, time.Since(begin), "nobody to ask")
	})
}

// A flusher that ignores its context holds nobody beyond the bound, and is
// left alone until it returns.
func TestStuckFlusherHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		var stuckCalls, healthyCalls atomic.Int64
		release := make(chan struct{})
		defer register(t, f, func(context.Context) error {
			stuckCalls.Add(1)
			<-release
			return nil
		})()
		defer register(t, f, func(context.Context) error {
			healthyCalls.Add(1)
			return nil
		})()

		begin := time.Now()
		f.Flush(t.Context(), 10*time.Second)
		assert.Equal(t, 10*time.Second, time.Since(begin))
		f.Flush(t.Context(), 10*time.Second)
		assert.Equal(t, 10*time.Second, time.Since(begin), "a stuck flusher costs its bound once")
		assert.EqualValues(t, 1, stuckCalls.Load())
		assert.EqualValues(t, 2, healthyCalls.Load())

		close(release)
		synctest.Wait()
		f.Flush(t.Context(), 10*time.Second)
		assert.EqualValues(t, 2, stuckCalls.Load(), "asked again once it has returned")
	})
}

// Two logs flush at once: the second waits for the first's call and then asks
// again, because the first may not cover what was consumed since.
func TestTwoLogsFlushingTakeTurnsPerFlusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		var calls, running atomic.Int64
		defer register(t, f, func(context.Context) error {
			calls.Add(1)
			assert.EqualValues(t, 1, running.Add(1), "two calls of one flusher at once")
			time.Sleep(3 * time.Second)
			running.Add(-1)
			return nil
		})()
		begin := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Flush(context.Background(), 10*time.Second)
			assert.Equal(t, 3*time.Second, time.Since(begin))
		}()
		synctest.Wait()
		f.Flush(t.Context(), 10*time.Second)
		<-done
		assert.Equal(t, 6*time.Second, time.Since(begin))
		assert.EqualValues(t, 2, calls.Load())

		// Too little time for the second turn: it is left out.
		go f.Flush(context.Background(), 10*time.Second)
		synctest.Wait()
		f.Flush(t.Context(), time.Second)
		time.Sleep(5 * time.Second)
		assert.EqualValues(t, 3, calls.Load())
	})
}

func TestFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		defer register(t, f, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		f.Flush(ctx, 10*time.Second)
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestUnregisterCancelsARunningCallAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlushers(zap.NewNop())
		var calls atomic.Int64
		unregister := register(t, f, func(ctx context.Context) error {
			calls.Add(1)
			<-ctx.Done()
			return ctx.Err()
		})
		other := register(t, f, func(context.Context) error { return nil })
		defer other()
		assert.Equal(t, 2, f.Len())

		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			unregister()
			unregister()
		}()
		f.Flush(t.Context(), 10*time.Second)
		assert.Equal(t, time.Second, time.Since(begin), "the flush goes on without it")
		assert.Equal(t, 1, f.Len(), "only its own registration is gone")
		f.Flush(t.Context(), 10*time.Second)
		assert.EqualValues(t, 1, calls.Load())
	})
}

func TestFlushResultsAreOnlyLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zapcore.DebugLevel)
		f := NewFlushers(zap.New(core))
		defer register(t, f, func(context.Context) error { return nil })()
		defer register(t, f, func(context.Context) error { return errors.New("object store: 503") })()
		defer register(t, f, func(context.Context) error { panic("boom") })()
		f.Flush(t.Context(), 10*time.Second)

		levels := map[string]zapcore.Level{}
		for _, e := range seen.All() {
			levels[e.Message] = e.Level
			assert.Equal(t, "sink", e.ContextMap()["flusher"])
		}
		assert.Equal(t, map[string]zapcore.Level{
			"Flushed":              zapcore.DebugLevel,
			"Flush did not finish": zapcore.DebugLevel,
			"Flusher panicked":     zapcore.ErrorLevel,
		}, levels)
	})
}

func TestNilFlushers(t *testing.T) {
	var f *Flushers
	assert.Zero(t, f.Len())
	f.Flush(t.Context(), time.Second)

	_, err := NewFlushers(zap.NewNop()).Register(sinkID, nil)
	require.ErrorContains(t, err, `register flusher of "sink"`)
}
