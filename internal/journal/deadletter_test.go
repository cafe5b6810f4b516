// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

func letterNames(t *testing.T, f *crashfs.FS) (names []string) {
	t.Helper()
	infos, err := f.Clone().List("/wal/" + deadLetterName)
	require.NoError(t, err)
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names
}

// TestDeadLetter: the frame verbatim behind its segment's header, the reason
// to the end; a second letter for the same frame is success and writes
// nothing.
func TestDeadLetter(t *testing.T) {
	f, j := onCrashFS(t, nil)
	for i := range 3 {
		_, err := commit(j, newFrame(t, Lane{"acme", KindMetrics}, i, 500))
		require.NoError(t, err)
	}
	segment, err := f.ReadFile(j.path(j.writer.id.name()))
	require.NoError(t, err)
	fr := readAll(t, j, 0)[1]
	require.NoError(t, j.WriteDeadLetter(fr, "no such index", 1<<20))
	id := j.LogID()
	name := fmt.Sprintf("%x-%016x-metrics.frame", id[:4], fr.Position)
	require.Equal(t, []string{name}, letterNames(t, f))
	data, err := f.ReadFile("/wal/dead-letter/" + name)
	require.NoError(t, err)
	h, err := decodeSegmentHeader(data, flagDeadLetter)
	require.NoError(t, err)
	require.Equal(t, segmentHeader{flags: flagDeadLetter, log: id, id: segmentID{}, created: j.writer.created}, h)
	off := segmentHeaderLen + int(fr.Position)
	require.True(t, bytes.Equal(segment[off:off+int(fr.Len)], data[segmentHeaderLen:segmentHeaderLen+int(fr.Len)]))
	require.Equal(t, "no such index", string(data[segmentHeaderLen+int(fr.Len):]))

	j.tasks.Wait() // the preparation of the next segment writes too
	writes := f.Calls(crashfs.OpWrite)
	require.NoError(t, j.WriteDeadLetter(fr, "again", 0), "it is there already, whatever the limit")
	require.Equal(t, writes, f.Calls(crashfs.OpWrite))

	// Another frame's letter under its name is never overwritten.
	other := readAll(t, j, 0)[2]
	taken := fmt.Sprintf("/wal/dead-letter/%x-%016x-metrics.frame", id[:4], other.Position)
	require.NoError(t, f.WriteFile(taken, data))
	require.NoError(t, f.WriteFile(path.Join(path.Dir(taken), fmt.Sprintf("%x-%016x-metrics-1.frame", id[:4], other.Position)), []byte("short")))
	require.NoError(t, j.WriteDeadLetter(other, "x", 1<<20))
	require.Contains(t, letterNames(t, f), fmt.Sprintf("%x-%016x-metrics-2.frame", id[:4], other.Position))
	after, err := f.ReadFile(taken)
	require.NoError(t, err)
	require.Equal(t, data, after)
}

func TestDeadLetterFull(t *testing.T) {
	f, j := onCrashFS(t, nil)
	for i := range 2 {
		_, err := commit(j, newFrame(t, logs, i, 500))
		require.NoError(t, err)
	}
	frames := readAll(t, j, 0)
	size := segmentHeaderLen + frames[0].Len + 1
	require.ErrorIs(t, j.WriteDeadLetter(frames[0], "x", size-1), ErrDeadLetterFull)
	require.NoError(t, j.WriteDeadLetter(frames[0], "x", size))
	require.ErrorIs(t, j.WriteDeadLetter(frames[1], "x", 2*size-1), ErrDeadLetterFull)
	f.SetVolume(1)
	require.ErrorIs(t, j.WriteDeadLetter(frames[1], "x", 1<<20), ErrDeadLetterFull)
	f.SetVolume(0)
	require.NoError(t, j.WriteDeadLetter(frames[1], "x", 1<<20))
}

// TestDeadLetterIsDurable: once it is written, no power cut takes it; while it
// is not, no part of it has a letter's name.
func TestDeadLetterIsDurable(t *testing.T) {
	for _, op := range []crashfs.Op{0, crashfs.OpCreate, crashfs.OpWrite, crashfs.OpDatasync, crashfs.OpLink, crashfs.OpUnlink, crashfs.OpSyncDir} {
		f, j := onCrashFS(t, nil)
		for i := range 2 {
			_, err := commit(j, newFrame(t, logs, i, 500))
			require.NoError(t, err)
		}
		frames := readAll(t, j, 0)
		require.NoError(t, j.WriteDeadLetter(frames[0], "x", 1<<20))
		if op != 0 {
			match := "*.frame.partial" // the letter's, not those of the segment being prepared
			if op == crashfs.OpSyncDir {
				match = "dead-letter"
			}
			f.Inject(crashfs.Fault{Op: op, Match: match, Times: 1, Bytes: 70, Err: syscall.EIO})
			err := j.WriteDeadLetter(frames[1], "x", 1<<20)
			require.ErrorIs(t, err, syscall.EIO, "%v", op)
		}
		require.NoError(t, j.WriteDeadLetter(frames[1], "x", 1<<20), "%v", op)
		left := f.Crash(nil)
		names := letterNames(t, left)
		require.Len(t, names, 2, "%v", op)
		for i, n := range names {
			data, err := left.ReadFile("/wal/dead-letter/" + n)
			require.NoError(t, err)
			require.Len(t, data, segmentHeaderLen+int(frames[i].Len)+1, "%v", op)
		}
	}
}
