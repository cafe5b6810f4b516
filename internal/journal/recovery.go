// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/otelweir/weir/internal/fsys"
)

// recover opens a log that has been open before.
func (r *recovery) recover() error {
	if err := r.chain(); err != nil {
		return err
	}
	r.out.Horizons = map[Lane]Position{}
	for i := range r.rec.tenants {
		for k, h := range r.rec.tenants[i].horizons {
			if h > 0 {
				r.out.Horizons[Lane{r.rec.tenants[i].name, Kind(k + 1)}] = h
			}
		}
	}
	r.seen.Store(r.rec.barrierSeen)
	last := len(r.files) - 1
	r.setOut(r.cfg.Now())
	for i := range r.files[:last] {
		if err := r.closedSegment(&r.files[i]); err != nil {
			return err
		}
	}
	if err := r.newestSegment(&r.files[last]); err != nil {
		return err
	}
	if err := r.preparePartial(); err != nil {
		return fmt.Errorf("clear %s: %w", preparedName, err)
	}
	if err := r.proveNewest(); err != nil {
		return err
	}
	r.nextOrdinal = max(r.rec.nextOrdinal, r.files[last].id.ordinal+1)
	return r.finish()
}

// lost is the error of segments that do not make a whole.
func (r *recovery) lost(format string, args ...any) error {
	return fmt.Errorf("%s: data of this log is missing, or is another log's; restore the files, or start afresh: %s",
		fmt.Sprintf(format, args...), r.afresh())
}

// chain orders what is there, applies what STATE says was planned and
// reclaimed, and refuses positions that nothing explains.
func (r *recovery) chain() error {
	var present []segmentFile
	absent := map[uint32]ordinalRange{} // planned ones, by ordinal
	for _, p := range r.rec.planned {
		absent[p.first] = p
	}
	for _, f := range r.files {
		if p, ok := absent[f.id.ordinal]; ok && p.base == f.id.base {
			delete(absent, f.id.ordinal)
			f.planned, f.end = true, p.end
			r.upkeep.planned = append(r.upkeep.planned, p)
		} else if r.isReclaimed(f.id) { // its unlink did not survive; its record did
			if err := r.checkForeign(f); err != nil {
				return err
			}
			r.leftover = append(r.leftover, f.id.name())
			continue
		}
		present = append(present, f)
	}
	r.files = present
	gone := append([]ordinalRange(nil), r.rec.reclaimed...)
	for _, p := range absent {
		gone = append(gone, p)
	}
	gone = mergeRanges(gone)

	if len(r.files) == 0 && r.partial {
		if err := r.takeUp(gone); err != nil {
			return err
		}
	}
	cursor := r.rec.lowWater
	for i := range r.files {
		f := &r.files[i]
		for len(gone) > 0 && gone[0].base == cursor && (segmentID{gone[0].base, gone[0].first}).before(f.id) {
			if i > 0 {
				r.gone = append(r.gone, gone[0])
				r.files[i-1].next = gone[0].first
			}
			cursor, gone = gone[0].end, gone[1:]
		}
		if f.id.base != cursor {
			return r.lost("%s begins at position %d, but what comes before it ends at %d", f.id.name(), f.id.base, cursor)
		}
		if i == len(r.files)-1 {
			break
		}
		end := r.files[i+1].id.base
		next := r.files[i+1].id.ordinal
		if len(gone) > 0 && gone[0].base <= end && (segmentID{gone[0].base, gone[0].first}).before(r.files[i+1].id) {
			end, next = gone[0].base, gone[0].first
		}
		if f.planned && f.end != end {
			return r.lost("%s ends at position %d according to STATE, but what comes after it begins at %d", f.id.name(), f.end, end)
		}
		f.end, f.next = end, next
		cursor = end
	}
	switch {
	case len(r.files) == 0:
		return r.lost("there is no segment, but STATE speaks of %d", r.rec.nextOrdinal)
	case len(gone) > 0:
		return r.lost("STATE says that positions %d to %d are reclaimed, but no segment follows them", gone[0].base, gone[0].end)
	case r.files[len(r.files)-1].planned:
		return r.lost("the newest segment %s was being reclaimed, so a newer one was there", r.files[len(r.files)-1].id.name())
	}
	return nil
}

// takeUp finishes the installation of a log's only segment, when the prepared
// name is all that is left of it: an entry is being renewed through it, and
// may have been there when everything before it was reclaimed. Its header must
// be this log's and begin where the chain has to go on.
func (r *recovery) takeUp(gone []ordinalRange) error {
	base := r.rec.lowWater
	for _, g := range gone {
		if g.base == base {
			base = g.end
		}
	}
	f, err := r.fs.OpenFile(r.path(preparedName), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	b := make([]byte, segmentHeaderLen)
	n, readErr := f.ReadAt(b, 0)
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n < len(b) {
		return readErr
	}
	h, err := decodeSegmentHeader(b, 0)
	if err != nil || h.log != r.log || h.id.base != base || base < r.rec.durable {
		return nil // an ordinary prepared file: there is no segment, and the chain says so
	}
	if err := r.fs.RenameNoReplace(r.path(preparedName), r.path(h.id.name())); err != nil {
		return fmt.Errorf("take up %s from %s: %w", h.id.name(), preparedName, err)
	}
	info.Name = h.id.name()
	r.files, r.partial = []segmentFile{{id: h.id, info: info}}, false
	return nil
}

func (r *recovery) isReclaimed(id segmentID) bool {
	if id.base < r.rec.lowWater {
		return true
	}
	for _, g := range r.rec.reclaimed {
		if g.covers(id) {
			return true
		}
	}
	return false
}

// checkForeign refuses a leftover that is not this log's.
func (r *recovery) checkForeign(f segmentFile) error {
	file, err := r.fs.OpenFile(r.path(f.id.name()), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	_, _, err = r.readHeader(file, f.id)
	return errors.Join(err, file.Close())
}

// readHeader checks a segment's header. damage is why its bytes are none; err
// refuses the file.
func (r *recovery) readHeader(f fsys.File, id segmentID) (h segmentHeader, damage, err error) {
	b := make([]byte, segmentHeaderLen)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, nil, fmt.Errorf("read %s: %w", r.path(id.name()), err)
	}
	if n < len(b) {
		return h, fmt.Errorf("file of %d bytes has no header", n), nil
	}
	h, damage = decodeSegmentHeader(b, 0)
	switch {
	case errors.Is(damage, errUnknownVersion):
		return h, nil, fmt.Errorf("%s: %w", r.path(id.name()), damage)
	case damage != nil:
		return h, damage, nil
	case h.log != r.log:
		return h, nil, r.lost("%s belongs to log %x, this is log %x", r.path(id.name()), h.log, r.log)
	case h.id != id:
		return h, nil, r.lost("%s says that it is %s", r.path(id.name()), h.id.name())
	}
	return h, nil, nil
}

// header reads a segment's header or deals with its damage.
func (r *recovery) header(f fsys.File, id segmentID) (created int64, err error) {
	h, damage, err := r.readHeader(f, id)
	if err != nil || damage == nil {
		return h.created, err
	}
	d := &DamageError{Directory: r.cfg.Directory, File: id.name(), Start: id.base, End: id.base, Known: true, Err: damage}
	if r.cfg.OnCorruption != CorruptionQuarantine {
		r.event(EventRecoveryDamage, "A segment's header is damaged", damage, d.attrs("stopped"))
		return 0, d
	}
	// Its frames do not need it: the epoch follows from STATE and the name.
	if err := r.setAside(f, id, 0, segmentHeaderLen, ".header"); err != nil {
		d.notSetAside(err)
		return 0, d
	}
	h = segmentHeader{log: r.log, id: id}
	if err := r.patch(id, h.encode(), 0); err != nil {
		return 0, errors.Join(d, err)
	}
	r.event(EventRecoveryDamage, "A segment's header was damaged and written anew", damage, d.attrs("rewritten"))
	return 0, nil
}

// patch overwrites bytes of a segment durably.
func (r *recovery) patch(id segmentID, b []byte, off int64) error {
	f, err := r.fs.OpenFile(r.path(id.name()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.Pwritev([][]byte{b}, off)
	if err == nil {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}

// closedSegment enters a closed segment into the ledger: from its summary, or
// by a scan.
func (r *recovery) closedSegment(f *segmentFile) error {
	s := &segment{id: f.id, end: f.end}
	r.ledger.add(s)
	defer r.ledger.closeRestored()
	if f.planned { // every frame in it is settled: only its removal is left to do
		s.state = segmentReclaiming
		r.ledger.retrying = append(r.ledger.retrying, s)
		return nil
	}
	file, err := r.fs.OpenFile(r.path(f.id.name()), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if s.created, err = r.header(file, f.id); err != nil {
		return err
	}
	sum, err := r.readSummary(file, f)
	if err != nil {
		return err
	}
	if sum == nil || sum.end > s.end {
		return r.scanClosed(file, f, s)
	}
	if sum.end < s.end {
		return r.lost("%s ended at position %d when it was closed, but what is there after it begins at %d", f.id.name(), sum.end, s.end)
	}
	s.frames, s.firstReceived, s.lastReceived = sum.frames, sum.first, sum.last
	for _, l := range sum.lanes {
		r.ledger.share(s, span{lane: r.lane(l.tenant, l.kind), first: l.first, last: l.last, frames: l.frames, items: l.items})
	}
	r.out.Frames += s.frames
	r.out.Bytes += s.bytes()
	return nil
}

// lane is the ledger's, with the horizon STATE has for it.
func (r *recovery) lane(tenant string, k Kind) *lane {
	ln := r.ledger.lane(tenant, k)
	ln.horizon = r.out.Horizons[ln.Lane]
	return ln
}

// readSummary reads a verifying summary; nil when there is none.
func (r *recovery) readSummary(file fsys.File, f *segmentFile) (*summary, error) {
	var trailer [summaryTrailer]byte
	size := f.info.Size
	if size < segmentHeaderLen+summaryTrailer {
		return nil, nil
	}
	if _, err := file.ReadAt(trailer[:], size-summaryTrailer); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the end of %s: %w", r.path(f.id.name()), err)
	}
	n, ok := summaryLength(trailer[:])
	if !ok || int64(n) > size-segmentHeaderLen {
		return nil, nil
	}
	b := make([]byte, n)
	if _, err := file.ReadAt(b, size-int64(n)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the end of %s: %w", r.path(f.id.name()), err)
	}
	s, err := decodeSummary(b, epochOf(r.log, f.id))
	if err != nil || f.id.offset(s.end) != size-int64(n) || s.bytes != s.end-f.id.base {
		r.warn("The summary of "+f.id.name()+" does not verify: the segment is scanned", err)
		return nil, nil
	}
	return s, nil
}

// enter records a frame that a scan met.
func (r *recovery) enter(s *segment, h *frameHeader, tenant []byte) {
	r.reached(h.end())
	if h.kind == kindGap {
		return
	}
	ln := r.entered // mostly it is the same again
	if ln == nil || ln.Kind != h.kind || ln.Tenant != string(tenant) {
		var ok bool
		if ln, ok = r.ledger.lanes[Lane{string(tenant), h.kind}]; !ok {
			ln = r.lane(string(tenant), h.kind)
		}
		r.entered = ln
	}
	r.ledger.record(s, ln, h.position, h.items, h.received)
	r.out.Frames++
}

// scanClosed reads a closed segment frame by frame: they must end exactly at
// its end.
func (r *recovery) scanClosed(file fsys.File, f *segmentFile, s *segment) error {
	r.out.Scanned++
	r.out.Bytes += s.bytes()
	end := f.id.offset(f.end)
	r.scan.reset(file, r.log, f.id, min(end, f.info.Size))
	bad, last, tail, why, err := r.scan.walk(func(h *frameHeader, tenant []byte) error {
		r.enter(s, h, tenant)
		return nil
	})
	if err != nil {
		return err
	}
	if last < end {
		if tail != tailBad && f.next != f.id.ordinal+1 {
			return r.lost("the frames of %s end at position %d, but what is there after it begins at %d and has ordinal %d",
				f.id.name(), f.id.position(last), f.end, f.next)
		}
		if why == nil {
			why = fmt.Errorf("the frames end at offset %d, the segment at %d", last, end)
		}
		bad = append(bad, badRange{last, end, why})
	}
	for _, b := range bad {
		if err := r.damaged(f.id, b); err != nil {
			return err
		}
	}
	if f.info.Size > end { // not a part of the log, and not a verifying summary
		r.cut(f.id, end)
	}
	return nil
}

// cut shortens a file, best effort.
func (r *recovery) cut(id segmentID, size int64) {
	f, err := r.fs.OpenFile(r.path(id.name()), os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		r.warn("Bytes behind the end of "+id.name()+" cannot be cut off", err)
	}
}

// damaged deals with a range of a segment in which acknowledged frames were.
func (r *recovery) damaged(id segmentID, b badRange) error {
	d := &DamageError{
		Directory: r.cfg.Directory, File: id.name(), Offset: b.start,
		Start: id.position(b.start), End: id.position(b.end), Err: b.why,
	}
	d.Items, d.Stated = r.scan.stated(b.start, b.end, func(l Lane) Position { return r.out.Horizons[l] })
	if r.cfg.OnCorruption != CorruptionQuarantine {
		r.event(EventRecoveryDamage, "Damage was found in the log", b.why, d.attrs("stopped"))
		return d
	}
	if b.end-b.start < frameHeaderLen {
		return errors.Join(d, errors.New("the range is too short for a gap"))
	}
	file, err := r.fs.OpenFile(r.path(id.name()), os.O_RDWR, 0)
	if err != nil {
		return errors.Join(d, err)
	}
	if err = r.setAside(file, id, b.start, b.end, suffixDamaged); err != nil {
		d.notSetAside(err)
		return errors.Join(d, file.Close())
	}
	if err = r.overwrite(file, id, b, d.lost()); err == nil {
		err = file.Datasync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(d, err)
	}
	r.out.QuarantinedBytes += uint64(b.end - b.start)
	r.published.quarantined.Add(uint64(b.end - b.start))
	if d.lost() == unknownItems {
		r.out.QuarantinedUnknown = true
	} else {
		r.out.QuarantinedItems += d.Items
	}
	r.event(EventRecoveryDamage, "Damage was found in the log and set aside", b.why, d.attrs("quarantined"))
	return nil
}

// overwrite writes a gap frame over a range in which so many items are known
// to be lost; a file that ended inside it grows to its end.
func (r *recovery) overwrite(file fsys.File, id segmentID, b badRange, items uint32) error {
	gap := gapHeader(id.position(b.start), id.position(b.end), items, epochOf(r.log, id))
	if _, err := file.Pwritev([][]byte{gap}, b.start); err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size < b.end {
		err = file.Truncate(b.end)
	}
	return err
}

// newestSegment scans the segment that appends will go to, tells damage from
// what a crash tore, and makes every byte it keeps durable.
func (r *recovery) newestSegment(f *segmentFile) error {
	file, err := r.fs.OpenFile(r.path(f.id.name()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	r.writer.file = file // closed with the journal from here on
	s := &segment{id: f.id, end: f.id.base}
	if s.created, err = r.header(file, f.id); err != nil {
		return err
	}
	r.ledger.add(s)
	info, err := file.Stat()
	if err != nil {
		return err
	}

	proved := max(r.rec.durable, f.id.base)
	r.scan.reset(file, r.log, f.id, max(info.Size, segmentHeaderLen))
	bad, last, tail, why, err := r.scan.walk(func(h *frameHeader, tenant []byte) error {
		if h.group != noGroup && uint64(h.group) <= h.position-f.id.base {
			proved = max(proved, h.position-uint64(h.group))
		}
		r.enter(s, h, tenant)
		return nil
	})
	if err != nil {
		return err
	}
	end := f.id.position(last)
	if end < proved {
		if tail == tailSummary || proved-f.id.base > max(r.room, uint64(info.Size-segmentHeaderLen)) {
			return r.lost("the newest segment %s ends at position %d, but the log was durable up to %d", f.id.name(), end, proved)
		}
		if why == nil {
			why = fmt.Errorf("the frames end at offset %d, but were durable up to offset %d", last, f.id.offset(proved))
		}
		bad = append(bad, badRange{last, f.id.offset(proved), why})
		end, last = proved, f.id.offset(proved)
	}
	for _, b := range bad {
		if f.id.position(b.start) < proved {
			err = r.damaged(f.id, b)
		} else {
			err = r.torn(file, f.id, b)
		}
		if err != nil {
			return err
		}
	}
	whole := r.cutTail(file, f.id, last, tail)
	if err := r.rewrite(file, f.id, proved, end); err != nil {
		return fmt.Errorf("make the end of %s durable again: %w", f.id.name(), err)
	}
	s.end = end
	r.ledger.unreclaimed += s.bytes()
	r.out.Bytes += s.bytes()
	r.durable.Store(end)
	r.queue.owed = !whole
	r.writer.id, r.writer.epoch, r.writer.created = f.id, epochOf(r.log, f.id), s.created
	return nil
}

// torn makes a hole inside an unsynced group a gap: nothing in it was ever
// acknowledged, and the frames behind it stay. It becomes durable with the
// rewrite.
func (r *recovery) torn(file fsys.File, id segmentID, b badRange) error {
	r.out.Ambiguous = true
	if err := r.setAside(file, id, b.start, b.end, suffixTorn); err != nil {
		r.warn("A torn range of "+id.name()+" could not be copied to quarantine", err)
	}
	r.event(EventRecoveryDamage, "A write was torn in the middle; what followed it is kept", b.why, map[string]any{
		"file": id.name(), "offset": b.start, "start": id.position(b.start), "end": id.position(b.end),
		"action": "gap", "ambiguous": true,
	})
	return r.overwrite(file, id, b, unknownItems)
}

// cutTail cuts off what follows the last frame and says whether nothing of it
// is left. Zeros stay: they are the preallocated rest.
func (r *recovery) cutTail(file fsys.File, id segmentID, last int64, tail tailKind) bool {
	first, err := r.scan.nonZero(last)
	if err == nil && first == r.scan.end {
		return true
	}
	if tail != tailSummary && err == nil {
		dirty, err := r.scan.lastNonZero(first)
		if err != nil { // what can be read of it was read once: copy it all
			dirty = r.scan.end
		}
		r.out.TruncatedBytes = uint64(dirty - last)
		r.out.Ambiguous = true
		if err := r.setAside(file, id, last, dirty, suffixTorn); err != nil {
			r.warn("The torn end of "+id.name()+" could not be copied to quarantine", err)
		}
	}
	if err := file.Truncate(last); err != nil {
		r.warn("The torn end of "+id.name()+" cannot be cut off: the next append goes to a new segment", err)
		return false
	}
	if r.cfg.Preallocate { // the cut gave the rest of its blocks back; where there are none it grows as it is written
		r.writer.preallocated = file.Allocate(last, int64(r.cfg.SegmentSize)-last) == nil
	}
	return true
}

// rewrite writes the bytes of [from, to) over themselves and syncs them through
// the new descriptor: a page cache that survived a kill or a failed fsync
// proves nothing about the disk.
func (r *recovery) rewrite(file fsys.File, id segmentID, from, to Position) error {
	if from >= to {
		return nil
	}
	if err := copyRange(file, id.offset(from), file, id.offset(from), id.offset(to)); err != nil {
		return err
	}
	return file.Datasync()
}

// countLanes counts the items of every lane at or after its horizon. Where a
// horizon lies inside a segment its headers are walked.
func (r *recovery) countLanes() error {
	r.out.LaneItems = map[Lane]uint64{}
	inside := map[*segment]bool{}
	for _, ln := range r.ledger.lanes {
		for _, ref := range ln.unsettled[ln.head:] {
			sp := ref.share()
			if sp.first < ln.horizon {
				inside[ref.segment] = true
				continue
			}
			r.out.LaneItems[ln.Lane] += sp.items
		}
	}
	for s := range inside {
		if err := r.countInside(s); err != nil {
			return err
		}
	}
	r.out.Items = r.out.QuarantinedItems
	for _, n := range r.out.LaneItems {
		r.out.Items += n
	}
	return nil
}

// countInside counts, in one segment, the items at or after the horizons that
// lie inside it. The frames were verified already, or will be when they are
// read: the headers are believed. Where one cannot be, the count goes on with
// the next frame that verifies, as a reader will: what is between is not
// counted, for it will not be read.
func (r *recovery) countInside(s *segment) error {
	file, err := r.fs.OpenFile(r.path(s.id.name()), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	hop := scanner{buf: make([]byte, 16<<10)}
	hop.reset(file, r.log, s.id, s.id.offset(s.end))
	r.scan.reset(file, r.log, s.id, hop.end)
	for off, found := int64(segmentHeaderLen), true; found; {
		last := off // frame: its length may be what is damaged
		whole, err := hop.headers(off, hop.end, func(h *frameHeader, tenant []byte, named bool) {
			last = s.id.offset(h.position)
			ln := r.ledger.lanes[Lane{string(tenant), h.kind}]
			if named && ln != nil && h.position >= ln.horizon && r.straddles(ln, s) && h.credible() {
				r.out.LaneItems[ln.Lane] += uint64(h.items)
			}
		})
		if whole || err != nil {
			return err
		}
		if off, found, err = r.scan.resync(last + frameHeaderLen); err != nil {
			return err
		}
	}
	return nil
}

// straddles says whether the lane's horizon lies inside its share of s.
func (r *recovery) straddles(ln *lane, s *segment) bool {
	if ln.head == len(ln.unsettled) {
		return false
	}
	first := ln.unsettled[ln.head]
	return first.segment == s && first.share().first < ln.horizon
}
