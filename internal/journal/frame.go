// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// Kind is what a frame holds.
type Kind uint8

// The kinds of frames with data. Their values are on disk.
const (
	KindLogs     Kind = 1
	KindTraces   Kind = 2
	KindMetrics  Kind = 3
	KindProfiles Kind = 4

	kindGap     Kind = 126 // replaces a damaged range
	kindSummary Kind = 127 // closes a segment's file; has no position of its own
)

// kinds is how many kinds have data; kind k is at index k-1 of arrays by kind.
const kinds = 4

// String is the signal's name: logs, traces, metrics, profiles.
func (k Kind) String() string {
	switch k {
	case KindLogs:
		return "logs"
	case KindTraces:
		return "traces"
	case KindMetrics:
		return "metrics"
	case KindProfiles:
		return "profiles"
	case kindGap:
		return "gap"
	case kindSummary:
		return "summary"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

func (k Kind) hasData() bool { return k >= KindLogs && k <= KindProfiles }

// Lane is what settles on its own: one tenant's frames of one signal.
type Lane struct {
	Tenant string
	Kind   Kind
}

// String is how people are told of a lane: "logs", or "logs of acme".
func (l Lane) String() string {
	if l.Tenant == "" {
		return l.Kind.String()
	}
	return l.Kind.String() + " of " + l.Tenant
}

// Frame header, 40 bytes, little-endian; metadata and payload follow:
//
//	off size field
//	  0    4 CRC32C over payload ‖ metadata ‖ header[4..40] ‖ epoch
//	  4    4 length of metadata + payload
//	  8    8 position of the frame's first byte
//	 16    8 received, unix ns
//	 24    4 items
//	 28    4 group offset: this position − the first position of its group
//	 32    1 kind: 1 logs, 2 traces, 3 metrics, 4 profiles, 126 gap, 127 summary
//	 33    1 flags = 0
//	 34    2 metadata length
//	 36    4 zero
//
// The payload comes first in the checksum so that it can be summed before the
// position is known. A gap's checksum covers header[4..40] ‖ epoch only.
const frameHeaderLen = 40

const (
	// noGroup is the group offset of a frame that proves nothing: gap, summary.
	noGroup = 0xFFFFFFFF
	// unknownItems is a gap's item count when nobody can tell it.
	unknownItems = 0xFFFFFFFF
)

// FramedLen is the length of a frame with so many bytes of metadata and of
// payload: the one figure that is reserved, accounted and rebuilt.
func FramedLen(metadata, payload int) uint64 {
	return frameHeaderLen + uint64(metadata) + uint64(payload)
}

type frameHeader struct {
	crc      uint32
	length   uint32
	position Position
	received int64
	items    uint32
	group    uint32
	kind     Kind
	flags    uint8
	metadata uint16
	zero     uint32
}

func (h *frameHeader) framed() uint64 { return frameHeaderLen + uint64(h.length) }

// end is the position behind the frame.
func (h *frameHeader) end() Position { return h.position + h.framed() }

func (h *frameHeader) payload() uint32 { return h.length - uint32(h.metadata) }

// credible reports whether the number of items can be right: every item takes
// a byte at least.
func (h *frameHeader) credible() bool { return h.items <= h.payload() }

// put writes h into b, whose first 40 bytes become the header.
func (h *frameHeader) put(b []byte) {
	b = b[:frameHeaderLen]
	le.PutUint32(b[0:], h.crc)
	le.PutUint32(b[4:], h.length)
	le.PutUint64(b[8:], h.position)
	le.PutUint64(b[16:], uint64(h.received))
	le.PutUint32(b[24:], h.items)
	le.PutUint32(b[28:], h.group)
	b[32] = byte(h.kind)
	b[33] = h.flags
	le.PutUint16(b[34:], h.metadata)
	le.PutUint32(b[36:], h.zero)
}

// seal finishes the checksum of the header in b: body is the checksum of
// payload ‖ metadata, 0 for a gap.
func seal(b []byte, body uint32, e epoch) {
	le.PutUint32(b, sum(sum(body, b[4:frameHeaderLen]), e[:]))
}

// get is the inverse of put.
func (h *frameHeader) get(b []byte) {
	b = b[:frameHeaderLen]
	h.crc = le.Uint32(b[0:])
	h.length = le.Uint32(b[4:])
	h.position = le.Uint64(b[8:])
	h.received = int64(le.Uint64(b[16:]))
	h.items = le.Uint32(b[24:])
	h.group = le.Uint32(b[28:])
	h.kind = Kind(b[32])
	h.flags = b[33]
	h.metadata = le.Uint16(b[34:])
	h.zero = le.Uint32(b[36:])
}

func decodeFrameHeader(b []byte) (h frameHeader) {
	h.get(b)
	return h
}

// The ways a header can be wrong before its checksum is looked at.
var (
	errFramePosition = errors.New("header states another position")
	errFrameLength   = errors.New("stated length runs past the end")
	errFrameKind     = errors.New("unknown kind, flags or metadata length")
	errFrameChecksum = errors.New("checksum does not match")
)

// check says whether a header read at position p with room bytes from its
// first byte to the end of what may be read can be one at all.
func (h *frameHeader) check(p Position, room uint64) error {
	switch {
	case h.position != p:
		return errFramePosition
	case h.framed() > room:
		return errFrameLength
	case !h.kind.hasData() && h.kind != kindGap && h.kind != kindSummary,
		h.flags != 0, h.zero != 0, uint32(h.metadata) > h.length:
		return errFrameKind
	}
	return nil
}

// gapHeader is the whole of a gap frame that matters: the rest of its range
// keeps whatever bytes it had.
func gapHeader(start, end Position, items uint32, e epoch) []byte {
	h := frameHeader{
		length: uint32(end - start - frameHeaderLen), position: start, items: items, group: noGroup, kind: kindGap,
	}
	b := make([]byte, frameHeaderLen)
	h.put(b)
	seal(b, 0, e)
	return b
}

// Frame is what is asked to be appended. It must not be changed, and its
// buffers not be reused, before its ticket is done.
type Frame struct {
	Kind     Kind
	Tenant   string
	Items    uint32
	Received int64    // unix ns
	Metadata []byte   // from EncodeMetadata, whose tenant is Tenant
	Payload  [][]byte // the pieces of the payload as they arrived

	body   uint32 // checksum of payload ‖ metadata
	ticket Ticket // part of the frame: a refused frame costs no memory besides
}

// Sum checksums the frame's body and readies its ticket. Call it before taking
// the journal lock.
func (f *Frame) Sum() {
	var crc uint32
	n := 0
	for _, p := range f.Payload {
		crc = sum(crc, p)
		n += len(p)
	}
	f.body = sum(crc, f.Metadata)
	f.ticket = Ticket{frame: f, framed: FramedLen(len(f.Metadata), n)}
}

// FramedLen is what the frame takes in the log, in bytes.
func (f *Frame) FramedLen() uint64 {
	if f.ticket.framed != 0 {
		return f.ticket.framed
	}
	n := 0
	for _, p := range f.Payload {
		n += len(p)
	}
	return FramedLen(len(f.Metadata), n)
}
