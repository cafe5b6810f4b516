// SPDX-License-Identifier: Apache-2.0

package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelweir/weir/internal/maintenance"
)

// Config of the wal_storage extension.
type Config struct {
	// BarrierInterval is how often settled work is made durable: after a
	// crash, what was settled since the last barrier is delivered again.
	// 1s..1h.
	BarrierInterval time.Duration `mapstructure:"barrier_interval"`

	// HousekeepingInterval is how often settled segments are unlinked. 1s..1h.
	HousekeepingInterval time.Duration `mapstructure:"housekeeping_interval"`

	// MaxUnlinksPerPass bounds one housekeeping pass. 1..65536 segments.
	MaxUnlinksPerPass int `mapstructure:"max_unlinks_per_pass"`

	// PressureWatermark is the fraction of a log's byte limit above which
	// both passes run early. 0..1; 0 turns that off.
	PressureWatermark float64 `mapstructure:"pressure_watermark"`

	// Status serves the status page and its JSON. Without the section
	// there is no server.
	Status configoptional.Optional[confighttp.ServerConfig] `mapstructure:"status"`

	// Directory holds the files of storage clients: other components'
	// state. Empty: there are no storage clients.
	Directory string `mapstructure:"directory"`

	// prevent unkeyed literal initialization
	_ struct{}
}

const (
	minInterval = time.Second
	maxInterval = time.Hour
	maxUnlinks  = 65536

	defaultStatusEndpoint = "localhost:55690"

	// longestHint is the longest Retry-After that is not warned of. Stock
	// senders give up a batch at once when the advised delay exceeds what is
	// left of their 300 s of retrying.
	longestHint = 120 * time.Second
)

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

func createDefaultConfig() component.Config {
	loop := maintenance.NewDefaultConfig()
	server := confighttp.NewDefaultServerConfig()
	server.NetAddr.Endpoint = defaultStatusEndpoint
	return &Config{
		BarrierInterval:      loop.BarrierInterval,
		HousekeepingInterval: loop.HousekeepingInterval,
		MaxUnlinksPerPass:    loop.MaxUnlinksPerPass,
		PressureWatermark:    loop.PressureWatermark,
		Status:               configoptional.Default(server),
	}
}

// Validate reports every value that is out of range. Nothing is clamped.
func (cfg *Config) Validate() error {
	var errs error
	interval := func(key string, value time.Duration, why string) {
		if value < minInterval || value > maxInterval {
			errs = errors.Join(errs, fmt.Errorf("%s: %v is outside 1s..1h: %s", key, value, why))
		}
	}
	interval("barrier_interval", cfg.BarrierInterval,
		"shorter costs a synced write more often than it saves re-delivery, longer makes refusals and re-delivery after a crash long")
	interval("housekeeping_interval", cfg.HousekeepingInterval,
		"shorter looks for settled segments more often than there are any, longer keeps a full log refusing")
	if cfg.MaxUnlinksPerPass < 1 || cfg.MaxUnlinksPerPass > maxUnlinks {
		errs = errors.Join(errs, fmt.Errorf("max_unlinks_per_pass: %d is outside 1..%d: a pass must be able to unlink something, and must end", cfg.MaxUnlinksPerPass, maxUnlinks))
	}
	if !(cfg.PressureWatermark >= 0 && cfg.PressureWatermark <= 1) { // also NaN
		errs = errors.Join(errs, fmt.Errorf("pressure_watermark: %v is outside 0..1: it is a fraction of a log's byte limit; 0 turns early passes off", cfg.PressureWatermark))
	}
	if strings.ContainsRune(cfg.Directory, 0) {
		errs = errors.Join(errs, fmt.Errorf("directory: %q contains a zero byte, which no path can", cfg.Directory))
	}
	return errs
}

func (cfg *Config) maintenance() maintenance.Config {
	return maintenance.Config{
		BarrierInterval:      cfg.BarrierInterval,
		HousekeepingInterval: cfg.HousekeepingInterval,
		MaxUnlinksPerPass:    cfg.MaxUnlinksPerPass,
		PressureWatermark:    cfg.PressureWatermark,
	}
}

// worstHint is the longest Retry-After these intervals can lead to.
func (cfg *Config) worstHint() time.Duration {
	return cfg.BarrierInterval + cfg.maintenance().FlushBound() + cfg.HousekeepingInterval
}
