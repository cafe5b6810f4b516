// SPDX-License-Identifier: Apache-2.0

// Package crashfs is a file system in memory that can lose power.
//
// It keeps two things apart that a process cannot tell apart: what the page
// cache says, which every call sees, and what the medium holds, which only
// [FS.Crash] shows. Power loss is as hard on a log as a sane
// file system can make it:
//
//   - A file's bytes are lost or kept in blocks of 4 KiB, each for itself, and
//     an unsynced block may hold any of the states it went through since it
//     was last durable. In a file that grew, a lost block is a hole of zeros.
//   - A file's size is one of those it had since it was last durable. A
//     truncation that survived took the bytes with it.
//   - Datasync makes the bytes, the size and the allocated blocks durable, and
//     no name. A Datasync that fails makes the dirty blocks clean and writes
//     nothing: only another write to them, not another Datasync, can save them.
//   - Names are durable after SyncDir, else each change is lost or kept for
//     itself, except that a change to a name needs all earlier changes to that
//     name. A rename is one change to two names. A SyncDir that fails leaves
//     its names as a failed Datasync leaves its blocks: only a name changed
//     anew is written by the next one.
//   - [FS.Kill] is kill -9: the page cache, with what is dirty in it and what
//     is not, survives; handles and locks do not.
//
// A volume has a size; blocks are taken when they are written first or
// allocated, and given back when a file has neither name nor handle.
//
// Faults, traces and the end of the world are in [FS.Inject], [FS.StartTrace]
// and [FS.StopAt]. Nothing in the package is for anything but tests.
package crashfs // import "github.com/otelweir/weir/internal/fsys/crashfs"

import (
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/otelweir/weir/internal/fsys"
)

// BlockSize is the unit in which bytes are lost and volumes are filled.
const BlockSize = 4096

var _ fsys.FS = (*FS)(nil)

// FS is a crashable file system; it implements [fsys.FS]. It begins with an
// empty, durable root directory "/"; relative names begin there too.
type FS struct {
	mu sync.Mutex // guards everything below, every inode and every handle

	root    *inode
	nextIno uint64
	total   uint64 // bytes of the volume
	used    int64  // blocks
	handles map[*handle]struct{}
	stamp   uint64 // the order of changes to inodes
	tear    bool
	twoStep bool

	dead   bool
	calls  int // made so far, counted before they are refused
	byOp   map[Op]int
	stopAt int // index of the first call that fails for ever; -1 = never
	faults []*activeFault
	hook   func(Call)
	traced bool
	trace  []Call
}

// New returns an empty file system on a volume of total bytes; 0 is a volume
// that is never full.
func New(total uint64) *FS {
	f := &FS{stopAt: -1, byOp: map[Op]int{}, handles: map[*handle]struct{}{}, nextIno: 1}
	f.setVolume(total)
	f.root = f.newInode(fs.ModeDir | 0o755)
	return f
}

// SetVolume makes the volume total bytes large; below what is used it is full.
func (f *FS) SetVolume(total uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setVolume(total)
}

func (f *FS) setVolume(total uint64) {
	if total == 0 {
		total = math.MaxInt64
	}
	f.total = total
}

// Used is the bytes of all allocated blocks.
func (f *FS) Used() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(f.used) * BlockSize
}

// OpenFiles is the names of the files that are open, in order, once per handle:
// what a closed log left open is a leak.
func (f *FS) OpenFiles() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for h := range f.handles {
		names = append(names, h.name)
	}
	slices.Sort(names)
	return names
}

// freeBlocks is how many blocks can still be allocated.
func (f *FS) freeBlocks() int64 { return max(0, int64(f.total/BlockSize)-f.used) }

func (f *FS) newInode(mode fs.FileMode) *inode {
	n := &inode{ino: f.nextIno, mode: mode}
	f.nextIno++
	if mode.IsDir() {
		n.dir = newDirectory()
		n.nlink = 1
	}
	return n
}

// lookup finds the directory of name and the inode under it, nil if there is
// none.
func (f *FS) lookup(name string) (dir *inode, base string, n *inode, err error) {
	clean := path.Clean("/" + filepath.ToSlash(name))
	if clean == "/" {
		return f.root, "", f.root, nil
	}
	dir = f.root
	parent, base := path.Split(clean)
	for elem := range strings.SplitSeq(strings.Trim(parent, "/"), "/") {
		if elem == "" {
			continue
		}
		next := dir.dir.live[elem]
		if next == nil {
			return nil, "", nil, syscall.ENOENT
		}
		if next.dir == nil {
			return nil, "", nil, syscall.ENOTDIR
		}
		dir = next
	}
	return dir, base, dir.dir.live[base], nil
}

// OpenFile implements [fsys.FS].
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	h, err := f.open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (f *FS) open(name string, flag int, perm fs.FileMode) (h *handle, err error) {
	op := OpOpen
	if flag&os.O_CREATE != 0 {
		op = OpCreate
	}
	err = f.call(Call{Op: op, Name: name}, func(*outcome) error {
		var err error
		h, err = f.openLocked(name, flag, perm)
		return err
	})
	return h, err
}

func (f *FS) openLocked(name string, flag int, perm fs.FileMode) (*handle, error) {
	dir, base, n, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, syscall.ENOENT
	case n == nil:
		n = f.newInode(perm.Perm())
		f.change(dir, entry{base, n})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, syscall.EEXIST
	case n.mode.Type() == fs.ModeSymlink:
		return nil, syscall.ELOOP
	case n.dir != nil:
		return nil, fsys.ErrNotRegular
	}
	n.handles++
	h := &handle{fs: f, n: n, name: name, writable: flag&(os.O_RDWR|os.O_WRONLY) != 0}
	f.handles[h] = struct{}{}
	return h, nil
}

// List implements [fsys.FS].
func (f *FS) List(dir string) (infos []fsys.Info, err error) {
	err = f.call(Call{Op: OpList, Name: dir}, func(*outcome) error {
		n, err := f.directory(dir)
		if err != nil {
			return err
		}
		for name, child := range n.dir.live {
			infos = append(infos, child.info(name))
		}
		slices.SortFunc(infos, func(a, b fsys.Info) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return infos, err
}

func (f *FS) directory(name string) (*inode, error) {
	_, _, n, err := f.lookup(name)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, syscall.ENOENT
	case n.dir == nil:
		return nil, syscall.ENOTDIR
	}
	return n, nil
}

// Lstat implements [fsys.FS].
func (f *FS) Lstat(name string) (info fsys.Info, err error) {
	err = f.call(Call{Op: OpLstat, Name: name}, func(*outcome) error {
		_, base, n, err := f.lookup(name)
		if err != nil {
			return err
		}
		if n == nil {
			return syscall.ENOENT
		}
		info = n.info(base)
		return nil
	})
	return info, err
}

// Mkdir implements [fsys.FS].
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.add(Call{Op: OpMkdir, Name: name}, fs.ModeDir|perm.Perm())
}

// Symlink makes name a symbolic link to somewhere.
func (f *FS) Symlink(name string) error {
	return f.add(Call{Op: OpCreate, Name: name}, fs.ModeSymlink|0o777)
}

func (f *FS) add(c Call, mode fs.FileMode) error {
	return f.call(c, func(*outcome) error {
		dir, base, n, err := f.lookup(c.Name)
		if err != nil {
			return err
		}
		if n != nil {
			return syscall.EEXIST
		}
		f.change(dir, entry{base, f.newInode(mode)})
		return nil
	})
}

// Rename implements [fsys.FS].
func (f *FS) Rename(oldName, newName string) error {
	return f.rename(OpRename, oldName, newName)
}

// RenameNoReplace implements [fsys.FS].
func (f *FS) RenameNoReplace(oldName, newName string) error {
	f.mu.Lock()
	twoStep := f.twoStep
	f.mu.Unlock()
	if twoStep {
		return fsys.LinkThenUnlink(f, oldName, newName)
	}
	return f.rename(OpRenameNoReplace, oldName, newName)
}

// RenameInTwoSteps makes RenameNoReplace a link and an unlink, as on a file
// system that knows no better. It outlasts crashes.
func (f *FS) RenameInTwoSteps(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.twoStep = on
}

// rename keeps to files within one directory: the log needs no other.
func (f *FS) rename(op Op, oldName, newName string) error {
	return f.call(Call{Op: op, Name: oldName, NewName: newName}, func(*outcome) error {
		oldDir, oldBase, n, err := f.lookup(oldName)
		if err != nil {
			return err
		}
		newDir, newBase, old, err := f.lookup(newName)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case op == OpRenameNoReplace && old != nil:
			return syscall.EEXIST
		case old == n:
			return nil
		case oldDir != newDir, n.dir != nil, old != nil && old.dir != nil:
			return syscall.EXDEV
		}
		f.change(oldDir, entry{oldBase, nil}, entry{newBase, n})
		return nil
	})
}

// Link implements [fsys.FS].
func (f *FS) Link(oldName, newName string) error {
	return f.call(Call{Op: OpLink, Name: oldName, NewName: newName}, func(*outcome) error {
		_, _, n, err := f.lookup(oldName)
		if err != nil {
			return err
		}
		dir, base, old, err := f.lookup(newName)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case old != nil:
			return syscall.EEXIST
		case n.dir != nil:
			return syscall.EPERM
		}
		f.change(dir, entry{base, n})
		return nil
	})
}

// Unlink implements [fsys.FS].
func (f *FS) Unlink(name string) error {
	return f.call(Call{Op: OpUnlink, Name: name}, func(*outcome) error {
		dir, base, n, err := f.lookup(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case n.dir != nil:
			return syscall.EISDIR
		}
		f.change(dir, entry{base, nil})
		return nil
	})
}

// change makes changes to one directory as one.
func (f *FS) change(dir *inode, changes ...entry) {
	var replaced []*inode
	for _, e := range changes {
		if old := dir.dir.live[e.name]; old != nil {
			old.nlink--
			replaced = append(replaced, old)
		}
		set(dir.dir.live, e)
		if e.n != nil {
			e.n.nlink++
			e.n.base = e.name
		}
	}
	for _, old := range replaced {
		f.release(old)
	}
	dir.dir.pending = append(dir.dir.pending, change{entries: changes})
}

// release gives the blocks of a file back that nothing refers to any more.
// Its contents stay in memory: a lost unlink brings them back.
func (f *FS) release(n *inode) {
	if n.nlink == 0 && n.handles == 0 && !n.freed {
		n.freed = true
		f.used -= n.allocated.count()
	}
}

// SyncDir implements [fsys.FS].
func (f *FS) SyncDir(dir string) error {
	return f.call(Call{Op: OpSyncDir, Name: dir}, func(out *outcome) error {
		n, err := f.directory(dir)
		if err != nil {
			return err
		}
		switch {
		case out.lie:
		case out.err != nil:
			n.dir.syncFailed()
		default:
			n.dir.synced()
		}
		return out.err
	})
}

// Statfs implements [fsys.FS].
func (f *FS) Statfs(dir string) (free, total uint64, err error) {
	err = f.call(Call{Op: OpStatfs, Name: dir}, func(*outcome) error {
		if _, err := f.directory(dir); err != nil {
			return err
		}
		free, total = uint64(f.freeBlocks())*BlockSize, f.total
		return nil
	})
	return free, total, err
}

// Lock implements [fsys.FS].
func (f *FS) Lock(name string) (l fsys.Lock, err error) {
	err = f.call(Call{Op: OpLock, Name: name}, func(*outcome) error {
		dir, _, _, err := f.lookup(name)
		if err != nil {
			return err
		}
		if dir.locked {
			return fsys.ErrLocked
		}
		h, err := f.openLocked(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		dir.locked = true
		l = lock{dir, h}
		return nil
	})
	return l, err
}

type lock struct {
	dir *inode
	h   *handle
}

func (l lock) File() fsys.File { return l.h }

func (l lock) Unlock() error {
	return l.h.call(Call{Op: OpUnlock}, func(*outcome) error {
		l.dir.locked = false
		l.h.close()
		return nil
	})
}

// handle is an open file.
type handle struct {
	fs       *FS
	n        *inode
	name     string
	writable bool
	closed   bool
}

// call runs fn as a call on an open file, under the name the file has now:
// faults and traces are to tell the header of a prepared segment from the
// frames of an installed one, which come through the same handle.
func (h *handle) call(c Call, fn func(*outcome) error) error {
	h.fs.mu.Lock()
	c.Name = path.Join(path.Dir(filepath.ToSlash(h.name)), h.n.base)
	h.fs.mu.Unlock()
	return h.fs.call(c, func(out *outcome) error {
		if h.closed {
			return fs.ErrClosed
		}
		if c.Op&Mutating != 0 && c.Op != OpDatasync && !h.writable {
			return syscall.EBADF
		}
		return fn(out)
	})
}

func (h *handle) close() {
	h.closed = true
	delete(h.fs.handles, h)
	h.n.handles--
	h.fs.release(h.n)
}

func (h *handle) ReadAt(p []byte, off int64) (n int, err error) {
	err = h.call(Call{Op: OpRead, Off: off, Len: int64(len(p))}, func(*outcome) error {
		if off < 0 {
			return syscall.EINVAL
		}
		n = h.n.readAt(p, off)
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (h *handle) Pwritev(bufs [][]byte, off int64) (n int, err error) {
	var size int64
	for _, b := range bufs {
		size += int64(len(b))
	}
	err = h.call(Call{Op: OpWrite, Off: off, Len: size}, func(out *outcome) error {
		if off < 0 {
			return syscall.EINVAL
		}
		for _, b := range bufs {
			if out.err != nil {
				b = b[:min(int64(len(b)), max(0, out.bytes-int64(n)))]
			}
			w := h.fs.write(h.n, b, off+int64(n))
			n += w
			if w < len(b) {
				return syscall.ENOSPC
			}
		}
		return out.err
	})
	return n, err
}

// write writes as much of p as the volume has room for.
func (f *FS) write(n *inode, p []byte, off int64) int {
	written := 0
	for written < len(p) {
		pos := off + int64(written)
		b := pos / BlockSize
		if !n.allocated.has(b) {
			if f.freeBlocks() == 0 {
				break
			}
			n.allocated.add(b)
			f.used++
		}
		step := min(len(p)-written, int(BlockSize-pos%BlockSize))
		f.stamp++
		n.write(p[written:written+step], pos, f.stamp)
		written += step
	}
	return written
}

func (h *handle) Datasync() error {
	return h.call(Call{Op: OpDatasync}, func(out *outcome) error {
		switch {
		case out.lie:
		case out.err != nil:
			h.n.syncFailed()
		default:
			h.n.synced()
		}
		return out.err
	})
}

func (h *handle) StartWriteback(off, n int64) error {
	return h.call(Call{Op: OpWriteback, Off: off, Len: n}, func(*outcome) error { return nil })
}

func (h *handle) Allocate(off, n int64) error {
	return h.call(Call{Op: OpAllocate, Off: off, Len: n}, func(*outcome) error {
		if off < 0 || n <= 0 {
			return syscall.EINVAL
		}
		first, last := off/BlockSize, (off+n-1)/BlockSize
		var missing int64
		for b := first; b <= last; b++ {
			if !h.n.allocated.has(b) {
				missing++
			}
		}
		if missing > h.fs.freeBlocks() {
			return syscall.ENOSPC
		}
		for b := first; b <= last; b++ {
			h.n.allocated.add(b)
		}
		h.fs.used += missing
		h.fs.stamp++
		h.n.resize(max(h.n.size, off+n), h.fs.stamp)
		return nil
	})
}

func (h *handle) Truncate(size int64) error {
	return h.call(Call{Op: OpTruncate, Len: size}, func(*outcome) error {
		if size < 0 {
			return syscall.EINVAL
		}
		before := h.n.allocated.count()
		h.fs.stamp++
		h.n.truncate(size, h.fs.stamp)
		h.fs.used += h.n.allocated.count() - before
		return nil
	})
}

func (h *handle) SeekData(off int64) (data int64, err error) {
	err = h.call(Call{Op: OpSeekData, Off: off}, func(*outcome) error {
		var ok bool
		if data, ok = h.n.seekData(off); !ok {
			return io.EOF
		}
		return nil
	})
	return data, err
}

func (h *handle) Stat() (info fsys.Info, err error) {
	err = h.call(Call{Op: OpStat}, func(*outcome) error {
		info = h.n.info(h.n.base)
		return nil
	})
	return info, err
}

func (h *handle) Close() error {
	return h.call(Call{Op: OpClose}, func(*outcome) error {
		h.close()
		return nil
	})
}
