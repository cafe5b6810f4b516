// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browsertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// collector is the built collector as a child process, with a log that fills
// because its destination does not answer.
type collector struct {
	status, otlp, metrics string // host:port
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	binary := os.Getenv("WEIR_COLLECTOR")
	if binary == "" {
		binary = filepath.Join("..", "..", "..", "..", "bin", "otelcol-weir")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("the built collector is needed (make build): %v", err)
	}
	dir := t.TempDir()
	c := &collector{status: freeAddress(t), otlp: freeAddress(t), metrics: freeAddress(t)}
	_, metricsPort, _ := net.SplitHostPort(c.metrics)
	config := fmt.Sprintf(`
extensions:
  wal_storage: { housekeeping_interval: 1s, status: { endpoint: %q } }
receivers:
  otlp_wal:
    protocols: { http: { endpoint: %q } }
    wal: { directory: %q, segment_size: 1MiB, max_frame_size: 256KiB, unreclaimed_bytes_limit: 2MiB, preallocate: false }
exporters:
  otlp_http: { endpoint: %q, sending_queue: { enabled: false }, retry_on_failure: { enabled: false } }
service:
  extensions: [wal_storage]
  telemetry: { metrics: { readers: [{ pull: { exporter: { prometheus: { host: "127.0.0.1", port: %s } } } }] } }
  pipelines: { logs: { receivers: [otlp_wal], exporters: [otlp_http] } }
`, c.status, c.otlp, filepath.Join(dir, "wal"), "http://"+freeAddress(t), metricsPort)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(binary, "--config", file)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", c.otlp); err == nil {
			_ = conn.Close()
			return c
		}
		if time.Now().After(deadline) {
			t.Fatal("the collector does not listen within 30 s")
		}
	}
}

// freeAddress is an address nobody listens on. Its port is below the range that
// outgoing connections use, so that none takes it until the collector does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(12000)))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port on the loopback interface")
	return ""
}

// send fills the log until it refuses.
func (c *collector) send(t *testing.T) (accepted int) {
	t.Helper()
	payload := fmt.Sprintf(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":%q}}]}]}]}`, strings.Repeat("x", 100_000))
	for range 100 {
		r, err := http.Post("http://"+c.otlp+"/v1/logs", "application/json", strings.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		switch r.StatusCode {
		case http.StatusOK:
			accepted++
		case http.StatusServiceUnavailable:
			return accepted
		default:
			t.Fatalf("unexpected answer %s", r.Status)
		}
	}
	t.Fatal("the log does not refuse")
	return 0
}

// scrape reads the log's metrics, by name and the labels besides the receiver's
// name, which all of them must have.
func (c *collector) scrape(t *testing.T) map[string]uint64 {
	t.Helper()
	r, err := http.Get("http://" + c.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	receiver := strings.NewReplacer(`,receiver="otlp_wal"`, "", `{receiver="otlp_wal"}`, "", `{receiver="otlp_wal",`, "{")
	values := map[string]uint64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			values[receiver.Replace(name)] = uint64(v)
		}
	}
	return values
}

// The page's exact figures (its titles) are the metrics' values.
func TestF03_NumbersEqualTheMetrics(t *testing.T) {
	c := startCollector(t)
	accepted := c.send(t)
	if accepted == 0 {
		t.Fatal("nothing was accepted")
	}
	b := open(t)
	b.run(t, chromedp.Navigate("http://"+c.status+"/"))
	b.until(t, `document.body.innerText.includes("Refusing: byte limit reached")`)

	// Nothing is accepted and nothing settles, so both stand still.
	metrics := c.scrape(t)
	exact := func(name string) (n uint64) {
		t.Helper()
		title := eval[string](t, b, fmt.Sprintf(`[...document.querySelectorAll("dl div")].find((d) => d.querySelector("dt").textContent === %q).querySelector("dd").title`, name))
		n, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSuffix(title, " bytes"), ",", ""), 10, 64)
		if err != nil {
			t.Fatalf("%s has the title %q: %v", name, title, err)
		}
		return n
	}
	limit := metrics["otelcol_wal_backpressure_limit"]
	for name, want := range map[string]uint64{
		"Unreclaimed": metrics["otelcol_wal_unreclaimed_size"],
		"Room left":   metrics["otelcol_wal_capacity_remaining"],
		"On disk":     metrics["otelcol_wal_disk_size"],
	} {
		if got := exact(name); got != want || want == 0 {
			t.Errorf("%s: the page says %d, the metric %d", name, got, want)
		}
	}
	if limit != 2<<20 || metrics[`otelcol_wal_backpressure_refusing{cause="bytes"}`] != 1 {
		t.Errorf("limit %d, refusing %d", limit, metrics[`otelcol_wal_backpressure_refusing{cause="bytes"}`])
	}
	pending := eval[string](t, b, `document.querySelector(".lanes td[data-label=Items]").textContent`)
	if want := metrics[`otelcol_wal_pending_items{otelcol_signal="logs"}`]; pending != strconv.FormatUint(want, 10) || int(want) != accepted {
		t.Errorf("pending: the page says %s, the metric %d, accepted were %d", pending, want, accepted)
	}
	if text := eval[string](t, b, bodyText); !strings.Contains(text, "wal backpressure: bytes: unreclaimed "+strconv.FormatUint(metrics["otelcol_wal_unreclaimed_size"], 10)+" + frame") {
		t.Error("the last refusal is not on the page in words")
	}
	if _, problems := b.seen(); len(problems) > 0 {
		t.Errorf("the browser complains: %q", problems)
	}
}
