// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/otelweir/weir/internal/membudget"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

// grpcServices are the OTLP services, by signal; each has one method, Export.
var grpcServices = [...]string{
	otlpwire.Logs:     "opentelemetry.proto.collector.logs.v1.LogsService",
	otlpwire.Traces:   "opentelemetry.proto.collector.trace.v1.TraceService",
	otlpwire.Metrics:  "opentelemetry.proto.collector.metrics.v1.MetricsService",
	otlpwire.Profiles: "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
}

const exportMethod = "Export"

// grpcTransport serves OTLP over gRPC. A service without a pipeline is not
// registered: grpc-go answers UNIMPLEMENTED.
type grpcTransport struct {
	front   *front
	methods map[string]signal // full method names of what is served
}

func newGRPCTransport(f *front, served []signal) *grpcTransport {
	t := &grpcTransport{front: f, methods: make(map[string]signal, len(served))}
	for _, s := range served {
		t.methods["/"+grpcServices[s]+"/"+exportMethod] = s
	}
	return t
}

// server builds the gRPC server. What grpc-go holds of messages is counted by
// the pool that it takes its buffers from.
func (t *grpcTransport) server(ctx context.Context, cfg *configgrpc.ServerConfig, extensions map[component.ID]component.Component, set component.TelemetrySettings) (*grpc.Server, error) {
	pool := membudget.NewBufferPool(t.front.admission.budget, mem.DefaultBufferPool())
	server, err := cfg.ToServer(ctx, extensions, set,
		configgrpc.WithGrpcServerOption(grpc.InTapHandle(t.tapHandle)),
		configgrpc.WithGrpcServerOption(grpc.ForceServerCodecV2(newRawCodec())),
		configgrpc.WithGrpcServerOption(experimental.BufferPool(pool)),
		// Stop returns when the last handler has: the log is closed after it.
		configgrpc.WithGrpcServerOption(grpc.WaitForHandlers(true)),
	)
	if err != nil {
		return nil, err
	}
	for method, s := range t.methods {
		server.RegisterService(t.service(method, s), nil)
	}
	return server, nil
}

// service describes the service of one signal.
func (t *grpcTransport) service(method string, s signal) *grpc.ServiceDesc {
	info := &grpc.UnaryServerInfo{FullMethod: method}
	return &grpc.ServiceDesc{
		ServiceName: grpcServices[s],
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: exportMethod,
			// The message is received inside the interceptors, not before
			// them as usual: a client that does not authenticate then has
			// no message read, decompressed or copied.
			Handler: func(_ any, ctx context.Context, receive func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				if in, ok := ctx.Value(receivingKey{}).(*receiving); ok {
					defer in.leave()
				}
				m := &rawMessage{}
				if intercept == nil {
					return t.export(ctx, s, m, receive)
				}
				return intercept(ctx, m, info, func(ctx context.Context, _ any) (any, error) {
					return t.export(ctx, s, m, receive)
				})
			},
		}},
	}
}

// export receives one message and answers it.
func (t *grpcTransport) export(ctx context.Context, s signal, m *rawMessage, receive func(any) error) (any, error) {
	if s == otlpwire.Profiles {
		md, _ := metadata.FromIncomingContext(ctx)
		if err := pprofileotlp.ValidateDevelopmentVersion(md.Get(pprofileotlp.DevelopmentVersionHeader)); err != nil {
			return nil, t.refused(s, invalidPayload(err))
		}
	}
	in, tapped := ctx.Value(receivingKey{}).(*receiving)
	if err := receive(m); err != nil {
		m.release()
		if tapped && in.expired.Load() {
			t.front.refusals.add(refusal.BodyTimeout, s, transportGRPC)
		}
		return nil, err // grpc-go has written its status already
	}
	if tapped && !in.received() {
		m.release()
		return nil, t.refused(s, t.front.admission.bodyTooSlow())
	}
	charge := t.front.admission.budget.NewCharge()
	if n := uint64(cap(*m.buffer)); !charge.Grow(n) {
		charge.Release()
		m.release()
		return nil, t.refused(s, t.front.admission.noMemory(n))
	}
	r := t.front.accept(ctx, &request{
		signal: s, transport: transportGRPC, format: formatProtobuf,
		payload: *m.buffer, buffer: m.buffer, charge: charge,
	})
	if r != nil {
		return nil, t.refused(s, r)
	}
	return emptyReply{}, nil
}

func (t *grpcTransport) refused(s signal, r *refusal.Error) error {
	t.front.refusals.add(r.Reason, s, transportGRPC)
	return r
}
