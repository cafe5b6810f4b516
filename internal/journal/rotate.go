// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"
)

// rotate makes one attempt to put the next segment in place and accounts for
// its outcome. Turn.
func (j *Journal) rotate() error {
	err := j.install()
	if err == nil {
		err = j.syncInstalled()
	}
	return j.attempted(err)
}

// attempted feeds the outcome of an attempt to the state.
func (j *Journal) attempted(err error) error {
	if err == nil {
		j.transition(rotationDone, nil, false)
		return nil
	}
	j.transition(classifyFailure(err), err, false)
	return err
}

// install ends the current segment and puts a new, empty one with base =
// durable position in its place. Until the directory is synced nothing may be
// written to it. A failure leaves debris only. Turn.
func (j *Journal) install() error {
	w := &j.writer
	j.collectPrepared(true)
	if w.prepared == nil {
		if err := j.prepareNow(); err != nil {
			return fmt.Errorf("prepare the next segment: %w", err)
		}
	}
	now := j.cfg.Now()
	j.Lock()
	if j.nextOrdinal == math.MaxUint32 {
		j.Unlock()
		return errors.New("no ordinal is left: this log has had 4294967295 segments")
	}
	h := segmentHeader{log: j.log, id: segmentID{j.durable.Load(), j.nextOrdinal}, created: now.UnixNano()}
	j.nextOrdinal++ // every attempt consumes one: what a failed one left is never met again
	j.Unlock()

	if err := j.place(&h); err != nil {
		j.dropPrepared()
		return fmt.Errorf("put segment %s in place: %w", h.id.name(), err)
	}
	j.succeed(&h)
	return nil
}

// place writes the header into the prepared file, syncs it and gives it its
// name.
func (j *Journal) place(h *segmentHeader) error {
	f := j.writer.prepared
	if _, err := f.Pwritev([][]byte{h.encode()}, 0); err != nil {
		return err
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	from, to := j.path(preparedName), j.path(h.id.name())
	err := j.fs.RenameNoReplace(from, to)
	if err == nil {
		return nil
	}
	// A rename that is a link and an unlink may have done its first half.
	mine, statErr := f.Stat()
	there, lookErr := j.fs.Lstat(to)
	if statErr != nil || lookErr != nil || mine.Dev != there.Dev || mine.Ino != there.Ino {
		return err
	}
	if err := j.fs.Unlink(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, j.fs.Unlink(to))
	}
	return nil
}

// succeed makes the installed file the current segment, with its directory
// entry still to be synced. Turn.
func (j *Journal) succeed(h *segmentHeader) {
	w := &j.writer
	old := &closedFile{file: w.file}
	j.Lock()
	q, l := &j.queue, &j.ledger
	old.segment = l.current()
	l.closeCurrent()
	l.add(&segment{id: h.id, end: h.id.base, created: h.created})
	switch {
	case q.owed: // the queue was laid out anew when the segment ended
		q.owed = false
	case q.len() > 0 && q.first().rotate:
		q.first().rotate = false
		q.rotations--
		j.behind = 0
		behind := false
		for _, t := range q.tickets[q.head:] {
			if behind = behind || t.rotate; behind {
				j.behind += t.framed
			}
		}
	default:
		j.requeue()
	}
	q.undischarged = true
	j.born = j.cfg.Now()
	j.publish()
	j.Unlock()

	w.file, w.id, w.epoch, w.created = w.prepared, h.id, epochOf(j.log, h.id), h.created
	w.preallocated = w.preparedPreallocated
	w.prepared, w.volumeSeen = nil, false
	j.published.prepared.Store(false)
	w.unsummarised = old
}

// syncInstalled makes the current segment's directory entry durable. Turn.
func (j *Journal) syncInstalled() error {
	if err := j.syncDir(j.cfg.Directory); err != nil {
		return fmt.Errorf("make the directory entry of %s durable: %w", j.writer.id.name(), err)
	}
	j.Lock()
	j.queue.undischarged = false
	j.Unlock()
	if old := j.writer.unsummarised; old != nil {
		j.writer.unsummarised = nil
		j.tasks.Go(func() { j.summarise(old) })
	}
	return nil
}

// dischargeInstall makes good a directory fsync that failed. Turn.
func (j *Journal) dischargeInstall() error { return j.attempted(j.renewInstalled()) }

// renewInstalled makes the current, empty segment's directory entry anew and
// durable: a later fsync alone proves nothing about an entry that a failed one
// left clean. Turn.
func (j *Journal) renewInstalled() error {
	if err := j.renewEntry(); err != nil {
		return fmt.Errorf("renew the directory entry of %s: %w", j.writer.id.name(), err)
	}
	return j.syncInstalled()
}

// renewEntry changes the entry: the next prepared file takes the segment's name
// over, which leaves no moment without it. Only when the volume has no room
// for a prepared file, the segment goes back under the prepared name and comes
// again; Open takes a log without segments up again from there.
func (j *Journal) renewEntry() error {
	w := &j.writer
	j.collectPrepared(true)
	if err := j.replaceInstalled(); !isFull(err) {
		return err
	}
	prepared, name := j.path(preparedName), j.path(w.id.name())
	mine, err := w.file.Stat()
	if err != nil {
		return err
	}
	there, err := j.fs.Lstat(prepared)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case there.Dev != mine.Dev || there.Ino != mine.Ino:
		if err := j.fs.Unlink(prepared); err != nil { // it was not complete
			return err
		}
	default: // an earlier attempt got half way
		err := j.fs.RenameNoReplace(prepared, name)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := j.fs.Unlink(prepared); err != nil {
			return err
		}
	}
	if err := j.fs.RenameNoReplace(name, prepared); err != nil {
		return err
	}
	return j.fs.RenameNoReplace(prepared, name)
}

// replaceInstalled gives the current, empty segment's name to the prepared
// file.
func (j *Journal) replaceInstalled() error {
	w := &j.writer
	if w.prepared == nil {
		if err := j.prepareNow(); err != nil {
			return err
		}
	}
	h := segmentHeader{log: j.log, id: w.id, created: w.created}
	_, err := w.prepared.Pwritev([][]byte{h.encode()}, 0)
	if err == nil {
		err = w.prepared.Datasync()
	}
	if err == nil {
		err = j.fs.Rename(j.path(preparedName), j.path(w.id.name()))
	}
	if err != nil {
		j.dropPrepared()
		return err
	}
	_ = w.file.Close() // it holds nothing but the header
	w.file, w.preallocated = w.prepared, w.preparedPreallocated
	w.prepared = nil
	j.published.prepared.Store(false)
	return nil
}

// syncDir is a directory fsync; a file system that cannot do one is warned of
// once and then taken as it is.
func (j *Journal) syncDir(dir string) error {
	err := j.fs.SyncDir(dir)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		if !j.noDirSync.Swap(true) {
			j.warn("This file system cannot fsync a directory: a power cut may lose files that were just made", err)
		}
		return nil
	}
	return err
}

// agedLocked says whether the current segment is due by age: old enough,
// holding a frame, and everything in it settled by stamped horizons. Journal
// lock.
func (j *Journal) agedLocked() bool {
	s := j.ledger.current()
	return s.frames > 0 && s.pending == 0 && j.queue.tail == s.bytes() && j.cfg.Now().Sub(j.born) >= j.cfg.SegmentAge
}

// RotateIfAged ends the current segment when it is due by age; at the ceiling,
// or while rotation is not healthy, the segment stays. Turn.
func (j *Journal) RotateIfAged() error {
	j.Lock()
	due := !j.closed && j.queue.len() == 0 && j.agedLocked() && j.discretionLocked()
	j.Unlock()
	if !due {
		return nil
	}
	return j.rotate()
}

// RotateForced ends the current segment, if it holds a frame or a gap, so that
// it can be reclaimed. At the ceiling, or while rotation is not healthy, it
// does nothing. Turn.
func (j *Journal) RotateForced() error {
	j.Lock()
	due := !j.closed && j.ledger.current().bytes() > 0 && j.discretionLocked()
	j.Unlock()
	if !due {
		return nil
	}
	return j.rotate()
}

// discretionLocked says whether a rotation that nobody waits for may happen
// now: a queued one will end the segment anyway. Journal lock.
func (j *Journal) discretionLocked() bool {
	return j.rotation.kind == RotationHealthy && j.queue.pending() == 0 && !j.queue.undischarged &&
		j.ledger.closed+1 <= j.maxSegments
}

// Discharge makes good what is pending, if it is due: gap frames over damage a
// reader met, the directory fsync of an installed segment, an owed or failed
// rotation, a probe of the volume. nil when nothing is pending or due. Turn.
func (j *Journal) Discharge() error {
	j.collectPrepared(false)
	gaps := j.writeGaps()
	j.Lock()
	kind, blocked, waiting := j.rotation.kind, j.rotation.blocked, j.rotation.waiting(j.cfg.Now())
	discharge, owed := j.queue.undischarged, j.queue.owed
	full := j.ledger.current().bytes() > 0 && j.queue.len() == 0 && j.ledger.closed+1 <= j.maxSegments
	closed := j.closed
	j.Unlock()
	var err error
	switch {
	case closed || waiting:
	case discharge:
		err = j.dischargeInstall()
	case owed:
		err = j.rotate()
	case kind == RotationHealthy:
	case !blocked && full:
		err = j.rotate() // nothing less proves that it works again
	default:
		err = j.attempted(j.probe())
	}
	return errors.Join(gaps, err)
}

// probe finds out whether the volume takes bytes again: by preparing the next
// segment, or, when that exists, by writing to it. Turn.
func (j *Journal) probe() error {
	j.collectPrepared(true)
	if j.writer.prepared == nil {
		if err := j.prepareNow(); err != nil {
			return fmt.Errorf("prepare the next segment: %w", err)
		}
		return nil
	}
	if err := zeroFirstBlock(j.writer.prepared); err != nil {
		j.dropPrepared()
		return fmt.Errorf("probe the volume: %w", err)
	}
	free, _, err := j.fs.Statfs(j.cfg.Directory)
	if err != nil {
		return fmt.Errorf("probe the volume: %w", err)
	}
	if free < j.cfg.GroupCap {
		return fmt.Errorf("probe the volume: %d bytes are free, a group needs up to %d: %w", free, j.cfg.GroupCap, syscall.ENOSPC)
	}
	return nil
}
