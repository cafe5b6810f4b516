// SPDX-License-Identifier: Apache-2.0

package walstorageextension

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage/statustest"
)

func withStatusPage(c *Config) { c.Status.GetOrInsertDefault().NetAddr.Endpoint = "localhost:0" }

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b)
}

func TestStatusPageIsServed(t *testing.T) {
	w, _ := startExtension(t, withStatusPage)
	log := &fakeLog{current: statustest.Refusing(time.Now())}
	log.current.Directory = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(log.current.Directory, "dead-letter"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(log.current.Directory, "dead-letter", "a.frame"), []byte("frame\n\n"), 0o600))
	schedule, unregister, err := w.RegisterLog(logID, log)
	require.NoError(t, err)
	defer unregister()
	address := w.status.listener.Addr().String()
	base := "http://" + address

	code, page := fetch(t, base+"/")
	require.Equal(t, http.StatusOK, code)
	assert.Contains(t, page, "Refusing: byte limit reached")

	code, raw := fetch(t, base+"/api/v1/status")
	require.Equal(t, http.StatusOK, code)
	var doc statuspage.Document
	require.NoError(t, json.Unmarshal([]byte(raw), &doc))
	require.Len(t, doc.Logs, 1)
	assert.Equal(t, "otlp_wal", doc.Logs[0].ID)
	assert.Equal(t, log.current.Unreclaimed, doc.Logs[0].Unreclaimed)
	assert.True(t, schedule.NextBarrier().Equal(doc.Logs[0].Maintenance.Barrier.Next) ||
		doc.Logs[0].Maintenance.Barrier.Next.Sub(schedule.NextBarrier()).Abs() < time.Microsecond, "the published instant")
	assert.Equal(t, 30*time.Second, doc.Logs[0].Maintenance.Barrier.Interval)

	assert.Equal(t, statuspage.Aside{Files: 1, Bytes: 7}, doc.Logs[0].DeadLetters)
	assert.Zero(t, doc.Logs[0].Quarantined)

	require.NoError(t, w.Shutdown(t.Context()))
	_, err = net.Dial("tcp", address)
	require.Error(t, err, "the port is free after Shutdown")
}

// The page may be read while logs come and go, and one that panics spoils
// neither the page nor the sampler.
func TestStatusOfAPanickingLog(t *testing.T) {
	w, _ := startExtension(t, unchanged)
	_, unregister, err := w.RegisterLog(logID, panickingLog{})
	require.NoError(t, err)
	defer unregister()
	doc := w.document()
	require.Len(t, doc.Logs, 1)
	assert.Equal(t, "the log's status panicked: boom", doc.Logs[0].Error)
}

// TestC23: the page of a log that cannot be read any further is red, for as
// long as its receiver says so.
func TestC23_PermanentErrorIsTheVerdict(t *testing.T) {
	w, _ := startExtension(t, withStatusPage)
	_, unregister, err := w.RegisterLog(logID, &fakeLog{current: statustest.Healthy(time.Now())})
	require.NoError(t, err)
	defer unregister()
	_, unregister, err = w.RegisterLog(component.MustNewIDWithName("otlp_wal", "sound"), &fakeLog{current: statustest.Healthy(time.Now())})
	require.NoError(t, err)
	defer unregister()
	logs := componentstatus.NewInstanceID(logID, component.KindReceiver)
	traces := componentstatus.NewInstanceID(logID, component.KindReceiver)
	exporter := componentstatus.NewInstanceID(component.MustNewIDWithName("otlp_wal", "sound"), component.KindExporter)
	failure := func() string {
		doc := w.document()
		assert.Empty(t, doc.Logs[1].Failure)
		return doc.Logs[0].Failure
	}

	w.Changed(logs, componentstatus.NewRecoverableErrorEvent(errors.New("parked")))
	assert.Empty(t, failure())
	w.Changed(exporter, componentstatus.NewPermanentErrorEvent(errors.New("no log of ours")))
	w.Changed(logs, componentstatus.NewPermanentErrorEvent(errors.New("damaged at offset 7")))
	w.Changed(traces, componentstatus.NewEvent(componentstatus.StatusOK)) // another instance of it
	assert.Equal(t, "damaged at offset 7", failure())
	_, raw := fetch(t, "http://"+w.status.listener.Addr().String()+"/api/v1/status")
	assert.Contains(t, raw, `"state": "failed"`)
	w.Changed(logs, componentstatus.NewEvent(componentstatus.StatusStopping))
	assert.Empty(t, failure())
}

type panickingLog struct{ barrier.Log }

func (panickingLog) Pressure() <-chan struct{} { return nil }
func (panickingLog) Status() barrier.Status    { panic("boom") }

func TestHistoryIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestExtension(t, unchanged)
		require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
		log := &fakeLog{}
		_, _, err := w.RegisterLog(logID, log)
		require.NoError(t, err)
		_, _, err = w.RegisterLog(component.MustNewIDWithName("otlp_wal", "broken"), panickingBarrierLog{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.sample(ctx)
		}()
		for i := range 5 {
			log.mu.Lock()
			log.current = barrier.Status{Unreclaimed: uint64(i), Latch: barrier.LatchStatus{Refusing: i == 3}}
			log.mu.Unlock()
			time.Sleep(statuspage.SampleInterval)
			synctest.Wait()
		}
		cancel()
		<-done
		samples := w.document().Logs[0].History
		require.Len(t, samples, 5)
		for i, s := range samples {
			assert.EqualValues(t, i, s.Unreclaimed)
			assert.Equal(t, i == 3, s.Refusing)
		}
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

// A log that can say what the plot needs is not asked for its full status.
func TestSamplerAsksForNoMoreThanItPlots(t *testing.T) {
	cheap := &logEntry{log: usageLog{}}
	unreclaimed, refusing, err := cheap.usage()
	require.NoError(t, err)
	assert.EqualValues(t, 7, unreclaimed)
	assert.True(t, refusing)
}

// usageLog's full status panics.
type usageLog struct{ panickingLog }

func (usageLog) Usage() (unreclaimed uint64, refusing bool) { return 7, true }

// panickingBarrierLog survives its passes but not its status.
type panickingBarrierLog struct{ panickingLog }

func (panickingBarrierLog) Barrier(context.Context, barrier.Occasion) error { return nil }

func (panickingBarrierLog) Housekeep(context.Context, int) (barrier.Progress, error) {
	return barrier.Progress{}, nil
}

// reportingHost records what components report of themselves.
type reportingHost struct {
	component.Host
	events chan *componentstatus.Event
}

func (h reportingHost) Report(e *componentstatus.Event) { h.events <- e }

// A server that dies is said, and takes nothing with it.
func TestStatusServerDies(t *testing.T) {
	w, seen := newTestExtension(t, withStatusPage)
	host := reportingHost{componenttest.NewNopHost(), make(chan *componentstatus.Event, 1)}
	require.NoError(t, w.Start(t.Context(), host))
	require.NoError(t, w.status.listener.Close())
	assert.Equal(t, componentstatus.StatusRecoverableError, (<-host.events).Status())
	assert.Equal(t, 1, seen.FilterMessageSnippet("The status page is gone").Len())
	_, unregister, err := w.RegisterLog(logID, &fakeLog{})
	require.NoError(t, err, "logs are still maintained")
	unregister()
	require.NoError(t, w.Shutdown(t.Context()))
}
