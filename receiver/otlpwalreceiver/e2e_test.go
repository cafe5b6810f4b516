// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configcompression"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc/codes"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

func TestA01_EverySignalOverEveryProtocolFromStockExporters(t *testing.T) {
	n := startNode(t, nodeOptions{change: func(c *Config) {
		c.Delivery.Consumers = 1 // arrival order is promised then
		c.Delivery.Group.MaxItems = 1
	}})
	for _, compression := range []configcompression.Type{"", configcompression.TypeGzip, configcompression.TypeZstd, configcompression.TypeSnappy} {
		for _, encoding := range []otlphttpexporter.EncodingType{"", otlphttpexporter.EncodingProto, otlphttpexporter.EncodingJSON} {
			name := fmt.Sprintf("grpc %s", compression)
			if encoding != "" {
				name = fmt.Sprintf("http %s %s", encoding, compression)
			}
			t.Run(name, func(t *testing.T) {
				send := newSender(t, &n.rig, compression, encoding)
				for i := 1; i <= 3; i++ { // items tell the order
					require.NoError(t, send.logs(t.Context(), i))
					require.NoError(t, send.traces(t.Context(), i))
					require.NoError(t, send.metrics(t.Context(), i))
					require.NoError(t, send.profiles(t.Context(), i))
				}
				for _, s := range signals {
					eventually(t, signalNames[s], func() bool { return n.sink.count(s) == 1+2+3 })
					for i, got := range n.sink.take(s) {
						assert.Equal(t, string(send.wire(s, i+1)), got, "%s %d", signalNames[s], i+1)
					}
				}
			})
		}
	}
	n.stop()
	assert.Zero(t, n.recv.delivery.Stats().Signals[kindOf(otlpwire.Logs)].PendingItems)
}

// sender is a stock exporter for every signal.
type sender struct {
	t                               *testing.T
	logs, traces, metrics, profiles func(context.Context, int) error
}

func (s sender) wire(sig signal, n int) []byte { return requestOf(s.t, sig, n) }

// newSender returns stock exporters without queue and retries: gRPC for an
// empty encoding, HTTP otherwise.
func newSender(t *testing.T, r *rig, compression configcompression.Type, encoding otlphttpexporter.EncodingType) sender {
	t.Helper()
	var factory exporter.Factory
	var cfg component.Config
	if encoding == "" {
		factory = otlpexporter.NewFactory()
		c := factory.CreateDefaultConfig().(*otlpexporter.Config)
		c.ClientConfig.Endpoint = r.servers.grpcAddr.String()
		c.ClientConfig.TLS.Insecure = true
		c.ClientConfig.Compression = compression
		c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
		c.RetryConfig = configretry.BackOffConfig{}
		cfg = c
	} else {
		factory = otlphttpexporter.NewFactory()
		c := factory.CreateDefaultConfig().(*otlphttpexporter.Config)
		c.ClientConfig.Endpoint = r.url("")
		c.ClientConfig.Compression = compression
		c.Encoding = encoding
		c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
		c.RetryConfig = configretry.BackOffConfig{}
		cfg = c
	}
	set := exportertest.NewNopSettings(factory.Type())
	start := func(c component.Component, err error) {
		t.Helper()
		require.NoError(t, err)
		require.NoError(t, c.Start(t.Context(), newTestHost()))
		t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) })
	}
	logs, err := factory.CreateLogs(t.Context(), set, cfg)
	start(logs, err)
	traces, err := factory.CreateTraces(t.Context(), set, cfg)
	start(traces, err)
	metrics, err := factory.CreateMetrics(t.Context(), set, cfg)
	start(metrics, err)
	profiles, err := factory.(xexporter.Factory).CreateProfiles(t.Context(), set, cfg)
	start(profiles, err)
	return sender{
		t:        t,
		logs:     func(ctx context.Context, n int) error { return logs.ConsumeLogs(ctx, someLogs(n)) },
		traces:   func(ctx context.Context, n int) error { return traces.ConsumeTraces(ctx, someTraces(n)) },
		metrics:  func(ctx context.Context, n int) error { return metrics.ConsumeMetrics(ctx, someMetrics(n)) },
		profiles: func(ctx context.Context, n int) error { return profiles.ConsumeProfiles(ctx, someProfiles(n)) },
	}
}

// Every fdatasync and directory fsync that covers a frame is held in turn: no
// answer comes before it has returned.
func TestA02_NoAnswerBeforeTheSyncReturned(t *testing.T) {
	payload, json := sample(t, otlpwire.Logs)
	for name, send := range map[string]func(n *node) error{
		"grpc": func(n *node) error { return n.export(context.Background(), otlpwire.Logs, payload) },
		"http": func(n *node) error { return n.mustPost(contentProtobuf, payload) },
		"json": func(n *node) error { return n.mustPost(contentJSON, json) },
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			held, release := make(chan crashfs.Call, 1), make(chan struct{})
			var once sync.Once
			n.fs.SetHook(func(c crashfs.Call) {
				if c.Op == crashfs.OpDatasync && strings.HasSuffix(c.Name, ".wal") {
					once.Do(func() { held <- c; <-release })
				}
			})
			answered := make(chan error, 1)
			go func() { answered <- send(n) }()
			<-held
			n.requireUnanswered(answered)
			close(release)
			require.NoError(t, <-answered)
			n.fs.SetHook(nil)
			n.stop()
		})
	}
}

func TestA02_NoAnswerBeforeTheDirectorySyncOfARotationReturned(t *testing.T) {
	n := startNode(t, nodeOptions{})
	big := requestOfSize(t, 200<<10)
	// Fill the segment until the next frame needs a rotation.
	for range 5 {
		require.NoError(t, n.export(t.Context(), otlpwire.Logs, big))
	}
	require.Zero(t, n.recv.journal.Stats().ClosedRetained)

	held, release := make(chan crashfs.Call, 1), make(chan struct{})
	var once sync.Once
	installed := false
	n.fs.SetHook(func(c crashfs.Call) {
		switch c.Op {
		case crashfs.OpRenameNoReplace, crashfs.OpLink:
			installed = installed || strings.HasSuffix(c.NewName, ".wal")
		case crashfs.OpSyncDir:
			if installed {
				once.Do(func() { held <- c; <-release })
			}
		}
	})
	answered := make(chan error, 1)
	go func() { answered <- n.export(context.Background(), otlpwire.Logs, big) }()
	<-held
	n.requireUnanswered(answered)
	close(release)
	require.NoError(t, <-answered)
	assert.Equal(t, 1, n.recv.journal.Stats().ClosedRetained)
	n.fs.SetHook(nil)
	n.stop()
}

// requireUnanswered fails when an answer has come although requests that do
// not need the disk were answered since.
func (n *node) requireUnanswered(answered chan error) {
	n.t.Helper()
	require.NoError(n.t, n.export(context.Background(), otlpwire.Logs, nil))
	require.NoError(n.t, n.mustPost(contentProtobuf, nil))
	select {
	case err := <-answered:
		require.Fail(n.t, "answered before the sync returned", "%v", err)
	default:
	}
}

func (n *node) mustPost(contentType string, body []byte) error {
	if a := n.post(otlpwire.Logs, contentType, body); a.code != 200 {
		return fmt.Errorf("HTTP %d: %s", a.code, a.body)
	}
	return nil
}

func TestA03_KilledAfterTheAckBeforeDelivery(t *testing.T) {
	n := startNode(t, nodeOptions{})
	n.sink.set(errDown)
	want := map[signal][]string{}
	for _, s := range signals {
		for i := 1; i <= 3; i++ {
			b := requestOf(t, s, i)
			require.NoError(t, n.export(t.Context(), s, b))
			want[s] = append(want[s], string(b))
		}
	}
	eventually(t, "delivery was tried", func() bool { return n.sink.calls() > 0 })

	next := startNode(t, nodeOptions{fs: n.kill(), change: func(c *Config) { c.Delivery.Group.MaxItems = 1; c.Delivery.Consumers = 1 }})
	for _, s := range signals {
		eventually(t, signalNames[s], func() bool { return next.sink.count(s) == 6 })
		assert.Equal(t, want[s], next.sink.take(s))
	}
	assert.EqualValues(t, 4*6, next.recv.recovery.Items)
	next.stop()
}

func TestA04_GracefulStopWithTheSinkDownKeepsTheBacklog(t *testing.T) {
	for name, hang := range map[string]bool{"sink refuses": false, "sink hangs": true} {
		t.Run(name, func(t *testing.T) {
			s := newSink()
			s.set(errDown)
			if hang {
				s.hold = make(chan struct{}) // until the Consume is cancelled
			}
			n := startNode(t, nodeOptions{sink: s, change: func(c *Config) { c.Delivery.Timeout = 0 }})
			payload := requestOf(t, otlpwire.Traces, 5)
			for range 10 {
				require.NoError(t, n.export(t.Context(), otlpwire.Traces, payload))
			}
			eventually(t, "delivery was tried", func() bool { return s.calls() > 0 })
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // do not wait for the sink
			n.disconnect()
			require.NoError(t, n.inst.Shutdown(ctx))

			next := startNode(t, nodeOptions{fs: n.fs})
			eventually(t, "the backlog", func() bool { return next.sink.count(otlpwire.Traces) == 50 })
			next.stop()
		})
	}
}

func TestA07_NoPipelineForASignal(t *testing.T) {
	all := startNode(t, nodeOptions{})
	all.sink.set(errDown)
	for _, s := range signals {
		require.NoError(t, all.export(t.Context(), s, requestOf(t, s, 2)))
	}
	all.stop()

	for policy, c := range map[string]struct {
		frees bool
	}{policyKeep: {false}, policyDeadLetter: {true}, policyDrop: {true}} {
		t.Run(policy, func(t *testing.T) {
			fs := all.fs.Clone()
			n := startNode(t, nodeOptions{fs: fs, signals: []signal{otlpwire.Logs}, every: 20 * time.Millisecond, change: func(cfg *Config) {
				cfg.Delivery.OnMissingPipeline = policy
				cfg.WAL.SegmentAge = time.Second // its validation minimum
			}})
			for _, s := range signals {
				payload := requestOf(t, s, 1)
				err := n.export(t.Context(), s, payload)
				a := n.post(s, contentProtobuf, payload)
				if s == otlpwire.Logs {
					assert.NoError(t, err)
					assert.Equal(t, 200, a.code)
					continue
				}
				assert.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
				assert.Equal(t, 404, a.code)
				assert.Equal(t, codes.NotFound, codes.Code(a.status(t).GetCode()))
			}
			eventually(t, "logs", func() bool { return n.sink.count(otlpwire.Logs) == 4 })
			assert.Zero(t, n.sink.count(otlpwire.Traces))

			pending := func() (items uint64) {
				for _, s := range n.recv.delivery.Stats().Signals {
					items += s.PendingItems
				}
				return items
			}
			if c.frees {
				eventually(t, "nothing is left", func() bool { return pending() == 0 })
				eventually(t, "the log is empty", func() bool { return n.unreclaimed() == 0 })
			} else {
				eventually(t, "logs are settled", func() bool { return pending() == 6 })
				lanes := (&maintainedLog{n.recv}).Status().Lanes
				missing := map[string]uint64{}
				for _, l := range lanes {
					if l.State == "no_pipeline" {
						missing[l.Signal] = l.Pending
					}
				}
				assert.Equal(t, map[string]uint64{"traces": 2, "metrics": 2, "profiles": 2}, missing)
			}
			n.stop()
		})
	}
}

func TestA08_EmptyRequests(t *testing.T) {
	n := startNode(t, nodeOptions{})
	empties := map[string][]byte{"nothing": nil}
	empties["a resource without records"], _ = plogotlp.NewExportRequestFromLogs(someLogs(0)).MarshalProto()
	for name, payload := range empties {
		for _, s := range signals {
			if s != otlpwire.Logs && payload != nil {
				continue
			}
			assert.NoError(t, n.export(t.Context(), s, payload), name)
			assert.Equal(t, 200, n.post(s, contentProtobuf, payload).code, name)
		}
	}
	assert.Equal(t, 200, n.post(otlpwire.Logs, contentJSON, []byte("{}")).code)
	assert.Equal(t, 200, n.post(otlpwire.Logs, contentJSON, []byte(`{"resourceLogs":[{"scopeLogs":[]}]}`)).code)
	assert.Zero(t, n.unreclaimed())
	assert.Zero(t, n.recv.journal.Durable())
	n.stop()
}

// fill sends frames until the log refuses one, and returns how many were
// acknowledged.
func (n *node) fill(payload []byte) (acked int, refused error) {
	n.t.Helper()
	for {
		if err := n.export(context.Background(), otlpwire.Logs, payload); err != nil {
			return acked, err
		}
		acked++
		require.Less(n.t, acked, 1000, "the log is never full")
	}
}

func TestB01_FullLogRefusesOnBothTransports(t *testing.T) {
	n := startNode(t, nodeOptions{every: time.Hour})
	n.sink.set(errDown)
	payload := requestOfSize(t, 200<<10)
	framed := uint64(len(payload)) + 40 + uint64(len(n.front.identity.anonymous))
	limit := uint64(n.cfg.WAL.limit())

	acked, err := n.fill(payload)
	pre := uint64(acked) * framed
	require.Equal(t, pre, n.unreclaimed())
	require.Greater(t, pre+framed, limit, "refused only when it would cross the limit")

	want := fmt.Sprintf("wal backpressure: bytes: unreclaimed %d + frame %d = %d exceeds limit %d (unreclaimed_bytes_limit); retry in ", pre, framed, pre+framed, limit)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorContains(t, err, want)
	info, delay := details(t, status.Convert(err).Proto())
	assert.Equal(t, "wal_backpressure_bytes", info.GetReason())
	assert.Positive(t, delay.GetRetryDelay().AsDuration())

	a := n.post(otlpwire.Logs, contentProtobuf, payload)
	assert.Equal(t, 503, a.code)
	assert.NotEmpty(t, a.header.Get("Retry-After"))
	assert.Contains(t, a.status(t).GetMessage(), want)

	// A smaller batch may pass while the larger one is refused.
	require.NoError(t, n.export(t.Context(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 1)))
	assert.EqualValues(t, 1, n.front.refusals.counts[refusal.BackpressureBytes][otlpwire.Logs][transportGRPC].Load())
	assert.EqualValues(t, 1, n.front.refusals.counts[refusal.BackpressureBytes][otlpwire.Logs][transportHTTP].Load())
	n.stop()
}

func TestB04_RefusedBatchIsAbsentAfterRestartAndReplay(t *testing.T) {
	n := startNode(t, nodeOptions{})
	n.sink.set(errDown)
	payload := requestOfSize(t, 200<<10)
	acked, err := n.fill(payload)
	require.Error(t, err)
	refused := requestOfSize(t, 201<<10)
	require.Error(t, n.export(t.Context(), otlpwire.Logs, refused))
	require.NotEqual(t, 200, n.post(otlpwire.Logs, contentProtobuf, refused).code)

	next := startNode(t, nodeOptions{fs: n.kill(), change: func(c *Config) { c.Delivery.Group.MaxItems = 1 }})
	eventually(t, "the replay", func() bool { return next.sink.count(otlpwire.Logs) == acked })
	for _, got := range next.sink.take(otlpwire.Logs) {
		assert.Len(t, got, len(payload))
	}
	assert.EqualValues(t, acked, next.recv.recovery.Frames)
	next.stop()
}

// Refusing needs nothing but the ledger: no barrier was ever made here, and
// none can be.
func TestB05_FiresWithEveryHorizonFrozen(t *testing.T) {
	n := startNode(t, nodeOptions{every: 10 * time.Millisecond})
	n.sink.set(errDown)
	n.fs.Inject(crashfs.Fault{Op: crashfs.OpWrite | crashfs.OpDatasync, Match: "STATE", Err: syscall.EIO})
	payload := requestOfSize(t, 200<<10)
	_, err := n.fill(payload)
	info, _ := details(t, status.Convert(err).Proto())
	assert.Equal(t, "wal_backpressure_bytes", info.GetReason(), "%v", err)
	n.fs.ClearFaults()
	n.stop()
}

func TestB07_ResumesByTimersAloneWhenTheSinkReturns(t *testing.T) {
	n := startNode(t, nodeOptions{every: 20 * time.Millisecond})
	n.sink.set(errDown)
	payload := requestOfSize(t, 200<<10)
	acked, err := n.fill(payload)
	require.Error(t, err)
	eventually(t, "the component says so", func() bool { return n.recv.coordinator.Latch().Refusing })

	n.sink.set(nil)
	// No append, no restart: the log empties by itself and leaves the latch.
	eventually(t, "delivered", func() bool { return n.sink.count(otlpwire.Logs) >= acked })
	eventually(t, "reclaimed", func() bool { return n.unreclaimed() < uint64(n.cfg.WAL.SegmentSize)+uint64(len(payload)) })
	eventually(t, "accepts again", func() bool { return !n.recv.coordinator.Latch().Refusing })
	require.NoError(t, n.export(t.Context(), otlpwire.Logs, payload))
	n.stop()
}

func TestB17_RestartInTheRefusingState(t *testing.T) {
	for name, restart := range map[string]func(n *node) *crashfs.FS{
		"killed":  (*node).kill,
		"stopped": func(n *node) *crashfs.FS { n.stop(); return n.fs },
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			n.sink.set(errDown)
			payload := requestOfSize(t, 200<<10)
			acked, err := n.fill(payload)
			require.Error(t, err)
			figure := n.unreclaimed()

			s := newSink()
			s.set(errDown)
			next := startNode(t, nodeOptions{fs: restart(n), sink: s})
			assert.Equal(t, figure, next.unreclaimed())
			err = next.export(t.Context(), otlpwire.Logs, payload)
			assert.ErrorContains(t, err, fmt.Sprintf("wal backpressure: bytes: unreclaimed %d ", figure))
			s.set(nil)
			eventually(t, "drains", func() bool { return s.count(otlpwire.Logs) == acked })
			next.stop()
		})
	}
}

func TestC19_RecoveryErrorFailsStart(t *testing.T) {
	n := startNode(t, nodeOptions{})
	n.sink.set(errDown)
	for range 8 { // into the second segment
		require.NoError(t, n.export(t.Context(), otlpwire.Logs, requestOfSize(t, 200<<10)))
	}
	n.stop()
	require.NotZero(t, n.recv.journal.Stats().ClosedRetained)

	for name, damage := range map[string]func(t *testing.T, fs *crashfs.FS){
		"the first segment is gone": func(t *testing.T, fs *crashfs.FS) {
			require.NoError(t, fs.Unlink("/wal/0000000000000000-00000000.wal"))
		},
		"a segment's header is damaged": func(t *testing.T, fs *crashfs.FS) { flip(t, fs, "/wal/0000000000000000-00000000.wal", 5) },
		"STATE is gone":                 func(t *testing.T, fs *crashfs.FS) { require.NoError(t, fs.Unlink("/wal/STATE")) },
		"STATE is damaged":              func(t *testing.T, fs *crashfs.FS) { flip(t, fs, "/wal/STATE", 20) },
	} {
		t.Run(name, func(t *testing.T) {
			fs := n.fs.Clone()
			damage(t, fs)
			next := newNode(t, nodeOptions{fs: fs})
			err := next.inst.Start(t.Context(), next.host)
			require.ErrorContains(t, err, "wal.directory: open the log in /wal: ")
			assert.Nil(t, next.recv.servers.grpcAddr)
			assert.Nil(t, next.recv.servers.httpAddr)
			assert.Equal(t, err, next.inst.Start(t.Context(), next.host), "every signal is told the same")
			require.NoError(t, next.inst.Shutdown(t.Context()))

			lock, err := fs.Lock("/wal/LOCK")
			require.NoError(t, err, "the lock was released")
			require.NoError(t, lock.Unlock())
		})
	}
}

// flip flips a bit of the byte at off.
func flip(t *testing.T, fs *crashfs.FS, name string, off int) {
	t.Helper()
	b, err := fs.ReadFile(name)
	require.NoError(t, err)
	b[off] ^= 1
	require.NoError(t, fs.WriteFile(name, b))
}

func TestStartErrorsNameTheKey(t *testing.T) {
	taken := startNode(t, nodeOptions{})
	for name, c := range map[string]struct {
		change func(*Config)
		host   *testHost
		fs     *crashfs.FS
		want   []string
	}{
		"no such extension": {
			change: func(c *Config) { c.Maintenance = maintenanceExtension },
			want:   []string{`storage: there is no extension "wal_storage"`, "service::extensions"},
		},
		"extension of another kind": {
			change: func(c *Config) { c.Maintenance = maintenanceExtension; c.Storage = doorkeeperID },
			want:   []string{`storage: extension "doorkeeper" cannot maintain a log`},
		},
		"directory in use": {
			fs:   taken.fs,
			want: []string{"wal.directory: open the log in /wal"},
		},
		"endpoint in use, gRPC": {
			change: func(c *Config) { c.Protocols.GRPC.Get().NetAddr.Endpoint = taken.servers.grpcAddr.String() },
			want:   []string{"protocols.grpc.endpoint", "address already in use"},
		},
		"endpoint in use, HTTP": {
			change: func(c *Config) {
				c.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = taken.servers.httpAddr.String()
			},
			want: []string{"protocols.http.endpoint", "address already in use"},
		},
		"unknown authenticator": {
			change: func(c *Config) {
				auth := requireAuth()
				auth.Get().AuthenticatorID = component.MustNewID("nobody")
				c.Protocols.GRPC.Get().Auth = auth
			},
			want: []string{"protocols.grpc", "nobody"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nodeOptions{fs: c.fs, change: c.change})
			err := n.inst.Start(t.Context(), n.host)
			require.Error(t, err)
			for _, w := range c.want {
				assert.ErrorContains(t, err, w)
			}
			require.NoError(t, n.inst.Shutdown(t.Context()))
			if c.fs == nil {
				lock, err := n.fs.Lock("/wal/LOCK")
				require.NoError(t, err, "the lock was released")
				require.NoError(t, lock.Unlock())
			}
		})
	}
	taken.stop()
}

func TestUndecidedWritesOnTheWire(t *testing.T) {
	payload := requestOf(t, otlpwire.Logs, 3)
	for reason, fault := range map[string]crashfs.Fault{
		"wal_append_io": {Op: crashfs.OpWrite, Match: "*.wal", Times: 1, Err: syscall.EIO},
		"wal_sync_io":   {Op: crashfs.OpDatasync, Match: "*.wal", Times: 1, Err: syscall.EIO},
	} {
		t.Run(reason, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			n.fs.Inject(fault)
			err := n.export(t.Context(), otlpwire.Logs, payload)
			assert.Equal(t, codes.Unavailable, status.Code(err))
			info, delay := details(t, status.Convert(err).Proto())
			assert.Equal(t, reason, info.GetReason(), "%v", err)
			assert.Nil(t, delay)
			n.fs.ClearFaults()
			require.NoError(t, n.export(t.Context(), otlpwire.Logs, payload), "the log goes on")
			eventually(t, "delivered", func() bool { return n.sink.count(otlpwire.Logs) >= 3 })
			n.atRest()
			n.stop()
		})
	}
}

func TestOversizeOnBothTransports(t *testing.T) {
	n := startNode(t, nodeOptions{})
	payload := requestOfSize(t, 256<<10) // one header too much
	err := n.export(t.Context(), otlpwire.Logs, payload)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, err, "exceeds limit 262144 (wal.max_frame_size)")
	a := n.post(otlpwire.Logs, contentProtobuf, payload)
	assert.Equal(t, 413, a.code)
	assert.Equal(t, status.Convert(err).Message(), a.status(t).GetMessage())
	assert.Zero(t, n.unreclaimed())
	n.stop()
}

// What a client sent as metadata is there again when its data is delivered,
// also after a crash.
func TestD15_KeptMetadataReachesThePipelineAfterReplay(t *testing.T) {
	keep := func(c *Config) {
		c.Tenant.MetadataKey = "x-scope-orgid"
		c.MetadataKeys = []string{"x-region"}
	}
	n := startNode(t, nodeOptions{change: keep})
	n.sink.set(errDown)
	payload := requestOf(t, otlpwire.Logs, 1)
	require.NoError(t, n.export(grpcmetadata.AppendToOutgoingContext(t.Context(), "x-scope-orgid", "acme", "x-region", "eu", "x-region", "us", "x-other", "no"), otlpwire.Logs, payload))
	require.Equal(t, 200, n.post(otlpwire.Logs, contentProtobuf, payload, "X-Scope-OrgID", "initech").code)

	next := startNode(t, nodeOptions{fs: n.kill(), change: keep})
	eventually(t, "delivered", func() bool { return next.sink.count(otlpwire.Logs) == 2 })
	next.sink.mu.Lock()
	defer next.sink.mu.Unlock()
	got := map[string][]string{}
	for _, info := range next.sink.clients {
		tenant := info.Metadata.Get("x-scope-orgid")
		require.Len(t, tenant, 1)
		got[tenant[0]] = info.Metadata.Get("X-Region")
		assert.Empty(t, info.Metadata.Get("x-other"))
		assert.Nil(t, info.Addr)
		assert.Nil(t, info.Auth)
	}
	assert.Equal(t, map[string][]string{"acme": {"eu", "us"}, "initech": nil}, got)
}

// Many senders at once, over both protocols: what was acknowledged is
// delivered, once when nothing fails.
func TestManySendersAtOnce(t *testing.T) {
	const senders, each = 32, 20
	n := startNode(t, nodeOptions{change: func(c *Config) { c.WAL.UnreclaimedBytesLimit = 64 * MiB }})
	payload, json := sampleOf(t, otlpwire.Logs, 2)
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for range each {
				switch i % 3 {
				case 0:
					assert.NoError(t, n.export(context.Background(), otlpwire.Logs, payload))
				case 1:
					assert.NoError(t, n.mustPost(contentProtobuf, payload))
				default:
					assert.NoError(t, n.mustPost(contentJSON, json))
				}
			}
		})
	}
	all.Wait()
	eventually(t, "delivered", func() bool { return n.sink.count(otlpwire.Logs) >= senders*each*2 })
	n.atRest()
	n.stop()
	assert.Equal(t, senders*each*2, n.sink.count(otlpwire.Logs))
}

// requestOf is a request with n items.
func requestOf(t testing.TB, s signal, n int) []byte {
	t.Helper()
	b, _ := sampleOf(t, s, n)
	return b
}

// requestOfSize is a request of one log record of size bytes in all.
func requestOfSize(t testing.TB, size int) []byte {
	t.Helper()
	for body := size; ; body-- {
		ld := someLogs(1)
		ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().SetStr(strings.Repeat("x", body))
		b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
		require.NoError(t, err)
		if len(b) <= size {
			return b
		}
		body -= max(len(b)-size-8, 0)
	}
}
