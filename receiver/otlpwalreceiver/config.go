// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"path"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
)

// Config is the configuration of the otlp_wal receiver. Zero means "derived"
// where a field says so.
type Config struct {
	// Protocols are those the receiver serves; at least one.
	Protocols Protocols `mapstructure:"protocols"`
	// Storage is the extension that runs the log's maintenance.
	Storage component.ID `mapstructure:"storage"`
	// Maintenance says who runs it: extension, or internal for the receiver
	// itself with the extension's defaults.
	Maintenance string `mapstructure:"maintenance"`

	WAL       WALConfig       `mapstructure:"wal"`
	Admission AdmissionConfig `mapstructure:"admission"`
	Tenant    TenantConfig    `mapstructure:"tenant"`
	// MetadataKeys are further keys of the client's metadata that are kept
	// with a frame and restored at delivery.
	MetadataKeys []string       `mapstructure:"metadata_keys"`
	Delivery     DeliveryConfig `mapstructure:"delivery"`

	defaulted defaulted

	// prevent unkeyed literal initialization
	_ struct{}
}

// Protocols are the servers, as the otlp receiver configures them.
type Protocols struct {
	GRPC configoptional.Optional[configgrpc.ServerConfig] `mapstructure:"grpc"`
	HTTP configoptional.Optional[HTTPConfig]              `mapstructure:"http"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// HTTPConfig is the HTTP server and the paths it serves.
type HTTPConfig struct {
	ServerConfig confighttp.ServerConfig `mapstructure:",squash"`

	LogsURLPath    URLPath `mapstructure:"logs_url_path,omitempty"`
	TracesURLPath  URLPath `mapstructure:"traces_url_path,omitempty"`
	MetricsURLPath URLPath `mapstructure:"metrics_url_path,omitempty"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// URLPath is the absolute path of a URL.
type URLPath string

var _ encoding.TextUnmarshaler = (*URLPath)(nil)

// UnmarshalText makes a path absolute.
func (p *URLPath) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil {
		return fmt.Errorf("invalid URL path: %w", err)
	}
	if !path.IsAbs(u.Path) {
		u.Path = "/" + u.Path
	}
	*p = URLPath(u.Path)
	return nil
}

// WALConfig is the log.
type WALConfig struct {
	Directory    string        `mapstructure:"directory"`
	SegmentSize  Size          `mapstructure:"segment_size"`
	SegmentAge   time.Duration `mapstructure:"segment_age"`
	MaxFrameSize Size          `mapstructure:"max_frame_size"`
	// UnreclaimedBytesLimit bounds the frame bytes on disk; 0 = max(1 GiB,
	// SegmentSize).
	UnreclaimedBytesLimit Size `mapstructure:"unreclaimed_bytes_limit"`
	// MaxSegments bounds the closed segments; 0 = limit/SegmentSize + 16.
	MaxSegments           int           `mapstructure:"max_segments"`
	RotationRetryAttempts int           `mapstructure:"rotation_retry_attempts"`
	BatchWindow           time.Duration `mapstructure:"batch_window"`
	OnCorruption          string        `mapstructure:"on_corruption"`
	QuarantineMaxBytes    Size          `mapstructure:"quarantine_max_bytes"`
	Preallocate           bool          `mapstructure:"preallocate"`
	ReserveCheck          string        `mapstructure:"reserve_check"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// AdmissionConfig bounds what clients can make the process hold.
type AdmissionConfig struct {
	// MaxInFlightBytes bounds the bytes of requests held at once; 0 =
	// unbounded. Not configured, it is less where memory is limited.
	MaxInFlightBytes Size `mapstructure:"max_in_flight_bytes"`
	// MaxRequests bounds the requests being received or committed, over all
	// connections and protocols.
	MaxRequests int `mapstructure:"max_requests"`
	// BodyTimeout is how long the body of a request may take to arrive.
	BodyTimeout time.Duration `mapstructure:"body_timeout"`
	// MaxNesting bounds the array and kvlist containers inside one value.
	MaxNesting int `mapstructure:"max_nesting"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// TenantConfig says how a request's tenant is found.
type TenantConfig struct {
	// MetadataKey is the client metadata that names it; empty = one tenant,
	// named "".
	MetadataKey string `mapstructure:"metadata_key"`
	// Required refuses requests without it instead of giving them tenant "".
	Required   bool `mapstructure:"required"`
	MaxTenants int  `mapstructure:"max_tenants"`
	// Metrics adds the tenant's name to metrics.
	Metrics bool `mapstructure:"metrics"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// DeliveryConfig is how the log is delivered to the pipelines.
type DeliveryConfig struct {
	Consumers int           `mapstructure:"consumers"`
	Timeout   time.Duration `mapstructure:"timeout"`
	// MaxInFlightBytes bounds the estimated size, decoded, of what is being
	// delivered; 0 = unbounded. Not configured, it is less where memory is
	// limited.
	MaxInFlightBytes Size        `mapstructure:"max_in_flight_bytes"`
	Group            GroupConfig `mapstructure:"group"`
	Retry            RetryConfig `mapstructure:"retry"`

	OnPermanentError   string        `mapstructure:"on_permanent_error"`
	PermanentGrace     time.Duration `mapstructure:"permanent_grace"`
	DeadLetterMaxBytes Size          `mapstructure:"dead_letter_max_bytes"`
	OnMissingPipeline  string        `mapstructure:"on_missing_pipeline"`
	RequireSynchronous bool          `mapstructure:"require_synchronous"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// GroupConfig bounds what one Consume call carries.
type GroupConfig struct {
	MaxItems int  `mapstructure:"max_items"`
	MaxBytes Size `mapstructure:"max_bytes"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// RetryConfig spaces the attempts at a group that was not taken. They never
// end.
type RetryConfig struct {
	InitialInterval     time.Duration `mapstructure:"initial_interval"`
	MaxInterval         time.Duration `mapstructure:"max_interval"`
	Multiplier          float64       `mapstructure:"multiplier"`
	RandomizationFactor float64       `mapstructure:"randomization_factor"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Values of the keys that name a choice.
const (
	maintenanceExtension = "extension"
	maintenanceInternal  = "internal"

	corruptionFail       = "fail"
	corruptionQuarantine = "quarantine"

	reserveWarn = "warn"
	reserveFail = "fail"

	policyDeadLetter = "dead_letter"
	policyDrop       = "drop"
	policyBlock      = "block"
	policyKeep       = "keep"
)

const (
	logsURLPath     = "/v1/logs"
	tracesURLPath   = "/v1/traces"
	metricsURLPath  = "/v1/metrics"
	profilesURLPath = "/v1development/profiles" // fixed: it names the version of the format
)

func createDefaultConfig() component.Config {
	grpc := configgrpc.NewDefaultServerConfig()
	grpc.NetAddr.Endpoint = "localhost:4317"
	grpc.MaxConcurrentStreams = 100
	grpc.ReadBufferSize = 512 << 10 // as the otlp receiver: fewer read calls per request

	// Read timeouts of 0 are derived from body_timeout. The response is a few
	// bytes, so no write timeout is needed to get rid of a slow reader, and
	// none may cut off the wait for a slow disk.
	http := confighttp.NewDefaultServerConfig()
	http.NetAddr.Endpoint = "localhost:4318"
	http.TLS = configoptional.None[configtls.ServerConfig]()
	http.ReadHeaderTimeout = 0
	http.WriteTimeout = 0

	return &Config{
		Protocols: Protocols{
			GRPC: configoptional.Default(grpc),
			HTTP: configoptional.Default(HTTPConfig{
				ServerConfig:   http,
				LogsURLPath:    logsURLPath,
				TracesURLPath:  tracesURLPath,
				MetricsURLPath: metricsURLPath,
			}),
		},
		Storage:     component.MustNewID("wal_storage"),
		Maintenance: maintenanceExtension,
		WAL: WALConfig{
			Directory:             "/var/lib/otelcol/wal",
			SegmentSize:           128 * MiB,
			SegmentAge:            10 * time.Minute,
			MaxFrameSize:          16 * MiB,
			RotationRetryAttempts: 10,
			OnCorruption:          corruptionFail,
			QuarantineMaxBytes:    64 * MiB,
			Preallocate:           true,
			ReserveCheck:          reserveWarn,
		},
		Admission: AdmissionConfig{
			MaxInFlightBytes: defaultInFlight,
			MaxRequests:      64,
			BodyTimeout:      10 * time.Second,
			MaxNesting:       32,
		},
		Tenant: TenantConfig{MaxTenants: 1024},
		Delivery: DeliveryConfig{
			Consumers:        10,
			Timeout:          5 * time.Minute,
			MaxInFlightBytes: defaultDelivery,
			Group:            GroupConfig{MaxItems: 8192, MaxBytes: 4 * MiB},
			Retry: RetryConfig{
				InitialInterval:     time.Second,
				MaxInterval:         10 * time.Second,
				Multiplier:          1.5,
				RandomizationFactor: 0.5,
			},
			OnPermanentError:   policyDeadLetter,
			PermanentGrace:     time.Hour,
			DeadLetterMaxBytes: 64 * MiB,
			OnMissingPipeline:  policyKeep,
			RequireSynchronous: true,
		},
		defaulted: defaulted{inFlight: true, delivery: true},
	}
}

// Validate checks every key that is not an embedded server's. Nothing is ever
// clamped.
func (c *Config) Validate() error {
	var p problems
	c.validateProtocols(&p)
	c.WAL.validate(&p)
	c.Admission.validate(&p)
	c.validateTenant(&p)
	c.Delivery.validate(&p)
	c.validateInFlight(&p)

	p.oneOf("maintenance", c.Maintenance, maintenanceExtension, maintenanceInternal)
	if c.Maintenance == maintenanceExtension && c.Storage == (component.ID{}) {
		p.add("storage", "", "must name the extension that runs the log's maintenance, e.g. wal_storage")
	}
	return errors.Join(p.errs...)
}

func (c *Config) validateProtocols(p *problems) {
	if !c.Protocols.GRPC.HasValue() && !c.Protocols.HTTP.HasValue() {
		p.add("protocols", "{}", "must enable at least one of grpc and http: otherwise nothing can be received")
	}
	if grpc := c.Protocols.GRPC.Get(); grpc != nil {
		inRange(p, "protocols.grpc.max_recv_msg_size_mib", grpc.MaxRecvMsgSizeMiB, 0, 4095, "0 derives it from wal.max_frame_size; gRPC states the length of a message in 32 bits")
	}
	http := c.Protocols.HTTP.Get()
	if http == nil {
		return
	}
	if n := http.ServerConfig.MaxRequestBodySize; n < 0 {
		p.add("protocols.http.max_request_body_size", n, "must be 0 (derived from wal.max_frame_size) or a number of bytes: a body always has a bound")
	}
	taken := map[URLPath]string{profilesURLPath: "profiles"}
	for _, u := range []struct {
		key  string
		path URLPath
	}{
		{"logs_url_path", http.LogsURLPath},
		{"traces_url_path", http.TracesURLPath},
		{"metrics_url_path", http.MetricsURLPath},
	} {
		key := "protocols.http." + u.key
		if u.path == "" {
			p.add(key, `""`, "must be a path: a signal without one could not be received")
			continue
		}
		if other, twice := taken[u.path]; twice {
			p.add(key, string(u.path), fmt.Sprintf("is the path of %s already: the signal of a request is known by its path", other))
			continue
		}
		taken[u.path] = key
	}
}

func (c *WALConfig) validate(p *problems) {
	if c.Directory == "" {
		p.add("wal.directory", `""`, "must name the directory of the log")
	}
	inRange(p, "wal.segment_size", c.SegmentSize, MiB, 2*GiB, "smaller segments rotate all the time, larger ones hold the disk for too long")
	inRange(p, "wal.max_frame_size", c.MaxFrameSize, 64*KiB, GiB, "senders make batches of tens of KiB, and a frame is held in memory as a whole")
	if room := c.MaxFrameSize + segmentOverhead; c.SegmentSize < room {
		p.add("wal.segment_size", c.SegmentSize, fmt.Sprintf("must be at least wal.max_frame_size + 128KiB = %s: the largest frame must fit into one segment", room))
	}
	inRange(p, "wal.segment_age", c.SegmentAge, time.Second, 24*time.Hour, "settled data stays on disk that long on an idle node")
	c.validateLimit(p)
	inRange(p, "wal.rotation_retry_attempts", c.RotationRetryAttempts, 1, 64, "after that many failures in a row the log takes no more data until a restart")
	inRange(p, "wal.batch_window", c.BatchWindow, 0, time.Second, "every acknowledgement waits that long")
	p.oneOf("wal.on_corruption", c.OnCorruption, corruptionFail, corruptionQuarantine)
	p.oneOf("wal.reserve_check", c.ReserveCheck, reserveWarn, reserveFail)
}

// segmentOverhead is the room a segment has beside its largest frame.
const segmentOverhead = 128 * KiB

// maxSegments bounds the closed segments: the log's record of them is written
// anew at every barrier.
const maxSegments = 1 << 20

func (c *WALConfig) validateLimit(p *problems) {
	limit := c.UnreclaimedBytesLimit
	switch {
	case limit == 0:
	case limit == ^Size(0):
		p.add("wal.unreclaimed_bytes_limit", uint64(limit), "must be less than 18446744073709551615: that is no bound at all")
		return
	case limit < c.SegmentSize:
		p.add("wal.unreclaimed_bytes_limit", limit, fmt.Sprintf("must be 0 (derived) or at least wal.segment_size = %s: disk is freed by whole segments", c.SegmentSize))
	}
	if c.MaxSegments != 0 {
		inRange(p, "wal.max_segments", c.MaxSegments, 1, maxSegments, "0 derives it from the limit; the log's record of its segments is written at every barrier")
		return
	}
	if c.SegmentSize == 0 { // reported already
		return
	}
	if n := uint64(c.limit()/c.SegmentSize) + 16; n > maxSegments {
		p.add("wal.unreclaimed_bytes_limit", limit, fmt.Sprintf("needs %d segments of wal.segment_size = %s, more than %d: raise wal.segment_size or set wal.max_segments", n, c.SegmentSize, maxSegments))
	}
}

// limit is unreclaimed_bytes_limit with its default.
func (c *WALConfig) limit() Size {
	if c.UnreclaimedBytesLimit == 0 {
		return max(GiB, c.SegmentSize)
	}
	return c.UnreclaimedBytesLimit
}

// segments is max_segments with its default.
func (c *WALConfig) segments() int {
	if c.MaxSegments == 0 {
		return int(c.limit()/c.SegmentSize) + 16 // Validate bounds it
	}
	return c.MaxSegments
}

func (c *AdmissionConfig) validate(p *problems) {
	inRange(p, "admission.max_requests", c.MaxRequests, 1, 65536, "each may hold one request of the largest size")
	inRange(p, "admission.body_timeout", c.BodyTimeout, 100*time.Millisecond, 10*time.Minute, "a sender on a slow link needs that long, and a hostile one keeps a request slot that long")
	inRange(p, "admission.max_nesting", c.MaxNesting, 1, 100, "no decoder of OTLP goes deeper")
}

// validateInFlight wants room for a few of the largest requests: otherwise
// they would refuse each other for ever.
func (c *Config) validateInFlight(p *problems) {
	limit := c.transportLimit()
	if budget := c.Admission.MaxInFlightBytes; budget != 0 && budget/4 < limit {
		p.add("admission.max_in_flight_bytes", budget, fmt.Sprintf("must be 0 (unbounded) or at least 4 × the larger transport limit of %s: large requests would refuse each other", limit))
	}
}

// transportLimit is the largest request that any protocol takes.
func (c *Config) transportLimit() Size { return max(c.grpcLimit(), c.httpLimit()) }

// grpcLimit is the largest gRPC message in bytes, with its default; 0 without
// gRPC. One MiB more than a frame, so that a request that is too large meets
// our answer before grpc-go's, which senders take for a reason to drop.
func (c *Config) grpcLimit() Size {
	grpc := c.Protocols.GRPC.Get()
	switch {
	case grpc == nil:
		return 0
	case grpc.MaxRecvMsgSizeMiB > 0:
		return Size(grpc.MaxRecvMsgSizeMiB) * MiB
	}
	return (c.WAL.MaxFrameSize+MiB-1)/MiB*MiB + MiB
}

// httpLimit is the largest HTTP body in bytes, with its default; 0 without
// HTTP.
func (c *Config) httpLimit() Size {
	http := c.Protocols.HTTP.Get()
	switch {
	case http == nil:
		return 0
	case http.ServerConfig.MaxRequestBodySize > 0:
		return Size(http.ServerConfig.MaxRequestBodySize)
	}
	return c.WAL.MaxFrameSize + MiB
}

func (c *DeliveryConfig) validate(p *problems) {
	inRange(p, "delivery.consumers", c.Consumers, 1, 1024, "that many Consume calls run at once")
	inRange(p, "delivery.timeout", c.Timeout, 0, 24*time.Hour, "0 never cancels a Consume call")
	inRange(p, "delivery.group.max_items", c.Group.MaxItems, 1, 1<<24, "a group is decoded as a whole")
	inRange(p, "delivery.group.max_bytes", c.Group.MaxBytes, KiB, GiB, "a group is decoded as a whole")
	if b := c.MaxInFlightBytes; b != 0 && b < c.Group.MaxBytes {
		p.add("delivery.max_in_flight_bytes", b, fmt.Sprintf("must be 0 (unbounded) or at least delivery.group.max_bytes = %s: a full group would be delivered alone", c.Group.MaxBytes))
	}
	inRange(p, "delivery.retry.initial_interval", c.Retry.InitialInterval, time.Millisecond, time.Hour, "a pipeline that refuses is asked again after it")
	inRange(p, "delivery.retry.max_interval", c.Retry.MaxInterval, c.Retry.InitialInterval, 24*time.Hour, "it bounds the growing interval, so it is not below initial_interval")
	inRange(p, "delivery.retry.multiplier", c.Retry.Multiplier, 1, 100, "intervals do not shrink")
	inRange(p, "delivery.retry.randomization_factor", c.Retry.RandomizationFactor, 0, 1, "it is a fraction of the interval")
	p.oneOf("delivery.on_permanent_error", c.OnPermanentError, policyDeadLetter, policyDrop, policyBlock)
	inRange(p, "delivery.permanent_grace", c.PermanentGrace, 0, 30*24*time.Hour, "a lane waits that long for an error that is not about its data to end")
	p.oneOf("delivery.on_missing_pipeline", c.OnMissingPipeline, policyKeep, policyDeadLetter, policyDrop)
}

// problems collects what is wrong with a configuration, each with its key, its
// value, the range and why.
type problems struct{ errs []error }

func (p *problems) add(key string, value any, why string) {
	p.errs = append(p.errs, fmt.Errorf("%s: %v: %s", key, value, why))
}

func inRange[T Size | time.Duration | int | float64](p *problems, key string, v, low, high T, why string) {
	if !(v >= low && v <= high) { // also false for NaN
		p.add(key, v, fmt.Sprintf("must be in %v..%v: %s", low, high, why))
	}
}

func (p *problems) oneOf(key, v string, choices ...string) {
	for _, c := range choices {
		if v == c {
			return
		}
	}
	p.add(key, fmt.Sprintf("%q", v), fmt.Sprintf("must be one of %v", choices))
}
