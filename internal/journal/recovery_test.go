// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// TestB17_RebuiltFigures: after a restart the figures are what they were, with
// several closed segments, a frameless current one, a torn tail, summaries
// present and absent; the same batch is judged the same.
func TestB17_RebuiltFigures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, j *Journal)
		after  func(t *testing.T, f *crashfs.FS)
		torn   bool
	}{
		{name: "several closed segments"},
		{name: "frameless current segment", before: func(t *testing.T, j *Journal) {
			require.NoError(t, withTurn(j, j.RotateForced))
			require.Zero(t, j.Segments()[len(j.Segments())-1].Bytes)
		}},
		{name: "torn tail", torn: true, after: func(t *testing.T, f *crashfs.FS) {
			name := lastSegment(t, f)
			data, err := f.ReadFile(name)
			require.NoError(t, err)
			end := len(data)
			for end > 0 && data[end-1] == 0 {
				end--
			}
			require.NoError(t, f.WriteFile(name, append(data[:end+1:end+1], "torn"...)))
		}},
		{name: "no summaries", after: func(t *testing.T, f *crashfs.FS) {
			infos, err := f.Clone().List("/wal")
			require.NoError(t, err)
			for _, i := range infos {
				id, ok := parseSegmentName(i.Name)
				if !ok {
					continue
				}
				data, err := f.ReadFile("/wal/" + i.Name)
				require.NoError(t, err)
				if n, ok := summaryLength(data[len(data)-summaryTrailer:]); ok {
					require.NoError(t, f.WriteFile("/wal/"+i.Name, data[:len(data)-int(n)]), id)
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, j := onCrashFS(t, nil)
			lanes := []Lane{logs, {"a", KindTraces}, {"b", KindMetrics}}
			for i := range 120 {
				_, err := commit(j, newFrame(t, lanes[i%3], i, 30_000+i))
				require.NoError(t, err)
			}
			require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
			if tc.before != nil {
				tc.before(t, j)
			}
			want, lanesBefore := j.Stats(), j.Lanes()
			j.Lock()
			figures := j.Figures()
			j.Unlock()
			require.NoError(t, j.Close())
			if tc.after != nil {
				tc.after(t, f)
			}
			j, rec, err := Open(f, testConfig("/wal"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = j.Close() })
			got := j.Stats()
			require.Equal(t, want.Unreclaimed, got.Unreclaimed)
			require.Equal(t, want.ClosedRetained, got.ClosedRetained)
			require.Equal(t, want.OldestReceived, got.OldestReceived)
			require.Equal(t, want.Durable, got.Durable)
			require.Equal(t, want.Eligible, got.Eligible)
			require.ElementsMatch(t, lanesBefore, j.Lanes())
			require.EqualValues(t, 120, rec.Frames)
			require.Equal(t, tc.torn, rec.TruncatedBytes > 0)
			j.Lock()
			defer j.Unlock()
			require.Equal(t, figures, j.Figures())
			require.Equal(t, []int{3, 0}, []int{j.ledger.held, j.ledger.seatsTaken})
		})
	}
}

func lastSegment(t *testing.T, f *crashfs.FS) string {
	t.Helper()
	infos, err := f.Clone().List("/wal")
	require.NoError(t, err)
	last := ""
	for _, i := range infos {
		if _, ok := parseSegmentName(i.Name); ok {
			last = i.Name
		}
	}
	return "/wal/" + last
}

// TestUnprovenDirectoryEntry: a directory fsync that failed leaves the new
// segment's entry neither durable nor dirty. Neither the same process, nor the
// next one, may acknowledge a frame behind it before the entry is made anew.
func TestUnprovenDirectoryEntry(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, reclaimed := range []bool{false, true} {
			t.Run(fmt.Sprintf("restart %v, everything before reclaimed %v", restart, reclaimed), func(t *testing.T) {
				w := opened(t, nil)
				require.NoError(t, w.try(500))
				w.faulty = true
				w.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, Times: 1, Err: syscall.EIO})
				require.ErrorIs(t, w.rotateNow(), syscall.EIO)
				require.Equal(t, RotationRetrying, w.state().Kind)
				require.Error(t, w.try(500), "nothing is written to it")
				if restart {
					w.killed(t)
				}
				w.later(firstRetry)
				if reclaimed {
					w.drain(t)
				}
				require.NoError(t, w.try(500))
				w.powerCut(t)
				require.Equal(t, RotationHealthy, w.state().Kind)
			})
		}
	}
}

// TestStateGrows: a larger configuration gets a larger STATE; on a full volume
// the old one stays and its capacity is in effect.
func TestStateGrows(t *testing.T) {
	w := opened(t, nil)
	require.NoError(t, w.try(500))
	w.drain(t)
	w.close()

	w.cfg.MaxSegments, w.cfg.MaxTenants = 5000, 500
	w.fs.SetVolume(1) // full
	require.NoError(t, w.open())
	require.Equal(t, 32, w.j.Stats().MaxSegments)
	require.Equal(t, 8, w.j.Stats().MaxTenants)
	w.close()
	w.fs.SetVolume(0)

	// The directory's fsync fails when the new STATE has its name: the open
	// fails, and the next one does not trust the entry.
	w.faulty = true
	w.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, After: 1, Times: 1, Err: syscall.EIO})
	require.Error(t, w.open())
	w.fs.ClearFaults()
	w.killed(t)
	require.Equal(t, 5000, w.j.Stats().MaxSegments)
	require.Equal(t, 500, w.j.Stats().MaxTenants)
	require.NoError(t, w.try(500))
	require.NoError(t, w.rotateNow())
	w.drain(t)
	w.powerCut(t)
	require.Equal(t, 5000, w.j.Stats().MaxSegments)
}

// TestTornTailOfAPreallocatedSegment: what was torn is counted and copied, the
// zeros behind it are not.
func TestTornTailOfAPreallocatedSegment(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 100))
	require.NoError(t, err)
	durable := j.Durable()
	require.NoError(t, j.Close())
	name := lastSegment(t, f)
	data, err := f.ReadFile(name)
	require.NoError(t, err)
	require.Len(t, data, 1<<20, "preallocated")
	for _, at := range []uint64{0, 10, 70_000} {
		data[segmentHeaderLen+durable+at] = 0xFF
	}
	require.NoError(t, f.WriteFile(name, data))
	j, rec, err := Open(f, testConfig("/wal"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	require.EqualValues(t, 70_001, rec.TruncatedBytes)
	require.True(t, rec.Ambiguous)
	infos, err := f.Clone().List("/wal/quarantine")
	require.NoError(t, err)
	require.Len(t, infos, 1)
	require.EqualValues(t, 70_001, infos[0].Size)
	after, err := f.ReadFile(name)
	require.NoError(t, err)
	require.Len(t, after, 1<<20, "preallocated again")
	require.True(t, allZero(after[segmentHeaderLen+durable:]))
}

// readCounter counts the bytes read from files.
type readCounter struct {
	fsys.FS
	bytes atomic.Int64
}

type readCounterFile struct {
	fsys.File
	c *readCounter
}

func (c *readCounter) OpenFile(name string, flag int, perm fs.FileMode) (fsys.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return readCounterFile{f, c}, nil
}

func (f readCounterFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.bytes.Add(int64(n))
	return n, err
}

// TestC15_OpenReadsSummaries: opening ten thousand closed segments reads no
// more than twice what their summaries take, and a segment without one is
// scanned.
func TestC15_OpenReadsSummaries(t *testing.T) {
	const segments = 10_000
	f := crashfs.New(0)
	cfg := testConfig("/wal")
	cfg.MaxSegments, cfg.Preallocate = segments, false
	j, _, err := Open(f, cfg)
	require.NoError(t, err)
	for i := range segments {
		_, err := commit(j, newFrame(t, logs, i, 3000))
		require.NoError(t, err)
		require.NoError(t, withTurn(j, j.RotateForced))
	}
	require.NoError(t, j.Close())
	require.Equal(t, segments, j.Stats().ClosedRetained)
	size := len(encodeSummary(j.ledger.segments[0], epoch{}))

	c := &readCounter{FS: f}
	j, rec, err := Open(c, cfg)
	require.NoError(t, err)
	require.Equal(t, segments, j.Stats().ClosedRetained)
	require.EqualValues(t, segments, rec.Frames)
	require.Zero(t, rec.Scanned)
	require.LessOrEqual(t, c.bytes.Load(), int64(2*segments*size))
	require.NoError(t, j.Close())
	t.Logf("%d bytes read for %d summaries of %d bytes", c.bytes.Load(), segments, size)
}

// TestC15_RecoveryInConstantMemory: what recovery allocates does not grow with
// the log.
func TestC15_RecoveryInConstantMemory(t *testing.T) {
	peak := func(n int) uint64 {
		dir := t.TempDir()
		cfg := testConfig(dir)
		cfg.SegmentSize, cfg.MaxFrameSize, cfg.Limit = 1<<30, 2<<20, 1<<40
		cfg.Preallocate = false
		j, _, err := Open(fsys.OS, cfg)
		require.NoError(t, err)
		fr := newFrame(t, logs, 1, 1<<20)
		for range n {
			fr.Sum()
			_, err := commit(j, fr)
			require.NoError(t, err)
		}
		require.NoError(t, j.Close())

		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		j, rec, err := Open(fsys.OS, cfg)
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		require.EqualValues(t, n, rec.Frames)
		require.NoError(t, j.Close())
		return after.TotalAlloc - before.TotalAlloc // everything ever allocated, not only what lived at once
	}
	small, large := peak(4), peak(64)
	t.Logf("recovery of 4 MiB allocates %d bytes, of 64 MiB %d", small, large)
	require.Less(t, large, small+1<<20)
}

// TestScanReadsOnce: a scan reads every byte of the frames once.
func TestScanReadsOnce(t *testing.T) {
	f, j := onCrashFS(t, nil)
	for i := range 20 {
		_, err := commit(j, newFrame(t, logs, i, 1000*i+1))
		require.NoError(t, err)
	}
	size := int64(j.Durable())
	require.NoError(t, j.Close())
	c := &readCounter{FS: f}
	file, err := c.OpenFile(lastSegment(t, f), 0, 0)
	require.NoError(t, err)
	var s scanner
	s.reset(file, j.log, segmentID{}, segmentHeaderLen+size)
	n := 0
	bad, last, tail, _, err := s.walk(func(*frameHeader, []byte) error { n++; return nil })
	require.NoError(t, err)
	require.Empty(t, bad)
	require.Equal(t, tailNone, tail)
	require.Equal(t, segmentHeaderLen+size, last)
	require.Equal(t, 20, n)
	require.Equal(t, size, c.bytes.Load())
}

// cpuTime is what the process has used of its processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScan compares a full scan with a bare loop of read and CRC32C over
// the same file.
func BenchmarkScan(b *testing.B) {
	for _, payload := range []int{1000, 16_000, 250_000} {
		dir := b.TempDir()
		cfg := testConfig(dir)
		cfg.SegmentSize, cfg.Limit = 128<<20, 1<<40
		j, _, err := Open(fsys.OS, cfg)
		require.NoError(b, err)
		fr := newFrame(b, logs, 1, payload)
		for j.Durable() < 100<<20 {
			var tickets []*Ticket
			for range 64 {
				again := *fr
				again.Sum()
				tickets = append(tickets, enqueue(j, &again))
			}
			drive(j)
			_, err := tickets[0].Outcome()
			require.NoError(b, err)
		}
		size := int64(j.Durable())
		name := j.path(j.writer.id.name())
		require.NoError(b, j.Close())
		f, err := fsys.OS.OpenFile(name, 0, 0)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("bare/%d", payload), func(b *testing.B) {
			b.SetBytes(size)
			buf := make([]byte, scanBuffer)
			begun := cpuTime(b)
			defer func() { b.ReportMetric(float64(cpuTime(b)-begun)/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				crc := uint32(0)
				for off := int64(0); off < size; {
					n, err := f.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
					if err != nil && !errors.Is(err, io.EOF) {
						b.Fatal(err)
					}
					crc = sum(crc, buf[:n])
					off += int64(n)
				}
			}
		})
		b.Run(fmt.Sprintf("scan/%d", payload), func(b *testing.B) {
			b.SetBytes(size)
			var s scanner
			begun := cpuTime(b)
			defer func() { b.ReportMetric(float64(cpuTime(b)-begun)/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				s.reset(f, j.log, segmentID{}, segmentHeaderLen+size)
				if _, last, _, _, err := s.walk(func(*frameHeader, []byte) error { return nil }); err != nil || last != s.end {
					b.Fatal(last, err)
				}
			}
		})
		require.NoError(b, f.Close())
	}
}

// TestC20_UnprovenTailIsWrittenAgain: blocks that a failed fdatasync left clean
// in the page cache reach the disk before anything is acknowledged behind
// them. The group spans blocks that no later append touches.
func TestC20_UnprovenTailIsWrittenAgain(t *testing.T) {
	w := opened(t, nil)
	require.NoError(t, w.try(100))
	w.faulty = true
	w.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: "*.wal", Times: 1, Err: syscall.EIO})
	require.ErrorIs(t, w.try(7000), syscall.EIO)
	w.heal()
	w.killed(t)
	require.EqualValues(t, 2, w.rec.Frames, "the page cache still has the group")
	require.NoError(t, w.try(100))
	w.powerCut(t)
	require.EqualValues(t, 3, w.rec.Frames)
}
