// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"container/heap"
	"iter"
)

// line is lanes that wait for a consumer, first come first served. A lane is
// in one at most.
type line struct{ first, last *lane }

// place is where a lane is in line.
type place struct {
	in         *line // nil: in none
	prev, next *lane
}

// push puts l at the end, if it is in no line yet.
func (q *line) push(l *lane) {
	if l.line.in != nil {
		return
	}
	l.line = place{in: q, prev: q.last}
	if q.last == nil {
		q.first = l
	} else {
		q.last.line.next = l
	}
	q.last = l
}

// remove takes l out, if it is in this line.
func (q *line) remove(l *lane) {
	at := l.line
	if at.in != q {
		return
	}
	if at.prev == nil {
		q.first = at.next
	} else {
		at.prev.line.next = at.next
	}
	if at.next == nil {
		q.last = at.prev
	} else {
		at.next.line.prev = at.prev
	}
	l.line = place{}
}

// all goes through the line; the lane at hand may be removed meanwhile.
func (q *line) all() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for l := q.first; l != nil; {
			next := l.line.next
			if !yield(l) {
				return
			}
			l = next
		}
	}
}

// byPosition is a heap of groups, the one that begins first on top.
type byPosition []*group

// first is the first group, or nil.
func (h byPosition) first() *group {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

// move puts g in (by > 0) or takes it out.
func (h *byPosition) move(g *group, by int) {
	if by > 0 {
		heap.Push(h, g)
	} else {
		heap.Remove(h, g.slot)
	}
}

// Len, Less, Swap, Push and Pop are [heap.Interface].

func (h byPosition) Len() int           { return len(h) }
func (h byPosition) Less(i, j int) bool { return h[i].start < h[j].start }

func (h byPosition) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *byPosition) Push(x any) {
	g := x.(*group)
	g.slot = len(*h)
	*h = append(*h, g)
}

func (h *byPosition) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return g
}
