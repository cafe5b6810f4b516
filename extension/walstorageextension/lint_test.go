// SPDX-License-Identifier: Apache-2.0

package walstorageextension

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/extensioncapabilities"
	"go.uber.org/zap/zapcore"
)

func snapshot(t *testing.T, text string) extensioncapabilities.ConfigSnapshot {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(text))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	return extensioncapabilities.NewConfigSnapshot(conf, nil)
}

func TestRequireSynchronous(t *testing.T) {
	w, seen := startExtension(t, unchanged)
	err := w.NotifyConfigSnapshot(t.Context(), snapshot(t, `
receivers: { otlp_wal: }
exporters: { otlp_grpc: { sending_queue: { wait_for_result: false } }, custom: }
service: { pipelines: { logs: { receivers: [otlp_wal], processors: [batch], exporters: [otlp_grpc, custom] } } }`))
	require.ErrorContains(t, err, `wal_storage: require_synchronous: pipeline "logs": processor "batch"`)
	require.ErrorContains(t, err, `set exporters::otlp_grpc::sending_queue::wait_for_result: true`)

	infos := seen.FilterLevelExact(zapcore.InfoLevel).FilterMessageSnippet("require_synchronous")
	require.Equal(t, 1, infos.Len(), "one line for what cannot be judged")
	assert.Equal(t, []any{`exporter "custom"`}, infos.All()[0].ContextMap()["components"])

	assert.Zero(t, seen.FilterMessageSnippet("retry by themselves").Len())
	require.NoError(t, w.NotifyConfigSnapshot(t.Context(), snapshot(t, `
receivers: { otlp_wal: }
exporters: { otlp_grpc: { sending_queue: { enabled: false }, retry_on_failure: { enabled: true } } }
service: { pipelines: { logs: { receivers: [otlp_wal], exporters: [otlp_grpc] } } }`)), "it loses nothing, so it is not refused")
	warnings := seen.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet("retry by themselves")
	require.Equal(t, 1, warnings.Len())
	assert.Equal(t, []any{"exporters::otlp_grpc::retry_on_failure::enabled: false"}, warnings.All()[0].ContextMap()["set"])

	require.NoError(t, w.NotifyConfigSnapshot(t.Context(), snapshot(t, `
receivers: { otlp_wal: { storage: wal_storage/other } }
service: { pipelines: { logs: { receivers: [otlp_wal], processors: [batch], exporters: [custom] } } }`)))
	assert.Equal(t, 1, seen.FilterMessageSnippet("require_synchronous").Len())

	require.NoError(t, w.NotifyConfigSnapshot(t.Context(), extensioncapabilities.NewConfigSnapshot(nil, nil)))
	assert.Equal(t, 1, seen.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet("skipped").Len())
}
