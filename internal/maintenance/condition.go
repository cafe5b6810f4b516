// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"time"

	"go.uber.org/zap"
)

// repeatEvery is how often a condition that lasts is said again.
const repeatEvery = time.Minute

// condition logs one thing that can go wrong again and again: its beginning
// and its end always, what lies between at most once in repeatEvery. It is
// used by one goroutine.
type condition struct {
	logger *zap.Logger
	what   string // "Barrier", "Housekeeping"

	failures int // in a row
	said     time.Time
}

func (c *condition) observe(err error) {
	if err == nil {
		if c.failures > 0 {
			c.logger.Info(c.what+" works again", zap.Int("failures", c.failures))
		}
		c.failures = 0
		return
	}
	c.failures++
	if c.failures > 1 && time.Since(c.said) < repeatEvery {
		return
	}
	c.said = time.Now()
	c.logger.Error(c.what+" failed; it is tried again at its next due instant", zap.Int("failures", c.failures), zap.Error(err))
}
