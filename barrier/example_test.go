// SPDX-License-Identifier: Apache-2.0

package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelweir/weir/barrier"
)

// bufferingExporter writes files of many batches, and is told of success only
// by the store. Without a log upstream it has to write each batch alone; behind
// one it may collect, because the log keeps what it retains.
type bufferingExporter struct {
	id    component.ID
	store func(ctx context.Context, batches []plog.Logs) error

	unregister []func()

	mu      sync.Mutex
	batches []plog.Logs          // guarded by mu
	handles []func(durable bool) // of batches, one each; guarded by mu
}

// Start joins every log there is.
func (e *bufferingExporter) Start(_ context.Context, host component.Host) error {
	for _, extension := range host.GetExtensions() {
		registry, ok := extension.(barrier.Registry)
		if !ok {
			continue
		}
		unregister, err := registry.RegisterFlusher(e.id, e)
		if err != nil {
			return err
		}
		e.unregister = append(e.unregister, unregister)
	}
	return nil
}

func (e *bufferingExporter) ConsumeLogs(ctx context.Context, logs plog.Logs) error {
	release, ok := barrier.Retain(ctx)
	if !ok {
		return e.store(ctx, []plog.Logs{logs}) // no log upstream: done means durable
	}
	kept := plog.NewLogs()
	logs.CopyTo(kept) // the caller's data is not ours after the return

	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = append(e.batches, kept)
	e.handles = append(e.handles, release)
	return nil
}

// Flush writes what is collected: when the file is full, when it is old
// enough, and when a log that is running out of room asks.
func (e *bufferingExporter) Flush(ctx context.Context) error {
	e.mu.Lock()
	batches, handles := e.batches, e.handles
	e.batches, e.handles = nil, nil
	e.mu.Unlock()
	if len(batches) == 0 {
		return nil
	}
	err := e.store(ctx, batches)
	for _, release := range handles {
		release(err == nil) // not durable: the log delivers it again
	}
	return err
}

// Shutdown leaves the rest to the log: what is not released is delivered again
// after the restart.
func (e *bufferingExporter) Shutdown(ctx context.Context) error {
	for _, unregister := range e.unregister {
		unregister()
	}
	return e.Flush(ctx)
}

// A third party's exporter that buffers and still loses nothing.
func ExampleRetain() {
	storeUp := true
	exporter := &bufferingExporter{
		id: component.MustNewID("files"),
		store: func(_ context.Context, batches []plog.Logs) error {
			if !storeUp {
				return errors.New("store: 503")
			}
			fmt.Printf("stored %d batches in one file\n", len(batches))
			return nil
		},
	}
	log := newExampleLog()
	host := exampleHost{component.MustNewID("wal_storage"): log}
	if err := exporter.Start(context.Background(), host); err != nil {
		panic(err)
	}

	log.deliver(exporter, 1)
	log.deliver(exporter, 2)
	fmt.Println("settled before the flush:", log.settled)
	log.flush()
	fmt.Println("settled after it:", log.settled)

	storeUp = false
	log.deliver(exporter, 3)
	log.flush()
	fmt.Println("to be delivered again:", log.again)

	storeUp = true
	logs := plog.NewLogs()
	fmt.Println("without a log:", exporter.ConsumeLogs(context.Background(), logs))
	_ = exporter.Shutdown(context.Background())
	fmt.Println("flushers left:", len(log.flushers))

	// Output:
	// settled before the flush: []
	// stored 2 batches in one file
	// settled after it: [1 2]
	// to be delivered again: [3]
	// stored 1 batches in one file
	// without a log: <nil>
	// flushers left: 0
}

// exampleLog stands for otlp_wal and wal_storage together.
type exampleLog struct {
	barrier.Registry
	flushers map[component.ID]barrier.Flusher
	settled  []barrier.Position
	again    []barrier.Position
}

func newExampleLog() *exampleLog {
	return &exampleLog{flushers: map[component.ID]barrier.Flusher{}}
}

func (l *exampleLog) RegisterFlusher(id component.ID, f barrier.Flusher) (func(), error) {
	l.flushers[id] = f
	return func() { delete(l.flushers, id) }, nil
}

func (l *exampleLog) flush() {
	for _, f := range l.flushers {
		_ = f.Flush(context.Background()) // the result does not matter: only what is released is settled
	}
}

func (l *exampleLog) deliver(e *bufferingExporter, at barrier.Position) {
	frames := barrier.FrameRange{Signal: pipeline.SignalLogs, Frames: []barrier.FrameRef{{Position: at, Items: 1}}}
	retained := false
	ctx := barrier.NewContext(context.Background(), frames, func() (func(bool), bool) {
		retained = true
		return func(durable bool) {
			if durable {
				l.settled = append(l.settled, at)
			} else {
				l.again = append(l.again, at)
			}
		}, true
	})
	err := e.ConsumeLogs(ctx, plog.NewLogs())
	switch {
	case err != nil:
		l.again = append(l.again, at)
	case !retained:
		l.settled = append(l.settled, at)
	}
}

func (l *exampleLog) Start(context.Context, component.Host) error { return nil }
func (l *exampleLog) Shutdown(context.Context) error              { return nil }

type exampleHost map[component.ID]component.Component

func (h exampleHost) GetExtensions() map[component.ID]component.Component { return h }
