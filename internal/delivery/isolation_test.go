// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/journal"
)

// TestD11_OneLaneDownLeavesOthersAlone: lane B's destination refuses, then
// hangs, while others append. Theirs are delivered in the very instant they
// are appended.
func TestD11_OneLaneDownLeavesOthersAlone(t *testing.T) {
	lanes := map[string]journal.Lane{
		"another tenant": {Tenant: "b", Kind: journal.KindLogs},
		"another signal": {Tenant: "a", Kind: journal.KindTraces},
	}
	for name, down := range lanes {
		for _, hangs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hangs %v", name, hangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, oneFrameGroups)
					up := logLane("a")
					r.p.setReact(func(c *call) error {
						if c.tenant == up.Tenant && c.signal == "logs" {
							return nil
						}
						if hangs {
							<-c.ctx.Done()
							return c.ctx.Err()
						}
						return status.Error(codes.Unavailable, "503")
					})
					payload := logPayload("x")
					if down.Kind == journal.KindTraces {
						payload = tracePayload("x")
					}
					var first journal.Position
					for i := range 500 {
						p := r.log.append(down, 1, payload)
						if i == 0 {
							first = p
						}
						time.Sleep(time.Second)
						r.logFrame("a", fmt.Sprintf("a%d", i))
						r.wait()
						require.Equal(t, r.log.Durable(), r.frontier(up), "after %d frames", i)
						require.Equal(t, first, r.frontier(down))
					}
					assert.Equal(t, uint64(500), r.Stats().Signals[1].Settled.Items)
					assert.Contains(t, []State{Parked, CatchingUp}, r.state(down))
					r.p.setReact(func(*call) error { return nil })
					time.Sleep(10 * time.Minute)
					r.wait()
					assert.Equal(t, r.log.Durable(), r.frontier(down), "it drains when its destination is back")
				})
			})
		}
	}
}

// TestD11_FreshDataFlowsWhileABacklogDrains: what another lane appends is
// delivered at once, while one lane's backlog is delivered slowly.
func TestD11_FreshDataFlowsWhileABacklogDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, oneFrameGroups)
		r.p.setReact(func(c *call) error {
			if c.tenant == "slow" {
				time.Sleep(time.Second)
			}
			return nil
		})
		for _, n := range names("s", 200) {
			r.logFrame("slow", n)
		}
		r.Start()
		for i := range 20 {
			r.logFrame("fresh", fmt.Sprint(i))
			r.wait()
			require.Equal(t, log.Durable(), r.frontier(logLane("fresh")))
			require.Equal(t, CatchingUp, r.state(logLane("slow")))
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("slow")))
		assert.Len(t, r.p.all(), 220, "each once")
	})
}

func TestSharesOfTheConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { oneFrameGroups(s); s.Config.Timeout = 0 })
		count := func() map[string]int {
			m := map[string]int{}
			for _, c := range r.open() {
				m[c.tenant]++
			}
			return m
		}
		for range 30 {
			r.logFrame("a", "x")
		}
		require.Equal(t, map[string]int{"a": 7}, count(), "three quarters, alone")
		for range 30 {
			r.logFrame("b", "x")
		}
		require.Equal(t, map[string]int{"a": 7, "b": 3}, count(), "the rest")
		for range 30 {
			r.logFrame("c", "x")
		}
		r.open()[0].ok() // of a
		require.Equal(t, map[string]int{"a": 6, "b": 3, "c": 1}, count(), "who has less than a quarter comes first")
		r.open()[0].ok()
		require.Equal(t, map[string]int{"a": 5, "b": 3, "c": 2}, count())
		r.open()[0].ok()
		got := count()
		require.Equal(t, 10, got["a"]+got["b"]+got["c"], "nobody waits while a consumer is free")
	})
}

func TestShare(t *testing.T) {
	for _, tt := range []struct{ whole, quarter, threeQuarters uint64 }{
		{1, 1, 1},
		{2, 1, 1},
		{3, 1, 2},
		{4, 1, 3},
		{10, 2, 7},
		{1 << 63, 1 << 61, 3 << 61},
	} {
		assert.Equal(t, tt.quarter, share(tt.whole, 1), "¼ of %d", tt.whole)
		assert.Equal(t, tt.threeQuarters, share(tt.whole, 3), "¾ of %d", tt.whole)
	}
}

func TestBudget(t *testing.T) {
	const unit = 1000 // payload bytes; costs 4000 with the rig's estimate, 1000 of which only until decoded
	payload := func() []byte { return logPayload(string(make([]byte, unit))) }
	cost := uint64(4 * len(payload()))
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.Config.Timeout = 0
			s.Config.MaxInFlightBytes = 4 * cost
		})
		for range 10 {
			r.log.append(logLane("a"), 1, payload())
		}
		// Decoded groups take ¾ cost, and the next one that begins must fit
		// in with all of its cost: 3 for one lane, whose bound is ¾ too.
		require.Len(t, r.open(), 3)
		assert.LessOrEqual(t, r.Stats().InFlight, r.Stats().InFlightLimit)
		r.log.append(logLane("b"), 1, payload())
		require.Len(t, r.open(), 4, "another lane finds room")
		for range 11 {
			calls := r.open()
			if len(calls) == 0 {
				break
			}
			calls[0].ok()
			r.wait()
			require.LessOrEqual(t, r.Stats().InFlight, 4*cost)
		}
		r.wait()
		assert.Empty(t, r.open())
		assert.Zero(t, r.Stats().InFlight)
	})
}

// A group larger than what small ones leave free is not starved by them, nor
// they by it while it waits for a consumer that hangs.
func TestLargeGroupGetsItsTurnAtTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := logPayload("x")
		large := logPayload(string(make([]byte, 100*len(small))))
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.Config.MaxInFlightBytes = uint64(4 * len(large)) // all of it
			s.Config.Timeout = 0
		})
		r.p.setReact(func(c *call) error {
			switch c.tenant {
			case "hangs":
				return <-c.answer
			case "small":
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		var deliveredLarge time.Duration
		began := time.Now()
		go func() {
			for range 400 { // 20 s of them, several at any moment
				r.log.append(logLane("small"), 1, small)
				time.Sleep(50 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		r.log.append(logLane("large"), 1, large)
		for range 190 {
			time.Sleep(100 * time.Millisecond)
			r.wait()
			if deliveredLarge == 0 && r.frontier(logLane("large")) > 0 && r.state(logLane("large")) == Idle {
				deliveredLarge = time.Since(began)
			}
		}
		require.NotZero(t, deliveredLarge, "starved")
		require.Less(t, deliveredLarge, 5*time.Second)
		time.Sleep(10 * time.Second)

		r.log.append(logLane("hangs"), 1, small)
		r.wait()
		r.log.append(logLane("large"), 1, large)
		time.Sleep(time.Second)
		done := len(r.p.all())
		for range 100 {
			r.log.append(logLane("small"), 1, small)
			time.Sleep(100 * time.Millisecond)
		}
		r.wait()
		assert.Greater(t, len(r.p.all())-done, 30, "small ones had turns")
		assert.Equal(t, Delivering, r.state(logLane("large")))
		r.open()[0].ok()
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("large")))
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("small")))
	})
}
