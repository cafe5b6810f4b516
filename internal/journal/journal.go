// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/internal/fsys"
)

// Journal is one open log. Its embedded mutex is the journal lock: methods
// that say so are called under it and do no I/O; whoever holds it does none
// either. The writer turn (TurnC) is taken before the lock, never while
// holding it.
type Journal struct {
	sync.Mutex

	fs   fsys.FS
	cfg  Config
	log  LogID
	lock fsys.Lock
	room uint64 // framed bytes a segment holds

	// Capacity of STATE, which may be less than configured.
	maxSegments, maxTenants int

	turn chan struct{} // the writer turn; full while somebody holds it

	// Guarded by the journal lock.
	ledger      ledger
	queue       queue
	behind      uint64 // reserved bytes queued behind a rotation
	rotation    rotation
	nextOrdinal uint32
	besides     uint64    // what the directory's other files took at the last look
	born        time.Time // when the current segment began to age
	closed      bool

	writer writer     // guarded by the turn
	upkeep upkeep     // guarded by its own mutex
	letter letters    // guarded by its own mutex
	damage damages    // guarded by its own mutex
	fixed  uint64     // of besides: what never changes while the log is open
	tails  sync.Mutex // whoever writes behind the end of a closed segment holds it
	tasks  sync.WaitGroup

	durable   atomic.Uint64
	seen      atomic.Bool // a barrier was ever recorded
	growth    growth
	published published
	noDirSync atomic.Bool // the file system cannot fsync a directory
}

// LogID is drawn anew for every fresh log.
func (j *Journal) LogID() LogID { return j.log }

func (j *Journal) path(name string) string { return filepath.Join(j.cfg.Directory, name) }

// TurnC is the writer turn: whoever sends to it holds the turn. Take it before
// the journal lock.
func (j *Journal) TurnC() chan<- struct{} { return j.turn }

// ReleaseTurn gives the writer turn back.
func (j *Journal) ReleaseTurn() { <-j.turn }

// Close ends what is queued as undecided, waits for what runs in the
// background, makes the durable position the recorded one, and releases the
// directory. The prepared segment stays for the next open. No maintenance may
// run any more. A second Close does nothing.
func (j *Journal) Close() error {
	j.turn <- struct{}{}
	defer j.ReleaseTurn()

	j.Lock()
	if j.closed {
		j.Unlock()
		return nil
	}
	j.closed = true
	left := j.drop(nil)
	j.Unlock()
	tell(left, &AppendError{Op: "append", Err: ErrClosed})
	j.letter.mu.Lock()
	j.letter.closed = true
	j.letter.mu.Unlock()

	j.collectPrepared(true)
	j.tasks.Wait()
	var errs []error
	if w := &j.writer; w.prepared != nil {
		errs = append(errs, w.prepared.Close())
		w.prepared = nil
	}
	if err := j.commitState(nil); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, j.releaseFiles())
	j.growth.grew()
	return errors.Join(errs...)
}

// releaseFiles closes what is open and gives up the lock.
func (j *Journal) releaseFiles() error {
	var errs []error
	if j.writer.file != nil {
		errs = append(errs, j.writer.file.Close())
		j.writer.file = nil
	}
	if old := j.writer.unsummarised; old != nil {
		errs = append(errs, old.file.Close())
		j.writer.unsummarised = nil
	}
	errs = append(errs, j.upkeep.close())
	if j.lock != nil {
		errs = append(errs, j.lock.Unlock())
		j.lock = nil
	}
	return errors.Join(errs...)
}

// Durable is the durable position: everything before it is on stable storage
// and may be read.
func (j *Journal) Durable() Position { return j.durable.Load() }

// Grew returns a channel that is closed when the durable position grows, or
// the log is closed. Take it before looking at Durable.
func (j *Journal) Grew() <-chan struct{} { return j.growth.wait() }

// growth wakes whoever waits for the log to grow.
type growth struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu; nil while nobody waits
}

func (g *growth) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

func (g *growth) grew() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
