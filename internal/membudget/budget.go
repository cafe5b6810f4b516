// SPDX-License-Identifier: Apache-2.0

// Package membudget bounds the bytes held for requests and for deliveries.
//
// A [Budget] is one atomic count. What is held is charged once, by whoever
// first holds the bytes, and released once, by whoever holds them last: a
// [Charge] carries the count along with the bytes, and [NewBufferPool] does it
// for what grpc-go holds before our code runs.
//
// Requests are refused when there is no room ([Budget.TryAcquire],
// [Charge.Grow]); deliveries wait for it ([Budget.Acquire]). Both let a lone
// holder pass whatever it needs, so that a budget smaller than one request
// slows the log down instead of stopping it.
package membudget // import "github.com/otelweir/weir/internal/membudget"

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// maxCost is more than any process can hold. A larger cost is refused even by
// an empty or unbounded budget, so the count cannot wrap around: up to maxCost
// from a lone holder still leaves as much again for the buffer pool, which is
// never refused.
const maxCost = 1 << 62

// Budget is one atomic count of bytes held, and those that wait for it to
// fall. It is safe for concurrent use.
type Budget struct {
	limit uint64 // 0 = unbounded
	held  atomic.Uint64

	// waiting is the length of waiters: written under mu, read without it.
	waiting atomic.Int64
	mu      sync.Mutex
	waiters list.List // of *waiter, in order of arrival; guarded by mu
}

type waiter struct {
	n     uint64
	ready chan struct{} // closed under mu, once n was charged
}

// New returns a budget of limit bytes; 0 is unbounded.
func New(limit uint64) *Budget { return &Budget{limit: limit} }

// Limit is the budget's size in bytes; 0 is unbounded.
func (b *Budget) Limit() uint64 { return b.limit }

// Held is how many bytes are charged now. It exceeds Limit while a lone holder
// is larger than the budget, and by what grpc-go holds.
func (b *Budget) Held() uint64 { return b.held.Load() }

// Full reports whether what is held reaches the budget.
func (b *Budget) Full() bool { return b.limit != 0 && b.held.Load() >= b.limit }

// TryAcquire charges n bytes unless that is refused: something is held, and n
// more would exceed the limit (contract §7). It is also refused while a
// delivery waits for room.
func (b *Budget) TryAcquire(n uint64) bool {
	return b.waiting.Load() == 0 && b.charge(0, n)
}

// charge adds n bytes for a holder that has own bytes of the count already. A
// holder that is alone always gets them.
func (b *Budget) charge(own, n uint64) bool {
	if n > maxCost {
		return false
	}
	for {
		held := b.held.Load()
		alone := held <= own
		if held > maxCost || !alone && !b.fits(held, n) {
			return false
		}
		if b.held.CompareAndSwap(held, held+n) {
			return true
		}
	}
}

func (b *Budget) fits(held, n uint64) bool {
	return b.limit == 0 || n <= b.limit && held <= b.limit-n
}

// Release gives back n bytes that were acquired, and lets in who waits for
// them. Releasing what is not held is a bug and panics.
func (b *Budget) Release(n uint64) {
	if before := b.held.Add(-n) + n; n > before {
		panic("membudget: more bytes released than are held")
	}
	if b.waiting.Load() != 0 {
		b.mu.Lock()
		b.admit()
		b.mu.Unlock()
	}
}

// Acquire charges n bytes as TryAcquire does, but waits for its turn: first
// come, first served, so that a large delivery is not overtaken for ever by
// small ones. It returns the context's error, holding nothing, when ctx ends
// first, and another for what no process can hold.
func (b *Budget) Acquire(ctx context.Context, n uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n > maxCost { // at the head of the queue it would stop everyone
		return fmt.Errorf("membudget: %d bytes are more than any process can hold", n)
	}
	if b.TryAcquire(n) {
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.mu.Lock()
	e := b.waiters.PushBack(w)
	b.waiting.Add(1)
	b.admit() // a release may have come before waiting was seen
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	select {
	case <-w.ready: // admitted meanwhile; ctx wins
		b.mu.Unlock()
		b.Release(n)
	default:
		b.waiters.Remove(e)
		b.waiting.Add(-1)
		b.admit() // who came after may need less
		b.mu.Unlock()
	}
	return ctx.Err()
}

// admit lets waiters in, first come first served, while there is room. mu is
// held.
func (b *Budget) admit() {
	for e := b.waiters.Front(); e != nil; e = b.waiters.Front() {
		w := e.Value.(*waiter)
		if !b.charge(0, w.n) {
			return
		}
		b.waiters.Remove(e)
		b.waiting.Add(-1)
		close(w.ready)
	}
}
