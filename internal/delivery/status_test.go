// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

func TestLanesForTheStatusPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *Settings) { oneFrameGroups(s); s.Next.Metrics = nil })
		r.p.setReact(func(c *call) error {
			switch c.tenant {
			case "down":
				return errUnavailable
			case "holds":
				return r.p.keep(c)
			}
			return nil
		})
		received := time.Now()
		down := r.logFrame("down", "a")
		r.logFrame("fine", "a")
		holds := r.logFrame("holds", "a")
		missing := r.log.append(journal.Lane{Tenant: "fine", Kind: journal.KindMetrics}, 7, metricPayload("m"))
		last := r.logFrame("down", "b")
		r.wait()
		end := barrier.Position(r.log.Durable())
		lanes := r.Lanes()
		require.Len(t, lanes, 4)
		assert.Equal(t, barrier.LaneStatus{
			Tenant: "down", Signal: "logs", Frontier: barrier.Position(down), LagBytes: last - down, Oldest: received.Round(0),
			Pending: 2, State: "parked", Attempts: 1, NextTry: lanes[0].NextTry, LastError: "unavailable",
		}, lanes[0])
		assert.Equal(t, barrier.LaneStatus{Tenant: "fine", Signal: "logs", Frontier: end, State: "idle"}, lanes[1])
		assert.Equal(t, barrier.LaneStatus{
			Tenant: "fine", Signal: "metrics", Frontier: barrier.Position(missing), Oldest: received.Round(0), Pending: 7, State: "no_pipeline",
		}, lanes[2])
		assert.Equal(t, barrier.LaneStatus{
			Tenant: "holds", Signal: "logs", Frontier: barrier.Position(holds), Oldest: received.Round(0), Pending: 1, State: "held",
		}, lanes[3])

		per, _ := r.LaneStats()
		assert.Equal(t, uint64(2), per[logLane("down")].PendingItems)
		assert.Equal(t, uint64(1), per[logLane("fine")].Settled.Items)
		total := r.Stats().Signals
		assert.Len(t, total, 4, "every kind is there from the start")
		assert.Equal(t, uint64(3), total[journal.KindLogs].PendingItems)
		assert.Equal(t, uint64(7), total[journal.KindMetrics].PendingItems)
	})
}

func TestCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var settled atomic.Uint64
		var outcomes [3]atomic.Int32
		r := newRig(t, func(s *Settings) {
			oneFrameGroups(s)
			s.OnSettled = func(n uint64) { settled.Add(n) }
			s.OnConsumed = func(signal pipeline.Signal, took time.Duration, outcome string) {
				assert.Equal(t, pipeline.SignalLogs, signal)
				switch outcome {
				case "success":
					outcomes[0].Add(1)
					assert.Equal(t, 3*time.Second, took)
				case "retryable":
					outcomes[1].Add(1)
				case "permanent":
					outcomes[2].Add(1)
				default:
					t.Errorf("outcome %q", outcome)
				}
			}
		})
		var tries atomic.Int32
		r.p.setReact(func(*call) error {
			switch tries.Add(1) {
			case 1:
				return errUnavailable
			case 2:
				time.Sleep(3 * time.Second)
				return nil
			}
			return permanent(3) // InvalidArgument
		})
		r.logFrame("t", "a")
		time.Sleep(time.Minute)
		r.logFrame("t", "b")
		time.Sleep(time.Minute)
		r.wait()
		assert.Equal(t, []int32{1, 1, 1}, []int32{outcomes[0].Load(), outcomes[1].Load(), outcomes[2].Load()})
		assert.Equal(t, r.log.Durable(), settled.Load(), "dead letters are settled too")
	})
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	_, err := New(Settings{Config: DefaultConfig()})
	require.ErrorContains(t, err, "no journal")
	for name, spoil := range map[string]func(*Config){
		"consumers":  func(c *Config) { c.Consumers = 0 },
		"items":      func(c *Config) { c.Group.MaxItems = 0 },
		"bytes":      func(c *Config) { c.Group.MaxBytes = 0 },
		"interval":   func(c *Config) { c.Retry.InitialInterval = 0 },
		"shrinks":    func(c *Config) { c.Retry.MaxInterval = 1 },
		"multiplier": func(c *Config) { c.Retry.Multiplier = 0.5 },
		"jitter":     func(c *Config) { c.Retry.RandomizationFactor = 1.5 },
		"timeout":    func(c *Config) { c.Timeout = -1 },
		"grace":      func(c *Config) { c.PermanentGrace = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			spoil(&cfg)
			_, err := newDelivery(Settings{Config: cfg}, newMemLog())
			require.Error(t, err)
		})
	}
}
