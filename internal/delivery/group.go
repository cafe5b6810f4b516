// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"math"
	"time"

	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// groupState is where a group is on its way. A settled group is in no state:
// it has left its lane.
type groupState uint8

const (
	gathering groupState = iota // a reader adds frames to it, or it waits for a consumer
	running                     // a consumer has it
	held                        // consumed; a handle keeps it unsettled
	owed                        // an attempt failed, or a sink gave it up: it is to be read again
)

const (
	// maxGroupFrames bounds what a group remembers: with the group itself, to
	// about 10 KiB.
	maxGroupFrames = 512
	// groupBytes and refBytes are what it takes to remember a group and each
	// of its frames.
	groupBytes = 320 // with the handles
	refBytes   = 20
	// maxRemembered bounds, in bytes, what is remembered of unsettled groups
	// of all lanes: of 3 million frames. Beyond it a lane begins no further
	// group before its own are settled, or there is room again; every lane may
	// have one.
	maxRemembered = 64 << 20
	// costUnit is the unit of ref.cost, so that 32 bits hold the estimate of
	// the largest frame (1 GiB × 32).
	costUnit = 256
)

// ref is one frame of a group.
type ref struct {
	offset  uint32 // from the group's start
	length  uint32 // framed, in bytes
	payload uint32 // in bytes
	items   uint32
	cost    uint32 // of holding its payload and its decoded data, in costUnit
}

// group is a run of frames of one lane that is delivered by one Consume call.
// It is the unit of settlement, and between attempts nothing of it is in
// memory but this.
//
// Delivery.mu guards it. While it is running its consumer reads start and refs
// without the lock, and is the only one to change them, under the lock; frames
// is then the consumer's alone.
type group struct {
	lane       *lane
	prev, next *group // in the lane's list, by position
	state      groupState
	slot       int // in the lane's owedDue

	start  journal.Position
	refs   []ref
	oldest int64 // when the first frame was received, unix ns

	items, framed, payload uint64
	cost                   uint64 // bytes

	meta   []byte              // the metadata all frames share; while gathering
	frames []journal.ReadFrame // the frames themselves, or nil: then they are read again

	ready     bool      // gathering: may be dispatched
	queuedFor time.Time // since when it found no room in the budget; zero = it did not ask
	attempts  int       // Consume calls begun
	undurable int       // times a handle was released as not durable
	notBefore bool      // owed: a timer will make it due
	graceOver bool      // the grace for errors not about the data has passed for it
}

// move changes g's state and what its lane counts by it.
func (g *group) move(to groupState, notBefore bool) {
	g.count(-1)
	g.state, g.notBefore = to, notBefore
	g.count(+1)
}

func (g *group) count(by int) {
	switch g.state {
	case gathering:
		g.lane.ahead = nil
		if by > 0 {
			g.lane.ahead = g
		}
	case owed:
		g.lane.owed += by
		if !g.notBefore {
			g.lane.owedDue.move(g, by)
		}
	}
}

func (g *group) position(i int) journal.Position {
	return g.start + journal.Position(g.refs[i].offset)
}

// bounds are what a group stays within, unless it is a single frame.
type bounds struct {
	GroupConfig
	cost uint64 // bytes; so that one group does not take a lane's whole share of the budget
}

// fits reports whether f, which costs cost, may join g. An empty group takes
// any frame.
func (g *group) fits(f *journal.ReadFrame, cost uint64, b *bounds) bool {
	return len(g.refs) == 0 || len(g.refs) < maxGroupFrames &&
		f.Position-g.start <= math.MaxUint32 &&
		g.items+uint64(f.Items) <= b.MaxItems &&
		g.payload+uint64(len(f.Payload)) <= b.MaxBytes &&
		cost <= b.cost && g.cost <= b.cost-cost &&
		bytes.Equal(g.meta, f.Metadata)
}

// add appends f, which fits. cost is what holding it decoded and as received
// takes, in bytes.
func (g *group) add(f *journal.ReadFrame, cost uint64) {
	if len(g.refs) == 0 {
		// The metadata shares memory with the payload, which must not stay.
		g.start, g.oldest, g.meta = f.Position, f.Received, bytes.Clone(f.Metadata)
	}
	g.push(ref{
		offset:  uint32(f.Position - g.start),
		length:  uint32(f.Len),
		payload: uint32(len(f.Payload)),
		items:   f.Items,
		cost:    uint32(min((cost+costUnit-1)/costUnit, math.MaxUint32)),
	})
}

func (g *group) push(r ref) {
	g.refs = append(g.refs, r)
	g.items += uint64(r.items)
	g.framed += uint64(r.length)
	g.payload += uint64(r.payload)
	g.cost += uint64(r.cost) * costUnit
}

// cut makes groups of the frames of g from i on, at most n frames each, and
// leaves the others in g. They inherit what is known of g; their place is
// behind it, in order.
func (g *group) cut(i, n int) []*group {
	rest := g.refs[i:]
	kept := g.refs[:i:i]
	g.refs, g.items, g.framed, g.payload, g.cost = nil, 0, 0, 0, 0
	for _, r := range kept {
		g.push(r)
	}
	var parts []*group
	for len(rest) > 0 {
		k := min(n, len(rest))
		p := &group{
			lane:      g.lane,
			state:     g.state,
			start:     g.start + journal.Position(rest[0].offset),
			oldest:    g.oldest,
			attempts:  g.attempts,
			undurable: g.undurable,
			graceOver: g.graceOver,
		}
		for _, r := range rest[:k] {
			r.offset -= rest[0].offset
			p.push(r)
		}
		parts = append(parts, p)
		rest = rest[k:]
	}
	return parts
}

// forget takes out the frames for which gone is true: they are no longer in
// the log. It returns how many items they had. At least one frame remains.
func (g *group) forget(gone []bool) (items uint64) {
	refs := g.refs
	first := uint32(math.MaxUint32)
	g.refs, g.items, g.framed, g.payload, g.cost = nil, 0, 0, 0, 0
	for i, r := range refs {
		if gone[i] {
			items += uint64(r.items)
			continue
		}
		first = min(first, r.offset)
		r.offset -= first
		g.push(r)
	}
	g.start += journal.Position(first)
	return items
}

// frameRange is what a sink may know of the frames it consumes.
func (g *group) frameRange(logID [16]byte, signal pipeline.Signal) barrier.FrameRange {
	r := barrier.FrameRange{LogID: logID, Tenant: g.lane.id.Tenant, Signal: signal, Frames: make([]barrier.FrameRef, len(g.refs))}
	for i := range g.refs {
		r.Frames[i] = barrier.FrameRef{Position: barrier.Position(g.position(i)), Items: int(g.refs[i].items)}
	}
	return r
}

// groupList is the unsettled groups of a lane, by position.
type groupList struct {
	first, last *group
	n           int
}

func (l *groupList) pushBack(g *group) {
	g.prev, g.next = l.last, nil
	if l.last == nil {
		l.first = g
	} else {
		l.last.next = g
	}
	l.last = g
	l.n++
}

func (l *groupList) insertAfter(at, g *group) {
	if at == l.last {
		l.pushBack(g)
		return
	}
	g.prev, g.next = at, at.next
	at.next.prev, at.next = g, g
	l.n++
}

func (l *groupList) remove(g *group) {
	if g.prev == nil {
		l.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		l.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next = nil, nil
	l.n--
}
