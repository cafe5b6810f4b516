// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
)

// testConfig is a small log: segments of 1 MiB.
func testConfig(dir string) Config {
	return Config{
		Directory: dir, SegmentSize: 1 << 20, SegmentAge: time.Hour, MaxFrameSize: 256 << 10, Limit: 1 << 30,
		MaxSegments: 100, MaxTenants: 16, QuarantineMaxBytes: 1 << 20, Preallocate: true, DeadLetterMaxBytes: 1 << 20,
	}
}

// open opens a log on the real file system and closes it with the test.
func open(t testing.TB, cfg Config) (*Journal, Recovery) {
	t.Helper()
	j, r, err := Open(fsys.OS, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j, r
}

// newFrame makes a summed frame of n payload bytes that tell i.
func newFrame(t testing.TB, lane Lane, i, n int) *Frame {
	t.Helper()
	meta, err := EncodeMetadata(lane.Tenant, nil)
	require.NoError(t, err)
	payload := bytes.Repeat([]byte{byte(i), byte(i >> 8), 0xA5}, n/3+1)[:n]
	f := &Frame{Kind: lane.Kind, Tenant: lane.Tenant, Items: uint32(i%7 + 1), Received: int64(1000 + i), Metadata: meta, Payload: [][]byte{payload[:n/2], payload[n/2:]}}
	f.Sum()
	return f
}

// enqueue queues a frame without anybody advancing the log.
func enqueue(j *Journal, f *Frame) *Ticket {
	j.Lock()
	defer j.Unlock()
	return j.Enqueue(f, j.RotationDue(f.FramedLen()))
}

// drive advances the log under the turn until nothing is queued.
func drive(j *Journal) {
	j.TurnC() <- struct{}{}
	defer j.ReleaseTurn()
	for j.Advance() {
	}
}

// withTurn runs f under the writer turn.
func withTurn(j *Journal, f func() error) error {
	j.TurnC() <- struct{}{}
	defer j.ReleaseTurn()
	return f()
}

// commit is what a caller of the log does with one frame.
func commit(j *Journal, f *Frame) (Position, error) {
	t := enqueue(j, f)
	for {
		select {
		case <-t.Done():
			return t.Outcome()
		case j.TurnC() <- struct{}{}:
			select {
			case <-t.Done():
			default:
				j.Advance()
			}
			j.ReleaseTurn()
		}
	}
}

// readAll returns every frame from a position to the durable end.
func readAll(t testing.TB, j *Journal, from Position) []ReadFrame {
	t.Helper()
	r := j.NewReader(from)
	defer func() { require.NoError(t, r.Close()) }()
	var all []ReadFrame
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, f)
	}
}

var logs = Lane{"", KindLogs}

func TestAppendReadReopen(t *testing.T) {
	cfg := testConfig(t.TempDir())
	j, _ := open(t, cfg)
	const n = 60
	var want []Position
	for i := range n {
		p, err := commit(j, newFrame(t, logs, i, 40_000))
		require.NoError(t, err)
		want = append(want, p)
	}
	check := func(j *Journal) {
		t.Helper()
		got := readAll(t, j, 0)
		require.Len(t, got, n)
		for i, f := range got {
			require.Equal(t, want[i], f.Position)
			require.Equal(t, bytes.Join(newFrame(t, logs, i, 40_000).Payload, nil), f.Payload)
			require.Equal(t, uint32(i%7+1), f.Items)
		}
		require.Equal(t, want[n-1]+got[n-1].Len, j.Durable())
	}
	check(j)
	figures := j.Stats()
	require.Greater(t, figures.ClosedRetained, 1)
	require.NoError(t, j.Close())

	j, rec := open(t, cfg)
	check(j)
	require.Equal(t, figures.Unreclaimed, j.Stats().Unreclaimed)
	require.Equal(t, figures.ClosedRetained, j.Stats().ClosedRetained)
	require.Equal(t, uint64(n), rec.Frames)
	require.Zero(t, rec.TruncatedBytes)
	require.Zero(t, rec.Scanned, "every closed segment has a summary")
}

func TestReclaim(t *testing.T) {
	cfg := testConfig(t.TempDir())
	j, _ := open(t, cfg)
	for i := range 100 {
		_, err := commit(j, newFrame(t, logs, i, 40_000))
		require.NoError(t, err)
	}
	closed := j.Stats().ClosedRetained
	require.NoError(t, j.Stamp(map[Lane]Position{logs: j.Durable()}))
	require.True(t, j.BarrierSeen())
	j.Lock()
	require.Equal(t, closed, j.ReclaimState().Eligible)
	p := j.Prepare(2)
	j.Unlock()
	p.Execute(context.Background())
	j.Lock()
	planned, removed, remaining := j.Commit(p)
	j.Unlock()
	require.Equal(t, []int{2, 2, closed - 2}, []int{planned, removed, remaining})
	first := j.Segments()[0].Base
	require.Equal(t, first, readAll(t, j, 0)[0].Position)
	unreclaimed := j.Stats().Unreclaimed
	require.Equal(t, j.Durable()-first, unreclaimed)
	require.NoError(t, j.Close())
	j, rec := open(t, cfg)
	require.Equal(t, unreclaimed, j.Stats().Unreclaimed)
	require.Equal(t, map[Lane]Position{logs: j.Durable()}, rec.Horizons)
	require.Empty(t, rec.LaneItems)
}

func TestGroupCommit(t *testing.T) {
	j, _ := open(t, testConfig(t.TempDir()))
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 20 {
				if _, err := commit(j, newFrame(t, Lane{fmt.Sprint(w), KindTraces}, i, 1000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, readAll(t, j, 0), 320)
	held, reserved := j.Seats()
	require.Equal(t, []int{16, 0}, []int{held, reserved})
}
