// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/otelweir/weir/internal/fsys"
)

// preparation is the outcome of making next.wal.partial ready.
type preparation struct {
	file         fsys.File
	preallocated bool
	err          error
}

// succeeded says whether a group may be written as far as the segment's
// successor is concerned: it is prepared beside the groups, but on a volume
// with little room, or once the segment is ¾ full, no group is written until
// it exists. So a rotation on a full volume allocates nothing. Turn.
func (j *Journal) succeeded() bool {
	w := &j.writer
	if w.prepared != nil {
		return true
	}
	if !w.volumeSeen && w.preparing == nil {
		free, _, err := j.fs.Statfs(j.cfg.Directory)
		w.volumeSeen, w.lowVolume = true, err != nil || free < 2*j.cfg.SegmentSize
	}
	now := j.cfg.Now()
	if used := j.durable.Load() - w.id.base; !w.lowVolume && used < j.room/4*3 {
		if w.preparing == nil && !now.Before(w.nextPreparation) {
			done := make(chan preparation, 1)
			w.preparing = done
			j.tasks.Go(func() { done <- j.prepare() })
		}
		return true
	}
	j.collectPrepared(true)
	if w.prepared != nil {
		return true
	}
	j.Lock()
	blocked := j.rotation.blocked
	j.Unlock()
	if now.Before(w.nextPreparation) && !blocked {
		return true
	}
	err := j.prepareNow()
	if e := classifyFailure(err); err != nil && e != rotationFailed {
		j.transition(e, fmt.Errorf("prepare the next segment: %w", err), true)
		return false
	}
	if err == nil && blocked {
		j.transition(rotationDone, nil, false)
	}
	return true // any other failure is the rotation's to meet and to count
}

// collectPrepared takes over what a background preparation made; with wait it
// waits for a running one. Turn.
func (j *Journal) collectPrepared(wait bool) {
	w := &j.writer
	if w.preparing == nil {
		return
	}
	var p preparation
	if wait {
		p = <-w.preparing
	} else {
		select {
		case p = <-w.preparing:
		default:
			return
		}
	}
	w.preparing = nil
	j.adopt(p)
}

// prepareNow prepares the next segment in the turn.
func (j *Journal) prepareNow() error {
	p := j.prepare()
	j.adopt(p)
	return p.err
}

func (j *Journal) adopt(p preparation) {
	w := &j.writer
	if p.err != nil {
		w.nextPreparation = j.cfg.Now().Add(min(firstRetry<<min(w.preparations, 10), maxRetry))
		w.preparations++
		if w.preparations == 1 {
			j.warn("The next segment could not be prepared ahead; it is tried again", p.err)
		}
		return
	}
	w.prepared, w.preparedPreallocated, w.preparations = p.file, p.preallocated, 0
	j.published.prepared.Store(true)
}

// dropPrepared gives the prepared segment's descriptor up after a failure on
// it; the file is opened anew by the next attempt. Turn.
func (j *Journal) dropPrepared() {
	if f := j.writer.prepared; f != nil {
		_ = f.Close() // nothing in it is worth anything yet
	}
	j.writer.prepared = nil
	j.published.prepared.Store(false)
}

// prepare makes next.wal.partial ready to be installed: an existing one is
// reused and never truncated, for it may be a segment that a crash left with
// two names. It touches no state but the file.
func (j *Journal) prepare() (p preparation) {
	f, err := j.openPartial()
	if err != nil {
		return preparation{err: err}
	}
	defer func() {
		if p.err != nil {
			_ = f.Close()
		}
	}()
	if j.cfg.Preallocate {
		switch err := f.Allocate(0, int64(j.cfg.SegmentSize)); {
		case err == nil:
			p.preallocated = true
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
			// this file system cannot: the segment grows as it is written
		default:
			return preparation{err: err}
		}
	}
	if err := zeroFirstBlock(f); err != nil {
		return preparation{err: err}
	}
	p.file = f
	return p
}

// zeroFirstBlock allocates and clears what a header will be written over, and
// makes it durable together with the file's size.
func zeroFirstBlock(f fsys.File) error {
	if _, err := f.Pwritev([][]byte{make([]byte, blockSize)}, 0); err != nil {
		return err
	}
	return f.Datasync()
}

// openPartial opens next.wal.partial. When it is another name of a segment
// only the name is unlinked, and a new file made.
func (j *Journal) openPartial() (fsys.File, error) {
	f, err := j.openExistingPartial()
	if f != nil || err != nil {
		return f, err
	}
	return j.fs.OpenFile(j.path(preparedName), os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
}

// openExistingPartial is nil when there is none that may be used.
func (j *Journal) openExistingPartial() (fsys.File, error) {
	name := j.path(preparedName)
	f, err := j.fs.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	same := false
	info, err := f.Stat()
	if err == nil && info.Nlink > 1 {
		same, err = j.isSegment(info)
	}
	switch {
	case err != nil:
		return nil, errors.Join(err, f.Close())
	case same:
		return nil, errors.Join(f.Close(), j.fs.Unlink(name))
	}
	return f, nil
}

// isSegment says whether a file has a segment's name too.
func (j *Journal) isSegment(file fsys.Info) (bool, error) {
	entries, err := j.fs.List(j.cfg.Directory)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, ok := parseSegmentName(e.Name); ok && e.Dev == file.Dev && e.Ino == file.Ino {
			return true, nil
		}
	}
	return false, nil
}
