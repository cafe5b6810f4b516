// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"time"
)

// publish makes the due instants visible to refusals.
func (l *Loop) publish(nextBarrier, nextHousekeeping time.Time) {
	l.nextBarrier.Store(int64(nextBarrier.Sub(l.base)))
	l.nextHousekeeping.Store(int64(nextHousekeeping.Sub(l.base)))
}

// next is when each pass runs, as far as is known now: a pressure pass that
// waits for its turn brings both forward.
func (l *Loop) next() (nextBarrier, nextHousekeeping time.Time) {
	nextBarrier, nextHousekeeping = l.barrierDue, l.housekeepingDue
	if l.early.pending {
		nextBarrier = earlier(nextBarrier, l.early.at)
		nextHousekeeping = earlier(nextHousekeeping, l.early.at)
	}
	return nextBarrier, nextHousekeeping
}

func (l *Loop) earliest() time.Time { return earlier(l.next()) }

// NextBarrier is when the next barrier is due. While a housekeeping pass runs
// it is not earlier than that pass's start + FlushBound.
func (l *Loop) NextBarrier() time.Time {
	return l.base.Add(time.Duration(l.nextBarrier.Load()))
}

// NextHousekeeping is when the next housekeeping pass is due. While a barrier
// runs it is not earlier than that barrier's start + FlushBound.
func (l *Loop) NextHousekeeping() time.Time {
	return l.base.Add(time.Duration(l.nextHousekeeping.Load()))
}

// BarrierInterval is the configured one.
func (l *Loop) BarrierInterval() time.Duration { return l.cfg.BarrierInterval }

// HousekeepingInterval is the configured one.
func (l *Loop) HousekeepingInterval() time.Duration { return l.cfg.HousekeepingInterval }

// PressureWatermark is the configured fraction; 0 is off.
func (l *Loop) PressureWatermark() float64 { return l.cfg.PressureWatermark }

// FlushBound is min(10 s, BarrierInterval/2) when a flusher is registered,
// else 0.
func (l *Loop) FlushBound() time.Duration {
	if l.flushers.Len() == 0 {
		return 0
	}
	return l.cfg.FlushBound()
}

// Flush asks every flusher to flush; see [Flushers.Flush].
func (l *Loop) Flush(ctx context.Context) {
	l.flushers.Flush(ctx, l.FlushBound())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
