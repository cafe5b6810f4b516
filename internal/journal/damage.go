// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/otelweir/weir/internal/fsys"
)

// DamageError is damage met by Open or by a reader: bytes below the durable
// position that are no frame.
type DamageError struct {
	Directory  string
	File       string // the segment's name
	Offset     int64  // in it
	Start, End Position
	Items      uint64 // lost with it, if Known; else what the damaged headers say, if Stated; below 2³² − 1
	Known      bool
	Stated     bool
	Lanes      []Lane // that have frames in the segment, if known
	Err        error
}

func (e *DamageError) Error() string {
	items := "an unknown number of items"
	switch {
	case e.Known:
		items = fmt.Sprintf("%d items", e.Items)
	case e.Stated:
		items = fmt.Sprintf("%d items, if the damaged headers are right,", e.Items)
	}
	advice := "set on_corruption: quarantine"
	if errors.Is(e.Err, errQuarantineFull) {
		advice = "raise quarantine_max_bytes or move what is in quarantine/ away"
	}
	return fmt.Sprintf("%s: damaged at offset %d: %v; positions %d to %d with %s cannot be read: restore the file from a copy, or %s and restart, to set them aside and go on",
		filepath.Join(e.Directory, e.File), e.Offset, e.Err, e.Start, e.End, items, advice)
}

func (e *DamageError) Unwrap() error { return e.Err }

// notSetAside adds why quarantine behaves like fail.
func (e *DamageError) notSetAside(why error) {
	e.Err = fmt.Errorf("%w; not set aside: %w", e.Err, why)
}

// lost is what the range's gap frame says of items.
func (e *DamageError) lost() uint32 {
	if e.Known || e.Stated {
		return uint32(e.Items)
	}
	return unknownItems
}

// attrs are the event's attributes.
func (e *DamageError) attrs(action string) map[string]any {
	a := map[string]any{
		"file": e.File, "offset": e.Offset, "start": e.Start, "end": e.End, "action": action,
	}
	if e.Known || e.Stated {
		a["items"], a["items_known"] = e.Items, e.Known
	}
	if len(e.Lanes) > 0 {
		names := make([]string, len(e.Lanes))
		for i, l := range e.Lanes {
			names[i] = l.Kind.String() + " of " + fmt.Sprintf("%q", l.Tenant)
		}
		a["lanes"] = names
	}
	return a
}

// damages is the damage readers met since the log was opened.
type damages struct {
	mu   sync.Mutex
	met  []damage     // in no order; few
	gaps []segmentGap // gap frames that maintenance has yet to write
}

// damage is one range and what was decided about it.
type damage struct {
	err   *DamageError
	aside bool // a copy is in quarantine: readers pass over it
}

type segmentGap struct {
	id         segmentID
	start, end Position
	items      uint32
}

// at is the damage in whose range p is, or nil. Locked.
func (ds *damages) at(p Position) *damage {
	for i := range ds.met {
		if m := &ds.met[i]; m.err.Start <= p && p < m.err.End {
			return m
		}
	}
	return nil
}

// aside is the end of the range set aside in which p is, if p is in one.
func (ds *damages) aside(p Position) (end Position, ok bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if m := ds.at(p); m != nil && m.aside {
		return m.err.End, true
	}
	return 0, false
}

// narrow takes from a range around p, which is in none of those met before,
// what is in one of them. Locked.
func (ds *damages) narrow(d *DamageError, p Position) {
	start, end := d.Start, d.End
	for i := range ds.met {
		m := ds.met[i].err
		if m.Start > p {
			end = min(end, m.Start)
		} else {
			start = max(start, m.End)
		}
	}
	if start == d.Start && end == d.End {
		return
	}
	d.Offset += int64(start - d.Start)
	d.Start, d.End = start, end
	d.Items, d.Known, d.Stated = 0, false, false
}

// meet decides, once per range, about damage a reader at p has met. It returns
// the position to go on at when the range was set aside.
func (j *Journal) meet(f fsys.File, id segmentID, p Position, d *DamageError) (Position, error) {
	ds := &j.damage
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if m := ds.at(p); m != nil {
		if m.aside {
			return m.err.End, nil
		}
		return 0, m.err
	}
	ds.narrow(d, p)
	m := damage{err: d}
	action, text := "stopped", "A reader met damage in the log: delivery of the lanes with frames at or behind it has ended, until the file is restored "+
		"from a copy, or on_corruption: quarantine is set, and the Collector restarted. New data is accepted and stays"
	if j.cfg.OnCorruption == CorruptionQuarantine {
		if err := j.setAside(f, id, d.Offset, id.offset(d.End), suffixDamaged); err != nil {
			d.notSetAside(err)
		} else {
			m.aside = true
			action, text = "quarantined", "A reader met damage in the log, which was set aside; delivery goes on"
			j.published.quarantined.Add(d.End - d.Start)
			ds.gaps = append(ds.gaps, segmentGap{id, d.Start, d.End, d.lost()})
		}
	}
	ds.met = append(ds.met, m)
	if m.aside {
		j.Lock()
		if s := j.ledger.find(d.Start); s != nil && s.id == id {
			s.holed = true
		}
		j.Unlock()
	}
	j.event(EventRecoveryDamage, text, d.Err, d.attrs(action))
	if m.aside {
		return d.End, nil
	}
	return 0, d
}

// writeGaps puts a gap frame over every range that a reader had set aside.
// Turn.
func (j *Journal) writeGaps() error {
	ds := &j.damage
	ds.mu.Lock()
	gaps := ds.gaps
	ds.gaps = nil
	ds.mu.Unlock()
	var errs []error
	for _, g := range gaps {
		err := j.writeGap(g)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // reclaimed meanwhile
			continue
		}
		errs = append(errs, fmt.Errorf("write a gap over positions %d to %d in %s: %w", g.start, g.end, g.id.name(), err))
		ds.mu.Lock()
		ds.gaps = append(ds.gaps, g)
		ds.mu.Unlock()
	}
	return errors.Join(errs...)
}

// writeGap writes one. A closed segment's summary goes first, and durably: it
// counts what the gap replaces. From then on the segment is scanned.
func (j *Journal) writeGap(g segmentGap) error {
	j.tails.Lock()
	defer j.tails.Unlock()
	j.Lock()
	s := j.ledger.find(g.start)
	if s == nil || s.id != g.id {
		j.Unlock()
		return fs.ErrNotExist
	}
	end, closed := g.id.offset(s.end), s.closed
	j.Unlock()
	f, err := j.fs.OpenFile(j.path(g.id.name()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if closed {
		err = f.Truncate(end)
		if err == nil {
			err = f.Datasync()
		}
	}
	if err == nil {
		_, err = f.Pwritev([][]byte{gapHeader(g.start, g.end, g.items, epochOf(j.log, g.id))}, g.id.offset(g.start))
	}
	if err == nil {
		err = f.Datasync()
	}
	j.measure(f, s)
	return errors.Join(err, f.Close())
}

// Copies in quarantine/ are named after the segment, the position and the log,
// for a fresh log beside old copies must overwrite none of them:
// <segment's name without .wal>-<16 hex position>-<8 hex log id>.damaged or .torn,
// with -1, -2… before the dot where another copy has the name: a gap frame can
// be damaged in its turn.
const (
	suffixDamaged = ".damaged" // an acknowledged frame may have been in it
	suffixTorn    = ".torn"    // behind all that was proved: nothing acknowledged was in it
)

var errQuarantineFull = errors.New("quarantine_max_bytes is reached")

// setAside copies what a segment's file has of the bytes [from, to) into
// quarantine/, durably. Repeating it changes nothing, and nothing but zeros is
// ever replaced in a copy. Torn copies make room, oldest first, for others.
func (j *Journal) setAside(f fsys.File, id segmentID, from, to int64, suffix string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if to = min(to, info.Size); to <= from {
		return nil
	}
	dir := j.path(quarantineName)
	if err := j.makeDir(dir); err != nil {
		return err
	}
	stem := fmt.Sprintf("%s-%016x-%x", strings.TrimSuffix(id.name(), segmentSuffix), id.position(from), j.log[:4])
	name := stem + suffix
	for n := 1; ; n++ {
		other, err := j.isOther(filepath.Join(dir, name), f, from, to)
		if err != nil {
			return err
		}
		if !other {
			break
		}
		name = fmt.Sprintf("%s-%d%s", stem, n, suffix)
	}
	if err := j.makeQuarantineRoom(dir, name, uint64(to-from)); err != nil {
		return err
	}
	out, err := j.fs.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	err = copyRange(out, 0, f, from, to)
	if err == nil {
		err = out.Truncate(to - from)
	}
	if err == nil {
		err = out.Datasync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return j.syncNew(dir, name)
}

// isOther says whether a copy holds anything but the bytes [from, to) of src.
// One that was begun before a crash has zeros, or its end, where some are
// missing.
func (j *Journal) isOther(name string, src fsys.File, from, to int64) (bool, error) {
	there, err := j.fs.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer there.Close()
	info, err := there.Stat()
	if err != nil || info.Size > to-from {
		return true, err
	}
	half := min(scanBuffer, info.Size)
	buf := make([]byte, 2*half)
	for off := int64(0); off < info.Size; off += half {
		a, b := buf[:min(half, info.Size-off)], buf[half:]
		if _, err := there.ReadAt(a, off); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		n, err := src.ReadAt(b[:len(a)], from+off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		clear(b[n:])
		for i, c := range a {
			if c != 0 && c != b[i] {
				return true, nil
			}
		}
	}
	return false, nil
}

// syncNew makes the entry of a new file durable. When that fails the file goes
// again: a later fsync would prove nothing about an entry this one left clean.
func (j *Journal) syncNew(dir, name string) error {
	err := j.syncDir(dir)
	if err != nil {
		err = errors.Join(err, j.fs.Unlink(filepath.Join(dir, name)))
	}
	return err
}

func (j *Journal) makeQuarantineRoom(dir, name string, need uint64) error {
	entries, err := j.fs.List(dir)
	if err != nil {
		return err
	}
	var total uint64
	var torn []fsys.Info // in the order of their names, which is the log's
	for _, e := range entries {
		if e.Name == name {
			continue // the same copy, begun before
		}
		total += uint64(e.Size)
		if strings.HasSuffix(e.Name, suffixTorn) {
			torn = append(torn, e)
		}
	}
	for _, e := range torn {
		if total+need <= j.cfg.QuarantineMaxBytes {
			break
		}
		if err := j.fs.Unlink(filepath.Join(dir, e.Name)); err != nil {
			return err
		}
		total -= uint64(e.Size)
	}
	if total+need > j.cfg.QuarantineMaxBytes {
		return fmt.Errorf("%d bytes are in quarantine, %d more do not fit into %d: %w", total, need, j.cfg.QuarantineMaxBytes, errQuarantineFull)
	}
	return nil
}

// makeDir makes a directory of the log, durably, if it is not there.
func (j *Journal) makeDir(dir string) error {
	err := j.fs.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return j.syncDir(filepath.Dir(dir))
}

// copyRange copies [from, to) of src to dst at off; what src lacks is zero.
func copyRange(dst fsys.File, off int64, src fsys.File, from, to int64) error {
	buf := make([]byte, min(scanBuffer, to-from))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		n, err := src.ReadAt(b, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		clear(b[n:])
		if _, err := dst.Pwritev([][]byte{b}, off); err != nil {
			return err
		}
		from += int64(len(b))
		off += int64(len(b))
	}
	return nil
}
