// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"time"

	"github.com/otelweir/weir/internal/fsys"
)

// writer is what the holder of the turn writes with. Guarded by the turn.
type writer struct {
	file         fsys.File // the current segment's
	id           segmentID
	epoch        epoch
	created      int64
	preallocated bool

	prepared             fsys.File // next.wal.partial, ready to be installed
	preparedPreallocated bool
	preparing            chan preparation // of a running preparation, else nil
	nextPreparation      time.Time
	preparations         int  // failed in a row
	volumeSeen           bool // lowVolume is known for this segment
	lowVolume            bool // less than two segments were free

	unsummarised *closedFile // the previous segment, until this one is durable

	group []*Ticket // reused
	bufs  [][]byte  // reused
	heads []byte    // reused: the group's frame headers
}

// writebackStep is how much of a large group is handed to write-back at once,
// so that the disk works while the rest is still being copied.
const writebackStep = 1 << 20

// Advance does one step of the queue's work under the turn: what has to come
// before the first queued frame (a discharge, a rotation, a successor), then
// one group. When the first cannot be done now, everything queued is refused.
// It says whether frames are queued at its end.
func (j *Journal) Advance() (more bool) {
	j.Lock()
	empty := j.queue.len() == 0
	j.Unlock()
	if empty {
		return false
	}
	j.collectPrepared(false)
	if j.makeWay() {
		j.commitGroup()
	} else {
		j.refuseQueued()
	}
	j.Lock()
	defer j.Unlock()
	return j.queue.len() > 0
}

// makeWay readies the segment for the first queued frame and says whether a
// group can be written. Turn.
func (j *Journal) makeWay() bool {
	now := j.cfg.Now()
	j.Lock()
	waiting, blocked := j.rotation.waiting(now), j.rotation.blocked
	discharge, rotate := j.queue.undischarged, j.queue.owed || j.queue.first().rotate
	j.Unlock()
	switch {
	case waiting && (blocked || discharge || rotate):
		return false
	case discharge && j.dischargeInstall() != nil:
		return false
	case rotate && j.rotate() != nil:
		return false
	}
	return j.succeeded()
}

// refuseQueued refuses everything queued, in order, with the state that does
// not let it be written. Turn.
func (j *Journal) refuseQueued() {
	j.Lock()
	state := j.rotation.snapshot()
	j.writer.group = j.drop(j.writer.group[:0])
	j.Unlock()
	tell(j.writer.group, &RotationRefused{State: state})
	clear(j.writer.group)
}

// commitGroup cuts a group, writes it and publishes its outcome. Turn.
func (j *Journal) commitGroup() {
	bytes := j.cut()
	w := &j.writer
	frames := len(w.group)
	begun := j.cfg.Now()
	err := j.writeGroup(bytes)
	took := j.cfg.Now().Sub(begun)
	if err == nil {
		j.groupDurable(bytes)
	}
	clear(w.bufs) // nothing refers to the frames' buffers any more
	tell(w.group, err)
	clear(w.group)
	j.cfg.Observer.GroupSynced(frames, bytes, took, err)
}

// cut takes the next group off the queue and fixes its positions, group
// offsets and checksums. The previous group's outcome is known: that is what
// makes a group offset prove something. Turn.
func (j *Journal) cut() (bytes uint64) {
	w := &j.writer
	j.Lock()
	q := &j.queue
	n := 0
	for _, t := range q.tickets[q.head:] {
		if n > 0 && (t.rotate || bytes+t.framed > j.cfg.GroupCap) {
			break
		}
		bytes += t.framed
		n++
	}
	w.group = q.pop(n, w.group[:0])
	j.Unlock()

	if need := n * frameHeaderLen; cap(w.heads) < need {
		w.heads = make([]byte, need, 2*need)
	}
	w.bufs = w.bufs[:0]
	start := j.durable.Load()
	p := start
	for i, t := range w.group {
		f := t.frame
		h := frameHeader{
			length:   uint32(t.framed - frameHeaderLen),
			position: p,
			received: f.Received,
			items:    f.Items,
			group:    uint32(p - start),
			kind:     f.Kind,
			metadata: uint16(len(f.Metadata)),
		}
		head := w.heads[i*frameHeaderLen : (i+1)*frameHeaderLen : (i+1)*frameHeaderLen]
		h.put(head)
		seal(head, f.body, w.epoch)
		w.bufs = append(append(w.bufs, head, f.Metadata), f.Payload...)
		t.position = p
		p += t.framed
	}
	return bytes
}

// writeGroup makes the cut group durable, or settles what its failure leaves
// behind. The error is an *AppendError. Turn.
func (j *Journal) writeGroup(bytes uint64) error {
	w := &j.writer
	off := w.id.offset(j.durable.Load())
	if err := w.write(off, bytes); err != nil {
		j.rollBack(off, bytes, err)
		return &AppendError{Op: "append", Err: err}
	}
	if err := w.file.Datasync(); err != nil {
		j.endSegment(bytes, fmt.Errorf("fdatasync of %s: %w", w.id.name(), err))
		return &AppendError{Op: "sync", Err: err}
	}
	return nil
}

// write writes the group: in one call when it is small, else in steps that
// each begin their write-back.
func (w *writer) write(off int64, bytes uint64) error {
	if bytes <= writebackStep {
		_, err := w.file.Pwritev(w.bufs, off)
		return err
	}
	bufs := w.bufs
	for len(bufs) > 0 {
		n, step := 0, uint64(0)
		for n < len(bufs) && step+uint64(len(bufs[n])) <= writebackStep {
			step += uint64(len(bufs[n]))
			n++
		}
		now := bufs[:n:n]
		if n < len(bufs) && step < writebackStep { // split the buffer that crosses
			cut := writebackStep - step
			now = append(now, bufs[n][:cut])
			bufs[n] = bufs[n][cut:]
			step = writebackStep
		}
		bufs = bufs[n:]
		if _, err := w.file.Pwritev(now, off); err != nil {
			return err
		}
		if err := w.file.StartWriteback(off, int64(step)); err != nil {
			return err
		}
		off += int64(step)
	}
	return nil
}

// groupDurable enters a durable group into the ledger. Turn.
func (j *Journal) groupDurable(bytes uint64) {
	j.Lock()
	s := j.ledger.current()
	for _, t := range j.writer.group {
		j.ledger.record(s, t.lane, t.position, t.frame.Items, t.frame.Received)
		j.ledger.unseat(t.lane.tenant)
	}
	j.ledger.reserved -= bytes
	s.end += bytes
	recovered := j.rotation.blocked && j.rotation.kind != RotationTerminal && j.apply(rotationDone, nil, false)
	state := j.rotation.snapshot()
	j.publish()
	j.durable.Store(s.end)
	j.Unlock()
	j.growth.grew()
	if recovered {
		j.tellTransition(state)
	}
}

// rollBack takes a group whose write failed out of the file again. When that
// cannot be done its bytes stay charged and the segment ends. Turn.
func (j *Journal) rollBack(off int64, bytes uint64, cause error) {
	w := &j.writer
	if err := w.file.Truncate(off); err != nil {
		j.endSegment(bytes, fmt.Errorf("roll back a failed write to %s: %w", w.id.name(), err))
	} else {
		if w.preallocated { // the truncation gave the rest of the blocks back
			w.preallocated = w.file.Allocate(off, int64(j.cfg.SegmentSize)-off) == nil
		}
		j.Lock()
		for _, t := range w.group {
			j.release(t)
		}
		if j.queue.rotations == 0 {
			j.queue.tail -= bytes
		}
		j.publish()
		j.Unlock()
	}
	if e := classifyFailure(cause); e != rotationFailed {
		j.transition(e, cause, true)
	}
}

// endSegment leaves a failed group's bytes charged to the current segment and
// owes a rotation: its base is the durable end, so that what the file holds
// behind it is no part of the log. Turn.
func (j *Journal) endSegment(bytes uint64, cause error) {
	j.Lock()
	l := &j.ledger
	l.charge(bytes)
	l.reserved -= bytes
	for _, t := range j.writer.group {
		l.unseat(t.lane.tenant)
	}
	j.queue.owed = true
	j.requeue()
	tooMany := l.sealed > maxSealed
	j.publish()
	j.Unlock()
	j.warn("A segment ended early: what follows goes to a new one", cause)
	if tooMany {
		j.transition(sealedCeiling, fmt.Errorf("more than %d segments hold bytes that could not be made durable or cut off; the last: %w", maxSealed, cause), true)
	}
}

// apply feeds the rotation's state. Journal lock.
func (j *Journal) apply(e rotationEvent, cause error, blocked bool) (changed bool) {
	return j.rotation.on(e, cause, blocked, j.cfg.Now())
}

// transition feeds the rotation's state and tells of a change. No lock is
// held.
func (j *Journal) transition(e rotationEvent, cause error, blocked bool) {
	j.Lock()
	changed := j.apply(e, cause, blocked)
	state := j.rotation.snapshot()
	j.publish()
	j.Unlock()
	if changed {
		j.tellTransition(state)
	}
}

func (j *Journal) tellTransition(s RotationState) {
	name, text := EventRotationRetrying, "The log cannot put its next segment in place and tries again"
	switch s.Kind {
	case RotationHealthy:
		name, text = EventRotationRecovered, "The log can put segments in place again"
	case RotationTerminal:
		name, text = EventRotationTerminal, "The log takes no more data until it is restarted; what it holds is delivered"
	case RotationVolumeFull:
		text = "The volume is full: appends are refused until there is space"
	case RotationUnwritable:
		text = "The log's directory cannot be written: appends are refused until it can"
	}
	j.event(name, text, s.Cause, map[string]any{
		"state": s.Kind.String(), "failures": s.Failures, "directory": j.cfg.Directory,
	})
}
