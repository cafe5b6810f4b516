// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"bytes"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
)

// sectorSize is what a device writes whole, whatever the page cache writes.
const sectorSize = 512

// TearSectors makes power loss keep or lose an unsynced block in sectors of
// 512 bytes, as a device does that writes no more than those at once.
func (f *FS) TearSectors(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tear = on
}

// Crash cuts the power: it returns a file system of what is left, with neither
// faults nor handles nor locks, and the old one is dead. How much of the
// unsynced survives differs from crash to crash, nothing and everything
// included. With a nil rng nothing does.
func (f *FS) Crash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	keep := 0.0
	if rng != nil {
		keep = []float64{0, 0.1, 0.5, 0.5, 0.9, 1}[rng.IntN(6)]
	}
	copies := map[*inode]*inode{}
	next := f.successor()
	next.root = next.afterCrash(f.root, copies, rng, keep)
	for _, n := range copies {
		next.used += n.allocated.count()
	}
	return next
}

// Kill is kill -9: it returns a file system as the next process finds it, with
// the page cache as it is and neither faults nor handles nor locks. The old
// one is dead.
func (f *FS) Kill() *FS {
	c := f.Clone()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	return c
}

// Clone is Kill that leaves the old one alive: the two have nothing in common.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	copies := map[*inode]*inode{}
	next := f.successor()
	next.root = clone(f.root, copies)
	for _, n := range copies {
		if n.nlink > 0 {
			next.used += n.allocated.count()
		} else {
			n.freed = true
		}
	}
	return next
}

func (f *FS) successor() *FS {
	return &FS{
		nextIno: f.nextIno, total: f.total, stamp: f.stamp, tear: f.tear, twoStep: f.twoStep,
		stopAt: -1, byOp: map[Op]int{}, handles: map[*handle]struct{}{},
	}
}

// clone copies everything reachable, the lost and the found alike.
func clone(n *inode, copies map[*inode]*inode) *inode {
	if n == nil {
		return nil
	}
	if c := copies[n]; c != nil {
		return c
	}
	c := n.clone()
	copies[n] = c
	if n.dir == nil {
		return c
	}
	c.nlink = 1
	c.dir = newDirectory()
	for name, child := range n.dir.live {
		child = clone(child, copies)
		if child.dir == nil {
			child.nlink++
		}
		c.dir.live[name] = child
	}
	for name, child := range n.dir.durable {
		c.dir.durable[name] = clone(child, copies)
	}
	for _, p := range n.dir.pending {
		p.entries = slices.Clone(p.entries)
		for i := range p.entries {
			p.entries[i].n = clone(p.entries[i].n, copies)
		}
		c.dir.pending = append(c.dir.pending, p)
	}
	return c
}

// afterCrash is what power loss leaves of n and of everything below it.
func (f *FS) afterCrash(n *inode, copies map[*inode]*inode, rng *rand.Rand, keep float64) *inode {
	if c := copies[n]; c != nil {
		return c
	}
	c := &inode{ino: n.ino, base: n.base, mode: n.mode}
	copies[n] = c
	if n.dir == nil {
		f.contentsAfterCrash(c, n, rng, keep)
		return c
	}
	c.nlink = 1
	c.dir = newDirectory()
	names := n.dir.survivors(rng, keep)
	for _, name := range slices.Sorted(maps.Keys(names)) { // in order, for the same seed to do the same
		child := f.afterCrash(names[name], copies, rng, keep)
		if child.dir == nil {
			child.nlink++
		}
		c.dir.live[name] = child
		c.dir.durable[name] = child
	}
	return c
}

func (f *FS) contentsAfterCrash(c, n *inode, rng *rand.Rand, keep float64) {
	size, stamp, allocated := n.durableSize, uint64(0), n.durableAllocated
	if len(n.sizes) > 0 && flip(rng, keep) {
		last := len(n.sizes) - 1
		i := last
		if keep < 1 && rng.IntN(2) == 0 {
			i = rng.IntN(len(n.sizes))
		}
		size, stamp = n.sizes[i].size, n.sizes[i].stamp
		if i == last {
			allocated = n.allocated
		}
	}
	c.size, c.durableSize = size, size
	c.allocated = slices.Clone(allocated.below(blocksOf(size)))
	for _, i := range slices.Sorted(maps.Keys(n.blocks)) {
		data := f.blockAfterCrash(n.blocks[i], stamp, rng, keep)
		if start := i * BlockSize; start+BlockSize > size && data != nil {
			data = slices.Clone(data)
			clear(data[max(0, size-start):])
		}
		if data == nil || i >= blocksOf(size) {
			continue
		}
		c.block(i).durable = data
		c.allocated.add(i)
	}
	c.durableAllocated = slices.Clone(c.allocated)
}

// blockAfterCrash picks one of the states a block may have on the medium, when
// the truncations up to stamp are there and the later ones are not.
func (f *FS) blockAfterCrash(b *block, stamp uint64, rng *rand.Rand, keep float64) []byte {
	base, newer := b.durable, b.versions
	if i := b.lastCut(stamp); i >= 0 {
		base, newer = newer[i].data, newer[i+1:]
	}
	newer = slices.DeleteFunc(slices.Clone(newer), func(v version) bool { return v.cut })
	if len(newer) == 0 {
		return base
	}
	pick := func() []byte {
		if !flip(rng, keep) {
			return base
		}
		if keep < 1 && rng.IntN(4) == 0 {
			return newer[rng.IntN(len(newer))].data
		}
		return newer[len(newer)-1].data
	}
	if !f.tear {
		return pick()
	}
	torn := bytes.Clone(base)
	if torn == nil {
		torn = make([]byte, BlockSize)
	}
	for off := 0; off < BlockSize; off += sectorSize {
		sector := torn[off : off+sectorSize]
		if from := pick(); from != nil {
			copy(sector, from[off:])
		} else {
			clear(sector)
		}
	}
	return torn
}

// flip is true with probability p; without an rng it is p ≥ 1.
func flip(rng *rand.Rand, p float64) bool {
	if rng == nil {
		return p >= 1
	}
	return rng.Float64() < p
}

// ReadFile returns what the page cache says of a file. It counts as no call
// and no fault hits it, nor does it matter that the file system is dead.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.lookup(name)
	if err == nil && (n == nil || n.dir != nil) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	data := make([]byte, n.size)
	n.readAt(data, 0)
	return data, nil
}

// ReadDir returns the names in a directory in order, as the page cache has
// them. It counts as no call, as ReadFile.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.directory(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return slices.Sorted(maps.Keys(n.dir.live)), nil
}

// WriteFile makes a file hold data, durably and under a durable name, as if it
// always had. It counts as no call and no fault hits it.
func (f *FS) WriteFile(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, n, err := f.lookup(name)
	if err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if n == nil || n.dir != nil {
		n = f.newInode(0o600)
		n.nlink, n.base = 1, base
		dir.dir.live[base] = n
	}
	dir.dir.durable[base] = n
	before := n.allocated.count()
	f.stamp++
	n.truncate(0, f.stamp)
	f.used += n.allocated.count() - before
	if w := f.write(n, data, 0); w < len(data) {
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrInvalid}
	}
	n.synced()
	return nil
}
