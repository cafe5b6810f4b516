// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/journal"
)

// maintainedLog is the receiver's log as its maintenance sees it.
type maintainedLog struct{ *walReceiver }

var _ barrier.Log = (*maintainedLog)(nil)

// Barrier records durably what was settled.
func (l *maintainedLog) Barrier(ctx context.Context, why barrier.Occasion) error {
	begin := time.Now()
	err := l.coordinator.Barrier(ctx, why)
	l.telemetry.barrier(time.Since(begin), err)
	return err
}

// Housekeep unlinks settled segments.
func (l *maintainedLog) Housekeep(ctx context.Context, maxUnlinks int) (barrier.Progress, error) {
	return l.coordinator.Housekeep(ctx, maxUnlinks)
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
			segment.HeldBy = append(segment.HeldBy, laneName(lane))
		}
		s.Segments = append(s.Segments, segment)
	}
	l.journal.Lock()
	rotation := l.journal.RotationState()
	l.journal.Unlock()
	s.Tenants = barrier.TenantStatus{Held: stats.TenantsHeld, Reserved: stats.TenantsReserved, Limit: stats.MaxTenants}
	s.Rotation = barrier.RotationStatus{State: rotationNames[rotation.Kind], Failures: rotation.Failures, NextTry: rotation.NextAttempt}
	if rotation.Cause != nil {
		s.Rotation.Cause = rotation.Cause.Error()
	}
	return s
}

var rotationNames = [...]string{
	journal.RotationHealthy:    "healthy",
	journal.RotationRetrying:   "retrying",
	journal.RotationVolumeFull: "volume_full",
	journal.RotationUnwritable: "unwritable",
	journal.RotationTerminal:   "terminal",
}

// laneName is how people are told of a lane: "logs", or "logs of acme".
func laneName(l journal.Lane) string {
	if l.Tenant == "" {
		return l.Kind.String()
	}
	return l.Kind.String() + " of " + l.Tenant
}
