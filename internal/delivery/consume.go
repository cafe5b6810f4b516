// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// ending is how a run of a group ended.
type ending uint8

const (
	failed    ending = iota // the frames stay and are tried again
	consumed                // Consume returned nil
	buried                  // stored as dead letters
	discarded               // dropped, by policy
	divided                 // failed permanently as a whole: each frame is to be tried alone
	refused                 // failed permanently and nowhere to go: the lane is blocked
	vanished                // no frame of it is in the log any more
)

// panicError is a panic in a pipeline. It is retryable: the frames stay.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic in Consume: %v", e.value) }

// run is one attempt on one group, in its own goroutine.
type run struct {
	d       *Delivery
	g       *group
	retry   bool
	doubt   bool // the lane was in doubt when it began
	began   time.Time
	charged uint64
	handles *handles // of the Consume call

	cancelled bool // by us: the timeout of the Consume call passed, or delivery stops
}

func (r *run) run() {
	defer r.d.runs.Done()
	how, err := r.attempt()
	r.finish(how, err)
}

func (r *run) attempt() (ending, error) {
	d, g := r.d, r.g
	frames, err := r.frames()
	if err != nil {
		return failed, err
	}
	if len(frames) == 0 {
		return vanished, nil
	}
	kind := g.lane.id.Kind
	if !d.next.takes(kind) {
		return r.bury(frames, errors.New("no pipeline takes "+g.lane.signal.String()))
	}
	metadata := bytes.Clone(frames[0].Metadata) // it shares memory with the payload
	consume, err := d.next.decode(kind, frames)
	if err != nil {
		return r.condemn(err)
	}
	r.decoded()

	began := time.Now()
	err = r.consume(consume, metadata)
	took := time.Since(began)
	if err == nil {
		d.onConsumed(g.lane.signal, took, "success")
		return consumed, nil
	}
	v := judge(err)
	if r.cancelled {
		v = retryable // what it says of the data may be made of the cancellation
	}
	if v == retryable {
		d.onConsumed(g.lane.signal, took, "retryable")
	} else {
		d.onConsumed(g.lane.signal, took, "permanent")
	}
	if err := d.sustain(g, v, err); err != nil {
		return failed, err
	}
	return r.condemn(err)
}

// decoded gives back what the frames as received took.
func (r *run) decoded() {
	d := r.d
	d.mu.Lock()
	defer d.unlock()
	for _, u := range r.uses() {
		u.charged -= r.g.payload
	}
	r.charged -= r.g.payload
	d.budget.Release(r.g.payload)
	d.dispatch()
}

// consume calls the pipeline and survives it.
func (r *run) consume(f consumeFunc, metadata []byte) (err error) {
	d, g := r.d, r.g
	ctx, cancel := d.base, context.CancelFunc(func() {})
	if d.cfg.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d.cfg.Timeout, fmt.Errorf("no answer within the delivery timeout of %v", d.cfg.Timeout))
	}
	defer cancel()
	if ctx, err = d.withClient(ctx, metadata); err != nil {
		return consumererror.NewPermanent(err)
	}
	r.handles = &handles{d: d, g: g}
	ctx = barrier.NewContext(ctx, g.frameRange(d.logID, g.lane.signal), r.handles.retain)
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
		cause := context.Cause(ctx)
		r.cancelled = cause != nil
		if err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}()
	d.consuming.Add(1)
	defer d.consuming.Add(-1)
	return f(ctx)
}

// frames are the group's frames: those kept in memory, or read again. What is
// no longer in the log (damage, set aside by the quarantine policy) is taken
// out of the group.
func (r *run) frames() ([]journal.ReadFrame, error) {
	if frames := r.g.frames; frames != nil {
		r.g.frames = nil
		return frames, nil
	}
	frames, gone, err := r.d.read(r.g)
	if err != nil || len(frames) == len(r.g.refs) || len(frames) == 0 {
		return frames, err
	}
	r.d.mu.Lock()
	defer r.d.unlock()
	before := len(r.g.refs)
	r.d.lose(r.g.lane, r.g.forget(gone))
	r.d.release(refBytes * (before - len(r.g.refs)))
	return frames, nil
}

// read reads the frames of a group from the log. gone says which are not
// there.
func (d *Delivery) read(g *group) (frames []journal.ReadFrame, gone []bool, err error) {
	rd, _ := d.rereaders.Get().(reader)
	if rd == nil {
		rd = d.source.reader(g.start)
	}
	defer func() {
		_ = rd.Close() // an open file would keep a reclaimed segment's space
		d.rereaders.Put(rd)
	}()
	frames = make([]journal.ReadFrame, 0, len(g.refs))
	gone = make([]bool, len(g.refs))
	for i := range g.refs {
		p := g.position(i)
		if rd.Position() != p {
			rd.Seek(p)
		}
		f, err := rd.Next()
		switch {
		case err == nil && f.Position == p:
			frames = append(frames, f)
		case err == nil, errors.Is(err, io.EOF): // a gap takes its place
			gone[i] = true
		default:
			return nil, nil, fmt.Errorf("read the frame at position %d again: %w", p, err)
		}
	}
	return frames, gone, nil
}

// finish settles what the attempt settled, and gives the consumer to the next.
func (r *run) finish(how ending, err error) {
	d, g := r.d, r.g
	d.mu.Lock()
	defer d.unlock()
	d.ended(r)
	l := g.lane
	open, undurable := r.handles.close(how == consumed)
	switch how {
	case consumed:
		l.consumed, l.graceSince = time.Now(), time.Time{}
		switch {
		case undurable:
			d.again(g)
		case open:
			d.hold(g)
		default:
			d.settle(g, settledTally)
		}
	case buried:
		d.settle(g, deadLetterTally)
	case discarded:
		d.settle(g, droppedTally)
	case vanished:
		d.lose(l, g.items)
		d.remove(g)
	case divided:
		g.move(owed, false)
		d.insert(g, g.cut(1, 1))
	case failed, refused:
		g.move(owed, false)
	}
	switch how {
	case failed:
		_ = d.meet(err)
		d.blameSignal(r)
		d.halt(l, parked, r.retry, err)
	case refused:
		d.halt(l, blocked, r.retry, err)
	default:
		if r.retry {
			d.resume(l, how)
		}
	}
	d.enqueue(l)
	d.want(l)
	d.dispatch()
}
