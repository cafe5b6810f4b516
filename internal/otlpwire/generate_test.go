// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// generator makes requests, field by field, following the tables or straying
// from them. It is deterministic for a seed.
type generator struct {
	*rand.Rand
	stray  float64 // how often a field is not as the tables say
	fields int     // most fields of a message
	depth  int     // most recursive messages inside one another
	text   int     // strings are shorter than this
	honest bool    // no field or oneof is set twice, no message twice that is not repeated
	left   int     // fields left for this request
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0)), fields: 6, depth: 6, text: 20}
}

// request makes a request of some messages.
func (g *generator) request(s Signal) []byte {
	g.left = 1 + g.IntN(100)
	b := g.message(nil, requests[s], 0)
	for g.left > 0 && g.IntN(8) != 0 {
		b = g.message(b, requests[s], 0)
	}
	return b
}

// around makes a request that leads straight to a message of the given kind.
func (g *generator) around(p path) []byte {
	g.left = 1 + g.IntN(10)
	b := g.message(nil, p.message, 0)
	for i := len(p.fields) - 1; i >= 0; i-- {
		b = wrap(nil, protowire.Number(p.fields[i]), b)
	}
	return b
}

// path is the field numbers that lead from a request to a message.
type path struct {
	signal  Signal
	message int
	fields  []int
}

// paths has the shortest path to every message of a signal.
func paths(s Signal) []path {
	found := map[int]bool{requests[s]: true}
	all := []path{{signal: s, message: requests[s]}}
	for i := 0; i < len(all); i++ {
		for _, f := range layouts[all[i].message].fields {
			if f.kind >= embedded && !found[f.of] {
				found[f.of] = true
				all = append(all, path{s, f.of, append(slices.Clone(all[i].fields), f.number)})
			}
		}
	}
	return all
}

func (g *generator) message(b []byte, of, depth int) []byte {
	l := &layouts[of]
	if messages[of].recursive {
		if depth++; depth > g.depth {
			return b
		}
	}
	set := map[string]bool{}
	for range g.IntN(g.fields + 1) {
		if g.left--; g.left < 0 {
			return b
		}
		f := l.fields[g.IntN(len(l.fields))]
		if g.honest {
			name := f.name
			if f.note >= oneof8 && f.note <= data {
				name = "oneof"
			}
			switch {
			case f.number == 1000 || set[name]:
				continue
			case f.kind != pointers && f.kind != values && f.kind != texts:
				set[name] = true
			}
		}
		if g.Float64() < g.stray {
			b = g.strayed(b, f, depth)
			continue
		}
		b = g.field(b, f, depth)
	}
	return b
}

// kinds are those of the tables.
var kinds = []kind{varint, fixed64, fixed32, text, texts, id, packedVarint, packedFixed64, embedded, pointer, pointers, values}

// field appends a field as the tables have it.
func (g *generator) field(b []byte, f field, depth int) []byte {
	n := protowire.Number(f.number)
	switch f.kind {
	case varint:
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), g.varint())
	case fixed64:
		b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), g.Uint64())
	case fixed32:
		b = protowire.AppendFixed32(protowire.AppendTag(b, n, protowire.Fixed32Type), g.Uint32())
	case text, texts:
		b = g.bytes(b, n, g.IntN(g.text))
	case id:
		b = g.bytes(b, n, f.of*g.IntN(2))
	case packedVarint:
		if g.IntN(4) == 0 {
			return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), g.varint())
		}
		var packed []byte
		for range g.IntN(8) {
			packed = protowire.AppendVarint(packed, g.varint())
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), packed)
	case packedFixed64:
		if g.IntN(4) == 0 {
			return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), g.Uint64())
		}
		b = g.bytes(b, n, 8*g.IntN(5))
	default:
		b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), g.message(nil, f.of, depth))
	}
	return b
}

func (g *generator) varint() uint64 {
	if g.IntN(2) == 0 {
		return g.Uint64N(4) // a reference that may resolve
	}
	return g.Uint64() >> g.IntN(64)
}

func (g *generator) bytes(b []byte, n protowire.Number, length int) []byte {
	v := make([]byte, length)
	for i := range v {
		v[i] = byte(g.Uint32())
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// strayed appends a field near to f that the tables may not allow: what it
// makes is often valid, as an unknown field or by one of pdata's habits.
func (g *generator) strayed(b []byte, f field, depth int) []byte {
	n := protowire.Number(f.number)
	switch g.IntN(8) {
	case 0: // another number, same value
		f.number = g.number()
		return g.field(b, f, depth)
	case 1: // another kind, same number
		f.kind, f.of = kinds[g.IntN(len(kinds))], g.IntN(len(layouts))
		return g.field(b, f, depth)
	case 2: // any number, wire type and bytes
		return g.junk(append(b, byte(g.number()<<3|g.IntN(8))))
	case 3: // a group around nothing, a group, a field, or left open
		b = protowire.AppendTag(b, protowire.Number(g.number()), protowire.StartGroupType)
		switch g.IntN(4) {
		case 0:
			b = protowire.AppendTag(b, 1, protowire.StartGroupType)
			b = protowire.AppendTag(b, 1, protowire.EndGroupType)
		case 1:
			b = g.field(b, f, depth)
		case 2:
			return b
		}
		return protowire.AppendTag(b, n, protowire.EndGroupType)
	case 4: // the tag in more bytes than needed, or 2³² fields further
		v := uint64(f.number)<<3 | wireLength
		if g.IntN(2) == 0 {
			v += 1 << 35
		}
		b = padded(b, v, g.IntN(11))
		return append(b, 0)
	case 5: // the length in more bytes than needed, or wrong
		b = protowire.AppendTag(b, n, protowire.BytesType)
		v := g.message(nil, f.of, depth)
		b = padded(b, uint64(len(v)+(g.IntN(3)-1)*g.IntN(2)), g.IntN(12))
		return append(b, v...)
	case 6: // a huge length
		b = protowire.AppendTag(b, n, protowire.BytesType)
		return protowire.AppendVarint(b, g.Uint64())
	default: // a packed field of random bytes
		b = protowire.AppendTag(b, n, protowire.BytesType)
		return protowire.AppendBytes(b, g.junk(nil))
	}
}

func (g *generator) number() int {
	if n := g.IntN(20); n < 18 {
		return n
	}
	return 1000
}

func (g *generator) junk(b []byte) []byte {
	for range g.IntN(12) {
		b = append(b, byte(g.Uint32())>>g.IntN(8))
	}
	return b
}

// padded appends v as a varint of at least the given number of bytes.
func padded(b []byte, v uint64, atLeast int) []byte {
	for i := 1; v >= 0x80 || i < atLeast; i++ {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// mutate changes a few bytes of a request, or its length.
func (g *generator) mutate(b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + g.IntN(3) {
		if len(b) == 0 {
			return g.junk(b)
		}
		i := g.IntN(len(b))
		switch g.IntN(6) {
		case 0:
			b[i] = byte(g.Uint32())
		case 1:
			b[i] ^= 1 << g.IntN(8)
		case 2:
			b[i] += byte(g.IntN(3) - 1)
		case 3:
			b = b[:i]
		case 4:
			b = append(b[:i], b[min(len(b), i+1+g.IntN(4)):]...)
		case 5:
			b = append(b[:i:i], append(g.junk(nil), b[i:]...)...)
		}
	}
	return b
}
