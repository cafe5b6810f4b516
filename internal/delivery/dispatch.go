// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"math/bits"
	"time"
)

// share is part/4 of whole, at least 1.
func share(whole, part uint64) uint64 { return max(1, whole/4*part+whole%4*part/4) }

// within reports whether one more run costing cost leaves the lane within
// part/4 of the consumers and of the budget. A lane without a run always has
// room for one.
func (d *Delivery) within(l *lane, part, cost uint64) bool {
	if l.running == 0 {
		return true
	}
	limit := d.cfg.MaxInFlightBytes
	return uint64(l.running) < share(uint64(d.cfg.Consumers), part) &&
		(limit == 0 || l.charged+cost <= share(limit, part))
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
// gets more than three quarters: one that hangs leaves room for the others,
// and one alone is not kept from most of it. When there is none, others says
// whether the budget is open to others.
func (d *Delivery) pick() (_ *group, others bool) {
	var second *lane
	for l := range d.queue.all() {
		g := l.next()
		if g == nil { // what it was there for went another way
			d.queue.remove(l)
			continue
		}
		switch {
		case d.within(l, 1, g.cost):
			switch d.afford(g) {
			case affordable:
				d.queue.remove(l)
				return g, true
			case reserved:
				return nil, false
			}
		case second == nil && d.within(l, 3, g.cost):
			second = l
		}
	}
	if second == nil {
		return nil, true
	}
	g := second.next()
	switch d.afford(g) {
	case affordable:
		d.queue.remove(second)
		return g, true
	case reserved:
		return nil, false
	}
	return nil, true
}

// pickRetry takes the first lane whose head is due, while retries have less
// than half of the consumers.
func (d *Delivery) pickRetry() (_ *group, others bool) {
	if d.retryRunning >= max(1, d.cfg.Consumers/2) {
		return nil, true
	}
	for l := range d.retries.all() {
		g := l.head()
		switch d.afford(g) {
		case affordable:
			d.retries.remove(l)
			return g, true
		case reserved:
			return nil, false
		}
	}
	return nil, true
}

// affordability is whether the budget has room for a group now.
type affordability uint8

const (
	affordable affordability = iota
	tooDear                  // others may go first
	reserved                 // nobody may: what is given back is kept for it
)

// afford charges the budget for g if there is room. A group that others have
// overtaken for a second gets turns of 1, 4, 16… seconds in which nobody may,
// with turns of 2, 8, 32… in between in which they may again: small groups can
// not starve a large one, and a large one that waits for a consumer that hangs
// can not starve them.
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
	if bits.Len64(waited)%2 == 1 {
		return reserved
	}
	return tooDear
}

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
	l.charged += g.cost
	d.running++
	if retry {
		d.retryRunning++
	}
	d.retryTurn = !retry
	d.runs.Add(1)
	go d.run(g, retry)
	if !retry {
		d.enqueue(l)
		d.want(l)
	}
}

// ended gives back the consumer and the budget of a run.
func (d *Delivery) ended(g *group, charged uint64, retry bool) {
	d.budget.Release(charged)
	g.lane.charged -= charged
	d.running--
	if retry {
		d.retryRunning--
	}
}
