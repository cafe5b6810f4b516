// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// chaos is a sink that does, at random, everything a sink may do, and the
// oracle of what it has made durable.
type chaos struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	healthy bool
	durable map[journal.Position]bool // consumed, and no handle was left or given up
	busy    map[journal.Position]bool // being consumed now
	twice   []journal.Position        // frames in two calls at once
}

func (c *chaos) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *chaos) done(frames []journal.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range frames {
		c.durable[p] = true
	}
}

func (c *chaos) react(call *call) error {
	c.mu.Lock()
	healthy := c.healthy
	for _, p := range call.frames {
		if c.busy[p] {
			c.twice = append(c.twice, p)
		}
		c.busy[p] = true
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range call.frames {
			delete(c.busy, p)
		}
	}()
	if healthy {
		c.done(call.frames)
		return nil
	}
	time.Sleep(time.Duration(c.draw(2000)) * time.Millisecond)
	switch c.draw(12) {
	case 0, 1:
		return errUnavailable
	case 2:
		return consumererror.NewPermanent(errors.New("bad data"))
	case 3:
		return permanent(codes.Internal)
	case 4:
		panic("chaos")
	case 5: // hangs until it is cancelled
		<-call.ctx.Done()
		return call.ctx.Err()
	case 6: // ignores that it is cancelled
		time.Sleep(40 * time.Second)
		if c.draw(2) == 0 {
			return errUnavailable
		}
		c.done(call.frames)
		return nil
	case 7, 8, 9: // buffers, with up to three handles, one of which may fail
		n, bad := 1+c.draw(3), c.draw(6)
		var once sync.Once
		var left sync.WaitGroup
		for i := range n {
			release, ok := barrier.Retain(call.ctx)
			if !ok {
				panic("no handle")
			}
			left.Add(1)
			wait := time.Duration(c.draw(60_000)) * time.Millisecond
			time.AfterFunc(wait, func() {
				if i == bad {
					release(false)
					once.Do(func() { left.Add(1) }) // never durable by this attempt
				}
				left.Done()
			})
			time.AfterFunc(wait+time.Millisecond, func() { release(true) })
		}
		if c.draw(8) == 0 {
			return errUnavailable // with handles taken: they are void
		}
		if bad >= n {
			go func() {
				left.Wait()
				c.done(call.frames)
			}()
		}
		return nil
	}
	c.done(call.frames)
	return nil
}

// TestD04_Chaos: whatever sinks do, and however often delivery restarts from
// the horizons of its last barrier, no frontier passes a frame that is not
// durable, no frame is in two calls at once, the bounds hold, and in the end
// every frame is delivered.
func TestD04_Chaos(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { chaosRun(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func chaosRun(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := &chaos{rnd: rand.New(rand.NewPCG(seed, 2)), durable: map[journal.Position]bool{}, busy: map[journal.Position]bool{}}
	log := newMemLog()
	consumers := 1 + rnd.IntN(5)
	limit := uint64(400 + rnd.IntN(4000))
	items := uint64(1 + rnd.IntN(8))
	set := func(s *Settings) {
		s.Config.Consumers = consumers
		s.Config.Timeout = 20 * time.Second
		s.Config.Group = GroupConfig{MaxItems: items, MaxBytes: 300}
		s.Config.MaxInFlightBytes = limit
		s.Config.PermanentGrace = 30 * time.Second
		s.Config.Retry.RandomizationFactor = 0.5
	}
	lanes := []journal.Lane{logLane("a"), logLane("b"), logLane("c"), {Tenant: "a", Kind: journal.KindTraces}}
	largest := uint64(0)
	add := func() {
		l := lanes[rnd.IntN(len(lanes))]
		name := fmt.Sprintf("%0*d", 1+rnd.IntN(40)*rnd.IntN(8), rnd.IntN(9))
		payload := logPayload(name)
		if l.Kind == journal.KindTraces {
			payload = tracePayload(name)
		}
		var kept []journal.Entry
		if rnd.IntN(5) == 0 {
			kept = []journal.Entry{{Key: "x", Value: "y"}}
		}
		log.append(l, 1, payload, kept...)
		if rnd.IntN(3) == 0 {
			log.gap(1 + rnd.Uint64N(100))
		}
		largest = max(largest, uint64(4*len(payload)+costUnit))
	}
	if rnd.IntN(2) == 0 {
		log.slow = func() time.Duration { return time.Duration(c.draw(3)*c.draw(200)) * time.Millisecond }
	}
	frontiers := map[journal.Lane]journal.Position{}
	check := func(r *rig) {
		now := r.Frontiers()
		letters := map[journal.Position]bool{}
		for _, p := range log.lettersWritten() {
			letters[p] = true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, f := range log.frames {
			id := journal.Lane{Tenant: f.Tenant, Kind: f.Kind}
			if f.Position < now[id] && !c.durable[f.Position] && !letters[f.Position] {
				t.Errorf("the frontier %d of %v passes the frame at %d, which is not durable", now[id], id, f.Position)
			}
		}
		for id, p := range frontiers {
			if now[id] < p {
				t.Errorf("the frontier of %v went back from %d to %d", id, p, now[id])
			}
		}
		frontiers = now
		if len(c.twice) > 0 {
			t.Errorf("frames in two calls at once: %v", c.twice)
		}
		if most := r.p.mostAtOnce(); most > consumers {
			t.Errorf("%d calls at once, %d consumers", most, consumers)
		}
		if in := r.Stats().InFlight; in > max(limit, largest*items) {
			t.Errorf("%d bytes in flight, limit %d", in, limit)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		remembered := 0
		for _, l := range r.lanes {
			for g := l.groups.first; g != nil; g = g.next {
				remembered += groupBytes + refBytes*len(g.refs)
			}
		}
		if remembered != r.remembered {
			t.Errorf("%d bytes of groups are remembered, counted are %d", remembered, r.remembered)
		}
	}

	for range rnd.IntN(60) {
		add()
	}
	for life := range 3 {
		for id, p := range frontiers {
			log.horizon[id] = p
		}
		r := newStoppedRig(t, log, set)
		r.p.setReact(c.react)
		recovered := r.Stats()
		r.skipBytes = uint64(rnd.IntN(500))
		r.maxRemembered = rnd.IntN(20_000)
		if log.slow != nil {
			estimate := r.estimate
			r.estimate = func(k journal.Kind, payload []byte) uint64 {
				log.take() // the reader that measures is without the lock
				return estimate(k, payload)
			}
		}
		r.Start()
		first := len(log.frames)
		for range 20 + rnd.IntN(60) {
			for range rnd.IntN(4) {
				add()
			}
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			r.wait()
			check(r)
		}
		if life == 2 {
			c.mu.Lock()
			c.healthy = true
			c.mu.Unlock()
			time.Sleep(time.Hour)
			r.wait()
			check(r)
			for _, f := range log.frames {
				id := journal.Lane{Tenant: f.Tenant, Kind: f.Kind}
				if frontiers[id] < f.Position+f.Len {
					t.Errorf("the frame at %d of %v was not settled: frontier %d, state %s", f.Position, id, frontiers[id], r.state(id))
				}
			}
			if r.Stats().InFlight != 0 || r.HeldBytes() != 0 || r.Stats().Parked != 0 {
				t.Errorf("at rest: %+v", r.Stats())
			}
			r.mu.Lock()
			if r.cached != 0 || r.running != 0 || r.retrying != 0 || r.doubted != (use{}) {
				t.Errorf("at rest: cached %d, running %d, retries %d", r.cached, r.running, r.retrying)
			}
			r.mu.Unlock()
		}
		if err := r.Shutdown(context.Background()); err != nil {
			time.Sleep(time.Minute) // some ignore their cancellation
		}
		check(r)
		r.Close()
		// Conservation, per kind.
		end := r.Stats()
		for k, s := range end.Signals {
			in := recovered.Signals[k].PendingItems
			for _, f := range log.frames[first:] {
				if f.Kind == k {
					in += uint64(f.Items)
				}
			}
			r.mu.Lock()
			unread := uint64(0)
			for _, f := range log.frames[first:] {
				if f.Kind == k && f.Position >= r.main {
					unread += uint64(f.Items)
				}
			}
			r.mu.Unlock()
			if out := s.Settled.Items + s.DeadLettered.Items + s.Dropped.Items + s.PendingItems + unread; in != out {
				t.Errorf("life %d, kind %d: %d items in, %d out: %+v", life, k, in, out, s)
			}
		}
	}
}
