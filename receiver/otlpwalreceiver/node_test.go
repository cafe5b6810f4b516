// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/maintenance"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

var errDown = errors.New("the destination is down")

// sink is what every pipeline of a node ends in. It keeps what it took, as
// protobuf, in order.
type sink struct {
	mu      sync.Mutex
	clients []client.Info       // of every Consume that succeeded; guarded by mu
	fail    error               // answer of every Consume; guarded by mu
	taken   map[signal][]string // guarded by mu
	items   map[signal]int      // guarded by mu
	hold    chan struct{}       // while not nil, Consume waits for it or for its context; guarded by mu
	called  int                 // guarded by mu
}

func newSink() *sink { return &sink{taken: map[signal][]string{}, items: map[signal]int{}} }

func (s *sink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (s *sink) consume(ctx context.Context, sig signal, items int, marshal func() ([]byte, error)) error {
	s.mu.Lock()
	s.called++
	hold, fail := s.hold, s.fail
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		return fail
	}
	b, err := marshal()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[sig] = append(s.taken[sig], string(b))
	s.items[sig] += items
	s.clients = append(s.clients, client.FromContext(ctx))
	return nil
}

func (s *sink) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	return s.consume(ctx, otlpwire.Logs, ld.LogRecordCount(), func() ([]byte, error) { return (&plog.ProtoMarshaler{}).MarshalLogs(ld) })
}

func (s *sink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	return s.consume(ctx, otlpwire.Traces, td.SpanCount(), func() ([]byte, error) { return (&ptrace.ProtoMarshaler{}).MarshalTraces(td) })
}

func (s *sink) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	return s.consume(ctx, otlpwire.Metrics, md.DataPointCount(), func() ([]byte, error) { return (&pmetric.ProtoMarshaler{}).MarshalMetrics(md) })
}

func (s *sink) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	return s.consume(ctx, otlpwire.Profiles, pd.SampleCount(), func() ([]byte, error) { return (&pprofile.ProtoMarshaler{}).MarshalProfiles(pd) })
}

// set changes the answer of every Consume from now on.
func (s *sink) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// block makes every Consume wait until unblock.
func (s *sink) block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = make(chan struct{})
}

func (s *sink) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.hold)
	s.hold = nil
}

// take returns what was consumed of sig and forgets it.
func (s *sink) take(sig signal) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.taken[sig]
	s.taken[sig], s.items[sig] = nil, 0
	return b
}

func (s *sink) count(sig signal) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items[sig]
}

func (s *sink) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called
}

// statusHost is a host that keeps the statuses it is told.
type statusHost struct {
	*testHost
	mu     sync.Mutex
	events []*componentstatus.Event // guarded by mu
}

func (h *statusHost) Report(e *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *statusHost) statuses() (s []componentstatus.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		s = append(s, e.Status())
	}
	return s
}

// node is a whole receiver on a file system that can fail and crash.
type node struct {
	rig
	fs   *crashfs.FS
	sink *sink
	host *statusHost
	inst *instance
	recv *walReceiver
}

// nodeOptions are what differs from a quick little node.
type nodeOptions struct {
	fs      *crashfs.FS // nil = an empty one
	sink    *sink       // nil = a new one
	signals []signal    // that have a pipeline; nil = all
	host    *statusHost
	change  func(*Config)
	every   time.Duration // both maintenance intervals; 0 = an hour, that is never
	logger  *zap.Logger
	metrics *componenttest.Telemetry
}

// newNode makes a node that is not started.
func newNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	if o.fs == nil {
		o.fs = crashfs.New(0)
	}
	if o.sink == nil {
		o.sink = newSink()
	}
	if o.signals == nil {
		o.signals = signals[:]
	}
	if o.every == 0 {
		o.every = time.Hour
	}
	if o.host == nil {
		o.host = &statusHost{testHost: newTestHost()}
	}
	cfg := testConfig(func(c *Config) {
		c.Maintenance = maintenanceInternal
		c.WAL.Directory = "/wal"
		c.WAL.SegmentSize = MiB
		c.WAL.MaxFrameSize = 256 * KiB
		c.WAL.UnreclaimedBytesLimit = 4 * MiB
		c.Admission.MaxInFlightBytes = 16 * MiB
		c.Delivery.Retry = RetryConfig{InitialInterval: 5 * time.Millisecond, MaxInterval: 10 * time.Millisecond, Multiplier: 1}
		if o.change != nil {
			o.change(c)
		}
	})
	require.NoError(t, confmap.Validate(cfg))
	set := receivertest.NewNopSettings(metadata.Type)
	if o.metrics != nil {
		set.TelemetrySettings = o.metrics.NewTelemetrySettings()
	}
	if o.logger != nil {
		set.Logger = o.logger
	}
	n := &node{rig: rig{t: t, cfg: cfg}, fs: o.fs, sink: o.sink, host: o.host}
	var c component.Component
	for _, s := range o.signals {
		c = create(t, s, set, cfg, o.sink)
	}
	n.inst = c.(*instance)
	n.recv = n.inst.receiver
	n.recv.fs = o.fs
	n.recv.maintenance = maintenance.Config{BarrierInterval: o.every, HousekeepingInterval: o.every, MaxUnlinksPerPass: 128, PressureWatermark: 0.5}
	t.Cleanup(func() { _ = n.inst.Shutdown(context.Background()) }) // tests of shutdown look at its error themselves
	return n
}

func create(t testing.TB, s signal, set receiver.Settings, cfg *Config, next *sink) component.Component {
	t.Helper()
	var c component.Component
	var err error
	ctx := context.Background()
	switch s {
	case otlpwire.Logs:
		c, err = createLogs(ctx, set, cfg, next)
	case otlpwire.Traces:
		c, err = createTraces(ctx, set, cfg, next)
	case otlpwire.Metrics:
		c, err = createMetrics(ctx, set, cfg, next)
	default:
		c, err = createProfiles(ctx, set, cfg, next)
	}
	require.NoError(t, err)
	return c
}

// startNode makes and starts a node and clients for it.
func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	n := newNode(t, o)
	require.NoError(t, n.inst.Start(context.Background(), n.host))
	n.connect()
	return n
}

func (n *node) connect() {
	n.t.Helper()
	n.front = n.recv.front
	n.servers.grpcAddr, n.servers.httpAddr = n.recv.servers.grpcAddr, n.recv.servers.httpAddr
	conn, err := grpc.NewClient("passthrough:///"+n.servers.grpcAddr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(n.t, err)
	n.conn = conn
	n.client = &http.Client{Transport: &http.Transport{}}
	n.t.Cleanup(n.disconnect)
}

func (n *node) disconnect() {
	_ = n.conn.Close()
	n.client.CloseIdleConnections()
}

// stop stops the node as the Collector does.
func (n *node) stop() {
	n.t.Helper()
	n.disconnect()
	require.NoError(n.t, n.inst.Shutdown(context.Background()))
}

// kill ends the node as kill -9 does, and returns what the next one finds.
func (n *node) kill() *crashfs.FS {
	n.t.Helper()
	next := n.fs.Kill()
	n.disconnect()
	_ = n.inst.Shutdown(context.Background()) // ends its goroutines; its files are dead
	return next
}

// unreclaimed is what is charged to the log.
func (n *node) unreclaimed() uint64 { return n.recv.journal.Stats().Unreclaimed }

// eventually waits for what happens soon.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, waitFor, tick, what)
}
