// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/otelweir/weir/bench/internal/trial"
)

// options are the flags.
type options struct {
	rounds  int
	span    time.Duration // of one run of one arm
	dir     string
	backlog uint64 // bytes, of drain
	log     uint64 // bytes, of scan and recovery
	files   int    // segments, of open
	profile string // directory for CPU profiles of servers; "" = none

	out    io.Writer
	missed []string // bars
	noisy  []string // comparisons that say nothing
}

// experiment is one table, or a few.
type experiment struct {
	name, what string
	run        func(*options) error
}

var experiments = []experiment{
	{"append", "acknowledged appends against R (leader/follower) and D (one writer)", benchAppend},
	{"grpc", "requests end to end against a server that only sums (G) and R", benchGRPC},
	{"telemetry", "the same with telemetry on and off", benchTelemetry},
	{"drain", "a backlog against a bare read-decode-consume loop, and fresh data meanwhile", benchDrain},
	{"scan", "recovery's scan and the reader against a bare read and checksum", benchScan},
	{"recovery", "memory of opening a log of two sizes, and many closed segments", benchRecovery},
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == childFlag {
		if err := runChild(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	o := &options{out: os.Stdout}
	var only, backlog, log string
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of every comparison")
	flag.DurationVar(&o.span, "span", 500*time.Millisecond, "how long one run of one arm takes")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "directory on the disk to measure")
	flag.StringVar(&only, "only", "", "comma-separated experiments; all if empty")
	flag.StringVar(&backlog, "backlog", "256MiB", "what drain drains")
	flag.StringVar(&log, "log", "256MiB", "the log that scan and recovery read")
	flag.IntVar(&o.files, "segments", 10000, "closed segments that recovery opens")
	flag.StringVar(&o.profile, "profile", "", "directory for CPU profiles of the servers that are measured")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: bench [flags]; experiments:")
		for _, e := range experiments {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-10s %s\n", e.name, e.what)
		}
		flag.PrintDefaults()
	}
	flag.Parse()
	err := errors.Join(parseSize("backlog", backlog, &o.backlog), parseSize("log", log, &o.log))
	if err == nil {
		err = o.run(only)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case len(o.missed) > 0:
		os.Exit(1)
	}
}

func parseSize(name, s string, into *uint64) (err error) {
	if *into, err = humanize.ParseBytes(s); err != nil {
		return fmt.Errorf("-%s: %w", name, err)
	}
	return nil
}

func (o *options) run(only string) (err error) {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		if name != "" {
			wanted[name] = true
		}
	}
	chosen := experiments
	if len(wanted) > 0 {
		chosen = nil
		for _, e := range experiments {
			if wanted[e.name] {
				chosen = append(chosen, e)
				delete(wanted, e.name)
			}
		}
		for name := range wanted {
			return fmt.Errorf("no experiment %q", name)
		}
	}
	// Whatever ends this, nothing may stay on the disk.
	dir, err := os.MkdirTemp(o.dir, "weir-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.dir = dir
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = os.RemoveAll(dir) // exiting anyway
		os.Exit(130)
	}()

	fmt.Fprintf(o.out, "%s, %d processors, load %s, %d rounds of %v per arm, %s\n",
		runtime.Version(), runtime.NumCPU(), loadAverage(), o.rounds, o.span, time.Now().UTC().Format(time.RFC3339))
	for _, e := range chosen {
		debug.FreeOSMemory()
		if err := e.run(o); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	fmt.Fprintf(o.out, "\nload at the end %s\n", loadAverage())
	if len(o.noisy) > 0 {
		fmt.Fprintf(o.out, "too noisy to tell, since the reference differed from itself: %s\n", strings.Join(o.noisy, "; "))
	}
	if len(o.missed) > 0 {
		fmt.Fprintf(o.out, "BARS MISSED: %s\n", strings.Join(o.missed, "; "))
	}
	return nil
}

// judge compares a ratio with its bar and remembers what was missed.
func (o *options) judge(what string, r trial.Ratio, b trial.Bar) string {
	v := b.Judge(r)
	switch v {
	case trial.Missed:
		o.missed = append(o.missed, fmt.Sprintf("%s: %.2f, bar %v", what, r.Median, b))
	case trial.Void:
		o.noisy = append(o.noisy, fmt.Sprintf("%s (× %.2f)", what, r.Noise))
	case trial.Held, trial.NoBar:
	}
	return v.String()
}

// check judges what is counted.
func (o *options) check(what string, ok bool) string {
	if !ok {
		o.missed = append(o.missed, what)
		return trial.Missed.String()
	}
	return trial.Held.String()
}

// scratch runs f with an empty directory, and then removes it and lets the
// file system settle, so that a run does not pay for the one before.
func (o *options) scratch(f func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(o.dir, "run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), settle(o.dir)) }()
	return f(dir)
}

func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
