// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is a log in memory whose reads a test can count, hold and fail. Its
// ledger is exact to the frame, where a journal's may be to the segment.
type memLog struct {
	mu      sync.Mutex
	frames  []journal.ReadFrame
	durable journal.Position
	grew    chan struct{}
	horizon map[journal.Lane]journal.Position
	gone    map[journal.Position]bool // frames damage took: read as if they were a gap
	fail    func(p journal.Position) error
	slow    func() time.Duration // how long a read takes, before and after
	given   map[*byte]bool       // unless nil: the memory of every frame that was read
	hidden  bool                 // the ledger says there are no lanes

	reads    int
	letters  []journal.Position
	reasons  []string
	letterOK func(n int) error // says whether the n-th letter (from 0) can be written
}

func newMemLog() *memLog {
	return &memLog{grew: make(chan struct{}), horizon: map[journal.Lane]journal.Position{}, gone: map[journal.Position]bool{}}
}

func (m *memLog) append(lane journal.Lane, items int, payload []byte, kept ...journal.Entry) journal.Position {
	meta, err := journal.EncodeMetadata(lane.Tenant, kept)
	if err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := journal.ReadFrame{
		Position: m.durable, Len: uint64(40 + len(meta) + len(payload)), Kind: lane.Kind, Tenant: lane.Tenant,
		Metadata: meta, Items: uint32(items), Received: time.Now().UnixNano(), Payload: payload,
	}
	m.frames = append(m.frames, f)
	m.durable += f.Len
	close(m.grew)
	m.grew = make(chan struct{})
	return f.Position
}

// gap lets the log go on n bytes later, as the end of a segment does.
func (m *memLog) gap(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durable += n
	close(m.grew)
	m.grew = make(chan struct{})
}

func (m *memLog) LogID() [16]byte { return [16]byte{1, 2, 3} }

func (m *memLog) Durable() journal.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.durable
}

func (m *memLog) Grew() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.grew
}

func (m *memLog) Lanes() []journal.LaneInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hidden {
		return nil
	}
	var out []journal.LaneInfo
	at := map[journal.Lane]int{}
	for _, f := range m.frames {
		id := journal.Lane{Tenant: f.Tenant, Kind: f.Kind}
		i, ok := at[id]
		if !ok {
			i = len(out)
			at[id] = i
			out = append(out, journal.LaneInfo{Lane: id, First: f.Position, Horizon: m.horizon[id], Oldest: f.Received})
		}
		out[i].Last = f.Position
	}
	return out
}

func (m *memLog) NextOf(l journal.Lane, from journal.Position) (_ journal.Position, ok bool) {
	m.mu.Lock()
	defer func() {
		m.mu.Unlock()
		m.take() // what it says may be old by then
	}()
	for _, f := range m.frames[m.index(from):] {
		if f.Tenant == l.Tenant && f.Kind == l.Kind {
			return f.Position, true
		}
	}
	return 0, false
}

// index is that of the first frame at or after p.
func (m *memLog) index(p journal.Position) int {
	i, _ := slices.BinarySearchFunc(m.frames, p, func(f journal.ReadFrame, p journal.Position) int {
		return int(int64(f.Position) - int64(p))
	})
	return i
}

func (m *memLog) WriteDeadLetter(f journal.ReadFrame, reason string, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.letterOK != nil {
		if err := m.letterOK(len(m.letters)); err != nil {
			return err
		}
	}
	if f.Payload == nil {
		return errors.New("letter without a payload")
	}
	if slices.Contains(m.letters, f.Position) {
		return nil
	}
	m.letters, m.reasons = append(m.letters, f.Position), append(m.reasons, reason)
	return nil
}

func (m *memLog) lettersWritten() []journal.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.letters)
}

func (m *memLog) readCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

// take takes as long as a read takes.
func (m *memLog) take() {
	if m.slow != nil {
		time.Sleep(m.slow())
	}
}

func (m *memLog) reader(from journal.Position) reader { return &memReader{m: m, at: from} }

type memReader struct {
	m  *memLog
	at journal.Position
}

func (r *memReader) Next() (journal.ReadFrame, error) {
	m := r.m
	m.take()
	m.mu.Lock()
	defer func() {
		m.mu.Unlock()
		m.take() // what it read may be old news by then
	}()
	for _, f := range m.frames[m.index(r.at):] {
		if m.gone[f.Position] {
			r.at = f.Position + f.Len
			continue
		}
		if m.fail != nil {
			if err := m.fail(f.Position); err != nil {
				r.at = f.Position
				return journal.ReadFrame{}, err
			}
		}
		m.reads++
		r.at = f.Position + f.Len
		n := len(f.Metadata)
		body := slices.Concat(f.Metadata, f.Payload) // in one piece, as a journal's
		f.Metadata, f.Payload = body[:n:n], body[n:]
		if m.given != nil {
			m.given[&body[0]] = true
		}
		return f, nil
	}
	r.at = m.durable
	return journal.ReadFrame{}, io.EOF
}

func (r *memReader) Position() journal.Position { return r.at }
func (r *memReader) Seek(p journal.Position)    { r.at = p }
func (r *memReader) Close() error               { return nil }

// call is one Consume call, as the pipeline sees it.
type call struct {
	ctx    context.Context
	began  time.Time
	signal string
	tenant string
	frames []journal.Position
	bodies []string // log bodies or span names
	answer chan error
	done   bool // guarded by sink.mu
}

func (c *call) ok()            { c.answer <- nil }
func (c *call) fail(err error) { c.answer <- err }

// sink is a next component. With react unset every call waits for the test
// to answer it.
type sink struct {
	mu       sync.Mutex
	calls    []*call
	react    func(*call) error
	mutate   bool
	inFlight int
	most     int
	handles  []func(bool) // taken by keep
}

// keep is a reaction: it retains the frames and returns nil.
func (p *sink) keep(c *call) error {
	release, ok := barrier.Retain(c.ctx)
	if !ok {
		return errors.New("no handle")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handles = append(p.handles, release)
	return nil
}

// kept takes the handles taken so far.
func (p *sink) kept() []func(bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.handles
	p.handles = nil
	return h
}

func (p *sink) consumers() Consumers { return Consumers{Logs: p, Traces: p, Metrics: p} }

func (p *sink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (p *sink) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	var bodies []string
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				bodies = append(bodies, lr.Body().AsString())
				if p.mutate {
					lr.Body().SetStr("mutated")
				}
			}
		}
	}
	return p.consume(ctx, bodies)
}

func (p *sink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	var names []string
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				names = append(names, s.Name())
			}
		}
	}
	return p.consume(ctx, names)
}

func (p *sink) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	return p.consume(ctx, make([]string, md.DataPointCount()))
}

func (p *sink) consume(ctx context.Context, bodies []string) error {
	r, ok := barrier.FrameRangeFromContext(ctx)
	if !ok {
		return errors.New("no frame range in the context")
	}
	c := &call{ctx: ctx, began: time.Now(), signal: r.Signal.String(), tenant: r.Tenant, bodies: bodies, answer: make(chan error, 1)}
	for _, f := range r.Frames {
		c.frames = append(c.frames, journal.Position(f.Position))
	}
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	react := p.react
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.inFlight--
		c.done = true
		p.mu.Unlock()
	}()
	if react != nil {
		return react(c)
	}
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *sink) setReact(f func(*call) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.react = f
}

func (p *sink) mostAtOnce() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

func (p *sink) all() []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *sink) bodies() []string {
	var out []string
	for _, c := range p.all() {
		out = append(out, c.bodies...)
	}
	return out
}

// rig is a delivery over a log in memory.
type rig struct {
	*Delivery
	t    *testing.T
	log  *memLog
	p    *sink
	logs *observer.ObservedLogs
}

// newRig runs inside a synctest bubble. The delivery is started, and shut down
// at the end of the test.
func newRig(t *testing.T, set func(*Settings)) *rig {
	r := newStoppedRig(t, newMemLog(), set)
	r.Start()
	return r
}

func newStoppedRig(t *testing.T, log *memLog, set func(*Settings)) *rig {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	r := &rig{t: t, log: log, p: &sink{}, logs: logs}
	s := Settings{Next: r.p.consumers(), Config: DefaultConfig(), Logger: zap.New(core)}
	s.Config.Retry.RandomizationFactor = 0
	s.Recovery.LaneItems = map[journal.Lane]uint64{}
	for _, f := range log.frames {
		id := journal.Lane{Tenant: f.Tenant, Kind: f.Kind}
		if f.Position >= log.horizon[id] {
			s.Recovery.LaneItems[id] += uint64(f.Items)
		}
	}
	s.Recovery.Horizons = log.horizon
	if set != nil {
		set(&s)
	}
	d, err := newDelivery(s, log)
	require.NoError(t, err)
	d.estimate = func(_ journal.Kind, p []byte) uint64 { return 3 * uint64(len(p)) }
	r.Delivery = d
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) stop() {
	r.p.setReact(func(*call) error { return errors.New("the test is over") })
	for _, c := range r.p.all() {
		select {
		case c.answer <- errors.New("the test is over"):
		default:
		}
	}
	if err := r.Shutdown(context.Background()); err != nil {
		r.t.Error(err)
	}
	r.Close()
}

// logs of one record each; the body is the frame's name.
func (r *rig) logFrame(tenant, body string) journal.Position {
	return r.log.append(journal.Lane{Tenant: tenant, Kind: journal.KindLogs}, 1, logPayload(body))
}

func logPayload(bodies ...string) []byte {
	ld := plog.NewLogs()
	sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	for _, b := range bodies {
		sl.LogRecords().AppendEmpty().Body().SetStr(b)
	}
	b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		panic(err)
	}
	return b
}

func tracePayload(name string) []byte {
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName(name)
	b, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		panic(err)
	}
	return b
}

func logLane(tenant string) journal.Lane { return journal.Lane{Tenant: tenant, Kind: journal.KindLogs} }

// wait lets everything that can happen without time passing happen.
func (r *rig) wait() { synctest.Wait() }

// open is the calls that wait for an answer, by position.
func (r *rig) open() []*call {
	r.wait()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	calls := slices.DeleteFunc(slices.Clone(r.p.calls), func(c *call) bool { return c.done })
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.frames[0], b.frames[0]) })
	return calls
}

func (r *rig) state(lane journal.Lane) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[lane]
	if l == nil {
		return "unknown"
	}
	return l.state()
}

func (r *rig) frontier(lane journal.Lane) journal.Position {
	f, ok := r.Frontiers()[lane]
	if !ok {
		r.t.Errorf("lane %v has no frontier", lane)
	}
	return f
}

func (r *rig) events(name string) int {
	n := 0
	for _, e := range r.logs.All() {
		if e.ContextMap()["event.name"] == name {
			n++
		}
	}
	return n
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func decodeLogs(payload []byte) plog.Logs {
	r := plogotlp.NewExportRequest()
	if err := r.UnmarshalProto(payload); err != nil {
		panic(err)
	}
	return r.Logs()
}
