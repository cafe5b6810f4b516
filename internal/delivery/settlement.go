// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"slices"

	"github.com/otelweir/weir/internal/journal"
)

// handles are those taken by one Consume call on one group. They are void
// when the call fails, when one is released as not durable (the group is then
// delivered again, under new handles), and when the log is closed.
type handles struct {
	d *Delivery
	g *group

	// guarded by Delivery.mu
	returned  bool // Consume has: no further handle is given
	void      bool
	open      int
	undurable bool
}

// retain is what barrier.Retain calls.
func (h *handles) retain() (func(durable bool), bool) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.returned || h.d.closed {
		return func(bool) {}, false
	}
	h.open++
	var released bool // guarded by Delivery.mu
	return func(durable bool) {
		h.d.mu.Lock()
		defer h.d.unlock()
		if !released && !h.void && !h.d.closed {
			released = true
			h.release(durable)
		}
	}, true
}

func (h *handles) release(durable bool) {
	h.open--
	h.undurable = h.undurable || !durable
	if !h.returned {
		return // finish looks at it
	}
	d, g := h.d, h.g
	switch {
	case h.undurable:
		h.void = true
		d.heldBytes.Add(-g.framed)
		d.again(g)
	case h.open == 0:
		h.void = true
		d.heldBytes.Add(-g.framed)
		d.settle(g, settledTally)
	default:
		return
	}
	d.dispatch()
}

// close ends the call: open says whether a handle is out, undurable whether
// one came back already and asks for another delivery. When ok is false, or
// undurable true, all of them are void. h may be nil: no call was made.
func (h *handles) close(ok bool) (open, undurable bool) {
	if h == nil {
		return false, false
	}
	h.returned = true
	h.void = !ok || h.undurable || h.open == 0
	return h.open > 0, h.undurable
}

// hold leaves g to its handles. It keeps neither consumer nor budget.
func (d *Delivery) hold(g *group) {
	g.move(held, false)
	g.refs = slices.Clone(g.refs) // without what it had room for
	d.heldBytes.Add(g.framed)
}

// again makes g, which was consumed but not made durable, due after a while:
// it alone, for the lane is not at fault.
func (d *Delivery) again(g *group) {
	g.undurable++
	g.move(owed, true)
	d.after(d.cfg.Retry.interval(g.undurable), func() {
		if g.state == owed && g.notBefore {
			g.move(owed, false)
			d.enqueue(g.lane)
			d.dispatch()
		}
	})
}

// settle ends g and counts it.
func (d *Delivery) settle(g *group, as tallyOf) {
	d.tally(g.lane, as, g.items, g.framed)
	d.remove(g)
}

// tally counts what is settled.
func (d *Delivery) tally(l *lane, as tallyOf, items, framed uint64) {
	for _, c := range []*counts{&l.counts, d.count(l)} {
		t := as(c)
		t.items.Add(items)
		t.size.Add(framed)
	}
	d.unpend(l, items)
	d.settled += framed
}

// unpend takes items off what is pending, and returns how many there were.
func (d *Delivery) unpend(l *lane, items uint64) uint64 {
	items = min(items, uint64(l.counts.pending.Load()))
	l.counts.pending.Add(-int64(items))
	d.count(l).pending.Add(-int64(items))
	return items
}

// lose counts pending items as lost: their frames, which damage took, were
// found not to be in the log any more. Until then they are pending, whoever
// set the range aside, so that every item is in one figure only.
func (d *Delivery) lose(l *lane, items uint64) {
	d.lost.Add(d.unpend(l, items))
}

// remove takes g out of its lane.
func (d *Delivery) remove(g *group) {
	l := g.lane
	g.count(-1)
	l.groups.remove(g)
	d.release(groupBytes + refBytes*len(g.refs))
	if l.ahead == nil {
		l.free()
	}
	d.stopIfAtDamage(l)
	l.rest()
	d.square(l)
	d.want(l)
}

// release forgets n bytes of what is remembered of groups. Lanes that wait
// for room go on when there is some to share.
func (d *Delivery) release(n int) {
	d.remembered -= n
	if len(d.crowded) == 0 || d.remembered > d.maxRemembered/8*7 {
		return
	}
	for l := range d.crowded {
		if l.full {
			l.free()
			d.want(l)
		}
	}
	clear(d.crowded)
}

// square loses the items of frames that damage took before the lane did: of an
// idle lane nothing is pending.
func (d *Delivery) square(l *lane) {
	if l.state() == Idle && d.main >= d.recovered {
		d.lose(l, uint64(l.counts.pending.Load()))
	}
}

// Frontiers is the settled frontier of every lane: the position before which
// nothing of the lane is outstanding. No frame at or after it has been
// settled for good. The caller may keep the map.
//
// A lane of which the log needs nothing any more is not among them: one that
// is not there is one of which nothing is outstanding. It is forgotten on the
// way if there are more than KeepLanes.
func (d *Delivery) Frontiers() map[journal.Lane]journal.Position {
	lanes := d.source.Lanes()
	d.mu.Lock()
	defer d.mu.Unlock()
	m := make(map[journal.Lane]journal.Position, len(lanes))
	for _, info := range lanes {
		if _, known := signalOf(info.Kind); known {
			m[info.Lane] = d.main
		}
	}
	for id, l := range d.lanes {
		d.square(l)
		if _, inLog := m[id]; !inLog && l.forgettable(d.main) {
			d.lose(l, uint64(l.counts.pending.Load()))
			if len(d.lanes) > d.cfg.KeepLanes {
				d.gone[id.Kind].add(l.counts.read())
				delete(d.lanes, id)
			}
			continue
		}
		m[id] = l.frontier(d.main)
	}
	return m
}

// HeldBytes is how many frame bytes are unsettled only because a handle is
// held on them.
func (d *Delivery) HeldBytes() uint64 { return d.heldBytes.Load() }
