// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"

	"github.com/otelweir/weir/internal/fsys"
)

// Summary: the frame (kind 127) at the end of a closed segment's file, behind
// its frames and outside positions and figures. Its header states the
// segment's end as position and noGroup as group offset; metadata is empty.
// Payload, little-endian:
//
//	u64 frames (without gaps), u64 bytes (with gaps)
//	i64 first, i64 last received, unix ns
//	u32 lanes, per lane:
//	    u8 length, tenant, u8 kind
//	    u64 position of the first frame, u64 of the last
//	    u64 frames, u64 items
//	u32 length of this whole frame, u32 zero, "WEIRSUM\x01"
//
// The last 16 bytes let it be found from the file's tail.
const (
	summaryFixed   = 8 + 8 + 8 + 8 + 4
	summaryLane    = 1 + 1 + 8 + 8 + 8 + 8
	summaryTrailer = 16
	summaryMagic   = "WEIRSUM\x01"
)

// encodeSummary is the whole frame.
func encodeSummary(s *segment, e epoch) []byte {
	n := summaryFixed + summaryTrailer
	for i := range s.spans {
		n += summaryLane + len(s.spans[i].lane.Tenant)
	}
	b := make([]byte, frameHeaderLen, frameHeaderLen+n)
	b = le.AppendUint64(b, s.frames)
	b = le.AppendUint64(b, s.bytes())
	b = le.AppendUint64(b, uint64(s.firstReceived))
	b = le.AppendUint64(b, uint64(s.lastReceived))
	b = le.AppendUint32(b, uint32(len(s.spans)))
	for i := range s.spans {
		sp := &s.spans[i]
		b = append(append(b, byte(len(sp.lane.Tenant))), sp.lane.Tenant...)
		b = append(b, byte(sp.lane.Kind))
		b = le.AppendUint64(b, sp.first)
		b = le.AppendUint64(b, sp.last)
		b = le.AppendUint64(b, sp.frames)
		b = le.AppendUint64(b, sp.items)
	}
	b = le.AppendUint32(b, uint32(frameHeaderLen+n))
	b = le.AppendUint32(b, 0)
	b = append(b, summaryMagic...)
	h := frameHeader{length: uint32(n), position: s.end, group: noGroup, kind: kindSummary}
	h.put(b)
	seal(b, sum(0, b[frameHeaderLen:]), e)
	return b
}

// summary is a decoded one.
type summary struct {
	end           Position
	frames, bytes uint64
	first, last   int64
	lanes         []laneSummary
}

type laneSummary struct {
	tenant      string
	kind        Kind
	first, last Position
	frames      uint64
	items       uint64
}

var errSummary = errors.New("no valid summary")

// decodeSummary reads a whole frame. The summary is of a segment with that
// epoch; whose end and bytes they are is the caller's to compare.
func decodeSummary(b []byte, e epoch) (*summary, error) {
	if len(b) < frameHeaderLen+summaryFixed+summaryTrailer {
		return nil, errSummary
	}
	h := decodeFrameHeader(b)
	if h.kind != kindSummary || h.group != noGroup || h.metadata != 0 || h.framed() != uint64(len(b)) ||
		h.check(h.position, uint64(len(b))) != nil ||
		sum(sum(sum(0, b[frameHeaderLen:]), b[4:frameHeaderLen]), e[:]) != h.crc {
		return nil, errSummary
	}
	p, trailer := b[frameHeaderLen:len(b)-summaryTrailer], b[len(b)-summaryTrailer:]
	if n, ok := summaryLength(trailer); !ok || n != uint64(len(b)) {
		return nil, errSummary
	}
	s := &summary{
		end: h.position, frames: le.Uint64(p), bytes: le.Uint64(p[8:]),
		first: int64(le.Uint64(p[16:])), last: int64(le.Uint64(p[24:])),
	}
	lanes := int(le.Uint32(p[32:]))
	p = p[summaryFixed:]
	for range lanes {
		if len(p) < 1 || len(p) < summaryLane+int(p[0]) {
			return nil, errSummary
		}
		tenant, rest := string(p[1:1+p[0]]), p[1+p[0]:]
		l := laneSummary{
			tenant: tenant, kind: Kind(rest[0]), first: le.Uint64(rest[1:]), last: le.Uint64(rest[9:]),
			frames: le.Uint64(rest[17:]), items: le.Uint64(rest[25:]),
		}
		if !l.kind.hasData() || len(tenant) > maxTenant || l.frames == 0 || l.first > l.last || l.last >= s.end {
			return nil, errSummary
		}
		s.lanes = append(s.lanes, l)
		p = rest[33:]
	}
	if len(p) != 0 {
		return nil, errSummary
	}
	return s, nil
}

// summaryLength is the length of the summary frame that ends with the given
// last 16 bytes of a file.
func summaryLength(trailer []byte) (uint64, bool) {
	return uint64(le.Uint32(trailer)), le.Uint32(trailer[4:]) == 0 && string(trailer[8:]) == summaryMagic
}

// closedFile is a segment that was just closed, with the descriptor it was
// written through.
type closedFile struct {
	file    fsys.File
	segment *segment
}

// summarise finishes a closed segment's file, beside everything else: nobody
// writes to it any more.
func (j *Journal) summarise(c *closedFile) {
	j.tails.Lock()
	defer j.tails.Unlock()
	j.writeSummary(c)
	j.measure(c.file, c.segment)
	_ = c.file.Close() // what had to be durable is, or was said not to be
}

// writeSummary writes a closed segment's summary behind its end and cuts off
// the rest of the file. Nothing depends on its success: a segment without a
// summary is scanned.
func (j *Journal) writeSummary(c *closedFile) {
	j.Lock()
	s := *c.segment
	// Charged bytes behind the end mean a failed fdatasync or truncation: then
	// nothing this descriptor says means anything any more.
	skip := s.extra > 0 || s.holed || s.state == segmentGone
	j.Unlock()
	if skip {
		return
	}
	b := encodeSummary(&s, epochOf(j.log, s.id))
	off := s.id.offset(s.end)
	_, err := c.file.Pwritev([][]byte{b}, off)
	if err == nil {
		err = c.file.Truncate(off + int64(len(b)))
	}
	if err == nil {
		err = c.file.Datasync()
	}
	if err != nil {
		j.warn("No summary of "+s.id.name()+": it will be scanned at the next start", err)
	}
}
