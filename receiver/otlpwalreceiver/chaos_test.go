// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/delivery"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/otlpwire"
)

// lives of one log, one after another: each begins with what the one before
// left.
var lives = []struct {
	name   string
	policy string
	faults []crashfs.Fault // while requests come
	rests  mood            // of the sink, when nothing comes any more
	ends   string          // then: killed, stopped, or killed while requests come again
	damage bool            // done to what is not settled, after that
}{
	{name: "a first one", policy: policyDeadLetter, rests: isDown, ends: "stopped"},
	{name: "of a backlog", policy: policyDrop, rests: isUp, ends: "killed under load"},
	{name: "after a kill under load", policy: policyDeadLetter, rests: isDown, ends: "stopped", damage: true},
	{
		name: "of damaged data", policy: policyDrop, rests: isDown, ends: "stopped",
		faults: []crashfs.Fault{{Op: crashfs.OpDatasync, Match: "*.wal", After: 30, Times: 1, Err: syscall.EIO}},
	},
	{
		name: "after a failed sync", policy: policyDeadLetter, rests: isDown, ends: "killed", damage: true,
		faults: []crashfs.Fault{{Op: crashfs.OpWrite, Match: "*.wal", After: 30, Times: 1, Err: syscall.EIO}},
	},
	{name: "of what all that left", policy: policyDeadLetter, rests: isUp, ends: "stopped"},
}

// In every life, once nothing comes and the destination does not change its
// mind any more, every item is accounted for, exactly.
func TestF02_ConservationThroughChaos(t *testing.T) {
	seen := map[string]int64{} // what of the figures was ever not 0
	var fs *crashfs.FS
	var left int64 // pending when the life before was stopped, if the data was left alone
	for i, life := range lives {
		tt := newMetrics(t)
		s := &moodySink{rng: rand.New(rand.NewPCG(uint64(i), 2))}
		n := newNode(t, nodeOptions{fs: fs, metrics: tt, every: 10 * time.Millisecond, change: func(c *Config) {
			c.Tenant.MetadataKey, c.Tenant.Metrics = "x-tenant", true
			c.Delivery.OnPermanentError = life.policy
			c.WAL.OnCorruption = corruptionQuarantine
		}})
		n.recv.next = delivery.Consumers{Logs: s, Traces: s, Metrics: s, Profiles: s}
		require.NoError(t, n.inst.Start(t.Context(), n.host), life.name)
		n.connect()
		// What was settled behind a lane's frontier is found again.
		assert.GreaterOrEqual(t, sum(t, tt, "otelcol.wal.recovery.items"), left, "%s: what a graceful stop left is found", life.name)

		n.fs.Inject(life.faults...)
		acked := storm(n, uint64(i), 60)
		n.fs.ClearFaults()
		s.rest(life.rests)
		atRest(t, tt, life.rests, life.name)
		for life.damage && waitingLanes(n) < len(placesToDamage) { // by chance they were delivered
			s.rest(isUp)
			atRest(t, tt, isUp, life.name)
			s.rest(life.rests)
			acked += storm(n, uint64(i)+200, 10)
			atRest(t, tt, life.rests, life.name)
		}
		assert.Equal(t, acked, sum(t, tt, "otelcol.wal.accepted.items"), "%s: what was acknowledged is what is accepted", life.name)
		for _, name := range []string{
			"recovery.items", "recovery.quarantined.items", "settled.items", "dead_letter.items", "dropped.items", "pending.items", "redelivered.items",
		} {
			seen[name] += sum(t, tt, "otelcol.wal."+name)
		}
		for _, tr := range transportNames {
			seen["refused over "+tr] += sum(t, tt, "otelcol.wal.refusals", attribute.String("transport", tr))
		}

		left = 0
		status := (&maintainedLog{n.recv}).Status()
		switch life.ends {
		case "killed":
			fs = n.kill()
		case "killed under load":
			s.rest(isMoody)
			var load sync.WaitGroup
			load.Go(func() { storm(n, uint64(i)+100, 20) })
			eventually(t, "load", func() bool { return n.front.admission.requests.Load() > 0 || n.recv.journal.Stats().Unflushed > 0 })
			fs = n.fs.Kill()
			load.Wait()
			n.disconnect()
			_ = n.inst.Shutdown(context.Background()) // its files are dead
		default:
			pending := sum(t, tt, "otelcol.wal.pending.items")
			quarantined := sum(t, tt, "otelcol.wal.recovery.quarantined.size")
			n.stop()
			if fs = n.fs; !life.damage && quarantined == 0 { // what was set aside may be known to be lost only then
				left = pending
			}
		}
		if life.damage {
			damageUnsettled(t, status, fs)
		}
	}
	for name, n := range seen {
		assert.NotZero(t, n, "the chaos never came to: %s", name)
	}
}

// With on_corruption: fail delivery ends at damage that a reader meets. What is
// accepted from then on is pending, and the lanes concerned are parked.
func TestF02_ConservationAtDamageThatStops(t *testing.T) {
	n := startNode(t, nodeOptions{})
	n.sink.set(errDown)
	for range 8 { // in two segments: only the newest is read when the log is opened
		require.NoError(t, n.exportAs("a", otlpwire.Logs, requestOfSize(t, 200<<10)))
	}
	n.stop()
	damageAt(t, n.fs, 300<<10, 1)

	tt := newMetrics(t)
	n = startNode(t, nodeOptions{fs: n.fs, metrics: tt})
	eventually(t, "parked", func() bool { return sum(t, tt, "otelcol.delivery.lanes.parked") == 1 })
	for range 3 {
		require.NoError(t, n.export(t.Context(), otlpwire.Traces, requestOf(t, otlpwire.Traces, 1)))
	}
	eventually(t, "another lane is parked", func() bool { return sum(t, tt, "otelcol.delivery.lanes.parked") == 2 })
	atRest(t, tt, isDown, "stopped at damage")
	f := figuresOf(t, tt)
	assert.Equal(t, figures{recovered: 8, accepted: 3, settled: 1, pending: 10}, f, "all but the frame in front of the damage")
	n.stop()
}

// atRest waits until nothing moves any more, and the law holds.
func atRest(t *testing.T, tt *componenttest.Telemetry, m mood, what string) {
	t.Helper()
	var last figures
	still := 0 // looks in a row that saw the same: the figures are read one after another
	assert.Eventually(t, func() bool {
		now := figuresOf(t, tt)
		if still++; now != last {
			last, still = now, 0
		}
		return still >= 5 && now.in() == now.out() && (m != isUp || now.pending == 0)
	}, waitFor, tick, what)
	require.Equal(t, last.in(), last.out(), "%s: items in and out: %+v", what, last)
}

// storm sends requests of every signal and of some tenants over both protocols
// from several senders at once, and returns the items acknowledged.
func storm(n *node, seed uint64, each int) int64 {
	n.t.Helper()
	var acked atomic.Int64
	var senders sync.WaitGroup
	for sender := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(sender)))
		senders.Go(func() {
			for range each {
				s, items := signals[rng.IntN(len(signals))], 1+rng.IntN(5)
				payload, json := sampleOf(n.t, s, items)
				tenant := string(rune('a' + rng.IntN(4)))
				var err error
				switch rng.IntN(4) {
				case 0:
					err = n.postAs(tenant, s, contentProtobuf, payload)
				case 1:
					err = n.postAs(tenant, s, contentJSON, json)
				case 2:
					err = n.exportAs(tenant, s, payload)
				default: // large ones fill the log
					s, items = otlpwire.Logs, 1
					err = n.exportAs(tenant, s, requestOfSize(n.t, 40<<10+rng.IntN(80<<10)))
				}
				if err == nil {
					acked.Add(int64(items))
				}
			}
		})
	}
	senders.Wait()
	return acked.Load()
}

func (n *node) exportAs(tenant string, s signal, payload []byte) error {
	return n.export(grpcmetadata.AppendToOutgoingContext(context.Background(), "x-tenant", tenant), s, payload)
}

// postAs is post for a server that may be gone.
func (n *node) postAs(tenant string, s signal, contentType string, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, n.url(paths[s]), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("X-Tenant", tenant)
	resp, err := n.client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

const segmentHead, frameHead = 64, 40 // bytes

// placesToDamage are in the payload, length, items, position, checksum and
// metadata of a frame.
var placesToDamage = []int{2 * frameHead, 4, 24, 8, 0, frameHead + 1}

// waitingLanes is how many lanes have something to deliver.
func waitingLanes(n *node) (waiting int) {
	for _, lane := range (&maintainedLog{n.recv}).Status().Lanes {
		if lane.Pending > 0 {
			waiting++
		}
	}
	return waiting
}

// damageUnsettled flips a bit in the first frame that is not settled of some
// lanes, each at another place.
func damageUnsettled(t *testing.T, status barrier.Status, fs *crashfs.FS) {
	t.Helper()
	hit := 0
	for _, lane := range status.Lanes {
		if lane.Pending == 0 || hit == len(placesToDamage) {
			continue
		}
		for _, segment := range status.Segments {
			if segment.Base <= lane.Frontier && lane.Frontier < segment.Base+barrier.Position(segment.Bytes) {
				flip(t, fs, "/wal/"+segment.Name, segmentHead+int(lane.Frontier-segment.Base)+placesToDamage[hit])
				hit++
			}
		}
	}
	require.Equal(t, len(placesToDamage), hit, "%+v", status.Lanes)
}

// mood is what a moodySink does with what it is given.
type mood int

const (
	isMoody mood = iota // anything
	isDown
	isUp
)

// moodySink is a pipeline that takes data, refuses it for now, for good or in
// part, panics, or keeps it and says later whether it is safe.
type moodySink struct {
	mu   sync.Mutex
	rng  *rand.Rand           // guarded by mu
	mood mood                 // guarded by mu
	held []func(durable bool) // guarded by mu
}

func (*moodySink) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// rest lets go of everything that is held and does one thing from now on.
func (s *moodySink) rest(m mood) {
	s.mu.Lock()
	s.mood = m
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for i, release := range held {
		release(i%2 == 0)
	}
}

func (s *moodySink) consume(ctx context.Context, partly error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rng.IntN(100)
	switch {
	case s.mood == isDown:
		return errDown
	case s.mood == isUp || n < 50:
		return nil
	case n < 70:
		return errDown
	case n < 80:
		return errPoison
	case n < 85:
		return partly
	case n < 90:
		panic("moody")
	}
	if release, ok := barrier.Retain(ctx); ok {
		s.held = append(s.held, release)
	}
	return nil
}

func (s *moodySink) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	return s.consume(ctx, consumererror.NewLogs(errDown, ld))
}

func (s *moodySink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	return s.consume(ctx, consumererror.NewTraces(errDown, td))
}

func (s *moodySink) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	return s.consume(ctx, consumererror.NewMetrics(errDown, md))
}

func (s *moodySink) ConsumeProfiles(ctx context.Context, _ pprofile.Profiles) error {
	return s.consume(ctx, errDown)
}
