// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
)

const createExcl = os.O_RDWR | os.O_CREATE | os.O_EXCL

func create(t *testing.T, f *FS, name string) fsys.File {
	t.Helper()
	file, err := f.OpenFile(name, createExcl, 0o600)
	require.NoError(t, err)
	return file
}

// durable makes an empty file under a durable name.
func durable(t *testing.T, f *FS, name string) fsys.File {
	t.Helper()
	file := create(t, f, name)
	require.NoError(t, f.SyncDir(path.Dir(name)))
	return file
}

func write(t *testing.T, file fsys.File, off int64, p ...[]byte) {
	t.Helper()
	_, err := file.Pwritev(p, off)
	require.NoError(t, err)
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// names is what the root directory lists.
func names(t *testing.T, f *FS) string {
	t.Helper()
	infos, err := f.List("/")
	require.NoError(t, err)
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// contents describes a file as runs of one byte, "a*4096 0*10".
func contents(t *testing.T, f *FS, name string) string {
	t.Helper()
	data, err := f.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	require.NoError(t, err)
	var runs []string
	for len(data) > 0 {
		n := len(data) - len(bytes.TrimLeft(data, string(data[:1])))
		c := string(data[:1])
		if c == "\x00" {
			c = "0"
		}
		runs = append(runs, fmt.Sprintf("%s*%d", c, n))
		data = data[n:]
	}
	return strings.Join(runs, " ")
}

// outcomes is everything many crashes of f leave, as seen by look.
func outcomes(f *FS, look func(*FS) string) []string {
	seen := map[string]bool{}
	for seed := range uint64(400) {
		c := f.Clone()
		seen[look(c.Crash(rand.New(rand.NewPCG(seed, 1))))] = true
	}
	seen[look(f.Clone().Crash(nil))] = true
	var all []string
	for s := range seen {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func TestCrashOfContents(t *testing.T) {
	const B = BlockSize
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, f *FS, file fsys.File)
		want []string
	}{
		{
			"written, not synced",
			func(t *testing.T, _ *FS, file fsys.File) { write(t, file, 0, fill('a', B), fill('b', 10)) },
			[]string{"", "0*4096", "0*4096 b*10", "0*4106", "a*4096", "a*4096 0*10", "a*4096 b*10"},
		},
		{
			"synced",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', B), fill('b', 10))
				require.NoError(t, file.Datasync())
			},
			[]string{"a*4096 b*10"},
		},
		{
			"a write-back hint is no sync",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', 10))
				require.NoError(t, file.StartWriteback(0, 10))
			},
			[]string{"", "0*10", "a*10"},
		},
		{
			"overwritten twice",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', 10))
				require.NoError(t, file.Datasync())
				write(t, file, 0, fill('b', 10))
				write(t, file, 0, fill('c', 10))
			},
			[]string{"a*10", "b*10", "c*10"},
		},
		{
			"truncated",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', 2*B))
				require.NoError(t, file.Datasync())
				require.NoError(t, file.Truncate(10))
			},
			[]string{"a*10", "a*8192"},
		},
		{
			"truncated and synced",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', 2*B))
				require.NoError(t, file.Datasync())
				require.NoError(t, file.Truncate(10))
				require.NoError(t, file.Datasync())
				require.NoError(t, file.Truncate(20))
				require.NoError(t, file.Datasync())
			},
			[]string{"a*10 0*10"},
		},
		{
			"a truncation that survived took the bytes with it",
			func(t *testing.T, _ *FS, file fsys.File) {
				write(t, file, 0, fill('a', B))
				require.NoError(t, file.Datasync())
				require.NoError(t, file.Truncate(0))
				require.NoError(t, file.Truncate(B))
			},
			[]string{"", "0*4096", "a*4096"},
		},
		{
			"allocated",
			func(t *testing.T, _ *FS, file fsys.File) { require.NoError(t, file.Allocate(0, B)) },
			[]string{"", "0*4096"},
		},
		{
			"allocated and synced, then written",
			func(t *testing.T, _ *FS, file fsys.File) {
				require.NoError(t, file.Allocate(0, 2*B))
				require.NoError(t, file.Datasync())
				write(t, file, 0, fill('a', 10))
			},
			[]string{"0*8192", "a*10 0*8182"},
		},
		{
			"a failed sync is not made good by the next one",
			func(t *testing.T, f *FS, file fsys.File) {
				require.NoError(t, file.Allocate(0, B))
				require.NoError(t, file.Datasync())
				write(t, file, 0, fill('a', 10))
				f.Inject(Fault{Op: OpDatasync, Times: 1, Err: syscall.EIO})
				require.ErrorIs(t, file.Datasync(), syscall.EIO)
				require.NoError(t, file.Datasync())
			},
			[]string{"0*4096", "a*10 0*4086"},
		},
		{
			"a failed sync is made good by writing again",
			func(t *testing.T, f *FS, file fsys.File) {
				write(t, file, 0, fill('a', 10))
				f.Inject(Fault{Op: OpDatasync, Times: 1, Err: syscall.EIO})
				require.ErrorIs(t, file.Datasync(), syscall.EIO)
				write(t, file, 0, fill('a', 1))
				require.NoError(t, file.Datasync())
			},
			[]string{"a*10"},
		},
		{
			"a sync that lies",
			func(t *testing.T, f *FS, file fsys.File) {
				write(t, file, 0, fill('a', 10))
				f.Inject(Fault{Op: OpDatasync, Match: "file", Lie: true})
				require.NoError(t, file.Datasync())
			},
			[]string{"", "0*10", "a*10"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := New(0)
			file := durable(t, f, "/file")
			tc.do(t, f, file)
			before := contents(t, f, "/file")
			got := outcomes(f, func(f *FS) string { return contents(t, f, "/file") })
			assert.Equal(t, tc.want, got)
			assert.Contains(t, got, before, "everything may survive")
			assert.Equal(t, before, contents(t, f.Kill(), "/file"), "kill -9 keeps the page cache")
		})
	}
}

func TestCrashOfNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, f *FS)
		want []string // of a root that begins with a durable file "a"
	}{
		{"created", func(t *testing.T, f *FS) { create(t, f, "/b") }, []string{"a", "a b"}},
		{"a datasync is no directory sync", func(t *testing.T, f *FS) {
			require.NoError(t, create(t, f, "/b").Datasync())
		}, []string{"a", "a b"}},
		{"created and synced", func(t *testing.T, f *FS) { durable(t, f, "/b") }, []string{"a b"}},
		{"renamed", func(t *testing.T, f *FS) { require.NoError(t, f.Rename("/a", "/b")) }, []string{"a", "b"}},
		{"renamed and made anew", func(t *testing.T, f *FS) {
			require.NoError(t, f.RenameNoReplace("/a", "/b"))
			create(t, f, "/a")
		}, []string{"a", "a b", "b"}},
		{"two names apart", func(t *testing.T, f *FS) {
			create(t, f, "/b")
			create(t, f, "/c")
		}, []string{"a", "a b", "a b c", "a c"}},
		{"created and renamed", func(t *testing.T, f *FS) {
			create(t, f, "/b")
			require.NoError(t, f.Rename("/b", "/c"))
		}, []string{"a", "a b", "a c"}},
		{"linked, then unlinked", func(t *testing.T, f *FS) {
			require.NoError(t, f.Link("/a", "/b"))
			require.NoError(t, f.Unlink("/a"))
		}, []string{"", "a", "a b", "b"}},
		{"renamed in two steps", func(t *testing.T, f *FS) {
			f.RenameInTwoSteps(true)
			require.NoError(t, f.RenameNoReplace("/a", "/b"))
		}, []string{"", "a", "a b", "b"}},
		{"unlinked", func(t *testing.T, f *FS) { require.NoError(t, f.Unlink("/a")) }, []string{"", "a"}},
		{"unlinked and synced", func(t *testing.T, f *FS) {
			require.NoError(t, f.Unlink("/a"))
			require.NoError(t, f.SyncDir("/"))
		}, []string{""}},
		{"a failed directory sync is not made good by the next one", func(t *testing.T, f *FS) {
			create(t, f, "/b")
			f.Inject(Fault{Op: OpSyncDir, Times: 1, Err: syscall.EIO})
			require.ErrorIs(t, f.SyncDir("/"), syscall.EIO)
			create(t, f, "/c")
			require.NoError(t, f.SyncDir("/"))
		}, []string{"a b c", "a c"}},
		{"a failed directory sync is made good by changing the name again", func(t *testing.T, f *FS) {
			create(t, f, "/b")
			f.Inject(Fault{Op: OpSyncDir, Times: 1, Err: syscall.EIO})
			require.ErrorIs(t, f.SyncDir("/"), syscall.EIO)
			require.NoError(t, f.Rename("/b", "/c"))
			require.NoError(t, f.Rename("/c", "/b"))
			require.NoError(t, f.SyncDir("/"))
		}, []string{"a b"}},
		{"a directory sync that lies", func(t *testing.T, f *FS) {
			create(t, f, "/b")
			f.Inject(Fault{Op: OpSyncDir, Lie: true})
			require.NoError(t, f.SyncDir("/"))
		}, []string{"a", "a b"}},
		{"a lost directory takes what is in it", func(t *testing.T, f *FS) {
			require.NoError(t, f.Mkdir("/d", 0o700))
			durable(t, f, "/d/x")
		}, []string{"a", "a d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := New(0)
			durable(t, f, "/a")
			tc.do(t, f)
			before := names(t, f)
			got := outcomes(f, func(f *FS) string { return names(t, f) })
			assert.Equal(t, tc.want, got)
			assert.Contains(t, got, before, "everything may survive")
			assert.Equal(t, before, names(t, f.Kill()), "kill -9 keeps the names")
		})
	}
}

func TestCrashIsReproducible(t *testing.T) {
	f := New(0)
	for i := range 20 {
		write(t, create(t, f, fmt.Sprintf("/%02d", i)), 0, fill('x', 3*BlockSize))
	}
	look := func(seed uint64) string {
		c := f.Clone().Crash(rand.New(rand.NewPCG(seed, 0)))
		s := names(t, c)
		for name := range strings.FieldsSeq(s) {
			s += "\n" + contents(t, c, name)
		}
		return s
	}
	different := map[string]bool{}
	for seed := range uint64(50) {
		require.Equal(t, look(seed), look(seed))
		different[look(seed)] = true
	}
	assert.Greater(t, len(different), 20)
}

func TestTearSectors(t *testing.T) {
	f := New(0)
	f.TearSectors(true)
	file := durable(t, f, "/file")
	write(t, file, 0, fill('a', BlockSize))
	require.NoError(t, file.Datasync())
	write(t, file, 0, fill('b', BlockSize))
	got := outcomes(f, func(f *FS) string { return contents(t, f, "/file") })
	assert.Greater(t, len(got), 50)
	for _, s := range got {
		for run := range strings.FieldsSeq(s) {
			var n int
			_, err := fmt.Sscanf(run[2:], "%d", &n)
			require.NoError(t, err)
			assert.Zero(t, n%512, "%s is torn inside a sector", s)
		}
	}
}

func TestCrashKillsHandlesAndLocks(t *testing.T) {
	for name, end := range map[string]func(*FS) *FS{
		"crash": func(f *FS) *FS { return f.Crash(nil) },
		"kill":  (*FS).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			f := New(0)
			file := durable(t, f, "/file")
			l, err := f.Lock("/LOCK")
			require.NoError(t, err)
			next := end(f)
			_, err = file.Pwritev([][]byte{{1}}, 0)
			require.ErrorIs(t, err, ErrPowerCut)
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, l.Unlock(), ErrPowerCut)
			require.ErrorIs(t, f.Unlink("/file"), ErrPowerCut)

			assert.Empty(t, contents(t, next, "/file"))
			_, err = next.Lock("/LOCK")
			require.NoError(t, err)
		})
	}
}

func TestCloneIsIndependent(t *testing.T) {
	f := New(0)
	file := durable(t, f, "/file")
	write(t, file, 0, fill('a', 10))
	c := f.Clone()
	write(t, file, 0, fill('b', 10))
	require.NoError(t, f.Unlink("/file"))
	assert.Equal(t, "a*10", contents(t, c, "/file"))

	again, err := c.OpenFile("/file", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, again.Datasync(), "dirty pages outlive their writer")
	assert.Equal(t, "a*10", contents(t, c.Crash(nil), "/file"))
	assert.Equal(t, "none", contents(t, f, "/file"))
}

func TestVolume(t *testing.T) {
	f := New(10 * BlockSize)
	free := func() uint64 {
		n, total, err := f.Statfs("/")
		require.NoError(t, err)
		require.EqualValues(t, f.total, total)
		return n / BlockSize
	}
	a := create(t, f, "/a")
	require.NoError(t, a.Allocate(0, 4*BlockSize))
	assert.EqualValues(t, 6, free())
	write(t, a, 0, fill('a', 4*BlockSize))
	assert.EqualValues(t, 6, free(), "allocated blocks were counted before")

	b := create(t, f, "/b")
	n, err := b.Pwritev([][]byte{fill('b', 4*BlockSize), fill('c', 4*BlockSize)}, 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.Equal(t, 6*BlockSize, n)
	assert.Zero(t, free())
	require.ErrorIs(t, b.Allocate(6*BlockSize, 1), syscall.ENOSPC)
	write(t, b, 0, fill('d', 10))
	require.NoError(t, create(t, f, "/c").Close(), "names cost nothing")

	require.NoError(t, f.Link("/a", "/a2"))
	require.NoError(t, f.Rename("/a2", "/a3"))
	require.NoError(t, f.Unlink("/a"))
	require.NoError(t, a.Close())
	assert.Zero(t, free(), "a name is left")
	require.NoError(t, f.Unlink("/b"))
	assert.Zero(t, free(), "a handle is left")
	require.NoError(t, b.Truncate(BlockSize))
	assert.EqualValues(t, 5, free())
	require.NoError(t, b.Close())
	assert.EqualValues(t, 6, free())
	require.NoError(t, f.Unlink("/a3"))
	assert.EqualValues(t, 10, free())
	f.SetVolume(0)
	assert.Greater(t, free(), uint64(1<<40))
	assert.Zero(t, f.Clone().Crash(nil).Used(), "nothing was durable")
	assert.Zero(t, f.Used())
}

func TestCloneAndCrashCountBlocks(t *testing.T) {
	f := New(100 * BlockSize)
	a := durable(t, f, "/a")
	require.NoError(t, a.Allocate(0, 8*BlockSize))
	require.NoError(t, a.Datasync())
	write(t, durable(t, f, "/b"), 0, fill('b', 2*BlockSize)) // lost
	require.NoError(t, f.Unlink("/a"))                       // lost; the handle holds the blocks
	assert.EqualValues(t, 10*BlockSize, f.Used())
	assert.EqualValues(t, 2*BlockSize, f.Clone().Used(), "the clone has no handles")
	c := f.Clone().Crash(nil)
	assert.EqualValues(t, 8*BlockSize, c.Used())
	info, err := c.Lstat("/a")
	require.NoError(t, err)
	assert.EqualValues(t, 8*BlockSize, info.Blocks)
	assert.EqualValues(t, 1, info.Nlink)
}

func TestFilesAndNames(t *testing.T) {
	f := New(0)
	_, err := f.OpenFile("/none", os.O_RDWR, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	a := create(t, f, "/a")
	_, err = f.OpenFile("/a", createExcl, 0o600)
	require.ErrorIs(t, err, fs.ErrExist)
	require.NoError(t, f.Symlink("/link"))
	_, err = f.OpenFile("/link", os.O_RDONLY, 0)
	require.ErrorIs(t, err, syscall.ELOOP)
	require.NoError(t, f.Mkdir("/d", 0o700))
	require.ErrorIs(t, f.Mkdir("/d", 0o700), fs.ErrExist)
	_, err = f.OpenFile("/d", os.O_RDONLY, 0)
	require.ErrorIs(t, err, fsys.ErrNotRegular)
	create(t, f, "/d/x")
	_, err = f.OpenFile("/a/x", os.O_RDONLY, 0)
	require.ErrorIs(t, err, syscall.ENOTDIR)

	create(t, f, "/b")
	require.ErrorIs(t, f.RenameNoReplace("/a", "/b"), fs.ErrExist)
	require.ErrorIs(t, f.Link("/a", "/b"), fs.ErrExist)
	require.NoError(t, f.Rename("/a", "/b"))
	require.ErrorIs(t, f.Unlink("/a"), fs.ErrNotExist)
	assert.Equal(t, "b d link", names(t, f))
	info, err := a.Stat()
	require.NoError(t, err)
	b, err := f.Lstat("/b")
	require.NoError(t, err)
	assert.Equal(t, info.Ino, b.Ino)
	assert.Equal(t, fs.FileMode(0o600), b.Mode)

	write(t, a, 3, []byte("xyz"))
	p := make([]byte, 10)
	n, err := a.ReadAt(p, 1)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "\x00\x00xyz", string(p[:n]))
	_, err = a.SeekData(6)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, a.Truncate(3*BlockSize))
	write(t, a, 2*BlockSize, []byte("z"))
	off, err := a.SeekData(BlockSize)
	require.NoError(t, err)
	assert.EqualValues(t, 2*BlockSize, off)

	r, err := f.OpenFile("/b", os.O_RDONLY, 0)
	require.NoError(t, err)
	_, err = r.Pwritev([][]byte{{1}}, 0)
	require.ErrorIs(t, err, syscall.EBADF)
	assert.Equal(t, []string{"/a", "/b", "/b", "/d/x"}, f.OpenFiles())
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Close(), fs.ErrClosed)
	assert.Equal(t, []string{"/a", "/b", "/d/x"}, f.OpenFiles())

	l, err := f.Lock("/LOCK")
	require.NoError(t, err)
	_, err = f.Lock("/LOCK")
	require.ErrorIs(t, err, fsys.ErrLocked)
	require.NoError(t, f.Unlink("/LOCK"))
	_, err = f.Lock("/LOCK")
	require.ErrorIs(t, err, fsys.ErrLocked, "the lock outlives its name")
	require.NoError(t, l.Unlock())
	_, err = f.Lock("/LOCK")
	require.NoError(t, err)
}

func TestWriteFileIsDurable(t *testing.T) {
	f := New(0)
	require.NoError(t, f.WriteFile("/a", fill('a', 5000)))
	require.NoError(t, f.WriteFile("/a", fill('b', 10)))
	assert.EqualValues(t, BlockSize, f.Used())
	assert.Equal(t, "b*10", contents(t, f.Crash(nil), "/a"))
	assert.Zero(t, f.Calls(Any))
}

func TestFaults(t *testing.T) {
	eio, nospc := error(syscall.EIO), error(syscall.ENOSPC)
	for _, tc := range []struct {
		name  string
		fault Fault
		want  []error // of ten-byte writes to "/file", one after another
		bytes string
	}{
		{"the second", Fault{Op: OpWrite, After: 1, Times: 1, Err: eio}, []error{nil, eio, nil}, "b*10 0*10 b*10"},
		{"for ever", Fault{Op: OpWrite, After: 2, Err: eio}, []error{nil, nil, eio, eio}, "b*20"},
		{"short", Fault{Op: OpWrite, Times: 1, Bytes: 3, Err: eio}, []error{eio, nil}, "b*3 0*7 b*10"},
		{"after k bytes", Fault{Op: OpWrite, Bytes: 25, Err: nospc}, []error{nil, nil, nospc, nospc}, "b*25"},
		{"another name", Fault{Op: OpWrite, Match: "*.wal", Err: eio}, []error{nil}, "b*10"},
		{"this name", Fault{Op: OpWrite, Match: "f?le", Err: eio}, []error{eio}, ""},
		{"another kind", Fault{Op: Any &^ OpWrite, Err: eio}, []error{nil}, "b*10"},
		{"read-only", Fault{Op: Mutating, Err: syscall.EROFS}, []error{syscall.EROFS}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := New(0)
			file := durable(t, f, "/file")
			remove := f.Inject(tc.fault)
			for i, want := range tc.want {
				n, err := file.Pwritev([][]byte{fill('b', 5), fill('b', 5)}, int64(10*i))
				require.ErrorIs(t, err, want, "write %d", i)
				assert.Equal(t, want == nil, n == 10)
			}
			assert.Equal(t, tc.bytes, contents(t, f, "/file"))
			remove()
			write(t, file, 0, fill('c', 10))
		})
	}
}

func TestFaultsHitBothNames(t *testing.T) {
	f := New(0)
	durable(t, f, "/a")
	f.Inject(Fault{Op: OpRename | OpLink, Match: "b", Err: syscall.EIO})
	err := f.Rename("/a", "/b")
	require.ErrorIs(t, err, syscall.EIO)
	var le *os.LinkError
	require.ErrorAs(t, err, &le)
	assert.Equal(t, "/a /b", le.Old+" "+le.New)
	require.ErrorIs(t, f.Link("/a", "/b"), syscall.EIO)
	assert.Equal(t, "a", names(t, f))
	require.NoError(t, f.Rename("/a", "/c"))

	remount := f.SetReadOnly()
	_, err = f.OpenFile("/x", createExcl, 0o600)
	require.ErrorIs(t, err, syscall.EROFS)
	remount()
	create(t, f, "/x")
}

func TestStopAtAndTrace(t *testing.T) {
	run := func(f *FS) error {
		file, err := f.OpenFile("/a", createExcl, 0o600)
		if err == nil {
			_, err = file.Pwritev([][]byte{fill('a', 10)}, 0)
		}
		if err == nil {
			err = file.Datasync()
		}
		if err == nil {
			err = f.SyncDir("/")
		}
		return err
	}
	f := New(0)
	f.StartTrace()
	require.NoError(t, run(f))
	assert.Equal(t, 4, f.Calls(Any))
	assert.Equal(t, 2, f.Calls(OpDatasync|OpSyncDir))
	var got []string
	for _, c := range f.Trace() {
		got = append(got, c.String())
	}
	assert.Equal(t, []string{
		"   0 create          /a",
		"   1 write           /a [0,+10)",
		"   2 datasync        /a",
		"   3 syncdir         /",
	}, got)

	want := []string{"", "a", "a", "a", "a"}
	for n := range want {
		f := New(0)
		f.StopAt(n)
		err := run(f)
		if n < 4 {
			require.ErrorIs(t, err, ErrPowerCut)
		} else {
			require.NoError(t, err)
		}
		k := f.Clone()
		assert.Equal(t, want[n], names(t, k), "cut at %d", n)
		left := f.Crash(nil)
		assert.Equal(t, n == 4, contents(t, left, "/a") == "a*10", "cut at %d", n)
	}
}

func TestFaultsKnowAnOpenFileByItsPresentName(t *testing.T) {
	f := New(0)
	file := create(t, f, "/next.partial")
	f.Inject(Fault{Op: OpDatasync, Match: "*.wal", Err: syscall.EIO})
	require.NoError(t, file.Datasync())
	require.NoError(t, f.Rename("/next.partial", "/1.wal"))
	err := file.Datasync()
	require.ErrorIs(t, err, syscall.EIO)
	assert.ErrorContains(t, err, "/1.wal")
}

func TestHookHoldsACall(t *testing.T) {
	f := New(0)
	file := durable(t, f, "/a")
	entered, release := make(chan Call), make(chan struct{})
	f.SetHook(func(c Call) {
		if c.Op == OpDatasync {
			entered <- c
			<-release
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, file.Datasync()) })
	assert.Equal(t, "/a", (<-entered).Name)
	write(t, file, 0, fill('a', 10)) // others go on
	close(release)
	wg.Wait()
	assert.Equal(t, "a*10", contents(t, f.Crash(nil), "/a"), "what was written before the sync took effect is durable")
}

func TestConcurrentUse(t *testing.T) {
	f := New(0)
	require.NoError(t, f.Mkdir("/d", 0o700))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("/d/%d", i)
			file, err := f.OpenFile(name, createExcl, 0o600)
			if !assert.NoError(t, err) {
				return
			}
			for k := range int64(50) {
				_, err := file.Pwritev([][]byte{fill(byte('a'+i), 1000)}, k*1000)
				assert.NoError(t, err)
				assert.NoError(t, file.Datasync())
				assert.NoError(t, f.SyncDir("/d"))
				p := make([]byte, 1000)
				_, err = file.ReadAt(p, k*1000)
				assert.NoError(t, err)
				assert.Equal(t, byte('a'+i), p[999])
				_ = f.Clone()
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.SyncDir("/"))
	c := f.Crash(nil)
	for i := range 8 {
		assert.Equal(t, fmt.Sprintf("%c*50000", 'a'+i), contents(t, c, fmt.Sprintf("/d/%d", i)))
	}
}
