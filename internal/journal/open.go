// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/otelweir/weir/internal/fsys"
)

// Recovery is what Open found.
type Recovery struct {
	Frames, Bytes uint64 // that survive
	// Items are those to account for from here on: of surviving frames at or
	// after their lane's horizon, and QuarantinedItems.
	Items              uint64
	TruncatedBytes     uint64 // of a torn tail
	QuarantinedBytes   uint64
	QuarantinedItems   uint64 // lost with these, as far as their headers tell and no horizon has passed them
	QuarantinedUnknown bool   // of some quarantined range no header tells
	// Ambiguous says that something was cut off or made a gap behind all that
	// was proved durable: a torn write, or damage inside the very last group.
	Ambiguous bool
	Scanned   int // segments read in full, for want of a summary
	Duration  time.Duration
	Horizons  map[Lane]Position // as STATE holds them
	LaneItems map[Lane]uint64   // items of surviving frames at or after the lane's horizon
}

// Open locks the directory, recovers the log in it, or begins a fresh one, and
// starts nothing. It reads in constant memory and needs no free disk block.
// Any doubt about the data is an error that names it and what can help.
func Open(f fsys.FS, cfg Config) (*Journal, Recovery, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, Recovery{}, fmt.Errorf("open log: %w", err)
	}
	j := &Journal{fs: f, cfg: cfg, ledger: newLedger(), turn: make(chan struct{}, 1)}
	j.room = cfg.SegmentSize - segmentHeaderLen
	j.rotation.budget = cfg.RotationRetryAttempts
	begun := cfg.Now()
	r := &recovery{Journal: j}
	if err := r.run(); err != nil {
		if err := j.releaseFiles(); err != nil {
			j.warn("A log that could not be opened was not closed cleanly", err)
		}
		return nil, r.out, fmt.Errorf("open log %s: %w", cfg.Directory, err)
	}
	r.out.Duration = cfg.Now().Sub(begun)
	j.event(EventRecoveryCompleted, "The log is open: frames and bytes are all that it holds, items are those that were not settled as of the last barrier", nil, map[string]any{
		"directory": cfg.Directory, "frames": r.out.Frames, "items": r.out.Items, "bytes": r.out.Bytes,
		"segments": j.ledger.closed + 1, "scanned": r.out.Scanned, "truncated": r.out.TruncatedBytes,
		"quarantined": r.out.QuarantinedBytes, "quarantined_items": r.out.QuarantinedItems, "ambiguous": r.out.Ambiguous, "duration": r.out.Duration,
	})
	return j, r.out, nil
}

// recovery is Open at work. It owns everything: nothing else runs yet.
type recovery struct {
	*Journal
	out   Recovery
	state *stateFile
	rec   stateRecord

	files    []segmentFile // in the log's order
	leftover []string      // names that STATE says are gone
	gone     []ordinalRange
	partial  bool // next.wal.partial exists
	scan     scanner
	entered  *lane // of the last frame scanned
	progress progress
	unproven bool // the directory's fsync failed when STATE got its name
}

// segmentFile is one segment found in the directory.
type segmentFile struct {
	id      segmentID
	info    fsys.Info
	end     Position // of a closed one
	next    uint32   // ordinal of the next segment in the chain
	planned bool
}

func (r *recovery) run() error {
	if err := r.lockDirectory(); err != nil {
		return err
	}
	if err := r.list(); err != nil {
		return err
	}
	state, log, rec, err := openState(r.fs, r.path(stateName))
	switch {
	case err == nil:
		r.state, r.log, r.rec = state, log, rec
		r.upkeep.state = state
		if len(r.files) == 0 && rec.nextOrdinal == 0 {
			// An interrupted creation goes on. The directory's fsync may have
			// failed then: the entry of STATE is made anew.
			if err := r.installState(r.want(), &stateRecord{}, state.generation+1, r.fs.Rename); err != nil {
				return fmt.Errorf("create %s: %w", stateName, err)
			}
			return r.create()
		}
	case errors.Is(err, fs.ErrNotExist) && len(r.files) == 0:
		return r.begin()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing beside %d segments (first %s): what is settled and which log this is cannot be known; "+
			"restore it, or start afresh: %s",
			stateName, len(r.files), r.files[0].id.name(), r.afresh())
	default:
		return fmt.Errorf("%w; mend or restore it, or start afresh: %s", err, r.afresh())
	}
	return r.recover()
}

// afresh is what is left to do about a log that cannot be opened.
func (r *recovery) afresh() string {
	return fmt.Sprintf("move the whole directory %s away and keep it, with the data in it", r.cfg.Directory)
}

// lockDirectory makes the directory if need be and takes its lock.
func (r *recovery) lockDirectory() error {
	if err := r.makeDirs(r.cfg.Directory); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	lock, err := r.fs.Lock(r.path(lockName))
	if errors.Is(err, fsys.ErrLocked) {
		holder := r.holder()
		if strings.HasPrefix(holder, self()+" ") {
			return fmt.Errorf("%w by %s, which is this process: another otlp_wal of it has the directory; give each its own", fsys.ErrLocked, holder)
		}
		return fmt.Errorf("%w by %s: only one process can have a log open; stop that one, or use another directory", fsys.ErrLocked, holder)
	}
	if err != nil {
		return fmt.Errorf("lock the directory (it must be writable by this process): %w", err)
	}
	r.lock = lock
	r.signLock()
	if err := r.syncDir(r.cfg.Directory); err != nil {
		return fmt.Errorf("fsync the directory: %w", err)
	}
	return nil
}

func (r *recovery) makeDirs(dir string) error {
	info, err := r.fs.Lstat(dir)
	if err == nil && (info.Mode.IsDir() || info.Mode&fs.ModeSymlink != 0) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if up := filepath.Dir(dir); up != dir {
		if err := r.makeDirs(up); err != nil {
			return err
		}
	}
	return r.makeDir(dir)
}

const maxHolder = 256

// holder is what the lock's holder wrote into it.
func (r *recovery) holder() string {
	const nobody = "another process"
	f, err := r.fs.OpenFile(r.path(lockName), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "a process whose LOCK file is gone"
	}
	if err != nil {
		return nobody
	}
	defer f.Close()
	b := make([]byte, maxHolder)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) || n == 0 {
		return nobody
	}
	return strings.TrimSpace(string(b[:n]))
}

// self is this process, as it signs locks.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("pid %d on %s", os.Getpid(), host)
}

// signLock writes who holds the lock, for the message a second opener prints:
// best effort, and nothing ever decides on it.
func (r *recovery) signLock() {
	text := fmt.Sprintf("%s since %s\n", self(), r.cfg.Now().UTC().Format(time.RFC3339))
	text = text[:min(len(text), maxHolder)]
	f := r.lock.File()
	if _, err := f.Pwritev([][]byte{[]byte(text)}, 0); err == nil {
		_ = f.Truncate(int64(len(text)))
	}
}

// list sorts out what is in the directory. Only names of the log's own shapes
// are ever touched.
func (r *recovery) list() error {
	entries, err := r.fs.List(r.cfg.Directory)
	if err != nil {
		return err
	}
	var others []string
	var state fsys.Info
	for _, e := range entries {
		id, segment := parseSegmentName(e.Name)
		dir := e.Name == deadLetterName || e.Name == quarantineName
		switch {
		case segment, dir, e.Name == lockName, e.Name == stateName, e.Name == stateNewName, e.Name == preparedName:
			if dir != e.Mode.IsDir() || !dir && !e.Mode.IsRegular() {
				return fmt.Errorf("%s is a %s: the log needs that name; move it away", r.path(e.Name), fileType(e.Mode))
			}
		default:
			others = append(others, e.Name)
		}
		if segment { // List sorts by name, which is the log's order
			r.files = append(r.files, segmentFile{id: id, info: e})
		}
		switch e.Name {
		case preparedName:
			r.partial = true
		case stateName:
			state = e
		case stateNewName:
			r.unproven = e.Dev == state.Dev && e.Ino == state.Ino
		}
	}
	if len(others) > 0 {
		r.warn(fmt.Sprintf("Files in %s that are not the log's are left alone: %s", r.cfg.Directory, strings.Join(others[:min(len(others), 10)], ", ")), nil)
	}
	return nil
}

func fileType(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// want is the geometry the configuration asks for.
func (r *recovery) want() geometry {
	return geometryFor(r.cfg.MaxSegments+spareRanges, r.cfg.MaxTenants)
}

// begin starts a fresh log: STATE with next ordinal 0, the first segment, STATE
// again. A crash in between is continued by create.
func (r *recovery) begin() error {
	if _, err := rand.Read(r.log[:]); err != nil {
		return err
	}
	if err := r.installState(r.want(), &stateRecord{}, 0, r.fs.RenameNoReplace); err != nil {
		return fmt.Errorf("create %s: %w", stateName, err)
	}
	return r.create()
}

// installState writes a whole STATE beside the old one and puts it in its
// place.
func (r *recovery) installState(g geometry, rec *stateRecord, generation uint64, rename func(o, n string) error) error {
	name, temp := r.path(stateName), r.path(stateNewName)
	if err := r.fs.Unlink(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := writeState(r.fs, temp, r.log, g, rec, generation)
	if err != nil {
		return err
	}
	if err := rename(temp, name); err != nil {
		return errors.Join(err, file.Close(), r.fs.Unlink(temp))
	}
	if err := r.syncDir(r.cfg.Directory); err != nil {
		// A later fsync proves nothing about this entry: the second name tells
		// the next open to make it anew.
		return errors.Join(err, file.Close(), r.fs.Link(name, temp))
	}
	if err := r.state.close(); err != nil {
		return errors.Join(err, file.Close())
	}
	r.state = &stateFile{fs: r.fs, name: name, file: file, geometry: g, generation: generation}
	r.upkeep.state = r.state
	return nil
}

// create installs the first segment of a log whose STATE exists.
func (r *recovery) create() error {
	if err := r.preparePartial(); err != nil {
		return err
	}
	if err := r.prepareNow(); err != nil {
		return fmt.Errorf("create the first segment: %w", err)
	}
	h := segmentHeader{log: r.log, created: r.cfg.Now().UnixNano()}
	if err := r.place(&h); err != nil {
		r.dropPrepared()
		return fmt.Errorf("create the first segment: %w", err)
	}
	w := &r.writer
	w.file, w.id, w.epoch, w.created = w.prepared, h.id, epochOf(r.log, h.id), h.created
	w.prepared, w.preallocated = nil, w.preparedPreallocated
	r.published.prepared.Store(false)
	if err := r.syncInstalled(); err != nil {
		return err
	}
	r.nextOrdinal = 1
	r.ledger.add(&segment{id: h.id, created: h.created})
	return r.finish()
}

// finish is the end of every way through Open: the first commit, the debris,
// the figures.
func (r *recovery) finish() error {
	r.born = r.cfg.Now()
	if age := time.Duration(r.born.UnixNano() - r.ledger.current().created); age > 0 {
		r.born = r.born.Add(-min(age, r.cfg.SegmentAge)) // a clock that was wrong makes it young or old, no more
	}
	r.upkeep.lowWater = r.ledger.segments[0].id.base
	r.upkeep.reclaimed = r.gone
	if err := r.fitState(); err != nil {
		return err
	}
	if err := r.commitState(nil); err != nil {
		return err
	}
	r.maxSegments = min(r.cfg.MaxSegments, max(int(r.state.ranges)-spareRanges, 1))
	r.maxTenants = min(r.cfg.MaxTenants, int(r.state.tenants))
	for _, name := range r.leftover {
		if err := r.fs.Unlink(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.warn("A reclaimed segment is still there and cannot be unlinked: "+name, err)
		}
	}
	r.sweep()
	for _, s := range r.ledger.segments {
		r.ledger.classify(s)
	}
	for _, ln := range r.ledger.lanes {
		if h := ln.horizon; h > 0 { // the index has applied nothing yet
			ln.dirty = true
			r.ledger.dirty = append(r.ledger.dirty, ln)
		}
	}
	for r.ledger.settle(settleSteps) {
	}
	r.queue.tail = r.tailOfCurrent()
	r.measureAll()
	r.lookAtDisk()
	if err := r.countLanes(); err != nil {
		return err
	}
	return r.checkReserve()
}

// fitState makes STATE larger when the configuration asks for it, or when the
// tenants found need it. Where there is no room for it the old one stays.
func (r *recovery) fitState() error {
	want := r.want()
	if n := uint32(len(r.ledger.tenants)); n > want.tenants {
		want = geometryFor(int(want.ranges), int(n))
	}
	if r.state.holds(want) && !r.unproven {
		return nil
	}
	want = geometryFor(int(max(want.ranges, r.state.ranges)), int(max(want.tenants, r.state.tenants)))
	rec := r.rec
	err := r.installState(want, &rec, r.state.generation+1, r.fs.Rename)
	if err != nil && (isFull(err) || isUnwritable(err)) { // the log opens, to drain
		r.warn(fmt.Sprintf("STATE cannot be made larger for max_segments %d and max_tenants %d: at most %d and %d are in effect",
			r.cfg.MaxSegments, r.cfg.MaxTenants, max(int(r.state.ranges)-spareRanges, 1), r.state.tenants), err)
		return nil
	}
	return err
}

// proveNewest makes sure of the newest segment's directory entry. Frames in it
// prove it: none was written before the directory's fsync succeeded. An empty
// segment's entry may be one that a failed fsync left clean, and is made anew.
func (r *recovery) proveNewest() error {
	if r.ledger.current().bytes() > 0 || r.queue.owed {
		return nil
	}
	return r.renewInstalled()
}

// preparePartial deals with a next.wal.partial that an earlier life left: if
// it is another name of a segment only the name goes, else its first block is
// cleared, so that a header in it never comes to life.
func (r *recovery) preparePartial() error {
	if !r.partial {
		return nil
	}
	f, err := r.openExistingPartial()
	if f == nil || err != nil {
		return err
	}
	b := make([]byte, blockSize)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && !allZero(b[:n]) { // only then is the block sure to exist: a full volume must open
		err = zeroFirstBlock(f)
	}
	return errors.Join(err, f.Close())
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
