// SPDX-License-Identifier: Apache-2.0

package otlpwire

// message is a layout made ready for the walk.
type message struct {
	// ops has what to do by the field's tag if that is one byte, which it is
	// for the fields 1 to 15. The upper half is empty: such a byte begins a
	// longer tag.
	ops [256]op
	// fields are all fields by tag: also those whose tag is longer, and the
	// elements of packed fields that are not packed.
	fields []tagged
	// slices are the growths of its slices, by slot.
	slices []*growth
	// recursive messages count against pdata's recursion limit, containers
	// against the nesting limit.
	recursive bool
	container bool
	layout    *layout
}

// op is what to do with one field of one wire type; 0 is nothing known. The ops
// are what the walk reads most, so each is one word:
//
//	bits  0-7   kind
//	bits  8-15  note
//	bits 16-23  slot of the count it adds to
//	bits 24-31  message, length of an id, or slot of what is packed
//	bits 32-39  row in the layout
//	bit  40     the message is flat, see flat.go
//	bits 48-63  bytes retained for each occurrence, besides text and slices
type op uint64

func newOp(f field, row int, slot uint8) op {
	cost := int(f.note.cost())
	if f.kind == pointer || f.kind == pointers {
		cost += sizeClass(layouts[f.of].size)
	}
	flat := 0
	if f.kind >= embedded && f.note != referring && layouts[f.of].flat() {
		flat = 1
	}
	return op(f.kind) | op(f.note)<<8 | op(slot)<<16 | op(f.of)<<24 | op(row)<<32 | op(flat)<<40 | op(cost)<<48
}

func (o op) kind() kind   { return kind(o) }
func (o op) note() note   { return note(o >> 8) }
func (o op) slot() uint8  { return uint8(o>>16) % slots }
func (o op) of() int      { return int(uint8(o >> 24)) }
func (o op) row() int     { return int(uint8(o >> 32)) }
func (o op) flat() bool   { return o>>40&1 != 0 }
func (o op) cost() uint64 { return uint64(o >> 48) }

type tagged struct {
	tag uint64
	op  op
}

// A message has at most 7 slices and embedded messages, which are counted; the
// last count is for what needs none.
const (
	slots   = 8
	nowhere = slots - 1
)

var messages [len(layouts)]message

// stringTable is the slot of the string table in its message.
var stringTable uint8

func init() {
	for i := range layouts {
		compile(i)
	}
}

// compile makes messages[i] from its layout. Slices take the first slots, so
// that their growths are told by slot.
func compile(i int) {
	l := &layouts[i]
	m := &messages[i]
	*m = message{
		layout:    l,
		recursive: i == keyValue || i == anyValue || i == arrayValue || i == keyValueList,
		container: i == arrayValue || i == keyValueList,
	}
	slot := make([]uint8, len(l.fields))
	for i, f := range l.fields {
		slot[i] = nowhere
		if g := growthOf(f); g != nil {
			slot[i] = uint8(len(m.slices))
			m.slices = append(m.slices, g)
		}
		if f.note == table {
			stringTable = slot[i]
		}
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
		o := newOp(f, i, slot[i])
		switch f.kind {
		case varint:
			m.add(f.number, wireVarint, o)
		case fixed64:
			m.add(f.number, wireFixed64, o)
		case fixed32:
			m.add(f.number, wireFixed32, o)
		case packedVarint, packedFixed64:
			one, wire := f, wireVarint
			one.kind = varint
			if f.kind == packedFixed64 {
				one.kind, wire = fixed64, wireFixed64
			}
			m.fields = append(m.fields, tagged{tag(f.number, wire), newOp(one, i, slot[i])})
			f.of = int(slot[i])
			m.add(f.number, wireLength, newOp(f, i, nowhere))
		default:
			m.add(f.number, wireLength, o)
		}
	}
}

// growths are shared by all slices of the same elements.
var growths = map[element]*growth{}

type element struct {
	size     int
	pointers bool
}

// growthOf is nil for a field that is no slice.
func growthOf(f field) *growth {
	var e element
	switch f.kind {
	case texts:
		e = element{16, true}
	case pointers:
		e = element{8, true}
	case values:
		e = element{layouts[f.of].size, true}
	case packedVarint, packedFixed64:
		e = element{f.of, false}
	default:
		return nil
	}
	if growths[e] == nil {
		growths[e] = newGrowth(e.size, e.pointers)
	}
	return growths[e]
}

func (m *message) add(number, wire int, o op) {
	t := tag(number, wire)
	if t < 0x80 {
		m.ops[t] = o
	}
	m.fields = append(m.fields, tagged{t, o})
}

func tag(number, wire int) uint64 { return uint64(number<<3 | wire) }

// find returns the op for a field; known says that there is one for the same
// field in another wire type.
func (m *message) find(number int32, wire uint8) (o op, known bool) {
	for i := range m.fields {
		t := m.fields[i].tag
		if t>>3 != uint64(number) {
			continue
		}
		if t&7 == uint64(wire) {
			return m.fields[i].op, true
		}
		known = true
	}
	return 0, known
}
