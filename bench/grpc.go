// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/otelweir/weir/bench/internal/load"
	"github.com/otelweir/weir/bench/internal/trial"
	"github.com/otelweir/weir/e2e"
)

// serverRun starts a server in a process of its own, measures its answers to
// so many writers, and ends it.
func (o *options) serverRun(s childSettings, writers int, payload []byte, used *usage) (run trial.Run, err error) {
	err = o.scratch(func(dir string) error {
		ports, err := e2e.FreePorts(1)
		if err != nil {
			return err
		}
		s.Directory, s.Addr, s.Profile = dir, e2e.Loopback(ports[0]), o.profile
		server, err := startChild(s)
		if err != nil {
			return err
		}
		client, err := load.Dial(s.Addr, min(writers, 4))
		if err != nil {
			return errors.Join(err, server.stop())
		}
		send := func(w int) (int, error) { return len(payload), client.Send(context.Background(), w, payload) }
		// Connections, windows and pools first.
		_, err = hammer(writers, warmUp, send)
		var before, after usage
		if err == nil {
			before, err = server.used()
		}
		if err == nil {
			run, err = hammer(writers, o.span, send)
		}
		if err == nil {
			after, err = server.used()
		}
		// hammer has warmed up once more, and the server worked all the time.
		share := run.Elapsed.Seconds() / (warmUp + run.Elapsed).Seconds()
		run.CPU = time.Duration(float64(after.CPU-before.CPU) * share)
		used.Allocs += uint64(float64(after.Allocs-before.Allocs) * share)
		used.Bytes += uint64(float64(after.Bytes-before.Bytes) * share)
		return errors.Join(err, client.Close(), server.stop())
	})
	return run, err
}

type grpcCase struct {
	size, writers int
	bar           trial.Bar
}

// The bar is 0.6 of what G and R would come to one after the other.
var grpcCases = []grpcCase{
	{15 << 10, 1, trial.Bar{AtLeast: 0.6}},
	{15 << 10, 16, trial.Bar{AtLeast: 0.6}},
	{15 << 10, 64, trial.Bar{AtLeast: 0.6}},
	{244 << 10, 1, trial.Bar{AtLeast: 0.6}},
	{244 << 10, 16, trial.Bar{AtLeast: 0.6}},
	{244 << 10, 64, trial.Bar{}},
}

func benchGRPC(o *options) error {
	t := trial.Table{
		Title: "grpc: acknowledged requests per second, receiver in its own process, client on the same processors; G sums and answers, R makes durable without gRPC; S = 1/(1/G + 1/R)",
		Head:  []string{"request × writers", "G", "R", "weir", "weir/S", "bar", "", "p99", "CPU/request", "G's", "allocs/request", "bytes/request", "with delivery"},
	}
	for _, c := range grpcCases {
		payload := load.LogsOfSize(c.size)
		var used, ignored usage
		var weirOps int
		g := func() (trial.Run, error) {
			return o.serverRun(childSettings{Role: "sum"}, c.writers, payload, &ignored)
		}
		// One run of the reference is a run of G and one of R.
		var gs, rs []trial.Run
		series := trial.Arm{Name: "S", Run: func() (trial.Run, error) {
			a, err := g()
			if err != nil {
				return a, err
			}
			b, err := o.groupRun(c.writers, payload)
			if err != nil {
				return b, err
			}
			gs, rs = append(gs, a), append(rs, b)
			rate := 1 / (1/a.Rate() + 1/b.Rate())
			return trial.Run{Ops: int(rate * 1000), Elapsed: 1000 * time.Second}, nil
		}}
		weir := trial.Arm{Name: "weir", Run: func() (trial.Run, error) {
			r, err := o.serverRun(childSettings{Role: "weir", Telemetry: true}, c.writers, payload, &used)
			weirOps += r.Ops
			return r, err
		}}
		delivering := trial.Arm{Name: "delivering", Run: func() (trial.Run, error) {
			return o.serverRun(childSettings{Role: "weir", Telemetry: true, Deliver: true}, c.writers, payload, &ignored)
		}}
		res, err := trial.Compare(o.rounds, series, weir, delivering)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d KiB × %d", len(payload)>>10, c.writers)
		ratio := res.Ratio("weir", trial.Rate)
		t.Row(name, trial.FormatRate(median(gs, trial.Rate)), trial.FormatRate(median(rs, trial.Rate)),
			trial.FormatRate(res.Subject("weir", trial.Rate)), trial.FormatRatio(ratio), c.bar, o.judge("grpc "+name, ratio, c.bar),
			trial.FormatNanos(res.Subject("weir", trial.P99)),
			trial.FormatNanos(res.Subject("weir", trial.CPUPerOp)), trial.FormatNanos(median(gs, trial.CPUPerOp)),
			fmt.Sprintf("%.0f", float64(used.Allocs)/float64(weirOps)), fmt.Sprintf("%.0f", float64(used.Bytes)/float64(weirOps)),
			trial.FormatRate(res.Subject("delivering", trial.Rate)))
	}
	t.Print(o.out)
	return nil
}

func median(runs []trial.Run, m trial.Metric) float64 {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = m(&runs[i])
	}
	return trial.Median(values)
}

// benchTelemetry judges processor time per request: unlike a rate it does not
// hide behind the disk. Two per cent is less than a machine differs from itself
// from second to second, so the arms do not take turns by run: in each round
// three servers live side by side, one with its own instruments and two
// without, and each gets a few requests, in turn, again and again.
func benchTelemetry(o *options) error {
	t := trial.Table{
		Title: "telemetry: the receiver's own instruments on and off; in both a metrics SDK serves the gRPC server's instruments and is collected from every second",
		Head:  []string{"request × writers", "CPU/request off", "on", "on/off", "bar", "", "acks/s on/off"},
	}
	bar := trial.Bar{AtMost: 1.02, Noise: 1.03}
	for _, c := range []grpcCase{{15 << 10, 16, bar}, {244 << 10, 16, bar}} {
		payload := load.LogsOfSize(c.size)
		res := trial.Result{Subjects: map[string][]trial.Run{}}
		for range max(o.rounds, 9) {
			runs, err := o.sideBySide(c.writers, payload,
				childSettings{Role: "weir"}, childSettings{Role: "weir", Telemetry: true}, childSettings{Role: "weir"})
			if err != nil {
				return err
			}
			res.Before, res.After = append(res.Before, runs[0]), append(res.After, runs[2])
			res.Subjects["on"] = append(res.Subjects["on"], runs[1])
		}
		name := fmt.Sprintf("%d KiB × %d", len(payload)>>10, c.writers)
		cpu, rate := res.Ratio("on", trial.CPUPerOp), res.Ratio("on", trial.Rate)
		t.Row(name, trial.FormatNanos(res.Reference(trial.CPUPerOp)), trial.FormatNanos(res.Subject("on", trial.CPUPerOp)),
			trial.FormatRatio(cpu), c.bar, o.judge("telemetry, CPU, "+name, cpu, c.bar), trial.FormatRatio(rate))
	}
	t.Print(o.out)
	return nil
}

// sideBySide measures servers that live at the same time and are each given a
// share of the same load in turn: so many turns, the first without counting.
func (o *options) sideBySide(writers int, payload []byte, settings ...childSettings) (runs []trial.Run, err error) {
	const turns, turnBytes = 40, 8 << 20
	each := max(turnBytes/writers/len(payload), 1)
	runs = make([]trial.Run, len(settings))
	err = o.scratch(func(dir string) (err error) {
		ports, err := e2e.FreePorts(len(settings))
		if err != nil {
			return err
		}
		servers, clients := make([]*child, len(settings)), make([]*load.Client, len(settings))
		for i, s := range settings {
			s.Directory, s.Addr, s.Profile = filepath.Join(dir, strconv.Itoa(i)), e2e.Loopback(ports[i]), o.profile
			if servers[i], err = startChild(s); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, servers[i].stop()) }()
			if clients[i], err = load.Dial(s.Addr, min(writers, 4)); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, clients[i].Close()) }()
		}
		for turn := range turns {
			for k := range servers {
				i := (k + turn) % len(servers)
				run, err := servers[i].turn(clients[i], writers, each, payload)
				if err != nil {
					return err
				}
				if turn > 0 {
					runs[i].Ops += run.Ops
					runs[i].CPU += run.CPU
					runs[i].Elapsed += run.Elapsed
				}
			}
		}
		return nil
	})
	return runs, err
}

// turn has every writer send so many requests.
func (c *child) turn(client *load.Client, writers, each int, payload []byte) (run trial.Run, err error) {
	before, err := c.used()
	if err != nil {
		return run, err
	}
	began := time.Now()
	var all sync.WaitGroup
	failed := make([]error, writers)
	for w := range writers {
		all.Go(func() {
			for i := 0; i < each && failed[w] == nil; i++ {
				failed[w] = client.Send(context.Background(), w, payload)
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return run, err
	}
	run.Ops, run.Elapsed = writers*each, time.Since(began)
	after, err := c.used()
	run.CPU = after.CPU - before.CPU
	return run, err
}
