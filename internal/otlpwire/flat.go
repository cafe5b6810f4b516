// SPDX-License-Identifier: Apache-2.0

package otlpwire

// Nine in ten messages of a request are flat or attributes, and nearly all of
// these have the form that libraries write. Such a message needs no frame: it is
// taken in one step. Whatever is unusual about it — a tag of several bytes, a
// field that is not known, a value that is an array, any defect — is left to the
// walk, which begins with that message anew and also finds the error's place.
// Since flat messages are at most two deep, no byte is looked at more than three
// times.

// flat messages have no slices except of numbers and of pointers to flat messages
// that are no items, and nothing embedded but a value. One with attributes is not
// flat: a single array among these would have all of it walked twice.
func (l *layout) flat() bool {
	for _, f := range l.fields {
		switch f.kind {
		case texts, values, pointer:
			return false
		case embedded:
			if f.of != anyValue {
				return false
			}
		case pointers:
			if f.note == item || !layouts[f.of].flat() {
				return false
			}
		}
	}
	return true
}

// run takes flat messages that follow one another in b, which is what f has from
// its start: elements of one field o, or the only one if that is embedded. The
// first has its tag at tag and lies between pos and end. run returns what they
// retain besides the cost of the first's op, and where it stopped, which is at
// the tag of one that it does not take.
func (w *walk) run(f *frame, o op, b []byte, tag, pos, end int) (cost uint64, next int) {
	if o.kind() == embedded {
		if f.counts[o.slot()] > 0 {
			return 0, tag // merged with the one before
		}
		b = b[:end]
	}
	m := &messages[o.of()]
	n := 0
	for next = tag; ; {
		within, ok := m.take(b[pos:end])
		if !ok {
			break
		}
		n++
		cost += within
		next = end
		if next+1 >= len(b) || b[next] != b[tag] || b[next] >= 0x80 {
			break
		}
		pos = next + 2
		size := int(b[next+1])
		if size >= 0x80 {
			if size, pos = readLength(b, next+1); pos < 0 {
				break
			}
		}
		if size > len(b)-pos {
			break
		}
		end = pos + size
	}
	if n == 0 {
		return 0, tag
	}
	f.counts[o.slot()] += uint32(n)
	if o.note() == item {
		w.items += n
	}
	return cost + uint64(n-1)*o.cost(), next
}

// take is the walk of one flat message, or of a value that is a scalar.
func (m *message) take(b []byte) (cost uint64, ok bool) {
	var counts [slots]uint32
	pos := 0
	for pos < len(b) {
		o := m.ops[b[pos]]
		cost += o.cost()
		pos++
		kind := o.kind()
		if kind == varint {
			switch {
			case pos < len(b) && b[pos] < 0x80:
				pos++
			case pos+1 < len(b) && b[pos+1] < 0x80:
				pos += 2
			default:
				if pos = skipVarint(b, pos); pos < 0 {
					return 0, false
				}
			}
			continue
		}
		if kind < text {
			if kind != fixed64 {
				return 0, false
			}
			pos += 8
			continue
		}

		var n int
		if pos < len(b) && b[pos] < 0x80 {
			n = int(b[pos])
			if pos++; n > len(b)-pos {
				return 0, false
			}
		} else if n, pos = readLength(b, pos); pos < 0 {
			return 0, false
		}
		end := pos + n

		switch kind {
		case text:
			cost += textBytes(n)
		case id:
			if n != 0 && n != o.of() {
				return 0, false
			}
		case packedVarint:
			count, defect := countVarints(b[pos:end])
			if defect < 0 {
				return 0, false
			}
			counts[o.of()%slots] += uint32(count)
		case packedFixed64:
			if n%8 != 0 {
				return 0, false
			}
			cost += textBytes(n)
		case embedded, pointers:
			within, ok := messages[o.of()].take(b[pos:end])
			if !ok {
				return 0, false
			}
			cost += within
			counts[o.slot()]++
		default:
			return 0, false
		}
		pos = end
	}
	for i, g := range m.slices {
		cost += g.bytes(counts[i%slots])
	}
	return cost, pos == len(b)
}

// attribute is take for a KeyValue with a key and a scalar, of less than 128
// bytes, and its AnyValue: in all signals but profiles these are most of what
// there is.
func attribute(kv []byte) (cost uint64, ok bool) {
	const key, value = 1<<3 | wireLength, 2<<3 | wireLength
	if len(kv) < 4 || len(kv) >= 0x80 {
		return 0, false
	}
	// Two fields with lengths of one byte, in either order: protobuf libraries
	// write the key first, pdata the value.
	at := 2 + int(kv[1])
	if at+2 > len(kv) || at+2+int(kv[at+1]) != len(kv) {
		return 0, false
	}
	k, v := kv[2:at], kv[at+2:]
	switch {
	case kv[0] == key && kv[at] == value:
	case kv[0] == value && kv[at] == key:
		k, v = v, k
	default:
		return 0, false
	}
	if len(v) < 2 {
		return 0, false
	}
	o := messages[anyValue].ops[v[0]]
	v = v[1:]
	switch cost = o.cost() + textBytes(len(k)); o.kind() {
	case text:
		return cost + textBytes(len(v)-1), int(v[0]) == len(v)-1
	case varint:
		_, next := readVarint(v, 0)
		return cost, next == len(v)
	case fixed64:
		return cost, len(v) == 8
	}
	return 0, false
}
