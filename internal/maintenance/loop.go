// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
)

// Loop is the running maintenance of one log and the schedule it publishes.
// Its exported methods are safe from any goroutine.
type Loop struct {
	log      barrier.Log
	cfg      Config
	flushers *Flushers

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	// The published instants, in nanoseconds after base. base carries the
	// monotonic reading that every returned instant inherits.
	base             time.Time
	nextBarrier      atomic.Int64
	nextHousekeeping atomic.Int64

	mu           sync.Mutex
	barriers     PassReport // guarded by mu
	housekeeping PassReport // guarded by mu

	// Everything below belongs to the goroutine.
	barrierDue      time.Time // of the regular cadence
	housekeepingDue time.Time
	pressure        <-chan struct{} // nil when pressure is off
	early           pressureState
	barrierErrors   condition
	keepingErrors   condition
}

var _ barrier.Schedule = (*Loop)(nil)

// PassReport is what became of the passes of one kind, for people.
type PassReport struct {
	Runs, Failures uint64
	Running        bool
	Started        time.Time     // of the last pass; zero before the first
	Took           time.Duration // the last finished pass
	LastError      string        // of the last finished pass; empty when it succeeded
	Progress       barrier.Progress
}

// Start begins the maintenance of log and returns once its schedule is
// published. flushers may be nil: then nothing is ever flushed.
func Start(log barrier.Log, cfg Config, flushers *Flushers, logger *zap.Logger) *Loop {
	if cfg.BarrierInterval <= 0 || cfg.HousekeepingInterval <= 0 || cfg.MaxUnlinksPerPass <= 0 {
		panic("maintenance: Start with an interval or MaxUnlinksPerPass that is not positive") // would spin
	}
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	l := &Loop{
		log:             log,
		cfg:             cfg,
		flushers:        flushers,
		cancel:          cancel,
		done:            make(chan struct{}),
		base:            now,
		barrierDue:      now.Add(cfg.BarrierInterval),
		housekeepingDue: now.Add(cfg.HousekeepingInterval),
		early:           pressureState{longest: cfg.HousekeepingInterval},
		barrierErrors:   condition{logger: logger, what: "Barrier"},
		keepingErrors:   condition{logger: logger, what: "Housekeeping"},
	}
	if cfg.PressureWatermark > 0 {
		l.pressure = log.Pressure()
	}
	l.publish(l.barrierDue, l.housekeepingDue)
	go l.run(ctx)
	return l
}

// Stop ends the maintenance and waits for a running pass, whose context it
// cancels. It may be called more than once and from several goroutines, but
// not from within a pass. The published instants stay where they are.
func (l *Loop) Stop() { _ = l.Shutdown(context.Background()) }

// Shutdown is Stop that waits no longer than ctx lasts. The error says that a
// pass still waits for the disk; the maintenance ends with it.
func (l *Loop) Shutdown(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a maintenance pass is still running, the disk does not answer: %w", context.Cause(ctx))
	}
}

func (l *Loop) run(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(time.Until(l.earliest()))
	defer timer.Stop()
	for {
		incoming := l.pressure
		if l.early.pending {
			incoming = nil // one waiting request is enough; the next pass answers all
		}
		select {
		case <-ctx.Done():
			return
		case _, open := <-incoming:
			if !open {
				l.pressure = nil
				continue
			}
			l.early.request(time.Now())
		case <-timer.C:
		}
		l.due(ctx)
		l.publish(l.next())
		timer.Reset(time.Until(l.earliest()))
	}
}

// due runs every pass whose time has come: the barrier first, because what it
// stamps is what housekeeping may unlink.
func (l *Loop) due(ctx context.Context) {
	now := time.Now()
	pressed := l.early.ready(now)
	if pressed {
		l.drainPressure()
	}
	if (pressed || !now.Before(l.barrierDue)) && ctx.Err() == nil {
		l.runBarrier(ctx, pressed)
	}
	// The barrier may have taken long enough for housekeeping to fall due.
	if (pressed || !time.Now().Before(l.housekeepingDue)) && ctx.Err() == nil {
		removed := l.runHousekeeping(ctx)
		if pressed || removed > 0 {
			l.early.finished(time.Now(), removed)
		}
	}
}

// drainPressure drops a request that arrived before the pass it asks for.
func (l *Loop) drainPressure() {
	select {
	case _, open := <-l.pressure:
		if !open {
			l.pressure = nil
		}
	default:
	}
}

// runBarrier runs a barrier now. One that is due by the cadence is a regular
// one, whoever else asked for it; an early one leaves the cadence alone. So
// pressure never puts off the barrier that may flush.
func (l *Loop) runBarrier(ctx context.Context, pressed bool) {
	start := time.Now()
	why := barrier.Early
	if !start.Before(l.barrierDue) {
		why = barrier.Regular
		l.barrierDue = start.Add(l.cfg.BarrierInterval)
	}
	housekeepingDue := l.housekeepingDue
	if pressed {
		housekeepingDue = start
	}
	l.publish(l.barrierDue, later(housekeepingDue, start.Add(l.FlushBound())))

	l.begin(&l.barriers, start)
	err := unlessStopped(ctx, l.log.Barrier(ctx, why))
	l.end(&l.barriers, start, barrier.Progress{}, err)
	l.barrierErrors.observe(err)
}

func (l *Loop) runHousekeeping(ctx context.Context) (removed int) {
	start := time.Now()
	if !start.Before(l.housekeepingDue) {
		l.housekeepingDue = start.Add(l.cfg.HousekeepingInterval)
	}
	l.publish(later(l.barrierDue, start.Add(l.FlushBound())), l.housekeepingDue)

	l.begin(&l.housekeeping, start)
	progress, err := l.log.Housekeep(ctx, l.cfg.MaxUnlinksPerPass)
	err = unlessStopped(ctx, err)
	l.end(&l.housekeeping, start, progress, err)
	l.keepingErrors.observe(err)
	return progress.Removed
}

// unlessStopped drops the error of a pass that Stop interrupted.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (l *Loop) begin(r *PassReport, start time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Running, r.Started = true, start
	r.Runs++
}

func (l *Loop) end(r *PassReport, start time.Time, p barrier.Progress, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Running, r.Took, r.Progress, r.LastError = false, time.Since(start), p, ""
	if err != nil {
		r.Failures++
		r.LastError = err.Error()
	}
}

// Reports says what became of the passes so far.
func (l *Loop) Reports() (barriers, housekeeping PassReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.barriers, l.housekeeping
}
