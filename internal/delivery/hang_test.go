// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/journal"
)

// waits sends a small frame of a lane of its own every 10 s, in which the
// others, as r has them, are silent, and returns for how many of them it took
// a look 10 s later to find them delivered, and the longest row of such.
func waits(r *rig, for_ time.Duration) (late, row int) {
	lane := logLane("good")
	for current := 0; for_ > 0; for_ -= 10 * time.Second {
		r.log.append(lane, 1, logPayload("x"))
		time.Sleep(10 * time.Second)
		r.wait()
		if r.frontier(lane) == r.log.Durable() {
			current = 0
			continue
		}
		late++
		current++
		row = max(row, current)
	}
	return late, row
}

// hangingTraces lets every call of traces end with its timeout only.
func hangingTraces(c *call) error {
	if c.signal == "traces" {
		<-c.ctx.Done()
		return c.ctx.Err()
	}
	return nil
}

// TestD11_ASignalOfManyTenantsHangs: the one destination of hundreds of lanes
// hangs. Another signal waits once, for the timeout, and not until all of them
// are parked.
func TestD11_ASignalOfManyTenantsHangs(t *testing.T) {
	for _, consumers := range []int{4, 10} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(s *Settings) { s.Config.Consumers = consumers })
			r.p.setReact(hangingTraces)
			for _, tenant := range names("t", 300) {
				r.log.append(journal.Lane{Tenant: tenant, Kind: journal.KindTraces}, 1, tracePayload("x"))
			}
			r.wait()
			late, _ := waits(r, 3*time.Hour)
			assert.LessOrEqual(t, late, int(r.cfg.Timeout/(10*time.Second)))

			// A logs lane that is parked for a moment does not come after all of
			// them, either.
			var down atomic.Bool
			down.Store(true)
			r.p.setReact(func(c *call) error {
				if c.signal == "logs" && down.Load() {
					return errUnavailable
				}
				return hangingTraces(c)
			})
			r.logFrame("good", "x")
			r.wait()
			require.Equal(t, Parked, r.state(logLane("good")))
			down.Store(false)
			time.Sleep(r.cfg.Timeout + time.Minute)
			r.wait()
			assert.Equal(t, Idle, r.state(logLane("good")))

			// It ends with the outage, and nobody is in doubt any more.
			r.p.setReact(ok)
			time.Sleep(20 * time.Minute)
			r.wait()
			assert.EqualValues(t, 300, r.Stats().Signals[journal.KindTraces].Settled.Items)
			assert.Zero(t, r.signals[journal.KindTraces].halted)
			assert.False(t, r.doubtful(&lane{id: journal.Lane{Kind: journal.KindTraces}}))
		})
	}
}

// TestD11_TwoSignalsHang: many lanes of one, and one lane of another, of which
// a healthy one is in doubt for that: it does not come after the many.
func TestD11_TwoSignalsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.Consumers = 4 })
		r.p.setReact(func(c *call) error {
			if c.tenant == "bad" {
				<-c.ctx.Done()
				return c.ctx.Err()
			}
			return hangingTraces(c)
		})
		r.logFrame("good", "x")
		time.Sleep(time.Minute)
		r.logFrame("bad", "x")
		time.Sleep(30 * time.Minute)
		r.wait()
		require.Equal(t, Parked, r.state(logLane("bad")))
		require.True(t, r.doubtful(r.lanes[logLane("good")]))
		for _, tenant := range names("t", 300) {
			r.log.append(journal.Lane{Tenant: tenant, Kind: journal.KindTraces}, 1, tracePayload("x"))
		}
		r.wait()
		late, _ := waits(r, 3*time.Hour)
		assert.LessOrEqual(t, late, 2*int(r.cfg.Timeout/(10*time.Second)))
	})
}

// TestD11_HangingRetriesLeaveBudget: frames of parked lanes, which hang again
// and again, would fill the budget.
func TestD11_HangingRetriesLeaveBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := tracePayload(strings.Repeat("x", 10_000))
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.Config.MaxInFlightBytes = uint64(13 * len(large))
		})
		r.p.setReact(hangingTraces)
		for _, tenant := range names("t", 5) {
			r.log.append(journal.Lane{Tenant: tenant, Kind: journal.KindTraces}, 1, large)
		}
		r.wait()
		_, row := waits(r, r.cfg.Timeout)
		require.Less(t, row, int(r.cfg.Timeout/(10*time.Second)), "and that is all it may be")
		late, _ := waits(r, 3*time.Hour)
		assert.Zero(t, late)
	})
}

// TestTurnsAtTheBudgetDoNotGrowForEver: a large group waits for a consumer
// that does not come back.
func TestTurnsAtTheBudgetDoNotGrowForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := logPayload(strings.Repeat("x", 10_000))
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.Config.MaxInFlightBytes = uint64(4 * len(large)) // all of it
		})
		r.p.setReact(func(c *call) error {
			if c.tenant == "hangs" {
				return <-c.answer
			}
			return nil
		})
		r.logFrame("hangs", "x")
		r.wait()
		r.log.append(logLane("large"), 1, large)
		r.wait()
		_, row := waits(r, 4*time.Hour)
		assert.LessOrEqual(t, row, longestTurn*int(roomTurn/time.Second)/10)
		assert.GreaterOrEqual(t, row, 5, "it has its turns, too")
	})
}

// TestALaneForgetsAReadErrorThatPassed: and no error is kept at any length.
func TestALaneForgetsAReadErrorThatPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, oneFrameGroups)
		r.logFrame("t", "first")
		r.Start()
		r.open()[0].fail(errors.New(strings.Repeat("é", 1<<20)))
		r.wait()
		said := r.Lanes()[0].LastError
		assert.Less(t, len(said), 2*maxError)
		assert.True(t, strings.HasSuffix(said, "é…"), said[len(said)-10:])

		var on atomic.Bool
		bad := r.logFrame("t", "second")
		log.mu.Lock()
		log.fail = failAt(bad, &on, errors.New("input/output error"))
		log.mu.Unlock()
		r.wait() // the main reader has passed it
		on.Store(true)
		r.p.setReact(ok)
		time.Sleep(5 * time.Second)
		r.wait()
		require.Equal(t, "input/output error", r.Lanes()[0].LastError)
		on.Store(false)
		time.Sleep(time.Minute)
		r.wait()
		require.Equal(t, log.Durable(), r.frontier(logLane("t")))
		assert.Empty(t, r.Lanes()[0].LastError)
	})
}

// reclaiming is a log that reclaims all of one lane.
type reclaiming struct {
	*memLog
	lane      journal.Lane
	reclaimed atomic.Bool
}

func (w *reclaiming) Lanes() []journal.LaneInfo {
	return slices.DeleteFunc(w.memLog.Lanes(), func(i journal.LaneInfo) bool { return i.Lane == w.lane && w.reclaimed.Load() })
}

// TestItemsOfAForgottenLaneAreLost: damage took a frame of a lane, whose other
// frames were settled and reclaimed while the main reader was still on its way
// through what recovery found.
func TestItemsOfAForgottenLaneAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		log.append(logLane("a"), 1, logPayload("x"))
		took := log.append(logLane("a"), 3, logPayload("x"))
		log.gone[took] = true
		for range 60 {
			log.append(logLane("b"), 1, logPayload("x"))
		}
		r := newStoppedRig(t, log, oneFrameGroups)
		ledger := &reclaiming{memLog: log, lane: logLane("a")}
		r.source = ledger
		log.slow = func() time.Duration { return time.Second }
		r.p.setReact(ok)
		r.Start()
		time.Sleep(30 * time.Second)
		r.Frontiers()
		require.EqualValues(t, 3, r.Lanes()[0].Pending, "it may yet come to it")
		ledger.reclaimed.Store(true)
		require.NotContains(t, r.Frontiers(), logLane("a"))
		assert.EqualValues(t, 3, r.Stats().LostItems)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, r.Stats().Signals[journal.KindLogs].PendingItems)
	})
}
