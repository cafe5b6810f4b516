// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

func newMetrics(t *testing.T) *componenttest.Telemetry {
	tt := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tt.Shutdown(context.Background())) })
	return tt
}

// sum adds up an instrument's values over the attributes wanted.
func sum(t *testing.T, tt *componenttest.Telemetry, name string, want ...attribute.KeyValue) (total int64) {
	t.Helper()
	m, err := tt.GetMetric(name)
	require.NoError(t, err)
	var points []metricdata.DataPoint[int64]
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		points = d.DataPoints
	case metricdata.Gauge[int64]:
		points = d.DataPoints
	default:
		t.Fatalf("%s is %T", name, d)
	}
points:
	for _, p := range points {
		for _, w := range want {
			if v, ok := p.Attributes.Value(w.Key); !ok || v != w.Value {
				continue points
			}
		}
		total += p.Value
	}
	return total
}

func TestF01_FiguresOfAFullLog(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt})
	n.sink.set(errDown)
	_, err := n.fill(requestOfSize(t, 200<<10))
	require.Error(t, err)
	assert.EqualValues(t, 1, sum(t, tt, "otelcol.wal.backpressure.refusing", attribute.String("cause", "bytes")))
	assert.EqualValues(t, 1, sum(t, tt, "otelcol.wal.refusals", attribute.String("error.type", "wal_backpressure_bytes"), attribute.String("transport", "grpc")))
	assert.EqualValues(t, n.unreclaimed(), sum(t, tt, "otelcol.wal.unreclaimed.size"))
	assert.EqualValues(t, uint64(n.cfg.WAL.limit())-n.unreclaimed(), sum(t, tt, "otelcol.wal.capacity_remaining"))
	assert.Greater(t, sum(t, tt, "otelcol.wal.backpressure.last_refusal", attribute.String("measurement", "projected")), int64(n.cfg.WAL.limit()))

	n.stop()
	_, err = tt.GetMetric("otelcol.wal.unreclaimed.size")
	assert.Error(t, err, "a stopped receiver observes nothing")
}

// Two logs in one process have one MeterProvider; each shows its own numbers.
func TestF01_TwoReceiversInOneProcess(t *testing.T) {
	tt := newMetrics(t)
	start := func(name string, limit Size) *node {
		n := newNode(t, nodeOptions{metrics: tt, change: func(c *Config) { c.WAL.UnreclaimedBytesLimit = limit }})
		n.recv.set.ID = component.NewIDWithName(metadata.Type, name)
		require.NoError(t, n.inst.Start(t.Context(), n.host))
		n.connect()
		return n
	}
	a, b := start("a", 4*MiB), start("b", 8*MiB)
	ofA, ofB := attribute.String("receiver", "otlp_wal/a"), attribute.String("receiver", "otlp_wal/b")
	require.NoError(t, a.export(t.Context(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 3)))
	b.sink.set(errDown)
	require.NoError(t, b.export(t.Context(), otlpwire.Traces, requestOf(t, otlpwire.Traces, 5)))
	require.Error(t, b.export(t.Context(), otlpwire.Logs, requestOfSize(t, 300<<10)))
	for _, n := range []*node{a, b} {
		require.NoError(t, (&maintainedLog{n.recv}).Barrier(t.Context(), barrier.Regular))
	}
	eventually(t, "delivered by one, parked by the other", func() bool {
		return sum(t, tt, "otelcol.wal.settled.items", ofA) == 3 && sum(t, tt, "otelcol.delivery.lanes.parked", ofB) == 1
	})
	for name, want := range map[string][2]int64{
		"wal.backpressure.limit":  {int64(4 * MiB), int64(8 * MiB)},
		"wal.accepted.items":      {3, 5},
		"wal.settled.items":       {3, 0},
		"wal.pending.items":       {0, 5},
		"wal.refusals":            {0, 1},
		"delivery.lanes.parked":   {0, 1},
		"wal.unreclaimed.size":    {int64(a.unreclaimed()), int64(b.unreclaimed())},
		"wal.rotation.status":     {1, 1},
		"wal.retain_floor.status": {1, 1},
	} {
		assert.Equal(t, want[0], sum(t, tt, "otelcol."+name, ofA), "%s of a", name)
		assert.Equal(t, want[1], sum(t, tt, "otelcol."+name, ofB), "%s of b", name)
		assert.Equal(t, want[0]+want[1], sum(t, tt, "otelcol."+name), "%s of nobody else", name)
	}
	for _, name := range []string{"wal.group.frames", "wal.group.size", "wal.sync.duration", "wal.barrier.duration", "wal.delivery.duration"} {
		m, err := tt.GetMetric("otelcol." + name)
		require.NoError(t, err)
		points, _, _ := pointsOf(m)
		whose := map[string]bool{}
		for _, p := range points {
			whose[p.attributes["receiver"]] = true
		}
		assert.Equal(t, map[string]bool{"otlp_wal/a": true, "otlp_wal/b": true}, whose, name)
	}
	a.stop()
	assert.Zero(t, sum(t, tt, "otelcol.wal.backpressure.limit", ofA), "a stopped receiver observes nothing")
	assert.EqualValues(t, 8*MiB, sum(t, tt, "otelcol.wal.backpressure.limit", ofB))
	b.stop()
}

// figures are the items that the conservation law speaks of: recovered +
// accepted = settled + dead-lettered + dropped + pending + quarantined.
type figures struct {
	recovered, accepted                                  int64
	settled, deadLettered, dropped, pending, quarantined int64
}

func figuresOf(t *testing.T, tt *componenttest.Telemetry) figures {
	t.Helper()
	of := func(name string) int64 { return sum(t, tt, "otelcol.wal."+name+".items") }
	return figures{
		recovered: of("recovery"), accepted: of("accepted"),
		settled: of("settled"), deadLettered: of("dead_letter"), dropped: of("dropped"), pending: of("pending"), quarantined: of("recovery.quarantined"),
	}
}

func (f figures) in() int64 { return f.recovered + f.accepted }

func (f figures) out() int64 {
	return f.settled + f.deadLettered + f.dropped + f.pending + f.quarantined
}

func conserved(t *testing.T, tt *componenttest.Telemetry) {
	t.Helper()
	f := figuresOf(t, tt)
	assert.Equal(t, f.in(), f.out(), "items in and out: %+v", f)
}

func TestF02_Conservation(t *testing.T) {
	poison := consumererror.NewPermanent(errors.New("poison"))
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt})
	for _, s := range signals {
		require.NoError(t, n.export(t.Context(), s, requestOf(t, s, 5)))
	}
	eventually(t, "delivered", func() bool { return sum(t, tt, "otelcol.wal.settled.items") == 20 })
	n.sink.set(poison)
	require.NoError(t, n.export(t.Context(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 2)))
	eventually(t, "set aside", func() bool { return sum(t, tt, "otelcol.wal.dead_letter.items") == 2 })
	n.sink.set(errDown)
	for _, s := range signals {
		require.NoError(t, n.export(t.Context(), s, requestOf(t, s, 3)))
	}
	eventually(t, "all is known to be pending", func() bool { return sum(t, tt, "otelcol.wal.pending.items") == 12 })
	conserved(t, tt)
	fs := n.kill()

	tt = newMetrics(t)
	bad := newSink()
	bad.set(poison)
	n = startNode(t, nodeOptions{metrics: tt, fs: fs, sink: bad, change: func(c *Config) { c.Delivery.OnPermanentError = policyDrop }})
	require.NoError(t, n.export(t.Context(), otlpwire.Traces, requestOf(t, otlpwire.Traces, 4)))
	atRest(t, tt, isUp, "all is gone")
	f := figuresOf(t, tt)
	assert.Equal(t, f.recovered+4, f.dropped)
	n.stop()
}

// Damage that a reader meets while the log runs is in the balance too.
func TestF02_ConservationWithDamageAtRunTime(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt, change: func(c *Config) { c.WAL.OnCorruption = corruptionQuarantine }})
	n.sink.set(errDown) // the lane parks, and its frames are read again for every attempt
	for range 3 {
		require.NoError(t, n.export(t.Context(), otlpwire.Logs, requestOfSize(t, 200<<10)))
	}
	eventually(t, "tried", func() bool { return n.sink.calls() > 0 })
	flip(t, n.fs, "/wal/0000000000000000-00000000.wal", 300<<10)
	n.sink.set(nil)
	eventually(t, "set aside", func() bool { return sum(t, tt, "otelcol.wal.recovery.quarantined.size") > 0 })
	atRest(t, tt, isUp, "the rest is delivered")
	assert.Equal(t, figures{accepted: 3, settled: 2, quarantined: 1}, figuresOf(t, tt))
	n.stop()
}

// A group, a barrier and a Consume call are counted without allocating.
func TestCountingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		return // the race detector allocates
	}
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = newMetrics(t).NewTelemetrySettings()
	tel, err := newTelemetry(set)
	require.NoError(t, err)
	defer tel.stop()
	o := journalObserver{telemetry: tel}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		o.GroupSynced(3, 4096, time.Millisecond, nil)
		o.GroupSynced(1, 100, time.Millisecond, errDown)
		tel.barrier(time.Millisecond, nil)
		tel.consumed(pipeline.SignalLogs, time.Millisecond, "success")
	}))
}

func TestF01_AgeAfterTheClockWentBack(t *testing.T) {
	assert.Zero(t, ageOf(time.Now().Add(time.Hour).UnixNano()))
	assert.GreaterOrEqual(t, ageOf(time.Now().Add(-time.Hour).UnixNano()), 3600.0)
}

func TestLimitsBeyondAnyMetricAreClamped(t *testing.T) {
	assert.EqualValues(t, math.MaxInt64, clamp(math.MaxUint64))
	assert.EqualValues(t, 7, clamp(7))
}

// The Collector's own receiver metrics count what is durable as accepted and
// what was refused or is undecided as not.
func TestReceiverMetricsCountAtTheDurableAck(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt})
	n.sink.set(errDown) // accepted has nothing to do with delivery
	for name, s := range map[string]signal{
		"log_records": otlpwire.Logs, "spans": otlpwire.Traces, "metric_points": otlpwire.Metrics, "profile_samples": otlpwire.Profiles,
	} {
		payload, json := sampleOf(t, s, 7)
		require.NoError(t, n.export(t.Context(), s, payload))
		require.Equal(t, 200, n.post(s, contentJSON, json).code)
		for _, transport := range transportNames {
			assert.EqualValues(t, 7, sum(t, tt, "otelcol_receiver_accepted_"+name, attribute.String("transport", transport)), "%s %s", name, transport)
		}
	}
	n.recv.front.identity.required, n.recv.front.identity.tenantKey = true, "x-tenant" // refuses everything from now on
	require.Error(t, n.export(t.Context(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 9)))
	assert.EqualValues(t, 9, sum(t, tt, "otelcol_receiver_refused_log_records"))
	assert.EqualValues(t, 14, sum(t, tt, "otelcol_receiver_accepted_log_records"))
	n.stop()
}

// With tenant.metrics the figures carry the tenant, as long as the log has
// something of it, and still add up.
func TestTenantMetrics(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt, every: 20 * time.Millisecond, change: func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
	}})
	as := func(tenant string) context.Context {
		return grpcmetadata.AppendToOutgoingContext(t.Context(), "x-tenant", tenant)
	}
	of := func(tenant string) attribute.KeyValue { return attribute.String("tenant", tenant) }
	n.sink.set(errDown)
	require.NoError(t, n.export(as("acme"), otlpwire.Logs, requestOf(t, otlpwire.Logs, 3)))
	require.NoError(t, n.export(as("initech"), otlpwire.Traces, requestOf(t, otlpwire.Traces, 4)))
	require.Error(t, n.export(as("acme"), otlpwire.Logs, requestOfSize(t, 300<<10)))
	require.Error(t, n.export(as("nobody"), otlpwire.Logs, requestOfSize(t, 300<<10)))
	eventually(t, "pending", func() bool { return sum(t, tt, "otelcol.wal.pending.items") == 7 })

	assert.EqualValues(t, 3, sum(t, tt, "otelcol.wal.accepted.items", of("acme")))
	assert.EqualValues(t, 4, sum(t, tt, "otelcol.wal.accepted.items", of("initech"), attribute.String("otelcol.signal", "traces")))
	assert.EqualValues(t, 7, sum(t, tt, "otelcol.wal.accepted.items"))
	assert.EqualValues(t, 3, sum(t, tt, "otelcol.wal.pending.items", of("acme")))
	assert.EqualValues(t, 1, sum(t, tt, "otelcol.wal.refusals", of("acme"), attribute.String("error.type", "too_large")))
	assert.Zero(t, sum(t, tt, "otelcol.wal.refusals", of("nobody")), "a name that was never accepted is not kept")
	assert.EqualValues(t, 2, sum(t, tt, "otelcol.wal.refusals", attribute.String("error.type", "too_large")))
	conserved(t, tt)

	n.sink.set(nil)
	eventually(t, "settled", func() bool { return sum(t, tt, "otelcol.wal.settled.items") == 7 })
	conserved(t, tt)
	// Tenants of which nothing is left are forgotten if they are too many; the
	// sums are not.
	n.recv.front.tenants.kept = 0
	n.recv.front.tenants.forget(nil)
	n.recv.front.tenants.forget(nil)
	assert.False(t, knows(n.recv.front.tenants, "acme"))
	assert.EqualValues(t, 7, nameless(t, tt, "otelcol.wal.accepted.items"))
	assert.EqualValues(t, 7, sum(t, tt, "otelcol.wal.accepted.items"))
	assert.EqualValues(t, 2, sum(t, tt, "otelcol.wal.refusals", attribute.String("error.type", "too_large")))
	n.stop()
}

func TestTenantsAreForgottenOnlyWhenIdle(t *testing.T) {
	table := newTenantTable(testConfig(func(c *Config) { c.Tenant.Metrics = true }))
	table.kept = 0
	table.accept("a", otlpwire.Logs, 1, 10)
	table.forget(nil)
	assert.True(t, knows(table, "a"), "it sent since the last look")
	table.forget(map[string]bool{"a": true})
	assert.True(t, knows(table, "a"), "the log has something of it")
	table.accept("a", otlpwire.Traces, 1, 10)
	table.forget(nil)
	assert.True(t, knows(table, "a"), "it sent since the last look")
	table.forget(nil)
	assert.False(t, knows(table, "a"))
}

// A tenant has a series of an instrument once there is something to count.
// Without a tenant there is one of every counter from the start.
func TestF01_TenantsHaveNoSeriesOfNothing(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt, change: func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
	}})
	series := func(name string) (named, nameless int) {
		m, err := tt.GetMetric("otelcol.wal." + name)
		require.NoError(t, err)
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if p.Attributes.HasValue("tenant") {
				named++
			} else {
				nameless++
			}
		}
		return named, nameless
	}
	want := map[string]int{
		"accepted.items": len(signals), "accepted.size": len(signals), "settled.items": len(signals), "settled.size": len(signals),
		"dead_letter.items": len(signals), "dead_letter.size": len(signals), "dropped.items": len(signals), "redelivered.items": len(signals),
		"refusals": int(refusal.Count) * len(signals) * int(transports),
	}
	for name, nameless := range want {
		got, without := series(name)
		assert.Zero(t, got, name)
		assert.Equal(t, nameless, without, name)
	}
	for _, tenant := range []string{"acme", "initech"} {
		require.NoError(t, n.exportAs(tenant, otlpwire.Logs, requestOf(t, otlpwire.Logs, 3)))
	}
	eventually(t, "settled", func() bool { return sum(t, tt, "otelcol.wal.settled.items") == 6 })
	for name, nameless := range want {
		got, without := series(name)
		if name == "refusals" {
			assert.Zero(t, got, name)
		} else {
			assert.Equal(t, 2, got, name)
		}
		assert.Equal(t, nameless, without, name)
	}
	n.stop()
}

// A tenant whose first frames no reader has come to is in the log too.
func TestF01_TenantThatDeliveryHasNotReadIsCounted(t *testing.T) {
	tt := newMetrics(t)
	n := newNode(t, nodeOptions{metrics: tt, change: func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
	}})
	for _, step := range []func(context.Context, component.Host) error{n.recv.openLog, n.recv.maintain, n.recv.observe, n.recv.serve} {
		require.NoError(t, step(t.Context(), n.host)) // all of a start but the delivery's
	}
	n.connect()
	n.recv.front.tenants.kept = 0
	require.NoError(t, n.exportAs("acme", otlpwire.Logs, requestOf(t, otlpwire.Logs, 3)))
	for range 3 {
		assert.EqualValues(t, 3, sum(t, tt, "otelcol.wal.accepted.items", attribute.String("tenant", "acme")))
		assert.Zero(t, nameless(t, tt, "otelcol.wal.accepted.items"))
	}
	n.disconnect()
	require.NoError(t, n.recv.shutdown(t.Context()))
}

// A request that the disk failed is counted where there is a series from the
// start, also of a tenant that is known: WeirSyncFailing wants its increase.
func TestF06_DiskErrorsAreNoTenants(t *testing.T) {
	table := newTenantTable(testConfig(func(c *Config) { c.Tenant.Metrics = true }))
	table.accept("acme", otlpwire.Logs, 1, 10)
	for reason := range refusal.Count {
		disk := reason == refusal.SyncIO || reason == refusal.AppendIO
		assert.Equal(t, !disk, table.refuse("acme", reason, otlpwire.Logs, transportGRPC), reason)
	}
}

func TestTenantsAreKeptUpToABound(t *testing.T) {
	config := func(tenants int) *Config {
		return testConfig(func(c *Config) { c.Tenant.Metrics, c.Tenant.MaxTenants = true, tenants })
	}
	t.Setenv(seriesLimitVariable, "")
	assert.Equal(t, 7, config(7).keptTenants())
	assert.Equal(t, 498, config(1024).keptTenants())
	t.Setenv(seriesLimitVariable, "0")
	assert.Equal(t, maxKeptTenants, config(65536).keptTenants())
	without := config(7)
	without.Tenant.Metrics = false
	assert.Zero(t, without.keptTenants())

	table := newTenantTable(config(7))
	for i := range 10 {
		table.accept(fmt.Sprint("t", i), otlpwire.Logs, 1, 10)
	}
	items := func(f *tenantFigures) uint64 { return f.accepted[otlpwire.Logs].items.Load() }
	for range 3 {
		table.forget(nil)
	}
	parts, forgotten := table.parts(items)
	assert.Len(t, parts, 7)
	assert.EqualValues(t, 3, forgotten)
	for name := range parts {
		table.accept(name, otlpwire.Logs, 1, 10)
		now, _ := table.parts(items)
		assert.EqualValues(t, 2, now[name], "it counts on")
	}
}

// A tenant comes back again and again after the log has nothing of it any more.
// No series goes down or counts what another has: the sum of all increases is
// what there was.
func TestF01_TenantsThatComeBack(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt, change: func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
	}})
	series := map[string]int64{}   // what each last showed
	increase := map[string]int64{} // of an instrument, over all of its series
	look := func() {
		for _, name := range []string{
			"accepted.items", "accepted.size", "settled.items", "settled.size", "dead_letter.items", "dropped.items", "redelivered.items", "refusals",
		} {
			m, err := tt.GetMetric("otelcol.wal." + name)
			require.NoError(t, err)
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				id := name + p.Attributes.Encoded(attribute.DefaultEncoder())
				require.GreaterOrEqual(t, p.Value, series[id], id)
				increase[name] += p.Value - series[id]
				series[id] = p.Value
			}
		}
	}
	poison := consumererror.NewPermanent(errors.New("poison"))
	for round := range int64(3) {
		n.sink.set(nil)
		require.NoError(t, n.exportAs("acme", otlpwire.Logs, requestOf(t, otlpwire.Logs, 3)))
		require.Error(t, n.exportAs("acme", otlpwire.Logs, requestOfSize(t, 300<<10)))
		eventually(t, "settled", func() bool { look(); return increase["settled.items"] == 3*(round+1) })
		n.sink.set(poison)
		require.NoError(t, n.exportAs("acme", otlpwire.Traces, requestOf(t, otlpwire.Traces, 2)))
		eventually(t, "set aside", func() bool { look(); return increase["dead_letter.items"] == 2*(round+1) })
		for range 2 { // the first records that all is settled, the second finds nothing in the log
			require.NoError(t, (&maintainedLog{n.recv}).Barrier(t.Context(), barrier.Regular))
		}
		require.Empty(t, n.recv.journal.Lanes())
		for range 3 {
			look()
		}
		assert.Equal(t, 5*(round+1), increase["accepted.items"])
		assert.Equal(t, 3*(round+1), increase["settled.items"])
		assert.Equal(t, 2*(round+1), increase["dead_letter.items"])
		assert.Equal(t, round+1, increase["refusals"])
		conserved(t, tt)
	}
	n.stop()
}

func knows(table *tenantTable, name string) bool {
	table.mu.RLock()
	defer table.mu.RUnlock()
	return table.byName[name] != nil
}

// The series of a counter without a tenant is what of it has no tenant, or has
// none any more: while all have one it is 0, whatever is counted between two
// looks. Were it ever more, it would go down again, which reads as a restart.
func TestTenantMetricsNeverGoDown(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt, change: func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
	}})
	payload, tooLarge := requestOf(t, otlpwire.Logs, 1), requestOfSize(t, 300<<10)
	for sender := range 4 { // from its first request on a tenant is known
		require.NoError(t, n.exportAs(fmt.Sprint("t", sender), otlpwire.Logs, payload))
	}
	done := make(chan struct{})
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			tenant := fmt.Sprint("t", sender)
			for i := range 2000 {
				if i%8 == 0 {
					assert.Error(t, n.exportAs(tenant, otlpwire.Logs, tooLarge))
				} else {
					assert.NoError(t, n.exportAs(tenant, otlpwire.Logs, payload))
				}
			}
		})
	}
	names := []string{"otelcol.wal.accepted.items", "otelcol.wal.accepted.size", "otelcol.wal.settled.items", "otelcol.wal.settled.size", "otelcol.wal.refusals"}
	go func() {
		defer close(done)
		senders.Wait()
	}()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		for _, name := range names {
			require.Zero(t, nameless(t, tt, name), name)
		}
	}
	eventually(t, "settled", func() bool { return sum(t, tt, "otelcol.wal.pending.items") == 0 })
	for _, name := range names {
		assert.NotZero(t, sum(t, tt, name), name)
	}
	conserved(t, tt)
	n.stop()
}

// nameless is the sum of an instrument's points that have no tenant.
func nameless(t *testing.T, tt *componenttest.Telemetry, name string) (total int64) {
	t.Helper()
	m, err := tt.GetMetric(name)
	require.NoError(t, err)
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		if !p.Attributes.HasValue("tenant") {
			total += p.Value
		}
	}
	return total
}

// What a client gave up on and became durable all the same is in the balance.
func TestF02_ConservationOfAbandonedRequests(t *testing.T) {
	tt := newMetrics(t)
	n := startNode(t, nodeOptions{metrics: tt})
	n.recv.journal.TurnC() <- struct{}{} // nobody can write
	ctx, giveUp := context.WithCancel(t.Context())
	payload, done := requestOf(t, otlpwire.Logs, 3), make(chan error, 1)
	go func() { done <- n.export(ctx, otlpwire.Logs, payload) }()
	eventually(t, "queued", func() bool { return n.recv.journal.Stats().Unflushed > 0 })
	giveUp()
	require.Error(t, <-done)
	eventually(t, "refused", func() bool {
		return sum(t, tt, "otelcol.wal.refusals", attribute.String("error.type", "wal_abandoned")) == 1
	})
	n.recv.journal.ReleaseTurn()
	eventually(t, "delivered", func() bool { return sum(t, tt, "otelcol.wal.settled.items") == 3 })
	assert.EqualValues(t, 3, sum(t, tt, "otelcol.wal.accepted.items"))
	conserved(t, tt)
	n.stop()
}
