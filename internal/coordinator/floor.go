// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// States of the retain floor (contract §5).
const (
	FloorUnknown = "unknown" // no pass yet
	FloorNone    = "none"    // nothing is held
	FloorMin     = "min"     // the lowest horizon among lanes with frames
	FloorPinned  = "pinned"  // a lane of which nothing ever settled holds it
)

// FloorStates are all of them.
var FloorStates = []string{FloorUnknown, FloorNone, FloorMin, FloorPinned}

// floors remembers since when a lane has had frames and no horizon, by the
// monotonic clock: received times are wall clock and decide nothing. Owned by
// the maintenance goroutine.
type floors struct {
	unsettledSince map[journal.Lane]time.Time
}

// observeFloor works out what keeps the oldest segments, publishes it and
// emits its transitions.
func (c *Coordinator) observeFloor() {
	lanes := c.Journal.Lanes()
	durable := c.Journal.Durable()
	now := time.Now()

	since := make(map[journal.Lane]time.Time)
	var held, pinned []journal.LaneInfo // with frames that are not settled
	for _, l := range lanes {
		if l.Last < l.Horizon {
			continue
		}
		held = append(held, l)
		if l.Horizon > 0 {
			continue
		}
		t, ok := c.floors.unsettledSince[l.Lane]
		if !ok {
			t = now
		}
		since[l.Lane] = t
		if p := c.schedule.Load(); p != nil && now.Sub(t) > 2*(*p).BarrierInterval() {
			pinned = append(pinned, l)
		}
	}
	c.floors.unsettledSince = since

	next := barrier.FloorStatus{State: FloorNone}
	switch {
	case len(pinned) > 0:
		slices.SortFunc(pinned, byFirst)
		next = c.floorAt(FloorPinned, pinned[0], durable)
		for _, l := range pinned[1:] {
			next.Lanes = append(next.Lanes, l.Lane.String())
		}
	case len(held) > 0:
		next = c.floorAt(FloorMin, slices.MinFunc(held, byFirst), durable)
	}
	before := c.floor.Swap(&next)
	fields := []zap.Field{
		zap.Uint64("position", uint64(next.Position)), zap.Uint64("lag", next.LagBytes), zap.Strings("lanes", next.Lanes),
	}
	switch was, is := before.State == FloorPinned, next.State == FloorPinned; {
	case is && !was:
		c.Logger.Warn("Lanes of which nothing was ever delivered hold the oldest segments",
			append(fields, zap.String("event.name", "wal.retain_floor.pinned"))...)
	case was && !is:
		c.Logger.Info("No lane pins the oldest segments any more",
			append(fields, zap.String("event.name", "wal.retain_floor.lifted"))...)
	}
}

func byFirst(a, b journal.LaneInfo) int { return cmp.Compare(a.First, b.First) }

func (c *Coordinator) floorAt(state string, l journal.LaneInfo, durable journal.Position) barrier.FloorStatus {
	return barrier.FloorStatus{
		State: state, Position: barrier.Position(l.First), LagBytes: durable - l.First, LagSegments: c.Journal.SegmentsFrom(l.First),
		Lanes: []string{l.Lane.String()},
	}
}

// Floor is what keeps the oldest segments, as of the last pass.
func (c *Coordinator) Floor() barrier.FloorStatus { return *c.floor.Load() }
