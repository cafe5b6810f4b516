// SPDX-License-Identifier: Apache-2.0

package otlpwire

import "sort"

// The estimate is the heap that pdata's structs retain, by the rules of Go's
// allocator (1.22 to 1.26): every object takes the next size class, an object
// of more than 512 bytes with pointers has a header of 8, and a slice that is
// appended to keeps the capacity it last grew to. Tests compare these rules
// with the running allocator, and the estimate with the heap.
//
// What decoding drops again — slices outgrown, members of a oneof and strings
// that were overwritten — is not retained. Overwritten values are counted all
// the same: no honest request has them.

// sizeClasses are the allocator's, up to 32 KiB; above, objects take whole
// pages.
var sizeClasses = [...]int{
	0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416,
	448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200,
	3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384,
	18432, 19072, 20480, 21760, 24576, 27264, 28672, 32768,
}

const (
	maxClass = 32768
	page     = 8192

	header       = 8   // of objects with pointers
	headerBeyond = 512 // bytes
)

// sizeClass is how many bytes an object of n bytes takes.
func sizeClass(n int) int {
	if n > maxClass {
		return (n + page - 1) &^ (page - 1)
	}
	return sizeClasses[sort.SearchInts(sizeClasses[:], n)]
}

// shortText and longText are sizeClass for strings: by the byte up to 1 KiB,
// then by 128 bytes, the granularity of the classes there.
var (
	shortText [1025]uint16
	longText  [(maxClass-1024)/128 + 1]uint16
)

func init() {
	for n := range shortText {
		switch {
		case n < 2: // the empty string; and Go keeps one string for each byte
		case n < 16: // shares a block of 16 with others of its kind
			shortText[n] = uint16((n + 7) &^ 7)
		default:
			shortText[n] = uint16(sizeClass(n))
		}
	}
	for i := range longText {
		longText[i] = uint16(sizeClass(1024 + 128*i))
	}
}

// textBytes is what a string or []byte of n bytes retains.
func textBytes(n int) uint64 {
	switch {
	case n < len(shortText):
		return uint64(shortText[n])
	case n <= maxClass:
		return uint64(longText[(n-1024+127)/128])
	}
	return uint64(n+page-1) &^ (page - 1)
}

// growth is what append makes of a slice of one element type, beginning with
// nil.
type growth struct {
	few  [64]uint16 // bytes retained, by length
	many []capacity // ascending
}

type capacity struct {
	elements uint32
	bytes    uint64
}

// newGrowth computes the growth of slices of elements of the given size.
func newGrowth(size int, pointers bool) *growth {
	g := new(growth)
	for n := 0; n < 1<<30; {
		before := n
		switch {
		case n == 0:
			n = 1
		case n < 256:
			n *= 2
		default:
			n += (n + 3*256) / 4
		}
		extra := 0
		if pointers && n*size > headerBeyond && n*size <= maxClass-header {
			extra = header
		}
		bytes := sizeClass(n*size + extra)
		n = (bytes - extra) / size
		for i := before + 1; i <= n && i < len(g.few); i++ {
			g.few[i] = uint16(bytes)
		}
		g.many = append(g.many, capacity{uint32(n), uint64(bytes)})
	}
	return g
}

// bytes is what a slice retains after n appends.
func (g *growth) bytes(n uint32) uint64 {
	if n < uint32(len(g.few)) {
		return uint64(g.few[n])
	}
	return g.bytesOfMany(n)
}

func (g *growth) bytesOfMany(n uint32) uint64 {
	for _, c := range g.many {
		if n <= c.elements {
			return c.bytes
		}
	}
	return g.many[len(g.many)-1].bytes * 4 // of 2³⁰ elements; no uint32 is more than four times that
}
