// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

func TestOneInstanceForAllSignals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	cfg := testConfig(func(c *Config) { c.Maintenance, c.WAL.Directory = maintenanceInternal, dir })
	f, set, next := NewFactory(), receivertest.NewNopSettings(metadata.Type), consumertest.NewNop()
	ctx := t.Context()
	var all []component.Component
	for _, build := range []func() (component.Component, error){
		func() (component.Component, error) { return f.CreateLogs(ctx, set, cfg, next) },
		func() (component.Component, error) { return f.CreateTraces(ctx, set, cfg, next) },
		func() (component.Component, error) { return f.CreateMetrics(ctx, set, cfg, next) },
		func() (component.Component, error) { return f.(xreceiver.Factory).CreateProfiles(ctx, set, cfg, next) },
	} {
		c, err := build()
		require.NoError(t, err)
		all = append(all, c)
	}
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "creating touches no file")

	hosts := make([]*statusHost, len(all))
	for i, c := range all {
		assert.Same(t, all[0], c)
		hosts[i] = &statusHost{testHost: newTestHost()}
		require.NoError(t, c.Start(ctx, hosts[i]))
	}
	_, err = os.Stat(filepath.Join(dir, "STATE"))
	require.NoError(t, err)

	// Another configuration is another receiver.
	other, err := f.CreateLogs(ctx, set, testConfig(nil), next)
	require.NoError(t, err)
	assert.NotSame(t, all[0], other)
	require.NoError(t, other.Shutdown(ctx))

	i := all[0].(*instance)
	i.hosts.Report(componentstatus.NewRecoverableErrorEvent(errDown))
	for _, h := range hosts {
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, h.statuses())
	}
	late := &statusHost{testHost: newTestHost()}
	require.NoError(t, i.Start(ctx, late))
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError}, late.statuses(), "who comes late is told")

	for _, c := range all {
		require.NoError(t, c.Shutdown(ctx))
	}
	again, err := f.CreateLogs(ctx, set, cfg, next)
	require.NoError(t, err)
	assert.NotSame(t, all[0], again, "a reload makes a new one")
	require.NoError(t, again.Start(ctx, componenttest.NewNopHost()), "in the same directory, in the same process")
	require.NoError(t, again.Shutdown(ctx))
}

func TestShutdownOfEveryHalf(t *testing.T) {
	t.Run("never started", func(t *testing.T) {
		n := newNode(t, nodeOptions{})
		require.NoError(t, n.inst.Shutdown(t.Context()))
		require.NoError(t, n.inst.Shutdown(t.Context()))
	})
	t.Run("twice, at once", func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.disconnect()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.NoError(t, n.inst.Shutdown(context.Background())) })
		}
		both.Wait()
	})
	for name, op := range map[string]crashfs.Op{"no lock": crashfs.OpLock, "no directory": crashfs.OpMkdir, "no listing": crashfs.OpList, "no sync": crashfs.OpDatasync} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nodeOptions{})
			n.fs.Inject(crashfs.Fault{Op: op, Err: os.ErrPermission})
			require.ErrorContains(t, n.inst.Start(t.Context(), n.host), "wal.directory: open the log in /wal")
			require.NoError(t, n.inst.Shutdown(t.Context()))
		})
	}
}

// A disk that hangs makes shutdown fail, not hang; when it answers, the log is
// closed after all.
func TestShutdownDoesNotWaitForADiskThatHangs(t *testing.T) {
	post := func(n *node) error {
		req := newRequest(t, http.MethodPost, n.url(logsURLPath), requestOf(t, otlpwire.Logs, 1))
		req.Header.Set("Content-Type", contentProtobuf)
		resp, err := n.client.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	export := func(n *node) error {
		return n.export(context.Background(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 1))
	}
	for name, c := range map[string]struct {
		file  string // whose fdatasync hangs
		every time.Duration
		send  func(*node) error // what then leads there; nil: only shutdown does
		want  []string
	}{
		"in a gRPC request":        {file: "*.wal", send: export, want: []string{"requests are still being handled", "close the log in /wal: the disk does not answer"}},
		"in an HTTP request":       {file: "*.wal", send: post, want: []string{"requests are still being handled", "close the log in /wal: the disk does not answer"}},
		"and maintenance waits":    {file: "*.wal", send: export, every: tick, want: []string{"close the log in /wal: the disk does not answer"}},
		"in a maintenance pass":    {file: "STATE", send: export, every: tick, want: []string{"close the log in /wal: the disk does not answer"}},
		"in the very last barrier": {file: "STATE", want: []string{"close the log in /wal: the disk does not answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nodeOptions{every: c.every})
			n.recv.servers.patience = patience{drain: 50 * time.Millisecond, end: 50 * time.Millisecond}
			require.NoError(t, export(n))
			eventually(t, "delivered", func() bool { return n.sink.count(otlpwire.Logs) == 1 })
			hang, hangs := make(chan struct{}), make(chan struct{}, 1)
			n.fs.SetHook(func(call crashfs.Call) {
				if ok, _ := path.Match(c.file, path.Base(call.Name)); !ok || call.Op != crashfs.OpDatasync {
					return
				}
				select {
				case hangs <- struct{}{}:
				default:
				}
				<-hang
			})
			var client sync.WaitGroup
			if c.send != nil {
				client.Go(func() { _ = c.send(n) }) // whatever it is told
				<-hangs
			}
			unregister, unregistered := n.recv.unregister, make(chan struct{})
			n.recv.unregister = func() {
				unregister()
				close(unregistered)
			}
			done := make(chan error, 1)
			go func() { done <- n.inst.Shutdown(context.Background()) }()
			select {
			case err := <-done:
				for _, want := range c.want {
					assert.ErrorContains(t, err, want)
				}
			case <-time.After(waitFor):
				assert.Fail(t, "shutdown hangs")
			}
			if c.file == "*.wal" {
				select {
				case <-unregistered:
				default:
					assert.Fail(t, "maintenance goes on")
				}
			}
			n.fs.SetHook(nil)
			close(hang)
			client.Wait()
			n.disconnect()
			eventually(t, "the log is closed", func() bool {
				next := newNode(t, nodeOptions{fs: n.fs})
				return next.inst.Start(context.Background(), next.host) == nil && next.inst.Shutdown(context.Background()) == nil
			})
		})
	}
}

// fatalHost is a signal's host as the Collector makes it: who reports a fatal
// error waits until the Collector receives it, which it does once.
type fatalHost struct {
	*testHost
	died   chan error
	others atomic.Int64
}

func (h *fatalHost) Report(e *componentstatus.Event) {
	if e.Status() == componentstatus.StatusFatalError {
		h.died <- e.Err()
		return
	}
	h.others.Add(1)
}

// Listeners that die end the Collector, which then stops us: nothing of ours
// waits for a second report to be received.
func TestListenersThatDieEndTheCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died := make(chan error)
		logs, traces := &fatalHost{testHost: newTestHost(), died: died}, &fatalHost{testHost: newTestHost(), died: died}
		var h hosts
		h.add(logs)
		h.add(traces)
		var s servers
		for range 2 { // gRPC and HTTP
			s.serve(&h, func() error { return errDown }, http.ErrServerClosed)
		}
		s.serving.Wait() // as stop does, while the Collector has yet to receive
		synctest.Wait()
		require.ErrorIs(t, <-died, errDown)
		synctest.Wait()
		select {
		case err := <-died:
			assert.Fail(t, "a second fatal error", "%v", err)
		default:
		}
		h.Report(componentstatus.NewEvent(componentstatus.StatusOK))
		late := &fatalHost{testHost: newTestHost(), died: died}
		h.add(late)
		for _, host := range []*fatalHost{logs, traces, late} {
			assert.EqualValues(t, 1, host.others.Load())
		}
	})
}

// No client can connect while the log is locked, listed and recovered.
func TestListenersAreBoundLast(t *testing.T) {
	grpcAddress, httpAddress := freeAddress(t), freeAddress(t)
	n := newNode(t, nodeOptions{change: func(c *Config) {
		c.Protocols.GRPC.Get().NetAddr.Endpoint = grpcAddress
		c.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = httpAddress
	}})
	var looked atomic.Int64
	n.fs.SetHook(func(c crashfs.Call) {
		if c.Op&(crashfs.OpLock|crashfs.OpList) == 0 && !(c.Op == crashfs.OpDatasync && path.Base(c.Name) == "STATE") {
			return
		}
		looked.Add(1)
		for _, address := range []string{grpcAddress, httpAddress} {
			if conn, err := net.Dial("tcp", address); err == nil {
				conn.Close()
				assert.Fail(t, "bound too early", "%s during %s", address, c)
			}
		}
	})
	require.NoError(t, n.inst.Start(t.Context(), n.host))
	n.fs.SetHook(nil)
	assert.Greater(t, looked.Load(), int64(2))
	for _, address := range []string{grpcAddress, httpAddress} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		conn.Close()
	}
	require.NoError(t, n.inst.Shutdown(t.Context()))
}

func TestMaintainedByTheExtension(t *testing.T) {
	f := walstorageextension.NewFactory()
	extCfg := f.CreateDefaultConfig().(*walstorageextension.Config)
	ext, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), extCfg)
	require.NoError(t, err)
	require.NoError(t, ext.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, ext.Shutdown(context.Background())) })

	host := &statusHost{testHost: newTestHost()}
	host.extensions[component.MustNewID("wal_storage")] = ext
	o := nodeOptions{host: host, change: func(c *Config) { c.Maintenance = maintenanceExtension }}
	n := startNode(t, o)
	n.sink.set(errDown)
	payload := requestOfSize(t, 200<<10)
	_, err = n.fill(payload)
	_, delay := details(t, status.Convert(err).Proto())
	// The default schedule: 30 s to the barrier and 10 s of housekeeping.
	d := delay.GetRetryDelay().AsDuration()
	assert.Greater(t, d, 30*time.Second, "%v", err)
	assert.LessOrEqual(t, d, 40*time.Second, "%v", err)

	// The same receiver cannot be registered twice; a reload can.
	twin := newNode(t, nodeOptions{host: host, change: o.change})
	twin.recv.set.ID = n.recv.set.ID
	require.ErrorContains(t, twin.inst.Start(t.Context(), host), "storage: wal_storage: ")
	n.sink.set(nil)
	n.stop()
	o.fs = n.fs
	id := n.recv.set.ID
	n = newNode(t, o)
	n.recv.set.ID = id
	require.NoError(t, n.inst.Start(t.Context(), host))
	n.connect()
	n.stop()
}

func TestFinalBarrierSparesRedelivery(t *testing.T) {
	n := startNode(t, nodeOptions{}) // no timer will ever make a barrier
	payload := requestOf(t, otlpwire.Logs, 3)
	for range 4 {
		require.NoError(t, n.export(t.Context(), otlpwire.Logs, payload))
	}
	eventually(t, "delivered", func() bool { return n.sink.count(otlpwire.Logs) == 12 })
	n.stop()

	next := startNode(t, nodeOptions{fs: n.fs})
	lane := journal.Lane{Kind: journal.KindLogs}
	assert.Equal(t, next.recv.journal.Durable(), next.recv.recovery.Horizons[lane])
	require.NoError(t, next.export(t.Context(), otlpwire.Logs, payload))
	eventually(t, "only what is new", func() bool { return next.sink.count(otlpwire.Logs) >= 3 })
	next.stop()
	assert.Equal(t, 3, next.sink.count(otlpwire.Logs))
}

// Each cause alone: a lane that is parked, and a log that is full while its
// lane is not.
func TestF04_StatusFollowsTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		begin func(*node)
		end   func(*node)
		why   string
	}{
		"parked": {
			begin: func(n *node) {
				n.sink.set(errDown)
				require.NoError(n.t, n.export(n.t.Context(), otlpwire.Logs, requestOf(n.t, otlpwire.Logs, 1)))
			},
			end: func(n *node) { n.sink.set(nil) },
			why: "1 lanes wait for their pipeline",
		},
		"refusing": {
			begin: func(n *node) {
				n.sink.block()
				_, err := n.fill(requestOfSize(n.t, 200<<10))
				require.Error(n.t, err)
			},
			end: func(n *node) { n.sink.unblock() },
			why: "the log is full and refuses: wal backpressure",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, nodeOptions{every: 20 * time.Millisecond})
			c.begin(n)
			eventually(t, "recoverable", func() bool { return len(n.host.statuses()) == 1 })
			require.ErrorContains(t, n.host.events[0].Err(), c.why)
			c.end(n)
			eventually(t, "OK again", func() bool { return len(n.host.statuses()) == 2 })
			assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, n.host.statuses())
			n.stop()
		})
	}
}

// The log takes what a consumer refuses, and delivers it: at least once, under
// random errors of the next consumer.
func TestConsumeContract(t *testing.T) {
	for _, s := range []pipeline.Signal{pipeline.SignalLogs, pipeline.SignalTraces, pipeline.SignalMetrics} {
		t.Run(s.String(), func(t *testing.T) {
			address := freeAddress(t)
			cfg := testConfig(func(c *Config) {
				c.Maintenance = maintenanceInternal
				c.WAL.Directory = filepath.Join(t.TempDir(), "wal")
				c.WAL.SegmentSize, c.WAL.MaxFrameSize = MiB, 256*KiB
				c.Protocols.GRPC.Get().NetAddr.Endpoint = address
				c.Delivery.OnPermanentError = policyDrop
				c.Delivery.Group.MaxItems = 1 // the check takes the second attempt at a merged group for a duplicate
				c.Delivery.Retry = RetryConfig{InitialInterval: time.Millisecond, MaxInterval: 2 * time.Millisecond, Multiplier: 1}
			})
			receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
				T:             t,
				Factory:       NewFactory(),
				Signal:        s,
				Config:        cfg,
				Generator:     &generator{t: t, signal: s, address: address},
				GenerateCount: 50,
			})
		})
	}
}

type generator struct {
	t       *testing.T
	signal  pipeline.Signal
	address string
	conn    *grpc.ClientConn
	mu      sync.Mutex
	next    int
}

func (g *generator) Start() {
	conn, err := grpc.NewClient("passthrough:///"+g.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(g.t, err)
	g.conn = conn
}

func (g *generator) Stop() { require.NoError(g.t, g.conn.Close()) }

func (g *generator) Generate() []receivertest.UniqueIDAttrVal {
	g.mu.Lock()
	g.next++
	id := receivertest.UniqueIDAttrVal(g.signal.String() + "-" + time.Duration(g.next).String())
	g.mu.Unlock()
	r := &rig{t: g.t, conn: g.conn}
	s, payload := g.one(id)
	require.NoError(g.t, r.export(context.Background(), s, payload))
	return []receivertest.UniqueIDAttrVal{id}
}

func (g *generator) one(id receivertest.UniqueIDAttrVal) (signal, []byte) {
	switch g.signal {
	case pipeline.SignalLogs:
		b, err := (&plog.ProtoMarshaler{}).MarshalLogs(receivertest.CreateOneLogWithID(id))
		require.NoError(g.t, err)
		return otlpwire.Logs, b
	case pipeline.SignalTraces:
		b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(receivertest.CreateOneSpanWithID(id))
		require.NoError(g.t, err)
		return otlpwire.Traces, b
	default:
		b, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(receivertest.CreateGaugeMetricWithID(id))
		require.NoError(g.t, err)
		return otlpwire.Metrics, b
	}
}

// freeAddress is an address nobody listens on. Its port is below the range that
// outgoing connections use, so that none takes it until the test does.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("localhost", strconv.Itoa(20000+rand.IntN(12000)))
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
	t.Fatal("no free port on the loopback interface")
	return ""
}

// Maintenance may begin while the log is still being registered: its passes
// wait for what they need.
func TestPassesWaitUntilTheLogIsBound(t *testing.T) {
	n := newNode(t, nodeOptions{})
	log := &maintainedLog{n.recv}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, log.Barrier(ctx, barrier.Regular), context.Canceled)
	_, err := log.Housekeep(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)

	passes := make(chan error, 2)
	go func() {
		passes <- log.Barrier(t.Context(), barrier.Regular)
		_, err := log.Housekeep(t.Context(), 1)
		passes <- err
	}()
	require.NoError(t, n.inst.Start(t.Context(), n.host))
	require.NoError(t, <-passes)
	require.NoError(t, <-passes)
	require.NoError(t, n.inst.Shutdown(t.Context()))
}
