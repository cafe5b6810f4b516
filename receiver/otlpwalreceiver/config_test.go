// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
)

// load reads one configuration of testdata/config.yaml.
func load(t *testing.T, id string) (*Config, error) {
	t.Helper()
	cm, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := cm.Sub(id)
	require.NoError(t, err)
	cfg := createDefaultConfig().(*Config)
	if err := sub.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

// parse reads a configuration from YAML as the Collector does, ${env:…}
// included.
func parse(t *testing.T, yaml string) (*Config, error) {
	t.Helper()
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"yaml:" + yaml},
		ProviderFactories: []confmap.ProviderFactory{envprovider.NewFactory(), yamlprovider.NewFactory()},
		DefaultScheme:     "env",
	})
	require.NoError(t, err)
	cm, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	require.NoError(t, resolver.Shutdown(t.Context()))
	cfg := createDefaultConfig().(*Config)
	if err := cm.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func TestB13_DefaultsAndDerivedDefaults(t *testing.T) {
	cfg, err := load(t, "otlp_wal")
	require.NoError(t, err)

	want := createDefaultConfig().(*Config)
	want.Protocols.GRPC.GetOrInsertDefault()
	want.Protocols.HTTP.GetOrInsertDefault()
	assert.Equal(t, want, cfg)

	assert.Equal(t, GiB, cfg.WAL.limit())
	assert.Equal(t, 8+16, cfg.WAL.segments())
	grpc, http := cfg.grpcServer(), cfg.httpServer()
	assert.Equal(t, 17, grpc.MaxRecvMsgSizeMiB)
	assert.EqualValues(t, 100, grpc.MaxConcurrentStreams)
	assert.EqualValues(t, 17<<20, http.MaxRequestBodySize)
	assert.Equal(t, 10*time.Second, http.ReadTimeout)
	assert.False(t, grpc.IncludeMetadata || http.IncludeMetadata)
	assert.Empty(t, cfg.warnings())
}

func TestREADMEShowsEveryKeyWithItsDefault(t *testing.T) {
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(b), "All keys with their defaults:\n\n```yaml\n")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "```")
	require.True(t, ok)
	shown, err := confmap.NewRetrievedFromYAML([]byte(text))
	require.NoError(t, err)
	cm, err := shown.AsConf()
	require.NoError(t, err)
	sub, err := cm.Sub("receivers::otlp_wal")
	require.NoError(t, err)
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, sub.Unmarshal(cfg))
	want := createDefaultConfig().(*Config)
	want.Protocols.GRPC.GetOrInsertDefault()
	want.Protocols.HTTP.GetOrInsertDefault()
	want.MetadataKeys = []string{}
	want.defaulted = defaulted{}
	assert.Equal(t, want, cfg)

	// Every key of ours is there. Embedded servers have their own READMEs.
	ours := confmap.New()
	require.NoError(t, ours.Marshal(want))
	for _, key := range ours.AllKeys() {
		if !strings.HasPrefix(key, "protocols::") {
			assert.True(t, sub.IsSet(key), key)
		}
	}
}

func TestB13_EveryKey(t *testing.T) {
	cfg, err := load(t, "otlp_wal/every_key")
	require.NoError(t, err)

	want := createDefaultConfig().(*Config)
	grpc := want.Protocols.GRPC.GetOrInsertDefault()
	grpc.NetAddr.Endpoint = "0.0.0.0:4317"
	grpc.MaxRecvMsgSizeMiB = 8
	grpc.MaxConcurrentStreams = 50
	http := want.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.NetAddr.Endpoint = "0.0.0.0:4318"
	http.ServerConfig.MaxRequestBodySize = 8_000_000
	http.ServerConfig.ReadTimeout = time.Minute
	http.LogsURLPath, http.TracesURLPath, http.MetricsURLPath = "/in/logs", "/in/traces", "/in/metrics"
	want.Storage = component.MustNewIDWithName("wal_storage", "second")
	want.Maintenance = "internal"
	want.WAL = WALConfig{
		Directory: "/data/wal", SegmentSize: 64 * MiB, SegmentAge: time.Minute, MaxFrameSize: 6 * MiB,
		UnreclaimedBytesLimit: 10 * GiB, MaxSegments: 200, RotationRetryAttempts: 3, BatchWindow: 5 * time.Millisecond,
		OnCorruption: "quarantine", QuarantineMaxBytes: MiB, Preallocate: false, ReserveCheck: "fail",
	}
	want.Admission = AdmissionConfig{MaxInFlightBytes: GiB, MaxRequests: 7, BodyTimeout: 3 * time.Second, MaxNesting: 5}
	want.Tenant = TenantConfig{MetadataKey: "X-Scope-OrgID", Required: true, MaxTenants: 9, Metrics: true}
	want.MetadataKeys = []string{"x-region", "x-zone"}
	want.Delivery = DeliveryConfig{
		Consumers: 2, Timeout: time.Minute, MaxInFlightBytes: 32 * MiB,
		Group:            GroupConfig{MaxItems: 100, MaxBytes: MiB},
		Retry:            RetryConfig{InitialInterval: 2 * time.Second, MaxInterval: time.Minute, Multiplier: 2, RandomizationFactor: 0.1},
		OnPermanentError: "drop", PermanentGrace: time.Minute, DeadLetterMaxBytes: 2 * MiB, OnMissingPipeline: "dead_letter",
		RequireSynchronous: false,
	}
	want.defaulted = defaulted{}
	assert.Equal(t, want, cfg)

	assert.Equal(t, 10*GiB, cfg.WAL.limit())
	assert.Equal(t, 200, cfg.WAL.segments())
	assert.Equal(t, 8, cfg.grpcServer().MaxRecvMsgSizeMiB)
	assert.EqualValues(t, 8_000_000, cfg.httpServer().MaxRequestBodySize)
	assert.Equal(t, time.Minute, cfg.httpServer().ReadTimeout)
	assert.True(t, cfg.grpcServer().IncludeMetadata)
	assert.True(t, cfg.httpServer().IncludeMetadata)
	assert.False(t, cfg.Protocols.GRPC.Get().IncludeMetadata, "resolving leaves the configuration alone")
}

func TestB13_DerivedFromOtherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*Config)
		limit          Size
		segments       int
		grpcMiB        int
		httpBytes      int64
		readTimeout    time.Duration
		takesMetadata  bool
		warningsAbout  []string
		admissionBytes Size
	}{
		"limit follows a large segment": {
			change: func(c *Config) { c.WAL.SegmentSize = 2 * GiB },
			limit:  2 * GiB, segments: 1 + 16, grpcMiB: 17, httpBytes: 17 << 20, readTimeout: 10 * time.Second,
			warningsAbout: []string{"wal.unreclaimed_bytes_limit"},
		},
		"frame sizes round up to MiB for gRPC": {
			change: func(c *Config) { c.WAL.MaxFrameSize = 3*MiB + 1; c.Admission.BodyTimeout = time.Second },
			limit:  GiB, segments: 24, grpcMiB: 5, httpBytes: 4<<20 + 1, readTimeout: time.Second,
		},
		"metadata_keys turn metadata on": {
			change: func(c *Config) { c.MetadataKeys = []string{"x-region"} },
			limit:  GiB, segments: 24, grpcMiB: 17, httpBytes: 17 << 20, readTimeout: 10 * time.Second, takesMetadata: true,
		},
		"the largest limit": {
			change: func(c *Config) {
				c.WAL.UnreclaimedBytesLimit = math.MaxUint64 - 1
				c.WAL.MaxSegments = 1000
				c.WAL.SegmentSize = 2 * GiB
			},
			limit: math.MaxUint64 - 1, segments: 1000, grpcMiB: 17, httpBytes: 17 << 20, readTimeout: 10 * time.Second,
		},
		"a gRPC limit that answers before ours": {
			change: func(c *Config) { c.Protocols.GRPC.Get().MaxRecvMsgSizeMiB = 16 },
			limit:  GiB, segments: 24, grpcMiB: 16, httpBytes: 17 << 20, readTimeout: 10 * time.Second,
			warningsAbout: []string{"protocols.grpc.max_recv_msg_size_mib"},
		},
		"letters smaller than a frame": {
			change: func(c *Config) { c.Delivery.DeadLetterMaxBytes = MiB },
			limit:  GiB, segments: 24, grpcMiB: 17, httpBytes: 17 << 20, readTimeout: 10 * time.Second,
			warningsAbout: []string{"delivery.dead_letter_max_bytes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(c.change)
			require.NoError(t, confmap.Validate(cfg))
			assert.Equal(t, c.limit, cfg.WAL.limit())
			assert.Equal(t, c.segments, cfg.WAL.segments())
			assert.Equal(t, c.grpcMiB, cfg.grpcServer().MaxRecvMsgSizeMiB)
			assert.Equal(t, c.httpBytes, cfg.httpServer().MaxRequestBodySize)
			assert.Equal(t, c.readTimeout, cfg.httpServer().ReadTimeout)
			assert.Equal(t, c.takesMetadata, cfg.grpcServer().IncludeMetadata && cfg.httpServer().IncludeMetadata)
			w := cfg.warnings()
			require.Len(t, w, len(c.warningsAbout), "%v", w)
			for i, key := range c.warningsAbout {
				assert.Contains(t, w[i], key)
			}
		})
	}
}

// The SDK keeps its limit of series for all of an instrument, minus the one of
// those that are too many.
func TestMoreTenantsThanSeries(t *testing.T) {
	for _, c := range []struct {
		tenants int
		limit   string // OTEL_GO_X_CARDINALITY_LIMIT
		warning string // "" = none
	}{
		{498, "", ""},
		{499, "", "tenant.max_tenants: 499 allows 2000 series of a metric, and the OpenTelemetry SDK keeps 1999: "},
		{499, "", "set tenant.max_tenants to at most 498, or the environment variable OTEL_GO_X_CARDINALITY_LIMIT to more than 2000"},
		{499, " 2001 ", ""},
		{499, "2000", "at most 498"},
		{499, "many", "at most 498"}, // which the SDK reports, and takes for its default
		{65536, "0", ""},
		{65536, "-1", ""},
	} {
		t.Setenv(seriesLimitVariable, c.limit)
		w := testConfig(func(cfg *Config) {
			cfg.Tenant.MetadataKey, cfg.Tenant.Metrics, cfg.Tenant.MaxTenants = "x-tenant", true, c.tenants
		}).warnings()
		if c.warning == "" {
			assert.Empty(t, w, "%+v", c)
			continue
		}
		require.Len(t, w, 1, "%+v", c)
		assert.Contains(t, w[0], c.warning)
		assert.Empty(t, testConfig(func(cfg *Config) { cfg.Tenant.MaxTenants = c.tenants }).warnings())
	}
}

func TestB13_ExplicitAndEnvironmentValuesReachTheLimit(t *testing.T) {
	t.Setenv("LIMIT_WITH_UNIT", "3GiB")
	t.Setenv("LIMIT_IN_BYTES", "3221225472")
	for _, value := range []string{"3GiB", "3221225472", `"3221225472"`, "3 GiB", "3.0GiB", "3072MiB", `"${env:LIMIT_WITH_UNIT}"`, `"${env:LIMIT_IN_BYTES}"`, "3221225472.0"} {
		t.Run(value, func(t *testing.T) {
			cfg, err := parse(t, "{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: "+value+"}}")
			require.NoError(t, err)
			assert.Equal(t, 3*GiB, cfg.WAL.limit())
		})
	}
	cfg, err := parse(t, "{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 18446744073709551614, max_segments: 10}}")
	require.NoError(t, err)
	assert.EqualValues(t, uint64(math.MaxUint64-1), cfg.WAL.limit(), "exact: no float on the way")
}

func TestB13_WhatIsOutOfRangeIsRefusedWithKeyValueAndReason(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string // all are in the message
	}{
		"no protocol":           {"{protocols: }", []string{"protocols", "at least one of grpc and http"}},
		"protocol disabled":     {"{protocols: {grpc: {enabled: false}}}", []string{"protocols", "at least one of grpc and http"}},
		"unknown key":           {"{protocols: {grpc: }, wal: {segmentsize: 1MiB}}", []string{"segmentsize"}},
		"negative size":         {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: -1}}", []string{"unreclaimed_bytes_limit", "-1", "cannot be negative"}},
		"negative with unit":    {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: -1GiB}}", []string{"unreclaimed_bytes_limit", "-1GiB", "cannot be negative"}},
		"negative fraction":     {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: -0.5}}", []string{"unreclaimed_bytes_limit", "cannot be negative"}},
		"overflow":              {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 18446744073709551616}}", []string{"unreclaimed_bytes_limit", "at most 18446744073709551615"}},
		"overflow as text":      {`{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: "99999999999999999999"}}`, []string{"unreclaimed_bytes_limit", "at most 18446744073709551615"}},
		"overflow with unit":    {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 17EiB}}", []string{"unreclaimed_bytes_limit", "17EiB", "at most 18446744073709551615"}},
		"huge number":           {`{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: "` + hugeNumber + `"}}`, []string{"unreclaimed_bytes_limit", "at most 18446744073709551615"}},
		"MaxUint64":             {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 18446744073709551615}}", []string{"wal.unreclaimed_bytes_limit", "18446744073709551615", "no bound"}},
		"below segment":         {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 127MiB}}", []string{"wal.unreclaimed_bytes_limit", "127MiB", "at least wal.segment_size = 128MiB"}},
		"one byte below":        {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 134217727}}", []string{"wal.unreclaimed_bytes_limit", "134217727"}},
		"fraction of a byte":    {"{protocols: {grpc: }, wal: {segment_size: 1000000.5}}", []string{"segment_size", "1.0000005e+06", "whole number of bytes"}},
		"fraction of a KiB":     {"{protocols: {grpc: }, wal: {segment_size: 2000.0001KiB}}", []string{"segment_size", "whole number of bytes"}},
		"unknown unit":          {"{protocols: {grpc: }, wal: {segment_size: 5 parsecs}}", []string{"segment_size", "5 parsecs", "such as 128MiB"}},
		"no number":             {"{protocols: {grpc: }, wal: {segment_size: MiB}}", []string{"segment_size", "such as 128MiB"}},
		"a truth value":         {"{protocols: {grpc: }, wal: {segment_size: true}}", []string{"segment_size", "such as 128MiB"}},
		"small segment":         {"{protocols: {grpc: }, wal: {segment_size: 1023KiB, max_frame_size: 64KiB}}", []string{"wal.segment_size", "1023KiB", "1MiB..2GiB"}},
		"large segment":         {"{protocols: {grpc: }, wal: {segment_size: 2049MiB}}", []string{"wal.segment_size", "2049MiB", "1MiB..2GiB"}},
		"frame > segment":       {"{protocols: {grpc: }, wal: {segment_size: 16MiB}}", []string{"wal.segment_size", "16MiB", "wal.max_frame_size + 128KiB = 16512KiB"}},
		"small frame":           {"{protocols: {grpc: }, wal: {max_frame_size: 65535}}", []string{"wal.max_frame_size", "65535", "64KiB..1GiB"}},
		"large frame":           {"{protocols: {grpc: }, wal: {max_frame_size: 1025MiB, segment_size: 2GiB}}", []string{"wal.max_frame_size", "1025MiB", "64KiB..1GiB"}},
		"short age":             {"{protocols: {grpc: }, wal: {segment_age: 999ms}}", []string{"wal.segment_age", "999ms", "1s..24h"}},
		"long age":              {"{protocols: {grpc: }, wal: {segment_age: 25h}}", []string{"wal.segment_age", "25h", "1s..24h"}},
		"negative segments":     {"{protocols: {grpc: }, wal: {max_segments: -1}}", []string{"wal.max_segments", "-1", "1..1048576"}},
		"too many segments":     {"{protocols: {grpc: }, wal: {max_segments: 1048577}}", []string{"wal.max_segments", "1048577", "1..1048576"}},
		"too many derived":      {"{protocols: {grpc: }, wal: {unreclaimed_bytes_limit: 1PiB}}", []string{"wal.unreclaimed_bytes_limit", "8388624 segments", "raise wal.segment_size or set wal.max_segments"}},
		"no attempts":           {"{protocols: {grpc: }, wal: {rotation_retry_attempts: 0}}", []string{"wal.rotation_retry_attempts", "0", "1..64"}},
		"many attempts":         {"{protocols: {grpc: }, wal: {rotation_retry_attempts: 65}}", []string{"wal.rotation_retry_attempts", "65", "1..64"}},
		"negative window":       {"{protocols: {grpc: }, wal: {batch_window: -1ns}}", []string{"wal.batch_window", "-1ns", "0s..1s"}},
		"long window":           {"{protocols: {grpc: }, wal: {batch_window: 1001ms}}", []string{"wal.batch_window", "1.001s", "0s..1s"}},
		"corruption":            {"{protocols: {grpc: }, wal: {on_corruption: ignore}}", []string{"wal.on_corruption", `"ignore"`, "fail quarantine"}},
		"reserve check":         {"{protocols: {grpc: }, wal: {reserve_check: off}}", []string{"wal.reserve_check", "warn fail"}},
		"no directory":          {`{protocols: {grpc: }, wal: {directory: ""}}`, []string{"wal.directory", `""`}},
		"small budget":          {"{protocols: {grpc: }, admission: {max_in_flight_bytes: 67MiB}}", []string{"admission.max_in_flight_bytes", "67MiB", "4 × the larger transport limit of 17MiB"}},
		"small budget, HTTP":    {"{protocols: {grpc: , http: {max_request_body_size: 104857600}}}", []string{"admission.max_in_flight_bytes", "256MiB", "limit of 100MiB"}},
		"no requests":           {"{protocols: {grpc: }, admission: {max_requests: 0}}", []string{"admission.max_requests", "0", "1..65536"}},
		"body timeout":          {"{protocols: {grpc: }, admission: {body_timeout: 99ms}}", []string{"admission.body_timeout", "99ms", "100ms..10m0s"}},
		"nesting":               {"{protocols: {grpc: }, admission: {max_nesting: 101}}", []string{"admission.max_nesting", "101", "1..100"}},
		"tenant key":            {"{protocols: {grpc: }, tenant: {metadata_key: x scope}}", []string{"tenant.metadata_key", `"x scope"`, "letters, digits"}},
		"tenant required":       {"{protocols: {grpc: }, tenant: {required: true}}", []string{"tenant.required", "needs tenant.metadata_key"}},
		"no tenants":            {"{protocols: {grpc: }, tenant: {max_tenants: 0}}", []string{"tenant.max_tenants", "0", "1..65536"}},
		"many tenants":          {"{protocols: {grpc: }, tenant: {max_tenants: 65537}}", []string{"tenant.max_tenants", "65537", "1..65536"}},
		"metadata key":          {`{protocols: {grpc: }, metadata_keys: [""]}`, []string{"metadata_keys", `""`, "1..255"}},
		"metadata key twice":    {"{protocols: {grpc: }, metadata_keys: [x-a, X-A]}", []string{"metadata_keys", "X-A", "kept already"}},
		"tenant key twice":      {"{protocols: {grpc: }, tenant: {metadata_key: x-a}, metadata_keys: [x-a]}", []string{"metadata_keys", "x-a", "kept already"}},
		"no consumers":          {"{protocols: {grpc: }, delivery: {consumers: 0}}", []string{"delivery.consumers", "0", "1..1024"}},
		"negative timeout":      {"{protocols: {grpc: }, delivery: {timeout: -1s}}", []string{"delivery.timeout", "-1s"}},
		"delivery budget":       {"{protocols: {grpc: }, delivery: {max_in_flight_bytes: 1MiB}}", []string{"delivery.max_in_flight_bytes", "1MiB", "delivery.group.max_bytes = 4MiB"}},
		"group items":           {"{protocols: {grpc: }, delivery: {group: {max_items: 0}}}", []string{"delivery.group.max_items", "0"}},
		"group bytes":           {"{protocols: {grpc: }, delivery: {group: {max_bytes: 1}}}", []string{"delivery.group.max_bytes", "1KiB..1GiB"}},
		"retry interval":        {"{protocols: {grpc: }, delivery: {retry: {initial_interval: 0s}}}", []string{"delivery.retry.initial_interval", "0s"}},
		"retry max < initial":   {"{protocols: {grpc: }, delivery: {retry: {initial_interval: 20s}}}", []string{"delivery.retry.max_interval", "10s", "20s..24h"}},
		"retry multiplier":      {"{protocols: {grpc: }, delivery: {retry: {multiplier: 0.9}}}", []string{"delivery.retry.multiplier", "0.9", "1..100"}},
		"retry NaN":             {"{protocols: {grpc: }, delivery: {retry: {multiplier: .nan}}}", []string{"delivery.retry.multiplier", "NaN", "1..100"}},
		"retry randomization":   {"{protocols: {grpc: }, delivery: {retry: {randomization_factor: 1.1}}}", []string{"delivery.retry.randomization_factor", "1.1", "0..1"}},
		"permanent error":       {"{protocols: {grpc: }, delivery: {on_permanent_error: retry}}", []string{"delivery.on_permanent_error", "dead_letter drop block"}},
		"missing pipeline":      {"{protocols: {grpc: }, delivery: {on_missing_pipeline: block}}", []string{"delivery.on_missing_pipeline", "keep dead_letter drop"}},
		"maintenance":           {"{protocols: {grpc: }, maintenance: none}", []string{"maintenance", `"none"`, "extension internal"}},
		"same path":             {"{protocols: {http: {logs_url_path: /v1/traces}}}", []string{"protocols.http.traces_url_path", "/v1/traces", "protocols.http.logs_url_path"}},
		"path of profiles":      {"{protocols: {http: {logs_url_path: /v1development/profiles}}}", []string{"protocols.http.logs_url_path", "profiles"}},
		"gRPC message size":     {"{protocols: {grpc: {max_recv_msg_size_mib: 4096}}}", []string{"protocols.grpc.max_recv_msg_size_mib", "4096", "0..4095"}},
		"negative body size":    {"{protocols: {http: {max_request_body_size: -1}}}", []string{"protocols.http.max_request_body_size", "-1"}},
		"several at once":       {"{protocols: {grpc: }, wal: {max_segments: -1, segment_age: 0s}}", []string{"wal.max_segments", "wal.segment_age"}},
		"embedded server's own": {"{protocols: {grpc: {read_buffer_size: -1}}}", []string{"read_buffer_size"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.yaml)
			require.Error(t, err)
			for _, w := range c.want {
				assert.ErrorContains(t, err, w)
			}
		})
	}
}

const hugeNumber = "1" + "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
	"0000000000000000"

func TestSizeWritesWhatItReads(t *testing.T) {
	for _, s := range []Size{0, 1, 1023, KiB, KiB + 1, 1000 * 1000, 128 * MiB, 3*GiB + MiB, math.MaxUint64} {
		cm := confmap.New()
		require.NoError(t, cm.Marshal(&struct {
			Size Size `mapstructure:"size"`
		}{s}))
		var back struct {
			Size Size `mapstructure:"size"`
		}
		require.NoError(t, cm.Unmarshal(&back))
		assert.Equal(t, s, back.Size, "%v", cm.ToStringMap())
	}
}
