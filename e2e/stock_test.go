// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// route is one stock exporter in a stock Collector, with an otlp receiver of
// its own in front of it, so that a sender's answer is that exporter's.
type route struct {
	name     string
	exporter string // YAML lines of its own, indented by four
	defaults bool   // queue and retry as they come, instead of no queue and no end
}

// stock runs a Collector of stock components only: for every route an otlp
// receiver and an exporter. It returns a sender's address per route.
func stock(t *testing.T, n *node, profiles bool, routes []route) map[string]string {
	t.Helper()
	ports, err := FreePorts(len(routes))
	require.NoError(t, err)
	addrs := map[string]string{}
	var receivers, exporters, pipelines strings.Builder
	for i, r := range routes {
		settings := "sending_queue: { enabled: false }\n" +
			"    retry_on_failure: { initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0 }\n" +
			"    " + r.exporter
		if r.defaults {
			settings = r.exporter
		}
		addrs[r.name] = Loopback(ports[i])
		fmt.Fprintf(&receivers, "  otlp/%s: { protocols: { grpc: { endpoint: %q } } }\n", r.name, addrs[r.name])
		kind, endpoint := "otlp_grpc", n.grpc
		if strings.HasPrefix(r.name, "http") {
			kind, endpoint = "otlp_http", "http://"+n.http
		}
		fmt.Fprintf(&exporters, `  %s/%s:
    endpoint: %q
    tls: { insecure: true }
    %s
`, kind, r.name, endpoint, settings)
		for _, s := range []Signal{Logs, Traces, Metrics, Profiles} {
			if s == Profiles && !profiles {
				continue
			}
			fmt.Fprintf(&pipelines, "    %s/%s: { receivers: [otlp/%s], exporters: [%s/%s] }\n", s, r.name, r.name, kind, r.name)
		}
	}
	config := filepath.Join(t.TempDir(), "stock.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"receivers:\n%sexporters:\n%sservice:\n  telemetry: { metrics: { level: none } }\n  pipelines:\n%s",
		receivers.String(), exporters.String(), pipelines.String()), 0o600))
	args := []string{"--config", config}
	if profiles {
		args = append(args, "--feature-gates=service.profilesSupport")
	}
	c, err := Start(logFile(t, "stock"), nil, binary(t), args...)
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	require.NoError(t, c.WaitReady(within(t)))
	return addrs
}

// TestStockSendersAtDefaults: exporters with the queue and retry that they come
// with, sending into a full log, lose nothing, as long as the refusals end
// within their retry budget of five minutes.
func TestStockSendersAtDefaults(t *testing.T) {
	sink := newSink(t)
	sink.SetDown(true)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Wal: `
      segment_size: 1MiB
      max_frame_size: 512KiB
      unreclaimed_bytes_limit: 1MiB`})
	n.start()
	routes := []route{
		{name: "grpc", exporter: "compression: gzip", defaults: true},
		{name: "http", exporter: "compression: gzip", defaults: true},
	}
	addrs := stock(t, n, false, routes)
	ledger := NewLedger()
	for _, r := range routes {
		sender := newGRPC(t, addrs[r.name])
		for refused := 0.0; refused == 0; {
			for i := range 9 {
				mustAck(t, ledger, sender, ledger.Batch(Signal(i%3), 100))
			}
			// However slow the disk is, no more piles up in the exporter's queue.
			require.Eventually(t, func() bool {
				m, err := Scrape(within(t), n.metrics)
				require.NoError(t, err)
				refused = m.Sum("otelcol_wal_refusals", `error_type="wal_backpressure_bytes"`, `transport="`+r.name+`"`)
				return refused > 0 || m.Sum("otelcol_wal_accepted_items") >= float64(ledger.Acked())
			}, patience, 20*time.Millisecond, "a round of %s is taken or refused", r.name)
		}
	}
	sink.SetDown(false)
	allArrive(t, ledger, sink)
	require.NoError(t, n.current.Stop(patience))
}
