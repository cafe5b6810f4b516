// SPDX-License-Identifier: Apache-2.0

package membudget

import "sync/atomic"

// Charge is what one request holds of a budget. It travels with the request's
// bytes: everyone who keeps them takes a hold, and the last one to let go
// releases the charge — not the caller, who may have given up long before.
type Charge struct {
	budget *Budget
	// n is written by Grow, whose caller has a hold, and read by the last
	// Release, which the count of holders orders after it.
	n       uint64
	holders atomic.Int64
}

// NewCharge returns a charge of 0 bytes with one holder.
func (b *Budget) NewCharge() *Charge {
	c := &Charge{budget: b}
	c.holders.Store(1)
	return c
}

// Grow charges n more bytes; false is a refusal, by the rule of
// [Budget.TryAcquire] with this charge's own bytes not counting against it: a
// lone request may grow past the budget. The charge keeps what it had. Only a
// holder may call it, and not concurrently.
func (c *Charge) Grow(n uint64) bool {
	if c.budget.waiting.Load() != 0 || !c.budget.charge(c.n, n) {
		return false
	}
	c.n += n
	return true
}

// Hold adds a holder. Only a holder may call it.
func (c *Charge) Hold() {
	if c.holders.Add(1) <= 1 {
		panic("membudget: hold on a charge that was released")
	}
}

// Release drops one hold; the last one releases the bytes.
func (c *Charge) Release() {
	switch left := c.holders.Add(-1); {
	case left == 0:
		c.budget.Release(c.n)
	case left < 0:
		panic("membudget: charge released more often than held")
	}
}
