// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/journal"
)

// TestD04_LapAtTheMainReaderLosesNoFrame: the catch-up reader, on behalf of x,
// has come to where the main reader is. There is a frame of y, which has no
// place for it, so that the main reader passes it, and others after it; and it
// does so at every moment the catch-up reader is without the lock.
func TestD04_LapAtTheMainReaderLosesNoFrame(t *testing.T) {
	x, y := logLane("x"), logLane("y")
	for _, tt := range []struct {
		name string
		when string // the main reader goes on
	}{
		{"before the frame is read", "before"},
		{"when the frame before it is being measured", "first"},
		{"when it is being measured, if it is", "second"},
		{"when the frame was read", "read"},
		{"when the lap has ended at it", "ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newMemLog()
				log.append(x, 1, logPayload("first"))
				log.gap(100) // which the main reader has passed
				log.append(y, 1, logPayload("second"))
				for _, l := range []journal.Lane{x, y, x, x} {
					log.append(l, 1, logPayload("later"))
				}
				f := log.frames
				r := newStoppedRig(t, log, oneFrameGroups)
				d := r.Delivery
				d.stopping = true // nothing is to be under way but what the test does
				lx, ly := d.lanes[x], d.lanes[y]

				// x travels from 0 on, and the main reader is at the first
				// frame of y. That has no place: a group waits for a consumer.
				lx.leave(behind, 0)
				lx.pass(0)
				d.main = f[1].Position
				d.lap = lap{id: 2}
				d.travel(lx)
				waits := &group{lane: ly, ready: true, refs: make([]ref, 1), items: 1}
				waits.count(+1)
				c := catchup{d: d, r: log.reader(0)}

				var gone bool
				moment := func(when string) {
					if when != tt.when || gone {
						return
					}
					gone = true // offering measures, too
					for i := 1; i < 4; i++ {
						d.offer(&f[i])
					}
					require.Equal(t, behind, ly.phase)
					require.Equal(t, f[1].Position, ly.cursor)
					d.mu.Lock()
					ly.ahead = nil // its group is off: there is a place
					ly.free()
					d.mu.Unlock()
				}
				d.estimate = func(_ journal.Kind, payload []byte) uint64 {
					moment(decodeLogs(payload).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
					return 1
				}
				step := func(when string) (over bool) {
					frame, err := c.next()
					require.NoError(t, err)
					moment(when)
					return c.step(&frame)
				}

				require.False(t, step(""), "the frame of x")
				moment("before")
				if step("read") {
					require.Equal(t, current, lx.phase, "x has caught up")
					moment("ended")
					moment("second") // it was not
					from, ok := d.beginLap(ly, ly.cursor)
					require.True(t, ok)
					require.Equal(t, f[1].Position, from)
					require.False(t, step(""))
				}
				require.NotNil(t, ly.groups.first, "the first frame of y was passed over")
				require.Equal(t, f[1].Position, ly.groups.first.start)
				require.Equal(t, f[1].Position, ly.frontier(d.main))
			})
		})
	}
}

// TestD04_ReadersSideBySide: lanes fall behind and catch up all the time, right
// where the log ends, and both readers pause at random whenever they are
// without the lock. Every frame is consumed, and no frontier is past one that
// was not.
func TestD04_ReadersSideBySide(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			c := &chaos{rnd: rand.New(rand.NewPCG(seed, 4)), durable: map[journal.Position]bool{}}
			pause := func(most int) { time.Sleep(time.Duration(c.draw(most)) * time.Millisecond) }
			log := newMemLog()
			log.slow = func() time.Duration {
				if c.draw(8) > 0 {
					return 0
				}
				return time.Duration(c.draw(20)) * time.Millisecond // one reader is overtaken by the other
			}
			r := newStoppedRig(t, log, func(s *Settings) { oneFrameGroups(s); s.Config.Consumers = 4 })
			r.estimate = func(journal.Kind, []byte) uint64 { pause(4); return 1 }
			r.p.setReact(func(call *call) error {
				if began := time.Now(); c.draw(4) == 0 { // all hang now and then, and then go on together
					time.Sleep(began.Truncate(50 * time.Millisecond).Add(50 * time.Millisecond).Sub(began))
				}
				c.done(call.frames)
				return nil
			})
			r.Start()
			check := func() map[journal.Lane]journal.Position {
				now := r.Frontiers()
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, f := range log.frames {
					if f.Position < now[logLane(f.Tenant)] && !c.durable[f.Position] {
						t.Errorf("the frontier of %q passes the frame at %d, which was not consumed", f.Tenant, f.Position)
					}
				}
				return now
			}
			for range 300 {
				log.append(logLane([]string{"x", "y", "z"}[rnd.IntN(3)]), 1, logPayload("a"))
				if rnd.IntN(4) > 0 {
					log.gap(1)
				}
				time.Sleep(time.Duration(rnd.IntN(2)*rnd.IntN(8)) * time.Millisecond)
				check()
			}
			time.Sleep(time.Minute)
			r.wait()
			for lane, p := range check() {
				assert.Equal(t, log.Durable(), p, lane)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
