// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"encoding/binary"
	"math/bits"
)

// Wire types of protobuf.
const (
	wireVarint     = 0
	wireFixed64    = 1
	wireLength     = 2
	wireStartGroup = 3
	wireEndGroup   = 4
	wireFixed32    = 5
)

// The readers return the position behind what they read or, when it cannot be
// read, one of these.
const (
	truncated  = -1 - iota // the message ends before the value does
	overlong               // a varint of more than ten bytes
	badLength              // a length that is negative as an int64
	badNumber              // a field number that is not positive as an int32
	badGroup               // the end of a group that was not begun
	badWire                // wire type 6 or 7
	badType                // a wire type that the field does not have
	badID                  // an id of another length than it has
	badPacked              // packed values of 8 bytes whose sum is not a multiple of 8
	defectsEnd             //
)

// readVarint reads a varint at pos. Of a tenth byte only the lowest bit counts;
// the others are dropped, not refused.
func readVarint(b []byte, pos int) (v uint64, next int) {
	for shift := uint(0); shift < 64; shift += 7 {
		if pos >= len(b) {
			return 0, truncated
		}
		c := b[pos]
		pos++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, pos
		}
	}
	return 0, overlong
}

// skipVarint is readVarint without the value. It looks at eight bytes at once
// when b and what follows it have as many.
func skipVarint(b []byte, pos int) (next int) {
	if pos+8 <= cap(b) {
		if last := ^binary.LittleEndian.Uint64(b[pos:pos+8]) & goesOn; last != 0 {
			return fits(b, pos+bits.TrailingZeros64(last)/8+1)
		}
	}
	_, next = readVarint(b, pos)
	return next
}

// goesOn are the bits of eight bytes that say that a varint goes on.
const goesOn = 0x8080808080808080

// readTag reads a field's number and wire type. The number is taken modulo
// 2³², so 2³²+1 is field 1.
func readTag(b []byte, pos int) (number int32, wire uint8, next int) {
	v, next := readVarint(b, pos)
	if next < 0 {
		return 0, 0, next
	}
	if number = int32(v >> 3); number <= 0 {
		return 0, 0, badNumber
	}
	return number, uint8(v & 7), next
}

// readLength reads the length of a length-delimited value and returns where
// the value begins. The value lies within b.
func readLength(b []byte, pos int) (n, next int) {
	var v uint64
	if pos+1 < len(b) && b[pos] >= 0x80 && b[pos+1] < 0x80 {
		v, next = uint64(b[pos]&0x7f)|uint64(b[pos+1])<<7, pos+2
	} else {
		v, next = readVarint(b, pos)
	}
	switch {
	case next < 0:
		return 0, next
	case int64(v) < 0:
		return 0, badLength
	case v > uint64(len(b)-next):
		return 0, truncated
	}
	return int(v), next
}

// skip passes over the value of a field that is not known.
//
// Groups are odd: the first value inside one that is not itself a group ends
// the search, as if it were the value of the field; what follows is read as
// fields of the surrounding message, where the end of the group is then an
// error. And the end of an empty group must not be the end of the message.
func skip(b []byte, pos int, wire uint8) (next int) {
	for depth := 0; pos < len(b); {
		switch wire {
		case wireVarint:
			_, next = readVarint(b, pos)
			return next
		case wireFixed64:
			return fits(b, pos+8)
		case wireFixed32:
			return fits(b, pos+4)
		case wireLength:
			n, next := readLength(b, pos)
			if next < 0 {
				return next
			}
			return next + n
		case wireStartGroup:
			depth++
		case wireEndGroup:
			if depth == 0 {
				return badGroup
			}
			depth--
		default:
			return badWire
		}
		if depth == 0 {
			return pos
		}
		if _, wire, pos = readTag(b, pos); pos < 0 {
			return pos
		}
	}
	return truncated
}

func fits(b []byte, end int) int {
	if end > len(b) {
		return truncated
	}
	return end
}

// countVarints says how many varints b is made of, or what is wrong with it. It
// takes 32 bytes at a time until a varint of five bytes or more, then eight.
func countVarints(b []byte) (n int, defect int) {
	if len(b) == 0 {
		return 0, 0
	}
	if b[len(b)-1] >= 0x80 {
		return 0, truncated // or overlong
	}
	if len(b) <= 8 && cap(b) >= 8 {
		word := ^binary.LittleEndian.Uint64(b[:8]) & goesOn
		return bits.OnesCount64(word << (64 - 8*uint(len(b)))), 0
	}
	i := 0
	for ; i+32 <= len(b); i += 32 {
		words := b[i : i+32 : i+32]
		w0 := binary.LittleEndian.Uint64(words) & goesOn
		w1 := binary.LittleEndian.Uint64(words[8:]) & goesOn
		w2 := binary.LittleEndian.Uint64(words[16:]) & goesOn
		w3 := binary.LittleEndian.Uint64(words[24:]) & goesOn
		// Where ten bytes go on, four do within one word.
		t0, t1, t2, t3 := w0&(w0>>8), w1&(w1>>8), w2&(w2>>8), w3&(w3>>8)
		if t0&(t0>>16)|t1&(t1>>16)|t2&(t2>>16)|t3&(t3>>16) != 0 {
			break
		}
		n += 32 - int((w0>>7+w1>>7+w2>>7+w3>>7)*0x0101010101010101>>56)
	}
	run := 0 // bytes of the varint begun
	for run < i && b[i-1-run] >= 0x80 {
		run++
	}
	for ; i < len(b); i += 8 {
		last := lastBytes(b[i:])
		if run+bits.TrailingZeros64(last)/8 >= 10 {
			return 0, overlong
		}
		if last != 0 {
			run = 0
		}
		run += bits.LeadingZeros64(last) / 8
		n += bits.OnesCount64(last)
	}
	return n, 0
}

// lastBytes marks those of the first eight bytes of b that are the last of a
// varint.
func lastBytes(b []byte) uint64 {
	if len(b) >= 8 {
		return ^binary.LittleEndian.Uint64(b) & goesOn
	}
	var word uint64
	if cap(b) >= 8 {
		word = binary.LittleEndian.Uint64(b[:8])
	} else {
		for i, c := range b {
			word |= uint64(c) << (8 * i)
		}
	}
	return ^word & goesOn & (1<<(8*len(b)) - 1)
}
