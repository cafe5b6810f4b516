// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage"
	"github.com/otelweir/weir/internal/maintenance"
)

// stopWithin bounds how long Shutdown waits for readers of the page.
const stopWithin = 5 * time.Second

// statusServer is the status page's HTTP server and the sampler behind its
// plot.
type statusServer struct {
	server   *http.Server
	handler  *statuspage.Handler
	listener net.Listener

	sampling context.CancelFunc
	done     sync.WaitGroup
}

func startStatusServer(ctx context.Context, w *walStorage, host component.Host) (*statusServer, error) {
	cfg := w.cfg.Status.Get()
	s := &statusServer{handler: statuspage.NewHandler(w.document)}
	var err error
	s.server, err = cfg.ToServer(ctx, host.GetExtensions(), w.telemetry, s.handler)
	if err != nil {
		return nil, err
	}
	s.listener, err = cfg.ToListener(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.NetAddr.Endpoint, err)
	}
	w.telemetry.Logger.Info("Status page", zap.Stringer("address", s.listener.Addr()))

	s.done.Go(func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			w.telemetry.Logger.Error("The status page is gone until a restart; the logs are not affected", zap.Error(err))
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(fmt.Errorf("status page: %w", err)))
		}
	})
	sampling, cancel := context.WithCancel(context.Background())
	s.sampling = cancel
	s.done.Go(func() { w.sample(sampling) })
	return s, nil
}

// stop ends the server: readers have a moment, then they are cut off.
func (s *statusServer) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	s.sampling()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the status page: %w", err), s.server.Close())
	}
	s.handler.Wait(ctx)
	s.done.Wait()
	return err
}

// sample feeds every log's history until ctx ends.
func (w *walStorage) sample(ctx context.Context) {
	ticker := time.NewTicker(statuspage.SampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, entry := range w.registered() {
			unreclaimed, refusing, err := entry.usage()
			if err != nil {
				continue // the page says so
			}
			entry.history.Add(statuspage.Sample{At: time.Now(), Unreclaimed: unreclaimed, Refusing: refusing})
		}
	}
}

func (w *walStorage) registered() []*logEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entries()
}

// document is one look at every registered log. No lock of the extension is
// held while a log is asked.
func (w *walStorage) document() *statuspage.Document {
	doc := &statuspage.Document{Extension: w.id.String(), Logs: []statuspage.Log{}}
	for _, entry := range w.registered() {
		l := statuspage.Log{ID: entry.id.String(), Failure: w.failures.of(entry.id)}
		status, err := entry.status()
		if err != nil {
			l.Error = err.Error()
		}
		l.Status = status
		if status.Directory != "" {
			l.DeadLetters, l.Quarantined = statuspage.LookAside(status.Directory)
		}
		l.Maintenance = entry.maintenance()
		l.History = entry.history.Samples()
		doc.Logs = append(doc.Logs, l)
	}
	doc.Generated = time.Now()
	return doc
}

// failures are the permanent errors that receivers have reported. They have a
// lock of their own: a status may be reported under any lock of a log.
type failures struct {
	mu sync.Mutex
	by map[*componentstatus.InstanceID]error // guarded by mu
}

// Changed keeps what a receiver says has ended for good, such as reading a
// damaged log; see [extensioncapabilities.ComponentStatusWatcher].
func (w *walStorage) Changed(source *componentstatus.InstanceID, event *componentstatus.Event) {
	if source.Kind() != component.KindReceiver {
		return
	}
	w.failures.mu.Lock()
	defer w.failures.mu.Unlock()
	if event.Status() != componentstatus.StatusPermanentError {
		delete(w.failures.by, source) // only stopping comes after it
		return
	}
	if w.failures.by == nil {
		w.failures.by = map[*componentstatus.InstanceID]error{}
	}
	w.failures.by[source] = event.Err()
}

// of is what the receiver said, or empty. A receiver is one instance per
// signal, of which one reports for the log.
func (f *failures) of(id component.ID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for source, err := range f.by {
		if source.ComponentID() == id && err != nil {
			return err.Error()
		}
	}
	return ""
}

// status asks the log; a log that panics must not take the page, or the
// sampler, with it.
func (e *logEntry) status() (s barrier.Status, err error) {
	defer func() {
		if v := recover(); v != nil {
			s, err = barrier.Status{}, fmt.Errorf("the log's status panicked: %v", v)
		}
	}()
	return e.log.Status(), nil
}

// usage asks for what the plot shows. A full status describes every segment
// and lane, too much for every few seconds: logs that can say less do.
func (e *logEntry) usage() (unreclaimed uint64, refusing bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the log's usage panicked: %v", v)
		}
	}()
	if l, ok := e.log.(interface {
		Usage() (unreclaimed uint64, refusing bool)
	}); ok {
		unreclaimed, refusing = l.Usage()
		return unreclaimed, refusing, nil
	}
	s, err := e.status()
	return s.Unreclaimed, s.Latch.Refusing, err
}

func (e *logEntry) maintenance() statuspage.Maintenance {
	barriers, housekeeping := e.loop.Reports()
	return statuspage.Maintenance{
		Barrier:      newPass(barriers, e.loop.NextBarrier(), e.loop.BarrierInterval()),
		Housekeeping: newPass(housekeeping, e.loop.NextHousekeeping(), e.loop.HousekeepingInterval()),
	}
}

func newPass(r maintenance.PassReport, next time.Time, interval time.Duration) statuspage.Pass {
	return statuspage.Pass{
		Next: next, Interval: interval,
		Runs: r.Runs, Failures: r.Failures, Running: r.Running,
		Started: r.Started, Took: r.Took, LastError: r.LastError, Progress: r.Progress,
	}
}
