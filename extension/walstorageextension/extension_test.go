// SPDX-License-Identifier: Apache-2.0

package walstorageextension

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/metadata"
)

var (
	logID  = component.MustNewID("otlp_wal")
	sinkID = component.MustNewID("parquet")
)

// fakeLog counts its passes.
type fakeLog struct {
	mu       sync.Mutex
	barriers int
	passes   int
	current  barrier.Status
	hold     chan struct{} // a barrier waits for it
}

func (f *fakeLog) Barrier(context.Context, barrier.Occasion) error {
	f.mu.Lock()
	f.barriers++
	f.mu.Unlock()
	if f.hold != nil {
		<-f.hold
	}
	return nil
}

func (f *fakeLog) Housekeep(context.Context, int) (barrier.Progress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passes++
	return barrier.Progress{}, nil
}

func (f *fakeLog) Pressure() <-chan struct{} { return nil }

func (f *fakeLog) Status() barrier.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

func (f *fakeLog) ran() (barriers, passes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.barriers, f.passes
}

type flushFunc func(context.Context) error

func (f flushFunc) Flush(ctx context.Context) error { return f(ctx) }

func newTestExtension(t *testing.T, change func(*Config)) (*walStorage, *observer.ObservedLogs) {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	change(cfg)
	require.NoError(t, cfg.Validate())
	core, seen := observer.New(zapcore.DebugLevel)
	set := extensiontest.NewNopSettings(metadata.Type)
	set.ID = component.NewID(metadata.Type)
	set.Logger = zap.New(core)
	ext, err := NewFactory().Create(t.Context(), set, cfg)
	require.NoError(t, err)
	return ext.(*walStorage), seen
}

func startExtension(t *testing.T, change func(*Config)) (*walStorage, *observer.ObservedLogs) {
	t.Helper()
	w, seen := newTestExtension(t, change)
	require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { assert.NoError(t, w.Shutdown(context.Background())) })
	return w, seen
}

func unchanged(*Config) {}

// The validate command creates components and never starts them.
func TestCreateTouchesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	w, _ := newTestExtension(t, func(c *Config) {
		c.Directory = dir
		c.Status.GetOrInsertDefault().NetAddr.Endpoint = "not an address"
	})
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, w.Shutdown(t.Context()), "shutdown without start")
	require.NoError(t, w.Shutdown(t.Context()), "shutdown twice")
}

func TestRegisteredLogsAreMaintained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestExtension(t, unchanged)
		require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
		a, b := &fakeLog{}, &fakeLog{}
		schedule, unregisterA, err := w.RegisterLog(logID, a)
		require.NoError(t, err)
		_, unregisterB, err := w.RegisterLog(component.MustNewIDWithName("otlp_wal", "b"), b)
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, time.Until(schedule.NextBarrier()))
		assert.Equal(t, 10*time.Second, schedule.HousekeepingInterval())

		_, _, err = w.RegisterLog(logID, &fakeLog{})
		require.EqualError(t, err, `register log of "otlp_wal": wal_storage already maintains a log of that name`)

		time.Sleep(30 * time.Second)
		synctest.Wait()
		unregisterA()
		unregisterA()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		barriers, passes := a.ran()
		assert.Equal(t, [2]int{1, 3}, [2]int{barriers, passes}, "not after it was unregistered")
		barriers, passes = b.ran()
		assert.Equal(t, [2]int{2, 6}, [2]int{barriers, passes})

		// The name is free again, and a late second unregister of the first
		// must not end the second's registration.
		again := &fakeLog{}
		_, _, err = w.RegisterLog(logID, again)
		require.NoError(t, err)
		unregisterA()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, passes = again.ran()
		assert.Equal(t, 1, passes)

		require.NoError(t, w.Shutdown(t.Context()))
		time.Sleep(time.Hour)
		_, passes = b.ran()
		assert.Equal(t, 7, passes, "no pass after Shutdown")
		unregisterB()
		_, _, err = w.RegisterLog(logID, &fakeLog{})
		require.ErrorContains(t, err, "wal_storage is not running")
	})
}

func TestUnregisterWaitsForARunningPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestExtension(t, unchanged)
		require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
		log := &fakeLog{hold: make(chan struct{})}
		_, unregister, err := w.RegisterLog(logID, log)
		require.NoError(t, err)
		time.Sleep(31 * time.Second)
		go func() {
			time.Sleep(5 * time.Second)
			close(log.hold)
		}()
		begin := time.Now()
		unregister()
		assert.Equal(t, 5*time.Second, time.Since(begin))
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

func TestShutdownDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestExtension(t, unchanged)
		require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
		hangs, other := &fakeLog{hold: make(chan struct{})}, &fakeLog{}
		_, _, err := w.RegisterLog(logID, hangs)
		require.NoError(t, err)
		_, _, err = w.RegisterLog(component.MustNewIDWithName("otlp_wal", "b"), other)
		require.NoError(t, err)
		time.Sleep(31 * time.Second)
		begin := time.Now()
		err = w.Shutdown(t.Context())
		require.ErrorContains(t, err, `log of "otlp_wal": a maintenance pass is still running, the disk does not answer`)
		assert.NotContains(t, err.Error(), "otlp_wal/b")
		assert.Equal(t, passTime, time.Since(begin))
		close(hangs.hold) // its goroutine ends, or the bubble would not
		time.Sleep(time.Hour)
		barriers, _ := hangs.ran()
		assert.Equal(t, 1, barriers)
	})
}

func TestFlushersReachEveryLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newTestExtension(t, unchanged)
		require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
		schedule, _, err := w.RegisterLog(logID, &fakeLog{})
		require.NoError(t, err)
		assert.Zero(t, schedule.FlushBound())
		flushed := make(chan struct{}, 1)
		unregister, err := w.RegisterFlusher(sinkID, flushFunc(func(context.Context) error {
			flushed <- struct{}{}
			return nil
		}))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, schedule.FlushBound())
		schedule.Flush(t.Context())
		assert.Len(t, flushed, 1)
		unregister()
		schedule.Flush(t.Context())
		assert.Len(t, flushed, 1)
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

func TestRegisterRefusesNil(t *testing.T) {
	w, _ := startExtension(t, unchanged)
	_, _, err := w.RegisterLog(logID, nil)
	require.ErrorContains(t, err, `register log of "otlp_wal": it is nil`)
	_, err = w.RegisterFlusher(sinkID, nil)
	require.ErrorContains(t, err, `register flusher of "parquet": it is nil`)
}

func TestLogsNeedARunningExtension(t *testing.T) {
	w, _ := newTestExtension(t, unchanged)
	_, _, err := w.RegisterLog(logID, &fakeLog{})
	require.EqualError(t, err, `register log of "otlp_wal": wal_storage is not running`)
	require.NoError(t, w.Start(t.Context(), componenttest.NewNopHost()))
	require.ErrorContains(t, w.Start(t.Context(), componenttest.NewNopHost()), "was started before")
	require.NoError(t, w.Shutdown(t.Context()))
}

func TestLongHintsAreWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		barrier time.Duration
		want    int
	}{{100 * time.Second, 0}, {101 * time.Second, 1}} {
		_, seen := startExtension(t, func(c *Config) { c.BarrierInterval = tc.barrier })
		warnings := seen.FilterLevelExact(zapcore.WarnLevel)
		require.Equal(t, tc.want, warnings.Len(), "barrier_interval %v", tc.barrier)
		for _, w := range warnings.All() {
			assert.Equal(t, 121*time.Second, w.ContextMap()["worst_retry_after"])
		}
	}
}

func TestStorageClients(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "state")
	w, _ := startExtension(t, func(c *Config) { c.Directory = dir })
	client, err := w.GetClient(ctx, component.KindExporter, sinkID, "logs")
	require.NoError(t, err)
	require.NoError(t, client.Set(ctx, "k", []byte("v")))
	require.NoError(t, w.Shutdown(ctx))
	require.Error(t, client.Set(ctx, "k", []byte("late")), "shutdown closes what was left open")
	_, err = w.GetClient(ctx, component.KindExporter, sinkID, "logs")
	require.Error(t, err)

	// A reload: another instance on the same directory in the same process.
	w, _ = startExtension(t, func(c *Config) { c.Directory = dir })
	client, err = w.GetClient(ctx, component.KindExporter, sinkID, "logs")
	require.NoError(t, err)
	got, err := client.Get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, "v", string(got))
}

func TestNoStorageClientsWithoutADirectory(t *testing.T) {
	w, _ := startExtension(t, unchanged)
	_, err := w.GetClient(t.Context(), component.KindExporter, sinkID, "")
	require.EqualError(t, err, `wal_storage keeps no state for "parquet": extensions::wal_storage::directory is empty; set it to a directory on a durable volume`)

	w, _ = newTestExtension(t, func(c *Config) { c.Directory = t.TempDir() })
	_, err = w.GetClient(t.Context(), component.KindExporter, sinkID, "")
	require.EqualError(t, err, "wal_storage is not running")
}

func TestStartFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"directory is a file", func(c *Config) { c.Directory = file }, "extensions::wal_storage::directory: storage directory: " + file + " is not a directory"},
		{"endpoint in nobody's hands", func(c *Config) {
			c.Status.GetOrInsertDefault().NetAddr.Endpoint = "256.0.0.1:1"
		}, "extensions::wal_storage::status: listen on 256.0.0.1:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := newTestExtension(t, tc.change)
			require.ErrorContains(t, w.Start(t.Context(), componenttest.NewNopHost()), tc.want)
			require.NoError(t, w.Shutdown(t.Context()), "shutdown of a half-started instance")
		})
	}
}
