// SPDX-License-Identifier: Apache-2.0

// Package countfs counts what a log asks of its file system.
package countfs // import "github.com/otelweir/weir/bench/internal/countfs"

import (
	"io/fs"
	"sync/atomic"

	"github.com/otelweir/weir/internal/fsys"
)

// FS counts the calls and the bytes that pass through it.
type FS struct {
	fsys.FS

	Opens, Lists, Changes  atomic.Int64 // Changes: of names
	Reads, BytesRead       atomic.Int64
	Writes, BytesWritten   atomic.Int64 // Pwritev
	Datasyncs, SyncDirs    atomic.Int64
	Allocates, Truncations atomic.Int64

	// BeforeDatasync, when set, runs in every Datasync before it begins.
	BeforeDatasync atomic.Pointer[func()]
}

// New counts on base.
func New(base fsys.FS) *FS { return &FS{FS: base} }

// Calls is the number of calls of every kind that is counted.
func (f *FS) Calls() int64 {
	n := int64(0)
	for _, c := range []*atomic.Int64{
		&f.Opens, &f.Lists, &f.Changes, &f.Reads, &f.Writes, &f.Datasyncs, &f.SyncDirs, &f.Allocates, &f.Truncations,
	} {
		n += c.Load()
	}
	return n
}

// OpenFile counts as an open.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	f.Opens.Add(1)
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &counted{File: file, fs: f}, nil
}

// List counts as a list.
func (f *FS) List(dir string) ([]fsys.Info, error) {
	f.Lists.Add(1)
	return f.FS.List(dir)
}

// Rename counts as a change.
func (f *FS) Rename(oldName, newName string) error {
	f.Changes.Add(1)
	return f.FS.Rename(oldName, newName)
}

// RenameNoReplace counts as a change.
func (f *FS) RenameNoReplace(oldName, newName string) error {
	f.Changes.Add(1)
	return f.FS.RenameNoReplace(oldName, newName)
}

// Link counts as a change.
func (f *FS) Link(oldName, newName string) error {
	f.Changes.Add(1)
	return f.FS.Link(oldName, newName)
}

// Unlink counts as a change.
func (f *FS) Unlink(name string) error {
	f.Changes.Add(1)
	return f.FS.Unlink(name)
}

// SyncDir is counted.
func (f *FS) SyncDir(dir string) error {
	f.SyncDirs.Add(1)
	return f.FS.SyncDir(dir)
}

type counted struct {
	fsys.File
	fs *FS
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.fs.Reads.Add(1)
	n, err := c.File.ReadAt(p, off)
	c.fs.BytesRead.Add(int64(n))
	return n, err
}

func (c *counted) Pwritev(bufs [][]byte, off int64) (int, error) {
	c.fs.Writes.Add(1)
	n, err := c.File.Pwritev(bufs, off)
	c.fs.BytesWritten.Add(int64(n))
	return n, err
}

func (c *counted) Datasync() error {
	c.fs.Datasyncs.Add(1)
	if f := c.fs.BeforeDatasync.Load(); f != nil {
		(*f)()
	}
	return c.File.Datasync()
}

func (c *counted) Allocate(off, n int64) error {
	c.fs.Allocates.Add(1)
	return c.File.Allocate(off, n)
}

func (c *counted) Truncate(size int64) error {
	c.fs.Truncations.Add(1)
	return c.File.Truncate(size)
}
