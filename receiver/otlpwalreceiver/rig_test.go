// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/receivertest"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// fakeLog is a log that answers every frame with answer and keeps what it was
// given.
type fakeLog struct {
	mu     sync.Mutex
	answer func(ctx context.Context) error // nil = success; guarded by mu
	frames []committed                     // guarded by mu
}

type committed struct {
	frame   journal.Frame
	payload []byte
}

func (l *fakeLog) Commit(ctx context.Context, f *journal.Frame, done func(durable bool)) (journal.Position, error) {
	l.mu.Lock()
	l.frames = append(l.frames, committed{frame: *f, payload: bytes.Join(f.Payload, nil)})
	answer := l.answer
	l.mu.Unlock()
	var err error
	if answer != nil {
		err = answer(ctx)
	}
	done(err == nil)
	return 0, err
}

func (l *fakeLog) set(answer func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// take returns what was committed and forgets it.
func (l *fakeLog) take() []committed {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.frames
	l.frames = nil
	return f
}

// rig is both transports in front of a log.
type rig struct {
	t       testing.TB
	cfg     *Config
	front   *front
	servers servers
	conn    *grpc.ClientConn
	client  *http.Client
}

// testConfig is the default configuration with both protocols on free ports.
func testConfig(change func(*Config)) *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = "localhost:0"
	cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = "localhost:0"
	if change != nil {
		change(cfg)
	}
	return cfg
}

func newRig(t testing.TB, log committer, change func(*Config)) *rig {
	t.Helper()
	cfg := testConfig(change)
	require.NoError(t, confmap.Validate(cfg))
	r := &rig{t: t, cfg: cfg, servers: servers{patience: defaultPatience}}
	set := receivertest.NewNopSettings(metadata.Type)
	var err error
	r.front, err = newFront(cfg, log, set)
	require.NoError(t, err)
	require.NoError(t, r.servers.start(context.Background(), cfg, r.front, signals[:], newTestHost(), set.TelemetrySettings))
	t.Cleanup(func() { require.NoError(t, r.servers.stop(context.Background())) })

	r.conn, err = grpc.NewClient("passthrough:///"+r.servers.grpcAddr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.conn.Close()) })
	r.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// atRest fails unless nothing is held for any request any more.
func (r *rig) atRest() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return r.front.admission.requests.Load() == 0 && r.front.admission.budget.Held() == 0
	}, waitFor, tick, "requests in flight: %d, bytes held: %d", r.front.admission.requests.Load(), r.front.admission.budget.Held())
}

// collected is atRest once the garbage collector has found what grpc-go dropped.
func (r *rig) collected() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		runtime.GC()
		return r.front.admission.requests.Load() == 0 && r.front.admission.budget.Held() == 0
	}, waitFor, tick, "requests in flight: %d, bytes held: %d", r.front.admission.requests.Load(), r.front.admission.budget.Held())
}

func (r *rig) url(path string) string { return "http://" + r.servers.httpAddr.String() + path }

var paths = map[signal]string{
	otlpwire.Logs:     logsURLPath,
	otlpwire.Traces:   tracesURLPath,
	otlpwire.Metrics:  metricsURLPath,
	otlpwire.Profiles: profilesURLPath,
}

// export sends payload as one gRPC request of s.
func (r *rig) export(ctx context.Context, s signal, payload []byte, opts ...grpc.CallOption) error {
	var reply bytesMessage
	return r.conn.Invoke(ctx, "/"+grpcServices[s]+"/"+exportMethod, &bytesMessage{payload}, &reply, append(opts, grpc.ForceCodecV2(bytesCodec{}))...)
}

// post sends body as one HTTP request of s.
func (r *rig) post(s signal, contentType string, body []byte, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.url(paths[s]), bytes.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return r.do(req)
}

// answer is an HTTP response, read.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (r *rig) do(req *http.Request) answer {
	r.t.Helper()
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return answer{code: resp.StatusCode, header: resp.Header, body: body}
}

// status decodes the body of a failure as stock clients do.
func (a answer) status(t testing.TB) *rpcstatus.Status {
	t.Helper()
	require.Equal(t, contentProtobuf, a.header.Get("Content-Type"))
	s := &rpcstatus.Status{}
	require.NoError(t, proto.Unmarshal(a.body, s), "body %q", a.body)
	return s
}

// sample is a small request of s, as protobuf and as JSON.
func sample(t testing.TB, s signal) (protobuf, json []byte) {
	t.Helper()
	return sampleOf(t, s, 3)
}

func sampleOf(t testing.TB, s signal, n int) (protobuf, json []byte) {
	t.Helper()
	var req interface {
		MarshalProto() ([]byte, error)
		MarshalJSON() ([]byte, error)
	}
	switch s {
	case otlpwire.Logs:
		req = plogotlp.NewExportRequestFromLogs(someLogs(n))
	case otlpwire.Traces:
		req = ptraceotlp.NewExportRequestFromTraces(someTraces(n))
	case otlpwire.Metrics:
		req = pmetricotlp.NewExportRequestFromMetrics(someMetrics(n))
	default:
		req = pprofileotlp.NewExportRequestFromProfiles(someProfiles(n))
	}
	protobuf, err := req.MarshalProto()
	require.NoError(t, err)
	json, err = req.MarshalJSON()
	require.NoError(t, err)
	return protobuf, json
}

func describe(a pcommon.Map, i int) {
	a.PutStr("service.name", "checkout")
	a.PutInt("n", int64(i))
	a.PutEmptySlice("list").AppendEmpty().SetBool(true)
}

func someLogs(n int) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	describe(rl.Resource().Attributes(), 0)
	sl := rl.ScopeLogs().AppendEmpty()
	for i := range n {
		lr := sl.LogRecords().AppendEmpty()
		lr.SetTimestamp(pcommon.Timestamp(1_000_000 + i))
		lr.Body().SetStr("hello, world")
		describe(lr.Attributes(), i)
	}
	return ld
}

func someTraces(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	describe(rs.Resource().Attributes(), 0)
	ss := rs.ScopeSpans().AppendEmpty()
	for i := range n {
		sp := ss.Spans().AppendEmpty()
		sp.SetName("GET /cart")
		sp.SetTraceID([16]byte{1, byte(i)})
		sp.SetSpanID([8]byte{2, byte(i)})
		describe(sp.Attributes(), i)
	}
	return td
}

func someMetrics(n int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	describe(rm.Resource().Attributes(), 0)
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("requests")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for i := range n {
		dp := sum.DataPoints().AppendEmpty()
		dp.SetIntValue(int64(i))
		describe(dp.Attributes(), i)
	}
	return md
}

func someProfiles(n int) pprofile.Profiles {
	pd := pprofile.NewProfiles()
	pd.Dictionary().StringTable().Append("", "samples", "count")
	p := pd.ResourceProfiles().AppendEmpty().ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	p.SampleType().SetTypeStrindex(1)
	p.SampleType().SetUnitStrindex(2)
	for i := range n {
		p.Samples().AppendEmpty().Values().Append(int64(i))
	}
	return pd
}
