// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
)

// Ticket is a queued frame. It lives in its Frame.
type Ticket struct {
	frame  *Frame
	framed uint64
	lane   *lane
	rotate bool // a rotation is queued before this frame

	done     chan struct{}
	position Position
	err      error
}

// Done is closed when the frame's outcome is known and its buffers are no
// longer referenced.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Outcome is the frame's position, or why it has none: *AppendError when the
// frame is undecided, *RotationRefused when nothing of it was written. Valid
// after Done.
func (t *Ticket) Outcome() (Position, error) { return t.position, t.err }

// AppendError says that the write or the sync of a frame's group failed. The
// frame is undecided: it may or may not be found after a restart.
type AppendError struct {
	Op  string // "append" or "sync"
	Err error
}

func (e *AppendError) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

func (e *AppendError) Unwrap() error { return e.Err }

// RotationRefused says that a frame needed a new segment, or a volume that
// takes bytes, and there was none: nothing of the frame was written. State
// says which it was.
type RotationRefused struct{ State RotationState }

func (e *RotationRefused) Error() string {
	return fmt.Sprintf("rotation %s: %v", e.State.Kind, e.State.Cause)
}

func (e *RotationRefused) Unwrap() error { return e.State.Cause }

// ErrClosed is the outcome of a frame that was still queued when the log was
// closed, and the error of what needs an open log.
var ErrClosed = errors.New("the log is closed")

// Rotation is one evaluation of "rotation due" for a frame at the end of the
// queue. It holds until the journal lock is released.
type Rotation struct {
	Due       bool // this append waits for a rotation or for one's discharge
	Owed      bool // that rotation must happen anyway: it needs no segment slot
	ByAge     bool
	AtCeiling bool // Due, not Owed, and no segment slot is left

	queue bool // a rotation has to be queued before the frame
}

// Figures are the ledger's, each O(1).
type Figures struct {
	// Unreclaimed is the framed length of everything that takes room in the
	// log: frames settled or not, gaps, reserved and failed bytes.
	Unreclaimed uint64
	Unflushed   uint64 // of these: reserved or written, not yet durable
	// ClosedRetained counts closed segments; QueuedRotations those that are
	// yet to be closed by rotations queued or owed.
	ClosedRetained, QueuedRotations, Sealed int
	CurrentBytes                            uint64 // of Unreclaimed: in or queued for the current segment
}

// queue is what waits to be written, in order. Guarded by the journal lock.
type queue struct {
	tickets []*Ticket
	head    int
	// tail is what the segment at the queue's end holds or is to hold, in
	// framed bytes.
	tail      uint64
	rotations int  // tickets with rotate set
	owed      bool // the current segment has ended: a rotation comes before any frame
	// undischarged: the current segment's directory entry may not be durable;
	// no group is written to it before it is.
	undischarged bool
}

func (q *queue) len() int { return len(q.tickets) - q.head }

func (q *queue) first() *Ticket { return q.tickets[q.head] }

func (q *queue) push(t *Ticket) { q.tickets = append(q.tickets, t) }

// pop takes n tickets off the front and appends them to into.
func (q *queue) pop(n int, into []*Ticket) []*Ticket {
	into = append(into, q.tickets[q.head:q.head+n]...)
	clear(q.tickets[q.head : q.head+n])
	q.head += n
	if q.head == len(q.tickets) {
		q.tickets, q.head = q.tickets[:0], 0
	}
	return into
}

// pending is how many segments the queue will close.
func (q *queue) pending() int {
	if q.owed {
		return q.rotations + 1
	}
	return q.rotations
}

// Figures are the ledger's. Call it under the journal lock.
func (j *Journal) Figures() Figures {
	return Figures{
		Unreclaimed:     j.ledger.unreclaimed,
		Unflushed:       j.ledger.reserved,
		ClosedRetained:  j.ledger.closed,
		QueuedRotations: j.queue.pending(),
		Sealed:          j.ledger.sealed,
		CurrentBytes:    j.ledger.unreclaimed - j.ledger.closedBytes - j.queuedElsewhere(),
	}
}

// queuedElsewhere is what is reserved for segments behind the current one.
func (j *Journal) queuedElsewhere() uint64 {
	if j.queue.owed {
		return j.ledger.reserved
	}
	return j.behind
}

// RotationDue says whether a frame of so many bytes, put at the end of the
// queue, would need a new segment. Call it under the journal lock, in the same
// hold as Enqueue.
func (j *Journal) RotationDue(framed uint64) Rotation {
	q := &j.queue
	r := Rotation{Owed: q.owed || q.undischarged}
	switch {
	case q.tail > 0 && (framed > j.room || q.tail > j.room-framed):
		r.queue, r.Owed = true, false
	case !r.Owed && q.len() == 0 && j.agedLocked():
		r.queue, r.ByAge = true, true
	}
	r.Due = r.Owed || r.queue
	// closed after this rotation must be within the cap
	r.AtCeiling = r.queue && j.ledger.closed+q.pending()+1 > j.maxSegments
	if r.ByAge && (r.AtCeiling || j.rotation.kind != RotationHealthy) { // age never refuses
		return Rotation{}
	}
	return r
}

// RotationState is the state of rotation. Call it under the journal lock.
func (j *Journal) RotationState() RotationState { return j.rotation.snapshot() }

// Enqueue reserves the frame's bytes and queues it; it has no position yet.
// The frame must have been summed. Call it under the journal lock with the
// token RotationDue gave in the same hold.
func (j *Journal) Enqueue(f *Frame, r Rotation) *Ticket {
	t := &f.ticket
	t.done = make(chan struct{})
	if j.closed {
		t.err = &AppendError{Op: "append", Err: ErrClosed}
		close(t.done)
		return t
	}
	t.lane = j.ledger.lane(f.Tenant, f.Kind)
	j.ledger.seat(t.lane.tenant)
	t.rotate = r.queue
	q := &j.queue
	if t.rotate {
		q.rotations++
		q.tail = 0
	}
	q.tail += t.framed
	if q.rotations > 0 {
		j.behind += t.framed
	}
	q.push(t)
	j.ledger.reserved += t.framed
	j.ledger.unreclaimed += t.framed
	j.published.unreclaimed.Store(j.ledger.unreclaimed)
	j.published.unflushed.Store(j.ledger.reserved)
	j.published.seats.Store(int64(j.ledger.seatsTaken))
	return t
}

// TenantSeated says whether the tenant has a seat: a segment holds a durable
// frame of it, or one is queued. Call it under the journal lock.
func (j *Journal) TenantSeated(name string) bool {
	t := j.ledger.tenants[name]
	return t != nil
}

// Seats counts the tenants with a durable frame and those with a queued one
// only. Call it under the journal lock.
func (j *Journal) Seats() (held, reserved int) { return j.ledger.held, j.ledger.seatsTaken }

// requeue places rotations anew before what is queued, after the current
// segment ended: the owed rotation stands for every one queued so far, and
// where what follows would not fit into one segment another is owed.
func (j *Journal) requeue() {
	q := &j.queue
	q.rotations, q.tail, j.behind = 0, 0, 0
	for _, t := range q.tickets[q.head:] {
		t.rotate = q.tail > 0 && q.tail+t.framed > j.room
		if t.rotate {
			q.rotations++
			q.tail = 0
		}
		q.tail += t.framed
		if q.rotations > 0 {
			j.behind += t.framed
		}
	}
}

// drop takes everything off the queue with its reservations. Its caller tells
// the tickets' outcome after the lock.
func (j *Journal) drop(into []*Ticket) []*Ticket {
	q := &j.queue
	n := q.len()
	for _, t := range q.tickets[q.head:] {
		j.release(t)
	}
	into = q.pop(n, into)
	q.rotations, j.behind = 0, 0
	q.tail = j.tailOfCurrent()
	j.publish()
	return into
}

// tailOfCurrent is what the segment that frames go to next holds already.
func (j *Journal) tailOfCurrent() uint64 {
	if j.queue.owed {
		return 0
	}
	return j.ledger.current().bytes()
}

// release returns a ticket's reservation.
func (j *Journal) release(t *Ticket) {
	j.ledger.reserved -= t.framed
	j.ledger.unreclaimed -= t.framed
	j.ledger.unseat(t.lane.tenant)
}

// tell publishes the outcome of tickets. No lock is held.
func tell(tickets []*Ticket, err error) {
	for _, t := range tickets {
		t.err = err
		t.frame = nil
		close(t.done)
	}
}
