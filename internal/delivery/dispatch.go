// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"math/bits"
	"time"
)

// share is part/4 of whole, at least 1.
func share(whole, part uint64) uint64 { return max(1, whole/4*part+whole%4*part/4) }

// use is what some of the runs have of what there is.
type use struct {
	consumers uint64
	charged   uint64 // bytes, of the budget
}

// within reports whether one more run costing cost leaves u within part/4 of
// the consumers and of the budget. There is always room for a first one.
func (d *Delivery) within(u use, part, cost uint64) bool {
	if u.consumers == 0 {
		return true
	}
	limit := d.cfg.MaxInFlightBytes
	return u.consumers < share(uint64(d.cfg.Consumers), part) &&
		(limit == 0 || u.charged+cost <= share(limit, part))
}

// signalHealth is what is known of a signal's destinations as a whole.
type signalHealth struct {
	halted  int       // lanes whose head is being tried again
	hung    time.Time // when the latest call began that failed after more than hangs
	doubted use       // by lanes in doubt
}

// hangs is how long a call takes at least of which it matters, once it has
// failed, that its consumer was of no use meanwhile.
const hangs = time.Second

// doubtful reports whether a destination of the lane's signal hangs and nothing
// of the lane was consumed since that began: the lane's next call may hang, too.
func (d *Delivery) doubtful(l *lane) bool {
	s := &d.signals[l.id.Kind]
	return s.halted > 0 && l.consumed.Before(s.hung)
}

// withinDoubt reports whether one more run of a lane in doubt, costing cost,
// leaves those of its signal within half of the consumers and of the budget, and
// all within three quarters; two there may be in any case, for one retry is to
// stop no others. Were there no such bound, every lane behind a destination that
// hangs, and there may be one for each tenant, would have a consumer for the
// timeout before it is parked, and all other lanes would wait for that.
func (d *Delivery) withinDoubt(l *lane, cost uint64) bool {
	return d.doubted.consumers < 2 ||
		d.within(d.doubted, 3, cost) && d.within(d.signals[l.id.Kind].doubted, 2, cost)
}

// blameSignal notes that a call hung, if it did.
func (d *Delivery) blameSignal(r *run) {
	s := &d.signals[r.g.lane.id.Kind]
	if r.began.After(s.hung) && time.Since(r.began) > hangs {
		s.hung = r.began
	}
}

// makeReady lets a gathered group go as soon as there is a consumer for it.
func (d *Delivery) makeReady(g *group) {
	g.ready = true
	d.enqueue(g.lane)
	d.dispatch()
}

// enqueue puts a lane that has a group to deliver in line for a consumer.
func (d *Delivery) enqueue(l *lane) {
	if !l.phase.halted() && l.next() != nil {
		d.queue.push(l)
	}
}

// dispatch hands out consumers for as long as there are any and something can
// use them. Everything that may have made that true calls it.
func (d *Delivery) dispatch() {
	for !d.stopping && d.running < d.cfg.Consumers {
		first, second := d.pick, d.pickRetry
		if d.retryTurn {
			first, second = second, first
		}
		g, others := first()
		if g == nil && others {
			g, _ = second()
		}
		if g == nil {
			return
		}
		d.start(g)
	}
}

// pick takes from the line the first lane that a consumer may serve. Lanes
// below a quarter of the consumers come before lanes that have more, and none
// gets more than three quarters, nor do all in doubt together: what hangs
// leaves room for the others, and one alone is not kept from most of it. When
// there is none, others says whether the budget is open to others.
func (d *Delivery) pick() (_ *group, others bool) {
	var second *lane
	for l := range d.queue.all() {
		g := l.next()
		if g == nil { // what it was there for went another way
			d.queue.remove(l)
			continue
		}
		switch {
		case d.doubtful(l) && !d.withinDoubt(l, g.cost):
		case d.within(l.use, 1, g.cost):
			if got, others := d.claim(&d.queue, l, g); got != nil || !others {
				return got, others
			}
		case second == nil && d.within(l.use, 3, g.cost):
			second = l
		}
	}
	if second == nil {
		return nil, true
	}
	return d.claim(&d.queue, second, second.next())
}

// claim takes a lane out of line for its group g, if the budget has room.
func (d *Delivery) claim(q *line, l *lane, g *group) (_ *group, others bool) {
	switch d.afford(g) {
	case affordable:
		q.remove(l)
		return g, true
	case reserved:
		return nil, false
	}
	return nil, true
}

// pickRetry takes the first lane whose head is due, while retries have less
// than half of the consumers. While a lane in doubt is tried, others in doubt
// come after all that are not.
func (d *Delivery) pickRetry() (_ *group, others bool) {
	if d.retrying >= max(1, d.cfg.Consumers/2) {
		return nil, true
	}
	var second *lane
	for l := range d.retries.all() {
		g := l.head()
		if d.doubted.consumers > 0 && d.doubtful(l) {
			if second == nil && d.withinDoubt(l, g.cost) {
				second = l
			}
			continue
		}
		if got, others := d.claim(&d.retries, l, g); got != nil || !others {
			return got, others
		}
	}
	if second == nil {
		return nil, true
	}
	return d.claim(&d.retries, second, second.head())
}

// affordability is whether the budget has room for a group now.
type affordability uint8

const (
	affordable affordability = iota
	tooDear                  // others may go first
	reserved                 // nobody may: what is given back is kept for it
)

// afford charges the budget for g if there is room. A group that others have
// overtaken for a second gets turns of 1, 4, 16 and then 64 seconds in which
// nobody may, with turns of 2, 8, 32 and then 64 in between in which they may
// again: small groups can not starve a large one, and a large one that waits
// for a consumer that hangs can not starve them.
func (d *Delivery) afford(g *group) affordability {
	if d.budget.TryAcquire(g.cost) {
		g.queuedFor = time.Time{}
		return affordable
	}
	now := time.Now()
	if g.queuedFor.IsZero() {
		g.queuedFor = now
	}
	d.askAgain()
	waited := uint64(now.Sub(g.queuedFor) / roomTurn)
	turn := bits.Len64(waited)
	if waited >= longestTurn {
		turn = int(waited / longestTurn)
	}
	if turn%2 == 1 {
		return reserved
	}
	return tooDear
}

// longestTurn is how many times roomTurn the turns at the budget grow to.
const longestTurn = 64

// roomTurn is how long a group is overtaken before that is stopped.
const roomTurn = time.Second

// askAgain makes sure that turns at the budget pass even when no consumer
// returns.
func (d *Delivery) askAgain() {
	if d.asking {
		return
	}
	d.asking = true
	d.after(roomTurn, func() {
		d.asking = false
		d.dispatch()
	})
}

// start gives g, for which the budget was charged, a consumer.
func (d *Delivery) start(g *group) {
	l := g.lane
	retry := l.phase.halted()
	if g.state == gathering {
		l.free()
	}
	g.move(running, false)
	g.meta = nil
	for i := range g.frames {
		d.cached -= uint64(len(g.frames[i].Payload))
	}
	if g.attempts > 0 {
		l.counts.redelivered.Add(g.items)
		d.count(l).redelivered.Add(g.items)
	}
	g.attempts++
	r := &run{d: d, g: g, retry: retry, doubt: d.doubtful(l), began: time.Now(), charged: g.cost}
	for _, u := range r.uses() {
		u.consumers++
		u.charged += r.charged
	}
	d.running++
	if retry {
		d.retrying++
	}
	d.retryTurn = !retry
	d.runs.Add(1)
	go r.run()
	if !retry {
		d.enqueue(l)
		d.want(l)
	}
}

// ended gives back the consumer and the budget of a run.
func (d *Delivery) ended(r *run) {
	d.budget.Release(r.charged)
	for _, u := range r.uses() {
		u.consumers--
		u.charged -= r.charged
	}
	d.running--
	if r.retry {
		d.retrying--
	}
}

// uses are those that r counts in.
func (r *run) uses() []*use {
	l := r.g.lane
	if r.doubt {
		return []*use{&l.use, &r.d.doubted, &r.d.signals[l.id.Kind].doubted}
	}
	return []*use{&l.use}
}
