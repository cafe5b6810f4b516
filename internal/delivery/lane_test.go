// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/otelweir/weir/internal/journal"
)

// TestLaneStates walks a lane through its transitions. Every row begins with a
// fresh lane; groups are of one frame, and two can be under way.
func TestLaneStates(t *testing.T) {
	type move struct {
		event string
		want  State
	}
	for name, moves := range map[string][]move{
		"delivered":                     {{"frame", Delivering}, {"ok", Idle}},
		"two, in order":                 {{"frame", Delivering}, {"frame", Delivering}, {"ok", Delivering}, {"ok", Idle}},
		"held, released":                {{"frame", Delivering}, {"keep", Held}, {"release", Idle}},
		"held, and more to deliver":     {{"frame", Delivering}, {"keep", Held}, {"frame", Delivering}, {"ok", Held}, {"release", Idle}},
		"held, given up":                {{"frame", Delivering}, {"keep", Held}, {"give up", Delivering}, {"a second", Delivering}, {"ok", Idle}},
		"parked, resumed":               {{"frame", Delivering}, {"error", Parked}, {"a second", Parked}, {"ok", Idle}},
		"parked, frames passed":         {{"frame", Delivering}, {"error", Parked}, {"frame", Parked}, {"a second", Parked}, {"ok", Delivering}, {"ok", Idle}},
		"parked again":                  {{"frame", Delivering}, {"error", Parked}, {"a second", Parked}, {"error", Parked}, {"a minute", Parked}, {"ok", Idle}},
		"another under way when parked": {{"frame", Delivering}, {"frame", Delivering}, {"error", Parked}, {"ok", Parked}, {"a second", Parked}, {"ok", Idle}},
		"both fail":                     {{"frame", Delivering}, {"frame", Delivering}, {"error", Parked}, {"error", Parked}, {"a second", Parked}, {"ok", Delivering}, {"ok", Idle}},
		"blocked, resumed":              {{"frame", Delivering}, {"bad", Blocked}, {"frame", Blocked}, {"a second", Blocked}, {"ok", Delivering}, {"ok", Idle}},
		"blocked, then parked":          {{"frame", Delivering}, {"bad", Blocked}, {"a second", Blocked}, {"error", Parked}, {"a minute", Parked}, {"bad", Blocked}, {"a minute", Blocked}, {"ok", Idle}},
		"falls behind, catches up":      {{"frame", Delivering}, {"frame", Delivering}, {"frame", Delivering}, {"frame", CatchingUp}, {"ok", Delivering}, {"ok", Delivering}, {"ok", Delivering}, {"ok", Idle}},
		"behind, parked, behind": {
			{"frame", Delivering},
			{"frame", Delivering},
			{"frame", Delivering},
			{"frame", CatchingUp},
			{"frame", CatchingUp},
			{"error", Parked},
			{"ok", Parked},
			{"a second", Parked},
			{"ok", Delivering},
			{"ok", Delivering},
			{"ok", Delivering},
			{"ok", Idle},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(s *Settings) {
					oneFrameGroups(s)
					s.Config.Consumers = 3 // ¾ of which is 2
					s.Config.OnPermanentError = Block
				})
				lane := logLane("t")
				first := func() *call {
					calls := r.open()
					require.NotEmpty(t, calls)
					return calls[0]
				}
				for i, m := range moves {
					switch m.event {
					case "frame":
						r.logFrame("t", "x")
					case "ok":
						first().ok()
					case "error":
						first().fail(errUnavailable)
					case "bad":
						first().fail(consumererror.NewPermanent(errors.New("bad")))
					case "keep":
						c := first()
						require.NoError(t, r.p.keep(c))
						c.ok()
					case "release":
						r.p.kept()[0](true)
					case "give up":
						r.p.kept()[0](false)
					case "a second":
						time.Sleep(time.Second)
					case "a minute":
						time.Sleep(time.Minute)
					}
					r.wait()
					require.Equal(t, m.want, r.state(lane), "after move %d, %q", i, m.event)
				}
				require.Equal(t, r.log.Durable(), r.frontier(lane))
			})
		})
	}
}

func TestLaneIsForgottenWithItsLastFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.setReact(func(*call) error { return nil })
		for _, n := range names("tenant", 100) {
			r.logFrame(n, "a")
		}
		r.wait()
		require.Len(t, r.Frontiers(), 100)
		r.log.mu.Lock()
		r.log.frames = r.log.frames[:0] // reclaimed
		r.log.mu.Unlock()
		require.Empty(t, r.Frontiers())
		r.mu.Lock()
		require.Empty(t, r.lanes)
		r.mu.Unlock()
		p := r.logFrame("tenant1", "b")
		r.wait()
		require.Greater(t, r.frontier(logLane("tenant1")), p)
	})
}

// TestF01_LanesAreKeptForTheirCounts: up to a bound a lane of which nothing is
// left in the log counts on when it comes back, and every item is counted in
// one place.
func TestF01_LanesAreKeptForTheirCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Config.KeepLanes = 60 })
		r.p.setReact(func(*call) error { return nil })
		leave := func() {
			r.wait()
			r.log.mu.Lock()
			r.log.frames = r.log.frames[:0] // reclaimed
			r.log.mu.Unlock()
			require.Empty(t, r.Frontiers(), "nothing is outstanding")
		}
		look := func() (kept map[journal.Lane]SignalStats, forgotten uint64) {
			kept, gone := r.LaneStats()
			forgotten = gone[journal.KindLogs].Settled.Items
			total := forgotten
			for _, s := range kept {
				total += s.Settled.Items
			}
			require.Equal(t, r.Stats().Signals[journal.KindLogs].Settled.Items, total)
			return kept, forgotten
		}
		all := names("tenant", 100)
		for _, n := range all {
			r.logFrame(n, "a")
		}
		leave()
		kept, forgotten := look()
		require.Len(t, kept, 60)
		require.EqualValues(t, 40, forgotten)
		leave()
		again, _ := look()
		require.Equal(t, kept, again, "within the bound none is forgotten")

		for id := range kept {
			r.logFrame(id.Tenant, "b")
		}
		leave()
		again, forgotten = look()
		require.Len(t, again, 60)
		require.EqualValues(t, 40, forgotten)
		for id := range kept {
			require.EqualValues(t, 2, again[id].Settled.Items, "%s counts on", id)
		}
	})
}

// TestD04_LaneForgottenWhileItsNextFrameIsMeasured: the main reader measures a
// frame without the lock; a barrier whose ledger is older than the frame comes
// in between.
func TestD04_LaneForgottenWhileItsNextFrameIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.logFrame("t", "a")
		r.open()[0].ok()
		r.wait()
		r.estimate = func(journal.Kind, []byte) uint64 {
			r.log.mu.Lock()
			r.log.hidden = true
			r.log.mu.Unlock()
			require.Empty(t, r.Frontiers(), "forgotten")
			r.log.mu.Lock()
			r.log.hidden = false
			r.log.mu.Unlock()
			return 1
		}
		p := r.logFrame("t", "b")
		calls := r.open()
		require.Len(t, calls, 1)
		require.Equal(t, p, r.frontier(logLane("t")), "its Consume has not returned")
		calls[0].ok()
		r.wait()
		require.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
	})
}

// TestD04_LaneWithoutPipelineIsNotForgotten: as above, of a lane of which the
// main reader passes every frame. Forgotten, it would be one of which nothing
// is outstanding.
func TestD04_LaneWithoutPipelineIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { s.Next.Traces = nil })
		lane := journal.Lane{Tenant: "t", Kind: journal.KindTraces}
		p := r.log.append(lane, 1, tracePayload("a"))
		r.wait()
		require.Equal(t, NoPipeline, r.state(lane))
		r.log.mu.Lock()
		r.log.hidden = true // the ledger was asked before the frame was there
		r.log.mu.Unlock()
		require.Equal(t, p, r.Frontiers()[lane])
		r.log.mu.Lock()
		r.log.hidden = false
		r.log.mu.Unlock()
		require.Equal(t, p, r.frontier(lane))
	})
}

func TestLine(t *testing.T) {
	in := func(q *line) (tenants string) {
		for l := range q.all() {
			tenants += l.id.Tenant
		}
		return tenants
	}
	a, b, c := &lane{id: logLane("a")}, &lane{id: logLane("b")}, &lane{id: logLane("c")}
	for _, tt := range []struct {
		name   string
		remove []*lane
		want   string
	}{
		{"none", nil, "abc"},
		{"the first", []*lane{a}, "bca"},
		{"one between", []*lane{b}, "acb"},
		{"the last", []*lane{c}, "abc"},
		{"two", []*lane{b, a}, "cba"},
		{"all", []*lane{c, a, b}, "cab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var q, other line
			for _, l := range []*lane{a, b, c, a} {
				l.line = place{}
			}
			for _, l := range []*lane{a, b, c, a} {
				q.push(l)
			}
			for _, l := range tt.remove {
				other.push(l) // in no second line
				other.remove(l)
				q.remove(l)
				q.remove(l)
			}
			for _, l := range tt.remove {
				q.push(l)
			}
			require.Equal(t, tt.want, in(&q))
			require.Empty(t, in(&other))
			for l := range q.all() {
				q.remove(l)
			}
			require.Equal(t, line{}, q)
		})
	}
}
