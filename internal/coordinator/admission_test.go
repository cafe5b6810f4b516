// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

func refusalOf(t testing.TB, err error) *refusal.Error {
	t.Helper()
	var e *refusal.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestB01_SinkDown(t *testing.T) {
	r := newRig(t)
	const size = 10 * unit
	acked, e := r.fill(logsLane, size)
	assert.Equal(t, int(r.cfg.Limit)/size, acked, "acknowledged until one would cross")
	pre := uint64(acked * size)
	assert.Equal(t, refusal.BackpressureBytes, e.Reason)
	assert.Equal(t, pre, e.Pre)
	require.NotNil(t, e.Projected)
	assert.Equal(t, pre+size, *e.Projected)
	assert.Equal(t, r.cfg.Limit, e.Limit)
	assert.Contains(t, e.Error(), fmt.Sprintf("wal backpressure: bytes: unreclaimed %d + frame %d = %d exceeds limit %d (unreclaimed_bytes_limit); retry in",
		pre, size, pre+size, r.cfg.Limit))

	// Each request is decided alone: what still fits may pass.
	r.mustPut(logsLane, int(r.cfg.Limit-pre))
	assert.Equal(t, r.cfg.Limit, r.figures().Unreclaimed)
}

func TestB01_ProjectionOverflows(t *testing.T) {
	r := newRig(t)
	r.mustPut(logsLane, unit)
	r.c.Limit, r.c.MaxFrameSize = math.MaxUint64-1, math.MaxUint64
	r.j.Lock()
	ticket, v := r.c.admit(frame(t, logsLane, unit), math.MaxUint64-100, time.Now())
	r.j.Unlock()
	require.Nil(t, ticket)
	e := r.c.refuse(v, time.Now())
	assert.Equal(t, refusal.BackpressureBytes, e.Reason)
	assert.Nil(t, e.Projected, "an overflowing projection has no figure")
	assert.Contains(t, e.Error(), "overflows")
}

// B03: the three cases with unequal intervals against published instants.
func TestB03_RetryAfter(t *testing.T) {
	type instants struct{ barrier, housekeeping, flush time.Duration }
	const every = 7 * time.Second
	for name, tc := range map[string]struct {
		arrange func(r *rig)
		at      instants
		want    time.Duration
	}{
		"eligible: the next housekeeping": {
			arrange: func(r *rig) { r.settleAll(); r.barrier() },
			at:      instants{barrier: 29 * time.Second, housekeeping: 3200 * time.Millisecond, flush: 10 * time.Second},
			want:    4 * time.Second,
		},
		"nothing settled: barrier + flush bound + one housekeeping": {
			arrange: func(*rig) {},
			at:      instants{barrier: 12*time.Second + time.Millisecond, housekeeping: 2 * time.Second, flush: 5 * time.Second},
			want:    13*time.Second + 5*time.Second + every,
		},
		"overdue: never less than one second": {
			arrange: func(r *rig) { r.settleAll(); r.barrier() },
			at:      instants{barrier: -time.Second, housekeeping: -time.Minute},
			want:    time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				_, _ = r.fill(logsLane, 30*unit)
				r.time.housekeepEvery = every
				tc.arrange(r)
				now := time.Now()
				r.time.nextBarrier, r.time.nextHousekeep, r.time.flushBound = now.Add(tc.at.barrier), now.Add(tc.at.housekeeping), tc.at.flush
				_, err := r.put(logsLane, 30*unit)
				e := refusalOf(t, err)
				s, ok := e.RetryAfterSeconds()
				require.True(t, ok)
				assert.Equal(t, tc.want, time.Duration(s)*time.Second)
			})
		})
	}
}

func TestB03_ForcedRotationAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *journal.Config) { c.Limit = c.SegmentSize }) // the whole backlog is in the current segment
		r.barrier()
		r.housekeep() // planned, and removed nothing
		_, _ = r.fill(logsLane, 10*unit)
		r.time.nextHousekeep = time.Now().Add(2500 * time.Millisecond)
		r.time.housekeepEvery = 9 * time.Second
		_, err := r.put(logsLane, 10*unit)
		s, _ := refusalOf(t, err).RetryAfterSeconds()
		assert.Equal(t, int64(12), s, "next housekeeping (2.5 s) + one interval (9 s), rounded up")
	})
}

func TestB04_RefusedIsAbsentAfterRestart(t *testing.T) {
	r := newRig(t)
	acked, _ := r.fill(logsLane, 20*unit)
	for range 50 {
		_, err := r.put(logsLane, 20*unit)
		require.Error(t, err)
	}
	r.reopen()
	assert.Len(t, r.frames(), acked)
}

func TestB05_FiresWithEveryHorizonFrozen(t *testing.T) {
	r := newRig(t)
	for range 5 {
		r.barrier()
		assert.Zero(t, r.housekeep())
	}
	acked, e := r.fill(logsLane, 20*unit)
	assert.Equal(t, int(r.cfg.Limit)/(20*unit), acked)
	assert.Equal(t, refusal.BackpressureBytes, e.Reason)
}

func TestB06_RefusalLeavesRotationStateAlone(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 20*unit)
	before := r.j.Stats()
	for range 100 {
		_, err := r.put(logsLane, 20*unit)
		require.Error(t, err)
	}
	after := r.j.Stats()
	before.Disk, after.Disk = 0, 0 // the next segment is being prepared meanwhile
	before.Prepared, after.Prepared = false, false
	assert.Equal(t, before, after)
	r.j.Lock()
	defer r.j.Unlock()
	assert.Equal(t, journal.RotationHealthy, r.j.RotationState().Kind)
}

func TestB07_ResumesWithoutAppendOrRestart(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 20*unit)
	r.settleAll()
	r.barrier()
	require.Positive(t, r.housekeep())
	assert.False(t, r.c.Latch().Refusing, "a pass that made room leaves the latch")
	r.mustPut(logsLane, 20*unit)
}

func TestB08_WholeBacklogInTheCurrentSegment(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.Limit = c.SegmentSize })
	r.fill(logsLane, 10*unit)
	r.settleAll()
	r.barrier()
	assert.Zero(t, r.housekeep(), "this pass finds nothing eligible and ends the segment")
	assert.Equal(t, 1, r.figures().ClosedRetained, "forced rotation")
	r.barrier()
	assert.Equal(t, 1, r.housekeep())
	assert.Zero(t, r.figures().Unreclaimed)
	r.mustPut(logsLane, 10*unit)
}

func TestB09_NoForcedRotation(t *testing.T) {
	for name, tc := range map[string]struct {
		config  func(c *journal.Config)
		arrange func(r *rig)
		barrier bool
	}{
		"cause Segments": {
			config: func(c *journal.Config) { c.MaxSegments = 1 },
			arrange: func(r *rig) {
				_, e := r.fill(logsLane, 40*unit)
				require.Equal(r.t, refusal.BackpressureSegments, e.Reason)
			},
			barrier: true,
		},
		"tenant cap": {
			config: func(c *journal.Config) { c.MaxTenants = 1 },
			arrange: func(r *rig) {
				r.mustPut(logsLane, 10*unit)
				_, err := r.put(journal.Lane{Tenant: "b", Kind: journal.KindLogs}, 10*unit)
				require.Equal(r.t, refusal.TenantCap, refusalOf(r.t, err).Reason)
			},
			barrier: true,
		},
		"skipped pass": {
			config:  func(c *journal.Config) { c.Limit = c.SegmentSize },
			arrange: func(r *rig) { r.fill(logsLane, 10*unit) },
		},
		"closed segments hold part of the backlog": {
			config:  func(*journal.Config) {},
			arrange: func(r *rig) { r.fill(logsLane, 10*unit) },
			barrier: true,
		},
		"not refusing": {
			config:  func(*journal.Config) {},
			arrange: func(r *rig) { r.mustPut(logsLane, 10*unit) },
			barrier: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.config)
			tc.arrange(r)
			if tc.barrier {
				r.barrier()
			}
			before := r.figures().ClosedRetained
			assert.Zero(t, r.housekeep())
			assert.Equal(t, before, r.figures().ClosedRetained)
		})
	}
}

func TestB10_SizeDueAtTheCeiling(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxSegments = 2 })
	acked, e := r.fill(logsLane, 40*unit) // one frame a segment
	assert.Equal(t, 3, acked, "two closed segments and the current one")
	assert.Equal(t, refusal.BackpressureSegments, e.Reason)
	assert.Contains(t, e.Error(), "wal backpressure: segments: closed 2 + 1 = 3 exceeds limit 2 (max_segments)")

	r.mustPut(logsLane, 10*unit) // does not rotate
	_, err := r.put(logsLane, 40*unit)
	assert.Equal(t, refusal.BackpressureSegments, refusalOf(t, err).Reason, "refused on each retry")

	r.settleAll()
	r.barrier()
	require.Equal(t, 2, r.housekeep())
	assert.False(t, r.c.Latch().Refusing)
	r.mustPut(logsLane, 40*unit)
}

func TestB11_NeverAboveTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, func(c *journal.Config) { c.MaxSegments = rapid.IntRange(3, 8).Draw(rt, "max_segments") })
		writers := rapid.IntRange(2, 8).Draw(rt, "writers")
		perWriter := rapid.IntRange(5, 20).Draw(rt, "frames")
		sizes := rapid.SliceOfN(rapid.IntRange(200, 40*unit), writers*perWriter, writers*perWriter).Draw(rt, "sizes")
		var over, acked atomic.Uint64
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				lane := journal.Lane{Tenant: string(rune('a' + w%3)), Kind: journal.KindLogs}
				for _, size := range sizes[w*perWriter : (w+1)*perWriter] {
					_, err := r.c.Commit(context.Background(), frame(t, lane, size), func(bool) {})
					if r.figures().Unreclaimed > r.cfg.Limit {
						over.Add(1)
					}
					if err == nil {
						acked.Add(uint64(size))
					}
				}
			})
		}
		stop := make(chan struct{})
		maintained := make(chan struct{})
		go func() {
			defer close(maintained)
			for {
				select {
				case <-stop:
					return
				default:
				}
				r.settleAll()
				r.barrier()
				r.housekeep()
			}
		}()
		wg.Wait()
		close(stop)
		<-maintained
		if over.Load() != 0 {
			rt.Fatalf("unreclaimed was above the limit %d times", over.Load())
		}
		sum := uint64(0)
		for _, s := range r.j.Segments() {
			sum += s.Bytes
		}
		if got := r.figures().Unreclaimed; got != sum {
			rt.Fatalf("counter %d, recomputed %d", got, sum)
		}
		r.close()
	})
}

func TestB12_OrderOnATerminalOrFullLog(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 20*unit)
	_, err := r.put(logsLane, int(r.cfg.MaxFrameSize)+1)
	e := refusalOf(t, err)
	assert.Equal(t, refusal.TooLarge, e.Reason)
	_, hinted := e.RetryAfterSeconds()
	assert.False(t, hinted)
	_, err = r.put(logsLane, int(r.cfg.MaxFrameSize))
	assert.Equal(t, refusal.BackpressureBytes, refusalOf(t, err).Reason, "exactly max_frame_size is legal")
}

func TestB16_LatchTransitions(t *testing.T) {
	r := newRig(t)
	r.barrier()
	r.fill(logsLane, 30*unit)
	_, err := r.put(logsLane, 30*unit) // refused again: no second transition
	require.Error(t, err)
	assert.Zero(t, r.housekeep(), "a pass that removes nothing does not leave the latch")
	assert.Equal(t, []string{"wal.backpressure.entered bytes 1"}, r.events())
	assert.True(t, r.c.Latch().Refusing)

	r.mustPut(logsLane, unit) // a smaller, acknowledged append leaves it
	assert.Equal(t, []string{"wal.backpressure.entered bytes 1", "wal.backpressure.left bytes 2"}, r.events())
	left := r.logs.FilterFieldKey("unreclaimed").All()[1].ContextMap()
	assert.Equal(t, r.cfg.Limit, left["limit"])
	assert.Equal(t, r.figures().Unreclaimed, left["unreclaimed"])
}

func TestB16_ConcurrentRefusalsAndAcks(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 30*unit)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				_, _ = r.c.Commit(context.Background(), frame(t, logsLane, 30*unit), func(bool) {})
				_, _ = r.c.Commit(context.Background(), frame(t, logsLane, 128), func(bool) {})
			}
		})
	}
	wg.Wait()
	entered, left := map[uint64]int{}, map[uint64]int{}
	for _, e := range r.logs.All() {
		m := e.ContextMap()
		n, _ := m["transition.number"].(uint64)
		switch m["event.name"] {
		case "wal.backpressure.entered":
			entered[n]++
		case "wal.backpressure.left":
			left[n]++
		}
	}
	for n := uint64(1); n <= uint64(len(entered)+len(left)); n++ {
		if n%2 == 1 {
			assert.Equal(t, 1, entered[n], "transition %d", n)
		} else {
			assert.Equal(t, 1, left[n], "transition %d", n)
		}
	}
	assert.Contains(t, []int{0, 1}, len(entered)-len(left))
}

func TestB17_RestartWhileRefusing(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 30*unit)
	before := r.figures().Unreclaimed
	r.reopen()
	assert.Equal(t, before, r.figures().Unreclaimed, "the rebuilt figure is exact")
	_, err := r.put(logsLane, 30*unit)
	assert.Equal(t, refusal.BackpressureBytes, refusalOf(t, err).Reason)
}

func TestB18_LimitLoweredBelowUsage(t *testing.T) {
	r := newRig(t)
	acked, _ := r.fill(logsLane, 30*unit)
	r.cfg.Limit = 64 * unit
	r.reopen()
	_, err := r.put(logsLane, unit)
	e := refusalOf(t, err)
	assert.Equal(t, refusal.BackpressureBytes, e.Reason)
	assert.Len(t, r.frames(), acked)
	r.settleAll()
	r.barrier()
	r.housekeep()
	r.barrier()
	r.housekeep() // the current segment was ended by force
	r.mustPut(logsLane, unit)
}

func TestB21_TenantCapacity(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxTenants = 2 })
	lane := func(tenant string) journal.Lane { return journal.Lane{Tenant: tenant, Kind: journal.KindTraces} }
	r.mustPut(lane("a"), 40*unit)
	r.mustPut(lane("b"), 40*unit)
	_, err := r.put(lane("c"), unit)
	e := refusalOf(t, err)
	assert.Equal(t, refusal.TenantCap, e.Reason)
	_, hinted := e.RetryAfterSeconds()
	assert.False(t, hinted)
	assert.Contains(t, e.Error(), "raise max_tenants")
	assert.False(t, r.c.Latch().Refusing)
	r.mustPut(lane("a"), unit) // seated tenants go on

	r.settleAll()
	r.barrier()
	require.Equal(t, 1, r.housekeep(), "the segment of a alone")
	r.j.Lock()
	held, reserved := r.j.Seats()
	r.j.Unlock()
	assert.Equal(t, []int{2, 0}, []int{held, reserved}, "a and b have frames in the current segment")
}

func TestA02_DoneAfterAbandonedCommit(t *testing.T) {
	r := newRig(t)
	r.j.TurnC() <- struct{}{} // nobody can write
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	result := make(chan error)
	f := frame(t, logsLane, unit)
	go func() {
		_, err := r.c.Commit(ctx, f, func(bool) { close(done) })
		result <- err
	}()
	for r.figures().Unflushed == 0 {
		runtime.Gosched()
	}
	cancel()
	e := refusalOf(t, <-result)
	assert.Equal(t, refusal.Abandoned, e.Reason)
	_, hinted := e.RetryAfterSeconds()
	assert.False(t, hinted)
	select {
	case <-done:
		t.Fatal("the buffers were given back while the frame was queued")
	default:
	}
	r.j.ReleaseTurn()
	<-done // somebody sees the frame to its end although its caller left
	r.c.Close()
	assert.Len(t, r.frames(), 1)
}
