// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"

	"github.com/otelweir/weir/internal/fsys"
)

// scanBuffer is how much of a file is read at once; it is what a scan needs of
// memory, however long the log and its frames are. What was read is summed
// while the processor's cache still has it.
const scanBuffer = 256 << 10

// scanner walks the frames of one segment's file, streaming. A frame that does
// not verify is no error: errors are the file's.
type scanner struct {
	file  fsys.File
	id    segmentID
	epoch epoch
	end   int64 // bytes at or past it are not looked at

	buf []byte
	off int64 // file offset of buf[0]
	n   int   // valid bytes of buf
	// rest is what a checksum covers behind the payload: metadata, header,
	// epoch of the frame being verified.
	rest   [1<<16 - 1 + frameHeaderLen - 4 + 8]byte
	head   frameHeader // of the frame verified last
	tenant []byte      // its tenant; in rest
}

// reset points the scanner at another file and keeps its buffer.
func (s *scanner) reset(f fsys.File, log LogID, id segmentID, end int64) {
	if s.buf == nil {
		s.buf = make([]byte, scanBuffer)
	}
	s.file, s.id, s.epoch, s.end = f, id, epochOf(log, id), end
	s.off, s.n = 0, 0
}

// window returns the bytes at off that are in memory, at least min(need, end −
// off) of them, reading what is missing. need is at most the buffer's size.
func (s *scanner) window(off int64, need int) ([]byte, error) {
	need = int(min(int64(need), s.end-off))
	if off < s.off || off+int64(need) > s.off+int64(s.n) {
		var err error
		s.off = off
		s.n, err = s.file.ReadAt(s.buf[:min(int64(len(s.buf)), s.end-off)], off)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s at offset %d: %w", s.id.name(), off, err)
		}
		if s.n < need {
			return nil, fmt.Errorf("read %s at offset %d: %w", s.id.name(), off+int64(s.n), io.ErrUnexpectedEOF)
		}
	}
	return s.buf[off-s.off : s.n], nil
}

// verify reads the frame at off and checks it to its last byte; bad is why it
// is none. Afterwards s.head is its header and s.tenant its tenant.
func (s *scanner) verify(off int64) (bad, err error) {
	if s.end-off < frameHeaderLen {
		return errFrameLength, nil
	}
	w, err := s.window(off, frameHeaderLen)
	if err != nil {
		return nil, err
	}
	h := &s.head
	h.get(w)
	if bad := h.check(s.id.position(off), uint64(s.end-off)); bad != nil {
		return bad, nil
	}
	// What follows the payload in the checksum is gathered in s.rest.
	meta := int(h.metadata)
	if h.kind == kindGap {
		meta = 0
	}
	rest := s.rest[:meta+frameHeaderLen-4+len(s.epoch)]
	copy(rest[meta:], w[4:frameHeaderLen])
	copy(rest[meta+frameHeaderLen-4:], s.epoch[:])
	var crc uint32
	switch total := h.framed(); {
	case h.kind == kindGap:
	case total <= uint64(len(w)): // all of it is in memory
		copy(rest, w[frameHeaderLen:frameHeaderLen+meta])
		crc = sum(0, w[frameHeaderLen+meta:total])
	default:
		if crc, err = s.body(off, rest[:meta]); err != nil {
			return nil, err
		}
	}
	if sum(crc, rest) != h.crc {
		return errFrameChecksum, nil
	}
	if h.kind.hasData() {
		var ok bool
		if s.tenant, ok = tenantOf(rest[:meta]); !ok {
			return errMetadata, nil
		}
	}
	return nil, nil
}

// body reads what follows the header of the frame at off: it fills meta and
// returns the checksum of the payload.
func (s *scanner) body(off int64, meta []byte) (crc uint32, err error) {
	w, err := s.window(off, frameHeaderLen+len(meta))
	if err != nil {
		return 0, err
	}
	head := frameHeaderLen + copy(meta, w[frameHeaderLen:])
	off += int64(head)
	for left := int64(s.head.payload()); left > 0; {
		w, err := s.window(off, 1)
		if err != nil {
			return 0, err
		}
		w = w[:min(int64(len(w)), left)]
		crc = sum(crc, w)
		off += int64(len(w))
		left -= int64(len(w))
	}
	return crc, nil
}

// nonZero returns the offset of the first byte at or after off that is not
// zero, or end. Holes are skipped.
func (s *scanner) nonZero(off int64) (int64, error) {
	for off < s.end {
		data, err := s.file.SeekData(off)
		if errors.Is(err, io.EOF) {
			return s.end, nil
		}
		if err != nil {
			return 0, fmt.Errorf("look for data in %s: %w", s.id.name(), err)
		}
		off = max(off, data)
		// One read's worth, then ask again: what follows may be a hole.
		for stop := min(off+scanBuffer, s.end); off < stop; {
			w, err := s.window(off, 1)
			if err != nil {
				return 0, err
			}
			for i, c := range w {
				if c != 0 {
					return off + int64(i), nil
				}
			}
			off += int64(len(w))
		}
	}
	return s.end, nil
}

// lastNonZero returns the offset behind the last byte at or after off that is
// not zero, or off.
func (s *scanner) lastNonZero(off int64) (int64, error) {
	for {
		data, err := s.nonZero(off)
		if err != nil || data == s.end {
			return off, err
		}
		w, err := s.window(data, 1)
		if err != nil {
			return 0, err
		}
		n := len(w)
		for w[n-1] == 0 { // it ends at the latest with the byte found
			n--
		}
		off = data + int64(n)
	}
}

// resync returns the offset of the first frame at or after off that verifies
// in full: its header states exactly that offset's position.
func (s *scanner) resync(off int64) (next int64, found bool, err error) {
	for s.end-off >= frameHeaderLen {
		w, err := s.window(off, frameHeaderLen)
		if err != nil {
			return 0, false, err
		}
		p := s.id.position(off)
		i, last := 0, len(w)-frameHeaderLen
		for i <= last && le.Uint64(w[i+8:]) != p+uint64(i) {
			i++
		}
		off += int64(i)
		if i > last {
			continue
		}
		bad, err := s.verify(off)
		if err != nil {
			return 0, false, err
		}
		if bad == nil && s.head.kind != kindSummary {
			return off, true, nil
		}
		off++
	}
	return 0, false, nil
}

// badRange is a range of file offsets between frames that holds none.
type badRange struct {
	start, end int64
	why        error
}

// tailKind is what follows the last frame of a scan.
type tailKind uint8

const (
	tailNone    tailKind = iota // the end itself
	tailZero                    // zeros to the end
	tailSummary                 // a verifying summary
	tailBad                     // anything else
)

// walk calls fn for every frame in order. It returns the ranges that hold no
// frame but have one behind them, where the last frame ends, and what follows.
func (s *scanner) walk(fn func(*frameHeader, []byte) error) (bad []badRange, last int64, tail tailKind, why, err error) {
	h := &s.head
	off := int64(segmentHeaderLen)
	for off < s.end {
		wrong, err := s.verify(off)
		if err != nil {
			return nil, 0, 0, nil, err
		}
		if wrong == nil && h.kind == kindSummary {
			next, found, err := s.resync(off + int64(h.framed()))
			if err != nil {
				return nil, 0, 0, nil, err
			}
			if !found {
				return bad, off, tailSummary, nil, nil
			}
			bad = append(bad, badRange{off, next, errors.New("a summary, with frames behind it")})
			off = next
			continue
		}
		if wrong == nil {
			if err := fn(h, s.tenant); err != nil {
				return nil, 0, 0, nil, err
			}
			off += int64(h.framed())
			continue
		}
		first, err := s.nonZero(off)
		if err != nil {
			return nil, 0, 0, nil, err
		}
		if first == s.end {
			return bad, off, tailZero, nil, nil
		}
		// Whatever was damaged was a frame, of no less than a header.
		next, found, err := s.resync(max(off+frameHeaderLen, first-frameHeaderLen))
		if err != nil {
			return nil, 0, 0, nil, err
		}
		if !found {
			return bad, off, tailBad, wrong, nil
		}
		bad = append(bad, badRange{off, next, wrong})
		off = next
	}
	return bad, off, tailNone, nil, nil
}

// headers calls fn for every frame from off to end as their headers have it:
// they are believed as long as they chain, and no checksum is looked at. It
// reports whether they reach end exactly. named is false where the metadata
// cannot be read.
func (s *scanner) headers(off, end int64, fn func(h *frameHeader, tenant []byte, named bool)) (whole bool, err error) {
	var h frameHeader
	for off < end {
		if s.end-off < frameHeaderLen {
			return false, nil
		}
		w, err := s.window(off, frameHeaderLen+tenantPrefix)
		if err != nil {
			return false, err
		}
		h = decodeFrameHeader(w)
		if h.check(s.id.position(off), uint64(end-off)) != nil {
			return false, nil
		}
		meta := w[frameHeaderLen:]
		tenant, named := tenantOf(meta[:min(len(meta), int(h.metadata))])
		fn(&h, tenant, named)
		off += int64(h.framed())
	}
	return true, nil
}

// stated is how many items the frames of a damaged range say they had, without
// those that their lane's horizon has passed. ok is false when one of the
// headers cannot be right; where all can be, what damaged the frames may still
// have changed a count.
func (s *scanner) stated(start, end int64, horizon func(Lane) Position) (items uint64, ok bool) {
	sound := true
	whole, err := s.headers(start, end, func(h *frameHeader, tenant []byte, named bool) {
		switch {
		case !h.kind.hasData() || !h.credible():
			sound = false
		case !named || h.position >= horizon(Lane{string(tenant), h.kind}):
			items += uint64(h.items)
		}
	})
	return items, sound && whole && err == nil && items < unknownItems
}
