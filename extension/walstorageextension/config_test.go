// SPDX-License-Identifier: Apache-2.0

package walstorageextension

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

func load(t *testing.T, id string) (*Config, error) {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := conf.Sub(id)
	require.NoError(t, err)
	cfg := createDefaultConfig().(*Config)
	if err := sub.Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func TestConfig(t *testing.T) {
	server := func(change func(*confighttp.ServerConfig)) configoptional.Optional[confighttp.ServerConfig] {
		s := confighttp.NewDefaultServerConfig()
		s.NetAddr.Endpoint = "localhost:55690"
		change(&s)
		return configoptional.Some(s)
	}
	for _, tc := range []struct {
		id   string
		want func(*Config)
	}{
		{"wal_storage", func(c *Config) {
			assert.Equal(t, Config{
				BarrierInterval: 30 * time.Second, HousekeepingInterval: 10 * time.Second,
				MaxUnlinksPerPass: 128, PressureWatermark: 0.5, Status: c.Status,
			}, *c)
			assert.False(t, c.Status.HasValue(), "without the section there is no server")
		}},
		{"wal_storage/all", func(c *Config) {
			assert.Equal(t, Config{
				BarrierInterval: time.Minute, HousekeepingInterval: 15 * time.Second,
				MaxUnlinksPerPass: 64, PressureWatermark: 0.8, Directory: "/var/lib/otelcol/storage",
				Status: server(func(s *confighttp.ServerConfig) {
					s.NetAddr.Endpoint = "localhost:8080"
					s.WriteTimeout = 5 * time.Second
				}),
			}, *c)
		}},
		{"wal_storage/status_defaults", func(c *Config) {
			assert.Equal(t, server(func(*confighttp.ServerConfig) {}), c.Status)
		}},
		{"wal_storage/status_off", func(c *Config) { assert.False(t, c.Status.HasValue()) }},
		{"wal_storage/edges_low", func(c *Config) { assert.Equal(t, time.Second, c.BarrierInterval) }},
		{"wal_storage/edges_high", func(c *Config) { assert.Equal(t, 65536, c.MaxUnlinksPerPass) }},
	} {
		t.Run(tc.id, func(t *testing.T) {
			cfg, err := load(t, tc.id)
			require.NoError(t, err)
			tc.want(cfg)
		})
	}
}

// Every message names the key, the value, the range and why there is one.
func TestConfigRefused(t *testing.T) {
	for _, tc := range []struct {
		id   string
		want []string
	}{
		{"wal_storage/bad_low", []string{
			"barrier_interval: 999ms is outside 1s..1h: shorter costs",
			"housekeeping_interval: 0s is outside 1s..1h: shorter looks",
			"max_unlinks_per_pass: 0 is outside 1..65536: a pass must",
			"pressure_watermark: -0.1 is outside 0..1: it is a fraction",
		}},
		{"wal_storage/bad_high", []string{
			"barrier_interval: 1h1m0s is outside 1s..1h",
			"housekeeping_interval: 1h0m1s is outside 1s..1h",
			"max_unlinks_per_pass: 65537 is outside 1..65536",
			"pressure_watermark: 50 is outside 0..1",
		}},
		{"wal_storage/bad_nan", []string{"pressure_watermark: NaN is outside 0..1"}},
		{"wal_storage/bad_directory", []string{`directory: "a\x00b" contains a zero byte`}},
		{"wal_storage/bad_key", []string{"barrier_intervall"}},
	} {
		t.Run(tc.id, func(t *testing.T) {
			_, err := load(t, tc.id)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestWorstHint(t *testing.T) {
	for _, tc := range []struct {
		barrier, housekeeping, want time.Duration
	}{
		{30 * time.Second, 10 * time.Second, 50 * time.Second},
		{10 * time.Second, 10 * time.Second, 25 * time.Second},
		{100 * time.Second, 10 * time.Second, 120 * time.Second},
		{time.Hour, time.Hour, 2*time.Hour + 10*time.Second},
	} {
		cfg := Config{BarrierInterval: tc.barrier, HousekeepingInterval: tc.housekeeping}
		assert.Equal(t, tc.want, cfg.worstHint(), "%v + %v", tc.barrier, tc.housekeeping)
	}
}
