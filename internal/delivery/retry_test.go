// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/journal"
)

var errUnavailable = errors.New("unavailable")

func TestBackoffGrowsWithoutEndAndStaysWithinItsJitter(t *testing.T) {
	c := RetryConfig{InitialInterval: time.Second, MaxInterval: 10 * time.Second, Multiplier: 1.5, RandomizationFactor: 0.5}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 1500 * time.Millisecond, 3: 2250 * time.Millisecond, 7: 10 * time.Second, 10_000: 10 * time.Second} {
		low, high := time.Hour, time.Duration(0)
		for range 1000 {
			d := c.interval(n)
			low, high = min(low, d), max(high, d)
		}
		assert.GreaterOrEqual(t, low, want/2, "attempt %d", n)
		assert.LessOrEqual(t, high, want*3/2, "attempt %d", n)
		assert.Greater(t, high-low, want/2, "attempt %d: jitter", n)
	}
}

func TestParkedLaneRetriesItsHeadAloneUntilItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.Group.MaxItems = 2 })
		lane := logLane("t")
		began := time.Now()
		r.p.setReact(func(*call) error {
			if time.Since(began) < time.Hour {
				return errUnavailable
			}
			return nil
		})
		first := r.logFrame("t", "a0")
		r.wait()
		require.Equal(t, Parked, r.state(lane))
		for _, n := range names("b", 20) {
			r.logFrame("t", n)
		}
		time.Sleep(30 * time.Minute)
		r.wait()
		assert.Equal(t, Parked, r.state(lane))
		var at []time.Duration
		for _, c := range r.p.all() {
			at = append(at, c.began.Sub(began))
			assert.Equal(t, []journal.Position{first}, c.frames, "only the head is tried")
		}
		assert.Equal(t, []time.Duration{0, time.Second, 2500 * time.Millisecond, 4750 * time.Millisecond}, at[:4])
		assert.Equal(t, 10*time.Second, at[20]-at[19])
		assert.Equal(t, 1, r.events("wal.delivery.parked"))
		assert.Equal(t, 1, r.Stats().Parked)
		status := r.Lanes()[0]
		assert.Equal(t, "parked", status.State)
		assert.Equal(t, "unavailable", status.LastError)
		assert.Equal(t, len(at), status.Attempts)
		assert.True(t, status.NextTry.After(time.Now()))
		assert.Equal(t, uint64(21), status.Pending)

		time.Sleep(31 * time.Minute)
		r.wait()
		assert.Equal(t, Idle, r.state(lane))
		assert.Equal(t, r.log.Durable(), r.frontier(lane))
		assert.Equal(t, 1, r.events("wal.delivery.resumed"))
		assert.Zero(t, r.Stats().Parked)
		assert.Subset(t, r.p.bodies(), names("b", 20))
	})
}

// A lane that stays down is probed with less and less, and nothing is lost by
// it.
func TestHeadShrinksWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, nil)
		for _, n := range names("a", 16) {
			r.logFrame("t", n)
		}
		largest := 4 // of what the destination accepts
		r.p.setReact(func(c *call) error {
			if len(c.frames) > largest {
				return errors.New("too large, says an answer that does not say so")
			}
			return nil
		})
		r.Start()
		time.Sleep(10 * time.Minute)
		r.wait()
		var sizes []int
		for _, c := range r.p.all()[:5] {
			sizes = append(sizes, len(c.frames))
		}
		assert.Equal(t, []int{16, 16, 16, 8, 4}, sizes)
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
		assert.Subset(t, r.p.bodies(), names("a", 16))
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.Timeout = time.Minute })
		r.logFrame("t", "a")
		require.Len(t, r.open(), 1)
		time.Sleep(time.Minute)
		assert.Empty(t, r.open(), "cancelled")
		assert.Equal(t, Parked, r.state(logLane("t")))
		assert.Contains(t, r.Lanes()[0].LastError, "delivery timeout of 1m")
		time.Sleep(time.Second)
		calls := r.open()
		require.Len(t, calls, 1, "tried again")
		calls[0].ok()
		r.wait()
		assert.Equal(t, Idle, r.state(logLane("t")))
	})
}

func TestCallThatIgnoresItsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.Timeout = time.Minute; s.Config.Consumers = 2 })
		cancelled := make(chan error, 1)
		r.p.setReact(func(c *call) error {
			if c.tenant == "other" {
				return nil
			}
			err := <-c.answer
			cancelled <- c.ctx.Err()
			return err
		})
		pos := r.logFrame("t", "a")
		require.Len(t, r.open(), 1)
		time.Sleep(time.Hour)
		for _, n := range names("o", 20) {
			r.logFrame("other", n)
		}
		calls := r.open()
		require.Len(t, calls, 1, "it keeps its consumer, and is not tried again until it returns")
		assert.Equal(t, pos, r.frontier(logLane("t")))
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("other")))
		calls[0].ok()
		r.wait()
		require.ErrorIs(t, <-cancelled, context.DeadlineExceeded)
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")), "nil is nil, however late")
		time.Sleep(time.Hour)
		r.wait()
		tries := 0
		for _, c := range r.p.all() {
			if c.tenant == "t" {
				tries++
			}
		}
		assert.Equal(t, 1, tries)
	})
}

func TestRetriesUseHalfTheConsumers(t *testing.T) {
	for consumers, want := range map[int]int{1: 1, 2: 1, 3: 1, 10: 5} {
		t.Run(fmt.Sprint(consumers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(s *Settings) { s.Config.Consumers = consumers; s.Config.Timeout = 0 })
				r.p.setReact(func(*call) error { return errUnavailable })
				for i := range 20 {
					r.logFrame(fmt.Sprintf("down%d", i), "a")
				}
				r.wait()
				require.Equal(t, 20, r.Stats().Parked)
				r.p.setReact(nil)
				time.Sleep(time.Minute) // all are due, and hang
				require.Len(t, r.open(), want)
				if consumers == 1 {
					return
				}
				r.logFrame("up", "b")
				calls := r.open()
				require.Len(t, calls, want+1)
				require.Equal(t, "up", calls[want].tenant)
			})
		})
	}
}

func TestD18_ThousandParkedLanesReadLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = 20
		lanes := 1000
		if testing.Short() {
			lanes = 100
		}
		log := newMemLog()
		r := newStoppedRig(t, log, nil)
		r.p.setReact(func(c *call) error {
			if c.tenant != "up" {
				return errUnavailable
			}
			return nil
		})
		for range frames {
			for i := range lanes {
				r.logFrame(fmt.Sprintf("down%d", i), "a")
			}
		}
		r.logFrame("up", "a")
		r.Start()
		time.Sleep(5 * time.Minute)
		r.wait()
		require.Equal(t, lanes, r.Stats().Parked)
		before, calls := log.readCount(), len(r.p.all())
		const minutes = 4
		time.Sleep(minutes * time.Minute)
		r.wait()
		reads, tries := log.readCount()-before, len(r.p.all())-calls
		assert.LessOrEqual(t, tries, lanes*minutes*6+lanes, "one try per lane and longest interval")
		assert.Greater(t, tries, lanes*minutes*6-2*lanes, "and no fewer")
		assert.LessOrEqual(t, reads, tries, "a try reads the one frame it probes with, and nothing else reads")

		before = log.readCount()
		r.p.setReact(ok)
		time.Sleep(time.Minute)
		r.wait()
		for lane, f := range r.Frontiers() {
			if f != log.Durable() {
				t.Fatalf("lane %v: frontier %d, want %d", lane, f, log.Durable())
			}
		}
		assert.Equal(t, uint64(lanes*frames+1), r.Stats().Signals[1].Settled.Items)
		assert.LessOrEqual(t, log.readCount()-before, 50*lanes*frames, "they catch up together")
	})
}
