// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// Position counts the frame bytes ever put into the log before this byte.
type Position = uint64

// LogID names one life of a log: drawn anew whenever a directory is started
// fresh.
type LogID = [16]byte

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func sum(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

const (
	formatVersion = 1

	dirMode  = 0o700
	fileMode = 0o600

	// blockSize is the unit in which STATE is written and the first block of a
	// prepared segment is zeroed: no file system the log runs on has smaller
	// blocks, and none tears what lies inside one sector.
	blockSize = 4096
)

// Names within the log's directory.
const (
	lockName       = "LOCK"
	stateName      = "STATE"
	stateNewName   = "STATE.new"
	preparedName   = "next.wal.partial"
	segmentSuffix  = ".wal"
	deadLetterName = "dead-letter"
	quarantineName = "quarantine"
	letterSuffix   = ".frame"
	partialSuffix  = ".partial"
)

// segmentID is a segment's place in the order of the log and its file's name:
// 16 hex digits of base, a dash, 8 of ordinal.
type segmentID struct {
	base    Position
	ordinal uint32
}

func (id segmentID) name() string {
	return fmt.Sprintf("%016x-%08x%s", id.base, id.ordinal, segmentSuffix)
}

func (id segmentID) before(o segmentID) bool {
	return id.base < o.base || id.base == o.base && id.ordinal < o.ordinal
}

// parseSegmentName accepts exactly what name produces.
func parseSegmentName(name string) (segmentID, bool) {
	if len(name) != 16+1+8+len(segmentSuffix) || name[16] != '-' || name[25:] != segmentSuffix {
		return segmentID{}, false
	}
	base, err1 := strconv.ParseUint(name[:16], 16, 64)
	ordinal, err2 := strconv.ParseUint(name[17:25], 16, 32)
	id := segmentID{base, uint32(ordinal)}
	return id, err1 == nil && err2 == nil && id.name() == name
}

// epoch is folded into every checksum of a segment's frames, so that a frame
// of another file or another life never verifies. It follows from STATE and
// the file's name alone: a damaged header does not cost the frames.
type epoch [8]byte

func epochOf(log LogID, id segmentID) epoch {
	var b [16 + 8 + 4]byte
	copy(b[:], log[:])
	le.PutUint64(b[16:], id.base)
	le.PutUint32(b[24:], id.ordinal)
	h := sha256.Sum256(b[:])
	return epoch(h[:8])
}

// Segment header, 64 bytes, little-endian:
//
//	off size field
//	  0    8 magic "WEIRWAL\x01"
//	  8    2 format version = 1
//	 10    2 header length = 64
//	 12    4 flags; bit 0: this is a dead letter's header, not a segment's
//	 16   16 log id
//	 32    8 base position
//	 40    4 ordinal
//	 44    8 created, unix ns (information only)
//	 52    8 zero
//	 60    4 CRC32C of bytes 0..60
const (
	segmentHeaderLen = 64
	segmentMagic     = "WEIRWAL\x01"

	flagDeadLetter = 1 << 0
)

type segmentHeader struct {
	flags   uint32
	log     LogID
	id      segmentID
	created int64
}

func (h *segmentHeader) encode() []byte {
	b := make([]byte, segmentHeaderLen)
	copy(b, segmentMagic)
	le.PutUint16(b[8:], formatVersion)
	le.PutUint16(b[10:], segmentHeaderLen)
	le.PutUint32(b[12:], h.flags)
	copy(b[16:], h.log[:])
	le.PutUint64(b[32:], h.id.base)
	le.PutUint32(b[40:], h.id.ordinal)
	le.PutUint64(b[44:], uint64(h.created))
	le.PutUint32(b[60:], sum(0, b[:60]))
	return b
}

// errUnknownVersion is a format this program cannot read although it is whole.
var errUnknownVersion = errors.New("written by a newer version of weir")

// decodeSegmentHeader reads b, of at least 64 bytes. known is the set of flags
// allowed. An error that is errUnknownVersion is about a whole header, any
// other is damage.
func decodeSegmentHeader(b []byte, known uint32) (segmentHeader, error) {
	b = b[:segmentHeaderLen]
	if string(b[:8]) != segmentMagic {
		return segmentHeader{}, fmt.Errorf("header magic is %x, not %x", b[:8], segmentMagic)
	}
	if got, want := sum(0, b[:60]), le.Uint32(b[60:]); got != want {
		return segmentHeader{}, fmt.Errorf("header checksum is %08x, stated %08x", got, want)
	}
	h := segmentHeader{
		flags:   le.Uint32(b[12:]),
		log:     LogID(b[16:32]),
		id:      segmentID{le.Uint64(b[32:]), le.Uint32(b[40:])},
		created: int64(le.Uint64(b[44:])),
	}
	if v, n := le.Uint16(b[8:]), le.Uint16(b[10:]); v != formatVersion || n != segmentHeaderLen || h.flags&^known != 0 {
		return h, fmt.Errorf("%w: segment format %d, header of %d bytes, flags %#x; this one knows format %d",
			errUnknownVersion, v, n, h.flags, formatVersion)
	}
	return h, nil
}

// offset is where in its segment's file a position lies.
func (id segmentID) offset(p Position) int64 { return int64(p-id.base) + segmentHeaderLen }

// position is the inverse of offset.
func (id segmentID) position(off int64) Position { return id.base + uint64(off-segmentHeaderLen) }
