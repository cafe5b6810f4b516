// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"sort"
	"sync/atomic"
)

// Stats are the log's figures for metric callbacks: atomic loads, no lock.
// They belong together only as far as they were published together.
type Stats struct {
	Unreclaimed, Unflushed uint64 // bytes
	Disk                   uint64 // bytes that the directory's files take, of those that change as of the last look
	ClosedRetained, Sealed int
	MaxSegments            int   // in effect: what STATE has room for may be less than configured
	MaxTenants             int   // likewise
	TenantsHeld            int   // with a frame in a segment
	TenantsReserved        int   // with a queued frame only
	OldestReceived         int64 // unix ns, of the oldest segment with a frame; 0 = none
	Rotation               RotationStateKind
	RotationFailures       int
	Eligible, Retrying     int // segments settled and not yet planned; planned and not yet removed
	Durable                Position
	Unattempted            bool   // a segment became eligible that no pass has looked at
	Prepared               bool   // the next segment is ready
	QuarantinedBytes       uint64 // set aside since the log was opened, recovery included
}

// published mirrors what the journal lock guards.
type published struct {
	unreclaimed, unflushed, disk atomic.Uint64
	closed, sealed               atomic.Int64
	eligible, retrying           atomic.Int64
	oldest                       atomic.Int64
	rotation, failures           atomic.Int64
	held, seats                  atomic.Int64 // tenants
	prepared, unattempted        atomic.Bool
	quarantined                  atomic.Uint64
}

// publish makes the ledger's figures visible. Call it under the journal lock
// after every change of them.
func (j *Journal) publish() {
	p, l := &j.published, &j.ledger
	p.unreclaimed.Store(l.unreclaimed)
	p.unflushed.Store(l.reserved)
	p.disk.Store(l.disk + j.besides)
	p.closed.Store(int64(l.closed))
	p.sealed.Store(int64(l.sealed))
	p.eligible.Store(int64(len(l.eligible)))
	p.retrying.Store(int64(len(l.retrying)))
	p.unattempted.Store(l.unattempted > 0)
	p.oldest.Store(l.oldestReceived())
	p.held.Store(int64(l.held))
	p.seats.Store(int64(l.seatsTaken))
	p.rotation.Store(int64(j.rotation.kind))
	p.failures.Store(int64(j.rotation.failures))
}

// Stats are the log's figures.
func (j *Journal) Stats() Stats {
	p := &j.published
	return Stats{
		Unreclaimed:      p.unreclaimed.Load(),
		Unflushed:        p.unflushed.Load(),
		Disk:             p.disk.Load(),
		ClosedRetained:   int(p.closed.Load()),
		Sealed:           int(p.sealed.Load()),
		MaxSegments:      j.maxSegments,
		MaxTenants:       j.maxTenants,
		TenantsHeld:      int(p.held.Load()),
		TenantsReserved:  int(p.seats.Load()),
		OldestReceived:   p.oldest.Load(),
		Rotation:         RotationStateKind(p.rotation.Load()),
		RotationFailures: int(p.failures.Load()),
		Eligible:         int(p.eligible.Load()),
		Retrying:         int(p.retrying.Load()),
		Unattempted:      p.unattempted.Load(),
		Durable:          j.durable.Load(),
		Prepared:         p.prepared.Load(),
		QuarantinedBytes: p.quarantined.Load(),
	}
}

// SegmentInfo describes a segment for the status page.
type SegmentInfo struct {
	Name  string
	Base  Position
	Bytes uint64 // charged
	State string // current, closed, sealed, reclaiming
	Lanes []Lane // that still hold it
}

// Segments describes every surviving segment in order. Under the lock it only
// copies; names are made after it.
func (j *Journal) Segments() []SegmentInfo {
	j.Lock()
	ids := make([]segmentID, 0, len(j.ledger.segments))
	infos := make([]SegmentInfo, 0, len(j.ledger.segments))
	for _, s := range j.ledger.segments {
		if s.state == segmentGone {
			continue
		}
		i := SegmentInfo{Base: s.id.base, Bytes: s.bytes() + s.extra, State: "closed"}
		switch {
		case !s.closed:
			i.State = "current"
		case s.state == segmentReclaiming:
			i.State = "reclaiming"
		case s.extra > 0:
			i.State = "sealed"
		}
		for k := range s.spans {
			if sp := &s.spans[k]; sp.last >= sp.lane.horizon {
				i.Lanes = append(i.Lanes, sp.lane.Lane)
			}
		}
		ids = append(ids, s.id)
		infos = append(infos, i)
	}
	j.Unlock()
	for i := range infos {
		infos[i].Name = ids[i].name()
	}
	return infos
}

// SegmentsFrom is how many surviving segments reach p or beyond it, the current
// one included. It takes the lock. O(segments from p on).
func (j *Journal) SegmentsFrom(p Position) (n int) {
	j.Lock()
	defer j.Unlock()
	segments := j.ledger.segments
	i := sort.Search(len(segments), func(i int) bool { return segments[i].id.base > p })
	for _, s := range segments[max(i-1, 0):] {
		if s.state != segmentGone && (!s.closed || s.end > p) {
			n++
		}
	}
	return n
}

// LaneInfo is one lane of the ledger.
type LaneInfo struct {
	Lane
	// First is where the lane's unsettled frames begin, Last the position of
	// its last frame in the log. A lane is settled when Last < Horizon.
	First, Last, Horizon Position
	Oldest               int64 // received, unix ns, in the oldest segment that the lane holds
}

// Lanes describes every lane that holds a segment. It takes the lock.
func (j *Journal) Lanes() []LaneInfo {
	j.Lock()
	defer j.Unlock()
	infos := make([]LaneInfo, 0, len(j.ledger.lanes))
	for _, ln := range j.ledger.lanes {
		if ln.head == len(ln.unsettled) {
			continue
		}
		first, last := ln.unsettled[ln.head], ln.unsettled[len(ln.unsettled)-1]
		infos = append(infos, LaneInfo{
			Lane: ln.Lane, First: ln.first(), Last: last.share().last, Horizon: ln.horizon,
			Oldest: first.segment.firstReceived,
		})
	}
	return infos
}

// NextOf is the first position at or after from at which a frame of l may
// begin; ok is false when the log holds none. It takes the lock.
// O(log segments of the lane), except from before the lane's horizon, where
// delivery has no business: then the segments in between are looked through.
func (j *Journal) NextOf(l Lane, from Position) (_ Position, ok bool) {
	j.Lock()
	defer j.Unlock()
	ln := j.ledger.lanes[l]
	if ln == nil {
		return 0, false
	}
	refs := ln.unsettled[ln.head:]
	if from < ln.horizon {
		if p, ok := j.ledger.settledOf(ln, from); ok {
			return p, true
		}
	}
	i := sort.Search(len(refs), func(i int) bool { return refs[i].share().last >= from })
	if i == len(refs) {
		return 0, false
	}
	return max(from, refs[i].share().first), true
}
