// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"errors"
	"io"
	"time"

	"github.com/otelweir/weir/internal/journal"
)

// lapBytes is how far the catch-up reader goes for some lanes while others
// wait for it elsewhere.
const lapBytes = 256 << 20

// keepOpen is how long the catch-up reader keeps its file, and the frame it
// has in hand, while it has nothing to do: usually until a consumer is free.
const keepOpen = time.Second

// lap is one continuous stretch of the catch-up reader. It begins for the lane
// that has waited longest, and every lane whose cursor it comes past while the
// lane is behind travels along, until a frame of it finds no place.
type lap struct {
	id         uint64 // another after its end, so that no lane is in it any more
	start      journal.Position
	read       uint64
	vain       uint64  // of read, since a lane took a frame
	travellers []*lane // every lane that took a frame, and the first
	open       int     // those of them that were not left behind
}

// travels reports whether l takes part in the lap.
func (p *lap) travels(l *lane) bool { return l.lap == p.id && l.leftLap != p.id }

// want puts a lane that is behind, and could take a frame, in line for the
// catch-up reader. A lane of which the main reader has passed nothing travels
// with it again at once.
func (d *Delivery) want(l *lane) {
	if l.phase != behind {
		return
	}
	if !l.missed {
		d.rejoin(l)
		return
	}
	if l.atDamage() {
		d.stopIfAtDamage(l)
		return
	}
	if l.stuck || l.wanting || d.lap.travels(l) {
		return
	}
	l.wanting = true
	d.wants = append(d.wants, l)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// rejoin lets the main reader serve l again: no frame of it lies between its
// cursor and the main reader.
func (d *Delivery) rejoin(l *lane) {
	l.phase, l.missed, l.lastError = current, false, ""
	d.returns++
	l.rest()
	d.stopIfAtDamage(l)
}

// readBehind is the catch-up reader. One for all lanes that are behind; it
// reads on as far as one of those it serves can take more, and waits while
// none can.
func (d *Delivery) readBehind() {
	c := catchup{d: d}
	defer c.close()
	for {
		l, cursor := d.nextWant()
		if l == nil {
			if !c.idle() {
				return
			}
			continue
		}
		if from, ok := d.beginLap(l, cursor); ok && !c.run(from) {
			return
		}
	}
}

// nextWant is the lane that has waited longest, and its cursor.
func (d *Delivery) nextWant() (*lane, journal.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.wants) > 0 && !d.stopping {
		l := d.wants[0]
		d.wants[0] = nil
		d.wants = d.wants[1:]
		l.wanting = false
		if l.phase == behind && l.missed && !l.stuck {
			return l, l.cursor
		}
	}
	return nil, 0
}

// beginLap asks the ledger where the lane's next frame may be and begins a lap
// there, or finds that there is none before the main reader.
func (d *Delivery) beginLap(l *lane, cursor journal.Position) (journal.Position, bool) {
	durable := d.source.Durable()
	next, ok := d.source.NextOf(l.id, cursor)
	if !ok {
		next = durable
	}
	d.mu.Lock()
	defer d.unlock()
	if l.phase != behind { // parked meanwhile
		return 0, false
	}
	l.cursor = max(l.cursor, next)
	if l.cursor >= d.main {
		d.rejoin(l)
		return 0, false
	}
	if l.damage = cmp.Or(d.damageAt(l.cursor), l.damage); l.atDamage() {
		d.stopIfAtDamage(l)
		return 0, false
	}
	d.lap = lap{id: d.lap.id + 1, start: l.cursor}
	d.travel(l)
	return l.cursor, true
}

func (d *Delivery) travel(l *lane) {
	l.lap = d.lap.id
	d.lap.travellers = append(d.lap.travellers, l)
	d.lap.open++
}

// leaveLap keeps a lane out of the rest of this lap: there is, or may be, a
// frame of it that the lap came past and it did not take.
func (d *Delivery) leaveLap(l *lane) {
	if d.lap.travels(l) {
		d.lap.open--
	}
	l.leftLap = d.lap.id
}

// hand gives a frame of the lap to its lane, which wants it.
func (d *Delivery) hand(f *journal.ReadFrame, cost uint64) {
	l := d.lanes[journal.Lane{Tenant: f.Tenant, Kind: f.Kind}]
	if !d.lap.travels(l) {
		d.travel(l)
	}
	if !d.take(l, f, cost, &d.lapGather) {
		l.cursor = f.Position
		d.leaveLap(l)
		return
	}
	l.cursor, l.lastError = f.Position+f.Len, ""
	d.lap.vain = 0
}

// wanted reports whether the main reader has passed f and it is the next frame
// of its lane that was not taken.
func (d *Delivery) wanted(f *journal.ReadFrame) bool {
	l := d.lanes[journal.Lane{Tenant: f.Tenant, Kind: f.Kind}]
	return f.Position < d.main && l != nil && l.phase == behind && l.missed && l.leftLap != d.lap.id &&
		l.cursor >= d.lap.start && l.cursor <= f.Position
}

// lapOver ends the lap at p, where the reader is, when there is a reason to:
// it has reached the main reader, nobody travels any more, others wait, or a
// look at the ledger ([Delivery.beginLap]) may save reading.
func (d *Delivery) lapOver(p journal.Position) bool {
	if p < d.main && d.lap.open > 0 && d.lap.vain < d.skipBytes && (d.lap.read < lapBytes || len(d.wants) == 0) {
		return false
	}
	d.endLap(p)
	return true
}

func (d *Delivery) endLap(p journal.Position) {
	over := d.lap
	d.lap = lap{id: over.id + 1}
	for _, l := range over.travellers {
		if !over.travels(l) {
			continue
		}
		l.cursor = max(l.cursor, p)
		if l.cursor >= d.main {
			d.rejoin(l)
		} else {
			d.want(l)
		}
	}
	d.lapGather.older(p, d.makeReady)
}

// lapFailed ends a lap that met a read error at p. What stopped there tries
// again a while later; at damage, the ledger is asked at once whether a lane
// has anything there, see [Delivery.beginLap].
func (d *Delivery) lapFailed(p journal.Position, err error) {
	d.mu.Lock()
	defer d.unlock()
	if damage := d.blame(&d.lapError, err); damage != nil {
		d.endLap(p)
		return
	}
	var stopped []*lane
	for _, l := range d.lap.travellers {
		if d.lap.travels(l) {
			l.stuck, l.full, l.lastError = true, false, brief(err)
			stopped = append(stopped, l)
		}
	}
	d.endLap(p)
	d.after(d.cfg.Retry.MaxInterval, func() {
		for _, l := range stopped {
			l.free()
			d.want(l)
		}
	})
}

// catchup is what the catch-up reader keeps between laps.
type catchup struct {
	d    *Delivery
	r    reader
	back *journal.ReadFrame // read, but the lane it was read for had no place
}

func (c *catchup) close() {
	if c.r != nil {
		_ = c.r.Close()
		c.r = nil
	}
	c.back = nil
}

func (c *catchup) next() (journal.ReadFrame, error) {
	if f := c.back; f != nil {
		c.back = nil
		return *f, nil
	}
	return c.r.Next()
}

// idle waits for a lane that wants frames. It reports false when delivery
// stops.
func (c *catchup) idle() bool {
	keep := time.NewTimer(keepOpen)
	defer keep.Stop()
	for {
		select {
		case <-c.d.wake:
			return true
		case <-c.d.stop:
			return false
		case <-keep.C:
			c.close() // an open file keeps a reclaimed segment's space
		}
	}
}

// run reads one lap. It reports false when delivery stops.
func (c *catchup) run(from journal.Position) bool {
	d := c.d
	switch {
	case c.back != nil && c.back.Position == from:
	case c.r == nil:
		c.r = d.source.reader(from)
	case c.back != nil || c.r.Position() != from:
		c.back = nil
		c.r.Seek(from)
	}
	for !d.stopped() {
		f, err := c.next()
		switch {
		case errors.Is(err, io.EOF):
			d.mu.Lock()
			d.lapError = nil
			d.endLap(c.r.Position())
			d.unlock()
			return true
		case err != nil:
			d.lapFailed(c.r.Position(), err)
			c.close()
			return true
		}
		if c.step(&f) {
			return true
		}
	}
	return false
}

// step deals with one frame and reports whether the lap is over.
//
// A lap that goes past a frame its lane is yet to take loses the frame: the
// cursor would follow the lap. So one hold of the lock sees that nobody is to
// take it and goes past it. To measure it the lock is let go of, and whatever
// was known before that is asked again.
func (c *catchup) step(f *journal.ReadFrame) bool {
	d := c.d
	d.mu.Lock()
	defer d.unlock()
	d.lapError = nil
	var cost uint64
	wanted := d.wanted(f)
	if wanted {
		d.mu.Unlock()
		cost = d.cost(f)
		d.mu.Lock()
		wanted = d.wanted(f)
	}
	if f.Position >= d.main {
		c.back = f // the main reader's to pass first, or to take
		d.endLap(f.Position)
		return true
	}
	d.lap.read += f.Len
	d.lap.vain += f.Len
	if wanted {
		d.hand(f, cost)
	}
	after := f.Position + f.Len
	d.lapGather.older(after-min(after, gatherAhead*d.cfg.Group.MaxBytes), d.makeReady)
	if d.lap.open == 0 {
		c.back = f // the frame that found no place
		d.endLap(f.Position)
		return true
	}
	return d.lapOver(after)
}
