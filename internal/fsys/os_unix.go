// SPDX-License-Identifier: Apache-2.0

//go:build unix

package fsys

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
//
// It keeps no state of its own, and no file opened by it follows a symbolic
// link in the last element of its name, is inherited by a child process, or
// is anything but a regular file.
var OS FS = osFS{}

// ErrNotRegular is what opening a directory, a device, a pipe or a socket
// under a log's name ends in; a symbolic link is ELOOP.
var ErrNotRegular = errors.New("not a regular file")

// maxIovecs is IOV_MAX, the number of buffers Linux and Darwin take in one
// call.
const maxIovecs = 1024

// maxInterrupted bounds the retries of a fallocate a signal interrupted: some
// file systems start again from nothing each time, so it need not ever end.
const maxInterrupted = 64

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := openRegular(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openRegular opens with O_NONBLOCK, which means nothing to a regular file
// and keeps a pipe under the name from blocking the open for ever.
func openRegular(name string, flag int, perm fs.FileMode) (*osFile, error) {
	f, err := os.OpenFile(name, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{f: f}, nil
}

func (osFS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // unlinked since the directory was read
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, infoOf(fi))
	}
	return infos, nil
}

func (osFS) Lstat(name string) (Info, error) {
	fi, err := os.Lstat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

func (o osFS) RenameNoReplace(oldName, newName string) error {
	err := renameNoReplace(oldName, newName)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		return LinkThenUnlink(o, oldName, newName)
	}
	return &os.LinkError{Op: "renamenoreplace", Old: oldName, New: newName, Err: err}
}

func (osFS) Link(oldName, newName string) error { return os.Link(oldName, newName) }

func (osFS) Unlink(name string) error {
	return pathError("unlink", name, retryEINTR(func() error { return unix.Unlink(name) }))
}

func (osFS) SyncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Statfs(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	err = retryEINTR(func() error { return unix.Statfs(dir, &st) })
	if err != nil {
		return 0, 0, pathError("statfs", dir, err)
	}
	unit := statfsUnit(&st)
	return uint64(st.Bavail) * unit, st.Blocks * unit, nil //nolint:unconvert // signed on some systems
}

func (osFS) Lock(name string) (Lock, error) {
	dir, err := os.OpenFile(filepath.Dir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l := osLock{dir: &osFile{f: dir}}
	// Only "held" counts: NFS, for one, cannot lock what is open for reading.
	if err := l.dir.flock(); errors.Is(err, ErrLocked) {
		return nil, errors.Join(pathError("lock", name, err), l.Unlock())
	}
	l.f, err = openRegular(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	if err := l.f.flock(); err != nil {
		return nil, errors.Join(pathError("lock", name, err), l.Unlock())
	}
	return l, nil
}

// osLock is two flocks. The file's is the one that every file system has; the
// directory's holds when somebody deletes the file. A flock belongs to the
// open file description: a second open in the same process does not share it,
// a close gives it up.
type osLock struct{ dir, f *osFile }

func (l osLock) File() File { return l.f }

func (l osLock) Unlock() error {
	var err error
	if l.f != nil {
		err = l.f.Close()
	}
	return errors.Join(err, l.dir.Close())
}

// osFile is an *os.File used by position only: its file offset means nothing.
type osFile struct{ f *os.File }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

func (f *osFile) Truncate(size int64) error { return f.f.Truncate(size) }

func (f *osFile) Close() error { return f.f.Close() }

func (f *osFile) Stat() (Info, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func (f *osFile) Pwritev(bufs [][]byte, off int64) (int, error) {
	n := 0
	err := f.control(func(fd int) error {
		var err error
		n, err = writeAll(bufs, off, func(bufs [][]byte, off int64) (int, error) { return pwritev(fd, bufs, off) })
		return err
	})
	return n, f.pathError("pwritev", err)
}

// writeAll calls write until every byte of bufs is written, with at most
// maxIovecs buffers a call, going on after a short write and an interrupted
// one. It changes neither the bytes nor the slice it was given.
func writeAll(bufs [][]byte, off int64, write func([][]byte, int64) (int, error)) (total int, err error) {
	var batch [][]byte
	head := 0 // bytes of bufs[0] already written
	for {
		for len(bufs) > 0 && head == len(bufs[0]) {
			bufs, head = bufs[1:], 0
		}
		if len(bufs) == 0 {
			return total, nil
		}
		next := bufs[:min(len(bufs), maxIovecs)]
		if head > 0 {
			batch = append(append(batch[:0], next[0][head:]), next[1:]...)
			next = batch
		}
		n, err := write(next, off)
		if errors.Is(err, unix.EINTR) {
			err = nil // n is 0: the kernel reports what it wrote rather than the signal
		} else if err == nil && n <= 0 {
			err = io.ErrShortWrite
		}
		if n > 0 {
			total += n
			off += int64(n)
		}
		if err != nil {
			return total, err
		}
		for n > 0 {
			step := min(n, len(bufs[0])-head)
			n -= step
			head += step
			if head == len(bufs[0]) {
				bufs, head = bufs[1:], 0
			}
		}
	}
}

// control runs fn with the descriptor, which stays open meanwhile.
func (f *osFile) control(fn func(fd int) error) error {
	conn, err := f.f.SyscallConn()
	if err != nil {
		return err
	}
	var fnErr error
	if conn.Control(func(fd uintptr) { fnErr = fn(int(fd)) }) != nil {
		return fs.ErrClosed // the only reason not to run fn
	}
	return fnErr
}

func (f *osFile) flock() error {
	err := f.control(func(fd int) error {
		return retryEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	})
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func (f *osFile) pathError(op string, err error) error { return pathError(op, f.f.Name(), err) }

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func retryEINTR(fn func() error) error {
	for {
		if err := fn(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func infoOf(fi fs.FileInfo) Info {
	info := Info{Name: fi.Name(), Size: fi.Size(), Mode: fi.Mode()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.Blocks = st.Blocks * 512 // st_blocks counts 512-byte units everywhere
		info.Dev = uint64(st.Dev)     //nolint:unconvert // narrower on some systems
		info.Ino = st.Ino
		info.Nlink = uint64(st.Nlink) //nolint:unconvert // narrower on some systems
	}
	return info
}
