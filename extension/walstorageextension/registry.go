// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"cmp"
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage"
	"github.com/otelweir/weir/internal/maintenance"
)

// logEntry is one registered log.
type logEntry struct {
	id      component.ID
	log     barrier.Log
	loop    *maintenance.Loop
	history *statuspage.History // what the page plots; filled while there is a page
}

// RegisterLog starts the maintenance of l; see [barrier.Registry]. The same ID
// twice is an error, and so is a log before Start or after Shutdown.
func (w *walStorage) RegisterLog(id component.ID, l barrier.Log) (s barrier.Schedule, unregister func(), err error) {
	if l == nil {
		return nil, nil, fmt.Errorf("register log of %q: it is nil", id)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != running {
		return nil, nil, fmt.Errorf("register log of %q: %s is not running", id, w.id)
	}
	if _, ok := w.logs[id]; ok {
		return nil, nil, fmt.Errorf("register log of %q: %s already maintains a log of that name", id, w.id)
	}
	entry := &logEntry{
		id:      id,
		log:     l,
		loop:    maintenance.Start(l, w.cfg.maintenance(), w.flushers, w.telemetry.Logger.With(zap.Stringer("log", id))),
		history: statuspage.NewHistory(),
	}
	w.logs[id] = entry
	return entry.loop, func() {
		entry.loop.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.logs[id] == entry {
			delete(w.logs, id)
		}
	}, nil
}

// RegisterFlusher adds a component that buffers behind the logs; see
// [barrier.Registry].
func (w *walStorage) RegisterFlusher(id component.ID, f barrier.Flusher) (unregister func(), err error) {
	return w.flushers.Register(id, f)
}

// entries are the registered logs in the order of their names. mu is held.
func (w *walStorage) entries() []*logEntry {
	entries := make([]*logEntry, 0, len(w.logs))
	for _, entry := range w.logs {
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b *logEntry) int { return cmp.Compare(a.id.String(), b.id.String()) })
	return entries
}
