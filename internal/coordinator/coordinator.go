// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// Settings are what a coordinator is made of.
type Settings struct {
	Journal *journal.Journal

	Limit        uint64        // bytes; unreclaimed frame bytes never exceed it
	MaxSegments  int           // closed segments retained
	MaxTenants   int           // tenants seated at once
	MaxFrameSize uint64        // bytes, as framed
	SegmentSize  uint64        // bytes; how much must settle between two pressure passes
	BatchWindow  time.Duration // extra wait of a leader before it cuts a group that is not full yet
	GroupCap     uint64        // bytes of a full group; 0 = the journal's default

	Logger *zap.Logger
	// Changed is called after every transition of the latch, outside all
	// locks; nil is allowed.
	Changed func()
}

// Lanes is what the coordinator needs of delivery.
type Lanes interface {
	// Frontiers is the settled frontier of every lane.
	Frontiers() map[journal.Lane]journal.Position
	// HeldBytes is how many frame bytes are unsettled only because a sink
	// holds a handle on them.
	HeldBytes() uint64
}

// Coordinator is safe for concurrent use, except Barrier and Housekeep.
type Coordinator struct {
	Settings

	schedule atomic.Pointer[barrier.Schedule]
	lanes    atomic.Pointer[Lanes]

	latch  latch // guarded by the journal lock
	pass   pass  // the last finished housekeeping pass; guarded by the journal lock
	closed bool  // guarded by the journal lock

	refusing     atomic.Uint32 // mirrors latch.set and its cause, for those who do not hold the lock: 0, or 1 + cause
	last         lastRefusals
	settledBytes atomic.Uint64 // settled since the last cut of a barrier
	pressure     chan struct{}

	floors floors // owned by the maintenance goroutine
	floor  atomic.Pointer[barrier.FloorStatus]

	queued sync.WaitGroup // frames admitted whose outcome is not known; added to under the journal lock
}

// New returns a coordinator that admits at once. Until [Coordinator.Bind] a
// refusal carries the minimum delay and Barrier does nothing.
func New(s Settings) *Coordinator {
	if s.Logger == nil {
		s.Logger = zap.NewNop()
	}
	if s.Changed == nil {
		s.Changed = func() {}
	}
	if s.GroupCap == 0 {
		s.GroupCap = journal.DefaultGroupCap
	}
	c := &Coordinator{Settings: s, pressure: make(chan struct{}, 1)}
	c.floor.Store(&barrier.FloorStatus{State: FloorUnknown})
	return c
}

// Bind tells the coordinator when maintenance is due and what is settled.
func (c *Coordinator) Bind(s barrier.Schedule, l Lanes) {
	c.schedule.Store(&s)
	c.lanes.Store(&l)
}

// Close refuses every further frame and waits until the outcome of those
// admitted is known, their callers' or not: as long as the disk takes.
func (c *Coordinator) Close() {
	c.Journal.Lock()
	c.closed = true
	c.Journal.Unlock()
	c.queued.Wait()
}

// Commit makes f durable and returns its position, or a *refusal.Error. It is
// the admission sequence of contract §1 from the frame bound on.
//
// done is called exactly once, when nothing refers to f's buffers any more, and
// is told whether f is durable: usually before Commit returns, later when ctx
// ended while f was queued. Such a frame is undecided for its sender.
func (c *Coordinator) Commit(ctx context.Context, f *journal.Frame, done func(durable bool)) (journal.Position, error) {
	framed := f.FramedLen()
	if framed > c.MaxFrameSize {
		done(false)
		return 0, tooLarge(framed, c.MaxFrameSize)
	}
	f.Sum()
	now := time.Now()

	c.Journal.Lock()
	ticket, v := c.admit(f, framed, now)
	c.Journal.Unlock()

	if ticket == nil {
		done(false)
		return 0, c.refuse(v, now)
	}
	if err := c.await(ctx, ticket); err != nil {
		go func() { // somebody has to see the frame to its end; c.queued counts it
			_ = c.await(context.Background(), ticket) // which never ends
			_, err := ticket.Outcome()
			done(err == nil)
			c.queued.Done()
		}()
		return 0, abandoned(err)
	}
	pos, err := ticket.Outcome()
	done(err == nil)
	c.queued.Done()
	if err != nil {
		return 0, fromOutcome(err, time.Now())
	}
	c.acknowledged()
	return pos, nil
}

// await returns nil once the ticket's outcome is known. Whoever holds the
// writer turn works for all that is queued; a leader ignores its own ctx until
// its step is done.
func (c *Coordinator) await(ctx context.Context, t *journal.Ticket) error {
	turn := c.Journal.TurnC()
	for {
		select {
		case <-t.Done():
			return nil
		default:
		}
		select {
		case <-t.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case turn <- struct{}{}:
			c.lead(t)
		}
	}
}

// lead does one step of the queue's work under the writer turn.
func (c *Coordinator) lead(t *journal.Ticket) {
	defer c.Journal.ReleaseTurn()
	select {
	case <-t.Done(): // somebody else's step decided it meanwhile
		return
	default:
	}
	if c.BatchWindow > 0 && c.Journal.Stats().Unflushed < c.GroupCap {
		time.Sleep(c.BatchWindow)
	}
	c.Journal.Advance()
}

// acknowledged is called for every append that is acknowledged, before its
// response: it leaves the latch.
func (c *Coordinator) acknowledged() {
	if c.refusing.Load() != 0 {
		c.leaveLatch(func() bool { return true })
	}
	c.relieve()
}

// Settled tells that n more frame bytes were settled.
func (c *Coordinator) Settled(n uint64) {
	c.settledBytes.Add(n)
	c.relieve()
}
