// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// patience is how long a shutdown waits.
type patience struct {
	drain time.Duration // for requests in flight, after the listeners were closed
	end   time.Duration // for what was told to end: no more than the log needs to notice
}

var defaultPatience = patience{drain: 10 * time.Second, end: 5 * time.Second}

// await returns when f has, or with an error end after ctx has ended: then f
// waits for the disk, and goes on when that answers.
func (p patience) await(ctx context.Context, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	last := time.NewTimer(p.end)
	defer last.Stop()
	select {
	case err := <-done:
		return err
	case <-last.C:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// grpcServer is the gRPC server's configuration with our defaults.
func (c *Config) grpcServer() *configgrpc.ServerConfig {
	s := *c.Protocols.GRPC.Get()
	s.MaxRecvMsgSizeMiB = int(c.grpcLimit() / MiB)
	s.IncludeMetadata = s.IncludeMetadata || c.keepsMetadata()
	return &s
}

// httpServer is the HTTP server's configuration with our defaults.
func (c *Config) httpServer() *confighttp.ServerConfig {
	s := c.Protocols.HTTP.Get().ServerConfig
	s.MaxRequestBodySize = int64(c.httpLimit())
	s.IncludeMetadata = s.IncludeMetadata || c.keepsMetadata()
	if s.ReadTimeout == 0 {
		s.ReadTimeout = c.Admission.BodyTimeout
	}
	return &s
}

// keepsMetadata says whether frames keep anything of the client's metadata.
func (c *Config) keepsMetadata() bool {
	return c.Tenant.MetadataKey != "" || len(c.MetadataKeys) > 0
}

// servers are the running listeners.
type servers struct {
	patience  patience
	admission *admission
	grpc      *grpc.Server
	http      *http.Server
	handlers  *handlers // of http
	serving   sync.WaitGroup

	grpcAddr, httpAddr net.Addr // where they listen
}

// start binds what cfg enables and serves it. After an error nothing is bound.
func (s *servers) start(ctx context.Context, cfg *Config, f *front, served []signal, host component.Host, set component.TelemetrySettings) error {
	s.admission = f.admission
	err := s.startGRPC(ctx, cfg, f, served, host, set)
	if err == nil {
		err = s.startHTTP(ctx, cfg, f, served, host, set)
	}
	if err != nil {
		return errors.Join(err, s.stop(ctx))
	}
	return nil
}

func (s *servers) startGRPC(ctx context.Context, cfg *Config, f *front, served []signal, host component.Host, set component.TelemetrySettings) error {
	if !cfg.Protocols.GRPC.HasValue() {
		return nil
	}
	sc := cfg.grpcServer()
	server, err := newGRPCTransport(f, served).server(ctx, sc, host.GetExtensions(), set)
	if err != nil {
		return fmt.Errorf("protocols.grpc: %w", err)
	}
	s.grpc = server // its workers run already, and end when it is stopped
	listener, err := sc.NetAddr.Listen(ctx)
	if err != nil {
		return fmt.Errorf("protocols.grpc.endpoint: %w", err)
	}
	s.grpcAddr = listener.Addr()
	set.Logger.Info("Serving gRPC", zap.Stringer("endpoint", listener.Addr()))
	s.serve(host, func() error { return server.Serve(listener) }, grpc.ErrServerStopped)
	return nil
}

func (s *servers) startHTTP(ctx context.Context, cfg *Config, f *front, served []signal, host component.Host, set component.TelemetrySettings) error {
	hc := cfg.Protocols.HTTP.Get()
	if hc == nil {
		return nil
	}
	sc := cfg.httpServer()
	transport := newHTTPTransport(f, hc, cfg.httpLimit(), served)
	server, err := transport.server(ctx, sc, host.GetExtensions(), set)
	if err != nil {
		return fmt.Errorf("protocols.http: %w", err)
	}
	listener, err := sc.ToListener(ctx)
	if err != nil {
		return fmt.Errorf("protocols.http.endpoint: %w", err)
	}
	s.http, s.handlers, s.httpAddr = server, &transport.running, listener.Addr()
	set.Logger.Info("Serving HTTP", zap.Stringer("endpoint", listener.Addr()))
	s.serve(host, func() error { return server.Serve(listener) }, http.ErrServerClosed)
	return nil
}

// serve runs one server until it is stopped. One that ends by itself takes the
// Collector down: it would be alive and receive nothing. Nobody waits for that
// report: it may return when the Collector has stopped us, or never.
func (s *servers) serve(host component.Host, run func() error, stopped error) {
	s.serving.Go(func() {
		if err := run(); err != nil && !errors.Is(err, stopped) {
			go componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(err))
		}
	})
}

// stop refuses new requests, closes the listeners, and returns when the
// requests in flight have ended, or when that took too long. It may be called
// more than once.
func (s *servers) stop(ctx context.Context) error {
	if s.admission == nil {
		return nil
	}
	s.admission.close()
	ctx, cancel := context.WithTimeout(ctx, s.patience.drain)
	defer cancel()

	var stopping sync.WaitGroup
	if s.grpc != nil {
		stopping.Go(func() {
			// Stop makes a GracefulStop under way return.
			unwatch := context.AfterFunc(ctx, s.grpc.Stop)
			defer unwatch()
			s.grpc.GracefulStop()
		})
	}
	var err error
	if s.http != nil {
		if err = s.http.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = s.http.Close()
		}
	}
	return errors.Join(err, s.patience.await(ctx, "requests are still being handled", func() error {
		if s.http != nil {
			s.handlers.wait()
		}
		stopping.Wait()
		s.serving.Wait()
		return nil
	}))
}
