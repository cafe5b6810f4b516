// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for something that normally takes well under a
// second. It is only ever spent by a failure.
const patience = 90 * time.Second

// binary is the distribution that make build left.
func binary(t *testing.T) string {
	t.Helper()
	return tool(t, "WEIR_BIN", "../bin/otelcol-weir", "make build")
}

func tool(t *testing.T, variable, path, remedy string) string {
	t.Helper()
	if p := os.Getenv(variable); p != "" {
		path = p
	}
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	_, err = os.Stat(abs)
	require.NoError(t, err, "%s is missing: %s", path, remedy)
	return abs
}

// node is a Collector with the log, over all its lives: directory and ports
// stay.
type node struct {
	t               *testing.T
	config          string
	grpc, http      string
	status, metrics string
	directory       string
	current         *Collector
	log             *os.File
	args            []string
	lives           int
}

// nodeSettings are the settings that differ between tests.
type nodeSettings struct {
	Sink     string // address
	Traces   string // address of a sink of their own for traces; "" = Sink
	Wal      string // YAML lines below wal:
	Delivery string // YAML lines below delivery:
	Extra    string // YAML lines below otlp_wal:
	Pprof    string // address of the pprof extension; "" = without
	Profiles bool
	// DefaultTimers leaves the maintenance intervals at 30 s and 10 s instead
	// of 1 s each.
	DefaultTimers bool
}

var nodeTemplate = template.Must(template.New("node").Parse(`
extensions:
{{with .Pprof}}  pprof: { endpoint: "{{.}}" }{{end}}
  wal_storage:
{{if not .DefaultTimers}}    barrier_interval: 1s
    housekeeping_interval: 1s
{{end}}    status: { endpoint: "{{.Status}}" }
receivers:
  otlp_wal:
    protocols:
      grpc: { endpoint: "{{.GRPC}}" }
      http: { endpoint: "{{.HTTP}}" }
    storage: wal_storage
    wal:
      directory: "{{.Directory}}"
{{.Wal}}
    delivery:
      retry: { initial_interval: 100ms, max_interval: 500ms }
{{.Delivery}}
{{.Extra}}
exporters:
  otlp_grpc:
    endpoint: "{{.Sink}}"
    tls: { insecure: true }
    sending_queue: { enabled: false }
    retry_on_failure: { enabled: false }
{{with .Traces}}
  otlp_grpc/traces:
    endpoint: "{{.}}"
    tls: { insecure: true }
    timeout: 1h
    sending_queue: { enabled: false }
    retry_on_failure: { enabled: false }
{{end}}
service:
  extensions: [wal_storage{{if .Pprof}}, pprof{{end}}]
  telemetry:
    metrics:
      readers:
        - pull: { exporter: { prometheus: { host: 127.0.0.1, port: {{.MetricsPort}} } } }
  pipelines:
    logs: { receivers: [otlp_wal], exporters: [otlp_grpc] }
    traces: { receivers: [otlp_wal], exporters: [otlp_grpc{{if .Traces}}/traces{{end}}] }
    metrics: { receivers: [otlp_wal], exporters: [otlp_grpc] }
{{if .Profiles}}
    profiles: { receivers: [otlp_wal], exporters: [otlp_grpc] }
{{end}}
`))

// newNode prepares a node; start gives it a life.
func newNode(t *testing.T, s nodeSettings) *node {
	t.Helper()
	ports, err := FreePorts(4)
	require.NoError(t, err)
	dir := t.TempDir()
	n := &node{
		t: t, directory: filepath.Join(dir, "wal"), config: filepath.Join(dir, "config.yaml"),
		grpc: Loopback(ports[0]), http: Loopback(ports[1]), status: Loopback(ports[2]), metrics: Loopback(ports[3]),
		log: logFile(t, "node"),
	}
	var b bytes.Buffer
	require.NoError(t, nodeTemplate.Execute(&b, struct {
		nodeSettings
		GRPC, HTTP, Status, Directory string
		MetricsPort                   int
	}{s, n.grpc, n.http, n.status, n.directory, ports[3]}))
	require.NoError(t, os.WriteFile(n.config, b.Bytes(), 0o600))
	n.args = []string{"--config", n.config}
	if s.Profiles {
		n.args = append(n.args, "--feature-gates=service.profilesSupport")
	}
	t.Cleanup(func() {
		if n.current != nil {
			n.current.Kill()
		}
	})
	return n
}

// start begins the node's next life and returns when it serves.
func (n *node) start() {
	n.t.Helper()
	n.lives++
	fmt.Fprintf(n.log, "--- life %d\n", n.lives)
	c, err := Start(n.log, nil, binary(n.t), n.args...)
	require.NoError(n.t, err)
	n.current = c
	require.NoError(n.t, c.WaitReady(within(n.t)))
}

// within is a context that ends when the test's patience does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// logFile keeps a child's log; it survives a failed test, and the test says
// where it is.
func logFile(t *testing.T, name string) *os.File {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-e2e-") //nolint:usetesting // the log survives a failed test
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, name+".log"))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = f.Close()
		if t.Failed() {
			t.Logf("log of %s: %s", name, f.Name())
			return
		}
		_ = os.RemoveAll(dir)
	})
	return f
}

func newSink(t *testing.T) *Sink {
	t.Helper()
	s, err := NewSink()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func newGRPC(t *testing.T, addr string) Sender {
	t.Helper()
	s, err := NewGRPC(addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newHTTP(t *testing.T, addr string, json, gzip bool) Sender {
	t.Helper()
	s := NewHTTP(addr, json, gzip)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// mustAck sends a batch that has to be acknowledged at once.
func mustAck(t *testing.T, l *Ledger, s Sender, b Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := s.Send(ctx, b)
	l.Record(b, a)
	require.NoError(t, a.Err)
}

// allArrive waits until the sink has everything that was acknowledged, then
// checks every promise.
func allArrive(t *testing.T, l *Ledger, s *Sink) Report {
	t.Helper()
	err := s.Wait(within(t), l.AllAcked)
	r := l.Compare(s)
	require.NoError(t, r.Err())
	require.NoError(t, err)
	return r
}
