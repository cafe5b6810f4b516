// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/otelweir/weir/barrier"
)

// maintainedLog is the receiver's log as its maintenance sees it.
type maintainedLog struct{ *walReceiver }

var _ barrier.Log = (*maintainedLog)(nil)

// Barrier records durably what was settled.
func (l *maintainedLog) Barrier(ctx context.Context, why barrier.Occasion) error {
	if err := l.isBound(ctx); err != nil {
		return err
	}
	begin := time.Now()
	err := l.coordinator.Barrier(ctx, why)
	l.telemetry.barrier(time.Since(begin), err)
	return err
}

// Housekeep unlinks settled segments.
func (l *maintainedLog) Housekeep(ctx context.Context, maxUnlinks int) (barrier.Progress, error) {
	if err := l.isBound(ctx); err != nil {
		return barrier.Progress{}, err
	}
	return l.coordinator.Housekeep(ctx, maxUnlinks)
}

// isBound waits until the coordinator knows its schedule: maintenance begins
// while the log is being registered, which is before.
func (l *maintainedLog) isBound(ctx context.Context) error {
	select {
	case <-l.bound:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Usage is what a plot of the log shows, at the price of a few atomic loads.
func (l *maintainedLog) Usage() (unreclaimed uint64, refusing bool) {
	refusing, _ = l.coordinator.Refusing()
	return l.journal.Stats().Unreclaimed, refusing
}

// Pressure delivers a value when both are wanted early.
func (l *maintainedLog) Pressure() <-chan struct{} { return l.coordinator.Pressure() }

// Status is the log as people see it.
func (l *maintainedLog) Status() barrier.Status {
	stats := l.journal.Stats()
	id := l.journal.LogID()
	s := barrier.Status{
		Directory:   l.cfg.WAL.Directory,
		LogID:       hex.EncodeToString(id[:]),
		Limit:       uint64(l.cfg.WAL.limit()),
		Unreclaimed: stats.Unreclaimed,
		Unflushed:   stats.Unflushed,
		Disk:        stats.Disk,
		Durable:     barrier.Position(stats.Durable),
		MaxSegments: stats.MaxSegments,
		Prepared:    stats.Prepared,
		Lanes:       l.delivery.Lanes(),
		Latch:       l.coordinator.Latch(),
		Floor:       l.coordinator.Floor(),
		RetryAfter:  l.coordinator.RetryAfter(),
	}
	if stats.OldestReceived != 0 {
		s.Oldest = time.Unix(0, stats.OldestReceived)
	}
	for _, info := range l.journal.Segments() {
		segment := barrier.SegmentStatus{Name: info.Name, Base: barrier.Position(info.Base), Bytes: info.Bytes, State: info.State}
		for _, lane := range info.Lanes {
			segment.HeldBy = append(segment.HeldBy, lane.String())
		}
		s.Segments = append(s.Segments, segment)
	}
	l.journal.Lock()
	rotation := l.journal.RotationState()
	l.journal.Unlock()
	s.Tenants = barrier.TenantStatus{Held: stats.TenantsHeld, Reserved: stats.TenantsReserved, Limit: stats.MaxTenants}
	s.Rotation = barrier.RotationStatus{State: rotation.Kind.String(), Failures: rotation.Failures, NextTry: rotation.NextAttempt}
	if rotation.Cause != nil {
		s.Rotation.Cause = rotation.Cause.Error()
	}
	return s
}
