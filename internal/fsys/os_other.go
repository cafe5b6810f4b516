// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package fsys

import (
	"io"

	"golang.org/x/sys/unix"
)

// What Linux has and the others lack or spell differently. Correct, not fast:
// a log in production runs on Linux.

func renameNoReplace(string, string) error { return unix.ENOSYS }

func pwritev(fd int, bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		n, err := unix.Pwrite(fd, b, off+int64(total))
		if n > 0 {
			total += n
		}
		if err != nil && total > 0 {
			return total, nil // the next call meets the error again
		}
		if err != nil || n < len(b) {
			return total, err
		}
	}
	return total, nil
}

// Datasync is F_FULLFSYNC on Darwin, where fsync stops at the drive's cache,
// and fsync elsewhere.
func (f *osFile) Datasync() error { return f.f.Sync() }

func (f *osFile) StartWriteback(int64, int64) error { return nil }

func (f *osFile) Allocate(int64, int64) error { return f.pathError("fallocate", unix.EOPNOTSUPP) }

func (f *osFile) SeekData(off int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if off >= info.Size {
		return 0, io.EOF
	}
	return off, nil
}

func statfsUnit(st *unix.Statfs_t) uint64 { return uint64(st.Bsize) }
