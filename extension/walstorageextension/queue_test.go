// SPDX-License-Identifier: Apache-2.0

package walstorageextension

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/plog"
)

type extensionHost map[component.ID]component.Component

func (h extensionHost) GetExtensions() map[component.ID]component.Component { return h }

// The Collector's own persistent queue, on our storage clients: what it could
// not send before a restart it sends after it.
func TestPersistentQueueOfTheCollector(t *testing.T) {
	dir := t.TempDir()
	// life runs one exporter until stop, with push as its destination.
	life := func(push func(plog.Logs) error, use func(send func(plog.Logs))) {
		w, _ := startExtension(t, func(c *Config) { c.Directory = dir })
		queue := exporterhelper.NewDefaultQueueConfig()
		queue.StorageID = &w.id
		set := exportertest.NewNopSettings(component.MustNewType("sink"))
		set.ID = component.MustNewID("sink")
		exporter, err := exporterhelper.NewLogs(t.Context(), set, struct{}{},
			func(_ context.Context, logs plog.Logs) error { return push(logs) },
			exporterhelper.WithQueue(configoptional.Some(queue)),
			exporterhelper.WithRetry(configretry.NewDefaultBackOffConfig()))
		require.NoError(t, err)
		require.NoError(t, exporter.Start(t.Context(), extensionHost{w.id: w}))
		use(func(logs plog.Logs) { require.NoError(t, exporter.ConsumeLogs(t.Context(), logs)) })
		require.NoError(t, exporter.Shutdown(t.Context()))
		require.NoError(t, w.Shutdown(t.Context()))
	}
	logs := func(body string) plog.Logs {
		l := plog.NewLogs()
		l.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr(body)
		return l
	}

	tried := make(chan struct{}, 10)
	life(func(plog.Logs) error {
		tried <- struct{}{}
		return errors.New("down")
	}, func(send func(plog.Logs)) {
		send(logs("a"))
		send(logs("b"))
		<-tried
		<-tried
	})

	arrived := make(chan string, 10)
	life(func(l plog.Logs) error {
		arrived <- l.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str()
		return nil
	}, func(func(plog.Logs)) {
		assert.ElementsMatch(t, []string{"a", "b"}, []string{<-arrived, <-arrived})
	})
	assert.Empty(t, arrived, "nothing twice")
}
