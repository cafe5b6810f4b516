// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/journal"
)

const (
	rareFrames = 3
	apart      = 500 // frames of another lane between two rare ones
)

// fillRarely appends a frame of the lane "rare" now and then.
func fillRarely(log *memLog) {
	for range rareFrames {
		log.append(logLane("rare"), 1, logPayload("x"))
		for range apart {
			log.append(logLane("often"), 1, logPayload("x"))
		}
	}
}

// TestCatchUpReadsLittleForARareLane: the ledger, not reading, finds its next
// frame.
func TestCatchUpReadsLittleForARareLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		log.append(logLane("rare"), 1, logPayload("x"))
		r := newStoppedRig(t, log, nil)
		r.skipBytes = 10 * log.frames[0].Len
		r.p.setReact(func(c *call) error {
			if c.tenant == "rare" {
				return errUnavailable
			}
			return nil
		})
		r.Start()
		r.wait()
		require.Equal(t, Parked, r.state(logLane("rare")))
		fillRarely(log)
		time.Sleep(time.Minute)
		r.wait()
		require.Equal(t, log.Durable(), r.frontier(logLane("often")))
		require.Equal(t, Parked, r.state(logLane("rare")))
		before := log.readCount()
		r.p.setReact(ok)
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("rare")))
		assert.Less(t, log.readCount()-before, 20*rareFrames, "frames read, of %d", rareFrames*apart)
		assert.Greater(t, log.readCount()-before, 10, "and the catch-up reader did have some to read")
	})
}

// TestMainReaderPassesABacklogItCannotServe: one lane's consumers hang; the
// main reader does not read its backlog to come to another lane's frames.
func TestMainReaderPassesABacklogItCannotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		fillRarely(log)
		r := newStoppedRig(t, log, func(s *Settings) { oneFrameGroups(s); s.Config.Timeout = 0 })
		r.skipBytes = 10 * log.frames[0].Len
		r.p.setReact(func(c *call) error {
			if c.tenant == "often" {
				return <-c.answer
			}
			return nil
		})
		r.Start()
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("rare")))
		assert.Equal(t, CatchingUp, r.state(logLane("often")))
		assert.Less(t, log.readCount(), 30*rareFrames, "frames read, of %d", rareFrames*apart)
		r.p.setReact(ok)
		for _, c := range r.open() {
			c.ok()
		}
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("often")))
		assert.Equal(t, uint64(rareFrames*(apart+1)), r.Stats().Signals[journal.KindLogs].Settled.Items)
	})
}

// TestMainReaderPassesABacklogAfterARestart: the backlog is a parked lane's,
// and all over it are settled frames of another.
func TestMainReaderPassesABacklogAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 2000
		log := newMemLog()
		for i := range backlog {
			log.append(logLane("down"), 1, logPayload("x"))
			if i%5 == 0 {
				log.append(logLane("up"), 1, logPayload("x"))
			}
		}
		log.horizon = map[journal.Lane]journal.Position{logLane("up"): log.Durable()}
		log.append(logLane("up"), 1, logPayload("new"))
		r := newStoppedRig(t, log, oneFrameGroups)
		r.skipBytes = 10 * log.frames[0].Len
		r.p.setReact(func(c *call) error {
			if c.tenant == "down" {
				return errUnavailable
			}
			return nil
		})
		r.Start()
		r.wait()
		assert.Equal(t, log.Durable(), r.frontier(logLane("up")))
		assert.Less(t, log.readCount(), 50, "frames read, of %d", backlog)
	})
}

// TestPayloadsThatWaitAreBounded: groups of many lanes wait for consumers that
// hang, and beyond the bound nothing but positions is kept of them.
func TestPayloadsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 2000
		log := newMemLog()
		log.given = map[*byte]bool{}
		big := logPayload(string(make([]byte, 1000)))
		r := newStoppedRig(t, log, func(s *Settings) { s.Config.Group.MaxBytes = 10_000; s.Config.Timeout = 0 })
		tenants := names("t", lanes)
		for range 3 {
			for _, tenant := range tenants {
				log.append(logLane(tenant), 1, big)
			}
		}
		goroutines := runtime.NumGoroutine()
		r.Start()
		r.wait()
		require.Len(t, r.open(), 10)
		assert.Less(t, runtime.NumGoroutine()-goroutines, 20, "no goroutine per lane")
		r.mu.Lock()
		var kept uint64
		waiting := 0
		for _, l := range r.lanes {
			if l.ahead != nil {
				waiting++
				for i := range l.ahead.frames {
					kept += uint64(len(l.ahead.frames[i].Payload))
				}
				assert.False(t, log.given[&l.ahead.meta[0]], "the metadata of a waiting group pins its payload")
			}
		}
		assert.Equal(t, kept, r.cached)
		assert.Greater(t, waiting, lanes-20)
		r.mu.Unlock()
		assert.LessOrEqual(t, kept, uint64(cacheGroups*10_000))
		assert.NotZero(t, kept)
		r.p.setReact(ok)
		for _, c := range r.open() {
			c.ok()
		}
		r.wait()
		for lane, f := range r.Frontiers() {
			require.Equal(t, log.Durable(), f, "lane %v", lane)
		}
		assert.Equal(t, uint64(3*lanes), r.Stats().Signals[journal.KindLogs].Settled.Items)
	})
}
