// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
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

// maxStreamWorkers bounds the goroutines that are kept for requests to come;
// beyond them, a request has its own.
const maxStreamWorkers = 128

// headerLimit is how many bytes of headers a request may have, on either
// protocol; no budget counts them. It is twice the longest value of which we can
// say that it is too long to keep (64 KiB), beyond which nobody is answered.
const headerLimit = 128 << 10

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

// server builds the gRPC server.
func (t *grpcTransport) server(ctx context.Context, cfg *configgrpc.ServerConfig, extensions map[component.ID]component.Component, set component.TelemetrySettings) (*grpc.Server, error) {
	creds := watched{limit: streamLimit(Size(cfg.MaxRecvMsgSizeMiB) * MiB)}
	rest := *cfg
	if tls := cfg.TLS.Get(); tls != nil { // ToServer would make the same of it
		config, err := tls.LoadTLSConfig(ctx)
		if err != nil {
			return nil, err
		}
		creds.TransportCredentials = credentials.NewTLS(config)
		rest.TLS = configoptional.None[configtls.ServerConfig]()
	}
	var opts []configgrpc.ToServerOption
	for _, o := range t.options(creds) {
		opts = append(opts, configgrpc.WithGrpcServerOption(o))
	}
	server, err := rest.ToServer(ctx, extensions, set, opts...)
	if err != nil {
		return nil, err
	}
	t.register(server)
	return server, nil
}

// options are what the transport needs of its server. What grpc-go holds of
// messages is counted by the pool that it takes its buffers from, and what it
// takes from no pool is bounded by creds.
func (t *grpcTransport) options(creds watched) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.InTapHandle(t.tapHandle),
		grpc.ForceServerCodecV2(newRawCodec()),
		experimental.BufferPool(membudget.NewBufferPool(t.front.admission.budget, pieces)),
		// A goroutine that serves one request after the other has the stack it
		// needs; a new one for each request grows its own every time.
		grpc.NumStreamWorkers(uint32(min(t.front.admission.maxRequests, maxStreamWorkers))),
		grpc.MaxHeaderListSize(headerLimit), // grpc-go would take 16 MiB
		// Stop returns when the last handler has: the log is closed after it.
		grpc.WaitForHandlers(true),
	}
}

// pieces keeps the buffers in which grpc-go holds messages. A DATA frame, which
// has 16 KiB at most, lies in a buffer that is less than a quarter larger: with
// mem's default pool, frames of 1025 bytes would hold four times a message.
// Frames of up to 1 KiB come from no pool. What is decompressed is in pieces of
// 32 KiB.
var pieces = mem.NewTieredBufferPool(pieceSizes()...)

func pieceSizes() []int {
	sizes := []int{256}
	for n := 1 << 10; n < 16<<10; n *= 2 {
		sizes = append(sizes, n, n*5/4, n*6/4, n*7/4)
	}
	for n := 16 << 10; n <= 1<<20; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes
}

// register adds the services to the server.
func (t *grpcTransport) register(server *grpc.Server) {
	for method, s := range t.methods {
		server.RegisterService(t.service(method, s), nil)
	}
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
				in, admitted := ctx.Value(receivingKey{}).(*receiving) // the tap's, which every stream of ours passes
				if !admitted {
					return nil, ctx.Value(refusedKey{}).(*refusal.Error)
				}
				defer in.leave()
				if !in.handled() {
					return nil, context.Canceled
				}
				c := &grpcCall{request: request{signal: s, transport: transportGRPC, format: formatProtobuf}}
				if intercept == nil {
					return t.export(ctx, c, receive)
				}
				return intercept(ctx, &c.message, info, func(ctx context.Context, _ any) (any, error) {
					return t.export(ctx, c, receive)
				})
			},
		}},
	}
}

// grpcCall is one request and the message it comes in.
type grpcCall struct {
	message rawMessage
	request request
}

// export receives one message and answers it.
func (t *grpcTransport) export(ctx context.Context, c *grpcCall, receive func(any) error) (any, error) {
	r := &c.request
	if r.signal == otlpwire.Profiles {
		md, _ := metadata.FromIncomingContext(ctx)
		if err := pprofileotlp.ValidateDevelopmentVersion(md.Get(pprofileotlp.DevelopmentVersionHeader)); err != nil {
			return nil, t.refused(r, invalidPayload(err))
		}
	}
	in := ctx.Value(receivingKey{}).(*receiving)
	c.message.charge = t.front.admission.budget.NewCharge()
	if err := receive(&c.message); err != nil {
		c.message.release()
		if in.expired.Load() {
			t.front.refusals.add(refusal.BodyTimeout, r.signal, r.transport)
		}
		return nil, err // grpc-go has written its status already
	}
	if !in.received() {
		c.message.release()
		return nil, t.refused(r, t.front.admission.bodyTooSlow())
	}
	if n := c.message.short; n != 0 {
		c.message.release()
		return nil, t.refused(r, t.front.admission.noMemory(n))
	}
	r.slot, r.charge, r.buffer = in.slot, c.message.charge, c.message.buffer
	r.payload = *r.buffer
	if refused := t.front.accept(ctx, r); refused != nil {
		return nil, t.refused(r, refused)
	}
	return emptyReply{}, nil
}

func (t *grpcTransport) refused(r *request, e *refusal.Error) error {
	t.front.refused(r, e)
	return e
}
