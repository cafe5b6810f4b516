// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"container/heap"
	"sort"
)

// ledger is what the log knows of its segments, lanes and tenants in memory:
// the figures of admission, the index of what may be reclaimed, and the
// tenants' seats. All of it is guarded by the journal lock; every operation
// works on integers and is O(1) or as its comment says.
type ledger struct {
	segments []*segment // by (base, ordinal); the last one is the current; may hold gone ones inside
	gone     int        // how many of segments are gone
	lanes    map[Lane]*lane
	tenants  map[string]*tenant

	unreclaimed uint64 // framed bytes of all surviving segments, charged bytes past ends, and reserved ones
	reserved    uint64 // of these: queued or being written, not yet durable
	closedBytes uint64 // of these: in closed segments
	closed      int    // closed segments retained
	sealed      int    // segments with charged bytes past their end
	disk        uint64 // what the segments' files take, each as of when it was last measured
	held        int    // tenants with a frame in a segment
	seatsTaken  int    // tenants with a frame only in the queue

	eligible    segmentHeap // closed, settled, not yet planned
	unattempted int         // of eligible: closed or settled since a pass last looked
	retrying    []*segment  // planned, and not yet verified as removed
	dirty       []*lane     // lanes whose horizon grew past what the index knows
}

// segmentState is where a segment is on its way out.
type segmentState uint8

const (
	segmentHeld       segmentState = iota // current, or a lane still needs it
	segmentEligible                       // in ledger.eligible
	segmentReclaiming                     // planned: its record is durable or being made so
	segmentGone                           // removed; only a hole in ledger.segments
)

type segment struct {
	id      segmentID
	end     Position // closed: the base of the next; current: the durable end of its frames
	extra   uint64   // charged bytes past the end that could not be cut off
	disk    uint64   // allocated bytes of its file when last measured
	created int64    // header's, unix ns
	closed  bool
	state   segmentState

	uncertain bool // its unlink may not be durable
	holed     bool // a reader met damage in it: its figures say more than it holds
	pending   int  // lanes whose last frame in it is not behind their horizon

	frames        uint64 // without gaps
	firstReceived int64  // unix ns; 0 = no frame
	lastReceived  int64
	spans         []span
}

// bytes is what the segment's frames and gaps take.
func (s *segment) bytes() uint64 { return s.end - s.id.base }

// span is one lane's share of one segment.
type span struct {
	lane        *lane
	first, last Position // of the lane's first and last frame in it
	frames      uint64
	items       uint64
}

// lane is one (tenant, signal) of which the log holds frames.
type lane struct {
	Lane
	tenant  *tenant
	horizon Position // as in the last commit of STATE
	dirty   bool

	// unsettled[head:] are the segments, in order, whose last frame of this
	// lane is not behind the horizon the index has applied.
	unsettled []laneRef
	head      int

	in *segment // the segment of the newest frame, its share at in.spans[at]
	at int
}

type laneRef struct {
	segment *segment
	span    int
}

func (r laneRef) share() *span { return &r.segment.spans[r.span] }

// tenant holds a seat while a segment has a frame of it or one is queued.
type tenant struct {
	name     string
	segments int // spans of its lanes
	queued   int // frames
	lanes    [kinds]*lane
}

func newLedger() ledger {
	return ledger{lanes: map[Lane]*lane{}, tenants: map[string]*tenant{}}
}

func (l *ledger) current() *segment { return l.segments[len(l.segments)-1] }

// lane returns the lane's entry, which it makes if need be.
func (l *ledger) lane(name string, k Kind) *lane {
	if ln, ok := l.lanes[Lane{name, k}]; ok {
		return ln
	}
	t := l.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		l.tenants[name] = t
	}
	ln := &lane{Lane: Lane{name, k}, tenant: t}
	t.lanes[k-1] = ln
	l.lanes[ln.Lane] = ln
	return ln
}

// seat counts a queued frame of a lane's tenant.
func (l *ledger) seat(t *tenant) {
	if t.queued == 0 && t.segments == 0 {
		l.seatsTaken++
	}
	t.queued++
}

// unseat is the inverse; forget is called by whoever has accounted the frame.
func (l *ledger) unseat(t *tenant) {
	t.queued--
	if t.queued == 0 && t.segments == 0 {
		l.seatsTaken--
	}
	l.forget(t)
}

// forget drops a tenant that has neither frames nor queued ones.
func (l *ledger) forget(t *tenant) {
	if t.queued > 0 || t.segments > 0 {
		return
	}
	for _, ln := range t.lanes {
		if ln != nil {
			delete(l.lanes, ln.Lane)
		}
	}
	delete(l.tenants, t.name)
}

// record enters a durable frame into the current segment's figures. Bytes are
// the caller's.
func (l *ledger) record(s *segment, ln *lane, p Position, items uint32, received int64) {
	s.frames++
	if s.firstReceived == 0 || received < s.firstReceived {
		s.firstReceived = received
	}
	s.lastReceived = max(s.lastReceived, received)
	if ln.in != s {
		l.share(s, span{lane: ln, first: p})
	} else if !ln.unsettledIn(s) { // settled as far as the index knows; not with this frame
		ln.push(s, ln.at)
		s.pending++
	}
	sp := &s.spans[ln.at]
	sp.last = p
	sp.frames++
	sp.items += uint64(items)
}

func (ln *lane) unsettledIn(s *segment) bool {
	return ln.head < len(ln.unsettled) && ln.unsettled[len(ln.unsettled)-1].segment == s
}

// share adds a lane's share to a segment it had none in.
func (l *ledger) share(s *segment, sp span) {
	ln, t := sp.lane, sp.lane.tenant
	if t.segments == 0 {
		l.held++
		if t.queued > 0 {
			l.seatsTaken--
		}
	}
	t.segments++
	s.spans = append(s.spans, sp)
	ln.in, ln.at = s, len(s.spans)-1
	ln.push(s, ln.at)
	s.pending++
}

func (ln *lane) push(s *segment, at int) {
	if ln.head > 64 && ln.head > len(ln.unsettled)/2 { // amortised: each move pays for as many pops
		ln.unsettled = append(ln.unsettled[:0], ln.unsettled[ln.head:]...)
		ln.head = 0
	}
	ln.unsettled = append(ln.unsettled, laneRef{s, at})
}

// stamp moves a lane's horizon and leaves the index to settle.
func (l *ledger) stamp(ln *lane, h Position) {
	if h <= ln.horizon {
		return
	}
	ln.horizon = h
	if !ln.dirty {
		ln.dirty = true
		l.dirty = append(l.dirty, ln)
	}
}

// settle applies stamped horizons to the index, at most steps segments' worth
// of it, and says whether some are left.
func (l *ledger) settle(steps int) (more bool) {
	for steps > 0 && len(l.dirty) > 0 {
		ln := l.dirty[0]
		for steps > 0 && ln.head < len(ln.unsettled) {
			r := ln.unsettled[ln.head]
			if r.share().last >= ln.horizon {
				break
			}
			steps--
			ln.unsettled[ln.head] = laneRef{}
			ln.head++
			r.segment.pending--
			l.classify(r.segment)
		}
		if ln.head < len(ln.unsettled) && ln.unsettled[ln.head].share().last < ln.horizon {
			return true
		}
		steps--
		ln.dirty = false
		l.dirty = l.dirty[1:]
	}
	return len(l.dirty) > 0
}

// classify makes a closed segment nobody needs eligible. O(log eligible).
func (l *ledger) classify(s *segment) {
	if s.closed && s.pending == 0 && s.state == segmentHeld {
		s.state = segmentEligible
		l.unattempted++
		heap.Push(&l.eligible, s)
	}
}

// add puts a segment behind all others; it becomes the current.
func (l *ledger) add(s *segment) { l.segments = append(l.segments, s) }

// closeCurrent ends the current segment at its durable end.
func (l *ledger) closeCurrent() {
	s := l.current()
	s.closed = true
	l.closed++
	l.closedBytes += s.bytes() + s.extra
	l.classify(s)
}

// closeRestored closes the segment recovery added last: its end is known, and
// the index is applied once all are there.
func (l *ledger) closeRestored() {
	s := l.current()
	s.closed = true
	l.closed++
	l.closedBytes += s.bytes()
	l.unreclaimed += s.bytes()
}

// charge leaves n bytes that could not be cut off with the current segment.
func (l *ledger) charge(n uint64) {
	s := l.current()
	if s.extra == 0 {
		l.sealed++
	}
	s.extra += n
}

// occupies notes what a segment's file takes on disk.
func (l *ledger) occupies(s *segment, disk uint64) {
	if s.state != segmentGone { // a summary may be written to one that is unlinked
		l.disk += disk - s.disk
		s.disk = disk
	}
}

// remove takes a reclaimed segment out of all figures. Amortised
// O(lanes of the segment).
func (l *ledger) remove(s *segment) {
	l.occupies(s, 0)
	s.state = segmentGone
	l.closed--
	n := s.bytes() + s.extra
	l.closedBytes -= n
	l.unreclaimed -= n
	if s.extra > 0 {
		l.sealed--
	}
	for i := range s.spans {
		ln := s.spans[i].lane
		if ln.in == s {
			ln.in = nil
		}
		t := ln.tenant
		t.segments--
		if t.segments == 0 {
			l.held--
			if t.queued > 0 {
				l.seatsTaken++
			}
			l.forget(t)
		}
	}
	s.spans = nil
	l.gone++
	for len(l.segments) > 0 && l.segments[0].state == segmentGone {
		l.segments[0] = nil
		l.segments = l.segments[1:]
		l.gone--
	}
	if l.gone > 64 && l.gone > len(l.segments)/2 {
		kept := make([]*segment, 0, len(l.segments)-l.gone)
		for _, s := range l.segments {
			if s.state != segmentGone {
				kept = append(kept, s)
			}
		}
		l.segments, l.gone = kept, 0
	}
}

// find returns the first segment whose frames may reach past p and that is not
// on its way out; nil when there is none. O(log segments) and the holes behind
// the answer.
func (l *ledger) find(p Position) *segment {
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].id.base > p })
	for i = max(i-1, 0); i < len(l.segments); i++ {
		if s := l.segments[i]; s.state < segmentReclaiming && s.end > max(p, s.id.base) {
			return s
		}
	}
	return nil
}

// settledOf is the first position at or after from at which a frame of the
// lane may begin in a segment that starts before its horizon.
func (l *ledger) settledOf(ln *lane, from Position) (Position, bool) {
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].id.base > from })
	for i = max(i-1, 0); i < len(l.segments) && l.segments[i].id.base < ln.horizon; i++ {
		s := l.segments[i]
		if s.state >= segmentReclaiming {
			continue
		}
		for k := range s.spans {
			if sp := &s.spans[k]; sp.lane == ln && sp.last >= from {
				return max(from, sp.first), true
			}
		}
	}
	return 0, false
}

// oldestReceived is the oldest time of receipt in the oldest segment with a
// frame, unix ns, 0 when there is none.
func (l *ledger) oldestReceived() int64 {
	for _, s := range l.segments {
		if s.firstReceived != 0 && s.state != segmentGone {
			return s.firstReceived
		}
	}
	return 0
}

// first is where the lane's unsettled frames begin: its horizon when that lies
// inside a segment, else its first frame behind it.
func (ln *lane) first() Position {
	if ln.head == len(ln.unsettled) {
		return ln.horizon
	}
	return max(ln.horizon, ln.unsettled[ln.head].share().first)
}

// segmentHeap orders eligible segments by their place in the log.
type segmentHeap []*segment

func (h segmentHeap) Len() int           { return len(h) }
func (h segmentHeap) Less(i, j int) bool { return h[i].id.before(h[j].id) }
func (h segmentHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *segmentHeap) Push(x any)        { *h = append(*h, x.(*segment)) }
func (h *segmentHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return s
}
