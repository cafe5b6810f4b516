// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/bench/internal/load"
	"github.com/otelweir/weir/bench/internal/procfs"
	"github.com/otelweir/weir/e2e"
)

const (
	maxFrameSize    = 8 << 20
	transportLimit  = maxFrameSize + 1<<20
	deliveryBudget  = 128 << 20 // the receiver's default
	streamsPerConn  = 4
	secondsPerBatch = 1
)

// settings are what a run is made of.
type settings struct {
	Binary, Dir, GoMemLimit string
	Span                    time.Duration
	Patient                 bool // clients wait after a refusal for as long as it advises
	Budget                  uint64
	MaxRequests             int
	Connections             int
}

// stated is a value of GoMemLimit: that of settings.stated.
const stated = "stated"

// stated is the worst case that the README states, above an idle process.
func (s *settings) stated() uint64 {
	return s.Budget + deliveryBudget + uint64(s.MaxRequests)*2*transportLimit
}

// goMemLimit is the environment's GOMEMLIMIT. Without one the garbage
// collector lets the heap grow to twice what is alive.
func (s *settings) goMemLimit() string {
	if s.GoMemLimit == stated {
		return fmt.Sprintf("GOMEMLIMIT=%dB", s.stated())
	}
	return "GOMEMLIMIT=" + s.GoMemLimit
}

// shape is a kind of request.
type shape struct {
	name    string
	payload func() []byte
	gzip    bool
}

var shapes = []shape{
	{"100 KiB", func() []byte { return load.LogsOfSize(100 << 10) }, false},
	{"1 MiB", func() []byte { return load.LogsOfSize(1 << 20) }, false},
	{"8 MiB", func() []byte { return load.LogsOfSize(maxFrameSize - 64<<10) }, false},
	{"8 MiB gzip", func() []byte { return load.LogsOfSize(maxFrameSize - 64<<10) }, true},
}

func shapeNames() (names []string) {
	for _, s := range shapes {
		names = append(names, s.name)
	}
	return names
}

func chooseShapes(list string) (chosen []shape, err error) {
	if list == "" {
		return shapes, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, s := range shapes {
			if s.name == strings.TrimSpace(name) {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no shape %q", name)
		}
	}
	return chosen, nil
}

var config = template.Must(template.New("config").Parse(`
extensions:
  wal_storage:
receivers:
  otlp_wal:
    protocols:
      grpc: { endpoint: "{{.Addr}}" }
    wal:
      directory: "{{.Wal}}"
      max_frame_size: {{.MaxFrameSize}}
      unreclaimed_bytes_limit: 64GiB
    admission:
      max_in_flight_bytes: {{.Budget}}
      max_requests: {{.MaxRequests}}
    delivery:
      max_in_flight_bytes: {{.DeliveryBudget}}
exporters:
  otlp_grpc:
    endpoint: "{{.Sink}}"
    compression: none
    tls: { insecure: true }
    sending_queue: { enabled: false }
    retry_on_failure: { enabled: false }
service:
  extensions: [wal_storage]
  telemetry:
    metrics: { level: none }
  pipelines:
    logs: { receivers: [otlp_wal], exporters: [otlp_grpc] }
`))

// outcome is what a run came to.
type outcome struct {
	idle, peak uint64 // resident bytes of the process
	acked      int
	bytes      uint64 // of acknowledged requests, as the log holds them
	refused    int
	reasons    map[string]int // of refusals, by error.type
}

// overload runs the Collector and sends it all that the connections carry,
// without regard to its answers unless the clients are patient.
func overload(ctx context.Context, s settings, sh shape) (o outcome, err error) {
	dir, err := os.MkdirTemp(s.Dir, "weir-memory-")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sink, err := startSink()
	if err != nil {
		return o, err
	}
	defer sink.Stop()
	ports, err := e2e.FreePorts(1)
	if err != nil {
		return o, err
	}
	addr := e2e.Loopback(ports[0])
	var b bytes.Buffer
	if err := config.Execute(&b, map[string]any{
		"Addr": addr, "Wal": filepath.Join(dir, "wal"), "MaxFrameSize": maxFrameSize, "Budget": s.Budget, "MaxRequests": s.MaxRequests,
		"DeliveryBudget": deliveryBudget, "Sink": sink.addr,
	}); err != nil {
		return o, err
	}
	name := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		return o, err
	}
	c, err := e2e.Start(io.Discard, []string{s.goMemLimit()}, s.Binary, "--config", name)
	if err != nil {
		return o, err
	}
	defer c.Kill()
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.WaitReady(starting); err != nil {
		return o, err
	}
	if o.idle, err = procfs.Memory(c.Pid(), procfs.RSS); err != nil {
		return o, err
	}
	if err := send(ctx, &o, s, sh, addr); err != nil {
		return o, err
	}
	select {
	case <-c.Exited():
		return o, fmt.Errorf("the Collector ended: %s", c.Tail())
	default:
	}
	o.peak, err = procfs.Memory(c.Pid(), procfs.PeakRSS)
	return o, err
}

// send overloads addr for the span.
func send(ctx context.Context, o *outcome, s settings, sh shape, addr string) error {
	payload := sh.payload()
	var calls []grpc.CallOption
	if sh.gzip {
		if err := load.Precompress(payload); err != nil {
			return err
		}
		calls = append(calls, grpc.UseCompressor("gzip"))
	}
	client, err := load.Dial(addr, s.Connections)
	if err != nil {
		return err
	}
	// A deadline would travel with the requests, and the server answer for it.
	ctx, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(s.Span, cancel).Stop()
	defer cancel()
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	o.reasons = map[string]int{}
	for w := range s.Connections * streamsPerConn {
		all.Go(func() {
			acked, refused, reasons := 0, 0, map[string]int{}
			for ctx.Err() == nil {
				err := client.Send(ctx, w, payload, calls...)
				switch {
				case err == nil:
					acked++
				case ctx.Err() == nil:
					refused++
					reason, delay := refusalOf(err)
					reasons[reason]++
					if s.Patient {
						select {
						case <-time.After(delay):
						case <-ctx.Done():
						}
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			o.acked += acked
			o.bytes += uint64(acked) * uint64(len(payload))
			o.refused += refused
			for r, n := range reasons {
				o.reasons[r] += n
			}
		})
	}
	all.Wait()
	return client.Close()
}

// refusalOf is the error.type of a refusal and the delay it advises, or the code
// of an answer that is not the log's.
func refusalOf(err error) (reason string, delay time.Duration) {
	st := status.Convert(err)
	reason = st.Code().String()
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.RetryInfo:
			delay = d.GetRetryDelay().AsDuration()
		}
	}
	return reason, delay
}

// sink is a destination that takes every batch, slowly.
type sink struct {
	*grpc.Server
	addr string
}

func startSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{addr: l.Addr().String(), Server: grpc.NewServer(grpc.ForceServerCodecV2(ignoring{}), grpc.MaxRecvMsgSize(1<<30))}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.logs.v1.LogsService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Export",
			Handler: func(_ any, ctx context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				if err := receive(&struct{}{}); err != nil {
					return nil, err
				}
				select {
				case <-time.After(secondsPerBatch * time.Second):
				case <-ctx.Done():
				}
				return struct{}{}, nil
			},
		}},
	}, nil)
	go s.Serve(l) //nolint:errcheck // always ErrServerStopped after Stop
	return s, nil
}

// ignoring is a codec that looks at nothing.
type ignoring struct{}

var _ encoding.CodecV2 = ignoring{}

func (ignoring) Name() string                         { return "proto" }
func (ignoring) Unmarshal(mem.BufferSlice, any) error { return nil }
func (ignoring) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
