// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/internal/journal"
)

const (
	// gatherAhead is, in groups of the largest size, how far a reader goes
	// past the start of a group before the group no longer waits to be full.
	gatherAhead = 4
	// cacheGroups is, in groups of the largest size, how many bytes of frames
	// wait for a consumer in memory. What finds no place there is read again
	// when it is delivered.
	cacheGroups = 4
	// skipBytes is how many bytes a reader reads in vain before it asks the
	// ledger where the next frame for it may be.
	skipBytes = 8 << 20
	// skipLanes is the number of lanes above which asking costs more than
	// reading on.
	skipLanes = 64
	// readRetry is how long a reader waits after a read error.
	readRetry = time.Second
)

// gatherers are the groups that one reader has begun and that are not yet
// ready, oldest first.
type gatherers struct{ groups []*group }

func (q *gatherers) push(g *group) { q.groups = append(q.groups, g) }

// older takes out those that begin before p.
func (q *gatherers) older(p journal.Position, f func(*group)) {
	for len(q.groups) > 0 {
		g := q.groups[0]
		waits := g.state == gathering && !g.ready
		if waits && g.start >= p {
			return
		}
		q.groups[0] = nil
		q.groups = q.groups[1:]
		if waits {
			f(g)
		}
	}
	q.groups = nil
}

// readMain is the main reader: it goes through the log once, from the first
// unsettled frame to the end, and on as the log grows. It waits for nothing
// but new frames: a lane that has no place for its next frame falls behind.
func (d *Delivery) readMain() {
	r := d.source.reader(d.main)
	defer func() { _ = r.Close() }()
	var skipped uint64
	for !d.stopped() {
		grew := d.source.Grew()
		f, err := r.Next()
		switch {
		case err == nil:
			if d.offer(&f) {
				skipped = 0
			} else if skipped += f.Len; skipped >= d.skipBytes {
				skipped = 0
				d.skip(r)
			}
		case errors.Is(err, io.EOF):
			d.reachedEnd(r.Position())
			select {
			case <-grew:
			case <-d.stop:
			}
		default:
			if damage := d.readFailed(err); damage != nil {
				d.countBehind(r, damage)
				return
			}
			if !d.sleep() {
				return
			}
		}
	}
}

// sleep waits before the main reader tries again to read. It reports false
// when delivery stops.
func (d *Delivery) sleep() bool {
	t := time.NewTimer(readRetry)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-d.stop:
		return false
	}
}

// offer hands a frame the main reader has read to its lane. It reports
// whether the lane took it.
func (d *Delivery) offer(f *journal.ReadFrame) bool {
	var cost uint64
	d.mu.Lock()
	l := d.laneOf(f)
	if l != nil && l.phase == current && f.Position >= l.from && !d.drops(l) {
		d.mu.Unlock()
		cost = d.cost(f)
		d.mu.Lock()
		l = d.laneOf(f) // it may have been forgotten meanwhile
	}
	defer d.unlock()
	d.main, d.mainError = f.Position+f.Len, nil
	d.mainGather.older(d.main-min(d.main, gatherAhead*d.cfg.Group.MaxBytes), d.makeReady)
	if l == nil || f.Position < l.from {
		return false
	}
	if f.Position >= d.recovered {
		l.counts.pending.Add(int64(f.Items))
		d.count(l).pending.Add(int64(f.Items))
	}
	switch {
	case d.drops(l):
		d.tally(l, droppedTally, uint64(f.Items), f.Len)
		return true
	case l.phase != current:
		l.pass(f.Position)
		return false
	case !d.take(l, f, cost, &d.mainGather):
		d.fallBehind(l, f.Position)
		return false
	}
	return true
}

// take adds a frame to the group its lane gathers, or begins one. It reports
// false when the lane has no place for it.
func (d *Delivery) take(l *lane, f *journal.ReadFrame, cost uint64, q *gatherers) bool {
	if l.ahead != nil && !l.ahead.fits(f, cost, &d.bounds) {
		d.makeReady(l.ahead) // may be off at once
	}
	switch {
	case l.ahead != nil && !l.ahead.fits(f, cost, &d.bounds):
		l.stuck, l.full = true, false
		return false
	case l.ahead == nil && l.groups.n > 0 && d.remembered >= d.maxRemembered:
		l.stuck, l.full = true, true
		d.crowded[l] = struct{}{}
		return false
	case l.ahead == nil:
		d.remembered += groupBytes
		g := &group{lane: l}
		g.count(+1)
		g.start = f.Position
		l.groups.pushBack(g)
		q.push(g)
	}
	g := l.ahead
	d.cache(g, f)
	g.add(f, cost)
	d.remembered += refBytes
	if g.payload >= d.cfg.Group.MaxBytes || g.items >= d.cfg.Group.MaxItems || len(g.refs) == maxGroupFrames {
		d.makeReady(g)
	}
	return true
}

// cache keeps f in memory until its group is delivered, if there is room and
// the group is complete so far.
func (d *Delivery) cache(g *group, f *journal.ReadFrame) {
	n := uint64(len(f.Payload))
	switch {
	case len(g.frames) != len(g.refs):
	case d.cached == 0 || d.cached+n <= cacheGroups*d.cfg.Group.MaxBytes:
		g.frames = append(g.frames, *f)
		d.cached += n
	default:
		d.uncache(g)
	}
}

// uncache forgets the frames kept for g.
func (d *Delivery) uncache(g *group) {
	for i := range g.frames {
		d.cached -= uint64(len(g.frames[i].Payload))
	}
	g.frames = nil
}

// fallBehind leaves a lane to the catch-up reader, from the frame at p on.
func (d *Delivery) fallBehind(l *lane, p journal.Position) {
	l.leave(behind, p)
	l.pass(p)
	d.want(l)
}

// reachedEnd is called when the main reader has read all there is: no group
// waits for more.
func (d *Delivery) reachedEnd(p journal.Position) {
	d.mu.Lock()
	defer d.unlock()
	d.main = max(d.main, p)
	d.mainError = nil
	d.mainGather.older(d.main, d.makeReady)
}

// skip moves the main reader on to the next frame a lane that travels with it
// may have, as far as the log reaches that recovery found: behind that, every
// frame is read once, so that its items are counted.
func (d *Delivery) skip(r reader) {
	d.mu.Lock()
	from, returns := d.main, d.returns
	d.mu.Unlock()
	if from >= d.recovered {
		return
	}
	var lanes []journal.LaneInfo
	for _, info := range d.source.Lanes() {
		if info.Last >= from && d.travelsWithMain(info.Lane) {
			lanes = append(lanes, info)
		}
	}
	if len(lanes) > skipLanes {
		return
	}
	to := d.recovered
	for i := range lanes {
		// From below the horizon the ledger names settled frames, too.
		if p, ok := d.source.NextOf(lanes[i].Lane, max(from, lanes[i].Horizon)); ok {
			to = min(to, p)
		}
	}
	if to <= from {
		return
	}
	d.mu.Lock()
	defer d.unlock()
	if d.returns != returns {
		return // a lane caught up meanwhile: it may have frames there
	}
	for _, l := range d.lanes {
		if l.phase != current {
			l.pass(from)
		}
	}
	d.main = to
	r.Seek(to)
}

func (d *Delivery) travelsWithMain(id journal.Lane) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[id]
	return l == nil || l.phase == current
}

// readFailed notes what the main reader can not get past, and returns it if it
// is damage. Groups that wait to be full go as they are.
func (d *Delivery) readFailed(err error) *journal.DamageError {
	d.mu.Lock()
	defer d.unlock()
	damage := d.blame(&d.mainError, err)
	if damage != nil {
		d.main = max(d.main, damage.Start)
	}
	d.mainGather.older(d.main, d.makeReady)
	return damage
}

// blame keeps a read error, and says so the first time; of damage, which it
// returns, the journal has.
func (d *Delivery) blame(slot *error, err error) *journal.DamageError {
	*slot = err
	if damage := d.meet(err); damage != nil {
		return damage
	}
	if slices.Contains(d.blamed, err.Error()) || len(d.blamed) == maxBlamed {
		return nil
	}
	d.blamed = append(d.blamed, err.Error())
	d.tell(func() {
		d.logger.Error("The log can not be read; this is tried again without end", zap.Error(err))
		d.onChange()
	})
	return nil
}

// maxBlamed bounds the read errors that are logged.
const maxBlamed = 64

// laneOf is the lane of a frame, made if need be; nil for a kind this version
// does not know, which then stays in the log.
func (d *Delivery) laneOf(f *journal.ReadFrame) *lane {
	id := journal.Lane{Tenant: f.Tenant, Kind: f.Kind}
	if l := d.lanes[id]; l != nil {
		return l
	}
	return d.newLane(id, f.Position)
}
