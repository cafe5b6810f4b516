// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/bench/internal/countfs"
	"github.com/otelweir/weir/bench/internal/reference"
	"github.com/otelweir/weir/bench/internal/trial"
	"github.com/otelweir/weir/internal/fsys"
)

// warmUp is the part of a run before anything counts: files are allocated and
// pools filled in it.
const warmUp = 100 * time.Millisecond

// hammer has so many writers call op again and again, and records each call
// that begins after the warm-up and within span, at least one per writer. The
// warm-up begins when every writer was served once.
func hammer(writers int, span time.Duration, op func(writer int) (bytes int, err error)) (trial.Run, error) {
	var (
		mu     sync.Mutex
		run    trial.Run
		failed atomic.Pointer[error]
		served sync.WaitGroup
		all    sync.WaitGroup

		begin, end time.Time
		begun      = make(chan struct{})
	)
	served.Add(writers)
	all.Go(func() {
		served.Wait()
		begin = time.Now().Add(warmUp)
		end = begin.Add(span)
		close(begun)
	})
	for w := range writers {
		all.Go(func() {
			if _, err := op(w); err != nil {
				failed.Store(&err)
			}
			served.Done()
			<-begun
			var latency []time.Duration
			bytes := uint64(0)
			for failed.Load() == nil {
				t0 := time.Now()
				if t0.After(end) && len(latency) > 0 {
					break
				}
				n, err := op(w)
				if err != nil {
					failed.Store(&err)
					return
				}
				if t0.After(begin) {
					latency = append(latency, time.Since(t0))
					bytes += uint64(n)
				}
			}
			elapsed := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			run.Elapsed = max(run.Elapsed, elapsed)
			run.Ops += len(latency)
			run.Bytes += bytes
			run.Latency = append(run.Latency, latency...)
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return run, *err
	}
	return run, nil
}

// groupRun measures R.
func (o *options) groupRun(writers int, payload []byte) (run trial.Run, err error) {
	err = o.scratch(func(dir string) error {
		g, err := reference.OpenGroup(dir)
		if err != nil {
			return err
		}
		run, err = hammer(writers, o.span, func(int) (int, error) { return len(payload), g.Append(payload) })
		return errors.Join(err, g.Close())
	})
	return run, err
}

// directRun measures D.
func (o *options) directRun(payload []byte) (run trial.Run, err error) {
	err = o.scratch(func(dir string) error {
		d, err := reference.OpenDirect(dir)
		if err != nil {
			return err
		}
		run, err = hammer(1, o.span, func(int) (int, error) { return len(payload), d.Append(payload) })
		return errors.Join(err, d.Close())
	})
	return run, err
}

// syncs are what appends of a case cost in system calls.
type syncs struct{ acks, fdatasyncs, groups int64 }

// logRun measures the log.
func (o *options) logRun(writers int, payload []byte, total *syncs) (run trial.Run, err error) {
	err = o.scratch(func(dir string) error {
		counts := countfs.New(fsys.OS)
		l, err := openLog(counts, logConfig(dir))
		if err != nil {
			return err
		}
		metadata := metadataOf("")
		before := counts.Datasyncs.Load()
		run, err = hammer(writers, o.span, func(int) (int, error) { return len(payload), l.put("", metadata, payload, 1) })
		total.fdatasyncs += counts.Datasyncs.Load() - before
		total.acks += l.groups.frames.Load()
		total.groups += l.groups.n.Load()
		if l.groups.failed.Load() > 0 {
			err = errors.Join(err, errFailedGroups)
		}
		return errors.Join(err, l.close())
	})
	return run, err
}

// appendCase is a row of the bars in "close to the limit".
type appendCase struct {
	size    int
	writers int
	rate    trial.Bar // acks/s against R
	p99     trial.Bar // against R
	p50     trial.Bar // against D
	perSync float64   // acks per fdatasync, at least; 0 = no bar
}

var appendCases = []appendCase{
	{size: 1 << 10, writers: 1, p50: trial.Bar{AtMost: 1.20}},
	{size: 16 << 10, writers: 1, p50: trial.Bar{AtMost: 1.20}},
	{size: 256 << 10, writers: 1, p50: trial.Bar{AtMost: 1.20}},
	{size: 1 << 10, writers: 8, rate: trial.Bar{AtLeast: 0.85}, p99: trial.Bar{AtMost: 1.5}},
	{size: 16 << 10, writers: 8, rate: trial.Bar{AtLeast: 0.85}, p99: trial.Bar{AtMost: 1.5}},
	{size: 256 << 10, writers: 8, rate: trial.Bar{AtLeast: 0.90}, p99: trial.Bar{AtMost: 1.5}},
	{size: 1 << 10, writers: 64, rate: trial.Bar{AtLeast: 0.85}, p99: trial.Bar{AtMost: 1.5}, perSync: 10},
	{size: 16 << 10, writers: 64, rate: trial.Bar{AtLeast: 0.85}, p99: trial.Bar{AtMost: 1.5}, perSync: 10},
	{size: 256 << 10, writers: 64}, // neither bar is asked for: both are bound by the disk's bandwidth
}

func benchAppend(o *options) error {
	t := trial.Table{
		Title: "append: acknowledged appends per second; R = leader/follower pwritev + fdatasync, D = one writer; neither frames, sums or bounds",
		Head:  []string{"payload × writers", "R", "weir", "weir/R", "bar", "", "p99 weir", "/R", "bar", "", "p50 weir", "/D", "bar", "", "acks/fdatasync", ""},
	}
	rates := map[int]float64{} // of the log at 1 KiB, by writers
	gain := trial.Ratio{Noise: 1}
	for _, c := range appendCases {
		payload := make([]byte, c.size)
		_, _ = rand.Read(payload) // never fails
		var s syncs
		weir := trial.Arm{Name: "weir", Run: func() (trial.Run, error) { return o.logRun(c.writers, payload, &s) }}
		group, err := trial.Compare(o.rounds,
			trial.Arm{Name: "R", Run: func() (trial.Run, error) { return o.groupRun(c.writers, payload) }}, weir)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d KiB × %d", c.size>>10, c.writers)
		rate, p99 := group.Ratio("weir", trial.Rate), group.Ratio("weir", trial.P99)
		if c.size == 1<<10 {
			rates[c.writers] = group.Subject("weir", trial.Rate)
			gain.Noise = max(gain.Noise, rate.Noise)
		}
		p50 := []any{trial.FormatNanos(group.Subject("weir", trial.P50)), "", "", ""}
		if c.writers == 1 {
			direct, err := trial.Compare(o.rounds, trial.Arm{Name: "D", Run: func() (trial.Run, error) { return o.directRun(payload) }}, weir)
			if err != nil {
				return err
			}
			r := direct.Ratio("weir", trial.P50)
			p50 = []any{trial.FormatNanos(direct.Subject("weir", trial.P50)), trial.FormatRatio(r), c.p50, o.judge(name+" p50 against D", r, c.p50)}
		}
		perSync := float64(s.acks) / float64(s.fdatasyncs)
		grouped := ""
		if c.perSync > 0 {
			grouped = o.check(fmt.Sprintf("%s: %.1f acks per fdatasync, bar ≥ %.0f", name, perSync, c.perSync), perSync >= c.perSync)
		}
		t.Row(append(append([]any{
			name, trial.FormatRate(group.Reference(trial.Rate)), trial.FormatRate(group.Subject("weir", trial.Rate)),
			trial.FormatRatio(rate), c.rate, o.judge(name+" acks/s against R", rate, c.rate),
			trial.FormatNanos(group.Subject("weir", trial.P99)), trial.FormatRatio(p99), c.p99, o.judge(name+" p99 against R", p99, c.p99),
		}, p50...), fmt.Sprintf("%.1f", perSync), grouped)...)
	}
	t.Print(o.out)
	gain.Median = rates[64] / rates[1]
	bar := trial.Bar{AtLeast: 10}
	fmt.Fprintf(o.out, "group commit: 64 writers get %.1f × the acknowledgements of one, 1 KiB; bar %v: %s\n",
		gain.Median, bar, o.judge("64 writers over one", gain, bar))
	return nil
}
