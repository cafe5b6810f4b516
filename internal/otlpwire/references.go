// SPDX-License-Identifier: Apache-2.0

package otlpwire

import "math"

// Attributes of a profile's resource and scope may name their keys and strings
// by index into the dictionary's string table. pdata resolves these after
// decoding and rejects what it cannot resolve. The table may come after the
// attributes, and in pieces; so what is computed here is how long it must be.
//
// Only what decoding leaves counts: of a field or a oneof that occurs more than
// once, the last. These functions read bytes that the walk found valid.

// unresolvable is a string table that no request has.
const unresolvable = math.MaxInt

// tableFor is the length the string table must have for the references of a
// KeyValue to resolve.
func tableFor(kv []byte) int {
	key, index, need := 0, int32(0), 0
	for pos := 0; pos < len(kv); {
		var number int32
		var v uint64
		var value []byte
		number, v, value, pos = next(kv, pos)
		switch number {
		case 1:
			key = len(value)
		case 2:
			need = tableForValue(value, need) // merged into the value before
		case 3:
			index = int32(v)
		}
	}
	switch {
	case index < 0 || index > 0 && key > 0:
		return unresolvable
	case index > 0:
		return max(need, int(index)+1)
	}
	return need
}

// tableForValue is the same for an AnyValue, whose oneof needed before until
// now.
func tableForValue(value []byte, before int) (need int) {
	need = before
	for pos := 0; pos < len(value); {
		var number int32
		var v uint64
		var member []byte
		number, v, member, pos = next(value, pos)
		switch number {
		case 1, 2, 3, 4, 7:
			need = 0
		case 5:
			need = 0
			for pos := 0; pos < len(member); {
				var element []byte
				if number, _, element, pos = next(member, pos); number == 1 {
					need = max(need, tableForValue(element, 0))
				}
			}
		case 6:
			need = 0
			for pos := 0; pos < len(member); {
				var element []byte
				if number, _, element, pos = next(member, pos); number == 1 {
					need = max(need, tableFor(element))
				}
			}
		case 8:
			if need = int(int32(v)) + 1; need <= 0 {
				need = unresolvable
			}
		}
	}
	return need
}

// next reads the field at pos of a valid message: its number, and its value if
// that is a varint or length-delimited.
func next(b []byte, pos int) (number int32, v uint64, value []byte, end int) {
	number, wire, pos := readTag(b, pos)
	switch wire {
	case wireVarint:
		v, end = readVarint(b, pos)
	case wireLength:
		n, start := readLength(b, pos)
		value, end = b[start:start+n], start+n
	default:
		end = skip(b, pos, wire)
	}
	return number, v, value, end
}
