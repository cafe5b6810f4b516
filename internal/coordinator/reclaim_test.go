// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/refusal"
)

// segments are the bases of the segments that survive.
func (r *rig) segments() (bases []journal.Position) {
	for _, s := range r.j.Segments() {
		bases = append(bases, s.Base)
	}
	return bases
}

func TestD01_OnlySettledSegmentsGo(t *testing.T) {
	r := newRig(t)
	var at []journal.Position
	for range 4 { // one frame a segment; the last one is the current
		at = append(at, r.mustPut(logsLane, 40*unit))
	}
	require.Equal(t, at, r.segments())
	for _, tc := range []struct {
		frontier journal.Position
		want     []journal.Position
	}{
		{at[0], at},             // nothing before the first frame
		{at[1], at[1:]},         // a frame exactly at the horizon holds its segment
		{at[1] + 1, at[2:]},     // behind it, it does not
		{at[3], at[3:]},         //
		{r.j.Durable(), at[3:]}, // the current one never goes
	} {
		r.sink.settle(logsLane, tc.frontier)
		r.barrier()
		r.housekeep()
		assert.Equal(t, tc.want, r.segments(), "frontier %d", tc.frontier)
	}
}

func TestD02_LaggingLaneHoldsExactlyItsSegments(t *testing.T) {
	r := newRig(t)
	slow := journal.Lane{Tenant: "slow", Kind: journal.KindTraces}
	first := r.mustPut(logsLane, 40*unit)
	held1 := r.mustPut(slow, 40*unit)
	r.mustPut(logsLane, 40*unit)
	held2 := r.mustPut(slow, 40*unit)
	r.mustPut(logsLane, 40*unit)
	current := r.mustPut(logsLane, 40*unit)
	r.sink.settle(logsLane, r.j.Durable())
	r.sink.settle(slow, first)
	r.barrier()
	assert.Equal(t, 3, r.housekeep())
	assert.Equal(t, []journal.Position{held1, held2, current}, r.segments())
	assert.Equal(t, barrier.Position(held1), r.c.Floor().Position)
	assert.Equal(t, 3, r.c.Floor().LagSegments, "to the end of the log, not only what the lane holds")

	r.sink.settle(slow, held1+1)
	r.barrier()
	r.housekeep()
	assert.Equal(t, []journal.Position{held2, current}, r.segments())
	assert.Equal(t, 2, r.c.Floor().LagSegments)

	r.reopen() // the holes are explained
	assert.Equal(t, []journal.Position{held2, current}, r.segments())
}

func TestD03_PinnedLaneAndNewTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pinned := journal.Lane{Tenant: "pinned", Kind: journal.KindLogs}
		r.mustPut(logsLane, 40*unit)
		at := r.mustPut(pinned, 40*unit)
		r.sink.settle(logsLane, r.j.Durable())
		for i := range 6 { // new tenants come and are served at once
			lane := journal.Lane{Tenant: fmt.Sprint("t", i%2), Kind: journal.KindLogs}
			r.mustPut(lane, 40*unit)
			r.sink.settle(lane, r.j.Durable())
			r.barrier()
			r.housekeep()
			time.Sleep(r.time.barrierEvery)
		}
		assert.Equal(t, []journal.Position{at, r.segments()[1]}, r.segments(), "the pinned lane holds only its segment")
		assert.Equal(t, "pinned", r.c.Floor().State)
		assert.Equal(t, []string{"logs of pinned"}, r.c.Floor().Lanes)
		assert.Equal(t, barrier.Position(at), r.c.Floor().Position)
		assert.Len(t, r.events(), 1, "new tenants make no transitions: %v", r.events())
	})
}

func TestD13_TenantsUnderConcurrentFirstWrites(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxTenants = 5 })
	var mu sync.Mutex
	acked := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			lane := journal.Lane{Tenant: fmt.Sprint("t", i), Kind: journal.KindLogs}
			_, err := r.c.Commit(context.Background(), frame(t, lane, unit), func(bool) {})
			if err == nil {
				mu.Lock()
				acked[lane.Tenant] = true
				mu.Unlock()
				return
			}
			assert.Equal(t, refusal.TenantCap, refusalOf(t, err).Reason)
		})
	}
	wg.Wait()
	assert.Len(t, acked, 5)
	assert.Equal(t, 5, r.j.Stats().TenantsHeld)
	assert.Zero(t, r.j.Stats().TenantsReserved)

	t.Run("lowered cap keeps who is there and admits nobody new", func(t *testing.T) {
		r.cfg.MaxTenants = 2
		r.reopen()
		assert.Equal(t, 5, r.j.Stats().TenantsHeld)
		for tenant := range acked {
			_, err := r.put(journal.Lane{Tenant: tenant, Kind: journal.KindTraces}, unit)
			require.NoError(t, err)
		}
		_, err := r.put(journal.Lane{Tenant: "new", Kind: journal.KindLogs}, unit)
		assert.Equal(t, refusal.TenantCap, refusalOf(t, err).Reason)
	})
	t.Run("raised cap admits", func(t *testing.T) {
		r.cfg.MaxTenants = 6
		r.reopen()
		r.mustPut(journal.Lane{Tenant: "new", Kind: journal.KindLogs}, unit)
	})
}

func TestD13_AFirstWriteThatLeavesNoFrameReturnsItsSlot(t *testing.T) {
	for name, fault := range map[string]crashfs.Fault{
		"write": {Op: crashfs.OpWrite, Match: "*.wal", Err: syscall.EIO, Times: 1},
		"sync":  {Op: crashfs.OpDatasync, Match: "*.wal", Err: syscall.EIO, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *journal.Config) { c.MaxTenants = 1 })
			r.fs.Inject(fault)
			_, err := r.put(journal.Lane{Tenant: "a", Kind: journal.KindLogs}, unit)
			require.Error(t, err)
			assert.Zero(t, r.j.Stats().TenantsHeld+r.j.Stats().TenantsReserved)
			r.mustPut(journal.Lane{Tenant: "b", Kind: journal.KindLogs}, unit)
		})
	}
}

func TestD13_CrashKeepsTheSeatsOfWhoIsInTheLog(t *testing.T) {
	r := newRig(t, func(c *journal.Config) { c.MaxTenants = 2 })
	r.mustPut(journal.Lane{Tenant: "a", Kind: journal.KindLogs}, unit)
	r.mustPut(journal.Lane{Tenant: "b", Kind: journal.KindLogs}, unit)
	after := r.fs.Kill()
	require.Error(t, r.j.Close(), "the process is dead")
	r.fs = after
	r.open()
	assert.Equal(t, 2, r.j.Stats().TenantsHeld)
	_, err := r.put(journal.Lane{Tenant: "c", Kind: journal.KindLogs}, unit)
	assert.Equal(t, refusal.TenantCap, refusalOf(t, err).Reason)
}
