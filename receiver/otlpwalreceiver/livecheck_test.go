// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// liveStates is a run through every state. A state brings something about and
// says with show (instruments) and tell (events) what of the registry is to be
// seen of it then. Whoever registers an instrument, an event, an attribute or
// a value of one adds it to the state in which it is seen, here.
var liveStates = []struct {
	name  string
	drive func(*drive)
}{
	{"just started", func(d *drive) {
		d.start(nodeOptions{})
		d.completeAtStart()
		d.show(
			"in_flight.limit", "delivery.in_flight.limit", "wal.backpressure.limit", "wal.capacity_remaining", "wal.disk.size",
			"wal.segments.limit", "wal.segments.usage state=free", "wal.tenants.limit", "wal.tenants.usage state=free",
			"wal.rotation.status state=healthy", "wal.retain_floor.status state=unknown", "wal.recovery.duration",
		)
		d.tell("wal.recovery.completed")
	}},
	{"requests on their way", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.Admission.MaxRequests = 2 }})
		turn := n.recv.journal.TurnC()
		turn <- struct{}{} // nobody can write
		var senders sync.WaitGroup
		senders.Go(func() { assert.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1))) })
		d.show("in_flight.usage", "in_flight.requests", "wal.unflushed.size", "wal.tenants.usage state=reserved")

		queued := n.recv.journal.Stats().Unflushed
		ctx, giveUp := context.WithCancel(d.as("acme"))
		senders.Go(func() { assert.Error(d.t, n.export(ctx, otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1))) })
		eventually(d.t, "queued", func() bool { return n.recv.journal.Stats().Unflushed > queued })
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.show("wal.refusals error.type=in_flight_requests")
		giveUp()
		d.show("wal.refusals error.type=wal_abandoned")
		n.recv.journal.ReleaseTurn()
		senders.Wait()
		d.show("wal.tenants.usage state=held")
	}},
	{"being delivered", func(d *drive) {
		n := d.start(nodeOptions{every: often})
		n.sink.block()
		d.sendAll(n, "acme")
		d.show("delivery.in_flight.usage", "wal.pending.items otelcol.signal=* tenant=*", "wal.unreclaimed.size", "wal.unreclaimed.age",
			"wal.accepted.items otelcol.signal=* tenant=*", "wal.accepted.size otelcol.signal=* tenant=*",
			"wal.group.frames outcome=success", "wal.group.size outcome=success", "wal.sync.duration outcome=success")
		n.sink.unblock()
		d.show("wal.delivery.duration outcome=success",
			"wal.settled.items otelcol.signal=* tenant=*", "wal.settled.size otelcol.signal=* tenant=*")
		d.drained(n)
		d.show("wal.barrier.duration outcome=success", "wal.retain_floor.status state=none")
	}},
	{"the destination is down", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errDown)
		d.sendAll(n, "acme")
		d.show("delivery.lanes.parked", "wal.delivery.duration outcome=retryable")
		d.tell("wal.delivery.parked state=parked next_try=*")
		eventually(d.t, "every lane was tried", func() bool { return n.recv.delivery.Stats().Parked == len(signals) })
		n.sink.set(nil)
		d.show("wal.redelivered.items otelcol.signal=* tenant=*")
		d.drained(n)
		d.tell("wal.delivery.resumed")
	}},
	{"the pipeline panics", func(d *drive) {
		n := d.node(nodeOptions{})
		n.recv.next.Logs = &panicsOnce{sink: n.sink}
		d.begin(n)
		require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.drained(n)
		d.tell("wal.delivery.parked stack=*")
	}},
	{"the pipeline refuses for good: dead letters", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errPoison)
		d.sendAll(n, "acme")
		d.show("wal.delivery.duration outcome=permanent",
			"wal.dead_letter.items otelcol.signal=* tenant=*", "wal.dead_letter.size otelcol.signal=* tenant=*")
		d.tell("wal.dead_letter.written")
	}},
	{"the pipeline refuses for good: dropped", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.Delivery.OnPermanentError = policyDrop }})
		n.sink.set(errPoison)
		d.sendAll(n, "acme")
		d.show("wal.dropped.items otelcol.signal=* tenant=*")
	}},
	{"the pipeline refuses for good: blocked", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.Delivery.OnPermanentError = policyBlock }})
		n.sink.set(errPoison)
		d.sendAll(n, "acme")
		d.show("delivery.lanes.parked")
		d.tell("wal.delivery.parked state=blocked")
	}},
	{"a lane holds the oldest segment", func(d *drive) {
		n := d.start(nodeOptions{every: often})
		require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.drained(n)
		d.show("wal.barrier.duration outcome=success", "wal.retain_floor.status state=none") // the lane has a horizon
		n.sink.set(errDown)
		require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.show("wal.retain_floor.status state=min", "wal.retain_floor.lag.size", "wal.retain_floor.lag.segments")
		require.NoError(d.t, n.export(d.as("acme"), otlpwire.Traces, requestOf(d.t, otlpwire.Traces, 1)))
		d.show("wal.retain_floor.status state=pinned", "wal.retain_floor.pinned_lanes")
		d.tell("wal.retain_floor.pinned")
		n.sink.set(nil)
		d.tell("wal.retain_floor.lifted")
	}},
	{"full of bytes", func(d *drive) {
		n := d.start(nodeOptions{every: often})
		n.sink.set(errDown)
		_, err := n.fill(requestOfSize(d.t, 200<<10))
		require.Error(d.t, err)
		d.show("wal.backpressure.refusing cause=bytes", "wal.refusals error.type=wal_backpressure_bytes",
			"wal.backpressure.last_refusal cause=bytes measurement=*", "wal.segments.usage state=retained", "wal.housekeeping.horizon.remaining")
		d.tell("wal.backpressure.entered cause=bytes projected=*")

		n.fs.Inject(crashfs.Fault{Op: crashfs.OpUnlink, Err: syscall.EIO})
		n.sink.set(nil)
		d.drained(n)
		d.show("wal.housekeeping.unlink.remaining")
		n.fs.ClearFaults()
		d.tell("wal.backpressure.left cause=bytes")
	}},
	{"full of segments", func(d *drive) {
		n := d.start(nodeOptions{every: often, change: func(c *Config) { c.WAL.MaxSegments, c.WAL.UnreclaimedBytesLimit = 1, 64*MiB }})
		n.sink.set(errDown)
		_, err := n.fill(requestOfSize(d.t, 200<<10))
		require.Error(d.t, err)
		d.show("wal.backpressure.refusing cause=segments", "wal.refusals error.type=wal_backpressure_segments", "wal.backpressure.last_refusal.segments")
		d.tell("wal.backpressure.entered cause=segments projected=*")

		// A segment whose sync failed ends, whatever the limit.
		n.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: "*.wal", Times: 1, Err: syscall.EIO})
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.show("wal.refusals error.type=wal_sync_io", "wal.segments.sealed", "wal.segments.usage state=over_cap",
			"wal.group.frames outcome=failure", "wal.group.size outcome=failure", "wal.sync.duration outcome=failure")

		n.sink.set(nil)
		d.drained(n)
		d.tell("wal.backpressure.left cause=segments")
	}},
	{"no next segment: retrying", noNextSegment(syscall.EIO, "retrying", "wal_rotation_retrying")},
	{"no next segment: the volume is full", noNextSegment(syscall.ENOSPC, "volume_full", "wal_volume_full")},
	{"no next segment: unwritable", noNextSegment(syscall.EROFS, "unwritable", "wal_unwritable")},
	{"no next segment: terminal", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.WAL.RotationRetryAttempts = 1 }})
		n.fs.Inject(crashfs.Fault{Op: crashfs.OpRenameNoReplace | crashfs.OpLink, Match: "*.wal", Err: syscall.EIO})
		_, err := n.fill(requestOfSize(d.t, 200<<10))
		require.Error(d.t, err)
		d.show("wal.rotation.status state=terminal", "wal.rotation.consecutive_failures", "wal.refusals error.type=wal_terminal")
		d.tell("wal.rotation.terminal state=terminal")
	}},
	{"a write fails", func(d *drive) {
		n := d.start(nodeOptions{})
		n.fs.Inject(crashfs.Fault{Op: crashfs.OpWrite, Match: "*.wal", Times: 1, Err: syscall.EIO})
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1)))
		d.show("wal.refusals error.type=wal_append_io")
	}},
	{"a barrier fails", func(d *drive) {
		n := d.start(nodeOptions{every: often})
		n.fs.Inject(crashfs.Fault{Op: crashfs.OpWrite | crashfs.OpDatasync, Match: "STATE", Err: syscall.EIO})
		d.show("wal.barrier.duration outcome=failure")
		n.fs.ClearFaults()
	}},
	{"requests that are no good", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.MetadataKeys, c.Tenant.MaxTenants = []string{"x-kept"}, 1 }})
		for _, s := range signals {
			require.Error(d.t, n.export(d.as("acme"), s, []byte{0xff}))
			require.Equal(d.t, http.StatusBadRequest, n.post(s, contentProtobuf, []byte{0xff}).code)
		}
		d.show("wal.refusals error.type=invalid_payload otelcol.signal=* transport=*")

		payload := requestOf(d.t, otlpwire.Logs, 1)
		require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, payload))
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOfSize(d.t, 300<<10)))
		require.Error(d.t, n.export(d.as("initech"), otlpwire.Logs, payload))
		require.Error(d.t, n.export(d.as("not a name"), otlpwire.Logs, payload))
		kept := strings.Fields(strings.Repeat("x-kept v ", maxMetadataEntries+1))
		require.Error(d.t, n.export(grpcmetadata.AppendToOutgoingContext(d.as("acme"), kept...), otlpwire.Logs, payload))
		d.show("wal.refusals error.type=too_large tenant=*", "wal.refusals error.type=invalid_tenant", "wal.refusals error.type=invalid_metadata",
			"wal.refusals error.type=wal_tenant_cap", "wal.tenant_capacity.last_refusal")

		budget, all := n.front.admission.budget, uint64(n.cfg.Admission.MaxInFlightBytes)
		require.True(d.t, budget.TryAcquire(all-budget.Held()))
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, payload))
		budget.Release(all)
		d.show("wal.refusals error.type=in_flight_bytes")

		n.front.admission.close() // what a shutdown does first
		require.Error(d.t, n.export(d.as("acme"), otlpwire.Logs, payload))
		d.show("wal.refusals error.type=shutting_down")
	}},
	{"a slow client", func(d *drive) {
		n := d.start(nodeOptions{change: func(c *Config) { c.Admission.BodyTimeout = 100 * time.Millisecond }})
		c := dialSlow(d.t, &n.rig, logsURLPath, "", 100)
		_, err := c.Write([]byte("x"))
		require.NoError(d.t, err)
		require.Equal(d.t, http.StatusServiceUnavailable, readAnswer(d.t, c).code)
		d.show("wal.refusals error.type=body_timeout")
	}},
	{"recovered after a torn write", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errDown)
		d.sendAll(n, "acme")
		fs := n.kill()
		end := lastByte(d.t, fs)
		damageAt(d.t, fs, end+1, 20)
		d.start(nodeOptions{fs: fs})
		d.show("wal.recovery.items", "wal.recovery.truncated.size")
	}},
	{"recovered after a write torn in the middle", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errDown)
		n.recv.journal.TurnC() <- struct{}{}
		var senders sync.WaitGroup
		var queued uint64
		for range 3 { // one group
			senders.Go(func() { assert.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOf(d.t, otlpwire.Logs, 1))) })
			eventually(d.t, "queued", func() bool { return n.recv.journal.Stats().Unflushed > queued })
			queued = n.recv.journal.Stats().Unflushed
		}
		n.recv.journal.ReleaseTurn()
		senders.Wait()
		fs := n.kill()
		damageAt(d.t, fs, lastByte(d.t, fs)-int(queued/2), 1)
		d.start(nodeOptions{fs: fs})
		d.tell("wal.recovery.damage action=gap ambiguous=*")
	}},
	{"damage found at start", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errDown)
		for range 3 { // in the segment that is read when the log is opened
			require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOfSize(d.t, 200<<10)))
		}
		n.stop()
		damageAt(d.t, n.fs, 300<<10, 1)
		stops := d.node(nodeOptions{fs: n.fs.Clone()})
		require.Error(d.t, stops.inst.Start(d.t.Context(), stops.host))
		d.tell("wal.recovery.damage action=stopped")

		d.start(nodeOptions{fs: n.fs.Clone(), change: setAside})
		d.show("wal.recovery.quarantined.size", "wal.recovery.quarantined.items")
		d.tell("wal.recovery.damage action=quarantined items=* items_known=*")

		flip(d.t, n.fs, firstSegment, 5)
		d.start(nodeOptions{fs: n.fs, change: setAside})
		d.tell("wal.recovery.damage action=rewritten")
	}},
	{"damage met by a reader", func(d *drive) {
		n := d.start(nodeOptions{change: setAside})
		n.sink.set(errDown) // the lane parks, and its frames are read again for every attempt
		for range 3 {
			require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOfSize(d.t, 200<<10)))
		}
		d.show("delivery.lanes.parked")
		damageAt(d.t, n.fs, 300<<10, 1)
		n.sink.set(nil)
		d.tell("wal.recovery.damage action=quarantined lanes=*")
		d.show("wal.recovery.quarantined.items")
	}},
	{"damage that a reader can not pass", func(d *drive) {
		n := d.start(nodeOptions{})
		n.sink.set(errDown)
		for range 8 { // in two segments: the summary says what is in the first, which is not read when the log is opened
			require.NoError(d.t, n.export(d.as("acme"), otlpwire.Logs, requestOfSize(d.t, 200<<10)))
		}
		n.stop()
		damageAt(d.t, n.fs, 300<<10, 1)
		d.start(nodeOptions{fs: n.fs})
		d.tell("wal.recovery.damage action=stopped lanes=*")
		d.tell("wal.delivery.parked state=parked")
		d.show("delivery.lanes.parked")
	}},
}

// often is the interval of barriers and of housekeeping where a state needs
// them.
const often = 20 * time.Millisecond

// absentAtFirst have nothing to say before something happened.
var absentAtFirst = map[string]bool{
	"otelcol.wal.backpressure.last_refusal":          true,
	"otelcol.wal.backpressure.last_refusal.segments": true,
	"otelcol.wal.tenant_capacity.last_refusal":       true,
	"otelcol.wal.unreclaimed.age":                    true,
	"otelcol.wal.barrier.duration":                   true,
	"otelcol.wal.delivery.duration":                  true,
	"otelcol.wal.group.frames":                       true,
	"otelcol.wal.group.size":                         true,
	"otelcol.wal.sync.duration":                      true,
}

// What is registered is emitted, and what is emitted is registered: over a run
// through every state.
func TestF01_LiveCheck(t *testing.T) {
	c := &liveCheck{instruments: instruments(t), events: events(t)}
	for _, state := range liveStates {
		t.Run(state.name, func(t *testing.T) {
			d := newDrive(t, c)
			state.drive(d)
			d.end()
		})
	}
	if t.Failed() {
		return // what a state did not come to show is no news
	}
	assert.Empty(t, unproved(c.instruments, c.shown), "of metadata.yaml no state in liveStates shows")
	assert.Empty(t, unproved(c.events, c.told), "of docs/events.md no state in liveStates tells")
}

// The check notices what is missing and what is too much.
func TestF01_LiveCheckCanFail(t *testing.T) {
	registry := map[string]entry{"a": {attributes: map[string]attributeOf{"k": {values: []string{"x", "y"}}, "o": {optional: true}}}}
	assert.Equal(t, []string{"a", "a k=x", "a k=y", "a o=*"}, unproved(registry, nil))
	assert.Equal(t, []string{"a k=y", "a o=*"}, unproved(registry, patterns(registry, "a k=x")))
	assert.Empty(t, unproved(registry, patterns(registry, "a k=* o=*")))
	for want, f := range map[string]fact{
		"b is not registered":                         {name: "b"},
		"a lacks the attribute k":                     {name: "a"},
		"a: k=z is not registered":                    {name: "a", attributes: map[string]string{"k": "z"}},
		"a has an attribute l that is not registered": {name: "a", attributes: map[string]string{"k": "x", "l": "1"}},
		"": {name: "a", attributes: map[string]string{"k": "x", "o": "1"}},
	} {
		assert.Equal(t, want, strings.Join(f.against(registry), ";"))
	}
	p := patterns(registry, "a k=x o=*")[0]
	assert.True(t, p.matches(fact{name: "a", attributes: map[string]string{"k": "x", "o": "1"}}))
	assert.False(t, p.matches(fact{name: "a", attributes: map[string]string{"k": "x"}}))
	assert.False(t, p.matches(fact{name: "a", attributes: map[string]string{"k": "y", "o": "1"}}))
	assert.False(t, p.matches(fact{name: "a", attributes: map[string]string{"k": "x", "o": "1"}, zero: true}))
}

// liveCheck is both registries and what the states so far have shown of them.
type liveCheck struct {
	instruments, events map[string]entry
	shown, told         []pattern
}

// drive is one state's run: any number of nodes that feed one MeterProvider and
// one logger.
type drive struct {
	t     *testing.T
	check *liveCheck
	tt    *componenttest.Telemetry
	core  zapcore.Core
	logs  *observer.ObservedLogs
	nodes []*node
}

func newDrive(t *testing.T, c *liveCheck) *drive {
	d := &drive{t: t, check: c, tt: newMetrics(t)}
	d.core, d.logs = observer.New(zap.DebugLevel)
	return d
}

var liveID = component.NewIDWithName(metadata.Type, "live")

// node makes a node that counts tenants; start starts one as well.
func (d *drive) node(o nodeOptions) *node {
	d.t.Helper()
	change := o.change
	o.metrics, o.logger = d.tt, zap.New(d.core)
	o.change = func(c *Config) {
		c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
		if change != nil {
			change(c)
		}
	}
	n := newNode(d.t, o)
	n.recv.set.ID = liveID
	return n
}

func (d *drive) begin(n *node) {
	d.t.Helper()
	require.NoError(d.t, n.inst.Start(d.t.Context(), n.host))
	n.connect()
	d.nodes = append(d.nodes, n)
}

func (d *drive) start(o nodeOptions) *node {
	d.t.Helper()
	n := d.node(o)
	d.begin(n)
	return n
}

// end stops what still runs; the log records of that count too.
func (d *drive) end() {
	d.t.Helper()
	d.collect()
	for _, n := range d.nodes {
		n.disconnect()
		_ = n.inst.Shutdown(context.Background()) // terminal ones and killed ones fail
	}
	for _, r := range d.logs.All() {
		if f, ok := factOf(r); ok {
			assert.Empty(d.t, f.against(d.check.events), "%s: %q", f.name, r.Message)
		}
	}
}

func (d *drive) as(tenant string) context.Context {
	return grpcmetadata.AppendToOutgoingContext(d.t.Context(), "x-tenant", tenant)
}

// sendAll sends one item of every signal, over either protocol in turn.
func (d *drive) sendAll(n *node, tenant string) {
	d.t.Helper()
	for i, s := range signals {
		if i%2 == 0 {
			require.NoError(d.t, n.export(d.as(tenant), s, requestOf(d.t, s, 1)))
			continue
		}
		require.Equal(d.t, http.StatusOK, n.post(s, contentProtobuf, requestOf(d.t, s, 1), "X-Tenant", tenant).code)
	}
}

// drained waits until nothing is pending.
func (d *drive) drained(n *node) {
	d.t.Helper()
	eventually(d.t, "drained", func() bool { return n.pending() == 0 })
}

// pending is the items that are not settled.
func (n *node) pending() (items uint64) {
	for _, s := range n.recv.delivery.Stats().Signals {
		items += s.PendingItems
	}
	return items
}

// collect reads the metrics and holds them against the registry.
func (d *drive) collect() (facts []fact) {
	var all metricdata.ResourceMetrics
	if !assert.NoError(d.t, d.tt.Reader.Collect(context.Background(), &all)) {
		return nil
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			ours := scope.Scope.Name == "github.com/otelweir/weir"
			for _, prefix := range []string{"otelcol.wal.", "otelcol.in_flight.", "otelcol.delivery."} {
				ours = ours || strings.HasPrefix(m.Name, prefix)
			}
			if !ours {
				continue
			}
			points, kind, bounds := pointsOf(m)
			e := d.check.instruments[m.Name]
			assert.Equal(d.t, e.kind, kind, m.Name)
			assert.Equal(d.t, e.unit, m.Unit, m.Name)
			if bounds != nil {
				assert.Equal(d.t, e.bounds, bounds, m.Name)
			}
			for _, f := range points {
				assert.Empty(d.t, f.against(d.check.instruments))
				assert.Equal(d.t, liveID.String(), f.attributes["receiver"], m.Name)
			}
			facts = append(facts, points...)
		}
	}
	return facts
}

// completeAtStart wants every instrument that is not absent at first, with
// every combination of enumerated values, and every counter at 0.
func (d *drive) completeAtStart() {
	d.t.Helper()
	facts := d.collect()
	for name, e := range d.check.instruments {
		text := name
		for key, a := range e.attributes {
			if a.values != nil {
				text += " " + key + "=*"
			}
		}
		for _, p := range patterns(d.check.instruments, text) {
			found := false
			for _, f := range facts {
				zero := f.zero
				f.zero = false
				if p.matches(f) {
					found = true
					assert.True(d.t, zero || !strings.Contains(e.kind, "sum"), "%s is not 0", p)
				}
			}
			assert.Equal(d.t, !absentAtFirst[name], found, p)
		}
	}
}

// show waits until points that are not 0 match every pattern; names lack the
// prefix they all have.
func (d *drive) show(texts ...string) {
	d.t.Helper()
	var wanted []pattern
	for _, text := range texts {
		wanted = append(wanted, patterns(d.check.instruments, "otelcol."+text)...)
	}
	d.wait(wanted, func() []fact { return d.collect() })
	d.check.shown = append(d.check.shown, wanted...)
}

// tell waits until events match every pattern.
func (d *drive) tell(texts ...string) {
	d.t.Helper()
	var wanted []pattern
	for _, text := range texts {
		wanted = append(wanted, patterns(d.check.events, text)...)
	}
	d.wait(wanted, func() (facts []fact) {
		for _, r := range d.logs.All() {
			if f, ok := factOf(r); ok {
				facts = append(facts, f)
			}
		}
		return facts
	})
	d.check.told = append(d.check.told, wanted...)
}

func (d *drive) wait(wanted []pattern, look func() []fact) {
	d.t.Helper()
	missing := fmt.Sprint(wanted)
	assert.Eventually(d.t, func() bool {
		facts := look()
		var left []pattern
	next:
		for _, p := range wanted {
			for _, f := range facts {
				if p.matches(f) {
					continue next
				}
			}
			left = append(left, p)
		}
		wanted, missing = left, fmt.Sprint(left)
		return len(left) == 0
	}, waitFor, tick)
	if len(wanted) > 0 {
		require.Fail(d.t, "not seen", missing)
	}
}

var errPoison = consumererror.NewPermanent(errors.New("poison"))

// panicsOnce is a pipeline that panics at first.
type panicsOnce struct {
	*sink
	done bool
}

func (p *panicsOnce) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	if !p.done {
		p.done = true
		panic("boom")
	}
	return p.sink.ConsumeLogs(ctx, ld)
}

// noNextSegment is a state in which segments cannot be put in place, and its
// end.
func noNextSegment(cause syscall.Errno, state, errorType string) func(*drive) {
	return func(d *drive) {
		n := d.start(nodeOptions{every: often})
		n.fs.Inject(crashfs.Fault{Op: crashfs.OpRenameNoReplace | crashfs.OpLink, Match: "*.wal", Err: cause})
		_, err := n.fill(requestOfSize(d.t, 200<<10))
		require.Error(d.t, err)
		d.show("wal.rotation.status state="+state, "wal.refusals error.type="+errorType)
		d.tell("wal.rotation.retrying state=" + state)
		n.fs.ClearFaults()
		d.tell("wal.rotation.recovered state=healthy")
	}
}

func setAside(c *Config) { c.WAL.OnCorruption = corruptionQuarantine }

const firstSegment = "/wal/0000000000000000-00000000.wal"

// lastByte is the offset of the last byte written to the first segment.
func lastByte(t *testing.T, fs *crashfs.FS) int {
	t.Helper()
	b, err := fs.ReadFile(firstSegment)
	require.NoError(t, err)
	end := len(b) - 1
	for b[end] == 0 {
		end--
	}
	return end
}

// damageAt inverts bytes of the first segment.
func damageAt(t *testing.T, fs *crashfs.FS, off, n int) {
	t.Helper()
	b, err := fs.ReadFile(firstSegment)
	require.NoError(t, err)
	for i := range n {
		b[off+i] ^= 0xff
	}
	require.NoError(t, fs.WriteFile(firstSegment, b))
}
