// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
)

// TestOnTheRealFileSystem: what the other tests do in memory holds on the file
// system of this machine: append, rotate, reclaim, reopen, a second opener, a
// directory that appears, sizes as du tells them.
func TestOnTheRealFileSystem(t *testing.T) {
	for _, preallocate := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "a", "b", "wal")
		w := newWorld(41)
		w.cfg.Directory = dir
		w.cfg.Preallocate = preallocate
		w.cfg.Now = time.Now
		open := func() Recovery {
			j, rec, err := Open(fsys.OS, w.cfg)
			require.NoError(t, err)
			w.j = j
			return rec
		}
		open()
		for range 4 {
			for range 6 {
				w.mustAppend(t, 3)
			}
			require.NoError(t, w.rotateNow())
		}
		w.mustAppend(t, 3)
		_, _, err := Open(fsys.OS, w.cfg)
		require.ErrorIs(t, err, fsys.ErrLocked)
		require.ErrorContains(t, err, "which is this process: another otlp_wal of it has the directory")
		lock := filepath.Join(dir, lockName)
		require.NoError(t, os.WriteFile(lock, []byte("pid 7 on elsewhere since long ago\n"), 0o600))
		_, _, err = Open(fsys.OS, w.cfg)
		require.ErrorContains(t, err, "locked by pid 7 on elsewhere since long ago: only one process can have a log open; stop that one, or use another directory")

		frames, err := w.read(w.j)
		require.NoError(t, err)
		require.Len(t, frames, 75)
		for i := range frames {
			_, err := w.known(&frames[i])
			require.NoError(t, err)
		}
		settled := map[Lane]Position{}
		for _, l := range testLanes {
			settled[l] = w.j.Segments()[2].Base
		}
		require.NoError(t, w.stamp(settled))
		require.Equal(t, 2, w.pass(10))
		w.j.tasks.Wait()
		require.NoError(t, w.j.Stamp(nil)) // measures the directory
		assert.Equal(t, du(t, dir), w.j.Stats().Disk)
		require.NoError(t, w.j.Close())

		rec := open()
		assert.EqualValues(t, 75-2*18, rec.Frames)
		assert.Zero(t, rec.TruncatedBytes+rec.QuarantinedBytes)
		w.mustAppend(t, 1)
		require.NoError(t, w.j.Close())
		require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			want := fs.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			assert.Equal(t, want, info.Mode().Perm(), name)
			return nil
		}))
	}
}

func du(t *testing.T, dir string) (total uint64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		info, err := os.Lstat(name)
		require.NoError(t, err)
		total += uint64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		return nil
	}))
	return total
}
