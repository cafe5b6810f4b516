// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// oneFrameGroups gives every frame a Consume call of its own.
func oneFrameGroups(s *Settings) { s.Config.Group.MaxItems = 1 }

// fate is what a sink does with a frame the first time it gets it.
type fate string

const (
	fateOK      fate = "ok"
	fateError   fate = "error"
	fateKept    fate = "kept, then durable"
	fateGivenUp fate = "kept, then not durable"
)

func (f fate) keeps() bool { return f == fateKept || f == fateGivenUp }

// TestD04_FrontierUnderEveryInterleaving drives three calls that are in flight
// side by side through every order in which they can return and release.
func TestD04_FrontierUnderEveryInterleaving(t *testing.T) {
	fates := []fate{fateOK, fateError, fateKept, fateGivenUp}
	runs := 0
	for a := range fates {
		for b := range fates {
			for c := range fates {
				mine := []fate{fates[a], fates[b], fates[c]}
				var steps []step
				for i, f := range mine {
					steps = append(steps, step{i, "return"})
					if f.keeps() {
						steps = append(steps, step{i, "release"})
					}
				}
				orders(steps, func(order []step) {
					runs++
					if testing.Short() && runs%17 != 0 {
						return
					}
					synctest.Test(t, func(t *testing.T) { interleave(t, mine, order) })
				})
				if t.Failed() {
					return
				}
			}
		}
	}
	require.Greater(t, runs, 1000)
}

type step struct {
	frame int
	what  string
}

// orders calls f with every order of the steps.
func orders(steps []step, f func([]step)) {
	var permute func(k int)
	permute = func(k int) {
		if k == len(steps) {
			f(slices.Clone(steps))
			return
		}
		for i := k; i < len(steps); i++ {
			steps[k], steps[i] = steps[i], steps[k]
			permute(k + 1)
			steps[k], steps[i] = steps[i], steps[k]
		}
	}
	permute(0)
}

func interleave(t *testing.T, fates []fate, order []step) {
	r := newRig(t, oneFrameGroups)
	lane := logLane("t")
	n := len(fates)
	pos := make([]journal.Position, n)
	release := make([]func(bool), n)
	for i := range n {
		pos[i] = r.logFrame("t", fmt.Sprint(i))
	}
	calls := r.open()
	require.Len(t, calls, n, "calls in flight")
	byFrame := make([]*call, n)
	for _, c := range calls {
		i := slices.Index(pos, c.frames[0])
		byFrame[i] = c
		if fates[i].keeps() {
			var ok bool
			release[i], ok = barrier.Retain(c.ctx)
			require.True(t, ok)
		}
	}
	settled := make([]bool, n)
	returned, released := make([]bool, n), make([]bool, n)
	check := func(after string) {
		r.wait()
		want := r.log.Durable()
		for i := range n {
			if !settled[i] {
				want = pos[i]
				break
			}
		}
		if got := r.frontier(lane); got != want {
			t.Errorf("fates %v, order %v: after %s the frontier is %d, want %d", fates, order, after, got, want)
		}
	}
	for _, s := range order {
		switch s.what {
		case "return":
			returned[s.frame] = true
			if fates[s.frame] == fateError {
				byFrame[s.frame].fail(errors.New("unavailable"))
			} else {
				byFrame[s.frame].ok()
			}
		case "release":
			released[s.frame] = true
			release[s.frame](fates[s.frame] == fateKept)
		}
		settled[s.frame] = fates[s.frame] == fateOK && returned[s.frame] ||
			fates[s.frame] == fateKept && returned[s.frame] && released[s.frame]
		check(fmt.Sprint(s))
	}
	// What failed or was given up comes again, alone.
	var again []journal.Position
	for i := range n {
		if !settled[i] {
			again = append(again, pos[i])
		}
	}
	r.p.setReact(func(*call) error { return nil })
	time.Sleep(time.Minute)
	r.wait()
	var got []journal.Position
	for _, c := range r.p.all()[n:] {
		got = append(got, c.frames...)
	}
	slices.Sort(got)
	if !slices.Equal(got, again) {
		t.Errorf("fates %v, order %v: delivered again %v, want %v", fates, order, got, again)
	}
	if f := r.frontier(lane); f != r.log.Durable() {
		t.Errorf("fates %v, order %v: frontier %d at rest, want %d", fates, order, f, r.log.Durable())
	}
	r.stop()
}

func TestD09_OutOfOrderCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, oneFrameGroups)
		lane := logLane("t")
		var pos []journal.Position
		for _, n := range names("a", 5) {
			pos = append(pos, r.logFrame("t", n))
		}
		calls := r.open()
		require.Len(t, calls, 5)
		for _, i := range []int{4, 2, 1, 3} {
			calls[i].ok()
			r.wait()
			assert.Equal(t, pos[0], r.frontier(lane), "the first is not done")
		}
		calls[0].ok()
		r.wait()
		assert.Equal(t, r.log.Durable(), r.frontier(lane))
	})
}

func TestD19_Handles(t *testing.T) {
	retain := func(t *testing.T, c *call) func(bool) {
		release, ok := barrier.Retain(c.ctx)
		require.True(t, ok)
		return release
	}
	lane := logLane("t")
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, r *rig, c *call)
	}{
		{"released twice counts once", func(t *testing.T, r *rig, c *call) {
			first, _ := retain(t, c), retain(t, c)
			c.ok()
			r.wait()
			first(true)
			first(true)
			assert.Zero(t, r.frontier(lane), "one of two handles is out")
			assert.Equal(t, Held, r.state(lane))
		}},
		{"released as durable, then as not", func(t *testing.T, r *rig, c *call) {
			release := retain(t, c)
			c.ok()
			r.wait()
			release(true)
			release(false)
			time.Sleep(time.Minute)
			r.wait()
			assert.Len(t, r.p.all(), 1, "calls")
			assert.Equal(t, r.log.Durable(), r.frontier(lane))
		}},
		{"void when the call fails", func(t *testing.T, r *rig, c *call) {
			release := retain(t, c)
			c.fail(errors.New("unavailable"))
			r.wait()
			release(true)
			assert.Zero(t, r.frontier(lane))
			time.Sleep(2 * time.Second)
			require.Len(t, r.open(), 1, "tried again")
			release(false)
			assert.Equal(t, Parked, r.state(lane))
		}},
		{"of an earlier attempt does nothing to the next", func(t *testing.T, r *rig, c *call) {
			old := retain(t, c)
			c.fail(errors.New("unavailable"))
			r.wait()
			time.Sleep(2 * time.Second)
			again := r.open()
			require.Len(t, again, 1)
			release := retain(t, again[0])
			again[0].ok()
			r.wait()
			old(true)
			old(false)
			assert.Equal(t, Held, r.state(lane))
			assert.Zero(t, r.frontier(lane))
			release(true)
			assert.Equal(t, r.log.Durable(), r.frontier(lane))
		}},
		{"one of two not durable: again, and the other is void", func(t *testing.T, r *rig, c *call) {
			bad, good := retain(t, c), retain(t, c)
			c.ok()
			r.wait()
			bad(false)
			good(true)
			assert.Zero(t, r.frontier(lane))
			time.Sleep(2 * time.Second)
			again := r.open()
			require.Len(t, again, 1)
			good(true)
			again[0].ok()
			r.wait()
			assert.Equal(t, r.log.Durable(), r.frontier(lane))
			assert.Equal(t, uint64(1), r.Stats().Signals[1].RedeliveredItems)
		}},
		{"not given once Consume has returned", func(t *testing.T, r *rig, c *call) {
			c.ok()
			r.wait()
			release, ok := barrier.Retain(c.ctx)
			assert.False(t, ok)
			release(false)
			time.Sleep(time.Minute)
			r.wait()
			assert.Len(t, r.p.all(), 1, "calls")
		}},
		{"released between Shutdown and Close counts, after Close it does not", func(t *testing.T, r *rig, c *call) {
			release := retain(t, c)
			c.ok()
			second := r.logFrame("t", "b")
			calls := r.open()
			require.Len(t, calls, 1)
			late := retain(t, calls[0])
			calls[0].ok()
			r.wait()
			require.NoError(t, r.Shutdown(context.Background()))
			release(true) // a sink flushed by the last barrier
			assert.Equal(t, second, r.frontier(lane))
			r.Close()
			late(true)
			assert.Equal(t, second, r.frontier(lane))
			assert.NotZero(t, r.HeldBytes())
		}},
		{"released as not durable after Shutdown: stays unsettled, not tried again", func(t *testing.T, r *rig, c *call) {
			release := retain(t, c)
			c.ok()
			r.wait()
			require.NoError(t, r.Shutdown(context.Background()))
			release(false)
			time.Sleep(time.Hour)
			r.wait()
			assert.Zero(t, r.frontier(lane))
			assert.Len(t, r.p.all(), 1, "calls")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, oneFrameGroups)
				r.logFrame("t", "a")
				calls := r.open()
				require.Len(t, calls, 1)
				tt.run(t, r, calls[0])
			})
		})
	}
}

func TestD19_MoreHeldThanTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.Config.MaxInFlightBytes = 1 // every frame passes as the lone one
		})
		r.p.setReact(r.p.keep)
		for _, n := range names("a", 50) {
			r.logFrame("t", n)
		}
		r.wait()
		releases := r.p.kept()
		require.Len(t, releases, 50, "held groups keep no consumer and no budget")
		assert.Equal(t, r.log.Durable(), r.HeldBytes())
		assert.Zero(t, r.Stats().InFlight)
		assert.Equal(t, Held, r.state(logLane("t")))
		for _, release := range releases {
			release(true)
		}
		assert.Zero(t, r.HeldBytes())
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
	})
}

// TestWhatIsRememberedIsBounded: a sink holds all it is given. What has to be
// remembered for it has one bound for all lanes, the lane that meets it waits
// and says so, and every lane still gets a group.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 64 // groups
		r := newStoppedRig(t, newMemLog(), oneFrameGroups)
		r.maxRemembered = most * (groupBytes + refBytes)
		var mu sync.Mutex
		of := map[string][]func(bool){} // handles taken
		r.p.setReact(func(c *call) error {
			release, ok := barrier.Retain(c.ctx)
			assert.True(t, ok)
			mu.Lock()
			defer mu.Unlock()
			of[c.tenant] = append(of[c.tenant], release)
			return nil
		})
		r.Start()
		for range most / 2 {
			r.logFrame("t", "a")
			r.logFrame("u", "a")
		}
		r.wait()
		require.Len(t, r.p.all(), most)
		require.Equal(t, Held, r.state(logLane("t")))
		for _, tenant := range []string{"t", "u", "none yet"} {
			for range 7 { // what is left, with the first half, is below 7/8 of the bound
				r.logFrame(tenant, "b")
			}
		}
		r.wait()
		require.Len(t, r.p.all(), most+1, "one that had none")
		for _, s := range r.Lanes() {
			assert.Equal(t, string(CatchingUp), s.State, s.Tenant)
			assert.Equal(t, errFull, s.LastError, s.Tenant)
		}
		for _, release := range of["u"][: most/2 : most/2] {
			release(true)
		}
		r.wait()
		require.Len(t, r.p.all(), most+7+7+7, "there is room again for every lane, whoever made it")
		r.mu.Lock()
		assert.LessOrEqual(t, r.remembered, r.maxRemembered+3*(groupBytes+refBytes))
		r.mu.Unlock()
		r.p.setReact(ok)
		for _, releases := range of {
			for _, release := range releases {
				release(true)
			}
		}
		r.wait()
		for _, s := range r.Lanes() {
			assert.Equal(t, string(Idle), s.State, s.Tenant)
			assert.Empty(t, s.LastError, s.Tenant)
		}
		for lane, f := range r.Frontiers() {
			assert.Equal(t, r.log.Durable(), f, lane)
		}
		r.mu.Lock()
		assert.Zero(t, r.remembered)
		r.mu.Unlock()
	})
}
