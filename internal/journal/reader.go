// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/otelweir/weir/internal/fsys"
)

// readAhead is how much a reader reads at once. Frames up to this size are
// checked where they were read and copied once.
const readAhead = 256 << 10

// Reader reads verified frames in order, below the durable position only. It
// may be used beside appends, rotations and reclaiming, by one goroutine.
type Reader struct {
	j   *Journal
	pos Position

	// The segment that pos lies in.
	file    fsys.File // nil = to be looked up
	id      segmentID
	epoch   epoch
	created int64
	limit   Position // of it, everything before this may be read

	buf []byte
	off int64 // file offset of buf[0]
	n   int   // valid bytes of buf

	sought bool   // pos was given, not reached: it may lie inside a gap
	tenant string // of the last frame: most have the same
}

// ReadFrame is a frame as read. Metadata and Payload belong to the caller.
type ReadFrame struct {
	Position Position
	Len      uint64 // framed: the next frame begins at Position+Len
	Kind     Kind   // never a gap: those are passed over
	Tenant   string
	Metadata []byte
	Items    uint32
	Received int64 // unix ns
	Payload  []byte

	header  [frameHeaderLen]byte
	segment segmentID
	created int64 // the segment's
}

// NewReader returns a reader that begins at from, which need not be a frame's
// position: it begins with the first frame at or after it.
func (j *Journal) NewReader(from Position) *Reader { return &Reader{j: j, pos: from, sought: true} }

// Position is that of the next frame, as far as it is known.
func (r *Reader) Position() Position { return r.pos }

// Seek makes p the position to go on at.
func (r *Reader) Seek(p Position) {
	if r.file != nil && (p < r.id.base || p >= r.limit) {
		r.leave()
	}
	r.pos, r.sought = p, true
}

// Close gives the reader's descriptor up. The reader may be used again.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file, r.n = nil, 0
	return err
}

func (r *Reader) leave() { _ = r.Close() } // nothing was written through it

// Next returns the next frame. io.EOF means the durable position is reached:
// take Grew, then call Next again. A *DamageError, given again by every call,
// means that the reader stops before damage; Seek passes over it.
func (r *Reader) Next() (ReadFrame, error) {
	for {
		if r.file == nil || r.pos >= r.limit {
			if err := r.enter(); err != nil {
				return ReadFrame{}, err
			}
		}
		f, skip, err := r.read()
		var d *DamageError
		if errors.As(err, &d) {
			p, err := r.j.meet(r.file, r.id, r.pos, d)
			if err != nil {
				return ReadFrame{}, err
			}
			r.pos = p
			continue
		}
		if errors.Is(err, fs.ErrNotExist) { // reclaimed under our hands, or enter will say
			r.leave()
			continue
		}
		if err != nil {
			return ReadFrame{}, err
		}
		if skip == 0 {
			r.pos += f.Len
			return f, nil
		}
		r.pos += skip
	}
}

// enter finds the segment of pos, or of the first frame after it, and opens
// it.
func (r *Reader) enter() error {
	var failed error
	for range 8 { // each round a segment was reclaimed under our hands
		r.j.Lock()
		s := r.j.ledger.find(r.pos)
		var next Reader
		if s != nil {
			next.id, next.created, next.limit = s.id, s.created, s.end
		}
		r.j.Unlock()
		if s == nil {
			return io.EOF
		}
		if r.file != nil && r.id == next.id { // it has grown
			r.limit = next.limit
			return nil
		}
		r.leave()
		f, err := r.j.fs.OpenFile(r.j.path(next.id.name()), os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil && failed == nil { // once more, as for a read
			failed = err
			continue
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if r.pos < next.id.base {
			r.pos, r.sought = next.id.base, false
		}
		r.file, r.id, r.created, r.limit = f, next.id, next.created, next.limit
		r.epoch = epochOf(r.j.log, r.id)
		r.n = 0
		return nil
	}
	return fmt.Errorf("read the log at position %d: %s is not there", r.pos, r.id.name())
}

// read reads the frame at pos. skip is what to pass over instead: a gap, or
// the rest of one, or of a range set aside, that pos lies in.
func (r *Reader) read() (f ReadFrame, skip uint64, err error) {
	f, h, bad, err := r.frame(r.pos)
	start := r.pos // of the damage, if there is any
	if bad != nil || err != nil {
		if end, ok := r.j.damage.aside(r.pos); ok {
			return f, end - r.pos, nil
		}
		if r.sought {
			var failed error
			if skip, start, failed = r.inside(); skip > 0 || failed != nil && err == nil {
				return f, skip, failed
			}
		}
	}
	r.sought = false
	if bad != nil || err != nil {
		// Once more, through another descriptor: what was wrong may have been
		// the read.
		if err := r.reopen(); err != nil {
			return f, 0, err
		}
		if f, h, bad, err = r.frame(r.pos); err != nil {
			bad = err // the medium's answer
		}
	}
	switch {
	case bad != nil:
		d, err := r.damage(start, bad)
		if err != nil {
			return f, 0, err
		}
		return f, 0, d
	case h.kind == kindGap:
		return f, h.framed(), nil
	}
	return f, 0, nil
}

func (r *Reader) reopen() error {
	r.leave()
	f, err := r.j.fs.OpenFile(r.j.path(r.id.name()), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("read the log again: %w", err)
	}
	r.file = f
	return nil
}

// frame reads and verifies the frame at p, in one pass over its bytes.
func (r *Reader) frame(p Position) (f ReadFrame, h frameHeader, bad, err error) {
	off, room := r.id.offset(p), r.limit-p
	if room < frameHeaderLen {
		return f, h, errFrameLength, nil
	}
	w, err := r.fill(off, frameHeaderLen)
	if err != nil {
		return f, h, nil, err
	}
	copy(f.header[:], w)
	h = decodeFrameHeader(f.header[:])
	if bad := h.check(p, room); bad != nil {
		return f, h, bad, nil
	}
	if h.kind == kindSummary {
		return f, h, errFrameKind, nil
	}
	if h.kind == kindGap {
		if sum(sum(0, f.header[4:]), r.epoch[:]) != h.crc {
			bad = errFrameChecksum
		}
		return f, h, bad, nil
	}
	body, bad, err := r.body(off+frameHeaderLen, p, &h)
	if bad != nil || err != nil {
		return f, h, bad, err
	}
	meta, payload := body[:h.metadata:h.metadata], body[h.metadata:]
	if sum(sum(sum(sum(0, payload), meta), f.header[4:]), r.epoch[:]) != h.crc {
		return f, h, errFrameChecksum, nil
	}
	tenant, ok := tenantOf(meta)
	if !ok {
		return f, h, errMetadata, nil
	}
	if string(tenant) != r.tenant {
		r.tenant = string(tenant)
	}
	f.Position, f.Len, f.Kind, f.Tenant = p, h.framed(), h.kind, r.tenant
	f.Metadata, f.Payload, f.Items, f.Received = meta, payload, h.items, h.received
	f.segment, f.created = r.id, r.created
	return f, h, nil, nil
}

// body returns the frame's metadata ‖ payload in memory of its own. A length
// field alone never makes it allocate: a body longer than the read-ahead must
// be followed by a header that continues the log, or verify in a stream first.
func (r *Reader) body(off int64, p Position, h *frameHeader) (b []byte, bad, err error) {
	n := int(h.length)
	if n+frameHeaderLen <= readAhead {
		w, err := r.fill(off, n)
		if err != nil {
			return nil, nil, err
		}
		return append(make([]byte, 0, n), w[:n]...), nil, nil
	}
	if ok, err := r.continues(h.end()); err != nil || !ok {
		if err != nil {
			return nil, nil, err
		}
		var s scanner
		s.reset(r.file, r.j.log, r.id, r.id.offset(r.limit))
		if bad, err := s.verify(r.id.offset(p)); bad != nil || err != nil {
			return nil, bad, err
		}
	}
	b = make([]byte, n)
	have := 0
	if off >= r.off && off < r.off+int64(r.n) {
		have = copy(b, r.buf[off-r.off:r.n])
	}
	if _, err := r.file.ReadAt(b[have:], off+int64(have)); err != nil {
		return nil, nil, err
	}
	return b, nil, nil
}

// continues says whether p is the limit, or a header that states p is there.
func (r *Reader) continues(p Position) (bool, error) {
	if p == r.limit {
		return true, nil
	}
	if r.limit-p < frameHeaderLen {
		return false, nil
	}
	var b [frameHeaderLen]byte
	if _, err := r.file.ReadAt(b[:], r.id.offset(p)); err != nil {
		return false, err
	}
	h := decodeFrameHeader(b[:])
	return h.check(p, r.limit-p) == nil, nil
}

// fill returns at least need bytes at off, reading ahead up to the limit.
func (r *Reader) fill(off int64, need int) ([]byte, error) {
	if off >= r.off && off+int64(need) <= r.off+int64(r.n) {
		return r.buf[off-r.off : r.n], nil
	}
	if r.buf == nil {
		r.buf = make([]byte, readAhead)
	}
	kept := 0
	if off >= r.off && off < r.off+int64(r.n) {
		kept = copy(r.buf, r.buf[off-r.off:r.n])
	}
	r.off, r.n = off, kept
	want := int(min(int64(len(r.buf)), r.id.offset(r.limit)-off))
	n, err := r.file.ReadAt(r.buf[kept:want], off+int64(kept))
	r.n += n
	if r.n >= need {
		return r.buf[:r.n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// inside looks for what a position asked for lies in: a frame, such as a gap
// that was written over it, or damage. It returns how far the frame's end is,
// or 0 and where the damage begins: at pos when nothing before it is damaged.
func (r *Reader) inside() (skip uint64, start Position, err error) {
	s, err := r.scanner()
	if err != nil {
		return 0, r.pos, err
	}
	for off := int64(segmentHeaderLen); off < r.id.offset(r.pos); {
		p := r.id.position(off)
		bad, err := s.verify(off)
		if err != nil {
			return 0, r.pos, err
		}
		if bad == nil {
			off += int64(s.head.framed())
			if end := r.id.position(off); end > r.pos {
				r.sought = false
				return end - r.pos, r.pos, nil
			}
			continue
		}
		next, found, err := s.resync(off + frameHeaderLen)
		if err != nil {
			return 0, r.pos, err
		}
		if !found || r.id.position(next) > r.pos {
			return 0, p, nil
		}
		off = next
	}
	return 0, r.pos, nil
}

// scanner scans what the file has of the segment, which may have been cut.
func (r *Reader) scanner() (*scanner, error) {
	info, err := r.file.Stat()
	if err != nil {
		return nil, err
	}
	var s scanner
	s.reset(r.file, r.j.log, r.id, min(r.id.offset(r.limit), info.Size))
	return &s, nil
}

// damage describes the range from start on, with pos in it, that holds no
// frame.
func (r *Reader) damage(start Position, why error) (*DamageError, error) {
	r.j.Lock()
	if sg := r.j.ledger.find(r.pos); sg != nil && sg.id == r.id {
		r.limit = sg.end // it may have grown
	}
	r.j.Unlock()
	s, err := r.scanner()
	if err != nil {
		return nil, err
	}
	from := r.id.offset(start)
	end, found, err := s.resync(max(from+frameHeaderLen, r.id.offset(r.pos)+1))
	if err != nil || !found {
		end = r.id.offset(r.limit)
	}
	d := &DamageError{
		Directory: r.j.cfg.Directory, File: r.id.name(), Offset: from,
		Start: start, End: r.id.position(end), Err: why,
	}
	var had uint64               // items ever recorded in the segment, of lanes
	unsettled := map[Lane]bool{} // that may have lost something here
	holed := true
	r.j.Lock()
	if sg := r.j.ledger.find(r.pos); sg != nil && sg.id == r.id {
		for i := range sg.spans {
			ln := sg.spans[i].lane
			d.Lanes = append(d.Lanes, ln.Lane)
			if ln.horizon < d.End {
				unsettled[ln.Lane] = true
				had += sg.spans[i].items
			}
		}
		holed = sg.holed
		r.limit = sg.end
	}
	r.j.Unlock()
	if s, err = r.scanner(); err != nil {
		return nil, err
	}
	// What the segment had less what it still has is what this range had, if
	// it is the only one.
	var has uint64
	bad, last, tail, _, err := s.walk(func(h *frameHeader, tenant []byte) error {
		if h.kind.hasData() && unsettled[Lane{string(tenant), h.kind}] {
			has += uint64(h.items)
		}
		return nil
	})
	ranges := len(bad)
	if tail != tailNone || last < r.id.offset(r.limit) {
		ranges++
	}
	if err == nil && ranges == 1 && !holed && has <= had && had-has < unknownItems {
		d.Items, d.Known = had-has, true
	} else {
		d.Items, d.Stated = s.stated(from, end, r.j.horizon)
	}
	return d, nil
}

// horizon is the lane's, 0 when the log holds nothing of it.
func (j *Journal) horizon(l Lane) Position {
	j.Lock()
	defer j.Unlock()
	if ln := j.ledger.lanes[l]; ln != nil {
		return ln.horizon
	}
	return 0
}
