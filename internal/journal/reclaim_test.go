// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// pass is one pass of reclaiming over at most limit segments.
func pass(j *Journal, limit int) (planned, removed, remaining int) {
	j.Lock()
	p := j.Prepare(limit)
	j.Unlock()
	p.Execute(context.Background())
	j.Lock()
	defer j.Unlock()
	return j.Commit(p)
}

func bases(j *Journal) (all []Position) {
	for _, s := range j.Segments() {
		all = append(all, s.Base)
	}
	return all
}

// TestD01_OnlySettledSegmentsGo: a frame exactly at the horizon holds its
// segment, the current one survives, a segment that ends in a gap goes.
func TestD01_OnlySettledSegmentsGo(t *testing.T) {
	_, j := onCrashFS(t, nil)
	var at []Position
	for i := range 4 {
		p, err := commit(j, newFrame(t, logs, i, 500))
		require.NoError(t, err)
		at = append(at, p)
		require.NoError(t, withTurn(j, j.RotateForced))
	}
	for i := range at {
		require.NoError(t, j.Stamp(map[Lane]Position{logs: at[i]}))
		pass(j, 100)
		require.Equal(t, append(at[i:len(at):len(at)], j.Durable()), bases(j), "the horizon is at frame %d", i)
	}
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable() + 1000})) // a frontier is never past what is durable
	pass(j, 100)
	require.Equal(t, []Position{j.Durable()}, bases(j))
	require.Zero(t, j.Stats().Unreclaimed)
	held, _ := j.Seats()
	require.Zero(t, held)
	require.Empty(t, j.Lanes())

	// What was settled as far as the index knew is not with one more frame.
	_, err := commit(j, newFrame(t, logs, 1, 500))
	require.NoError(t, err)
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	last, err := commit(j, newFrame(t, logs, 2, 500))
	require.NoError(t, err)
	require.NoError(t, withTurn(j, j.RotateForced))
	pass(j, 100)
	require.Len(t, bases(j), 2)
	require.Equal(t, last, j.Lanes()[0].First)
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	pass(j, 100)
	require.Len(t, bases(j), 1)
}

// TestD02_LaggingLaneHoldsItsSegments, and no others: ranges in the middle of
// the log are reclaimed, read over, and known after a restart.
func TestD02_LaggingLaneHoldsItsSegments(t *testing.T) {
	f, j := onCrashFS(t, nil)
	lagging := Lane{"slow", KindTraces}
	var held []Position
	for i := range 20 {
		l := logs
		if i%5 == 2 {
			l = lagging
		}
		p, err := commit(j, newFrame(t, l, i, 500))
		require.NoError(t, err)
		if l == lagging {
			held = append(held, p)
		}
		require.NoError(t, withTurn(j, j.RotateForced))
	}
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	_, removed, remaining := pass(j, 100)
	require.Equal(t, []int{16, 0}, []int{removed, remaining})
	want := append(held[:len(held):len(held)], j.Durable())
	require.Equal(t, want, bases(j))
	check := func(j *Journal) {
		t.Helper()
		require.Equal(t, want, bases(j))
		var got []Position
		for _, fr := range readAll(t, j, 0) {
			got = append(got, fr.Position)
		}
		require.Equal(t, held, got)
		p, ok := j.NextOf(lagging, held[1]+1)
		require.True(t, ok)
		require.Equal(t, held[2], p)
		_, ok = j.NextOf(logs, 0)
		require.False(t, ok)
	}
	check(j)
	for range 2 {
		require.NoError(t, j.Close())
		var err error
		j, _, err = Open(f, testConfig("/wal"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = j.Close() })
		check(j)
	}
	require.NoError(t, j.Stamp(map[Lane]Position{lagging: held[2]})) // not the oldest alone
	pass(j, 100)
	require.Equal(t, want[2:], bases(j))
}

// TestD05_StateCommitFails: then the old horizons rule, and nothing is
// unlinked.
func TestD05_StateCommitFails(t *testing.T) {
	for _, op := range []crashfs.Op{crashfs.OpWrite, crashfs.OpDatasync} {
		f, j := onCrashFS(t, nil)
		_, err := commit(j, newFrame(t, logs, 1, 500))
		require.NoError(t, err)
		require.NoError(t, withTurn(j, j.RotateForced))
		j.tasks.Wait()
		f.Inject(crashfs.Fault{Op: op, Match: stateName, Times: 1, Err: syscall.EIO})
		require.ErrorIs(t, j.Stamp(map[Lane]Position{logs: j.Durable()}), syscall.EIO)
		require.False(t, j.BarrierSeen())
		planned, _, _ := pass(j, 10)
		require.Zero(t, planned)
		require.Zero(t, j.Lanes()[0].Horizon)

		require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}), "the next commit succeeds")
		f.Inject(crashfs.Fault{Op: op, Match: stateName, Times: 1, Err: syscall.EIO})
		planned, removed, remaining := pass(j, 10)
		require.Equal(t, []int{1, 0, 1}, []int{planned, removed, remaining})
		_, err = f.Lstat(j.path(j.Segments()[0].Name))
		require.NoError(t, err, "no unlink before its plan is durable")
		_, removed, remaining = pass(j, 10)
		require.Equal(t, []int{1, 0}, []int{removed, remaining})
	}
}

// TestD06_PassIsBounded: over 100 000 segments the halves under the lock do
// work for the segments they take only, the file half asks nothing of the file
// system but their unlinks, and an append completes while it is held.
func TestD06_PassIsBounded(t *testing.T) {
	const segments, limit = 100_000, 128
	f, j := onCrashFS(t, func(c *Config) { c.MaxSegments, c.MaxTenants = 2*segments, 1000 })
	_, err := commit(j, newFrame(t, logs, 0, 500))
	require.NoError(t, err)
	j.tasks.Wait()

	// The segments are made in the ledger only: a pass does not look at files
	// it does not take.
	j.Lock()
	l := &j.ledger
	for i := range segments {
		s := l.current()
		p := s.end
		l.record(s, l.lane("", KindLogs), p, 1, 1)
		l.record(s, l.lane(fmt.Sprint(i%100), KindTraces), p+50, 1, 1)
		s.end += 100
		l.unreclaimed += 100
		l.closeCurrent()
		l.add(&segment{id: segmentID{s.end, uint32(i + 1)}, end: s.end})
	}
	j.durable.Store(l.current().end)
	for _, ln := range l.lanes {
		l.stamp(ln, j.Durable())
	}
	holds := 0
	for l.settle(settleSteps) {
		holds++
	}
	j.Unlock()
	require.GreaterOrEqual(t, holds, 2*segments/settleSteps-1, "the index is worked through in bounded steps")
	require.Equal(t, segments, j.ReclaimState().Eligible)

	work := testing.AllocsPerRun(1, func() {
		j.Lock()
		p := j.Prepare(limit)
		j.Unlock()
		require.Len(t, p.segments, limit)
		j.Lock()
		p.removed = p.segments
		j.Commit(p)
		j.Unlock()
	})
	require.Less(t, work, float64(200), "a pass allocates for what it takes")

	j.Lock()
	p := j.Prepare(limit)
	j.Unlock()
	require.NotEmpty(t, p.segments)
	release, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.SetHook(func(c crashfs.Call) {
		if c.Op == crashfs.OpUnlink && path.Ext(c.Name) == ".wal" {
			once.Do(func() { close(reached); <-release })
		}
	})
	f.StartTrace()
	var wg sync.WaitGroup
	wg.Go(func() { p.Execute(context.Background()) })
	<-reached
	j.writer.id.base, j.writer.id.ordinal = j.Durable(), segments // the file is the first segment's
	_, err = commit(j, newFrame(t, logs, 1, 500))
	require.NoError(t, err, "an append completes while the file half is held")
	close(release)
	wg.Wait()
	unlinks := 0
	for _, c := range f.Trace() {
		if c.Op == crashfs.OpUnlink && path.Ext(c.Name) == ".wal" {
			unlinks++
		}
		require.False(t, path.Ext(c.Name) == ".wal" && c.Op == crashfs.OpRead, "no segment is read: %v", c)
	}
	require.LessOrEqual(t, unlinks, limit)
}

// TestReclaimRetries: a segment that cannot be unlinked does not keep others
// from being reclaimed, and is tried again.
func TestReclaimRetries(t *testing.T) {
	f, j := onCrashFS(t, nil)
	for i := range 6 {
		_, err := commit(j, newFrame(t, logs, i, 500))
		require.NoError(t, err)
		require.NoError(t, withTurn(j, j.RotateForced))
	}
	stuck := j.Segments()[0].Name
	remove := f.Inject(crashfs.Fault{Op: crashfs.OpUnlink, Match: stuck, Err: syscall.EPERM})
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	for range 3 {
		pass(j, 1)
		require.True(t, j.Stats().Unattempted, "there are some that no pass has attempted")
	}
	require.Len(t, j.Segments(), 5, "it keeps no other from going")
	for range 3 {
		pass(j, 2)
	}
	require.Len(t, j.Segments(), 2)
	require.False(t, j.Stats().Unattempted)
	require.Equal(t, stuck, j.Segments()[0].Name)
	require.Equal(t, "reclaiming", j.Segments()[0].State)
	require.Equal(t, 1, j.Stats().Retrying)
	remove()
	_, removed, remaining := pass(j, 2)
	require.Equal(t, []int{1, 0}, []int{removed, remaining})
	_, err := f.Lstat("/wal/" + stuck)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestAgedSegments: age ends a settled segment only, and never refuses.
func TestAgedSegments(t *testing.T) {
	now := time.Now()
	_, j := onCrashFS(t, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.SegmentAge, c.MaxSegments = time.Minute, 1
	})
	due := func() Rotation {
		j.Lock()
		defer j.Unlock()
		return j.RotationDue(100)
	}
	segments := func() int { return len(j.Segments()) }
	now = now.Add(time.Hour)
	require.Equal(t, Rotation{}, due(), "a segment without a frame does not age")
	require.NoError(t, withTurn(j, j.RotateIfAged))
	require.Equal(t, 1, segments())
	_, err := commit(j, newFrame(t, logs, 1, 500))
	require.NoError(t, err)
	require.NoError(t, withTurn(j, j.RotateIfAged))
	require.Equal(t, 1, segments(), "nor does one with a frame that is not settled")
	require.Equal(t, Rotation{}, due())
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	require.True(t, due().ByAge)
	require.NoError(t, withTurn(j, j.RotateIfAged))
	require.Equal(t, 2, segments())

	_, err = commit(j, newFrame(t, logs, 1, 500))
	require.NoError(t, err)
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	now = now.Add(time.Hour)
	require.Equal(t, Rotation{}, due(), "at the ceiling the segment is used on")
	require.NoError(t, withTurn(j, j.RotateIfAged))
	require.Equal(t, 2, segments())
}

// occupied is what the files in the log's directory and below take.
func occupied(t require.TestingT, f *crashfs.FS) (total uint64) {
	c := f.Clone()
	for _, dir := range []string{"", deadLetterName, quarantineName} {
		infos, err := c.List(path.Join("/wal", dir))
		if dir == "" {
			require.NoError(t, err)
		}
		for _, i := range infos {
			if i.Mode.IsRegular() {
				total += uint64(i.Blocks)
			}
		}
	}
	return total
}

// TestDiskSize: wal.disk.size is what the files take, whatever became of them.
func TestDiskSize(t *testing.T) {
	f, j := onCrashFS(t, func(c *Config) { c.OnCorruption = CorruptionQuarantine })
	look := func(what string) {
		t.Helper()
		j.tasks.Wait()
		require.NoError(t, j.Stamp(nil))
		require.Equal(t, occupied(t, f), j.Stats().Disk, what)
	}
	look("a fresh log")
	whole := 5*crashfs.BlockSize - segmentHeaderLen - int(newFrame(t, logs, 0, 0).FramedLen()) // its segment ends with a block
	var at []Position
	for i := range 4 {
		p, err := commit(j, newFrame(t, logs, i, whole))
		require.NoError(t, err)
		at = append(at, p)
		look("it grows, and the next segment is there")
		if i < 3 {
			require.NoError(t, withTurn(j, j.RotateForced))
			look("the one before it is cut to its length")
		}
	}
	frames := readAll(t, j, 0)
	require.NoError(t, j.WriteDeadLetter(frames[0], "why", 1<<20))
	look("a dead letter")

	name := j.path(segmentID{at[1], 1}.name())
	data, err := f.ReadFile(name)
	require.NoError(t, err)
	data[1000] ^= 1
	require.NoError(t, f.WriteFile(name, data))
	require.Len(t, readAll(t, j, 0), 3)
	look("a copy in quarantine")
	require.NoError(t, withTurn(j, j.Discharge))
	look("a gap, and no summary any more")

	require.NoError(t, j.Stamp(map[Lane]Position{logs: at[1]}))
	before := j.Stats().Disk
	_, removed, _ := pass(j, 10)
	require.Equal(t, 1, removed)
	require.Equal(t, occupied(t, f), j.Stats().Disk, "at once")
	require.Less(t, j.Stats().Disk, before)

	f.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: "*-00000003.wal", Times: 1, Err: syscall.EIO})
	_, err = commit(j, newFrame(t, logs, 9, 20_000))
	require.Error(t, err)
	_, err = commit(j, newFrame(t, logs, 9, 20_000))
	require.NoError(t, err)
	require.Equal(t, 1, j.Stats().Sealed)
	look("a sealed segment")

	require.NoError(t, f.WriteFile("/wal/notes", make([]byte, 10_000)))
	require.NoError(t, j.Close())
	j, _, err = Open(f, j.cfg)
	require.NoError(t, err)
	defer j.Close()
	require.Equal(t, occupied(t, f), j.Stats().Disk, "at open, with what is not the log's")
}

// listCounter counts the entries of directories that were listed.
type listCounter struct {
	fsys.FS
	entries int
}

func (c *listCounter) List(dir string) ([]fsys.Info, error) {
	infos, err := c.FS.List(dir)
	c.entries += len(infos)
	return infos, err
}

// TestAPassDoesNotLookAtEverySegment: what maintenance asks of the file system
// does not grow with the number of segments.
func TestAPassDoesNotLookAtEverySegment(t *testing.T) {
	f := crashfs.New(0)
	c := &listCounter{FS: f}
	cfg := testConfig("/wal")
	cfg.Now = time.Now
	j, _, err := Open(c, cfg)
	require.NoError(t, err)
	defer j.Close()
	cost := func() (calls int) {
		j.tasks.Wait()
		c.entries = 0
		begun := f.Calls(crashfs.Any)
		require.NoError(t, j.Stamp(nil))
		_, removed, _ := pass(j, 10)
		require.Zero(t, removed)
		assert.Zero(t, c.entries, "files looked at one by one")
		return f.Calls(crashfs.Any) - begun
	}
	rotate := func(n int) {
		for i := range n {
			_, err := commit(j, newFrame(t, logs, i, 100))
			require.NoError(t, err)
			require.NoError(t, withTurn(j, j.RotateForced))
		}
	}
	rotate(2)
	few := cost()
	rotate(60)
	require.Equal(t, 62, j.Stats().ClosedRetained)
	assert.Equal(t, few, cost())
	assert.LessOrEqual(t, few, 10)
}
