// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// States of the retain floor (contract §5).
const (
	floorUnknown = "unknown" // no pass yet
	floorNone    = "none"    // nothing is held
	floorMin     = "min"     // the lowest horizon among lanes with frames
	floorPinned  = "pinned"  // a lane of which nothing ever settled holds it
)

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

	since := make(map[journal.Lane]time.Time, len(lanes))
	next := &barrier.FloorStatus{State: floorNone}
	lowest, pinned := -1, []int(nil)
	for i := range lanes {
		l := &lanes[i]
		if l.Last < l.Horizon {
			continue // nothing of it is outstanding
		}
		if l.Horizon == 0 {
			t, ok := c.floors.unsettledSince[l.Lane]
			if !ok {
				t = now
			}
			since[l.Lane] = t
			if p := c.schedule.Load(); p != nil && now.Sub(t) > 2*(*p).BarrierInterval() {
				pinned = append(pinned, i)
			}
		}
		if lowest < 0 || max(l.First, l.Horizon) < max(lanes[lowest].First, lanes[lowest].Horizon) {
			lowest = i
		}
	}
	c.floors.unsettledSince = since

	if lowest >= 0 {
		l := &lanes[lowest]
		at := max(l.First, l.Horizon)
		next.State, next.Position = floorMin, barrier.Position(at)
		next.LagBytes, next.LagSegments = durable-at, l.Segments
		next.Lanes = []string{laneName(l.Lane)}
	}
	if len(pinned) > 0 {
		next.State, next.Lanes = floorPinned, nil
		for _, i := range pinned {
			next.Lanes = append(next.Lanes, laneName(lanes[i].Lane))
		}
		slices.Sort(next.Lanes)
		next.Position = barrier.Position(lanes[pinned[0]].First)
	}
	before := c.floor.Swap(next)
	if was, is := before.State == floorPinned, next.State == floorPinned; was != is {
		name, text := "wal.retain_floor.pinned", "Lanes of which nothing was ever delivered hold the oldest segments"
		if was {
			name, text = "wal.retain_floor.lifted", "No lane pins the oldest segments any more"
		}
		c.Logger.Warn(text, zap.String("event.name", name), zap.Uint64("position", uint64(next.Position)),
			zap.Uint64("lag", next.LagBytes), zap.Strings("lanes", next.Lanes))
	}
}

// Floor is what keeps the oldest segments, as of the last pass.
func (c *Coordinator) Floor() barrier.FloorStatus { return *c.floor.Load() }

// laneName is how people are told of a lane: "logs", or "logs of acme".
func laneName(l journal.Lane) string {
	signal := l.Kind.String()
	if l.Tenant == "" {
		return signal
	}
	return signal + " of " + l.Tenant
}
