// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"io/fs"
	"maps"
	"math/bits"
	"slices"

	"github.com/otelweir/weir/internal/fsys"
)

// maxVersions bounds the states of one block that are remembered between two
// syncs; the oldest ones are forgotten, which only makes fewer crashes
// possible.
const maxVersions = 8

// inode is a file, a directory or a symbolic link.
type inode struct {
	ino     uint64
	base    string // the name it got last, for messages
	mode    fs.FileMode
	nlink   int
	handles int
	locked  bool
	freed   bool       // neither name nor handle: its blocks are given back
	dir     *directory // nil unless a directory

	size, durableSize           int64
	sizes                       []sizeChange // since the last Datasync, oldest first
	allocated, durableAllocated bitmap
	blocks                      map[int64]*block
}

type sizeChange struct {
	stamp uint64
	size  int64
}

// block is 4 KiB of a file. Byte slices are never changed once here, so that
// versions and clones share them; nil is zeros.
type block struct {
	durable  []byte
	versions []version // newer than durable, oldest first; the last is what the page cache says
	dirty    bool      // the next successful Datasync writes it
}

// version is a state of a block the medium may or may not hold.
type version struct {
	stamp uint64
	data  []byte
	cut   bool // made by a truncation: on the medium exactly if that is
}

func (b *block) live() []byte {
	if len(b.versions) > 0 {
		return b.versions[len(b.versions)-1].data
	}
	return b.durable
}

func (b *block) push(v version) {
	if len(b.versions) >= maxVersions {
		if i := slices.IndexFunc(b.versions, func(v version) bool { return !v.cut }); i >= 0 {
			b.versions = slices.Delete(slices.Clone(b.versions), i, i+1)
		}
	}
	b.versions = append(b.versions, v)
}

func (n *inode) info(name string) fsys.Info {
	return fsys.Info{
		Name: name, Size: n.size, Blocks: n.allocated.count() * BlockSize, Mode: n.mode,
		Dev: 1, Ino: n.ino, Nlink: uint64(n.nlink),
	}
}

func (n *inode) block(i int64) *block {
	b := n.blocks[i]
	if b == nil {
		b = &block{}
		if n.blocks == nil {
			n.blocks = map[int64]*block{}
		}
		n.blocks[i] = b
	}
	return b
}

func (n *inode) readAt(p []byte, off int64) int {
	if off >= n.size {
		return 0
	}
	p = p[:min(int64(len(p)), n.size-off)]
	for done := 0; done < len(p); {
		pos := off + int64(done)
		in := int(pos % BlockSize)
		step := min(len(p)-done, BlockSize-in)
		var data []byte
		if b := n.blocks[pos/BlockSize]; b != nil {
			data = b.live()
		}
		if data == nil {
			clear(p[done : done+step])
		} else {
			copy(p[done:done+step], data[in:])
		}
		done += step
	}
	return len(p)
}

// write writes p, which lies within one allocated block.
func (n *inode) write(p []byte, off int64, stamp uint64) {
	b := n.block(off / BlockSize)
	data := make([]byte, BlockSize)
	copy(data, b.live())
	copy(data[off%BlockSize:], p)
	b.push(version{stamp: stamp, data: data})
	b.dirty = true
	if end := off + int64(len(p)); end > n.size {
		n.resize(end, stamp)
	}
}

func (n *inode) resize(size int64, stamp uint64) {
	if size != n.size {
		n.size = size
		n.sizes = append(n.sizes, sizeChange{stamp, size})
	}
}

func (n *inode) truncate(size int64, stamp uint64) {
	if size < n.size {
		for i, b := range n.blocks {
			start := i * BlockSize
			if start+BlockSize <= size || b.live() == nil {
				continue
			}
			if start >= size {
				b.push(version{stamp: stamp, cut: true})
				b.dirty = false
				continue
			}
			data := make([]byte, BlockSize)
			copy(data, b.live()[:size-start])
			b.push(version{stamp: stamp, data: data, cut: true})
			b.dirty = true
		}
		n.allocated = n.allocated.below(blocksOf(size))
	}
	n.resize(size, stamp)
}

func (n *inode) seekData(off int64) (int64, bool) {
	if off < 0 || off >= n.size {
		return 0, false
	}
	for i := off / BlockSize; i < blocksOf(n.size); i++ {
		if b := n.blocks[i]; b != nil && b.live() != nil {
			return max(off, i*BlockSize), true
		}
	}
	return 0, false
}

// synced is a Datasync that worked. Blocks that a failed one made clean are
// not written, but truncations are no blocks.
func (n *inode) synced() {
	for _, b := range n.blocks {
		if b.dirty {
			b.durable, b.versions, b.dirty = b.live(), nil, false
			continue
		}
		if i := b.lastCut(^uint64(0)); i >= 0 {
			b.durable, b.versions = b.versions[i].data, b.versions[i+1:]
		}
	}
	n.durableSize, n.sizes = n.size, nil
	n.durableAllocated = slices.Clone(n.allocated)
}

// syncFailed is a Datasync that did not: what was dirty is clean now and still
// not durable. Size and allocation stay to be written.
func (n *inode) syncFailed() {
	for _, b := range n.blocks {
		b.dirty = false
	}
}

// lastCut is the index of the newest version a truncation up to stamp made.
func (b *block) lastCut(stamp uint64) int {
	for i := len(b.versions) - 1; i >= 0; i-- {
		if b.versions[i].cut && b.versions[i].stamp <= stamp {
			return i
		}
	}
	return -1
}

// clone copies a file or link with everything that is and is not durable.
func (n *inode) clone() *inode {
	c := *n
	c.handles, c.nlink, c.locked, c.freed = 0, 0, false, false
	c.sizes = slices.Clone(n.sizes)
	c.allocated = slices.Clone(n.allocated)
	c.durableAllocated = slices.Clone(n.durableAllocated)
	c.blocks = maps.Clone(n.blocks)
	for i, b := range c.blocks {
		c.blocks[i] = &block{durable: b.durable, versions: slices.Clone(b.versions), dirty: b.dirty}
	}
	return &c
}

func blocksOf(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// bitmap is a set of block numbers.
type bitmap []uint64

func (m bitmap) has(i int64) bool {
	return i/64 < int64(len(m)) && m[i/64]&(1<<(i%64)) != 0
}

func (m *bitmap) add(i int64) {
	for i/64 >= int64(len(*m)) {
		*m = append(*m, 0)
	}
	(*m)[i/64] |= 1 << (i % 64)
}

func (m bitmap) count() (n int64) {
	for _, w := range m {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// below is the members less than end.
func (m bitmap) below(end int64) bitmap {
	c := slices.Clone(m)
	for i := range c {
		switch first := int64(i) * 64; {
		case first >= end:
			c[i] = 0
		case end-first < 64:
			c[i] &= 1<<(end-first) - 1
		}
	}
	return c
}
