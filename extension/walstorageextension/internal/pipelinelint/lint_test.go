// SPDX-License-Identifier: Apache-2.0

package pipelinelint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var extensionID = component.MustNewID("wal_storage")

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(text))
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	return conf.ToStringMap()
}

// sync, queued and persistent are exporters as the effective configuration
// shows them.
const exporters = `
exporters:
  sync/nil: { sending_queue: }
  sync/off: { sending_queue: { enabled: false, wait_for_result: false } }
  sync/waits: { sending_queue: { wait_for_result: true, storage: } }
  queued: { sending_queue: { wait_for_result: false, num_consumers: 10, storage: } }
  queued/old_style: { sending_queue: { enabled: true } }
  persistent: { sending_queue: { wait_for_result: false, storage: file_storage } }
  wrapper: { sending_queue: , protocol: { otlp: { sending_queue: { wait_for_result: false } } } }
  parquet: {}
  debug: { verbosity: basic }
  custom: { endpoint: x }
`

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name    string
		conf    string
		want    []string // what the findings must say, one per finding
		unknown []string
	}{
		{
			name: "synchronous exporters",
			conf: `
receivers: { otlp_wal: }
processors: { memory_limiter: , resource/x: }
service: { pipelines: { logs: { receivers: [otlp_wal], processors: [memory_limiter, resource/x], exporters: [sync/nil, sync/off, sync/waits, debug, parquet] } } }`,
		},
		{
			name: "batch processor",
			conf: `
receivers: { otlp_wal/edge: }
service: { pipelines: { logs/main: { receivers: [otlp_wal/edge], processors: [batch/big], exporters: [debug] } } }`,
			want: []string{`pipeline "logs/main": processor "batch/big" returns as soon as it has queued its data, so data that receiver "otlp_wal/edge" has acknowledged can be lost with the process: remove "batch/big" from service::pipelines::logs/main::processors and batch in the exporter instead (its sending_queue::batch, with sending_queue::wait_for_result: true); to accept that loss set receivers::otlp_wal/edge::delivery::require_synchronous: false`},
		},
		{
			name: "queue that does not wait",
			conf: `
receivers: { otlp_wal: }
service: { pipelines: { traces: { receivers: [otlp_wal], exporters: [debug, queued] } } }`,
			want: []string{`pipeline "traces": exporter "queued" returns as soon as its data is in its sending_queue, so data that receiver "otlp_wal" has acknowledged can be lost with the process: set exporters::queued::sending_queue::wait_for_result: true, or exporters::queued::sending_queue::enabled: false; to accept`},
		},
		{
			name: "queue switched on the old way",
			conf: `
receivers: { otlp_wal: }
service: { pipelines: { traces: { receivers: [otlp_wal], exporters: [queued/old_style] } } }`,
			want: []string{`set exporters::queued/old_style::sending_queue::wait_for_result: true`},
		},
		{
			name: "persistent queue",
			conf: `
receivers: { otlp_wal: }
service: { pipelines: { traces: { receivers: [otlp_wal], exporters: [persistent] } } }`,
			want: []string{`exporter "persistent" returns as soon as its data is in its persistent sending_queue (storage: file_storage), which cannot wait for results, so data that receiver "otlp_wal" has acknowledged can be lost with the process: set exporters::persistent::sending_queue::enabled: false`},
		},
		{
			name: "queue of a wrapped exporter",
			conf: `
receivers: { otlp_wal: }
service: { pipelines: { traces: { receivers: [otlp_wal], exporters: [wrapper] } } }`,
			want: []string{`set exporters::wrapper::protocol::otlp::sending_queue::wait_for_result: true`},
		},
		{
			name: "every pipeline of the receiver, no other",
			conf: `
receivers: { otlp_wal: , otlp: }
service: { pipelines: {
  logs: { receivers: [otlp, otlp_wal], exporters: [queued] },
  traces: { receivers: [otlp_wal], processors: [tail_sampling], exporters: [debug] },
  metrics: { receivers: [otlp], processors: [batch], exporters: [queued] } } }`,
			want: []string{
				`pipeline "logs": exporter "queued"`,
				`pipeline "traces": processor "tail_sampling" holds its data in memory until its decision, so data that receiver "otlp_wal" has acknowledged can be lost with the process: remove "tail_sampling" from service::pipelines::traces::processors; to accept`,
			},
		},
		{
			name: "connectors lead on, also in a circle",
			conf: `
receivers: { otlp_wal: }
connectors: { routing: , forward/a: , spanmetrics: }
service: { pipelines: {
  logs: { receivers: [otlp_wal], exporters: [routing] },
  logs/a: { receivers: [routing], exporters: [forward/a, debug] },
  logs/b: { receivers: [forward/a], processors: [batch], exporters: [routing] },
  metrics: { receivers: [spanmetrics], exporters: [queued] },
  traces: { receivers: [otlp_wal], exporters: [spanmetrics, debug] },
  logs/elsewhere: { receivers: [other], processors: [batch], exporters: [debug] } } }`,
			want: []string{
				`pipeline "logs/b" (reached through connector "forward/a"): processor "batch"`,
				`pipeline "metrics" (reached through connector "spanmetrics"): exporter "queued"`,
			},
			unknown: []string{`connector "spanmetrics"`},
		},
		{
			name: "several receivers share a pipeline",
			conf: `
receivers: { otlp_wal/a: , otlp_wal/b: }
service: { pipelines: { logs: { receivers: [otlp_wal/a, otlp_wal/b], processors: [batch], exporters: [debug] } } }`,
			want: []string{`receivers::otlp_wal/a::`, `receivers::otlp_wal/b::`},
		},
		{
			name: "unknown components pass and are named once",
			conf: `
receivers: { otlp_wal: }
service: { pipelines: {
  logs: { receivers: [otlp_wal], processors: [novel], exporters: [custom] },
  traces: { receivers: [otlp_wal], processors: [novel], exporters: [custom] } } }`,
			unknown: []string{`exporter "custom"`, `processor "novel"`},
		},
		{
			name: "receivers that do not want the check, or not from us",
			conf: `
receivers:
  otlp_wal/accepts: { delivery: { require_synchronous: false } }
  otlp_wal/internal: { maintenance: internal }
  otlp_wal/other: { storage: wal_storage/other }
service: { pipelines: { logs: { receivers: [otlp_wal/accepts, otlp_wal/internal, otlp_wal/other], processors: [batch, novel], exporters: [queued] } } }`,
		},
		{
			name: "receiver with everything spelled out",
			conf: `
receivers: { otlp_wal: { storage: wal_storage, maintenance: extension, delivery: { require_synchronous: true } } }
service: { pipelines: { logs: { receivers: [otlp_wal], processors: [batch], exporters: [debug] } } }`,
			want: []string{`processor "batch"`},
		},
		{name: "no receiver", conf: `service: { pipelines: { logs: { receivers: [otlp], processors: [batch], exporters: [queued] } } }`},
		{
			name: "keys of unexpected kinds", conf: `
receivers: { otlp_wal: 5 }
service: { pipelines: { logs: 7, traces: { receivers: otlp_wal }, metrics: { receivers: [otlp_wal], processors: , exporters: [nothing] } } }`,
			unknown: []string{`exporter "nothing"`},
		},
		{name: "nothing at all", conf: `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf := parse(t, exporters)
			for key, value := range parse(t, tc.conf) {
				conf[key] = value
			}
			got := Check(conf, extensionID)
			require.Len(t, got.Findings, len(tc.want), "%v", got.Findings)
			for i, want := range tc.want {
				assert.Contains(t, got.Findings[i].Error(), want)
			}
			assert.Equal(t, tc.unknown, got.Unknown)
		})
	}
}

// An exporter that retries hides an outage. It is named, once, and refused by
// nobody; so are those it wraps.
func TestRetrying(t *testing.T) {
	got := Check(parse(t, `
exporters:
  on: { retry_on_failure: { enabled: true, max_elapsed_time: 300s } }
  on/by_default: { retry_on_failure: { max_elapsed_time: 0s } }
  off: { retry_on_failure: { enabled: false, max_elapsed_time: 300s } }
  off/null: { retry_on_failure: }
  wrapper: { protocol: { otlp: { retry_on_failure: { enabled: true } } } }
  elsewhere: { retry_on_failure: { enabled: true } }
receivers: { otlp_wal: , otlp: }
service: { pipelines: {
  logs: { receivers: [otlp_wal], exporters: [on, on/by_default, off, off/null, wrapper] },
  traces: { receivers: [otlp_wal], exporters: [on] },
  metrics: { receivers: [otlp], exporters: [elsewhere] } } }`), extensionID)
	assert.Empty(t, got.Findings)
	assert.Equal(t, []string{
		"exporters::on/by_default::retry_on_failure", "exporters::on::retry_on_failure",
		"exporters::wrapper::protocol::otlp::retry_on_failure",
	}, got.Retrying)
}

// The effective configuration of the stock exporters, marshalled as the
// Collector does it: their queue is on unless it is switched off, and the
// check must see that although the operator wrote nothing.
func TestStockExportersAsTheCollectorMarshalsThem(t *testing.T) {
	grpc := func(change func(*otlpexporter.Config)) component.Config {
		cfg := otlpexporter.NewFactory().CreateDefaultConfig().(*otlpexporter.Config)
		change(cfg)
		return cfg
	}
	http := func(change func(*otlphttpexporter.Config)) component.Config {
		cfg := otlphttpexporter.NewFactory().CreateDefaultConfig().(*otlphttpexporter.Config)
		change(cfg)
		return cfg
	}
	fileStorage := component.MustNewID("file_storage")
	for _, tc := range []struct {
		name string
		cfg  component.Config
		want string
	}{
		{"otlp_grpc by default", grpc(func(*otlpexporter.Config) {}), "exporters::x::sending_queue::wait_for_result: true"},
		{"otlp_http by default", http(func(*otlphttpexporter.Config) {}), "exporters::x::sending_queue::wait_for_result: true"},
		{"otlp_grpc waits", grpc(func(c *otlpexporter.Config) { c.QueueConfig.Get().WaitForResult = true }), ""},
		{"otlp_http waits", http(func(c *otlphttpexporter.Config) { c.QueueConfig.Get().WaitForResult = true }), ""},
		{"otlp_grpc without queue or retry", grpc(func(c *otlpexporter.Config) {
			c.RetryConfig.Enabled = false
			c.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
		}), ""},
		{"otlp_http persistent", http(func(c *otlphttpexporter.Config) { c.QueueConfig.Get().StorageID = &fileStorage }), "(storage: file_storage)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf := confmap.New()
			require.NoError(t, conf.Marshal(struct {
				Exporters map[component.ID]component.Config `mapstructure:"exporters"`
			}{map[component.ID]component.Config{component.MustNewID("x"): tc.cfg}}))
			full := conf.ToStringMap()
			for key, value := range parse(t, `
receivers: { otlp_wal: }
service: { pipelines: { logs: { receivers: [otlp_wal], exporters: [x] } } }`) {
				full[key] = value
			}
			got := Check(full, extensionID)
			assert.Empty(t, got.Unknown)
			if strings.HasSuffix(tc.name, "without queue or retry") {
				assert.Empty(t, got.Retrying)
			} else {
				assert.Equal(t, []string{"exporters::x::retry_on_failure"}, got.Retrying, "on unless it is switched off")
			}
			if tc.want == "" {
				assert.Empty(t, got.Findings)
				return
			}
			require.Len(t, got.Findings, 1)
			assert.Contains(t, got.Findings[0].Error(), tc.want)
		})
	}
}
