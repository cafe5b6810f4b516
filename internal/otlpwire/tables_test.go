// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// pdataTypes collects pdata's structs by name: those that the decoded requests
// are made of, and the wrappers of oneofs, which only values lead to.
func pdataTypes(t *testing.T) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				visit(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		case reflect.Struct:
			types[v.Type().Name()] = v.Type()
			for i := range v.NumField() {
				visit(v.Field(i))
			}
		}
	}
	for _, s := range signals {
		for _, p := range paths(s.signal) {
			for _, f := range layouts[p.message].fields {
				b := (&generator{Rand: rand.New(rand.NewPCG(1, 1)), text: 1}).field(nil, f, recursionLimit)
				for i := len(p.fields) - 1; i >= 0; i-- {
					b = wrap(nil, protowire.Number(p.fields[i]), b)
				}
				if _, alive, err := s.decode(b); err == nil { // a reference may be invalid
					visit(reflect.ValueOf(alive))
				}
			}
		}
	}
	return types
}

func TestTablesAreThoseOfPdata(t *testing.T) {
	types := pdataTypes(t)
	for _, l := range layouts {
		typ := types[l.name]
		require.NotNil(t, typ, l.name)
		assert.EqualValues(t, typ.Size(), l.size, "size of %s", l.name)
		known := []string{"metadata"} // which optional fields are set; has no field number
		for _, f := range l.fields {
			name := camel(f.name)
			if f.note >= oneof8 && f.note <= data {
				wrapper := types[l.name+"_"+name]
				require.NotNil(t, wrapper, "%s.%s", l.name, f.name)
				assert.True(t, wrapper.NumField() == 1 && fieldIs(wrapper.Field(0).Type, f), "%s.%s is a %v", l.name, f.name, wrapper.Field(0).Type)
				if f.name == "string_value_strindex" { // profiles replace it by what it refers to
					wrapper = types["AnyValue_StringValue"]
				}
				// One of less than 8 bytes shares a block with others.
				assert.EqualValues(t, sizeClass(max(8, int(wrapper.Size()))), f.note.cost(), "oneof wrapper of %s.%s", l.name, f.name)
				continue
			}
			known = append(known, name)
			member, ok := typ.FieldByName(name)
			if assert.True(t, ok, "%s has no field %s", l.name, name) {
				assert.True(t, fieldIs(member.Type, f), "%s.%s is a %v", l.name, f.name, member.Type)
			}
		}
		for i := range typ.NumField() {
			if member := typ.Field(i); member.Type.Kind() != reflect.Interface { // the oneof
				assert.Contains(t, known, member.Name, "field of %s that is not in the table", l.name)
			}
		}
	}
}

func TestFramesAreEnough(t *testing.T) {
	var chain func(of int) int
	chain = func(of int) int {
		if messages[of].recursive {
			return recursionLimit
		}
		longest := 0
		for _, f := range layouts[of].fields {
			if f.kind >= embedded {
				longest = max(longest, chain(f.of))
			}
		}
		return 1 + longest
	}
	longest := 0
	for _, s := range signals {
		longest = max(longest, chain(requests[s.signal]))
	}
	assert.Equal(t, maxDepth, longest)
	assert.LessOrEqual(t, longest, frameSlots)
}

func fieldIs(t reflect.Type, f field) bool {
	switch f.kind {
	case varint:
		return slices.Contains([]reflect.Kind{reflect.Bool, reflect.Int32, reflect.Uint32, reflect.Int64, reflect.Uint64}, t.Kind())
	case fixed64:
		return slices.Contains([]reflect.Kind{reflect.Int64, reflect.Uint64, reflect.Float64}, t.Kind())
	case fixed32:
		return t.Kind() == reflect.Uint32
	case text:
		return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
	case texts:
		return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String
	case id:
		return t.Kind() == reflect.Array && int(t.Size()) == f.of
	case packedVarint, packedFixed64:
		return t.Kind() == reflect.Slice && int(t.Elem().Size()) == f.of
	case embedded:
		return t.Name() == layouts[f.of].name
	case pointer:
		return t.Kind() == reflect.Pointer && t.Elem().Name() == layouts[f.of].name
	case pointers:
		return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Pointer && t.Elem().Elem().Name() == layouts[f.of].name
	case values:
		return t.Kind() == reflect.Slice && t.Elem().Name() == layouts[f.of].name
	}
	return false
}

// camel is the Go name of a protobuf field.
func camel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

func TestAllocatorIsAsTheEstimateHasIt(t *testing.T) {
	for n := 16; n < 5*maxClass; n += 1 + n/64 {
		assert.Equal(t, cap(append([]byte(nil), make([]byte, n)...)), sizeClass(n), "string of %d bytes", n)
		assert.EqualValues(t, sizeClass(n), textBytes(n))
	}
	type fat struct {
		_ *int
		_ [4]uint64
	}
	type fatter struct {
		_ *int
		_ [8]uint64
	}
	growsAs[int32](t, false)
	growsAs[uint64](t, false)
	growsAs[*int](t, true)
	growsAs[string](t, true)
	growsAs[fat](t, true)
	growsAs[fatter](t, true)
}

func growsAs[T any](t *testing.T, pointers bool) {
	t.Helper()
	var zero T
	size := int(reflect.TypeOf(zero).Size())
	g := newGrowth(size, pointers)
	assert.Zero(t, g.bytes(0))
	var s []T
	for n := uint32(1); n < 10_000; n++ {
		s = append(s, zero)
		want := cap(s) * size
		if pointers && want > headerBeyond && want < maxClass {
			want += header
		}
		if got := g.bytes(n); got != uint64(sizeClass(want)) {
			t.Fatalf("%T: %d elements take %d bytes, not %d", s, n, sizeClass(want), got)
		}
	}
}
