// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package reference is what a log is compared with: the least that makes bytes
// durable. It has no framing, no checksum, no bound, no rotation and no
// recovery.
package reference // import "github.com/otelweir/weir/bench/internal/reference"

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// step is how much is allocated ahead at once, as a log allocates its next
// segment.
const step = 128 << 20

// file is an ever growing, preallocated file.
type file struct {
	f              *os.File
	off, allocated int64
}

func open(dir, name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return file{f: f}, err
}

// append writes the buffers behind all others and makes them durable.
func (f *file) append(bufs [][]byte, n int64) error {
	fd := int(f.f.Fd())
	for f.off+n > f.allocated {
		if err := unix.Fallocate(fd, 0, f.allocated, step); err != nil {
			return err
		}
		f.allocated += step
	}
	switch m, err := unix.Pwritev(fd, bufs, f.off); {
	case err != nil:
		return err
	case int64(m) != n:
		return io.ErrShortWrite
	}
	f.off += n
	return unix.Fdatasync(fd)
}

// Direct is the arm D: one goroutine that writes and syncs.
type Direct struct {
	file
	bufs [1][]byte
}

// OpenDirect begins a file in dir.
func OpenDirect(dir string) (*Direct, error) {
	f, err := open(dir, "direct")
	return &Direct{file: f}, err
}

// Append makes p durable. One goroutine at a time.
func (d *Direct) Append(p []byte) error {
	d.bufs[0] = p
	return d.append(d.bufs[:], int64(len(p)))
}

// Close closes the file.
func (d *Direct) Close() error { return d.f.Close() }

// Group is the arm R: the caller that finds nobody leading writes and syncs
// what has gathered, for all, then lets the first of those who came meanwhile
// lead.
type Group struct {
	file file
	bufs [][]byte // the leader's

	mu      sync.Mutex
	leading bool      // guarded by mu
	queue   []*waiter // guarded by mu
}

type waiter struct {
	p    []byte
	err  error
	wake chan bool // true: lead; false: done
}

const (
	groupCap  = 4 << 20
	maxIovecs = 1024
)

// OpenGroup begins a file in dir.
func OpenGroup(dir string) (*Group, error) {
	f, err := open(dir, "group")
	return &Group{file: f}, err
}

// Append makes p durable. Any number of goroutines.
func (g *Group) Append(p []byte) error {
	w := &waiter{p: p, wake: make(chan bool, 1)}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	lead := !g.leading
	g.leading = true
	g.mu.Unlock()
	if !lead && !<-w.wake {
		return w.err
	}
	g.mu.Lock()
	n, bytes := 0, int64(0)
	g.bufs = g.bufs[:0]
	for _, w := range g.queue {
		if n > 0 && (bytes+int64(len(w.p)) > groupCap || n == maxIovecs) {
			break
		}
		g.bufs = append(g.bufs, w.p)
		bytes += int64(len(w.p))
		n++
	}
	group := append([]*waiter(nil), g.queue[:n]...)
	g.queue = append(g.queue[:0], g.queue[n:]...)
	g.mu.Unlock()

	err := g.file.append(g.bufs, bytes)

	g.mu.Lock()
	if g.leading = len(g.queue) > 0; g.leading {
		g.queue[0].wake <- true
	}
	g.mu.Unlock()
	for _, other := range group {
		other.err = err
		if other != w {
			other.wake <- false
		}
	}
	return err
}

// Close closes the file.
func (g *Group) Close() error { return g.file.f.Close() }
