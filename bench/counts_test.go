// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/bench/internal/countfs"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
)

// settled returns an open log that runs nothing in the background: its next
// segment is prepared.
func settled(t *testing.T, fs fsys.FS, cfg journal.Config) *log {
	t.Helper()
	l, err := openLog(fs, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.close()) })
	require.Eventually(t, func() bool { // a turn takes over what was prepared beside the one before
		return l.put("", metadataOf(""), []byte("x"), 1) == nil && l.journal.Stats().Prepared
	}, time.Minute, time.Millisecond)
	return l
}

// Every group costs one pwritev and one fdatasync, and no other call.
func TestGroupCostsOneWriteAndOneSync(t *testing.T) {
	counts := countfs.New(fsys.OS)
	l := settled(t, counts, logConfig(t.TempDir()))
	groups, calls, writes, syncs := l.groups.n.Load(), counts.Calls(), counts.Writes.Load(), counts.Datasyncs.Load()

	const writers, each = 16, 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				assert.NoError(t, l.put("", metadataOf(""), make([]byte, 1<<10), 1))
			}
		})
	}
	all.Wait()

	groups = l.groups.n.Load() - groups
	assert.Positive(t, groups)
	assert.Equal(t, groups, counts.Writes.Load()-writes, "pwritev")
	assert.Equal(t, groups, counts.Datasyncs.Load()-syncs, "fdatasync")
	assert.Equal(t, 2*groups, counts.Calls()-calls, "all calls")
}

// While one group is being synced the next gathers, and takes all that came:
// 64 writers then need at most a tenth of an fdatasync per acknowledgement,
// whatever the disk. Here a sync lasts until all that still write have written.
func TestGroupsFormUnderConcurrency(t *testing.T) {
	counts := countfs.New(crashfs.New(0))
	l := settled(t, counts, logConfig("/wal"))
	const writers, each = 64, 50
	framed := journal.FramedLen(len(metadataOf("")), 1<<10)

	var left atomic.Int64 // writers that still write
	left.Store(writers)
	slow := func() {
		for l.journal.Stats().Unflushed < uint64(left.Load())*framed {
			time.Sleep(10 * time.Microsecond)
		}
	}
	counts.BeforeDatasync.Store(&slow)
	before := counts.Datasyncs.Load()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				assert.NoError(t, l.put("", metadataOf(""), make([]byte, 1<<10), 1))
			}
			left.Add(-1)
		})
	}
	all.Wait()
	syncs := counts.Datasyncs.Load() - before
	t.Logf("%d acknowledgements, %d fdatasyncs", writers*each, syncs)
	assert.LessOrEqual(t, syncs, int64(writers*each/10))
}

// Opening reads summaries, not segments.
func TestC15_OpenReadsSummariesOnly(t *testing.T) {
	const segments = 10000
	base := crashfs.New(0)
	cfg, err := manySegments(base, "/wal", segments)
	require.NoError(t, err)
	counts := countfs.New(base)
	l, err := openLog(counts, cfg)
	require.NoError(t, err)
	assert.Zero(t, l.recovery.Scanned)
	assert.EqualValues(t, segments+1, l.recovery.Frames)
	assert.Equal(t, segments, l.journal.Stats().ClosedRetained)
	assert.LessOrEqual(t, counts.BytesRead.Load(), int64(2*segments*summarySize))
	require.NoError(t, l.close())
}
