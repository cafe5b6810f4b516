// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlot(t *testing.T) {
	now := time.Now()
	at := func(ago time.Duration, v uint64, refusing bool) Sample {
		return Sample{At: now.Add(-ago), Unreclaimed: v, Refusing: refusing}
	}
	t.Run("geometry", func(t *testing.T) {
		p := newPlot([]Sample{at(61*time.Minute, 5000, false), at(time.Hour, 0, false), at(30*time.Minute, 540, false)}, at(0, 1000, false), 1000)
		assert.Equal(t, "M0.0 200.0L500.0 100.0L1000.0 14.8", p.Line, "older samples are left out")
		assert.Equal(t, p.Line+"L1000.0 200L0.0 200Z", p.Area)
		assert.Contains(t, p.Summary, "over the last 1 h: now 1000 B, lowest 0 B, highest 1000 B, limit 1000 B")
		assert.True(t, p.Enough)
	})
	t.Run("limit line", func(t *testing.T) {
		p := newPlot(nil, at(0, 0, false), 1000)
		assert.Equal(t, "14.8", p.LimitY)
		assert.False(t, p.Enough, "one point is no line")
		p = newPlot(nil, at(0, 4000, false), 1000) // a limit lowered below the usage
		assert.Equal(t, "153.7", p.LimitY)
	})
	t.Run("refusing", func(t *testing.T) {
		p := newPlot([]Sample{
			at(50*time.Minute, 1, false), at(48*time.Minute, 1, true), at(42*time.Minute, 1, true), at(36*time.Minute, 1, false),
			at(30*time.Minute, 1, false), at(6*time.Minute, 1, true),
		}, at(0, 1, true), 10)
		assert.Equal(t, []band{{"200.0", "200.0"}, {"900.0", "100.0"}}, p.Refusing)
	})
	t.Run("nothing at all", func(t *testing.T) {
		p := newPlot(nil, at(0, 0, false), 0)
		assert.NotContains(t, p.Line+p.Area+p.LimitY, "NaN")
	})
}
