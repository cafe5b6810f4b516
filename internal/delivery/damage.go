// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"io"

	"go.uber.org/zap"

	"github.com/otelweir/weir/internal/journal"
)

// Damage that the log does not set aside ends the delivery of every lane that
// comes to it: one that travels with the main reader when that has met it, and
// one that is behind when the catch-up reader has, or when it has caught up.
// What a lane took before that is delivered. Nothing behind it is, for frames
// of any lane may have been in the range, and a frontier passes none of them.
// A group whose frames went bad after they were taken parks its lane as a
// failed attempt does, and is read again without end.

// countBehind is what becomes of the main reader at damage: it stops there, and
// only goes on to see what is accepted behind it, which is pending.
func (d *Delivery) countBehind(r reader, damage *journal.DamageError) {
	lanes := d.source.Lanes()
	d.mu.Lock()
	for _, info := range lanes {
		if info.Last >= damage.Start {
			d.stopAt(info.Lane, damage)
		}
	}
	d.unlock()
	r.Seek(max(damage.End, d.recovered))
	for !d.stopped() {
		grew := d.source.Grew()
		f, err := r.Next()
		further, damaged := errors.AsType[*journal.DamageError](err)
		switch {
		case err == nil:
			d.countFrame(&f, damage)
		case damaged:
			r.Seek(further.End)
		case errors.Is(err, io.EOF):
			select {
			case <-grew:
			case <-d.stop:
			}
		default:
			if !d.sleep() {
				return
			}
		}
	}
}

func (d *Delivery) countFrame(f *journal.ReadFrame, damage *journal.DamageError) {
	d.mu.Lock()
	defer d.unlock()
	if l := d.stopAt(journal.Lane{Tenant: f.Tenant, Kind: f.Kind}, damage); l != nil && f.Position >= d.recovered {
		l.counts.pending.Add(int64(f.Items))
		d.count(l).pending.Add(int64(f.Items))
	}
}

// stopAt has a lane, which is made if need be, go no further than the damage
// that the main reader met. It returns nil for a kind this version does not
// know.
func (d *Delivery) stopAt(id journal.Lane, damage *journal.DamageError) *lane {
	l := d.lanes[id]
	if l == nil {
		l = d.newLane(id, d.main)
	}
	if l != nil && l.damage == nil {
		l.damage = damage
		d.stopIfAtDamage(l)
	}
	return l
}

// meet notes damage that is the reason of err, and returns it.
func (d *Delivery) meet(err error) *journal.DamageError {
	damage, ok := errors.AsType[*journal.DamageError](err)
	if ok && d.damageAt(damage.Start) == nil {
		d.damages = append(d.damages, damage)
		d.tell(d.onChange)
	}
	return damage
}

// damageAt is the damage in whose range p is, or nil.
func (d *Delivery) damageAt(p journal.Position) *journal.DamageError {
	for _, damage := range d.damages {
		if damage.Start <= p && p < damage.End {
			return damage
		}
	}
	return nil
}

// stopIfAtDamage parks a lane for good that can not get past damage, once
// nothing is left of what it took before.
func (d *Delivery) stopIfAtDamage(l *lane) {
	if !l.atDamage() || l.groups.n > 0 || l.phase.halted() {
		return
	}
	l.leave(stopped, d.main)
	l.lastError = l.damage.Error()
	d.parked.Add(1)
	fields := []zap.Field{
		zap.String("event.name", "wal.delivery.parked"),
		zap.String("tenant", l.id.Tenant),
		zap.String("otelcol.signal", l.signal.String()),
		zap.String("state", string(l.state())),
		zap.Error(l.damage),
	}
	d.tell(func() {
		d.logger.Error("Delivery of a lane has ended at damage in the log; its frames stay, until the log is opened again and is repaired or sets damage aside", fields...)
		d.onChange()
	})
}
