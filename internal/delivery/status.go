// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// tally is items and frame bytes, from start on.
type tally struct{ items, size atomic.Uint64 }

// counts are what is counted per signal.
type counts struct {
	settled      tally // consumed and durable
	deadLettered tally
	dropped      tally
	redelivered  atomic.Uint64 // items
	pending      atomic.Int64  // items
}

// tallyOf picks one of the tallies.
type tallyOf func(*counts) *tally

func settledTally(c *counts) *tally    { return &c.settled }
func deadLetterTally(c *counts) *tally { return &c.deadLettered }
func droppedTally(c *counts) *tally    { return &c.dropped }

func (c *counts) read() SignalStats {
	return SignalStats{
		Settled:          c.settled.read(),
		DeadLettered:     c.deadLettered.read(),
		Dropped:          c.dropped.read(),
		RedeliveredItems: c.redelivered.Load(),
		PendingItems:     uint64(max(c.pending.Load(), 0)),
	}
}

func (d *Delivery) count(l *lane) *counts { return &d.counts[l.id.Kind] }

// Tally is a number of items and of frame bytes.
type Tally struct{ Items, Size uint64 }

// SignalStats are figures of one signal. Tallies only grow.
type SignalStats struct {
	Settled          Tally  // consumed, and every handle released as durable
	DeadLettered     Tally  // stored as dead letters
	Dropped          Tally  // settled because a policy says drop
	RedeliveredItems uint64 // consumed, or tried, again in this run
	PendingItems     uint64 // in the log and found by recovery or met by the main reader, not settled
}

// Stats are figures for metric callbacks; reading them takes no lock.
type Stats struct {
	Signals       map[journal.Kind]SignalStats // every known kind is there
	Parked        int                          // lanes that wait to try their head again, blocked ones and those at damage included
	InFlight      uint64                       // bytes of what is being delivered
	InFlightLimit uint64                       // 0 = unbounded
	HeldBytes     uint64                       // see HeldBytes
	LostItems     uint64                       // of frames that were pending and found to have been set aside as damaged
}

// Stats reads the figures.
func (d *Delivery) Stats() Stats {
	s := Stats{
		Signals:       make(map[journal.Kind]SignalStats, len(d.counts)),
		Parked:        int(d.parked.Load()),
		InFlight:      d.budget.Held(),
		InFlightLimit: d.budget.Limit(),
		HeldBytes:     d.heldBytes.Load(),
		LostItems:     d.lost.Load(),
	}
	for k := journal.KindLogs; k <= journal.KindProfiles; k++ {
		s.Signals[k] = d.counts[k].read()
	}
	return s
}

// LaneStats are the same figures per lane, of the lanes there are, and what
// those had counted that were forgotten (see Config.KeepLanes). Such a lane
// counts from 0 when it comes back.
func (d *Delivery) LaneStats() (lanes map[journal.Lane]SignalStats, forgotten map[journal.Kind]SignalStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lanes = make(map[journal.Lane]SignalStats, len(d.lanes))
	for id, l := range d.lanes {
		lanes[id] = l.counts.read()
	}
	forgotten = make(map[journal.Kind]SignalStats, len(d.gone))
	for k := journal.KindLogs; k <= journal.KindProfiles; k++ {
		forgotten[k] = d.gone[k]
	}
	return lanes, forgotten
}

func (s *SignalStats) add(more SignalStats) {
	s.Settled.add(more.Settled)
	s.DeadLettered.add(more.DeadLettered)
	s.Dropped.add(more.Dropped)
	s.RedeliveredItems += more.RedeliveredItems
	s.PendingItems += more.PendingItems
}

func (t *Tally) add(more Tally) {
	t.Items += more.Items
	t.Size += more.Size
}

func (t *tally) read() Tally { return Tally{Items: t.items.Load(), Size: t.size.Load()} }

// Damage is the first *journal.DamageError that a reader can not get past, or nil.
// Only a repair and a restart end it.
func (d *Delivery) Damage() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.damages) == 0 {
		return nil
	}
	return d.damages[0]
}

// ReadError is why a reader does not get on at present, or nil. It tries again
// without end.
func (d *Delivery) ReadError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.mainError, d.lapError)
}

// errFull is what a lane waits for that does not get on for want of room.
const errFull = "waits for what is unsettled: the log remembers no more of it before sinks release some"

// Lanes describes every lane, ordered by tenant and signal.
func (d *Delivery) Lanes() []barrier.LaneStatus {
	ledger := map[journal.Lane]journal.LaneInfo{}
	for _, info := range d.source.Lanes() {
		ledger[info.Lane] = info
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]barrier.LaneStatus, 0, len(d.lanes))
	for id, l := range d.lanes {
		info, inLog := ledger[id]
		if !inLog && l.groups.n == 0 {
			continue
		}
		s := barrier.LaneStatus{
			Tenant:    id.Tenant,
			Signal:    l.signal.String(),
			Frontier:  barrier.Position(l.frontier(d.main)),
			Horizon:   barrier.Position(info.Horizon),
			Pending:   uint64(max(l.counts.pending.Load(), 0)),
			State:     string(l.state()),
			Attempts:  l.attempts,
			NextTry:   l.due,
			LastError: l.lastError,
		}
		if l.stuck && l.full {
			s.LastError = cmp.Or(s.LastError, errFull)
		}
		if inLog && info.Last >= journal.Position(s.Frontier) {
			s.LagBytes = info.Last - journal.Position(s.Frontier)
		}
		switch g := l.groups.first; {
		case g != nil && g.oldest != 0:
			s.Oldest = time.Unix(0, g.oldest)
		case s.Pending > 0 && info.Oldest != 0:
			s.Oldest = time.Unix(0, info.Oldest)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b barrier.LaneStatus) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Signal, b.Signal))
	})
	return out
}
