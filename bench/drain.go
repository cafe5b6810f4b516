// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/otelweir/weir/bench/internal/load"
	"github.com/otelweir/weir/bench/internal/trial"
	"github.com/otelweir/weir/internal/delivery"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
)

// counting is a fast sink: it counts what it takes.
type counting struct{ records atomic.Int64 }

func (*counting) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (c *counting) ConsumeLogs(_ context.Context, ld plog.Logs) error {
	c.records.Add(int64(ld.LogRecordCount()))
	return nil
}

const recordsPerFrame = 100 // some 60 KiB

// benchDrain drains one log again and again: without a barrier every start
// begins at its beginning.
func benchDrain(o *options) error {
	return o.scratch(func(dir string) error {
		l, err := openLog(fsys.OS, logConfig(dir))
		if err != nil {
			return err
		}
		payload := load.Logs(recordsPerFrame)
		if err := l.fill(o.backlog, "", payload, recordsPerFrame); err != nil {
			return errors.Join(err, l.close())
		}
		return errors.Join(o.drain(l, len(payload)), l.close(), o.freshDuringDrain())
	})
}

func (o *options) drain(l *log, size int) error {
	frames, bytes := int(l.groups.frames.Load()), l.journal.Durable()
	run := func(begun time.Time, took *counting) (trial.Run, error) {
		r := trial.Run{Ops: frames, Bytes: bytes, Elapsed: time.Since(begun)}
		if n := took.records.Load(); n != int64(frames*recordsPerFrame) {
			return r, fmt.Errorf("%d records arrived instead of %d", n, frames*recordsPerFrame)
		}
		return r, nil
	}
	bare := func(name string, workers int) trial.Arm {
		return trial.Arm{Name: name, Run: func() (trial.Run, error) {
			sink, begun := &counting{}, time.Now()
			if err := bareDrain(l.journal, sink, workers); err != nil {
				return trial.Run{}, err
			}
			return run(begun, sink)
		}}
	}
	var first, second []float64 // peak heap in the two halves of a drain
	weir := trial.Arm{Name: "weir", Run: func() (trial.Run, error) {
		sink, begun := &counting{}, time.Now()
		a, b, err := drainOnce(l, sink, bytes)
		if err != nil {
			return trial.Run{}, err
		}
		first, second = append(first, a), append(second, b)
		return run(begun, sink)
	}}
	processors := runtime.GOMAXPROCS(0)
	parallel := fmt.Sprintf("bare × %d", processors)
	res, err := trial.Compare(o.rounds, bare("bare", 1), bare(parallel, processors), weir)
	if err != nil {
		return err
	}
	t := trial.Table{
		Title: fmt.Sprintf("drain: %s in frames of %d KiB to a sink that counts, against one goroutine that reads, decodes and consumes, and against the same with a decoder per processor",
			humanize.IBytes(o.backlog), size>>10),
		Head: []string{"", "MB/s", "to bare", "bar", ""},
	}
	bar := trial.Bar{AtLeast: 0.7}
	t.Row("bare", trial.FormatThroughput(res.Reference(trial.Throughput)))
	t.Row(parallel, trial.FormatThroughput(res.Subject(parallel, trial.Throughput)), trial.FormatRatio(res.Ratio(parallel, trial.Throughput)))
	ratio := res.Ratio("weir", trial.Throughput)
	t.Row("weir", trial.FormatThroughput(res.Subject("weir", trial.Throughput)), trial.FormatRatio(ratio), bar, o.judge("drain", ratio, bar))
	t.Print(o.out)

	growth := trial.Median(second) / trial.Median(first)
	flat := trial.Bar{AtMost: 1.25}
	fmt.Fprintf(o.out, "peak live and uncollected heap: first half %s, second half %s, × %.2f, bar %v: %s\n",
		humanize.IBytes(uint64(trial.Median(first))), humanize.IBytes(uint64(trial.Median(second))), growth, flat,
		o.judge("heap of the second half of the drain", trial.Ratio{Median: growth, Noise: 1}, flat))
	return nil
}

// bareDrain is the least that delivering a log can cost.
func bareDrain(j *journal.Journal, sink consumer.Logs, workers int) (err error) {
	consume := func(f journal.ReadFrame) error {
		r := plogotlp.NewExportRequest()
		if err := r.UnmarshalProto(f.Payload); err != nil {
			return err
		}
		return sink.ConsumeLogs(context.Background(), r.Logs())
	}
	r := j.NewReader(0)
	defer func() { err = errors.Join(err, r.Close()) }()
	if workers == 1 {
		return each(r, consume)
	}
	var all sync.WaitGroup
	frames, errs := make(chan journal.ReadFrame, 2*workers), make([]error, workers)
	for w := range workers {
		all.Go(func() {
			for f := range frames {
				errs[w] = errors.Join(errs[w], consume(f))
			}
		})
	}
	err = each(r, func(f journal.ReadFrame) error { frames <- f; return nil })
	close(frames)
	all.Wait()
	return errors.Join(append(errs, err)...)
}

func each(r *journal.Reader, f func(journal.ReadFrame) error) error {
	for {
		frame, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(frame)
		}
		if err != nil {
			return err
		}
	}
}

// drainOnce delivers the whole log and returns the peak heap of its halves.
func drainOnce(l *log, sink consumer.Logs, bytes uint64) (first, second float64, err error) {
	runtime.GC()
	var settled atomic.Uint64
	done := make(chan struct{})
	d, err := delivery.New(delivery.Settings{
		Journal: l.journal, Recovery: l.recovery, Next: delivery.Consumers{Logs: sink}, Config: delivery.DefaultConfig(),
		OnSettled: func(n uint64) {
			if settled.Add(n) == bytes {
				close(done)
			}
		},
	})
	if err != nil {
		return 0, 0, err
	}
	d.Start()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-tick.C:
		}
		if settled.Load() < bytes/2 {
			first = max(first, heap())
		} else {
			second = max(second, heap())
		}
	}
	err = d.Shutdown(context.Background())
	d.Close()
	return first, second, err
}

// heap is what objects take, dead ones not yet swept included.
func heap() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

const (
	tenantKey   = "x-tenant"
	oldTenant   = "old"   // whose destination was down
	freshTenant = "fresh" // who sends all the time
)

// twoTenants is a destination that does not take the old tenant while it is
// down, and measures how old the fresh tenant's records are.
type twoTenants struct {
	down atomic.Bool

	mu   sync.Mutex
	ages []time.Duration // guarded by mu
}

func (*twoTenants) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (s *twoTenants) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	if tenant := client.FromContext(ctx).Metadata.Get(tenantKey); len(tenant) == 1 && tenant[0] == oldTenant {
		if s.down.Load() {
			return errDown
		}
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, r := range sl.LogRecords().All() {
				s.ages = append(s.ages, now.Sub(r.Timestamp().AsTime()))
			}
		}
	}
	return nil
}

// take returns the ages since the last call, sorted.
func (s *twoTenants) take() trial.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := trial.Run{Ops: len(s.ages), Latency: s.ages}
	s.ages = nil
	slices.Sort(r.Latency)
	return r
}

// freshRecord is a request of one record that says when it was made.
func freshRecord() []byte {
	ld := plog.NewLogs()
	r := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		panic(err) // what pdata holds can be marshalled
	}
	return b
}

// freshDuringDrain lets one tenant's backlog grow while its destination is
// down, and measures how long another tenant's records take to arrive: while
// the log is idle, while the first is down, and while its backlog drains.
func (o *options) freshDuringDrain() error {
	return o.scratch(func(dir string) error {
		l, err := openLog(fsys.OS, logConfig(dir))
		if err != nil {
			return err
		}
		return errors.Join(o.fresh(l), l.close())
	})
}

func (o *options) fresh(l *log) error {
	sink := &twoTenants{}
	sink.down.Store(true)
	backlog := atomic.Uint64{} // of the old tenant, still to be settled
	drained := make(chan struct{})
	cfg := delivery.DefaultConfig()
	cfg.TenantKey = tenantKey
	cfg.Retry.MaxInterval = cfg.Retry.InitialInterval
	var settled atomic.Uint64
	d, err := delivery.New(delivery.Settings{
		Journal: l.journal, Recovery: l.recovery, Next: delivery.Consumers{Logs: sink}, Config: cfg,
		OnSettled: func(n uint64) {
			// The fresh tenant's frames are a few bytes: they do not matter.
			if b := backlog.Load(); settled.Add(n) >= b && b > 0 && !sink.down.Load() {
				select {
				case <-drained:
				default:
					close(drained)
				}
			}
		},
	})
	if err != nil {
		return err
	}
	d.Start()
	defer d.Close()

	stop := make(chan struct{})
	var writing sync.WaitGroup
	var failed atomic.Pointer[error]
	writing.Go(func() {
		metadata := metadataOf(freshTenant)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if err := l.put(freshTenant, metadata, freshRecord(), 1); err != nil {
					failed.Store(&err)
					return
				}
			}
		}
	})
	time.Sleep(2 * o.span)
	idle := sink.take()

	if err := l.fill(o.backlog, oldTenant, load.Logs(recordsPerFrame), recordsPerFrame); err != nil {
		return err
	}
	filling := sink.take()
	time.Sleep(2 * o.span)
	down := sink.take()
	settledBefore := settled.Load()
	begun := time.Now()
	backlog.Store(settledBefore + o.backlog)
	sink.down.Store(false)
	<-drained
	took := time.Since(begun)
	draining := sink.take()
	close(stop)
	writing.Wait()
	err = d.Shutdown(context.Background())
	if f := failed.Load(); f != nil {
		err = errors.Join(err, *f)
	}

	t := trial.Table{
		Title: fmt.Sprintf("fresh data: age at arrival of a tenant's records, 200/s, while another tenant's %s are …; drained at %s",
			humanize.IBytes(o.backlog), trial.FormatThroughput(float64(o.backlog)/took.Seconds())),
		Head: []string{"", "records", "p50", "p99", "max"},
	}
	for _, row := range []struct {
		name string
		run  trial.Run
	}{{"not there yet", idle}, {"being written", filling}, {"held back by a destination that is down", down}, {"drained", draining}} {
		t.Row(row.name, row.run.Ops, trial.FormatNanos(row.run.Quantile(0.5)), trial.FormatNanos(row.run.Quantile(0.99)), trial.FormatNanos(row.run.Quantile(1)))
	}
	t.Print(o.out)
	return err
}
