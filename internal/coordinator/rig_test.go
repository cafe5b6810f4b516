// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timetable is a barrier.Schedule whose instants a test sets.
type timetable struct {
	mu                           sync.Mutex
	nextBarrier, nextHousekeep   time.Time
	barrierEvery, housekeepEvery time.Duration
	flushBound                   time.Duration
	watermark                    float64
	flushes                      int
	onFlush                      func()
}

func (s *timetable) NextBarrier() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.nextBarrier }

func (s *timetable) NextHousekeeping() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextHousekeep
}
func (s *timetable) BarrierInterval() time.Duration      { return s.barrierEvery }
func (s *timetable) HousekeepingInterval() time.Duration { return s.housekeepEvery }
func (s *timetable) FlushBound() time.Duration           { return s.flushBound }
func (s *timetable) PressureWatermark() float64          { return s.watermark }
func (s *timetable) Flush(context.Context) {
	s.flushes++
	if s.onFlush != nil {
		s.onFlush()
	}
}

// sink is the coordinator's view of delivery: a test says how far each lane
// has settled.
type sink struct {
	mu       sync.Mutex
	frontier map[journal.Lane]journal.Position
	held     uint64
}

func (s *sink) Frontiers() map[journal.Lane]journal.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[journal.Lane]journal.Position, len(s.frontier))
	for l, p := range s.frontier {
		m[l] = p
	}
	return m
}

func (s *sink) HeldBytes() uint64 { return s.held }

func (s *sink) settle(l journal.Lane, to journal.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frontier[l] = to
}

// rig is a log with a coordinator whose timers and sink are the test's.
type rig struct {
	t    testing.TB
	fs   *crashfs.FS
	cfg  journal.Config
	set  Settings
	j    *journal.Journal
	c    *Coordinator
	time *timetable
	sink *sink
	logs *observer.ObservedLogs
	rec  journal.Recovery
}

// unit is what sizes here are multiples of: a segment must be 128 KiB larger
// than the largest frame.
const unit = 8 << 10

// newRig opens a fresh log of small segments, 64 units each, limit 256.
func newRig(t testing.TB, change ...func(*journal.Config)) *rig {
	t.Helper()
	r := &rig{t: t, fs: crashfs.New(1 << 30)}
	require.NoError(t, r.fs.Mkdir("/wal", 0o700))
	r.cfg = journal.Config{
		Directory: "/wal", SegmentSize: 64 * unit, SegmentAge: 10 * time.Minute, MaxFrameSize: 48 * unit, Limit: 256 * unit,
		MaxSegments: 16, MaxTenants: 8, RotationRetryAttempts: 10, Preallocate: true, QuarantineMaxBytes: 1 << 20,
	}
	for _, f := range change {
		f(&r.cfg)
	}
	r.open()
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.j, r.rec, err = journal.Open(r.fs, r.cfg)
	require.NoError(r.t, err)
	core, logs := observer.New(zapcore.DebugLevel)
	r.logs = logs
	r.time = &timetable{
		nextBarrier: time.Now().Add(30 * time.Second), nextHousekeep: time.Now().Add(10 * time.Second),
		barrierEvery: 30 * time.Second, housekeepEvery: 10 * time.Second, watermark: 0.5,
	}
	r.sink = &sink{frontier: map[journal.Lane]journal.Position{}}
	r.set = Settings{
		Journal: r.j, Limit: r.cfg.Limit, MaxSegments: r.cfg.MaxSegments, MaxTenants: r.cfg.MaxTenants, MaxFrameSize: r.cfg.MaxFrameSize,
		SegmentSize: r.cfg.SegmentSize, Logger: zap.New(core),
	}
	r.c = New(r.set)
	r.c.Bind(r.time, r.sink)
}

func (r *rig) close() {
	if r.j == nil {
		return
	}
	r.c.Close()
	require.NoError(r.t, r.j.Close())
	r.j = nil
}

func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	r.open()
}

var logsLane = journal.Lane{Kind: journal.KindLogs}

// frame is a frame of exactly n framed bytes.
func frame(t testing.TB, lane journal.Lane, n int) *journal.Frame {
	t.Helper()
	meta, err := journal.EncodeMetadata(lane.Tenant, nil)
	require.NoError(t, err)
	payload := n - int(journal.FramedLen(len(meta), 0))
	require.GreaterOrEqual(t, payload, 0, "frame of %d bytes is smaller than its header", n)
	return &journal.Frame{
		Kind: lane.Kind, Tenant: lane.Tenant, Items: 1, Received: time.Now().UnixNano(), Metadata: meta, Payload: [][]byte{make([]byte, payload)},
	}
}

// put commits n framed bytes of a lane; done must have run by the time Commit
// returns.
func (r *rig) put(lane journal.Lane, n int) (journal.Position, error) {
	r.t.Helper()
	calls := 0
	pos, err := r.c.Commit(r.t.Context(), frame(r.t, lane, n), func(bool) { calls++ })
	require.Equal(r.t, 1, calls, "done was called %d times", calls)
	return pos, err
}

func (r *rig) mustPut(lane journal.Lane, n int) journal.Position {
	r.t.Helper()
	pos, err := r.put(lane, n)
	require.NoError(r.t, err)
	return pos
}

// fill puts frames of n bytes until one is refused and returns how many were
// acknowledged and the refusal.
func (r *rig) fill(lane journal.Lane, n int) (int, *refusal.Error) {
	r.t.Helper()
	for i := range 100_000 {
		_, err := r.put(lane, n)
		if err == nil {
			continue
		}
		var e *refusal.Error
		require.ErrorAs(r.t, err, &e)
		return i, e
	}
	r.t.Fatal("never refused")
	return 0, nil
}

func (r *rig) figures() journal.Figures {
	r.j.Lock()
	defer r.j.Unlock()
	return r.j.Figures()
}

// current is the file name of the current segment: a fault meant for it must
// not meet the summary of the one before, which is written beside.
func (r *rig) current() string {
	s := r.j.Segments()
	return s[len(s)-1].Name
}

// settleAll says that everything durable was delivered.
func (r *rig) settleAll() {
	for _, l := range r.j.Lanes() {
		r.sink.settle(l.Lane, r.j.Durable())
	}
}

func (r *rig) barrier() {
	r.t.Helper()
	require.NoError(r.t, r.c.Barrier(r.t.Context(), barrier.Regular))
}

func (r *rig) housekeep() int {
	r.t.Helper()
	p, err := r.c.Housekeep(r.t.Context(), 128)
	require.NoError(r.t, err)
	return p.Removed
}

// frames reads the whole log.
func (r *rig) frames() (out []journal.ReadFrame) {
	r.t.Helper()
	rd := r.j.NewReader(0)
	defer func() { require.NoError(r.t, rd.Close()) }()
	for {
		f, err := rd.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(r.t, err)
		out = append(out, f)
	}
}

// events are the records with an event.name, as "name cause number".
func (r *rig) events() (out []string) {
	for _, e := range r.logs.All() {
		m := e.ContextMap()
		if name, ok := m["event.name"]; ok {
			out = append(out, fmt.Sprint(name, " ", m["cause"], " ", m["transition.number"]))
		}
	}
	return out
}
