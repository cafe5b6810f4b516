// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/otelweir/weir/bench/internal/trial"
)

func main() {
	budgets := flag.String("budgets", "64MiB,128MiB,256MiB,512MiB,1GiB", "admission.max_in_flight_bytes to try")
	shapesOf := flag.String("shapes", "", "comma-separated; all if empty: "+strings.Join(shapeNames(), ", "))
	connections := flag.String("connections", "16,64", "numbers of connections to try")
	requests := flag.String("max-requests", "64,512", "admission.max_requests to try")
	var s settings
	flag.StringVar(&s.Binary, "bin", "bin/otelcol-weir", "the Collector")
	flag.StringVar(&s.Dir, "dir", os.TempDir(), "where logs are made")
	flag.DurationVar(&s.Span, "span", 4*time.Second, "how long each run overloads the Collector")
	flag.BoolVar(&s.Patient, "patient", false, "clients wait after a refusal for as long as it advises, instead of sending at once")
	flag.StringVar(&s.GoMemLimit, "gomemlimit", stated, "GOMEMLIMIT of the Collector: off, a size, or the stated worst case of each run")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	within, err := experiment(ctx, os.Stdout, s, *budgets, *shapesOf, *connections, *requests)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(2)
	case !within:
		os.Exit(1)
	}
}

// experiment runs every combination and says whether all stayed within the
// stated worst case.
func experiment(ctx context.Context, out io.Writer, s settings, budgets, shapeList, connections, requests string) (within bool, err error) {
	sizes, err := list(budgets, humanize.ParseBytes)
	if err != nil {
		return false, err
	}
	conns, err := list(connections, strconv.Atoi)
	if err != nil {
		return false, err
	}
	limits, err := list(requests, strconv.Atoi)
	if err != nil {
		return false, err
	}
	chosen, err := chooseShapes(shapeList)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "%s, %d processors, GOMEMLIMIT %q, %v per run, max_frame_size %s, %s\n",
		runtime.Version(), runtime.NumCPU(), s.GoMemLimit, s.Span, humanize.IBytes(maxFrameSize), time.Now().UTC().Format(time.RFC3339))
	t := trial.Table{
		Title: "the Collector under overload, in front of a destination that takes a second per batch",
		Head:  []string{"budget", "max_requests", "shape", "connections", "peak RSS", "above idle", "stated worst", "", "acked/s", "MB/s", "refused", "why"},
	}
	within = true
	worst := map[uint64]uint64{} // peak above idle, by budget
	for _, s.Budget = range sizes {
		for _, s.MaxRequests = range limits {
			for _, sh := range chosen {
				for _, s.Connections = range conns {
					o, err := overload(ctx, s, sh)
					if err != nil {
						return false, fmt.Errorf("budget %d, %s, %d connections: %w", s.Budget, sh.name, s.Connections, err)
					}
					ok := o.peak <= o.idle+s.stated()
					within = within && ok
					worst[s.Budget] = max(worst[s.Budget], o.peak-o.idle)
					t.Row(humanize.IBytes(s.Budget), s.MaxRequests, sh.name, s.Connections, humanize.IBytes(o.peak), humanize.IBytes(o.peak-o.idle),
						humanize.IBytes(s.stated()), map[bool]string{true: "held", false: "EXCEEDED"}[ok],
						fmt.Sprintf("%.0f", float64(o.acked)/s.Span.Seconds()), fmt.Sprintf("%.0f", float64(o.bytes)/s.Span.Seconds()/1e6),
						o.refused, strings.TrimPrefix(fmt.Sprint(o.reasons), "map"))
				}
			}
		}
	}
	t.Print(out)
	if len(worst) > 1 {
		a, b := fit(worst)
		fmt.Fprintf(out, "worst of each budget, above an idle process: RSS ≈ %.2f · budget + %s; at most %s above that line\n",
			a, humanize.IBytes(uint64(max(b, 0))), humanize.IBytes(uint64(max(above(worst, a, b), 0))))
	}
	return within, nil
}

func list[T any](s string, parse func(string) (T, error)) (all []T, err error) {
	for f := range strings.SplitSeq(s, ",") {
		v, err := parse(strings.TrimSpace(f))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// fit is the line of least squares through the points.
func fit(points map[uint64]uint64) (a, b float64) {
	var n, sx, sy, sxx, sxy float64
	for x, y := range points {
		x, y := float64(x), float64(y)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	a = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	return a, (sy - a*sx) / n
}

// above is how far the highest point lies above the line.
func above(points map[uint64]uint64, a, b float64) float64 {
	var d []float64
	for x, y := range points {
		d = append(d, float64(y)-a*float64(x)-b)
	}
	return slices.Max(d)
}
