// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/maintenance"
	"github.com/otelweir/weir/internal/refusal"
)

// keep lets the real maintenance run the rig's log until the test ends.
func (r *rig) keep(cfg maintenance.Config) *maintenance.Loop {
	loop := maintenance.Start(keptLog{r.c}, cfg, nil, zap.NewNop())
	r.c.Bind(loop, r.sink)
	return loop
}

type keptLog struct{ *Coordinator }

func (keptLog) Status() barrier.Status { return barrier.Status{} }

// deliver is a sink that takes everything at once.
func (r *rig) deliver() {
	before := uint64(0)
	for _, l := range r.j.Lanes() {
		before = max(before, r.sink.frontier[l.Lane])
	}
	r.settleAll()
	r.c.Settled(r.j.Durable() - before)
}

func TestB14_ForcedRotationWhoseDirectoryFsyncFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *journal.Config) { c.Limit = c.SegmentSize })
		r.fill(logsLane, 10*unit)
		r.settleAll()
		r.barrier()
		r.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, Err: syscall.EIO, Times: 1})
		_, err := r.c.Housekeep(t.Context(), 128)
		require.ErrorIs(t, err, syscall.EIO)
		assert.Equal(t, journal.RotationRetrying, r.j.Stats().Rotation)

		time.Sleep(time.Minute)
		_, err = r.c.Housekeep(t.Context(), 128) // no append happened meanwhile
		require.NoError(t, err)
		assert.Equal(t, journal.RotationHealthy, r.j.Stats().Rotation, "a later pass discharges it")
		r.barrier()
		r.housekeep()
		assert.Zero(t, r.figures().Unreclaimed)
		r.mustPut(logsLane, 10*unit)
	})
}

func TestB15_OwedRotationOverrunsTheCap(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxSegments = 1 })
	r.fill(logsLane, 40*unit) // one closed segment: at the cap
	require.Equal(t, 1, r.figures().ClosedRetained)
	r.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: r.current(), Err: syscall.EIO, Times: 1})
	_, err := r.put(logsLane, unit)
	assert.Equal(t, refusal.SyncIO, refusalOf(t, err).Reason)
	r.mustPut(logsLane, unit) // the owed rotation needs no slot
	s := r.j.Stats()
	assert.Equal(t, 2, s.ClosedRetained)
	assert.Equal(t, 1, s.MaxSegments)
	assert.Equal(t, 1, s.Sealed)
	_, err = r.put(logsLane, 40*unit)
	require.NoError(t, err, "still fits the new segment")
	_, err = r.put(logsLane, 40*unit)
	assert.Equal(t, refusal.BackpressureSegments, refusalOf(t, err).Reason, "a rotation of choice stays refused")
}

func TestB16_NeitherAFailedSyncNorANoOpPassLeavesTheLatch(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 40*unit)
	r.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: r.current(), Err: syscall.EIO, Times: 1})
	_, err := r.put(logsLane, unit)
	assert.Equal(t, refusal.SyncIO, refusalOf(t, err).Reason)
	assert.True(t, r.c.Latch().Refusing)
	r.barrier()
	assert.Zero(t, r.housekeep())
	assert.True(t, r.c.Latch().Refusing)
	assert.Equal(t, []string{"wal.backpressure.entered bytes 1"}, r.events())
}

func TestB16_CauseFollowsTheLatestRefusal(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxSegments, c.Limit = 1, 120*unit })
	r.mustPut(logsLane, 40*unit)
	r.mustPut(logsLane, 40*unit)
	_, err := r.put(logsLane, 30*unit) // the limit has room for it, the segment has not
	require.Equal(t, refusal.BackpressureSegments, refusalOf(t, err).Reason)
	assert.Equal(t, "segments", r.c.Latch().Cause)
	_, err = r.put(logsLane, 45*unit)
	require.Equal(t, refusal.BackpressureBytes, refusalOf(t, err).Reason)
	assert.Equal(t, "bytes", r.c.Latch().Cause)
}

func TestC18_RefusedWithTheWaitToTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.mustPut(logsLane, 40*unit)
		r.mustPut(logsLane, 22*unit) // what follows does not fit
		remove := r.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, Err: syscall.EIO})
		_, err := r.put(logsLane, 3*unit) // makes the attempt
		assert.Equal(t, refusal.RotationRetrying, refusalOf(t, err).Reason)
		calls := r.fs.Calls(crashfs.OpSyncDir)
		for range 10_000 {
			_, err = r.put(logsLane, 3*unit)
			e := refusalOf(t, err)
			require.Equal(t, refusal.RotationRetrying, e.Reason)
			s, ok := e.RetryAfterSeconds()
			require.True(t, ok)
			require.Equal(t, int64(1), s)
		}
		assert.Equal(t, calls, r.fs.Calls(crashfs.OpSyncDir), "no attempt before it is due")
		assert.False(t, r.c.Latch().Refusing)
		remove()
		time.Sleep(time.Second)
		r.mustPut(logsLane, 3*unit)
	})
}

func TestB19_SustainedLoadIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		cfg := maintenance.NewDefaultConfig()
		loop := r.keep(cfg)
		defer loop.Stop()
		const size = 16 * unit
		perSecond := 5 * float64(r.cfg.Limit) / (cfg.BarrierInterval + cfg.HousekeepingInterval).Seconds()
		every := time.Duration(float64(size) / perSecond * float64(time.Second))
		for pushed := uint64(0); pushed < 20*r.cfg.Limit; pushed += size {
			r.mustPut(logsLane, size)
			r.deliver()
			time.Sleep(every)
		}
		assert.LessOrEqual(t, r.figures().ClosedRetained, r.cfg.MaxSegments)
		assert.Empty(t, r.events())
	})
}

func TestB19_NoSpinning(t *testing.T) {
	cfg := maintenance.NewDefaultConfig()
	const span = 10 * time.Minute
	regular := uint64(span/cfg.HousekeepingInterval) + 1
	for name, tc := range map[string]struct {
		arrange func(r *rig)
		most    uint64 // housekeeping passes in span
	}{
		"idle":                    {arrange: func(*rig) {}, most: regular},
		"blocked with a full log": {arrange: func(r *rig) { r.fill(logsLane, 40*unit) }, most: regular},
		"unlink fails": {
			arrange: func(r *rig) {
				r.fill(logsLane, 40*unit)
				r.fs.Inject(crashfs.Fault{Op: crashfs.OpUnlink, Match: "*.wal", Err: syscall.EACCES})
				r.deliver()
			},
			// Each of the doubling distances once, then one pass per interval.
			most: 2*regular + 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				loop := r.keep(cfg)
				defer loop.Stop()
				tc.arrange(r)
				before := r.fs.Calls(crashfs.OpCreate)
				time.Sleep(span)
				_, keeping := loop.Reports()
				assert.LessOrEqual(t, keeping.Runs, tc.most)
				assert.LessOrEqual(t, r.fs.Calls(crashfs.OpCreate)-before, 2, "no small files")
			})
		})
	}
}

func TestB20_LaggingAndPinnedLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		good, down := journal.Lane{Tenant: "good", Kind: journal.KindLogs}, journal.Lane{Tenant: "down", Kind: journal.KindTraces}
		const size = 20 * unit
		r.mustPut(good, size)
		first := r.mustPut(down, size)
		r.fill(good, size)
		settleGood := func() { r.sink.settle(good, r.j.Durable()) }
		settleGood()
		r.barrier()
		r.housekeep()
		assert.Equal(t, "min", r.c.Floor().State)
		assert.Equal(t, barrier.Position(first), r.c.Floor().Position)
		assert.Equal(t, []string{"traces of down"}, r.c.Floor().Lanes)

		r.fill(good, size) // fill again what was freed, and be refused
		_, err := r.put(good, size)
		require.Error(t, err)
		r.mustPut(good, unit)
		assert.False(t, r.c.Latch().Refusing, "a smaller acknowledged batch leaves the latch")

		time.Sleep(2*r.time.barrierEvery + time.Second)
		r.housekeep()
		floor := r.c.Floor()
		assert.Equal(t, "pinned", floor.State)
		assert.Equal(t, []string{"traces of down"}, floor.Lanes, "the good lane settled once")
		assert.Positive(t, floor.LagBytes)

		r.sink.settle(down, first+1)
		r.barrier()
		r.housekeep()
		assert.NotEqual(t, "pinned", r.c.Floor().State)
		names := r.events()
		assert.True(t, slices.ContainsFunc(names, func(s string) bool { return s[:22] == "wal.retain_floor.pinne" }), "%v", names)
		assert.True(t, slices.ContainsFunc(names, func(s string) bool { return s[:22] == "wal.retain_floor.lifte" }), "%v", names)
	})
}

func TestA05_IdleNodeHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		cfg := maintenance.NewDefaultConfig()
		loop := r.keep(cfg)
		defer loop.Stop()
		r.mustPut(logsLane, 3*unit)
		r.deliver()
		time.Sleep(r.cfg.SegmentAge + 2*cfg.BarrierInterval + cfg.HousekeepingInterval)
		assert.Zero(t, r.figures().Unreclaimed)
		assert.Zero(t, r.figures().ClosedRetained)
	})
}

func TestD05_OldHorizonsRuleAfterAFailedCommit(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 40*unit)
	r.settleAll()
	remove := r.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: "STATE", Err: syscall.EIO})
	require.Error(t, r.c.Barrier(t.Context(), barrier.Regular))
	assert.Zero(t, r.housekeep(), "nothing moved")
	remove()
	r.barrier()
	assert.Positive(t, r.housekeep())
}

func TestD06_AppendsGoOnWhileTheFileHalfIsHeld(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, 40*unit)
	r.settleAll()
	r.barrier()
	held, release := make(chan struct{}), make(chan struct{})
	r.fs.SetHook(func(c crashfs.Call) {
		if c.Op == crashfs.OpUnlink && filepath.Ext(c.Name) == ".wal" {
			close(held)
			<-release
		}
	})
	defer r.fs.SetHook(nil)
	done := make(chan error)
	go func() {
		_, err := r.c.Housekeep(context.Background(), 1)
		done <- err
	}()
	<-held
	r.mustPut(logsLane, unit)
	close(release)
	require.NoError(t, <-done)
}

// A flush comes before the final barrier, and before a regular one when the
// latch is set or handles hold too much.
func TestForcedBarrierFlushesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.barrier()
		assert.Zero(t, r.time.flushes)
		r.time.onFlush = r.settleAll // what the flush made durable counts for this very barrier
		r.fill(logsLane, 40*unit)
		time.Sleep(time.Minute)
		r.barrier()
		assert.Equal(t, 1, r.time.flushes)
		assert.Positive(t, r.housekeep())
		r.fill(logsLane, 40*unit)
		require.NoError(t, r.c.Barrier(t.Context(), barrier.Early))
		assert.Equal(t, 1, r.time.flushes, "an early barrier never flushes, the latch set or not")
		r.barrier()
		r.housekeep()
		require.Equal(t, 2, r.time.flushes)
		time.Sleep(time.Minute)
		r.sink.held = r.cfg.Limit/2 + 1
		r.barrier()
		assert.Equal(t, 3, r.time.flushes, "handles hold more than the watermark")
		require.NoError(t, r.c.Barrier(t.Context(), barrier.Early))
		require.Equal(t, 3, r.time.flushes)
		require.NoError(t, r.c.Barrier(t.Context(), barrier.Final))
		assert.Equal(t, 4, r.time.flushes, "asked for")
	})
}

func TestBarrierBeforeBind(t *testing.T) {
	r := newRig(t)
	c := New(r.set)
	assert.ErrorIs(t, c.Barrier(t.Context(), barrier.Regular), errNotBound)
}

// A writer that hangs in the disk has the turn: a pass that nobody waits for
// any more does not wait for it either.
func TestPassesDoNotOutliveTheirContext(t *testing.T) {
	r := newRig(t)
	r.j.TurnC() <- struct{}{}
	defer r.j.ReleaseTurn()
	for name, pass := range map[string]func(context.Context) error{
		"barrier":       func(ctx context.Context) error { return r.c.Barrier(ctx, barrier.Regular) },
		"final barrier": func(ctx context.Context) error { return r.c.Barrier(ctx, barrier.Final) },
		"housekeeping": func(ctx context.Context) error {
			_, err := r.c.Housekeep(ctx, 1)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- pass(ctx) }()
		cancel()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.Canceled, name)
		case <-time.After(20 * time.Second):
			require.Fail(t, "waits for the writer turn", name)
		}
	}
	assert.Zero(t, r.time.flushes)
}
