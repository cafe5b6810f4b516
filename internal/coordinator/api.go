// SPDX-License-Identifier: Apache-2.0

// Package coordinator admits frames to a log, commits them in groups, and decides its maintenance.
package coordinator // import "github.com/otelweir/weir/internal/coordinator"

import (
	"context"

	"github.com/otelweir/weir/internal/journal"
)

// STUB: signatures agreed between the packages. The owner of internal/coordinator replaces this file.

type Coordinator struct{}

// Commit is the admission sequence of contract §1 from (1) on. The error is a *refusal.Error. done runs exactly once, when the frame's buffers
// are no longer referenced, also on refusal, possibly after Commit returned (a caller that gave up).
func (c *Coordinator) Commit(ctx context.Context, f *journal.Frame, done func()) (journal.Position, error) {
	panic("stub")
}
