// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/coordinator"
	"github.com/otelweir/weir/internal/delivery"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/metadata"
	"github.com/otelweir/weir/internal/refusal"
)

// telemetry is the instruments of contract §8 that the receiver feeds.
type telemetry struct {
	builder *metadata.TelemetryBuilder
}

func newTelemetry(set component.TelemetrySettings) (*telemetry, error) {
	b, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return &telemetry{builder: b}, nil
}

func (t *telemetry) stop() { t.builder.Shutdown() }

// Made once: a group must not allocate for being counted.
var (
	succeeded = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "success")))}
	failed    = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "failure")))}
)

func outcome(err error) []metric.RecordOption {
	if err != nil {
		return failed
	}
	return succeeded
}

// barrier is told of every barrier.
func (t *telemetry) barrier(took time.Duration, err error) {
	t.builder.WalBarrierDuration.Record(context.Background(), took.Seconds(), outcome(err)...)
}

// consumed is told of every Consume call.
func (t *telemetry) consumed(_ pipeline.Signal, took time.Duration, result string) {
	t.builder.WalDeliveryDuration.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("outcome", result)))
}

// journalObserver hears what the journal has to say.
type journalObserver struct {
	logger    *zap.Logger
	telemetry *telemetry
	health    *health
}

var _ journal.Observer = journalObserver{}

// GroupSynced records one group.
func (o journalObserver) GroupSynced(frames int, bytes uint64, sync time.Duration, err error) {
	ctx, b, result := context.Background(), o.telemetry.builder, outcome(err)
	b.WalSyncDuration.Record(ctx, sync.Seconds(), result...)
	b.WalGroupFrames.Record(ctx, int64(frames), result...)
	b.WalGroupSize.Record(ctx, int64(bytes), result...)
}

// Event writes the one record of an event.
func (o journalObserver) Event(e journal.Event) {
	fields := make([]zap.Field, 0, len(e.Attrs)+2)
	if e.Name != "" {
		fields = append(fields, zap.String("event.name", e.Name))
	}
	for k, v := range e.Attrs {
		fields = append(fields, zap.Any(k, v))
	}
	if e.Err != nil {
		fields = append(fields, zap.Error(e.Err))
	}
	switch e.Name {
	case journal.EventRotationRecovered, journal.EventRecoveryCompleted:
		o.logger.Info(e.Text, fields...)
	case journal.EventRotationTerminal, journal.EventRecoveryDamage:
		o.logger.Error(e.Text, fields...)
	default:
		o.logger.Warn(e.Text, fields...)
	}
	o.health.changed()
}

// observe registers the callbacks. They read atomics, except where they say
// otherwise.
func (t *telemetry) observe(r *walReceiver) error {
	b, f := t.builder, r.front
	limit := uint64(r.cfg.WAL.limit())
	stats := r.journal.Stats
	// perSignal observes a figure of delivery for every signal. By tenant it
	// takes delivery's lock.
	perSignal := func(figure func(delivery.SignalStats) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			parts := map[signal]map[string]uint64{}
			if f.tenants != nil {
				for lane, stats := range r.delivery.LaneStats() {
					s := signal(lane.Kind)
					if parts[s] == nil {
						parts[s] = map[string]uint64{}
					}
					parts[s][lane.Tenant] = figure(stats)
				}
			}
			all := r.delivery.Stats().Signals
			for _, s := range signals {
				byTenant(o, figure(all[kindOf(s)]), parts[s], attribute.String("otelcol.signal", signalNames[s]))
			}
			return nil
		}
	}
	perAccepted := func(figure func(*accepted) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			for _, s := range signals {
				parts := map[string]uint64{}
				f.tenants.each(func(name string, t *tenantFigures) { parts[name] = figure(&t.accepted[s]) })
				byTenant(o, figure(&f.accepted[s]), parts, attribute.String("otelcol.signal", signalNames[s]))
			}
			return nil
		}
	}
	return errors.Join(
		b.RegisterInFlightLimitCallback(constant(clamp(uint64(r.cfg.Admission.MaxInFlightBytes)))),
		b.RegisterInFlightUsageCallback(gauge(func() int64 { return clamp(f.admission.budget.Held()) })),
		b.RegisterInFlightRequestsCallback(gauge(f.admission.requests.Load)),
		b.RegisterDeliveryInFlightLimitCallback(constant(clamp(uint64(r.cfg.Delivery.MaxInFlightBytes)))),
		b.RegisterDeliveryInFlightUsageCallback(gauge(func() int64 { return clamp(r.delivery.Stats().InFlight) })),
		b.RegisterDeliveryLanesParkedCallback(gauge(func() int64 { return int64(r.delivery.Stats().Parked) })),

		b.RegisterWalAcceptedItemsCallback(func(ctx context.Context, o metric.Int64Observer) error {
			r.forgetTenants() // once per collection
			return perAccepted(func(a *accepted) uint64 { return a.items.Load() })(ctx, o)
		}),
		b.RegisterWalAcceptedSizeCallback(perAccepted(func(a *accepted) uint64 { return a.bytes.Load() })),
		b.RegisterWalSettledItemsCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.Settled.Items })),
		b.RegisterWalSettledSizeCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.Settled.Size })),
		b.RegisterWalDeadLetterItemsCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.DeadLettered.Items })),
		b.RegisterWalDeadLetterSizeCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.DeadLettered.Size })),
		b.RegisterWalDroppedItemsCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.Dropped.Items })),
		b.RegisterWalRedeliveredItemsCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.RedeliveredItems })),
		b.RegisterWalPendingItemsCallback(perSignal(func(s delivery.SignalStats) uint64 { return s.PendingItems })),
		b.RegisterWalRefusalsCallback(func(_ context.Context, o metric.Int64Observer) error {
			eachRefusal(func(reason refusal.Reason, s signal, t transport) {
				parts := map[string]uint64{}
				f.tenants.each(func(name string, figures *tenantFigures) {
					if n := figures.refusals.count(reason, s, t); n > 0 {
						parts[name] = n
					}
				})
				byTenant(o, f.refusals.count(reason, s, t), parts,
					attribute.String("error.type", reason.String()),
					attribute.String("otelcol.signal", signalNames[s]),
					attribute.String("transport", transportNames[t]))
			})
			return nil
		}),

		b.RegisterWalBackpressureLimitCallback(constant(clamp(limit))),
		b.RegisterWalBackpressureRefusingCallback(func(_ context.Context, o metric.Int64Observer) error {
			set, segments := r.coordinator.Refusing()
			o.Observe(flag(set && !segments), metric.WithAttributes(attribute.String("cause", "bytes")))
			o.Observe(flag(set && segments), metric.WithAttributes(attribute.String("cause", "segments")))
			return nil
		}),
		b.RegisterWalBackpressureLastRefusalCallback(func(_ context.Context, o metric.Int64Observer) error {
			last, _, _ := r.coordinator.LastRefusals()
			if last == nil {
				return nil
			}
			of := func(measurement string) metric.MeasurementOption {
				return metric.WithAttributes(attribute.String("cause", "bytes"), attribute.String("measurement", measurement))
			}
			o.Observe(clamp(last.Pre), of("pre_reservation"))
			if last.Projected != nil {
				o.Observe(clamp(*last.Projected), of("projected"))
			}
			return nil
		}),
		b.RegisterWalBackpressureLastRefusalSegmentsCallback(lastRefusal(func() *refusal.Error { _, segments, _ := r.coordinator.LastRefusals(); return segments })),
		b.RegisterWalTenantCapacityLastRefusalCallback(lastRefusal(func() *refusal.Error { _, _, tenants := r.coordinator.LastRefusals(); return tenants })),

		b.RegisterWalUnreclaimedSizeCallback(gauge(func() int64 { return clamp(stats().Unreclaimed) })),
		b.RegisterWalUnflushedSizeCallback(gauge(func() int64 { return clamp(stats().Unflushed) })),
		b.RegisterWalDiskSizeCallback(gauge(func() int64 { return clamp(stats().Disk) })),
		b.RegisterWalCapacityRemainingCallback(gauge(func() int64 { return clamp(limit - min(stats().Unreclaimed, limit)) })),
		b.RegisterWalUnreclaimedAgeCallback(func(_ context.Context, o metric.Float64Observer) error {
			if s := stats(); s.Unreclaimed > 0 && s.OldestReceived != 0 {
				o.Observe(time.Since(time.Unix(0, s.OldestReceived)).Seconds())
			}
			return nil
		}),
		b.RegisterWalSegmentsLimitCallback(gauge(func() int64 { return int64(stats().MaxSegments) })),
		b.RegisterWalSegmentsSealedCallback(gauge(func() int64 { return int64(stats().Sealed) })),
		b.RegisterWalSegmentsUsageCallback(func(_ context.Context, o metric.Int64Observer) error {
			s := stats()
			observeStates(o, map[string]int{
				"retained": s.ClosedRetained,
				"free":     max(s.MaxSegments-s.ClosedRetained, 0),
				"over_cap": max(s.ClosedRetained-s.MaxSegments, 0),
			})
			return nil
		}),
		b.RegisterWalHousekeepingHorizonRemainingCallback(gauge(func() int64 {
			s := stats()
			return int64(max(s.ClosedRetained-s.Eligible-s.Retrying, 0))
		})),
		b.RegisterWalHousekeepingUnlinkRemainingCallback(gauge(func() int64 {
			s := stats()
			return int64(s.Eligible + s.Retrying)
		})),
		b.RegisterWalRotationConsecutiveFailuresCallback(gauge(func() int64 { return int64(stats().RotationFailures) })),
		b.RegisterWalRotationStatusCallback(func(_ context.Context, o metric.Int64Observer) error {
			oneHot(o, rotationStates, stats().Rotation.String())
			return nil
		}),

		b.RegisterWalTenantsLimitCallback(constant(int64(stats().MaxTenants))),
		b.RegisterWalTenantsUsageCallback(func(_ context.Context, o metric.Int64Observer) error {
			s := stats()
			observeStates(o, map[string]int{
				"held": s.TenantsHeld, "reserved": s.TenantsReserved, "free": max(s.MaxTenants-s.TenantsHeld-s.TenantsReserved, 0),
			})
			return nil
		}),

		b.RegisterWalRetainFloorStatusCallback(func(_ context.Context, o metric.Int64Observer) error {
			oneHot(o, coordinator.FloorStates, r.coordinator.Floor().State)
			return nil
		}),
		b.RegisterWalRetainFloorLagSizeCallback(gauge(func() int64 { return clamp(r.coordinator.Floor().LagBytes) })),
		b.RegisterWalRetainFloorLagSegmentsCallback(gauge(func() int64 { return int64(r.coordinator.Floor().LagSegments) })),
		b.RegisterWalRetainFloorPinnedLanesCallback(gauge(func() int64 { return pinnedLanes(r.coordinator.Floor()) })),

		b.RegisterWalRecoveryItemsCallback(constant(clamp(r.recovery.Items))),
		b.RegisterWalRecoveryTruncatedSizeCallback(constant(clamp(r.recovery.TruncatedBytes))),
		b.RegisterWalRecoveryQuarantinedSizeCallback(gauge(func() int64 { return clamp(stats().QuarantinedBytes) })),
		b.RegisterWalRecoveryQuarantinedItemsCallback(gauge(func() int64 { return clamp(stats().QuarantinedItems) })),
		b.RegisterWalRecoveryDurationCallback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(r.recovery.Duration.Seconds())
			return nil
		}),
	)
}

// forgetTenants stops counting tenants of which delivery knows nothing.
func (r *walReceiver) forgetTenants() {
	if r.front.tenants == nil {
		return
	}
	inLog := map[string]bool{}
	for lane := range r.delivery.LaneStats() {
		inLog[lane.Tenant] = true
	}
	r.front.tenants.forget(inLog)
}

// rotationStates are the states' names.
var rotationStates = func() (names []string) {
	for _, k := range journal.RotationStateKinds {
		names = append(names, k.String())
	}
	return names
}()

func pinnedLanes(f barrier.FloorStatus) int64 {
	if f.State != coordinator.FloorPinned {
		return 0
	}
	return int64(len(f.Lanes))
}

// clamp makes a metric's value of n: a limit may be configured larger than any.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func constant(v int64) metric.Int64Callback { return gauge(func() int64 { return v }) }

func gauge(read func() int64) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(read())
		return nil
	}
}

// lastRefusal observes the measurement of the latest refusal of a kind, once
// there is one.
func lastRefusal(read func() *refusal.Error) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		if e := read(); e != nil {
			o.Observe(clamp(e.Pre))
		}
		return nil
	}
}

func observeStates(o metric.Int64Observer, states map[string]int) {
	for state, n := range states {
		o.Observe(int64(n), metric.WithAttributes(attribute.String("state", state)))
	}
}

func oneHot(o metric.Int64Observer, states []string, now string) {
	for _, s := range states {
		o.Observe(flag(s == now), metric.WithAttributes(attribute.String("state", s)))
	}
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
