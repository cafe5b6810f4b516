// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/refusal"
)

type latchCause uint8

const (
	causeBytes latchCause = iota
	causeSegments
)

func (c latchCause) String() string {
	if c == causeSegments {
		return "segments"
	}
	return "bytes"
}

// latch says whether the log refuses for lack of room (contract §4). It is set
// by a refused reservation and left by an acknowledged append or by a pass
// that made room, and by nothing else. Guarded by the journal lock.
type latch struct {
	set    bool
	cause  latchCause // of the latest refusal: a retained first cause can livelock
	number uint64     // of the last transition
	since  time.Time
}

// refused sets the latch and returns the number of the transition, or 0 when
// it was set already.
func (l *latch) refused(cause latchCause) uint64 {
	l.cause = cause
	if l.set {
		return 0
	}
	l.set, l.since = true, time.Now()
	l.number++
	return l.number
}

// leaveLatch leaves the latch if it is set and cond, evaluated under the
// journal lock, holds; then it emits the transition.
func (c *Coordinator) leaveLatch(cond func() bool) {
	c.Journal.Lock()
	if !c.latch.set || !cond() {
		c.Journal.Unlock()
		return
	}
	c.latch.set, c.latch.since = false, time.Now()
	c.latch.number++
	number, cause := c.latch.number, c.latch.cause
	c.refusing.Store(0)
	unreclaimed := c.Journal.Figures().Unreclaimed
	c.Journal.Unlock()

	c.Logger.Info("The log accepts again",
		zap.String("event.name", "wal.backpressure.left"), zap.Uint64("transition.number", number),
		zap.Stringer("cause", cause), zap.Uint64("limit", c.limitOf(cause)), zap.Uint64("unreclaimed", unreclaimed))
	c.Changed()
}

// limitOf is the bound behind a cause.
func (c *Coordinator) limitOf(cause latchCause) uint64 {
	if cause == causeSegments {
		return uint64(c.MaxSegments)
	}
	return c.Limit
}

// emitEntered emits the one record of entering the latch.
func (c *Coordinator) emitEntered(v verdict, e *refusal.Error) {
	cause := causeBytes
	if v.reason == refusal.BackpressureSegments {
		cause = causeSegments
	}
	fields := []zap.Field{
		zap.String("event.name", "wal.backpressure.entered"), zap.Uint64("transition.number", v.entered),
		zap.Stringer("cause", cause), zap.Uint64("limit", v.limit), zap.Uint64("unreclaimed", v.unreclaimed),
		zap.Duration("retry_after", e.RetryAfter),
	}
	if e.Projected != nil {
		fields = append(fields, zap.Uint64("projected", *e.Projected))
	}
	c.Logger.Warn("The log is full and refuses: "+e.Error(), fields...)
	c.Changed()
}

// Latch is the latch as people see it.
func (c *Coordinator) Latch() barrier.LatchStatus {
	c.Journal.Lock()
	l := c.latch
	c.Journal.Unlock()
	s := barrier.LatchStatus{Refusing: l.set, Since: l.since}
	if l.set {
		s.Cause = l.cause.String()
	}
	if e := c.last.backpressure.Load(); e != nil {
		s.LastRefusal = e.Error()
	}
	return s
}

// Refusing reports, without a lock, whether the latch is set, and whether the
// latest refusal was for segments, not for bytes.
func (c *Coordinator) Refusing() (set, segments bool) {
	r := c.refusing.Load()
	return r != 0, r == 1+uint32(causeSegments)
}

// lastRefusals are the measurements of the latest refusals of a kind, for the
// metrics wal.backpressure.last_refusal* and wal.tenant_capacity.last_refusal.
type lastRefusals struct {
	backpressure, bytes, segments, tenants atomic.Pointer[refusal.Error]
}

func (l *lastRefusals) record(e *refusal.Error) {
	switch e.Reason {
	case refusal.BackpressureBytes:
		l.bytes.Store(e)
		l.backpressure.Store(e)
	case refusal.BackpressureSegments:
		l.segments.Store(e)
		l.backpressure.Store(e)
	case refusal.TenantCap:
		l.tenants.Store(e)
	}
}

// LastRefusals are the latest refusals for bytes, for segments and for tenant
// capacity; nil where there was none.
func (c *Coordinator) LastRefusals() (bytes, segments, tenants *refusal.Error) {
	return c.last.bytes.Load(), c.last.segments.Load(), c.last.tenants.Load()
}
