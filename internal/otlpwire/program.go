// SPDX-License-Identifier: Apache-2.0

package otlpwire

// message is a layout made ready for the walk.
type message struct {
	// ops has what to do by the field's tag, as long as that is one byte,
	// which it is for the fields 1 to 15.
	ops [128]op
	// rare are all fields by tag, for those whose tag is longer.
	rare []tagged
	// slices are the growths of its slices, by slot.
	slices []growth
	// recursive messages count against pdata's recursion limit, containers
	// against the nesting limit.
	recursive uint8
	container uint8
	layout    *layout
}

// op is what to do with one field of one wire type. It is kept to 8 bytes: the
// ops are what the walk reads most.
type op struct {
	kind  kind
	note  note
	slot  uint8  // which of its message's counts it adds 1 to
	of    uint8  // message, length of an id, or slot of a packed field
	field uint8  // the row in the layout
	cost  uint16 // bytes retained by each occurrence, besides text and slices
}

type tagged struct {
	tag uint64
	op  op
}

// A message has at most 7 slices and embedded messages that are counted; the
// last count belongs to everything else.
const (
	slots   = 8
	nowhere = slots - 1
)

var noteCost = [...]uint16{oneof8: 8, oneof16: 16, oneof24: 24, data: 8, strings: 0}

var messages [len(layouts)]message

func init() {
	for i := range layouts {
		compile(&messages[i], &layouts[i])
	}
	for _, i := range []int{keyValue, anyValue, arrayValue, keyValueList} {
		messages[i].recursive = 1
	}
	messages[arrayValue].container = 1
	messages[keyValueList].container = 1
}

// compile fills m in from its layout. Slices take the first slots, so that
// their growths can be told by slot alone.
func compile(m *message, l *layout) {
	m.layout = l
	slot := make([]uint8, len(l.fields))
	for i, f := range l.fields {
		slot[i] = nowhere
		var g growth
		switch f.kind {
		case texts:
			g = newGrowth(16, true)
		case pointers:
			g = newGrowth(8, true)
		case values:
			g = newGrowth(layouts[f.of].size, true)
		case packedVarint, packedFixed64:
			g = newGrowth(f.of, false)
		default:
			continue
		}
		slot[i] = uint8(len(m.slices))
		m.slices = append(m.slices, g)
	}
	next := uint8(len(m.slices))
	for i, f := range l.fields {
		if f.kind == embedded {
			slot[i] = next
			next++
		}
	}
	if next > nowhere {
		panic("otlpwire: more counts than slots in " + l.name)
	}
	for i, f := range l.fields {
		o := op{kind: f.kind, note: f.note, slot: slot[i], of: uint8(f.of), field: uint8(i), cost: noteCost[f.note]}
		switch f.kind {
		case varint:
			m.add(f.number, wireVarint, o)
		case fixed64:
			m.add(f.number, wireFixed64, o)
		case fixed32:
			m.add(f.number, wireFixed32, o)
		case packedVarint, packedFixed64:
			one, wire := o, wireVarint
			one.kind = varint
			if f.kind == packedFixed64 {
				one.kind, wire = fixed64, wireFixed64
			}
			m.add(f.number, wire, one)
			o.slot, o.of = nowhere, slot[i]
			m.add(f.number, wireLength, o)
		case pointer, pointers:
			o.cost += uint16(sizeClass(layouts[f.of].size))
			fallthrough
		default:
			m.add(f.number, wireLength, o)
		}
	}
}

func (m *message) add(number, wire int, o op) {
	tag := number<<3 | wire
	if tag < len(m.ops) {
		m.ops[tag] = o
	}
	m.rare = append(m.rare, tagged{uint64(tag), o})
}

// find returns the op for a field; known says that there is one for the same
// field in another wire type.
func (m *message) find(number int32, wire uint8) (o op, known bool) {
	for i := range m.rare {
		t := m.rare[i].tag
		if t>>3 != uint64(number) {
			continue
		}
		if t&7 == uint64(wire) {
			return m.rare[i].op, true
		}
		known = true
	}
	return op{}, known
}
