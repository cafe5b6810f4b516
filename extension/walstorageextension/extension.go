// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/boltstore"
	"github.com/otelweir/weir/internal/maintenance"
)

// passTime is how long maintenance passes may take to end when the Collector
// does: a pass that does not notice waits for the disk.
const passTime = 10 * time.Second

// walStorage is one configured wal_storage.
type walStorage struct {
	cfg       *Config
	id        component.ID
	telemetry component.TelemetrySettings
	flushers  *maintenance.Flushers
	failures  failures

	mu     sync.Mutex
	state  lifecycle                  // guarded by mu
	logs   map[component.ID]*logEntry // guarded by mu
	store  *boltstore.Store           // set by Start; guarded by mu
	status *statusServer              // set by Start; guarded by mu
}

type lifecycle uint8

const (
	created lifecycle = iota
	running
	stopped
)

var (
	_ extension.Extension                          = (*walStorage)(nil)
	_ storage.Extension                            = (*walStorage)(nil)
	_ barrier.Registry                             = (*walStorage)(nil)
	_ extensioncapabilities.ConfigSnapshotWatcher  = (*walStorage)(nil)
	_ extensioncapabilities.ComponentStatusWatcher = (*walStorage)(nil)
)

func newExtension(set extension.Settings, cfg *Config) *walStorage {
	return &walStorage{
		cfg:       cfg,
		id:        set.ID,
		telemetry: set.TelemetrySettings,
		flushers:  maintenance.NewFlushers(set.Logger),
		logs:      map[component.ID]*logEntry{},
	}
}

// Start prepares the storage directory and opens the status server. Logs
// register later, when their receivers start.
func (w *walStorage) Start(ctx context.Context, host component.Host) error {
	if worst := w.cfg.worstHint(); worst > longestHint {
		w.telemetry.Logger.Warn("Refusals may advise a delay that makes senders drop data: a stock sender gives a batch up when the delay exceeds what is left of its max_elapsed_time (300s by default). "+
			"Shorten barrier_interval or housekeeping_interval.",
			zap.Duration("worst_retry_after", worst), zap.Duration("recommended_at_most", longestHint),
			zap.Duration("barrier_interval", w.cfg.BarrierInterval), zap.Duration("housekeeping_interval", w.cfg.HousekeepingInterval))
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != created {
		return fmt.Errorf("%s was started before", w.id)
	}
	if w.cfg.Directory != "" {
		store, err := boltstore.Open(w.cfg.Directory)
		if err != nil {
			return fmt.Errorf("extensions::%s::directory: %w", w.id, err)
		}
		w.store = store
	}
	if w.cfg.Status.HasValue() {
		server, err := startStatusServer(ctx, w, host)
		if err != nil {
			return fmt.Errorf("extensions::%s::status: %w", w.id, err)
		}
		w.status = server
	}
	w.state = running
	return nil
}

// Shutdown ends the maintenance of logs that are still registered, the status
// server and every storage client. A disk that hangs is an error, and not
// waited for. It works without Start and may be called more than once.
func (w *walStorage) Shutdown(ctx context.Context) error {
	w.mu.Lock()
	w.state = stopped
	logs, server, store := w.entries(), w.status, w.store
	w.status = nil
	w.mu.Unlock()

	var errs error
	if server != nil {
		errs = errors.Join(errs, server.stop(ctx))
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), passTime)
	defer cancel()
	ended := make([]error, len(logs))
	var all sync.WaitGroup
	for i, entry := range logs {
		all.Go(func() {
			if err := entry.loop.Shutdown(stopping); err != nil {
				ended[i] = fmt.Errorf("log of %q: %w", entry.id, err)
			}
		})
	}
	all.Wait()
	errs = errors.Join(append(ended, errs)...)
	if store != nil {
		errs = errors.Join(errs, store.Close())
	}
	return errs
}

// GetClient opens the storage client of one component; see [storage.Extension].
func (w *walStorage) GetClient(ctx context.Context, kind component.Kind, id component.ID, storageName string) (storage.Client, error) {
	if w.cfg.Directory == "" {
		return nil, fmt.Errorf("%s keeps no state for %q: extensions::%s::directory is empty; set it to a directory on a durable volume", w.id, id, w.id)
	}
	w.mu.Lock()
	store := w.store
	w.mu.Unlock()
	if store == nil {
		return nil, fmt.Errorf("%s is not running", w.id)
	}
	return store.Client(ctx, kind, id, storageName)
}
