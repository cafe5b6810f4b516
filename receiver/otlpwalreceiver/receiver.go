// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/coordinator"
	"github.com/otelweir/weir/internal/delivery"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/maintenance"
	"github.com/otelweir/weir/internal/otlpwire"
)

// walReceiver is the receiver behind all signals of one configuration. start
// and shutdown are called once, one after the other.
type walReceiver struct {
	cfg  *Config
	set  receiver.Settings
	next delivery.Consumers

	fs          fsys.FS
	memory      func() memory
	maintenance maintenance.Config // of maintenance: internal

	// What start built, in that order; nil and zero before.
	health      *health
	telemetry   *telemetry
	recovery    journal.Recovery
	journal     *journal.Journal
	coordinator *coordinator.Coordinator
	delivery    *delivery.Delivery
	unregister  func()
	bound       chan struct{} // closed once the coordinator knows its schedule
	front       *front
	servers     servers
}

func newReceiver(cfg *Config, set receiver.Settings) *walReceiver {
	return &walReceiver{cfg: cfg, set: set, fs: fsys.OS, memory: processMemory, maintenance: maintenance.NewDefaultConfig(), bound: make(chan struct{}), servers: servers{patience: defaultPatience}}
}

// start opens the log and begins to maintain and deliver it; only then does it
// bind the listeners. After an error nothing is left open.
func (r *walReceiver) start(ctx context.Context, host component.Host) error {
	r.fitMemory()
	for _, w := range r.cfg.warnings() {
		r.set.Logger.Warn(w)
	}
	for _, step := range []func(context.Context, component.Host) error{
		r.openLog, r.maintain, r.observe, r.deliver, r.serve,
	} {
		if err := step(ctx, host); err != nil {
			return errors.Join(err, r.shutdown(ctx))
		}
	}
	return nil
}

// fitMemory makes the budgets fit what the process may use.
func (r *walReceiver) fitMemory() {
	m := r.memory()
	if m.limit == 0 {
		return
	}
	r.cfg = r.cfg.within(m)
	r.set.Logger.Info("Memory is limited: a budget that is not configured takes its share at most",
		zap.String("source", m.source), zap.Stringer("limit", m.limit),
		zap.Stringer("admission.max_in_flight_bytes", r.cfg.Admission.MaxInFlightBytes),
		zap.Stringer("delivery.max_in_flight_bytes", r.cfg.Delivery.MaxInFlightBytes))
	if w := r.cfg.memoryWarning(m); w != "" {
		r.set.Logger.Warn(w)
	}
}

// openLog locks the directory and recovers what is in it.
func (r *walReceiver) openLog(_ context.Context, host component.Host) error {
	t, err := newTelemetry(r.set)
	if err != nil {
		return err
	}
	r.telemetry = t
	r.health = newHealth(host, r.condition)
	r.journal, r.recovery, err = journal.Open(r.fs, r.journalConfig())
	if err != nil {
		return fmt.Errorf("wal.directory: open the log in %s: %w", r.cfg.WAL.Directory, err)
	}
	r.coordinator = coordinator.New(coordinator.Settings{
		Journal:      r.journal,
		Limit:        uint64(r.cfg.WAL.limit()),
		MaxSegments:  r.journal.Stats().MaxSegments,
		MaxTenants:   r.journal.Stats().MaxTenants,
		MaxFrameSize: uint64(r.cfg.WAL.MaxFrameSize),
		SegmentSize:  uint64(r.cfg.WAL.SegmentSize),
		BatchWindow:  r.cfg.WAL.BatchWindow,
		Logger:       r.set.Logger,
		Changed:      r.health.changed,
	})
	r.delivery, err = delivery.New(delivery.Settings{
		Journal:    r.journal,
		Recovery:   r.recovery,
		Next:       r.next,
		Config:     r.deliveryConfig(),
		Logger:     r.set.Logger,
		OnSettled:  r.coordinator.Settled,
		OnConsumed: r.telemetry.consumed,
		OnChange:   r.health.changed,
	})
	return err
}

// maintain finds who keeps the log's time and registers the log.
func (r *walReceiver) maintain(_ context.Context, host component.Host) error {
	registry, err := r.registry(host)
	if err != nil {
		return err
	}
	schedule, unregister, err := registry.RegisterLog(r.set.ID, &maintainedLog{r})
	if err != nil {
		return fmt.Errorf("storage: %s: %w", r.cfg.Storage, err)
	}
	r.unregister = unregister
	r.coordinator.Bind(schedule, r.delivery)
	close(r.bound)
	return nil
}

// registry returns the extension that maintains the log, or the receiver's own
// substitute.
func (r *walReceiver) registry(host component.Host) (barrier.Registry, error) {
	if r.cfg.Maintenance == maintenanceInternal {
		r.set.Logger.Warn("maintenance: internal: the log has no status page, and nothing checks that its pipelines are synchronous; " +
			"use the wal_storage extension in production")
		return ownMaintenance{cfg: r.maintenance, logger: r.set.Logger}, nil
	}
	extension, ok := host.GetExtensions()[r.cfg.Storage]
	if !ok {
		return nil, fmt.Errorf("storage: there is no extension %q: add it to extensions and to service::extensions, "+
			"or set storage to the name of a wal_storage extension", r.cfg.Storage)
	}
	registry, ok := extension.(barrier.Registry)
	if !ok {
		return nil, fmt.Errorf("storage: extension %q cannot maintain a log: set storage to the name of a wal_storage extension", r.cfg.Storage)
	}
	return registry, nil
}

// ownMaintenance maintains a log without an extension.
type ownMaintenance struct {
	cfg    maintenance.Config
	logger *zap.Logger
}

var _ barrier.Registry = ownMaintenance{}

// RegisterLog starts the maintenance of l.
func (m ownMaintenance) RegisterLog(_ component.ID, l barrier.Log) (barrier.Schedule, func(), error) {
	loop := maintenance.Start(l, m.cfg, nil, m.logger)
	return loop, loop.Stop, nil
}

// RegisterFlusher is never called: sinks look for extensions.
func (ownMaintenance) RegisterFlusher(component.ID, barrier.Flusher) (func(), error) {
	return nil, errors.New("a log that maintains itself has no flushers")
}

func (r *walReceiver) deliver(context.Context, component.Host) error {
	r.health.begin()
	r.delivery.Start()
	return nil
}

// observe registers the metrics of what was built.
func (r *walReceiver) observe(context.Context, component.Host) error {
	f, err := newFront(r.cfg, r.coordinator, r.set)
	if err != nil {
		return err
	}
	r.front = f
	return r.telemetry.observe(r)
}

// serve binds the listeners.
func (r *walReceiver) serve(ctx context.Context, host component.Host) error {
	return r.servers.start(ctx, r.cfg, r.front, r.served(), host, r.set.TelemetrySettings)
}

// served are the signals that a pipeline takes.
func (r *walReceiver) served() []signal {
	var s []signal
	for sig, taken := range map[signal]bool{
		otlpwire.Logs:     r.next.Logs != nil,
		otlpwire.Traces:   r.next.Traces != nil,
		otlpwire.Metrics:  r.next.Metrics != nil,
		otlpwire.Profiles: r.next.Profiles != nil,
	} {
		if taken {
			s = append(s, sig)
		}
	}
	return s
}

// shutdown undoes what start did, as far as it came: first nothing new comes
// in, then nothing goes out, then what went out is recorded while sinks can
// still flush. Undelivered frames stay in the log. A disk that hangs is an
// error, and not waited for.
func (r *walReceiver) shutdown(ctx context.Context) error {
	if r.telemetry != nil {
		defer r.telemetry.stop()
	}
	if r.health != nil {
		defer r.health.stop()
	}
	var errs []error
	errs = append(errs, r.servers.stop(ctx))
	if r.delivery != nil {
		errs = append(errs, r.delivery.Shutdown(ctx))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.servers.patience.drain)
	defer cancel()
	errs = append(errs, r.servers.patience.await(ctx, "close the log in "+r.cfg.WAL.Directory+": the disk does not answer",
		func() error { return r.closeLog(ctx) }))
	return errors.Join(errs...)
}

// closeLog is shutdown's part that waits for the disk, however long that
// takes. The last barrier is made while ctx lasts.
func (r *walReceiver) closeLog(ctx context.Context) error {
	if r.unregister != nil {
		r.unregister()
	}
	if r.coordinator != nil {
		r.coordinator.Close()
	}
	var errs []error
	if r.unregister != nil {
		errs = append(errs, (&maintainedLog{r}).Barrier(ctx, barrier.Final))
	}
	if r.delivery != nil {
		r.delivery.Close()
	}
	if r.journal != nil {
		errs = append(errs, r.journal.Close())
	}
	return errors.Join(errs...)
}

func (r *walReceiver) journalConfig() journal.Config {
	w := &r.cfg.WAL
	c := journal.Config{
		Directory:             w.Directory,
		SegmentSize:           uint64(w.SegmentSize),
		SegmentAge:            w.SegmentAge,
		MaxFrameSize:          uint64(w.MaxFrameSize),
		Limit:                 uint64(w.limit()),
		MaxSegments:           w.segments(),
		MaxTenants:            r.cfg.Tenant.MaxTenants,
		RotationRetryAttempts: w.RotationRetryAttempts,
		QuarantineMaxBytes:    uint64(w.QuarantineMaxBytes),
		Preallocate:           w.Preallocate,
		ReserveCheckFail:      w.ReserveCheck == reserveFail,
		DeadLetterMaxBytes:    uint64(r.cfg.Delivery.DeadLetterMaxBytes),
		Observer:              journalObserver{logger: r.set.Logger, telemetry: r.telemetry, health: r.health},
	}
	if w.OnCorruption == corruptionQuarantine {
		c.OnCorruption = journal.CorruptionQuarantine
	}
	return c
}

func (r *walReceiver) deliveryConfig() delivery.Config {
	d := &r.cfg.Delivery
	return delivery.Config{
		Consumers:        d.Consumers,
		Timeout:          d.Timeout,
		MaxInFlightBytes: uint64(d.MaxInFlightBytes),
		Group:            delivery.GroupConfig{MaxItems: uint64(d.Group.MaxItems), MaxBytes: uint64(d.Group.MaxBytes)},
		Retry: delivery.RetryConfig{
			InitialInterval:     d.Retry.InitialInterval,
			MaxInterval:         d.Retry.MaxInterval,
			Multiplier:          d.Retry.Multiplier,
			RandomizationFactor: d.Retry.RandomizationFactor,
		},
		OnPermanentError:   permanentPolicies[d.OnPermanentError],
		PermanentGrace:     d.PermanentGrace,
		DeadLetterMaxBytes: uint64(d.DeadLetterMaxBytes),
		OnMissingPipeline:  missingPolicies[d.OnMissingPipeline],
		TenantKey:          r.cfg.Tenant.MetadataKey,
		KeepLanes:          len(signals) * r.cfg.keptTenants(),
	}
}

var (
	permanentPolicies = map[string]delivery.PermanentPolicy{
		policyDeadLetter: delivery.DeadLetter,
		policyDrop:       delivery.Drop,
		policyBlock:      delivery.Block,
	}
	missingPolicies = map[string]delivery.MissingPolicy{
		policyKeep:       delivery.Keep,
		policyDeadLetter: delivery.DeadLetterMissing,
		policyDrop:       delivery.DropMissing,
	}
)
