// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component/componentstatus"
)

// The status follows what has held for a second, and a permanent error at once.
func TestF04_StatusFollowsWhatHeld(t *testing.T) {
	const (
		ok, bad, dead = componentstatus.StatusOK, componentstatus.StatusRecoverableError, componentstatus.StatusPermanentError
		ms            = time.Millisecond
	)
	type change struct {
		at time.Duration
		to componentstatus.Status
	}
	flapping := func(from, every time.Duration, n int) (c []change) {
		for i := range n {
			c = append(c, change{from + time.Duration(i)*every, []componentstatus.Status{bad, ok}[i%2]})
		}
		return c
	}
	for _, tc := range []struct {
		name    string
		changes []change
		until   time.Duration
		want    []componentstatus.Status
	}{
		{"not yet", []change{{0, bad}}, 999 * ms, nil},
		{"held", []change{{0, bad}}, 1001 * ms, []componentstatus.Status{bad}},
		{"gone before", []change{{0, bad}, {900 * ms, ok}}, 5 * time.Second, nil},
		{"began anew", []change{{0, bad}, {600 * ms, ok}, {700 * ms, bad}}, 1600 * ms, nil},
		{"began anew and held", []change{{0, bad}, {600 * ms, ok}, {700 * ms, bad}}, 1701 * ms, []componentstatus.Status{bad}},
		{"flapping", flapping(0, 400*ms, 100), 40 * time.Second, nil},
		{"flapping while recoverable", append([]change{{0, bad}}, flapping(2*time.Second, 400*ms, 99)...), 41500 * ms, []componentstatus.Status{bad}},
		{"and back", []change{{0, bad}, {3 * time.Second, ok}}, 4001 * ms, []componentstatus.Status{bad, ok}},
		{"permanent", []change{{0, dead}}, 1 * ms, []componentstatus.Status{dead}},
		{"nothing follows it", []change{{0, dead}, {ms, ok}}, 5 * time.Second, []componentstatus.Status{dead}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := &statusHost{testHost: newTestHost()}
				var now atomic.Int64
				now.Store(int64(ok))
				h := newHealth(host, func() condition { return condition{status: componentstatus.Status(now.Load())} })
				h.begin()
				time.Sleep(3 * time.Second)
				start := time.Now()
				for _, c := range tc.changes {
					time.Sleep(c.at - time.Since(start))
					now.Store(int64(c.to))
					h.changed()
				}
				time.Sleep(tc.until - time.Since(start))
				synctest.Wait()
				assert.Equal(t, tc.want, host.statuses())
				h.stop()
			})
		})
	}
}

// What ended and began anew between two looks has not held.
func TestF04_ConditionKnowsSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &statusHost{testHost: newTestHost()}
		h := newHealth(host, func() condition {
			return condition{status: componentstatus.StatusRecoverableError, since: time.Now().Add(-500 * time.Millisecond)}
		})
		h.begin()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Empty(t, host.statuses())
		h.stop()
	})
}

// Reading the log may fail and work again without anybody telling.
func TestF04_ChangesThatNobodyTellsOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &statusHost{testHost: newTestHost()}
		var now atomic.Int64
		now.Store(int64(componentstatus.StatusOK))
		h := newHealth(host, func() condition { return condition{status: componentstatus.Status(now.Load())} })
		h.begin()
		for _, to := range []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK} {
			now.Store(int64(to))
			time.Sleep(lookEvery + settleTime)
			synctest.Wait()
		}
		assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, host.statuses())
		h.stop()
	})
}

// hangingHost is a host with a status watcher that hangs.
type hangingHost struct {
	statusHost
	hang chan struct{}
}

func (h *hangingHost) Report(e *componentstatus.Event) {
	<-h.hang
	h.statusHost.Report(e)
}

// changed is called where requests are answered, and stop where the Collector
// ends: neither waits for who watches the status.
func TestF04_StatusWatcherThatHangs(t *testing.T) {
	const ok, bad, dead = componentstatus.StatusOK, componentstatus.StatusRecoverableError, componentstatus.StatusPermanentError
	synctest.Test(t, func(t *testing.T) {
		host := &hangingHost{statusHost: statusHost{testHost: newTestHost()}, hang: make(chan struct{})}
		all := &hosts{}
		all.add(host)
		var now atomic.Int64
		now.Store(int64(ok))
		h := newHealth(all, func() condition { return condition{status: componentstatus.Status(now.Load())} })
		h.begin()
		tell := func(to componentstatus.Status) {
			now.Store(int64(to))
			h.changed()
			_ = all.GetExtensions()
		}
		tell(bad)
		time.Sleep(settleTime + time.Millisecond)
		tell(ok) // while the report of bad hangs
		tell(dead)
		assert.Empty(t, host.statuses())

		close(host.hang)
		synctest.Wait()
		assert.Equal(t, []componentstatus.Status{bad, dead}, host.statuses(), "in the order in which they held")
		h.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		host := &hangingHost{statusHost: statusHost{testHost: newTestHost()}, hang: make(chan struct{})}
		h := newHealth(host, func() condition { return condition{status: dead} })
		h.begin()
		synctest.Wait()
		h.stop() // returns
		close(host.hang)
	})
}
