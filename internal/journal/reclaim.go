// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/otelweir/weir/internal/fsys"
)

// Plan is one pass of reclaiming: chosen under the journal lock, carried out
// under none, accounted under the lock again.
type Plan struct {
	j        *Journal
	segments []*segment
	removed  []*segment // verified as gone, durably
	failed   []*segment // still there, or not durably gone
}

// ReclaimState is what maintenance decides on.
type ReclaimState struct {
	Eligible        int  // closed and settled, in no plan yet
	Retrying        int  // planned, and not verified as gone
	CurrentHoldsAll bool // the current segment holds all unreclaimed bytes
}

// ReclaimState is O(1). Call it under the journal lock.
func (j *Journal) ReclaimState() ReclaimState {
	l := &j.ledger
	return ReclaimState{
		Eligible:        len(l.eligible),
		Retrying:        len(l.retrying),
		CurrentHoldsAll: l.closedBytes == 0 && j.queue.pending() == 0,
	}
}

// Prepare chooses at most limit segments: those an earlier pass did not get
// rid of, but no more than half when there are others, then eligible ones in
// the log's order. They count as unreclaimed until Commit. A plan without
// segments still sweeps debris. O(limit · log eligible). Call it under the
// journal lock, from the maintenance goroutine, and Commit what it returns.
func (j *Journal) Prepare(limit int) *Plan {
	l := &j.ledger
	p := &Plan{j: j}
	if j.queue.undischarged {
		l.unattempted = 0
		return p // should the current segment's entry be lost, the one before it is the newest
	}
	retries := limit
	if len(l.eligible) > 0 {
		retries = limit / 2
	}
	retries = min(retries, len(l.retrying))
	p.segments = append(p.segments, l.retrying[:retries]...)
	l.retrying = append(l.retrying[:0], l.retrying[retries:]...)
	for len(p.segments) < limit && len(l.eligible) > 0 {
		s := heap.Pop(&l.eligible).(*segment)
		s.state = segmentReclaiming
		p.segments = append(p.segments, s)
	}
	l.unattempted = len(l.eligible)
	j.publish()
	return p
}

// Execute does the file half: the plan into STATE, durably; then the unlinks;
// then the directory's fsync. What it could not do is left for a later pass.
// It holds no lock.
func (p *Plan) Execute(ctx context.Context) {
	j := p.j
	j.sweep()
	if len(p.segments) == 0 {
		return
	}
	if err := j.recordPlan(p); err != nil {
		j.warn("A pass could not record its plan: nothing is unlinked", err)
		p.failed = append(p.failed, p.segments...)
		return
	}
	var unlinked []*segment
	for i, s := range p.segments {
		if ctx.Err() != nil {
			p.failed = append(p.failed, p.segments[i:]...)
			break
		}
		err := j.fs.Unlink(j.path(s.id.name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.warn("A settled segment cannot be unlinked; the next pass tries again: "+s.id.name(), err)
			p.failed = append(p.failed, s)
			continue
		}
		unlinked = append(unlinked, s)
	}
	if len(unlinked) > 0 {
		if err := j.syncDir(j.cfg.Directory); err != nil {
			j.warn("The directory's fsync failed after unlinking: the segments still count until it succeeds", err)
			j.Lock() // a summary being written copies its segment
			for _, s := range unlinked {
				s.uncertain = true
			}
			j.Unlock()
			p.failed = append(p.failed, unlinked...)
			unlinked = nil
		}
	}
	p.removed = unlinked
	j.recordOutcome(p)
	j.lookAtDisk()
}

// recordPlan adds the plan to STATE. Each planned segment keeps a range of its
// own. Segments that do not fit are left for a later pass: when the ranges run
// short only those are taken whose removal leaves no further range behind.
func (j *Journal) recordPlan(p *Plan) error {
	u := &j.upkeep
	u.mu.Lock()
	known := make(map[uint32]bool, len(u.planned))
	for i := range u.planned {
		known[u.planned[i].first] = true
	}
	room := int(u.state.ranges) - len(u.reclaimed) - len(u.planned)
	var kept []*segment
	for _, s := range p.segments {
		r := ordinalRange{first: s.id.ordinal, last: s.id.ordinal, base: s.id.base, end: s.end}
		switch {
		case known[s.id.ordinal]:
		case room > planReserve || room > 0 && u.merges(r):
			u.planned = append(u.planned, r)
			room--
		default:
			p.failed = append(p.failed, s)
			continue
		}
		kept = append(kept, s)
	}
	p.segments = kept
	u.mu.Unlock()
	return j.commitState(nil)
}

// merges says whether r touches what is reclaimed, or the front of the log.
func (u *upkeep) merges(r ordinalRange) bool {
	if r.base == u.lowWater {
		return true
	}
	for i := range u.reclaimed {
		if u.reclaimed[i].end == r.base || u.reclaimed[i].base == r.end {
			return true
		}
	}
	return false
}

// recordOutcome moves what is verified as gone from the planned ranges to the
// reclaimed ones, for the next commit of STATE: until then "planned and not
// there" says the same.
func (j *Journal) recordOutcome(p *Plan) {
	u := &j.upkeep
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := make(map[uint32]bool, len(p.removed))
	for _, s := range p.removed {
		gone[s.id.ordinal] = true
	}
	uncertain := make(map[uint32]bool)
	for _, s := range p.failed {
		uncertain[s.id.ordinal] = s.uncertain
	}
	planned := u.planned[:0]
	for _, r := range u.planned {
		if gone[r.first] {
			u.reclaimed = append(u.reclaimed, r)
			continue
		}
		r.uncertain = r.uncertain || uncertain[r.first]
		planned = append(planned, r)
	}
	u.planned = planned
	u.reclaimed = mergeRanges(u.reclaimed)
	u.trim()
}

// trim moves the low-water mark over what is gone at the front.
func (u *upkeep) trim() {
	for len(u.reclaimed) > 0 && u.reclaimed[0].base == u.lowWater {
		u.lowWater = u.reclaimed[0].end
		u.reclaimed = u.reclaimed[1:]
	}
}

// Commit accounts for a plan: what is gone leaves the ledger and its figures,
// the rest is retried. remaining counts what is still to be reclaimed. Call it
// under the journal lock.
func (j *Journal) Commit(p *Plan) (planned, removed, remaining int) {
	l := &j.ledger
	for _, s := range p.removed {
		l.remove(s)
	}
	l.retrying = append(l.retrying, p.failed...)
	if len(p.removed) > 0 {
		j.apply(spaceFreed, nil, false)
	}
	j.publish()
	return len(p.removed) + len(p.failed), len(p.removed), len(l.eligible) + len(l.retrying)
}

// sweep unlinks debris of exactly the shapes that failed creations leave:
// STATE.new and dead-letter/*.frame.partial. Never the prepared segment.
func (j *Journal) sweep() {
	err := j.fs.Unlink(j.path(stateNewName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.warn("Debris cannot be unlinked: "+stateNewName, err)
	}
	j.letter.mu.Lock() // a letter being written is not debris
	defer j.letter.mu.Unlock()
	dir := j.path(deadLetterName)
	entries, err := j.fs.List(dir)
	if err != nil {
		return // no letter was ever written, or none can be
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, letterSuffix+partialSuffix) && e.Mode.IsRegular() {
			if err := j.fs.Unlink(filepath.Join(dir, e.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				j.warn("Debris cannot be unlinked: "+e.Name, err)
			}
		}
	}
}

// lookAtDisk brings wal.disk.size up to date: what the current segment, the
// prepared one, dead letters and quarantine take. Closed segments do not
// change, and are many.
func (j *Journal) lookAtDisk() {
	j.Lock()
	current := j.ledger.current()
	j.Unlock()
	if info, err := j.fs.Lstat(j.path(current.id.name())); err == nil {
		j.Lock()
		if !current.closed { // else whoever ended it measures it
			j.ledger.occupies(current, uint64(info.Blocks))
		}
		j.Unlock()
	}
	besides := j.fixed
	if info, err := j.fs.Lstat(j.path(preparedName)); err == nil {
		besides += uint64(info.Blocks)
	}
	for _, dir := range [...]string{deadLetterName, quarantineName} {
		entries, err := j.fs.List(j.path(dir))
		if err != nil {
			continue // there is none, or nobody can tell
		}
		for _, e := range entries {
			besides += uint64(e.Blocks)
		}
	}
	j.Lock()
	j.besides = besides
	j.publish()
	j.Unlock()
}

// measure notes what a segment's file takes on disk.
func (j *Journal) measure(f fsys.File, s *segment) {
	info, err := f.Stat()
	if err != nil {
		return // what was known of it stays
	}
	j.Lock()
	j.ledger.occupies(s, uint64(info.Blocks))
	j.publish()
	j.Unlock()
}

// measureAll measures every file in the directory, once.
func (r *recovery) measureAll() {
	entries, err := r.fs.List(r.cfg.Directory)
	if err != nil {
		r.warn("The log's size on disk is not known", err)
		return
	}
	segments := r.ledger.segments // in the order of their names, as the entries are
	for _, e := range entries {
		id, ok := parseSegmentName(e.Name)
		for ok && len(segments) > 0 && segments[0].id.before(id) {
			segments = segments[1:]
		}
		switch {
		case ok && len(segments) > 0 && segments[0].id == id:
			r.ledger.occupies(segments[0], uint64(e.Blocks))
		case e.Name != preparedName && e.Mode.IsRegular():
			r.fixed += uint64(e.Blocks)
		}
	}
}

// need is the most a log takes on its volume, in bytes (log-format "Disk").
func (c *Config) need(stateSize uint64) uint64 {
	// No segment has more lanes than frames, or than there can be.
	lanes := min(kinds*uint64(c.MaxTenants), c.SegmentSize/frameHeaderLen)
	summary := frameHeaderLen + summaryFixed + summaryTrailer + lanes*(summaryLane+maxTenant)
	parts := [...]uint64{
		c.Limit,
		2 * c.SegmentSize,
		maxSealed * max(c.GroupCap, c.MaxFrameSize),
		uint64(c.MaxSegments+1) * (segmentHeaderLen + summary),
		stateSize,
		c.DeadLetterMaxBytes,
		c.QuarantineMaxBytes,
	}
	var total uint64
	for _, p := range parts {
		if total > math.MaxUint64-p {
			return math.MaxUint64
		}
		total += p
	}
	return total
}

// checkReserve compares the volume with what the log may come to need. A log
// that holds frames always opens: it has to be able to drain.
func (r *recovery) checkReserve() error {
	free, size, err := r.fs.Statfs(r.cfg.Directory)
	if err != nil {
		return fmt.Errorf("measure the volume: %w", err)
	}
	need, has := r.cfg.need(uint64(r.state.size())), free+r.published.disk.Load()
	if has >= need {
		return nil
	}
	err = fmt.Errorf("the log may need %d bytes (unreclaimed_bytes_limit %d, 2 × segment_size %d, dead letters %d, quarantine %d, and the rest), "+
		"but its volume of %d bytes has %d free beside the %d it takes: appends will be refused as wal_volume_full before the limit is reached; "+
		"make the volume larger or lower unreclaimed_bytes_limit",
		need, r.cfg.Limit, r.cfg.SegmentSize, r.cfg.DeadLetterMaxBytes, r.cfg.QuarantineMaxBytes, size, free, r.published.disk.Load())
	if r.cfg.ReserveCheckFail && r.ledger.unreclaimed == 0 {
		return fmt.Errorf("reserve_check: %w", err)
	}
	r.warn("The volume is smaller than the log may come to need", err)
	return nil
}
