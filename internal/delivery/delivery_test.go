// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeliversWhatIsAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.setReact(func(*call) error { return nil })
		for _, n := range names("a", 20) {
			r.logFrame("t", n)
		}
		r.wait()
		assert.ElementsMatch(t, names("a", 20), r.p.bodies())
		assert.Equal(t, r.log.Durable(), r.frontier(logLane("t")))
		assert.Equal(t, Idle, r.state(logLane("t")))
		assert.Equal(t, uint64(20), r.Stats().Signals[1].Settled.Items)
		assert.Equal(t, r.log.Durable(), r.Stats().Signals[1].Settled.Size)
		assert.Zero(t, r.Stats().Signals[1].PendingItems)
		assert.Zero(t, r.Stats().InFlight)
	})
}

func TestBacklogBecomesFullGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := newStoppedRig(t, log, func(s *Settings) { s.Config.Group.MaxItems = 10; s.Config.Consumers = 1 })
		r.p.setReact(func(*call) error { return nil })
		for _, n := range names("a", 35) {
			r.logFrame("t", n)
		}
		r.Start()
		r.wait()
		require.Len(t, r.p.all(), 4, "calls")
		assert.Equal(t, names("a", 35), r.p.bodies(), "order, with one consumer")
	})
}
