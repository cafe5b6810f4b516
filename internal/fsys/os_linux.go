// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

func renameNoReplace(oldName, newName string) error {
	return retryEINTR(func() error {
		return unix.Renameat2(unix.AT_FDCWD, oldName, unix.AT_FDCWD, newName, unix.RENAME_NOREPLACE)
	})
}

func pwritev(fd int, bufs [][]byte, off int64) (int, error) { return unix.Pwritev(fd, bufs, off) }

func (f *osFile) Datasync() error {
	return f.pathError("fdatasync", f.control(func(fd int) error {
		return retryEINTR(func() error { return unix.Fdatasync(fd) })
	}))
}

func (f *osFile) StartWriteback(off, n int64) error {
	err := f.control(func(fd int) error {
		return retryEINTR(func() error { return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE) })
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return f.pathError("sync_file_range", err)
}

func (f *osFile) Allocate(off, n int64) error {
	err := f.control(func(fd int) error {
		err := unix.Fallocate(fd, 0, off, n)
		for i := 0; i < maxInterrupted && errors.Is(err, unix.EINTR); i++ {
			err = unix.Fallocate(fd, 0, off, n)
		}
		return err
	})
	if errors.Is(err, unix.ENOSYS) {
		err = unix.EOPNOTSUPP
	}
	return f.pathError("fallocate", err)
}

func (f *osFile) SeekData(off int64) (int64, error) {
	data := off
	err := f.control(func(fd int) error {
		var err error
		data, err = unix.Seek(fd, off, unix.SEEK_DATA)
		return err
	})
	switch {
	case errors.Is(err, unix.ENXIO): // only a hole, or nothing, follows
		return 0, io.EOF
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, nil
	case err != nil:
		return 0, f.pathError("seek", err)
	}
	return data, nil
}

// statfsUnit is the unit of the block counts.
func statfsUnit(st *unix.Statfs_t) uint64 {
	if st.Frsize > 0 {
		return uint64(st.Frsize)
	}
	return uint64(st.Bsize)
}
