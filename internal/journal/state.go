// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/otelweir/weir/internal/fsys"
)

// STATE begins with a header of 64 bytes, little-endian:
//
//	off size field
//	  0    8 magic "WEIRSTA\x01"
//	  8    2 format version = 1
//	 10    2 header length = 64
//	 12    4 flags = 0
//	 16   16 log id
//	 32    4 slot size, a multiple of 4096
//	 36    4 ranges a slot has room for
//	 40    4 tenants a slot has room for
//	 44   16 zero
//	 60    4 CRC32C of bytes 0..60
//
// Two slots follow, at 4096 and at 4096 + slot size.
const (
	stateMagic     = "WEIRSTA\x01"
	stateHeaderLen = 64
)

// geometry is what a STATE has room for.
type geometry struct {
	slot, ranges, tenants uint32
}

// spareRanges is how many ranges beyond max_segments STATE has room for; the
// last of them are for plans only that leave no further range behind.
const (
	spareRanges = 64
	planReserve = 16
)

func geometryFor(ranges, tenants int) geometry {
	n := slotFixed + ranges*rangeLen + tenants*(1+maxTenant+8*kinds)
	return geometry{slot: uint32((n + blockSize - 1) / blockSize * blockSize), ranges: uint32(ranges), tenants: uint32(tenants)}
}

func (g geometry) offset(slot int) int64 { return blockSize + int64(slot)*int64(g.slot) }

func (g geometry) size() int64 { return g.offset(2) }

func (g geometry) holds(o geometry) bool { return g.ranges >= o.ranges && g.tenants >= o.tenants }

func encodeStateHeader(log LogID, g geometry) []byte {
	b := make([]byte, stateHeaderLen)
	copy(b, stateMagic)
	le.PutUint16(b[8:], formatVersion)
	le.PutUint16(b[10:], stateHeaderLen)
	copy(b[16:], log[:])
	le.PutUint32(b[32:], g.slot)
	le.PutUint32(b[36:], g.ranges)
	le.PutUint32(b[40:], g.tenants)
	le.PutUint32(b[60:], sum(0, b[:60]))
	return b
}

func decodeStateHeader(b []byte) (log LogID, g geometry, err error) {
	b = b[:stateHeaderLen]
	if string(b[:8]) != stateMagic {
		return log, g, fmt.Errorf("magic is %x, not %x", b[:8], stateMagic)
	}
	if got, want := sum(0, b[:60]), le.Uint32(b[60:]); got != want {
		return log, g, fmt.Errorf("header checksum is %08x, stated %08x", got, want)
	}
	if v, n, flags := le.Uint16(b[8:]), le.Uint16(b[10:]), le.Uint32(b[12:]); v != formatVersion || n != stateHeaderLen || flags != 0 {
		return log, g, fmt.Errorf("%w: STATE format %d, header of %d bytes, flags %#x; this one knows format %d",
			errUnknownVersion, v, n, flags, formatVersion)
	}
	g = geometry{slot: le.Uint32(b[32:]), ranges: le.Uint32(b[36:]), tenants: le.Uint32(b[40:])}
	if g.slot == 0 || g.slot%blockSize != 0 || g.ranges > 1<<24 || g.tenants > 1<<24 ||
		uint64(g.slot) < uint64(geometryFor(int(g.ranges), int(g.tenants)).slot) {
		return log, g, fmt.Errorf("slots of %d bytes do not hold %d ranges and %d tenants", g.slot, g.ranges, g.tenants)
	}
	return LogID(b[16:32]), g, nil
}

// Slot, little-endian:
//
//	off size field
//	  0    4 used length
//	  4    4 CRC32C of [8, used)
//	  8    8 generation
//	 16    4 flags; bit 0: a barrier was ever recorded
//	 20    4 next ordinal
//	 24    8 durable position
//	 32    8 low-water: the base of the first segment
//	 40    4 reclaimed ranges
//	 44    4 planned ranges
//	 48    4 tenants
//	 52      ranges, reclaimed ones first:
//	           u32 first, u32 last ordinal, u64 base, u64 end, u32 flags (bit 0: uncertain)
//	         tenants: u8 length, name, u64 horizon of logs, traces, metrics, profiles
const (
	slotFixed = 52
	rangeLen  = 4 + 4 + 8 + 8 + 4

	flagBarrierSeen = 1 << 0
	flagUncertain   = 1 << 0
)

// ordinalRange is a run of segments that are reclaimed, or one that is planned
// to be: a planned segment keeps its own range, because where it ends must
// stay known when its neighbour is gone.
type ordinalRange struct {
	first, last uint32
	base, end   Position
	uncertain   bool
}

func (r ordinalRange) covers(id segmentID) bool {
	return id.ordinal >= r.first && id.ordinal <= r.last && id.base >= r.base && id.base <= r.end
}

type tenantHorizons struct {
	name     string
	horizons [kinds]Position
}

// stateRecord is what one commit says.
type stateRecord struct {
	barrierSeen        bool
	nextOrdinal        uint32
	durable, lowWater  Position
	reclaimed, planned []ordinalRange
	tenants            []tenantHorizons
}

// encode is the slot's content up to its used length.
func (r *stateRecord) encode(generation uint64) []byte {
	n := slotFixed + (len(r.reclaimed)+len(r.planned))*rangeLen
	for i := range r.tenants {
		n += 1 + len(r.tenants[i].name) + 8*kinds
	}
	b := make([]byte, slotFixed, n)
	le.PutUint64(b[8:], generation)
	if r.barrierSeen {
		le.PutUint32(b[16:], flagBarrierSeen)
	}
	le.PutUint32(b[20:], r.nextOrdinal)
	le.PutUint64(b[24:], r.durable)
	le.PutUint64(b[32:], r.lowWater)
	le.PutUint32(b[40:], uint32(len(r.reclaimed)))
	le.PutUint32(b[44:], uint32(len(r.planned)))
	le.PutUint32(b[48:], uint32(len(r.tenants)))
	for _, ranges := range [...][]ordinalRange{r.reclaimed, r.planned} {
		for _, g := range ranges {
			b = le.AppendUint32(b, g.first)
			b = le.AppendUint32(b, g.last)
			b = le.AppendUint64(b, g.base)
			b = le.AppendUint64(b, g.end)
			flags := uint32(0)
			if g.uncertain {
				flags = flagUncertain
			}
			b = le.AppendUint32(b, flags)
		}
	}
	for i := range r.tenants {
		b = append(append(b, byte(len(r.tenants[i].name))), r.tenants[i].name...)
		for _, h := range r.tenants[i].horizons {
			b = le.AppendUint64(b, h)
		}
	}
	le.PutUint32(b, uint32(len(b)))
	le.PutUint32(b[4:], sum(0, b[8:]))
	return b
}

var errSlot = errors.New("slot does not verify")

// decodeSlot reads a slot's used bytes.
func decodeSlot(b []byte, g geometry) (r stateRecord, generation uint64, err error) {
	if len(b) < slotFixed || uint64(le.Uint32(b)) != uint64(len(b)) || sum(0, b[8:]) != le.Uint32(b[4:]) {
		return r, 0, errSlot
	}
	generation = le.Uint64(b[8:])
	flags := le.Uint32(b[16:])
	if flags&^flagBarrierSeen != 0 {
		return r, 0, fmt.Errorf("%w: slot flags %#x", errUnknownVersion, flags)
	}
	r.barrierSeen = flags&flagBarrierSeen != 0
	r.nextOrdinal = le.Uint32(b[20:])
	r.durable, r.lowWater = le.Uint64(b[24:]), le.Uint64(b[32:])
	reclaimed, planned, tenants := uint64(le.Uint32(b[40:])), uint64(le.Uint32(b[44:])), uint64(le.Uint32(b[48:]))
	if reclaimed+planned > uint64(g.ranges) || tenants > uint64(g.tenants) ||
		uint64(len(b)-slotFixed) < (reclaimed+planned)*rangeLen+tenants*(1+8*kinds) {
		return r, 0, errSlot
	}
	b = b[slotFixed:]
	ranges := make([]ordinalRange, 0, reclaimed+planned)
	for range reclaimed + planned {
		o := ordinalRange{
			first: le.Uint32(b), last: le.Uint32(b[4:]), base: le.Uint64(b[8:]), end: le.Uint64(b[16:]),
			uncertain: le.Uint32(b[24:])&flagUncertain != 0,
		}
		if o.first > o.last || o.base > o.end || le.Uint32(b[24:])&^flagUncertain != 0 {
			return r, 0, errSlot
		}
		ranges = append(ranges, o)
		b = b[rangeLen:]
	}
	r.reclaimed, r.planned = ranges[:reclaimed:reclaimed], ranges[reclaimed:]
	for range tenants {
		if len(b) < 1 || int(b[0]) > maxTenant || len(b) < 1+int(b[0])+8*kinds {
			return r, 0, errSlot
		}
		t := tenantHorizons{name: string(b[1 : 1+b[0]])}
		b = b[1+b[0]:]
		for i := range t.horizons {
			t.horizons[i] = le.Uint64(b[8*i:])
			if t.horizons[i] > r.durable {
				return r, 0, errSlot
			}
		}
		r.tenants = append(r.tenants, t)
		b = b[8*kinds:]
	}
	if len(b) != 0 {
		return r, 0, errSlot
	}
	return r, generation, nil
}

// stateFile is STATE, open. Its one user at a time is recovery, then the
// maintenance goroutine, then Close.
type stateFile struct {
	fs   fsys.FS
	name string
	file fsys.File
	geometry
	generation uint64 // the highest ever written
	holder     int    // the slot of the last commit known durable
	unproved   []byte // what holder was read with at open: it may be in the page cache only
	last       []byte // that commit's content behind the generation; nil = write in any case
}

// openState reads STATE. The error wraps fs.ErrNotExist when there is none.
func openState(f fsys.FS, name string) (*stateFile, LogID, stateRecord, error) {
	var log LogID
	var r stateRecord
	file, err := f.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, log, r, err
	}
	s := &stateFile{fs: f, name: name, file: file}
	if log, r, err = s.read(); err != nil {
		return nil, log, r, errors.Join(err, file.Close())
	}
	return s, log, r, nil
}

func (s *stateFile) read() (log LogID, r stateRecord, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return log, r, err
	}
	head := make([]byte, stateHeaderLen)
	if _, err := s.file.ReadAt(head, 0); err != nil {
		return log, r, fmt.Errorf("%s: file of %d bytes: %w", s.name, info.Size, err)
	}
	if log, s.geometry, err = decodeStateHeader(head); err != nil {
		return log, r, fmt.Errorf("%s: %w", s.name, err)
	}
	found := false
	var why [2]error
	for slot := range 2 {
		b, err := s.readSlot(slot, info.Size)
		if err != nil {
			why[slot] = err
			continue
		}
		one, generation, err := decodeSlot(b, s.geometry)
		if errors.Is(err, errUnknownVersion) {
			return log, r, fmt.Errorf("%s: %w", s.name, err)
		}
		if err != nil {
			why[slot] = err
			continue
		}
		if !found || generation > s.generation {
			found, r, s.generation, s.holder, s.unproved = true, one, generation, slot, b
		}
	}
	if !found {
		return log, r, fmt.Errorf("%s: neither slot can be read: slot 0: %w; slot 1: %w", s.name, why[0], why[1])
	}
	return log, r, nil
}

// readSlot reads a slot's used bytes and no others.
func (s *stateFile) readSlot(slot int, size int64) ([]byte, error) {
	off := s.offset(slot)
	head := make([]byte, slotFixed)
	if _, err := s.file.ReadAt(head, off); err != nil {
		return nil, err
	}
	used := int64(le.Uint32(head))
	if used < slotFixed || used > int64(s.slot) || off+used > size {
		return nil, errSlot
	}
	b := make([]byte, used)
	if _, err := s.file.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// commit makes r the log's durable record. When it fails r may have landed or
// not, and both are legal. It writes over the slot that does not hold the last
// commit known durable, so it needs no disk block.
func (s *stateFile) commit(r *stateRecord) error {
	if uint32(len(r.reclaimed)+len(r.planned)) > s.ranges || uint32(len(r.tenants)) > s.tenants {
		return fmt.Errorf("%s: %d ranges and %d tenants do not fit, it has room for %d and %d",
			s.name, len(r.reclaimed)+len(r.planned), len(r.tenants), s.ranges, s.tenants)
	}
	b := r.encode(s.generation + 1)
	if s.last != nil && bytes.Equal(b[16:], s.last) {
		return nil
	}
	if s.file == nil { // what a descriptor says after a failed fdatasync proves nothing
		file, err := s.fs.OpenFile(s.name, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("commit STATE: %w", err)
		}
		s.file = file
	}
	s.generation++
	slot := 1 - s.holder
	err := s.prove()
	if err == nil {
		err = s.put(slot, b)
	}
	if err != nil {
		err = errors.Join(err, s.file.Close())
		s.file, s.last = nil, nil
		return fmt.Errorf("commit STATE: %w", err)
	}
	s.holder, s.last = slot, b[16:]
	return nil
}

// prove makes the commit that was found at open durable, if it is not so
// already, before the other one is written over: an earlier life may have left
// it in the page cache with a failed fdatasync or none. The same bytes go to
// the same blocks.
func (s *stateFile) prove() error {
	if s.unproved == nil {
		return nil
	}
	err := s.put(s.holder, s.unproved)
	if err == nil {
		s.unproved = nil
	}
	return err
}

// put writes a slot's content, in whole blocks, and syncs it.
func (s *stateFile) put(slot int, b []byte) error {
	block := make([]byte, (len(b)+blockSize-1)/blockSize*blockSize)
	copy(block, b)
	if _, err := s.file.Pwritev([][]byte{block}, s.offset(slot)); err != nil {
		return err
	}
	return s.file.Datasync()
}

func (s *stateFile) close() error {
	if s == nil || s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// writeState builds a whole STATE under the name of STATE.new, every block of
// it written, and returns it open. Nothing of it is installed.
func writeState(f fsys.FS, name string, log LogID, g geometry, r *stateRecord, generation uint64) (fsys.File, error) {
	file, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	err = func() error {
		head := make([]byte, blockSize)
		copy(head, encodeStateHeader(log, g))
		first := make([]byte, g.slot)
		copy(first, r.encode(generation))
		if _, err := file.Pwritev([][]byte{head, first, make([]byte, g.slot)}, 0); err != nil {
			return err
		}
		return file.Datasync()
	}()
	if err != nil {
		return nil, errors.Join(err, file.Close(), f.Unlink(name))
	}
	return file, nil
}

// mergeRanges puts ranges in order and joins those that touch.
func mergeRanges(ranges []ordinalRange) []ordinalRange {
	slices.SortFunc(ranges, func(a, b ordinalRange) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(a.first, b.first))
	})
	merged := ranges[:0]
	for _, r := range ranges {
		if n := len(merged); n > 0 && merged[n-1].end == r.base && r.first > merged[n-1].last {
			merged[n-1].last, merged[n-1].end = r.last, r.end
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
