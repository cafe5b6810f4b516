// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"sync"
	"sync/atomic"

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
// status. Who watches the status may take long: nobody is told under mu.
type hosts struct {
	telling sync.Mutex // keeps what each host is told in order; taken before mu
	died    atomic.Bool

	mu        sync.Mutex
	host      component.Host             // guarded by mu
	reporters []componentstatus.Reporter // only ever appended to; guarded by mu
	last      *componentstatus.Event     // guarded by mu; told to hosts that come later
}

var (
	_ component.Host           = (*hosts)(nil)
	_ componentstatus.Reporter = (*hosts)(nil)
)

func (h *hosts) add(host component.Host) {
	h.mu.Lock()
	if h.host == nil {
		h.host = host
	}
	h.mu.Unlock()
	r, ok := host.(componentstatus.Reporter)
	if !ok {
		return
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	h.reporters = append(h.reporters, r)
	last := h.last
	h.mu.Unlock()
	if last != nil {
		r.Report(last)
	}
}

// GetExtensions returns the host's extensions.
func (h *hosts) GetExtensions() map[component.ID]component.Component {
	h.mu.Lock()
	host := h.host
	h.mu.Unlock()
	return host.GetExtensions()
}

// Report tells every signal's host, but of a fatal error only the first, and
// once: the Collector receives one such event, ends, and whoever sends it
// another waits for ever.
func (h *hosts) Report(e *componentstatus.Event) {
	if e.Status() == componentstatus.StatusFatalError {
		if !h.died.Swap(true) {
			h.reportFatal(e)
		}
		return
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	h.mu.Lock()
	h.last = e
	reporters := h.reporters
	h.mu.Unlock()
	for _, r := range reporters {
		r.Report(e)
	}
}

func (h *hosts) reportFatal(e *componentstatus.Event) {
	h.mu.Lock()
	reporters := h.reporters
	h.mu.Unlock()
	if len(reporters) > 0 {
		reporters[0].Report(e)
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
