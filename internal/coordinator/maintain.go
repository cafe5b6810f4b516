// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// pass is the result of the last finished housekeeping pass. Guarded by the
// journal lock.
type pass struct {
	planned bool // false: skipped, since no barrier was ever recorded
	removed int
}

var errNotBound = errors.New("the log is not started yet")

// Barrier makes durable what was settled: the log's half of contract §5. The
// sinks are asked to flush first by the final barrier, and by a regular one
// when the latch is set or handles hold more bytes than the pressure watermark
// allows; never by an early one. Regular barriers are one interval apart. None
// begins to flush or to write once ctx has ended.
func (c *Coordinator) Barrier(ctx context.Context, why barrier.Occasion) error {
	sp, lp := c.schedule.Load(), c.lanes.Load()
	if sp == nil || lp == nil {
		return errNotBound
	}
	schedule, lanes := *sp, *lp

	rotation := c.withTurn(ctx, c.Journal.RotateIfAged)
	if ctx.Err() != nil { // nobody waits any more, perhaps because the disk hangs
		return errors.Join(context.Cause(ctx), rotation)
	}

	if why == barrier.Final || why == barrier.Regular && c.wantsFlush(schedule, lanes) {
		schedule.Flush(ctx)
	}
	cut := c.settledBytes.Swap(0)
	if err := c.Journal.Stamp(lanes.Frontiers()); err != nil {
		c.settledBytes.Add(cut)
		return fmt.Errorf("record the settled horizons: %w", err)
	}
	c.relieve()
	if rotation != nil {
		return fmt.Errorf("rotate the aged segment: %w", rotation)
	}
	return nil
}

// wantsFlush says whether a barrier should force the sinks although nobody
// asked for it.
func (c *Coordinator) wantsFlush(s barrier.Schedule, l Lanes) bool {
	if c.refusing.Load() != 0 {
		return true
	}
	w := s.PressureWatermark()
	return w > 0 && float64(l.HeldBytes()) > w*float64(c.Limit)
}

// Housekeep reclaims at most maxUnlinks settled segments, discharges what a
// rotation left behind, leaves the latch if there is room again, and rotates
// by force when nothing else can ever make room: the log's half of contract
// §5, in its order.
func (c *Coordinator) Housekeep(ctx context.Context, maxUnlinks int) (barrier.Progress, error) {
	select { // what asked for this pass is answered by it
	case <-c.pressure:
	default:
	}
	progress, err := c.reclaim(ctx, maxUnlinks)
	discharge := c.withTurn(ctx, c.Journal.Discharge)
	if progress.Removed > 0 {
		c.leaveLatch(c.roomAgain)
	}
	forced := c.forceRotation(ctx)
	c.observeFloor()
	c.relieve()
	return progress, errors.Join(err, discharge, forced)
}

// reclaim is the pass's two halves: planned and committed under the journal
// lock, its file half under none.
func (c *Coordinator) reclaim(ctx context.Context, maxUnlinks int) (barrier.Progress, error) {
	c.Journal.Lock()
	if !c.Journal.BarrierSeen() {
		c.pass = pass{}
		c.Journal.Unlock()
		return barrier.Progress{}, nil
	}
	plan := c.Journal.Prepare(maxUnlinks)
	c.Journal.Unlock()

	if plan != nil {
		plan.Execute(ctx)
	}

	c.Journal.Lock()
	defer c.Journal.Unlock()
	var p barrier.Progress
	if plan != nil {
		p.Planned, p.Removed, p.Remaining = c.Journal.Commit(plan)
	}
	c.pass = pass{planned: true, removed: p.Removed}
	return p, nil
}

// roomAgain is the latch's condition after a pass that removed a segment.
// Called under the journal lock.
func (c *Coordinator) roomAgain() bool {
	f := c.Journal.Figures()
	return f.Unreclaimed < c.Limit && (c.latch.cause != causeSegments || f.ClosedRetained < c.MaxSegments)
}

// forceRotation ends the current segment when the whole backlog is in it and
// the log refuses for bytes: otherwise no pass could ever free any. Decided
// under the journal lock, done under the writer turn after releasing it.
func (c *Coordinator) forceRotation(ctx context.Context) error {
	c.Journal.Lock()
	needed := c.forcedRotationDue(c.Journal.ReclaimState())
	c.Journal.Unlock()
	if !needed {
		return nil
	}
	if err := c.withTurn(ctx, c.Journal.RotateForced); err != nil {
		return fmt.Errorf("end the segment that holds the whole backlog: %w", err)
	}
	return nil
}

// forcedRotationDue is contract §5's predicate. Called under the journal lock.
func (c *Coordinator) forcedRotationDue(r journal.ReclaimState) bool {
	return c.latch.set && c.latch.cause == causeBytes && c.pass.planned && c.pass.removed == 0 &&
		r.Eligible == 0 && r.Retrying == 0 && r.CurrentHoldsAll && c.Journal.Figures().ClosedRetained < c.MaxSegments
}

// withTurn runs f under the writer turn, or fails if ctx ends before it is its
// turn. Holders of the turn wait for the disk, and a leader for its batch
// window, and for nothing else.
func (c *Coordinator) withTurn(ctx context.Context, f func() error) error {
	select {
	case c.Journal.TurnC() <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the writer turn: %w", context.Cause(ctx))
	}
	defer c.Journal.ReleaseTurn()
	return f()
}

// Pressure delivers a value when both passes should run early.
func (c *Coordinator) Pressure() <-chan struct{} { return c.pressure }

// relieve asks for early passes when the log is over its watermark and they
// would find something to do: a segment's worth of frames settled since the
// last cut, or a segment nobody has tried to unlink yet. Atomics only: it is
// on the ack path.
func (c *Coordinator) relieve() {
	p := c.schedule.Load()
	s := c.Journal.Stats()
	if p == nil || c.settledBytes.Load() < c.SegmentSize && !s.Unattempted {
		return
	}
	w := (*p).PressureWatermark()
	if w <= 0 || float64(s.Unreclaimed) <= w*float64(c.Limit) {
		return
	}
	select {
	case c.pressure <- struct{}{}:
	default:
	}
}
