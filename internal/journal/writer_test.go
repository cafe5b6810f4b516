// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// onCrashFS opens a log on a memory file system.
func onCrashFS(t *testing.T, change func(*Config)) (*crashfs.FS, *Journal) {
	t.Helper()
	f := crashfs.New(0)
	cfg := testConfig("/wal")
	cfg.Now = time.Now
	if change != nil {
		change(&cfg)
	}
	j, _, err := Open(f, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return f, j
}

// TestGroupIsOneWriteAndOneSync: however many frames gather while somebody
// holds the turn, they cost one pwritev and one fdatasync.
func TestGroupIsOneWriteAndOneSync(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 100)) // the successor is being prepared from here on
	require.NoError(t, err)
	j.tasks.Wait()
	var tickets []*Ticket
	for i := range 50 {
		tickets = append(tickets, enqueue(j, newFrame(t, logs, i, 100)))
		require.Zero(t, tickets[i].position, "no position before the cut")
	}
	writes, syncs, all := f.Calls(crashfs.OpWrite), f.Calls(crashfs.OpDatasync), f.Calls(crashfs.Any)
	require.NoError(t, withTurn(j, func() error { require.False(t, j.Advance()); return nil }))
	require.Equal(t, 1, f.Calls(crashfs.OpWrite)-writes)
	require.Equal(t, 1, f.Calls(crashfs.OpDatasync)-syncs)
	require.Equal(t, 2, f.Calls(crashfs.Any)-all, "nothing else was asked of the file system")
	next := Position(100 + 40 + 10)
	for _, tk := range tickets {
		p, err := tk.Outcome()
		require.NoError(t, err)
		require.Equal(t, next, p)
		next += tk.framed
	}
	frames := readAll(t, j, 0)
	require.Len(t, frames, 51)
	for i, fr := range frames[1:] {
		h := decodeFrameHeader(fr.header[:])
		require.EqualValues(t, fr.Position-frames[1].Position, h.group, "frame %d proves what lies before its group", i)
	}
}

// TestGroupsFormUnderConcurrency: at 64 writers a sync acknowledges ten frames
// or more. The disk is slow enough for groups to gather while it syncs.
func TestGroupsFormUnderConcurrency(t *testing.T) {
	f, j := onCrashFS(t, nil)
	const writers, each = 64, 40
	var wg sync.WaitGroup
	f.SetHook(func(c crashfs.Call) {
		if c.Op == crashfs.OpDatasync {
			time.Sleep(500 * time.Microsecond) // the device, not a synchronisation
		}
	})
	syncs := f.Calls(crashfs.OpDatasync)
	for range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := commit(j, newFrame(t, logs, i, 300)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	syncs = f.Calls(crashfs.OpDatasync) - syncs
	require.LessOrEqual(t, syncs, writers*each/10)
	require.Len(t, readAll(t, j, 0), writers*each)
}

// TestLargeGroup: a group beyond 1 MiB is written in steps whose write-back
// begins at once, cut at any buffer, and still synced once.
func TestLargeGroup(t *testing.T) {
	f, j := onCrashFS(t, func(c *Config) { c.SegmentSize, c.MaxFrameSize, c.GroupCap = 16<<20, 8<<20, 4<<20 })
	_, err := commit(j, newFrame(t, logs, 0, 10))
	require.NoError(t, err)
	j.tasks.Wait()
	big := newFrame(t, logs, 7, 3<<20+17)
	count := f.Calls(crashfs.OpDatasync)
	f.StartTrace()
	_, err = commit(j, big)
	require.NoError(t, err)
	var steps, hints []int64
	for _, c := range f.Trace() {
		switch c.Op {
		case crashfs.OpWrite:
			steps = append(steps, c.Len)
		case crashfs.OpWriteback:
			hints = append(hints, c.Len)
		}
	}
	require.Equal(t, []int64{1 << 20, 1 << 20, 1 << 20, 17 + 40 + 10}, steps)
	require.Equal(t, steps, hints)
	require.Equal(t, 1, f.Calls(crashfs.OpDatasync)-count)
	got := readAll(t, j, 0)
	require.True(t, bytes.Equal(bytes.Join(newFrame(t, logs, 7, 3<<20+17).Payload, nil), got[1].Payload))
}

// TestGroupCap: groups are capped; a lone larger frame passes.
func TestGroupCap(t *testing.T) {
	f, j := onCrashFS(t, func(c *Config) { c.GroupCap = 10_000 })
	_, err := commit(j, newFrame(t, logs, 0, 10))
	require.NoError(t, err)
	j.tasks.Wait()
	var groups []int
	for _, n := range []int{4000, 4000, 4000, 50_000, 9000, 900} {
		enqueue(j, newFrame(t, logs, 1, n))
	}
	for more := true; more; {
		before, syncs := len(readAll(t, j, 0)), f.Calls(crashfs.OpDatasync)
		require.NoError(t, withTurn(j, func() error { more = j.Advance(); return nil }))
		require.Equal(t, 1, f.Calls(crashfs.OpDatasync)-syncs)
		groups = append(groups, len(readAll(t, j, 0))-before)
	}
	require.Equal(t, []int{2, 1, 1, 2}, groups)
}

// TestC03_FailedWriteIsRolledBack: a short write and an error leave the file
// and every figure as they were; those that gathered behind are not harmed.
func TestC03_FailedWriteIsRolledBack(t *testing.T) {
	for _, got := range []int64{0, 1, 63, 5000} {
		f, j := onCrashFS(t, func(c *Config) { c.GroupCap = 10_000 })
		_, err := commit(j, newFrame(t, logs, 0, 700))
		require.NoError(t, err)
		j.tasks.Wait()
		name := j.path(j.writer.id.name())
		before, err := f.ReadFile(name)
		require.NoError(t, err)
		durable := j.Durable()

		first := []*Ticket{enqueue(j, newFrame(t, logs, 1, 4000)), enqueue(j, newFrame(t, logs, 2, 4000))}
		second := enqueue(j, newFrame(t, Lane{"b", KindTraces}, 3, 4000))
		f.Inject(crashfs.Fault{Op: crashfs.OpWrite, Match: "*.wal", Times: 1, Bytes: got, Err: syscall.EIO})
		require.NoError(t, withTurn(j, func() error { require.True(t, j.Advance()); return nil }))
		for _, tk := range first {
			_, err := tk.Outcome()
			var failed *AppendError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "append", failed.Op)
			require.ErrorIs(t, err, syscall.EIO)
		}
		after, err := f.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), "%d bytes got through: the file is as it was", got)
		j.Lock()
		figures := j.Figures()
		j.Unlock()
		require.Equal(t, durable+second.framed, figures.Unreclaimed)
		require.Equal(t, second.framed, figures.Unflushed)
		require.Equal(t, RotationHealthy, j.Stats().Rotation)

		drive(j)
		p, err := second.Outcome()
		require.NoError(t, err)
		require.Equal(t, durable, p, "the failed group's positions are used again")
		require.Len(t, readAll(t, j, 0), 2)
	}
}

// TestC04_FailedRollBack: bytes that cannot be cut off stay charged, the
// segment is sealed and a rotation owed; a restart forgets them.
func TestC04_FailedRollBack(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 700))
	require.NoError(t, err)
	j.tasks.Wait()
	durable := j.Durable()
	remove := f.Inject(
		crashfs.Fault{Op: crashfs.OpWrite, Match: "*.wal", Times: 1, Bytes: 300, Err: syscall.EIO},
		crashfs.Fault{Op: crashfs.OpTruncate, Match: "*.wal", Times: 1, Err: syscall.EIO},
	)
	failed := newFrame(t, logs, 1, 1000)
	_, err = commit(j, failed)
	require.ErrorIs(t, err, syscall.EIO)
	remove()

	j.Lock()
	figures := j.Figures()
	due := j.RotationDue(100)
	j.Unlock()
	require.Equal(t, Figures{
		Unreclaimed: durable + failed.FramedLen(), QueuedRotations: 1, Sealed: 1, CurrentBytes: durable + failed.FramedLen(),
	}, figures)
	require.True(t, due.Due && due.Owed && !due.AtCeiling)

	p, err := commit(j, newFrame(t, logs, 2, 1000))
	require.NoError(t, err)
	require.Equal(t, durable, p)
	require.Equal(t, "sealed", j.Segments()[0].State)
	require.Equal(t, durable, j.Segments()[1].Base)
	require.Len(t, readAll(t, j, 0), 2)

	unreclaimed := j.Stats().Unreclaimed
	require.NoError(t, j.Close())
	j, _, err = Open(f, testConfig("/wal"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	require.Equal(t, unreclaimed-failed.FramedLen(), j.Stats().Unreclaimed)
	require.Zero(t, j.Stats().Sealed)
	require.Len(t, readAll(t, j, 0), 2)
}

// TestC05_TooManySealedSegments end appends, and nothing else.
func TestC05_TooManySealedSegments(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 100))
	require.NoError(t, err)
	for i := range maxSealed {
		f.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: j.writer.id.name(), Times: 1, Err: syscall.EIO})
		_, err := commit(j, newFrame(t, logs, i, 100))
		require.ErrorIs(t, err, syscall.EIO)
		_, err = commit(j, newFrame(t, logs, i, 100))
		require.NoError(t, err, "%d sealed segments", i+1)
	}
	f.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: j.writer.id.name(), Times: 1, Err: syscall.EIO})
	_, err = commit(j, newFrame(t, logs, 0, 100))
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, RotationTerminal, j.Stats().Rotation)
	var refused *RotationRefused
	_, err = commit(j, newFrame(t, logs, 0, 100))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, RotationTerminal, refused.State.Kind)
	require.ErrorIs(t, refused, syscall.EIO, "the first cause is kept")

	require.Len(t, readAll(t, j, 0), maxSealed+1)
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	j.Lock()
	p := j.Prepare(100)
	j.Unlock()
	p.Execute(t.Context())
	j.Lock()
	_, removed, _ := j.Commit(p)
	j.Unlock()
	require.Equal(t, maxSealed, removed)
}

// TestC06_FailedSync: the group is not acknowledged, its descriptor is never
// synced again, later groups are fine in the next segment.
func TestC06_FailedSync(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 100))
	require.NoError(t, err)
	j.tasks.Wait()
	bad := j.writer.id.name()
	durable := j.Durable()
	f.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: bad, Times: 1, Err: syscall.EIO})
	_, err = commit(j, newFrame(t, logs, 1, 100))
	var failed *AppendError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "sync", failed.Op)
	require.Equal(t, durable, j.Durable())
	f.StartTrace()
	p, err := commit(j, newFrame(t, logs, 2, 100))
	require.NoError(t, err)
	require.Equal(t, durable, p)
	j.tasks.Wait()
	require.NoError(t, j.Stamp(nil))
	for _, c := range f.Trace() {
		if c.Name != "" && c.Op&(crashfs.OpDatasync|crashfs.OpWrite|crashfs.OpTruncate) != 0 {
			require.NotContains(t, c.Name, bad, "%v", c)
		}
	}
	next := f.Crash(nil)
	_ = j.Close()
	again, rec, err := Open(next, testConfig("/wal"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	require.EqualValues(t, 2, rec.Frames)
	require.Len(t, readAll(t, again, 0), 2)
}

// TestC21_GroupFailsWhileTheNextGathers, with rotations queued: those that
// gathered are where they should be, without a second rotation.
func TestC21_GroupFailsWhileTheNextGathers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		op      crashfs.Op
		rotates int // segments closed in the end
	}{
		{"write fails: the queued rotation stands", crashfs.OpWrite, 1},
		{"sync fails: the owed rotation stands for the queued one", crashfs.OpDatasync, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, j := onCrashFS(t, func(c *Config) { c.SegmentSize, c.MaxFrameSize, c.GroupCap = 300_000, 100_000, 90_000 })
			_, err := commit(j, newFrame(t, logs, 0, 80_000))
			require.NoError(t, err)
			j.tasks.Wait()
			durable := j.Durable()
			failing := enqueue(j, newFrame(t, logs, 1, 80_000)) // 160 k of 300 k
			var behind []*Ticket
			for i := range 3 { // the second of them needs a rotation
				behind = append(behind, enqueue(j, newFrame(t, Lane{"b", KindTraces}, i, 80_000)))
			}
			require.False(t, behind[0].rotate)
			require.True(t, behind[1].rotate)
			require.False(t, behind[2].rotate)
			f.Inject(crashfs.Fault{Op: tc.op, Match: "*.wal", Times: 1, Err: syscall.EIO})
			require.NoError(t, withTurn(j, func() error { require.True(t, j.Advance()); return nil }))
			_, err = failing.Outcome()
			require.ErrorIs(t, err, syscall.EIO)
			drive(j)
			next := durable
			for _, tk := range behind {
				p, err := tk.Outcome()
				require.NoError(t, err)
				require.Equal(t, next, p)
				next += tk.framed
			}
			j.Lock()
			figures, held, reserved := j.Figures(), j.ledger.held, j.ledger.seatsTaken
			j.Unlock()
			require.Equal(t, tc.rotates, figures.ClosedRetained)
			require.Zero(t, figures.QueuedRotations)
			require.Zero(t, figures.Unflushed)
			require.Equal(t, []int{2, 0}, []int{held, reserved})
			require.Len(t, readAll(t, j, 0), 4)
			require.Equal(t, j.Durable()-j.Segments()[len(j.Segments())-1].Base, figures.CurrentBytes)
		})
	}
}

// TestRefusedBehindAFailedRotation: frames behind it are refused in order,
// with everything they reserved; those before it are written.
func TestRefusedBehindAFailedRotation(t *testing.T) {
	f, j := onCrashFS(t, func(c *Config) { c.SegmentSize, c.MaxFrameSize = 300_000, 100_000 })
	_, err := commit(j, newFrame(t, logs, 0, 90_000))
	require.NoError(t, err)
	j.tasks.Wait()
	before := enqueue(j, newFrame(t, logs, 1, 90_000))
	var behind []*Ticket
	for i := range 4 {
		behind = append(behind, enqueue(j, newFrame(t, Lane{"new", KindLogs}, i, 99_000)))
	}
	f.Inject(crashfs.Fault{Op: crashfs.OpRenameNoReplace, Times: 1, Err: syscall.EIO})
	drive(j)
	_, err = before.Outcome()
	require.NoError(t, err)
	wrote := 0
	for _, tk := range behind {
		if _, err := tk.Outcome(); err == nil {
			wrote++
			continue
		}
		var refused *RotationRefused
		_, err := tk.Outcome()
		require.ErrorAs(t, err, &refused)
		require.Equal(t, RotationRetrying, refused.State.Kind)
	}
	require.Equal(t, 1, wrote, "one still fitted")
	j.Lock()
	require.Zero(t, j.Figures().Unflushed)
	require.Zero(t, j.Figures().QueuedRotations)
	require.Equal(t, j.Durable(), j.Figures().Unreclaimed)
	require.True(t, j.TenantSeated("new"))
	j.Unlock()
}

// TestClose ends what is queued as undecided and can be repeated.
func TestClose(t *testing.T) {
	f, j := onCrashFS(t, nil)
	_, err := commit(j, newFrame(t, logs, 0, 100))
	require.NoError(t, err)
	grew := j.Grew()
	tk := enqueue(j, newFrame(t, logs, 1, 100))
	require.NoError(t, j.Close())
	<-tk.Done()
	_, err = tk.Outcome()
	require.ErrorIs(t, err, ErrClosed)
	<-grew
	require.NoError(t, j.Close())
	late := enqueue(j, newFrame(t, logs, 2, 100))
	<-late.Done()
	_, err = late.Outcome()
	require.ErrorIs(t, err, ErrClosed)
	l, err := f.Lock("/wal/LOCK")
	require.NoError(t, err, "the lock is released")
	require.NoError(t, l.Unlock())
}

// BenchmarkEnqueueAndCommit is the append path without a disk: what it costs
// and allocates per frame beside the frame itself.
func BenchmarkEnqueueAndCommit(b *testing.B) {
	f := crashfs.New(0)
	cfg := testConfig("/wal")
	cfg.SegmentSize, cfg.Limit = 1<<30, 1<<40
	cfg.Preallocate = false
	j, _, err := Open(f, cfg)
	require.NoError(b, err)
	defer j.Close()
	frames := make([]*Frame, 64)
	b.ReportAllocs()
	for b.Loop() {
		for i := range frames {
			frames[i] = newFrame(b, logs, i, 100)
			enqueue(j, frames[i])
		}
		drive(j)
	}
}

// BenchmarkCommit is an acknowledged append on the real file system.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		for _, payload := range []int{1 << 10, 16 << 10, 256 << 10} {
			b.Run(fmt.Sprintf("writers=%d/payload=%d", writers, payload), func(b *testing.B) {
				cfg := testConfig(b.TempDir())
				cfg.SegmentSize, cfg.MaxFrameSize, cfg.Limit, cfg.MaxSegments = 128<<20, 1<<20, 1<<40, 1000
				j, _ := open(b, cfg)
				b.SetBytes(int64(payload))
				b.SetParallelism(max(writers/runtime.GOMAXPROCS(0), 1))
				b.ReportAllocs()
				model := newFrame(b, logs, 1, payload)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						f := *model
						f.Sum()
						if _, err := commit(j, &f); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
