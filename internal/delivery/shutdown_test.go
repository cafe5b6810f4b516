// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/otelweir/weir/internal/journal"
)

func TestShutdownMarksNothingUnfinished(t *testing.T) {
	for _, tt := range []struct {
		name    string
		react   func(c *call) error
		took    time.Duration
		fails   bool
		settled bool
	}{
		{"ends in time", func(*call) error { time.Sleep(9 * time.Second); return nil }, 9 * time.Second, false, true},
		{"fails in time", func(*call) error { time.Sleep(9 * time.Second); return errUnavailable }, 9 * time.Second, false, false},
		{"obeys its cancellation", func(c *call) error { <-c.ctx.Done(); return c.ctx.Err() }, drainGrace, false, false},
		{"says yes once cancelled", func(c *call) error { <-c.ctx.Done(); time.Sleep(time.Second); return nil }, drainGrace + time.Second, false, true},
		{"ignores its cancellation", func(*call) error { time.Sleep(time.Hour); return nil }, drainGrace + cancelGrace, true, false},
		{"permanent, ignoring its cancellation", func(*call) error {
			time.Sleep(time.Hour)
			return consumererror.NewPermanent(errors.New("bad"))
		}, drainGrace + cancelGrace, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newStoppedRig(t, newMemLog(), oneFrameGroups)
				r.p.setReact(tt.react)
				first := r.logFrame("t", "a")
				r.Start()
				r.wait()
				for range 30 {
					r.logFrame("t", "later")
				}
				r.wait()
				running := len(r.p.all())
				began := time.Now()
				err := r.Shutdown(context.Background())
				assert.Equal(t, tt.took, time.Since(began))
				assert.Equal(t, tt.fails, err != nil, "%v", err)
				f := r.frontier(logLane("t"))
				assert.Equal(t, tt.settled, f > first, "frontier %d", f)
				r.Close()
				time.Sleep(2 * time.Hour)
				r.wait()
				assert.Len(t, r.p.all(), running, "no call is made after shutdown begins")
				assert.Empty(t, r.log.lettersWritten(), "the journal is closed by then")
				require.NoError(t, r.Shutdown(context.Background()), "twice")
			})
		})
	}
}

func TestShutdownWithoutStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStoppedRig(t, newMemLog(), nil)
		r.logFrame("t", "a")
		require.NoError(t, r.Shutdown(context.Background()))
		r.Start()
		r.wait()
		assert.Empty(t, r.p.all())
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.logFrame("t", "a")
		require.Len(t, r.open(), 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, r.Shutdown(ctx))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// TestShutdownWhileParked also shows that timers of parked lanes do nothing
// afterwards.
func TestShutdownWhileParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.p.setReact(func(*call) error { return errUnavailable })
		r.logFrame("t", "a")
		r.wait()
		tries := len(r.p.all())
		require.NoError(t, r.Shutdown(context.Background()))
		r.Close()
		time.Sleep(time.Hour)
		r.wait()
		assert.Len(t, r.p.all(), tries)
		assert.Equal(t, journal.Position(0), r.frontier(logLane("t")))
	})
}
