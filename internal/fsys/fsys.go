// SPDX-License-Identifier: Apache-2.0

// Package fsys is the file-system seam: what the log needs of an operating
// system, and nothing else. [OS] is the real one; package crashfs is a memory
// file system that can fail any call and lose power at any call.
//
// Nothing here makes anything durable by itself: a file's bytes are durable
// after Datasync, a name (created, renamed, linked or unlinked) after SyncDir
// of its directory.
package fsys // import "github.com/otelweir/weir/internal/fsys"

import (
	"errors"
	"io/fs"
)

// ErrLocked says that somebody holds the lock asked for.
var ErrLocked = errors.New("locked")

// FS is a file system. Errors are *fs.PathError or *os.LinkError around a
// syscall.Errno, so errors.Is(err, fs.ErrNotExist) and errors.Is(err,
// syscall.ENOSPC) work. Implementations are safe for concurrent use.
type FS interface {
	// OpenFile opens name; flag is of os.O_RDONLY, O_RDWR, O_CREATE, O_EXCL.
	// It never follows a symbolic link in the last element and never truncates.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// List returns the entries of a directory, sorted by name.
	List(dir string) ([]Info, error)
	// Lstat does not follow a symbolic link.
	Lstat(name string) (Info, error)
	// Mkdir makes one directory; an existing one is fs.ErrExist.
	Mkdir(name string, perm fs.FileMode) error
	// Rename replaces newName.
	Rename(oldName, newName string) error
	// RenameNoReplace fails with fs.ErrExist when newName exists. Where the
	// file system cannot do it atomically it links and then unlinks, so power
	// loss may leave both names of the one file.
	RenameNoReplace(oldName, newName string) error
	Link(oldName, newName string) error
	Unlink(name string) error
	// SyncDir makes the names in dir durable, through a descriptor opened
	// anew. EINVAL and ENOTSUP mean the file system cannot.
	SyncDir(dir string) error
	// Statfs returns the bytes free for this process (without what is kept
	// for the superuser) and the size of the volume that holds dir.
	Statfs(dir string) (free, total uint64, err error)
	// Lock takes the exclusive advisory lock of a directory, which is on the
	// file name in it, created if need be, and where the file system can on
	// the directory too, so that it outlives the name. A lock held by anybody,
	// this process included, is ErrLocked.
	Lock(name string) (Lock, error)
}

// File is an open file. Reads and writes are positional; one writer and any
// number of readers may use it at once.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	// Pwritev writes the buffers one after another from off, never modifies
	// them, and splits calls of more than 1024 buffers. n < the sum of the
	// lengths comes with an error.
	Pwritev(bufs [][]byte, off int64) (n int, err error)
	// Datasync is fdatasync. After an error nothing is known about any byte
	// written since the last success, and a later success proves nothing.
	Datasync() error
	// StartWriteback is sync_file_range(SYNC_FILE_RANGE_WRITE): a hint, never
	// durability. Where it does not exist it does nothing.
	StartWriteback(off, n int64) error
	// Allocate reserves blocks for [off, off+n) and extends the file's size;
	// EOPNOTSUPP where the file system cannot.
	Allocate(off, n int64) error
	Truncate(size int64) error
	// SeekData returns the first offset ≥ off that may hold data, or io.EOF
	// when only a hole follows. Where it is not supported it returns off.
	SeekData(off int64) (int64, error)
	Stat() (Info, error)
	Close() error
}

// Info describes a file. Dev and Ino tell whether two names are one file.
type Info struct {
	Name     string // base name
	Size     int64
	Blocks   int64 // allocated bytes, as du counts
	Mode     fs.FileMode
	Dev, Ino uint64
	Nlink    uint64
}

// Lock is a held lock. File is the locked file, for writing who holds it.
type Lock interface {
	File() File
	Unlock() error
}

// LinkThenUnlink is RenameNoReplace for a file system that has none, in two
// steps. When the second fails the first is taken back, so that an error means
// "not renamed"; only when that fails too, or the machine stops in between,
// both names stay.
func LinkThenUnlink(f FS, oldName, newName string) error {
	if err := f.Link(oldName, newName); err != nil {
		return err
	}
	if err := f.Unlink(oldName); err != nil {
		return errors.Join(err, f.Unlink(newName))
	}
	return nil
}
