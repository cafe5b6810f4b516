// SPDX-License-Identifier: Apache-2.0

package membudget

// Charge is what one request holds of a budget. It travels with the request's
// bytes, and whoever has them last releases it: not the caller, who may have
// given up long before. It has one owner at a time and is not safe for
// concurrent use.
type Charge struct {
	budget   *Budget
	n        uint64
	released bool
}

// NewCharge returns a charge of 0 bytes.
func (b *Budget) NewCharge() *Charge { return &Charge{budget: b} }

// Grow charges n more bytes; false is a refusal, by the rule of
// [Budget.TryAcquire] with this charge's own bytes not counting against it: a
// lone request may grow past the budget. The charge keeps what it had.
func (c *Charge) Grow(n uint64) bool { return c.grow(0, n) }

// GrowReceived charges n bytes of a message that has arrived in full. What
// grpc-go holds of messages (see [NewBufferPool]) does not count against it,
// only what is complete: otherwise large requests that arrive together would
// all be refused, each for the others' parts. What grpc-go may hold is bounded
// by the number of requests admitted.
func (c *Charge) GrowReceived(n uint64) bool { return c.grow(c.budget.transport.Load(), n) }

func (c *Charge) grow(aside, n uint64) bool {
	if c.released {
		panic("membudget: charge grows after its release")
	}
	if !c.budget.charge(c.n, aside, n) {
		return false
	}
	c.n += n
	return true
}

// Release gives back all bytes, once.
func (c *Charge) Release() {
	if c.released {
		panic("membudget: charge released twice")
	}
	c.released = true
	c.budget.Release(c.n)
}
