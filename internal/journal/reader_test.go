// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// TestReaderBesideAppendsRotationsAndReclaiming: a reader that follows the log
// sees every frame that is not settled, once and whole.
func TestReaderBesideAppendsRotationsAndReclaiming(t *testing.T) {
	_, j := onCrashFS(t, func(c *Config) { c.SegmentSize, c.MaxFrameSize = 300_000, 100_000 })
	const n = 600
	var wg sync.WaitGroup
	read := make(chan Position, n)
	wg.Go(func() {
		for i := range n {
			if _, err := commit(j, newFrame(t, logs, i, 10+i*7919%20_000)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() { // maintenance settles what was read
		for p := range read {
			if err := j.Stamp(map[Lane]Position{logs: p}); err != nil {
				t.Error(err)
			}
			pass(j, 3)
		}
	})
	r := j.NewReader(0)
	defer r.Close()
	for i := 0; i < n; {
		grew := j.Grew()
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			<-grew
			continue
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(bytes.Join(newFrame(t, logs, i, 10+i*7919%20_000).Payload, nil), f.Payload), "frame %d", i)
		i++
		if i%20 == 0 {
			read <- f.Position + f.Len
		}
	}
	close(read)
	wg.Wait()
	_, err := r.Next()
	require.ErrorIs(t, err, io.EOF)
}

// TestReaderSizes: frames around the read-ahead's size, and beyond it.
func TestReaderSizes(t *testing.T) {
	_, j := onCrashFS(t, func(c *Config) { c.SegmentSize, c.MaxFrameSize = 8<<20, 2<<20 })
	sizes := []int{0, 1, readAhead - 51, readAhead - 50, readAhead - 49, readAhead - 1, readAhead, readAhead + 1, 1 << 20, 3, 2<<20 - 50, 700_000}
	for round := range 3 {
		for i, n := range sizes {
			_, err := commit(j, newFrame(t, logs, round+i, n))
			require.NoError(t, err)
		}
	}
	got := readAll(t, j, 0)
	require.Len(t, got, 3*len(sizes))
	for i, f := range got {
		want := newFrame(t, logs, i/len(sizes)+i%len(sizes), sizes[i%len(sizes)])
		require.True(t, bytes.Equal(bytes.Join(want.Payload, nil), f.Payload), "frame %d of %d bytes", i, len(f.Payload))
		require.Equal(t, want.Metadata, f.Metadata)
		require.Equal(t, want.FramedLen(), f.Len)
	}
	for i := range got { // from any frame, and from inside any
		r := j.NewReader(got[i].Position)
		f, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, got[i].Position, f.Position)
		require.NoError(t, r.Close())
		if i+1 < len(got) {
			r := j.NewReader(got[i].Position + 1)
			f, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, got[i+1].Position, f.Position)
			require.NoError(t, r.Close())
		}
	}
}

// TestReaderReadsOnce: reading a log asks the file system for every byte of it
// once, and more only to look behind frames beyond the read-ahead.
func TestReaderReadsOnce(t *testing.T) {
	f, j := onCrashFS(t, nil)
	for i := range 200 {
		_, err := commit(j, newFrame(t, logs, i, 3000))
		require.NoError(t, err)
	}
	f.StartTrace()
	require.Len(t, readAll(t, j, 0), 200)
	var total int64
	for _, c := range f.Trace() {
		if c.Op == crashfs.OpRead {
			total += c.Len
		}
	}
	require.Equal(t, int64(j.Durable()), total)
}

// TestReaderTriesOnceMore: one failed read is no damage; a medium that goes on
// failing is, and is named.
func TestReaderTriesOnceMore(t *testing.T) {
	f, j := onCrashFS(t, nil)
	p, err := commit(j, newFrame(t, logs, 1, 3000))
	require.NoError(t, err)
	f.Inject(crashfs.Fault{Op: crashfs.OpRead, Match: "*.wal", Times: 1, Err: syscall.EIO})
	require.Len(t, readAll(t, j, 0), 1)

	remove := f.Inject(crashfs.Fault{Op: crashfs.OpRead, Match: "*.wal", Err: syscall.EIO})
	r := j.NewReader(0)
	defer r.Close()
	for range 3 {
		_, err := r.Next()
		var d *DamageError
		require.ErrorAs(t, err, &d)
		require.ErrorIs(t, err, syscall.EIO)
		require.Equal(t, []Position{p, j.Durable()}, []Position{d.Start, d.End})
		require.Equal(t, []Lane{logs}, d.Lanes)
	}
	remove()
}

// TestReaderInsideAGap: a position that was a frame's before a gap was written
// over several frames leads to the frame behind the gap.
func TestReaderInsideAGap(t *testing.T) {
	f, j := onCrashFS(t, func(c *Config) { c.OnCorruption = CorruptionQuarantine })
	var at []Position
	for i := range 5 {
		p, err := commit(j, newFrame(t, logs, i, 300))
		require.NoError(t, err)
		at = append(at, p)
	}
	name := j.path(j.writer.id.name())
	data, err := f.ReadFile(name)
	require.NoError(t, err)
	for _, i := range []int{1, 2, 3} {
		data[j.writer.id.offset(at[i])+100] ^= 1
	}
	require.NoError(t, f.WriteFile(name, data))
	require.Len(t, readAll(t, j, 0), 2)
	require.NoError(t, withTurn(j, j.Discharge))
	for i := range at[1:4] {
		got := readAll(t, j, at[i+1])
		require.Len(t, got, 1)
		require.Equal(t, at[4], got[0].Position)
	}
	s := j.Stats()
	require.Equal(t, at[4]-at[1], s.QuarantinedBytes)
	require.Len(t, j.damage.met, 1)
	require.True(t, j.damage.met[0].err.Known)
	require.EqualValues(t, 2+3+4, j.damage.met[0].err.Items, "known from what the segment had")

	// The segment's figures still count what the gap replaced: no summary may
	// repeat them.
	require.NoError(t, withTurn(j, j.RotateForced))
	j.tasks.Wait()
	require.NoError(t, j.Close())
	cfg := testConfig("/wal")
	j, rec, err := Open(f, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	require.Equal(t, 1, rec.Scanned)
	require.EqualValues(t, 2, rec.Frames)
	require.EqualValues(t, 1+5, rec.Items)
}
