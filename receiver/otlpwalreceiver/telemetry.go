// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver"
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

// telemetry is the instruments of contract §8 that the receiver feeds. Every
// data point names its receiver: the Collector hands all of them one
// MeterProvider, in which they would overwrite each other's.
type telemetry struct {
	builder  *metadata.TelemetryBuilder
	receiver attribute.KeyValue
	self     metric.MeasurementOption // the receiver and nothing else

	// Made once: a group must not allocate for being counted.
	succeeded, failed []metric.RecordOption
	consumedAs        map[string][]metric.RecordOption // by outcome of a Consume call
}

func newTelemetry(set receiver.Settings) (*telemetry, error) {
	b, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &telemetry{builder: b, receiver: attribute.String("receiver", set.ID.String())}
	t.self = t.with()
	ended := func(outcome string) []metric.RecordOption {
		return []metric.RecordOption{t.with(attribute.String("outcome", outcome))}
	}
	t.succeeded, t.failed = ended("success"), ended("failure")
	t.consumedAs = map[string][]metric.RecordOption{}
	for _, outcome := range []string{"success", "retryable", "permanent"} {
		t.consumedAs[outcome] = ended(outcome)
	}
	return t, nil
}

func (t *telemetry) stop() { t.builder.Shutdown() }

// with is the receiver and more as the attributes of a data point.
func (t *telemetry) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue{t.receiver}, more...)...))
}

func (t *telemetry) outcome(err error) []metric.RecordOption {
	if err != nil {
		return t.failed
	}
	return t.succeeded
}

// barrier is told of every barrier.
func (t *telemetry) barrier(took time.Duration, err error) {
	t.builder.WalBarrierDuration.Record(context.Background(), took.Seconds(), t.outcome(err)...)
}

// consumed is told of every Consume call.
func (t *telemetry) consumed(_ pipeline.Signal, took time.Duration, outcome string) {
	t.builder.WalDeliveryDuration.Record(context.Background(), took.Seconds(), t.consumedAs[outcome]...)
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
	ctx, b, result := context.Background(), o.telemetry.builder, o.telemetry.outcome(err)
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
			rest := r.delivery.Stats().Signals
			if f.tenants != nil {
				lanes, forgotten := r.delivery.LaneStats()
				for lane, stats := range lanes {
					s := signal(lane.Kind)
					if parts[s] == nil {
						parts[s] = map[string]uint64{}
					}
					parts[s][lane.Tenant] = figure(stats)
				}
				rest = forgotten
			}
			for _, s := range signals {
				byTenant(o, figure(rest[kindOf(s)]), parts[s], t.receiver, attribute.String("otelcol.signal", signalNames[s]))
			}
			return nil
		}
	}
	perAccepted := func(figure func(*accepted) uint64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			for _, s := range signals {
				var parts map[string]uint64
				rest := figure(&f.accepted[s])
				if f.tenants != nil {
					parts, rest = f.tenants.parts(func(tenant *tenantFigures) uint64 { return figure(&tenant.accepted[s]) })
				}
				byTenant(o, rest, parts, t.receiver, attribute.String("otelcol.signal", signalNames[s]))
			}
			return nil
		}
	}
	return errors.Join(
		b.RegisterInFlightLimitCallback(t.constant(clamp(uint64(r.cfg.Admission.MaxInFlightBytes)))),
		b.RegisterInFlightUsageCallback(t.gauge(func() int64 { return clamp(f.admission.budget.Held()) })),
		b.RegisterInFlightRequestsCallback(t.gauge(f.admission.requests.Load)),
		b.RegisterDeliveryInFlightLimitCallback(t.constant(clamp(uint64(r.cfg.Delivery.MaxInFlightBytes)))),
		b.RegisterDeliveryInFlightUsageCallback(t.gauge(func() int64 { return clamp(r.delivery.Stats().InFlight) })),
		b.RegisterDeliveryLanesParkedCallback(t.gauge(func() int64 { return int64(r.delivery.Stats().Parked) })),

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
			eachRefusal(func(reason refusal.Reason, s signal, tr transport) {
				rest := f.refusals.count(reason, s, tr)
				var parts map[string]uint64
				if f.tenants != nil {
					var forgotten uint64
					parts, forgotten = f.tenants.parts(func(tenant *tenantFigures) uint64 { return tenant.refusals.count(reason, s, tr) })
					rest += forgotten
				}
				byTenant(o, rest, parts, t.receiver,
					attribute.String("error.type", reason.String()),
					attribute.String("otelcol.signal", signalNames[s]),
					attribute.String("transport", transportNames[tr]))
			})
			return nil
		}),

		b.RegisterWalBackpressureLimitCallback(t.constant(clamp(limit))),
		b.RegisterWalBackpressureRefusingCallback(func(_ context.Context, o metric.Int64Observer) error {
			set, segments := r.coordinator.Refusing()
			o.Observe(flag(set && !segments), t.with(attribute.String("cause", "bytes")))
			o.Observe(flag(set && segments), t.with(attribute.String("cause", "segments")))
			return nil
		}),
		b.RegisterWalBackpressureLastRefusalCallback(func(_ context.Context, o metric.Int64Observer) error {
			last, _, _ := r.coordinator.LastRefusals()
			if last == nil {
				return nil
			}
			of := func(measurement string) metric.MeasurementOption {
				return t.with(attribute.String("cause", "bytes"), attribute.String("measurement", measurement))
			}
			o.Observe(clamp(last.Pre), of("pre_reservation"))
			if last.Projected != nil {
				o.Observe(clamp(*last.Projected), of("projected"))
			}
			return nil
		}),
		b.RegisterWalBackpressureLastRefusalSegmentsCallback(t.lastRefusal(func() *refusal.Error { _, segments, _ := r.coordinator.LastRefusals(); return segments })),
		b.RegisterWalTenantCapacityLastRefusalCallback(t.lastRefusal(func() *refusal.Error { _, _, tenants := r.coordinator.LastRefusals(); return tenants })),

		b.RegisterWalUnreclaimedSizeCallback(t.gauge(func() int64 { return clamp(stats().Unreclaimed) })),
		b.RegisterWalUnflushedSizeCallback(t.gauge(func() int64 { return clamp(stats().Unflushed) })),
		b.RegisterWalDiskSizeCallback(t.gauge(func() int64 { return clamp(stats().Disk) })),
		b.RegisterWalCapacityRemainingCallback(t.gauge(func() int64 { return clamp(limit - min(stats().Unreclaimed, limit)) })),
		b.RegisterWalUnreclaimedAgeCallback(func(_ context.Context, o metric.Float64Observer) error {
			if s := stats(); s.Unreclaimed > 0 && s.OldestReceived != 0 {
				o.Observe(ageOf(s.OldestReceived), t.self)
			}
			return nil
		}),
		b.RegisterWalSegmentsLimitCallback(t.gauge(func() int64 { return int64(stats().MaxSegments) })),
		b.RegisterWalSegmentsSealedCallback(t.gauge(func() int64 { return int64(stats().Sealed) })),
		b.RegisterWalSegmentsUsageCallback(func(_ context.Context, o metric.Int64Observer) error {
			s := stats()
			t.states(o, map[string]int{
				"retained": s.ClosedRetained,
				"free":     max(s.MaxSegments-s.ClosedRetained, 0),
				"over_cap": max(s.ClosedRetained-s.MaxSegments, 0),
			})
			return nil
		}),
		b.RegisterWalHousekeepingHorizonRemainingCallback(t.gauge(func() int64 {
			s := stats()
			return int64(max(s.ClosedRetained-s.Eligible-s.Retrying, 0))
		})),
		b.RegisterWalHousekeepingUnlinkRemainingCallback(t.gauge(func() int64 {
			s := stats()
			return int64(s.Eligible + s.Retrying)
		})),
		b.RegisterWalRotationConsecutiveFailuresCallback(t.gauge(func() int64 { return int64(stats().RotationFailures) })),
		b.RegisterWalRotationStatusCallback(func(_ context.Context, o metric.Int64Observer) error {
			t.oneHot(o, rotationStates, stats().Rotation.String())
			return nil
		}),

		b.RegisterWalTenantsLimitCallback(t.constant(int64(stats().MaxTenants))),
		b.RegisterWalTenantsUsageCallback(func(_ context.Context, o metric.Int64Observer) error {
			s := stats()
			t.states(o, map[string]int{
				"held": s.TenantsHeld, "reserved": s.TenantsReserved, "free": max(s.MaxTenants-s.TenantsHeld-s.TenantsReserved, 0),
			})
			return nil
		}),

		b.RegisterWalRetainFloorStatusCallback(func(_ context.Context, o metric.Int64Observer) error {
			t.oneHot(o, coordinator.FloorStates, r.coordinator.Floor().State)
			return nil
		}),
		b.RegisterWalRetainFloorLagSizeCallback(t.gauge(func() int64 { return clamp(r.coordinator.Floor().LagBytes) })),
		b.RegisterWalRetainFloorLagSegmentsCallback(t.gauge(func() int64 { return int64(r.coordinator.Floor().LagSegments) })),
		b.RegisterWalRetainFloorPinnedLanesCallback(t.gauge(func() int64 { return pinnedLanes(r.coordinator.Floor()) })),

		b.RegisterWalRecoveryItemsCallback(t.constant(clamp(r.recovery.Items))),
		b.RegisterWalRecoveryTruncatedSizeCallback(t.constant(clamp(r.recovery.TruncatedBytes))),
		b.RegisterWalRecoveryQuarantinedSizeCallback(t.gauge(func() int64 { return clamp(stats().QuarantinedBytes) })),
		b.RegisterWalRecoveryQuarantinedItemsCallback(t.gauge(func() int64 {
			return clamp(r.recovery.QuarantinedItems + r.delivery.Stats().LostItems)
		})),
		b.RegisterWalRecoveryDurationCallback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(r.recovery.Duration.Seconds(), t.self)
			return nil
		}),
	)
}

// forgetTenants has the table forget tenants of which the log has nothing
// unsettled, read or not, if they are too many. It takes the journal lock.
func (r *walReceiver) forgetTenants() {
	if r.front.tenants == nil {
		return
	}
	inLog := map[string]bool{}
	for _, lane := range r.journal.Lanes() {
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

// ageOf is how many seconds ago it was received, in unix ns; 0 when the clock
// went back meanwhile.
func ageOf(received int64) float64 { return max(time.Since(time.Unix(0, received)).Seconds(), 0) }

// clamp makes a metric's value of n: a limit may be configured larger than any.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func (t *telemetry) constant(v int64) metric.Int64Callback { return t.gauge(func() int64 { return v }) }

func (t *telemetry) gauge(read func() int64) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(read(), t.self)
		return nil
	}
}

// lastRefusal observes the measurement of the latest refusal of a kind, once
// there is one.
func (t *telemetry) lastRefusal(read func() *refusal.Error) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		if e := read(); e != nil {
			o.Observe(clamp(e.Pre), t.self)
		}
		return nil
	}
}

func (t *telemetry) states(o metric.Int64Observer, states map[string]int) {
	for state, n := range states {
		o.Observe(int64(n), t.with(attribute.String("state", state)))
	}
}

func (t *telemetry) oneHot(o metric.Int64Observer, states []string, now string) {
	for _, s := range states {
		o.Observe(flag(s == now), t.with(attribute.String("state", s)))
	}
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
