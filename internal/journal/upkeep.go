// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"slices"
	"sync"
)

// upkeep is what maintenance keeps between its passes: STATE and the ranges in
// it. Used by the maintenance goroutine alone; the mutex is for Close.
type upkeep struct {
	mu        sync.Mutex
	state     *stateFile     // guarded by mu
	reclaimed []ordinalRange // behind the low-water mark, verified as gone; guarded by mu
	planned   []ordinalRange // recorded, one per segment, not yet verified as gone; guarded by mu
	lowWater  Position       // guarded by mu
}

func (u *upkeep) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.state.close()
	u.state = nil // a commit would open it again, and the lock is given up
	return err
}

// settleSteps is how many segments' worth of the reclaim index one hold of the
// journal lock works through.
const settleSteps = 4096

// Stamp records, in one commit of STATE, that every frame of each lane before
// its frontier is settled, and the durable position. Horizons only grow; lanes
// without a frontier keep theirs. A failed commit moves nothing. Only the
// maintenance goroutine calls it.
func (j *Journal) Stamp(frontiers map[Lane]Position) error {
	if err := j.commitState(frontiers); err != nil {
		return err
	}
	j.Lock()
	for j.ledger.settle(settleSteps) {
		j.publish()
		j.Unlock() // appends go first
		j.Lock()
	}
	j.publish()
	j.Unlock()
	j.lookAtDisk()
	return nil
}

// BarrierSeen says whether horizons were ever stamped in this log.
func (j *Journal) BarrierSeen() bool { return j.seen.Load() }

// commitState writes STATE with max(horizon, frontier) per lane; nil frontiers
// (Close, reclaiming) stamp nothing.
func (j *Journal) commitState(frontiers map[Lane]Position) error {
	u := &j.upkeep
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state == nil {
		return ErrClosed
	}
	r := stateRecord{
		barrierSeen: j.seen.Load() || frontiers != nil,
		lowWater:    u.lowWater, reclaimed: u.reclaimed, planned: u.planned,
	}
	j.Lock()
	r.nextOrdinal = j.nextOrdinal
	r.durable = j.durable.Load()
	r.tenants = make([]tenantHorizons, 0, len(j.ledger.tenants))
	for _, t := range j.ledger.tenants {
		if t.segments == 0 {
			continue // only queued so far: nothing of it can be settled
		}
		th := tenantHorizons{name: t.name}
		for _, ln := range t.lanes {
			if ln != nil {
				// a frontier is a position read up to, and only durable ones are read
				h := min(frontiers[ln.Lane], r.durable)
				if ln.horizon == 0 && h <= ln.first() {
					h = 0 // nothing of it was ever settled; a restart has to know that too
				}
				th.horizons[ln.Kind-1] = max(ln.horizon, h)
			}
		}
		r.tenants = append(r.tenants, th)
	}
	j.Unlock()
	slices.SortFunc(r.tenants, func(a, b tenantHorizons) int { return cmp.Compare(a.name, b.name) })

	if err := u.state.commit(&r); err != nil {
		return err
	}
	j.seen.Store(r.barrierSeen)
	if frontiers == nil {
		return nil
	}
	j.Lock()
	defer j.Unlock()
	for i := range r.tenants {
		for k, h := range r.tenants[i].horizons {
			if ln := j.ledger.lanes[Lane{r.tenants[i].name, Kind(k + 1)}]; ln != nil {
				j.ledger.stamp(ln, h)
			}
		}
	}
	return nil
}
