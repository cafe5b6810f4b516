// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // stock exporters compress by default
	"google.golang.org/grpc/status"
)

// Sink is the end of the pipeline: an OTLP gRPC server that remembers every
// item that ever arrived. It outlives the Collectors before it.
type Sink struct {
	Addr string

	server *grpc.Server

	mu       sync.Mutex // guards everything below
	down     bool
	stall    time.Duration
	arrived  map[ID]int
	order    [4][]ID        // per signal, first arrivals only
	services map[string]int // items of foreign senders, by service.name
	damaged  []string
	changed  chan struct{} // closed and replaced at every arrival
}

// maxDamaged bounds what is remembered of wrong items.
const maxDamaged = 20

// NewSink starts a sink on a free port of the loopback interface.
func NewSink() (*Sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Sink{
		Addr:     l.Addr().String(),
		server:   grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20)),
		arrived:  map[ID]int{},
		services: map[string]int{},
		changed:  make(chan struct{}),
	}
	plogotlp.RegisterGRPCServer(s.server, &logsSink{sink: s})
	ptraceotlp.RegisterGRPCServer(s.server, &tracesSink{sink: s})
	pmetricotlp.RegisterGRPCServer(s.server, &metricsSink{sink: s})
	pprofileotlp.RegisterGRPCServer(s.server, &profilesSink{sink: s})
	go s.server.Serve(l) //nolint:errcheck // always ErrServerStopped after Close
	return s, nil
}

// Close ends the sink.
func (s *Sink) Close() { s.server.Stop() }

// SetDown makes the sink refuse everything with UNAVAILABLE, or take it again.
func (s *Sink) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// SetStall makes every request wait so long before it is looked at, or until
// its sender gives up.
func (s *Sink) SetStall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = d
}

// Arrived is how many items arrived, and how many arrivals were repetitions.
func (s *Sink) Arrived() (items, repeated int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.arrived {
		repeated += n - 1
	}
	return len(s.arrived), repeated
}

// Wait returns when done says so; done runs at every arrival, under the
// sink's lock, with how often each item arrived.
func (s *Sink) Wait(ctx context.Context, done func(arrived map[ID]int) bool) error {
	for {
		s.mu.Lock()
		ok, changed := done(s.arrived), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Order is the ids of a signal in the order of their first arrival.
func (s *Sink) Order(signal Signal) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ID(nil), s.order[signal]...)
}

// Service is how many items of senders other than this harness arrived from a
// service.
func (s *Sink) Service(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.services[name]
}

// Foreign is how many items without an id arrived, from all services.
func (s *Sink) Foreign() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, items := range s.services {
		n += items
	}
	return n
}

// Damaged describes the items that arrived otherwise than they were sent.
func (s *Sink) Damaged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// arrival is one resource with items of one signal, taken from a request.
type arrival struct {
	resource pcommon.Resource
	ids      []ID
	foreign  int // items without an id
	same     func(Batch) bool
}

// take records a request; the error is what the sender gets.
func (s *Sink) take(ctx context.Context, signal Signal, arrivals []arrival) error {
	s.mu.Lock()
	stall := s.stall
	s.mu.Unlock()
	if stall > 0 {
		select {
		case <-time.After(stall):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	// Compared outside the lock: this is the expensive part.
	for i := range arrivals {
		a := &arrivals[i]
		if len(a.ids) == 0 {
			continue
		}
		if b := (Batch{Signal: signal, First: a.ids[0], N: len(a.ids)}); !a.same(b) {
			s.mu.Lock()
			if len(s.damaged) < maxDamaged {
				s.damaged = append(s.damaged, fmt.Sprintf("%s: %d items from %d on differ from what was sent", signal, b.N, b.First))
			}
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return status.Error(codes.Unavailable, "the sink is down")
	}
	for _, a := range arrivals {
		for _, id := range a.ids {
			if s.arrived[id]++; s.arrived[id] == 1 {
				s.order[signal] = append(s.order[signal], id)
			}
		}
		if a.foreign > 0 {
			name, _ := a.resource.Attributes().Get("service.name")
			s.services[name.AsString()] += a.foreign
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (a *arrival) item(attributes pcommon.Map) {
	if v, ok := attributes.Get(idKey); ok {
		a.ids = append(a.ids, ID(v.Int()))
	} else {
		a.foreign++
	}
}

// The four services. A batch has one resource, so what arrived is compared
// resource by resource: the log may have merged requests.

type logsSink struct {
	plogotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *logsSink) Export(ctx context.Context, r plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	var arrivals []arrival
	for _, rl := range r.Logs().ResourceLogs().All() {
		a := arrival{resource: rl.Resource()}
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				a.item(lr.Attributes())
			}
		}
		one := plog.NewLogs()
		rl.CopyTo(one.ResourceLogs().AppendEmpty())
		a.same = func(b Batch) bool { return equal(plogotlp.NewExportRequestFromLogs(one), b) }
		arrivals = append(arrivals, a)
	}
	return plogotlp.NewExportResponse(), s.sink.take(ctx, Logs, arrivals)
}

type tracesSink struct {
	ptraceotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *tracesSink) Export(ctx context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	var arrivals []arrival
	for _, rs := range r.Traces().ResourceSpans().All() {
		a := arrival{resource: rs.Resource()}
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				a.item(sp.Attributes())
			}
		}
		one := ptrace.NewTraces()
		rs.CopyTo(one.ResourceSpans().AppendEmpty())
		a.same = func(b Batch) bool { return equal(ptraceotlp.NewExportRequestFromTraces(one), b) }
		arrivals = append(arrivals, a)
	}
	return ptraceotlp.NewExportResponse(), s.sink.take(ctx, Traces, arrivals)
}

type metricsSink struct {
	pmetricotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *metricsSink) Export(ctx context.Context, r pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	var arrivals []arrival
	for _, rm := range r.Metrics().ResourceMetrics().All() {
		a := arrival{resource: rm.Resource()}
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() == pmetric.MetricTypeGauge {
					for _, p := range m.Gauge().DataPoints().All() {
						a.item(p.Attributes())
					}
				}
			}
		}
		one := pmetric.NewMetrics()
		rm.CopyTo(one.ResourceMetrics().AppendEmpty())
		a.foreign = one.DataPointCount() - len(a.ids) // whatever their type
		a.same = func(b Batch) bool { return equal(pmetricotlp.NewExportRequestFromMetrics(one), b) }
		arrivals = append(arrivals, a)
	}
	return pmetricotlp.NewExportResponse(), s.sink.take(ctx, Metrics, arrivals)
}

type profilesSink struct {
	pprofileotlp.UnimplementedGRPCServer
	sink *Sink
}

func (s *profilesSink) Export(ctx context.Context, r pprofileotlp.ExportRequest) (pprofileotlp.ExportResponse, error) {
	var arrivals []arrival
	for _, rp := range r.Profiles().ResourceProfiles().All() {
		a := arrival{resource: rp.Resource()}
		for _, sp := range rp.ScopeProfiles().All() {
			for _, p := range sp.Profiles().All() {
				for _, sample := range p.Samples().All() {
					a.ids = append(a.ids, ID(sample.Values().At(0)))
				}
			}
		}
		one := pprofile.NewProfiles()
		r.Profiles().Dictionary().CopyTo(one.Dictionary())
		rp.CopyTo(one.ResourceProfiles().AppendEmpty())
		a.same = func(b Batch) bool { return equal(pprofileotlp.NewExportRequestFromProfiles(one), b) }
		arrivals = append(arrivals, a)
	}
	return pprofileotlp.NewExportResponse(), s.sink.take(ctx, Profiles, arrivals)
}

// equal compares bytes: one encoder made both.
func equal(got request, b Batch) bool {
	g, err := got.MarshalProto()
	if err != nil {
		return false
	}
	w, err := b.request().MarshalProto()
	return err == nil && string(g) == string(w)
}
