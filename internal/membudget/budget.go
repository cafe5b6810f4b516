// SPDX-License-Identifier: Apache-2.0

// Package membudget bounds the bytes held for requests and for deliveries.
//
// A [Budget] is one atomic count. What is held is charged once, by whoever
// first holds the bytes, and released once, by whoever holds them last: a
// [Charge] carries the count along with the bytes, and [NewBufferPool] does it
// for what grpc-go holds before our code runs.
//
// Without room [Budget.TryAcquire] and [Charge.Grow] say no: requests are then
// refused, deliveries tried again later. Both let a lone holder pass whatever
// it needs, so that a budget smaller than one request slows the log down
// instead of stopping it.
package membudget // import "github.com/otelweir/weir/internal/membudget"

import "sync/atomic"

// maxCost is more than any process can hold. A larger cost is refused even by
// an empty or unbounded budget, so the count cannot wrap around: up to maxCost
// from a lone holder still leaves as much again for the buffer pool, which is
// never refused.
const maxCost = 1 << 62

// Budget is one atomic count of bytes held. It is safe for concurrent use.
type Budget struct {
	limit     uint64 // 0 = unbounded
	held      atomic.Uint64
	transport atomic.Uint64 // of held: what grpc-go has of messages
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
// more would exceed the limit (contract §7).
func (b *Budget) TryAcquire(n uint64) bool { return b.charge(0, 0, n) }

// charge adds n bytes for a holder that has own bytes of the count already;
// aside are bytes that do not count. A holder that is alone always gets them.
func (b *Budget) charge(own, aside, n uint64) bool {
	if n > maxCost {
		return false
	}
	for {
		held := b.held.Load()
		counted := held - min(held, aside)
		alone := counted <= own
		if held > maxCost || !alone && !b.fits(counted, n) {
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

// Release gives back n bytes that were acquired. Releasing what is not held is
// a bug and panics.
func (b *Budget) Release(n uint64) {
	if before := b.held.Add(-n) + n; n > before {
		panic("membudget: more bytes released than are held")
	}
}
