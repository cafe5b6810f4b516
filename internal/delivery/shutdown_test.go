// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/otelweir/weir/internal/journal"
)

func TestShutdownMarksNothingUnfinished(t *testing.T) {
	for _, tt := range []struct {
		name    string
		react   func(c *call) error
		took    time.Duration
		fails   bool
		settled bool
	}{
		{"ends in time", func(*call) error { time.Sleep(9 * time.Second); return nil }, 9 * time.Second, false, true},
		{"fails in time", func(*call) error { time.Sleep(9 * time.Second); return errUnavailable }, 9 * time.Second, false, false},
		{"obeys its cancellation", func(c *call) error { <-c.ctx.Done(); return c.ctx.Err() }, drainGrace, false, false},
		{"says yes once cancelled", func(c *call) error { <-c.ctx.Done(); time.Sleep(time.Second); return nil }, drainGrace + time.Second, false, true},
		{"ignores its cancellation", func(*call) error { time.Sleep(time.Hour); return nil }, drainGrace + cancelGrace, true, false},
		{"permanent, ignoring its cancellation", func(*call) error {
			time.Sleep(time.Hour)
			return consumererror.NewPermanent(errors.New("bad"))
		}, drainGrace + cancelGrace, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newStoppedRig(t, newMemLog(), oneFrameGroups)
				r.p.setReact(tt.react)
				first := r.logFrame("t", "a")
				r.Start()
				r.wait()
				for range 30 {
					r.logFrame("t", "later")
				}
				r.wait()
				running := len(r.p.all())
				began := time.Now()
				err := r.Shutdown(context.Background())
				assert.Equal(t, tt.took, time.Since(began))
				assert.Equal(t, tt.fails, err != nil, "%v", err)
				f := r.frontier(logLane("t"))
				assert.Equal(t, tt.settled, f > first, "frontier %d", f)
				r.Close()
				time.Sleep(2 * time.Hour)
				r.wait()
				assert.Len(t, r.p.all(), running, "no call is made after shutdown begins")
				assert.Empty(t, r.log.lettersWritten(), "the journal is closed by then")
				require.NoError(t, r.Shutdown(context.Background()), "twice")
			})
		})
	}
}

// TestShutdownNamesTheDisk: no call is running, a dead letter is being written.
func TestShutdownNamesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoppedRig(t, newMemLog(), nil)
		hang := make(chan struct{})
		r.log.letterOK = func(int) error { <-hang; return nil }
		r.p.setReact(func(*call) error { return consumererror.NewPermanent(errors.New("bad")) })
		r.logFrame("t", "a")
		r.Start()
		time.Sleep(time.Second)
		err := r.Shutdown(context.Background())
		require.ErrorContains(t, err, "1 reads of frames or writes of dead letters do not return")
		assert.NotContains(t, err.Error(), "Consume")
		close(hang)
		r.wait()
	})
}

func TestShutdownWithoutStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoppedRig(t, newMemLog(), nil)
		r.logFrame("t", "a")
		require.NoError(t, r.Shutdown(context.Background()))
		r.Start()
		r.wait()
		assert.Empty(t, r.p.all())
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.logFrame("t", "a")
		require.Len(t, r.open(), 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, r.Shutdown(ctx))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// TestShutdownWhileParked also shows that timers of parked lanes do nothing
// afterwards.
func TestShutdownWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.setReact(func(*call) error { return errUnavailable })
		r.logFrame("t", "a")
		r.wait()
		tries := len(r.p.all())
		require.NoError(t, r.Shutdown(context.Background()))
		r.Close()
		time.Sleep(time.Hour)
		r.wait()
		assert.Len(t, r.p.all(), tries)
		assert.Equal(t, journal.Position(0), r.frontier(logLane("t")))
	})
}

// TestShutdownStopsTimers: they would keep the delivery in memory after a
// reload.
func TestShutdownStopsTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.Retry = RetryConfig{time.Hour, time.Hour, 1, 0} })
		keep := true
		r.p.setReact(func(c *call) error {
			if keep {
				keep = false
				return r.p.keep(c)
			}
			return errUnavailable
		})
		r.logFrame("held", "a")
		r.wait()
		r.logFrame("parked", "a")
		r.wait()
		var timers []*time.Timer
		r.mu.Lock()
		for timer := range r.timers {
			timers = append(timers, timer)
		}
		r.mu.Unlock()
		require.NotEmpty(t, timers)
		require.NoError(t, r.Shutdown(context.Background()))
		for _, timer := range timers {
			assert.False(t, timer.Stop(), "was stopped already")
		}
		r.p.kept()[0](false) // would be due again in an hour
		r.mu.Lock()
		assert.Empty(t, r.timers)
		r.mu.Unlock()
	})
}

// TestShutdownDoesNotWaitForADiskThatHangs longer than for a Consume call.
func TestShutdownDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		log.append(logLane("t"), 1, logPayload("a"))
		r := newStoppedRig(t, log, nil)
		r.p.setReact(ok)
		log.slow = func() time.Duration { return time.Hour }
		r.Start()
		r.wait()
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			began := time.Now()
			require.ErrorContains(t, r.Shutdown(ctx), "a read of the log does not return")
			assert.Equal(t, min(wait, drainGrace)+cancelGrace, time.Since(began))
			cancel()
		}
		time.Sleep(2 * time.Hour)
		require.NoError(t, r.Shutdown(context.Background()))
		assert.Empty(t, r.p.all())
		assert.Equal(t, journal.Position(0), r.frontier(logLane("t")))
	})
}

// TestD12_PermanentErrorAfterOurCancellation: an error that comes of being
// cancelled by us says nothing of the data, whatever it claims.
func TestD12_PermanentErrorAfterOurCancellation(t *testing.T) {
	for name, policy := range map[string]PermanentPolicy{"drop": Drop, "dead_letter": DeadLetter, "block": Block} {
		for _, tt := range []struct {
			name string
			err  func(ctx context.Context) error
		}{
			{"about the data", func(context.Context) error { return consumererror.NewPermanent(errors.New("bad")) }},
			{"wraps the cancellation", func(ctx context.Context) error { return consumererror.NewPermanent(ctx.Err()) }},
			{"wraps the cause", func(ctx context.Context) error { return consumererror.NewPermanent(context.Cause(ctx)) }},
			{"HTTP 400", func(context.Context) error { return consumererror.NewOTLPHTTPError(errors.New("cut off"), 400) }},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, func(s *Settings) {
						s.Config.OnPermanentError, s.Config.Timeout, s.Config.PermanentGrace = policy, time.Minute, 0
					})
					r.p.setReact(func(c *call) error { <-c.ctx.Done(); return tt.err(c.ctx) })
					p := r.logFrame("t", "a")
					time.Sleep(time.Minute)
					r.wait()
					assert.Equal(t, Parked, r.state(logLane("t")), "after the timeout")
					assert.Contains(t, r.Lanes()[0].LastError, "delivery timeout of 1m")
					time.Sleep(time.Second)
					r.wait()
					require.Len(t, r.p.all(), 2, "tried again")
					require.NoError(t, r.Shutdown(context.Background()))
					assert.Equal(t, p, r.frontier(logLane("t")), "after shutdown")
					assert.Empty(t, r.log.lettersWritten())
					assert.Zero(t, r.Stats().Signals[journal.KindLogs].Dropped.Items)
				})
			})
		}
	}
}
