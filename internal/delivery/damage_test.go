// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/journal"
)

// failAt makes reads of the frame at p fail for as long as on is set.
func failAt(p journal.Position, on *atomic.Bool, err error) func(journal.Position) error {
	return func(at journal.Position) error {
		if at == p && on.Load() {
			return err
		}
		return nil
	}
}

func TestC23_MainReaderMeetsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		log := newMemLog()
		r := newStoppedRig(t, log, func(s *Settings) { oneFrameGroups(s); s.OnChange = func() { changes.Add(1) } })
		r.p.setReact(ok)
		r.logFrame("t", "before")
		bad := r.logFrame("t", "damaged")
		r.logFrame("t", "behind")
		var on atomic.Bool
		on.Store(true)
		damage := &journal.DamageError{File: "x.wal", Start: bad, End: bad + 1, Err: errors.New("checksum")}
		log.fail = failAt(bad, &on, damage)
		r.Start()
		r.wait()
		assert.Equal(t, []string{"before"}, r.p.bodies(), "it stops before damage")
		assert.Equal(t, bad, r.frontier(logLane("t")), "and the frontier with it")
		require.ErrorIs(t, r.Damage(), damage)
		assert.EqualValues(t, 2, changes.Load(), "of the damage, and of the lane it stops")
		time.Sleep(time.Hour)
		r.wait()
		assert.EqualValues(t, 2, changes.Load(), "said once")
		assert.Equal(t, bad, r.frontier(logLane("t")))
	})
}

func TestReadErrorPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, oneFrameGroups)
		r.p.setReact(ok)
		r.logFrame("t", "before")
		bad := r.logFrame("t", "unreadable for a while")
		var on atomic.Bool
		on.Store(true)
		eio := errors.New("input/output error")
		log.fail = failAt(bad, &on, eio)
		r.Start()
		time.Sleep(time.Minute)
		r.wait()
		require.ErrorIs(t, r.ReadError(), eio)
		require.NoError(t, r.Damage())
		assert.Equal(t, 1, r.logs.FilterMessageSnippet("can not be read").Len(), "said once")
		assert.Equal(t, bad, r.frontier(logLane("t")))
		on.Store(false)
		time.Sleep(time.Second)
		r.wait()
		require.NoError(t, r.ReadError())
		assert.Equal(t, log.Durable(), r.frontier(logLane("t")))
	})
}

// TestC23_CatchUpReaderMeetsDamage: frames went bad after the main reader had
// passed them. The lane they belong to stops before them, another goes on.
func TestC23_CatchUpReaderMeetsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, func(s *Settings) { oneFrameGroups(s); s.Config.Consumers = 2 })
		var on atomic.Bool
		first := r.logFrame("t", "first")
		var bad journal.Position
		for i := range 10 {
			p := r.logFrame("t", "later")
			if i == 5 {
				bad = p
			}
			r.logFrame("other", "x")
		}
		log.fail = failAt(bad, &on, &journal.DamageError{Start: bad, End: bad + 1, Err: errors.New("checksum")})
		r.Start()
		calls := r.open()
		require.NotEmpty(t, calls)
		require.Equal(t, CatchingUp, r.state(logLane("t")))
		require.Equal(t, first, r.frontier(logLane("t")))
		on.Store(true)
		r.p.setReact(ok)
		for _, c := range calls {
			c.ok()
		}
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, bad, r.frontier(logLane("t")))
		stoppedAtDamage(t, r, "t")
		assert.EqualValues(t, 5, r.Lanes()[1].Pending)
		require.Error(t, r.Damage())
		r.logFrame("other", "y")
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("other")), "another lane goes on")
	})
}

// stoppedAtDamage wants these lanes, and no others, parked for good.
func stoppedAtDamage(t *testing.T, r *rig, tenants ...string) {
	t.Helper()
	var got []string
	for _, l := range r.Lanes() {
		if l.State == string(Parked) {
			got = append(got, l.Tenant)
			assert.Contains(t, l.LastError, "checksum")
			assert.Zero(t, l.NextTry)
		}
	}
	assert.Equal(t, tenants, got)
	assert.Equal(t, len(tenants), r.Stats().Parked)
	assert.Equal(t, len(tenants), r.events("wal.delivery.parked"), "said once of each")
}

// TestC23_DamageStopsTheLanesBehindIt: those that travel with the main reader
// and have anything behind the damage, each when it comes to it; what is
// accepted from then on is pending and stays.
func TestC23_DamageStopsTheLanesBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		frame := func(tenant, body string) journal.Position { return log.append(logLane(tenant), 1, logPayload(body)) }
		for _, n := range names("a", 3) {
			frame("lags", n)
		}
		frame("kept", "a")
		frame("done", "a")
		bad := frame("hit", "damaged")
		frame("kept", "b")
		frame("lags", "b")
		var on atomic.Bool
		on.Store(true)
		log.fail = failAt(bad, &on, &journal.DamageError{Start: bad, End: bad + 1, Err: errors.New("checksum")})
		r := newStoppedRig(t, log, oneFrameGroups)
		var down atomic.Bool
		down.Store(true)
		r.p.setReact(func(c *call) error {
			switch {
			case c.tenant == "lags" && down.Load():
				return errUnavailable
			case c.tenant == "kept":
				return r.p.keep(c)
			}
			return nil
		})
		r.Start()
		r.wait()
		require.Equal(t, Parked, r.state(logLane("lags")), "by its destination")
		assert.Equal(t, Held, r.state(logLane("kept")), "it was delivered up to the damage")
		assert.Equal(t, Parked, r.state(logLane("hit")))
		assert.Equal(t, Idle, r.state(logLane("done")))
		assert.EqualValues(t, 3+1+1+1+1, r.Stats().Signals[journal.KindLogs].PendingItems)

		for _, release := range r.p.kept() {
			release(true)
		}
		for _, tenant := range []string{"done", "new", "hit"} {
			frame(tenant, "c")
		}
		down.Store(false)
		time.Sleep(time.Hour)
		r.wait()
		assert.Len(t, r.p.bodies(), len(r.p.all()))
		assert.NotContains(t, r.p.bodies(), "b")
		assert.NotContains(t, r.p.bodies(), "c")
		var got []string
		for _, l := range r.Lanes() {
			got = append(got, l.Tenant)
			assert.Equal(t, string(Parked), l.State, l.Tenant)
			assert.Contains(t, l.LastError, "checksum")
			assert.Zero(t, l.NextTry)
			assert.Equal(t, bad, journal.Position(l.Frontier), l.Tenant)
			assert.NotZero(t, l.LagBytes+l.Pending, l.Tenant)
		}
		assert.Equal(t, []string{"done", "hit", "kept", "lags", "new"}, got)
		assert.Equal(t, 5, r.Stats().Parked)
		assert.Equal(t, 5+1, r.events("wal.delivery.parked"), "once of each, and of the lane whose destination was down")
		assert.Equal(t, 1, r.events("wal.delivery.resumed"))
		s := r.Stats().Signals[journal.KindLogs]
		assert.EqualValues(t, 5, s.Settled.Items)
		assert.EqualValues(t, 8+3-5, s.PendingItems, "found + accepted = settled + pending")
		for lane, f := range r.Frontiers() {
			assert.Equal(t, bad, f, lane)
		}
	})
}

// TestC23_ATakenFrameGoesBad: the frames in front of it are delivered, and it
// is damage that is reported, not the destination.
func TestC23_ATakenFrameGoesBad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, nil)
		r.p.setReact(func(*call) error { return errUnavailable })
		var pos []journal.Position
		for _, n := range names("a", 5) {
			pos = append(pos, r.logFrame("t", n))
		}
		r.Start()
		r.wait()
		require.Equal(t, Parked, r.state(logLane("t")))
		require.NoError(t, r.Damage())
		var on atomic.Bool
		on.Store(true)
		log.mu.Lock()
		log.fail = failAt(pos[3], &on, &journal.DamageError{Start: pos[3], End: pos[4], Err: errors.New("checksum")})
		log.mu.Unlock()
		r.p.setReact(ok)
		time.Sleep(time.Hour)
		r.wait()
		assert.Equal(t, pos[3], r.frontier(logLane("t")))
		assert.Equal(t, Parked, r.state(logLane("t")))
		assert.Contains(t, r.Lanes()[0].LastError, "checksum")
		require.Error(t, r.Damage())
	})
}

// TestFramesThatDamageTook: a group is to be read again, but part of it, or
// all, has been set aside as damaged meanwhile.
func TestFramesThatDamageTook(t *testing.T) {
	for name, gone := range map[string][]int{"the first": {0}, "one in the middle": {2}, "the last": {4}, "all": {0, 1, 2, 3, 4}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newMemLog()
				r := newStoppedRig(t, log, nil)
				r.p.setReact(func(*call) error { return errUnavailable })
				var pos []journal.Position
				for _, n := range names("a", 5) {
					pos = append(pos, r.logFrame("t", n))
				}
				r.Start()
				r.wait()
				require.Equal(t, Parked, r.state(logLane("t")))
				log.mu.Lock()
				for _, i := range gone {
					log.gone[pos[i]] = true
				}
				log.mu.Unlock()
				before := len(r.p.all())
				r.p.setReact(ok)
				time.Sleep(time.Minute)
				r.wait()
				var got []journal.Position
				for _, c := range r.p.all()[before:] {
					got = append(got, c.frames...)
					assert.Len(t, c.bodies, len(c.frames))
				}
				var want []journal.Position
				for i, p := range pos {
					if !log.gone[pos[i]] {
						want = append(want, p)
					}
				}
				assert.Equal(t, want, got)
				s := r.Stats()
				assert.Equal(t, uint64(len(want)), s.Signals[journal.KindLogs].Settled.Items, "what is lost is not settled")
				assert.Zero(t, s.Signals[journal.KindLogs].PendingItems, "nor pending")
				assert.Equal(t, uint64(len(gone)), s.LostItems)
				assert.Zero(t, s.InFlight)
				assert.Equal(t, log.Durable(), r.frontier(logLane("t")))
			})
		})
	}
}
