// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

// A refused request costs little: nothing of the file system, and no memory
// but its answer.
func TestRefusalsTouchNoFile(t *testing.T) {
	r := newRig(t)
	_, refused := r.fill(logsLane, unit)
	require.Equal(t, refusal.BackpressureBytes, refused.Reason)
	r.reopen() // nothing runs in the background any more

	f, none := frame(t, logsLane, unit), func(bool) {}
	before := r.fs.Calls(crashfs.Any)
	for range 100 {
		_, err := r.c.Commit(t.Context(), f, none)
		require.ErrorAs(t, err, &refused)
	}
	assert.Equal(t, before, r.fs.Calls(crashfs.Any), "file-system calls of 100 refusals")
}

// The refusal path: one hold of the journal lock and the words of the answer.
func BenchmarkRefusal(b *testing.B) {
	r := newRig(b)
	r.fill(logsLane, unit)
	f, ctx, none := frame(b, logsLane, unit), b.Context(), func(bool) {}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.c.Commit(ctx, f, none); err == nil {
			b.Fatal("admitted")
		}
	}
}

// noDisk is a file system whose files take writes and syncs for done: what is
// left is what the log itself costs.
type noDisk struct{ fsys.FS }

type noFile struct{ fsys.File }

func (f noDisk) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	return noFile{file}, err
}

func (noFile) Pwritev(bufs [][]byte, _ int64) (n int, _ error) {
	for _, b := range bufs {
		n += len(b)
	}
	return n, nil
}

func (noFile) Datasync() error { return nil }

// What an acknowledgement costs besides the disk.
func BenchmarkCommitWithoutDisk(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			c, j := openBenchmark(b, noDisk{fsys.OS})
			var left atomic.Int64
			left.Store(int64(b.N))
			payload, meta := make([]byte, 1<<10), frame(b, logsLane, 1<<10).Metadata
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						f := &journal.Frame{Kind: journal.KindLogs, Items: 1, Metadata: meta, Payload: [][]byte{payload}}
						if _, err := c.Commit(context.Background(), f, func(bool) {}); !assert.NoError(b, err) {
							return
						}
					}
				})
			}
			all.Wait()
			b.StopTimer()
			c.Close()
			_ = j.Close() // what it wrote is not there
		})
	}
}

// How long an admission holds the journal lock, and how long it waits for it,
// with so many writers on a real disk.
func BenchmarkAdmissionLock(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAdmission(b, writers) })
	}
}

// openBenchmark opens a log of the receiver's defaults without a bound to meet.
func openBenchmark(b *testing.B, fs fsys.FS) (*Coordinator, *journal.Journal) {
	b.Helper()
	cfg := journal.Config{
		Directory: b.TempDir(), SegmentSize: 128 << 20, SegmentAge: time.Hour, MaxFrameSize: 16 << 20, Limit: 1 << 40,
		MaxSegments: 1 << 16, MaxTenants: 8, Preallocate: true,
	}
	j, _, err := journal.Open(fs, cfg)
	require.NoError(b, err)
	return New(Settings{
		Journal: j, Limit: cfg.Limit, MaxSegments: cfg.MaxSegments, MaxTenants: cfg.MaxTenants, MaxFrameSize: cfg.MaxFrameSize,
		SegmentSize: cfg.SegmentSize,
	}), j
}

func benchmarkAdmission(b *testing.B, writers int) {
	c, j := openBenchmark(b, fsys.OS)
	var (
		left        atomic.Int64
		mu          sync.Mutex
		waits, held []time.Duration
		all         sync.WaitGroup
	)
	left.Store(int64(b.N))
	b.ResetTimer()
	for range writers {
		all.Go(func() {
			var w, h []time.Duration
			for left.Add(-1) >= 0 {
				f := frame(b, logsLane, 1<<10)
				f.Sum()
				framed, asked := f.FramedLen(), time.Now()
				j.Lock()
				got := time.Now()
				ticket, _ := c.admit(f, framed, got)
				done := time.Now()
				j.Unlock()
				w, h = append(w, got.Sub(asked)), append(h, done.Sub(got))
				if !assert.NoError(b, c.await(context.Background(), ticket)) {
					return
				}
				c.queued.Done() // as Commit does
				if _, err := ticket.Outcome(); !assert.NoError(b, err) {
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			waits, held = append(waits, w...), append(held, h...)
		})
	}
	all.Wait()
	b.StopTimer()
	c.Close()
	require.NoError(b, j.Close())

	for name, d := range map[string][]time.Duration{"wait": waits, "held": held} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2]), name+"-p50-ns")
		b.ReportMetric(float64(d[len(d)*99/100]), name+"-p99-ns")
	}
}
