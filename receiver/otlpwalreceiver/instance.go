// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// instances are the receivers that exist, by configuration: the Collector
// creates, starts and stops one per signal, and they are one.
var instances = registry{byConfig: map[*Config]*instance{}}

type registry struct {
	mu       sync.Mutex
	byConfig map[*Config]*instance // guarded by mu
}

// of returns the instance of cfg.
func (r *registry) of(cfg *Config, set receiver.Settings) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.byConfig[cfg]
	if !ok {
		set.TelemetrySettings = withoutSignal(set.TelemetrySettings)
		i = &instance{receiver: newReceiver(cfg, set), remove: func() { r.remove(cfg) }}
		r.byConfig[cfg] = i
	}
	return i
}

func (r *registry) remove(cfg *Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byConfig, cfg)
}

// instance is what every signal of one configuration starts and stops. The
// first Start and the first Shutdown count.
type instance struct {
	receiver *walReceiver
	remove   func()
	hosts    hosts

	mu       sync.Mutex
	started  bool  // guarded by mu
	startErr error // guarded by mu; every signal is told
	stopped  bool  // guarded by mu
}

// Start starts the receiver once; its error is every signal's.
func (i *instance) Start(ctx context.Context, host component.Host) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hosts.add(host)
	if !i.started {
		i.started = true
		i.startErr = i.receiver.start(ctx, &i.hosts)
	}
	return i.startErr
}

// Shutdown stops the receiver once. A start that failed left nothing to stop.
func (i *instance) Shutdown(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil
	}
	i.stopped = true
	defer i.remove()
	if !i.started || i.startErr != nil {
		return nil
	}
	return i.receiver.shutdown(ctx)
}

// hosts is the host of the instance: the first one's extensions, and everyone's
// status.
type hosts struct {
	mu        sync.Mutex
	host      component.Host             // guarded by mu
	reporters []componentstatus.Reporter // guarded by mu
	last      *componentstatus.Event     // guarded by mu; told to hosts that come later
}

var (
	_ component.Host           = (*hosts)(nil)
	_ componentstatus.Reporter = (*hosts)(nil)
)

func (h *hosts) add(host component.Host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.host == nil {
		h.host = host
	}
	if r, ok := host.(componentstatus.Reporter); ok {
		h.reporters = append(h.reporters, r)
		if h.last != nil {
			r.Report(h.last)
		}
	}
}

// GetExtensions returns the host's extensions.
func (h *hosts) GetExtensions() map[component.ID]component.Component {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.host.GetExtensions()
}

// Report tells every signal's host.
func (h *hosts) Report(e *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = e
	for _, r := range h.reporters {
		r.Report(e)
	}
}

// signalKey is the attribute with which the Collector marks the telemetry of a
// component that it believes to be of one signal.
const signalKey = "otelcol.signal"

// withoutSignal removes that attribute: the instance is created for whichever
// signal comes first and serves all.
func withoutSignal(ts component.TelemetrySettings) component.TelemetrySettings {
	ts.Logger = ts.Logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if d, ok := c.(interface {
			DropInjectedAttributes(...string) zapcore.Core
		}); ok {
			return d.DropInjectedAttributes(signalKey)
		}
		return c
	}))
	if d, ok := ts.TracerProvider.(interface {
		DropInjectedAttributes(...string) trace.TracerProvider
	}); ok {
		ts.TracerProvider = d.DropInjectedAttributes(signalKey)
	}
	if d, ok := ts.MeterProvider.(interface {
		DropInjectedAttributes(...string) metric.MeterProvider
	}); ok {
		ts.MeterProvider = d.DropInjectedAttributes(signalKey)
	}
	return ts
}
