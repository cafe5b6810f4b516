// SPDX-License-Identifier: Apache-2.0

package maintenance

import "time"

// Config says how often a log is maintained. The ranges are the extension's
// configuration's; [Start] requires both intervals and MaxUnlinksPerPass to be
// positive.
type Config struct {
	BarrierInterval      time.Duration // from the start of one barrier to the start of the next
	HousekeepingInterval time.Duration // the same of housekeeping passes
	MaxUnlinksPerPass    int           // segments
	PressureWatermark    float64       // fraction of the byte limit, 0..1; 0 turns pressure off
}

// NewDefaultConfig returns the defaults. 30 s and 10 s keep the worst advised
// delay, barrier + flush bound + housekeeping, at 50 s: a stock sender drops a
// batch whose advised delay exceeds what is left of its 300 s of retrying.
func NewDefaultConfig() Config {
	return Config{
		BarrierInterval:      30 * time.Second,
		HousekeepingInterval: 10 * time.Second,
		MaxUnlinksPerPass:    128,
		PressureWatermark:    0.5,
	}
}

// maxFlush bounds a flush however long the barrier interval is: a refusal's
// hint contains it, so it must stay short.
const maxFlush = 10 * time.Second

// FlushBound is how long a flush may take when a flusher is registered:
// min(10 s, BarrierInterval/2).
func (c Config) FlushBound() time.Duration {
	return min(maxFlush, c.BarrierInterval/2)
}
