// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

// verdict is a refusal as integers: made under the journal lock, put into
// words after it.
type verdict struct {
	reason refusal.Reason

	pre, framed, limit uint64
	projected          uint64
	overflow           bool
	unreclaimed        uint64

	rotation journal.RotationState
	hint     hint
	entered  uint64 // number of the transition this refusal made; 0 = none
}

// admit decides about one frame and, if it may enter, reserves its bytes and
// its tenant's slot and queues it. The order of the checks is contract §1's.
// Called under the journal lock.
func (c *Coordinator) admit(f *journal.Frame, framed uint64, now time.Time) (*journal.Ticket, verdict) {
	j := c.Journal
	if c.closed {
		return nil, verdict{reason: refusal.ShuttingDown}
	}

	// (2) A tenant not yet seated takes a slot. Seats follow from the queue,
	// so a refusal below has none to return.
	if !j.TenantSeated(f.Tenant) {
		if held, reserved := j.Seats(); held+reserved >= c.MaxTenants {
			return nil, verdict{reason: refusal.TenantCap, pre: uint64(held + reserved), limit: uint64(c.MaxTenants)}
		}
	}

	// (3) A terminal log appends nothing more.
	rotation := j.RotationState()
	if rotation.Kind == journal.RotationTerminal {
		return nil, verdict{reason: refusal.Terminal, rotation: rotation}
	}

	// (4) The byte bound.
	figures := j.Figures()
	projected, carry := bits.Add64(figures.Unreclaimed, framed, 0)
	if carry != 0 || projected > c.Limit {
		return nil, c.backpressure(verdict{
			reason: refusal.BackpressureBytes, pre: figures.Unreclaimed, framed: framed, limit: c.Limit,
			projected: projected, overflow: carry != 0, unreclaimed: figures.Unreclaimed,
		}, causeBytes)
	}

	// (5) Rotation and its segment slot; then the states of the rotation
	// that concern this append and whose next attempt lies ahead.
	token := j.RotationDue(framed)
	if token.AtCeiling {
		return nil, c.backpressure(verdict{
			reason: refusal.BackpressureSegments, pre: uint64(figures.ClosedRetained + figures.QueuedRotations),
			framed: 1, limit: uint64(c.MaxSegments), unreclaimed: figures.Unreclaimed,
		}, causeSegments)
	}
	if (token.Due || rotation.AppendsBlocked) && now.Before(rotation.NextAttempt) {
		if reason, ok := rotationReasons[rotation.Kind]; ok {
			return nil, verdict{reason: reason, rotation: rotation}
		}
	}

	// (6)
	c.queued.Add(1)
	return j.Enqueue(f, token), verdict{}
}

// backpressure sets the latch for v and takes the ledger's part of the hint,
// in that order (contract §3). Called under the journal lock.
func (c *Coordinator) backpressure(v verdict, cause latchCause) verdict {
	v.entered = c.latch.refused(cause)
	c.refusing.Store(1 + uint32(cause))
	v.hint = c.nextChance()
	return v
}

var rotationReasons = map[journal.RotationStateKind]refusal.Reason{
	journal.RotationRetrying:   refusal.RotationRetrying,
	journal.RotationVolumeFull: refusal.VolumeFull,
	journal.RotationUnwritable: refusal.Unwritable,
	journal.RotationTerminal:   refusal.Terminal,
}

// refuse puts a verdict into words, records it, and emits the transition it
// made, if any.
func (c *Coordinator) refuse(v verdict, now time.Time) *refusal.Error {
	e := &refusal.Error{Reason: v.reason, Pre: v.pre, Limit: v.limit}
	switch v.reason {
	case refusal.BackpressureBytes:
		if v.overflow {
			e.Text = fmt.Sprintf("wal backpressure: bytes: unreclaimed %d + frame %d overflows and exceeds limit %d (unreclaimed_bytes_limit)",
				v.pre, v.framed, v.limit)
		} else {
			e.Projected = &v.projected
			e.Text = fmt.Sprintf("wal backpressure: bytes: unreclaimed %d + frame %d = %d exceeds limit %d (unreclaimed_bytes_limit)",
				v.pre, v.framed, v.projected, v.limit)
		}
		e.RetryAfter = c.retryAfter(v.hint)
	case refusal.BackpressureSegments:
		projected := v.pre + 1
		e.Projected = &projected
		e.Text = fmt.Sprintf("wal backpressure: segments: closed %d + 1 = %d exceeds limit %d (max_segments)", v.pre, projected, v.limit)
		e.RetryAfter = c.retryAfter(v.hint)
	case refusal.ShuttingDown:
		e.Text, e.RetryAfter = "the log is shutting down", time.Second
	case refusal.TenantCap:
		e.Text = fmt.Sprintf("wal tenant capacity: %d of %d tenant slots are taken (tenant.max_tenants): "+
			"raise max_tenants or wait until a tenant's backlog drains", v.pre, v.limit)
	default:
		rotationRefusal(e, v.rotation, now)
	}
	c.last.record(e)
	if v.entered != 0 {
		c.emitEntered(v, e)
	}
	return e
}

// rotationRefusal words what the rotation's state means for an append.
func rotationRefusal(e *refusal.Error, s journal.RotationState, now time.Time) {
	e.Cause = s.Cause
	switch e.Reason {
	case refusal.Terminal:
		e.Text = fmt.Sprintf("wal is terminal and takes no more data until it is restarted: restart needed after the cause is mended; first cause: %v", s.Cause)
		return
	case refusal.VolumeFull:
		e.Text = fmt.Sprintf("wal volume is full: %v; appends resume by themselves when space returns", s.Cause)
	case refusal.Unwritable:
		e.Text = fmt.Sprintf("wal directory is not writable: %v; appends resume by themselves when it is again", s.Cause)
	default:
		e.Text = fmt.Sprintf("wal rotation is being retried after %d failures: %v", s.Failures, s.Cause)
	}
	e.RetryAfter = max(s.NextAttempt.Sub(now), time.Second)
}

func tooLarge(framed, limit uint64) *refusal.Error {
	projected := framed
	return &refusal.Error{
		Reason: refusal.TooLarge, Projected: &projected, Limit: limit,
		Text: fmt.Sprintf("request too large: frame of %d bytes exceeds limit %d (wal.max_frame_size): send smaller batches", framed, limit),
	}
}

func abandoned(cause error) *refusal.Error {
	return &refusal.Error{
		Reason: refusal.Abandoned, Cause: cause,
		Text: fmt.Sprintf("the request ended before its data was known to be durable (%v): send it again, it may be delivered twice", cause),
	}
}

// fromOutcome is the refusal of a frame that was queued and did not become
// durable.
func fromOutcome(err error, now time.Time) *refusal.Error {
	var refused *journal.RotationRefused
	if errors.As(err, &refused) {
		reason, ok := rotationReasons[refused.State.Kind]
		if !ok {
			reason = refusal.RotationRetrying
		}
		e := &refusal.Error{Reason: reason}
		rotationRefusal(e, refused.State, now)
		return e
	}
	e := &refusal.Error{Reason: refusal.AppendIO, Cause: err}
	var failed *journal.AppendError
	if errors.As(err, &failed) && failed.Op == "sync" {
		e.Reason = refusal.SyncIO
	}
	e.Text = fmt.Sprintf("wal write failed: %v: send the data again, it may be delivered twice", err)
	return e
}
