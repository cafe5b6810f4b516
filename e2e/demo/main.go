// SPDX-License-Identifier: Apache-2.0

// Command demo shows the log at work: telemetrygen sends while the destination
// is down, the Collector is killed, and everything acknowledged arrives when
// both are back. It exits with 1 if anything is missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/otelweir/weir/e2e"
)

// patience bounds every wait of the demo.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) error {
	data, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	ports, err := e2e.FreePorts(4)
	if err != nil {
		return err
	}
	destination, err := e2e.NewSink()
	if err != nil {
		return err
	}
	defer destination.Close()
	log, err := os.Create(filepath.Join(data, "otelcol-weir.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	grpc, http, metrics := e2e.Loopback(ports[0]), e2e.Loopback(ports[1]), e2e.Loopback(ports[2])
	env := []string{
		"WEIR_GRPC=" + grpc, "WEIR_HTTP=" + http, "WEIR_METRICS_PORT=" + strconv.Itoa(ports[2]),
		"WEIR_STATUS=" + e2e.Loopback(ports[3]), "WEIR_DATA=" + data, "WEIR_DESTINATION=" + destination.Addr,
	}
	start := func() (*e2e.Collector, error) {
		c, err := e2e.Start(log, env, "bin/otelcol-weir", "--config", "testdata/config/outage.yaml")
		if err != nil {
			return nil, err
		}
		ready, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := c.WaitReady(ready); err != nil {
			c.Kill()
			return nil, err
		}
		return c, nil
	}

	say("start otelcol-weir with testdata/config/outage.yaml; its destination is down (log: %s)", log.Name())
	destination.SetDown(true)
	c, err := start()
	if err != nil {
		return err
	}
	defer func() { c.Kill() }()

	say("telemetrygen sends logs and traces over gRPC and metrics over HTTP")
	for _, args := range [][]string{
		{"logs", "--otlp-endpoint", grpc, "--logs", "2000"},
		{"traces", "--otlp-endpoint", grpc, "--traces", "500"},
		{"metrics", "--otlp-http", "--otlp-endpoint", http, "--metrics", "500"},
	} {
		if err := telemetrygen(ctx, log, args...); err != nil {
			return err
		}
	}
	before, err := e2e.Scrape(ctx, metrics)
	if err != nil {
		return err
	}
	accepted := int(before.Sum("otelcol_wal_accepted_items"))
	say("all acknowledged: %d items accepted, %d pending, %d bytes in the log, %d arrived",
		accepted, int(before.Sum("otelcol_wal_pending_items")), int(before.Sum("otelcol_wal_unreclaimed_size")), destination.Foreign())
	if accepted == 0 {
		return errors.New("the log says that it accepted nothing")
	}

	say("kill -9, start again")
	c.Kill()
	if c, err = start(); err != nil {
		return err
	}
	after, err := e2e.Scrape(ctx, metrics)
	if err != nil {
		return err
	}
	say("recovered %d items", int(after.Sum("otelcol_wal_recovery_items")))

	say("the destination is back")
	destination.SetDown(false)
	if err := watch(ctx, metrics, destination, accepted); err != nil {
		return err
	}
	say("stop")
	if err := c.Stop(patience); err != nil {
		return err
	}
	if n := destination.Foreign(); n != accepted {
		return fmt.Errorf("%d items acknowledged, %d arrived", accepted, n)
	}
	fmt.Printf("\n%d items acknowledged, %d arrived, none missing, none twice.\n", accepted, accepted)
	return os.RemoveAll(data)
}

// watch prints the log's state once a second until it is empty.
func watch(ctx context.Context, metrics string, destination *e2e.Sink, accepted int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tick := time.NewTicker(time.Second); ; {
		m, err := e2e.Scrape(ctx, metrics)
		if err != nil {
			return err
		}
		arrived, pending, size := destination.Foreign(), int(m.Sum("otelcol_wal_pending_items")), int(m.Sum("otelcol_wal_unreclaimed_size"))
		fmt.Printf("   arrived %6d   pending %6d   bytes in the log %8d\n", arrived, pending, size)
		if arrived >= accepted && pending == 0 && size == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the log did not drain: %w", ctx.Err())
		}
	}
}

func telemetrygen(ctx context.Context, out io.Writer, args ...string) error {
	args = append(args, "--otlp-insecure", "--rate", "0")
	cmd := exec.CommandContext(ctx, ".tools/telemetrygen", args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("telemetrygen %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("-- "+format+"\n", args...) }
