// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"hash/crc32"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/otelweir/weir/receiver/otlpwalreceiver"
)

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU: cpuTime(), Allocs: m.Mallocs, Bytes: m.TotalAlloc}
}

var errDown = errors.New("the destination is down")

// endpoint is a pipeline that takes everything or nothing.
type endpoint struct{ takes bool }

func (endpoint) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (e endpoint) ConsumeLogs(context.Context, plog.Logs) error {
	if e.takes {
		return nil
	}
	return errDown
}

// serveWeir starts the real receiver with its defaults. Without delivery its
// one lane is parked, so that only the way to the acknowledgement is paid for.
func serveWeir(s childSettings) (stop func() error, err error) {
	factory := otlpwalreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpwalreceiver.Config)
	cfg.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = s.Addr
	cfg.Maintenance = "internal"
	cfg.WAL.Directory = s.Directory
	cfg.WAL.UnreclaimedBytesLimit = plenty
	// A slot is given back after the answer was sent: as many writers as slots
	// would now and then be one too many.
	cfg.Admission.MaxRequests *= 2
	set := receivertest.NewNopSettings(factory.Type())
	var telemetry collecting
	set.MeterProvider = telemetry.start(s.Telemetry)
	ctx := context.Background()
	r, err := factory.CreateLogs(ctx, set, cfg, endpoint{s.Deliver})
	if err != nil {
		return nil, err
	}
	if err := r.Start(ctx, componenttest.NewNopHost()); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(r.Shutdown(ctx), telemetry.stop(ctx)) }, nil
}

// collecting is a meter provider that is collected from every second, as a
// scrape would.
type collecting struct {
	provider *sdkmetric.MeterProvider
	stopped  chan struct{}
	done     sync.WaitGroup
}

// grpcOnly is a provider for the instruments that every gRPC server of a
// Collector has, and for no others.
type grpcOnly struct {
	noop.MeterProvider
	provider metric.MeterProvider
}

// Meter is the provider's for otelgrpc, and one that does nothing for others.
func (p grpcOnly) Meter(name string, options ...metric.MeterOption) metric.Meter {
	if strings.HasSuffix(name, "/otelgrpc") {
		return p.provider.Meter(name, options...)
	}
	return p.MeterProvider.Meter(name, options...)
}

// start returns the provider for a receiver, with or without its own
// instruments.
func (c *collecting) start(own bool) metric.MeterProvider {
	reader := sdkmetric.NewManualReader()
	c.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	c.stopped = make(chan struct{})
	c.done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var data metricdata.ResourceMetrics
		for {
			select {
			case <-c.stopped:
				return
			case <-tick.C:
				if err := reader.Collect(context.Background(), &data); err != nil {
					panic(err) // the measurement would be of something else
				}
			}
		}
	})
	if !own {
		return grpcOnly{provider: c.provider}
	}
	return c.provider
}

func (c *collecting) stop(ctx context.Context) error {
	close(c.stopped)
	c.done.Wait()
	return c.provider.Shutdown(ctx)
}

// serveSum is the server G: it sums the pieces of every request as they came,
// and answers.
func serveSum(addr string) (stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(pieces{encoding.GetCodecV2("proto")}), grpc.MaxRecvMsgSize(maxFrameSize+1<<20), grpc.ReadBufferSize(512<<10))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.logs.v1.LogsService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Export",
			Handler: func(_ any, _ context.Context, receive func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var m message
				if err := receive(&m); err != nil {
					return nil, err
				}
				sum := uint32(0)
				for _, p := range m.pieces {
					sum = crc32.Update(sum, castagnoli, p.ReadOnlyData())
				}
				m.pieces.Free()
				return answer(sum), nil
			},
		}},
	}, nil)
	serving := make(chan error, 1)
	go func() { serving <- s.Serve(l) }()
	return func() error {
		s.Stop()
		return <-serving
	}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// message is a request as grpc-go's buffers have it.
type message struct{ pieces mem.BufferSlice }

// answer is an empty reply.
type answer uint32

// pieces is a codec that passes messages on without copying them.
type pieces struct{ next encoding.CodecV2 }

func (pieces) Name() string { return "proto" }

func (c pieces) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return c.next.Unmarshal(data, v)
	}
	data.Ref()
	m.pieces = data
	return nil
}

func (c pieces) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(answer); ok {
		return nil, nil
	}
	return c.next.Marshal(v)
}
