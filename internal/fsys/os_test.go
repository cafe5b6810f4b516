// SPDX-License-Identifier: Apache-2.0

//go:build unix

package fsys

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const createExcl = os.O_RDWR | os.O_CREATE | os.O_EXCL

func create(t *testing.T, name string) File {
	t.Helper()
	f, err := OS.OpenFile(name, createExcl, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	_, err := OS.OpenFile(name, os.O_RDWR, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)

	f := create(t, name)
	_, err = f.Pwritev([][]byte{[]byte("kept")}, 0)
	require.NoError(t, err)
	_, err = OS.OpenFile(name, createExcl, 0o600)
	require.ErrorIs(t, err, fs.ErrExist)

	again, err := OS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	info, err := again.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 4, info.Size, "opening must not truncate")
	assert.Equal(t, fs.FileMode(0o600), info.Mode)
	require.NoError(t, again.Close())
	require.ErrorIs(t, again.Close(), fs.ErrClosed)
	require.ErrorIs(t, again.Datasync(), fs.ErrClosed)

	info, err = OS.Lstat(name)
	require.NoError(t, err)
	assert.Equal(t, "a", info.Name)
}

func TestOpenFileTakesRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	create(t, target)
	name := func(n string) string { return filepath.Join(dir, n) }
	require.NoError(t, os.Symlink(target, name("symlink")))
	require.NoError(t, os.Mkdir(name("directory"), 0o700))
	require.NoError(t, unix.Mkfifo(name("pipe"), 0o600))

	for _, tc := range []struct {
		name string
		want error
	}{{"symlink", syscall.ELOOP}, {"directory", ErrNotRegular}, {"pipe", ErrNotRegular}} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := OS.OpenFile(name(tc.name), os.O_RDONLY, 0)
			require.ErrorIs(t, err, tc.want)
			assert.ErrorContains(t, err, tc.name)
		})
	}
	info, err := OS.Lstat(name("symlink"))
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSymlink, info.Mode.Type())
	_, err = OS.Lock(name("symlink"))
	require.ErrorIs(t, err, syscall.ELOOP)
}

func TestPwritevTakesMoreBuffersThanOneCall(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	var bufs [][]byte
	var want []byte
	for i := range 3*maxIovecs + 17 {
		b := bytes.Repeat([]byte{byte(i)}, i%5) // empty ones too
		bufs = append(bufs, b)
		want = append(want, b...)
	}
	n, err := f.Pwritev(bufs, 100)
	require.NoError(t, err)
	require.Equal(t, len(want), n)

	got := make([]byte, 100+len(want)+1)
	n, err = f.ReadAt(got, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 100+len(want), n)
	assert.True(t, bytes.Equal(want, got[100:n]))
	assert.Equal(t, make([]byte, 100), got[:100])

	n, err = f.Pwritev(nil, 0)
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestWriteAll(t *testing.T) {
	stop := errors.New("stop")
	bufs := [][]byte{{}, []byte("abc"), []byte("d"), {}, []byte("efgh"), {}}
	const all = "abcdefgh"
	type result struct {
		n   int // bytes taken; -1 as the system call says it
		err error
	}
	for _, tc := range []struct {
		name    string
		results []result
		want    int
		err     error
	}{
		{"at once", []result{{8, nil}}, 8, nil},
		{"byte by byte", []result{{1, nil}, {1, nil}, {1, nil}, {1, nil}, {1, nil}, {1, nil}, {1, nil}, {1, nil}}, 8, nil},
		{"inside and across", []result{{2, nil}, {3, nil}, {3, nil}}, 8, nil},
		{"interrupted", []result{{-1, syscall.EINTR}, {4, nil}, {-1, syscall.EINTR}, {4, nil}}, 8, nil},
		{"error at once", []result{{-1, stop}}, 0, stop},
		{"error later", []result{{5, nil}, {-1, stop}}, 5, stop},
		{"nothing taken", []result{{3, nil}, {0, nil}}, 3, io.ErrShortWrite},
	} {
		t.Run(tc.name, func(t *testing.T) {
			given := append([][]byte(nil), bufs...)
			var got []byte
			calls := 0
			n, err := writeAll(given, 10, func(b [][]byte, off int64) (int, error) {
				require.Less(t, calls, len(tc.results), "one call too many")
				require.EqualValues(t, 10+len(got), off)
				r := tc.results[calls]
				calls++
				if r.n > 0 {
					got = append(got, bytes.Join(b, nil)[:r.n]...)
				}
				return r.n, r.err
			})
			require.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.want, n)
			assert.Equal(t, all[:tc.want], string(got))
			assert.Equal(t, len(tc.results), calls)
			assert.Equal(t, bufs, given, "the caller's slice was changed")
		})
	}
}

func TestAllocateTruncateSeekData(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "a"))
	const size = 1 << 20
	if err := f.Allocate(0, size); !errors.Is(err, syscall.EOPNOTSUPP) {
		require.NoError(t, err)
		info, err := f.Stat()
		require.NoError(t, err)
		assert.EqualValues(t, size, info.Size)
		assert.GreaterOrEqual(t, info.Blocks, int64(size))
	}
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Truncate(size)) // a hole, where holes exist
	_, err := f.Pwritev([][]byte{[]byte("x")}, size/2)
	require.NoError(t, err)
	require.NoError(t, f.Datasync())

	off, err := f.SeekData(0)
	require.NoError(t, err)
	assert.LessOrEqual(t, off, int64(size/2), "data was passed over")
	off, err = f.SeekData(size / 2)
	require.NoError(t, err)
	assert.EqualValues(t, size/2, off)
	_, err = f.SeekData(size)
	require.ErrorIs(t, err, io.EOF)

	require.NoError(t, f.StartWriteback(0, size))
	require.NoError(t, f.Truncate(3))
	info, err := f.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 3, info.Size)
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	name := func(n string) string { return filepath.Join(dir, n) }
	create(t, name("b"))
	create(t, name("a"))
	require.NoError(t, OS.Mkdir(name("c"), 0o700))
	require.ErrorIs(t, OS.Mkdir(name("c"), 0o700), fs.ErrExist)

	infos, err := OS.List(dir)
	require.NoError(t, err)
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	assert.Equal(t, []string{"a", "b", "c"}, names)
	assert.True(t, infos[2].Mode.IsDir())
	assert.NotEqual(t, infos[0].Ino, infos[1].Ino)

	err = OS.RenameNoReplace(name("a"), name("b"))
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorIs(t, OS.RenameNoReplace(name("none"), name("z")), fs.ErrNotExist)
	require.NoError(t, OS.RenameNoReplace(name("a"), name("d")))
	_, err = OS.Lstat(name("a"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, OS.Link(name("d"), name("e")))
	require.ErrorIs(t, OS.Link(name("d"), name("e")), fs.ErrExist)
	d, err := OS.Lstat(name("d"))
	require.NoError(t, err)
	e, err := OS.Lstat(name("e"))
	require.NoError(t, err)
	assert.Equal(t, [2]uint64{d.Dev, d.Ino}, [2]uint64{e.Dev, e.Ino})
	assert.EqualValues(t, 2, e.Nlink)

	require.NoError(t, OS.Rename(name("e"), name("b")))
	b, err := OS.Lstat(name("b"))
	require.NoError(t, err)
	assert.Equal(t, d.Ino, b.Ino)
	require.NoError(t, OS.Unlink(name("b")))
	require.ErrorIs(t, OS.Unlink(name("b")), fs.ErrNotExist)
	require.Error(t, OS.Unlink(name("c")), "a directory is no file")

	require.NoError(t, OS.SyncDir(dir))
	require.Error(t, OS.SyncDir(name("d")))
	require.ErrorIs(t, OS.SyncDir(name("none")), fs.ErrNotExist)

	free, total, err := OS.Statfs(dir)
	require.NoError(t, err)
	assert.NotZero(t, total)
	assert.LessOrEqual(t, free, total)
	_, _, err = OS.Statfs(name("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

type namesOnly struct {
	FS
	do func(call string) error
}

func (f namesOnly) Link(o, n string) error { return f.do("link " + o + " " + n) }
func (f namesOnly) Unlink(n string) error  { return f.do("unlink " + n) }

func TestLinkThenUnlink(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails []string // link, then unlink of the old, then of the new name
		calls []string
	}{
		{"both", nil, []string{"link old new", "unlink old"}},
		{"no link", []string{"link old new"}, []string{"link old new"}},
		{"no unlink", []string{"unlink old"}, []string{"link old new", "unlink old", "unlink new"}},
		{"no undo", []string{"unlink old", "unlink new"}, []string{"link old new", "unlink old", "unlink new"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls []string
			do := func(call string) error {
				calls = append(calls, call)
				for _, f := range tc.fails {
					if f == call {
						return syscall.EIO
					}
				}
				return nil
			}
			err := LinkThenUnlink(namesOnly{do: do}, "old", "new")
			assert.Equal(t, len(tc.fails) > 0, errors.Is(err, syscall.EIO), "got %v", err)
			assert.Equal(t, tc.calls, calls)
		})
	}
}

func TestLockIsExclusiveInsideOneProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	l, err := OS.Lock(name)
	require.NoError(t, err)
	_, err = l.File().Pwritev([][]byte{[]byte("pid")}, 0)
	require.NoError(t, err)

	_, err = OS.Lock(name)
	require.ErrorIs(t, err, ErrLocked)
	assert.ErrorContains(t, err, name)

	require.NoError(t, l.Unlock())
	l, err = OS.Lock(name)
	require.NoError(t, err)
	info, err := l.File().Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 3, info.Size, "locking must not truncate")

	require.NoError(t, os.Remove(name))
	_, err = OS.Lock(name)
	require.ErrorIs(t, err, ErrLocked, "the directory remembers")
	assert.NoFileExists(t, name)
	require.NoError(t, l.Unlock())
	l, err = OS.Lock(name)
	require.NoError(t, err)
	require.NoError(t, l.Unlock())
}
