// SPDX-License-Identifier: Apache-2.0

package coordinator

import "time"

// hint says which of the three cases of contract §3 a refusal met.
type hint uint8

const (
	hintBarrier hint = iota // nothing can go before the next barrier
	hintHousekeeping
	hintForcedRotation
)

// nextChance judges from the ledger which pass can make room first. Called
// under the journal lock, after the refusal has set the latch.
func (c *Coordinator) nextChance() hint {
	r := c.Journal.ReclaimState()
	switch {
	case r.Eligible > 0 || r.Retrying > 0:
		return hintHousekeeping
	case c.forcedRotationDue(r):
		return hintForcedRotation
	}
	return hintBarrier
}

// retryAfter is the time to the next chance by the published due instants: an
// upper bound, at least one second. The refusal rounds it up to whole seconds.
func (c *Coordinator) retryAfter(h hint) time.Duration {
	p := c.schedule.Load()
	if p == nil {
		return time.Second
	}
	s := *p
	var d time.Duration
	switch h {
	case hintHousekeeping:
		d = time.Until(s.NextHousekeeping())
	case hintForcedRotation:
		d = time.Until(s.NextHousekeeping()) + s.HousekeepingInterval()
	default:
		d = time.Until(s.NextBarrier()) + s.FlushBound() + s.HousekeepingInterval()
	}
	return max(d, time.Second)
}

// RetryAfter is what a refusal for lack of bytes would advise now.
func (c *Coordinator) RetryAfter() time.Duration {
	c.Journal.Lock()
	h := c.nextChance()
	c.Journal.Unlock()
	return c.retryAfter(h)
}
