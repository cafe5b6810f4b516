// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"fmt"
	"math"
	"math/bits"
	"runtime/debug"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.opentelemetry.io/collector/confmap"
)

// Defaults of the two budgets. Where the process's memory is limited, a budget
// that is not configured takes at most its share of that: the rest is for what
// grpc-go holds of messages on their way, for headers, and for garbage. The measurements
// behind the numbers are in docs/performance.md.
const (
	defaultInFlight = 256 * MiB
	defaultDelivery = 128 * MiB

	inFlightShare = 4
	deliveryShare = 8

	// window is what a decompressor holds, as measured (TestE02_Bombs); the
	// largest is zstd's.
	window = 16 * MiB
)

// memory is what the process may use.
type memory struct {
	limit  Size   // 0 = unlimited, as far as we know
	source string // who says so
}

// processMemory is the smaller of GOMEMLIMIT and the cgroup's limit.
func processMemory() memory {
	var m memory
	if n, err := memlimit.FromCgroup(); err == nil { // an error: there is none, or it can not be known
		m = memory{Size(n), "the cgroup's memory limit"}
	}
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 && (m.limit == 0 || Size(n) < m.limit) {
		m = memory{Size(n), "GOMEMLIMIT"}
	}
	return m
}

// defaulted says which budgets have their default because nobody configured
// them.
type defaulted struct{ inFlight, delivery bool }

var _ confmap.Unmarshaler = (*Config)(nil)

// Unmarshal also notes which budgets are left to us.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	c.defaulted.inFlight = c.defaulted.inFlight && !conf.IsSet("admission::max_in_flight_bytes")
	c.defaulted.delivery = c.defaulted.delivery && !conf.IsSet("delivery::max_in_flight_bytes")
	return conf.Unmarshal(c)
}

// within is the configuration with the budgets that were not configured made
// to fit into m. They stay valid, however small m is.
func (c *Config) within(m memory) *Config {
	fitted := *c
	if m.limit == 0 {
		return &fitted
	}
	if c.defaulted.inFlight {
		fitted.Admission.MaxInFlightBytes = min(c.Admission.MaxInFlightBytes, max(m.limit/inFlightShare, 4*c.transportLimit()))
	}
	if c.defaulted.delivery {
		fitted.Delivery.MaxInFlightBytes = min(c.Delivery.MaxInFlightBytes, max(m.limit/deliveryShare, c.Delivery.Group.MaxBytes))
	}
	return &fitted
}

// worstCase is the memory that clients can make the process hold for data, all
// of them hostile (contract §7). It is 0 when a budget has no bound.
func (c *Config) worstCase() Size {
	if c.Admission.MaxInFlightBytes == 0 || c.Delivery.MaxInFlightBytes == 0 {
		return 0
	}
	onTheirWay := Size(c.Admission.MaxRequests) * c.perRequest() // Validate bounds both
	sum, over := bits.Add64(uint64(c.Admission.MaxInFlightBytes), uint64(c.Delivery.MaxInFlightBytes), 0)
	sum, more := bits.Add64(sum, uint64(onTheirWay), 0)
	if over+more > 0 {
		return math.MaxUint64
	}
	return Size(sum)
}

// perRequest is what one request on its way holds beside the budgets: a message
// compressed and decompressed, or what a decompressor does. The copy of it that
// goes to the log is charged to the budget before it is made. With oddly cut
// frames the compressed one may take five quarters (streamLimit): 2¼ × in all.
func (c *Config) perRequest() Size { return max(2*c.transportLimit(), window) }

// memoryWarning says that the worst case does not fit, or "".
func (c *Config) memoryWarning(m memory) string {
	worst := c.worstCase()
	switch {
	case m.limit == 0 || worst != 0 && worst <= m.limit:
		return ""
	case worst == 0:
		return fmt.Sprintf("admission.max_in_flight_bytes: %s, delivery.max_in_flight_bytes: %s: 0 is unbounded, while %s is %s: "+
			"clients can make the process exceed it; set a bound", c.Admission.MaxInFlightBytes, c.Delivery.MaxInFlightBytes, m.source, m.limit)
	}
	of := "what a decompressor holds"
	if c.perRequest() > window {
		of = fmt.Sprintf("2 × the transport limit %s", c.transportLimit())
	}
	return fmt.Sprintf("clients can make this otlp_wal hold %s for data, more than the %s of %s, which each otlp_wal takes for its own: "+
		"admission.max_in_flight_bytes %s + delivery.max_in_flight_bytes %s + admission.max_requests %d × %s (%s), see README, \"How much memory\"; "+
		"lower %s, or give the process more memory",
		worst, m.limit, m.source, c.Admission.MaxInFlightBytes, c.Delivery.MaxInFlightBytes, c.Admission.MaxRequests, c.perRequest(), of,
		strings.Join(c.memorySettings(), " or "))
}

// memorySettings are those that make the worst case smaller.
func (c *Config) memorySettings() []string {
	s := []string{"admission.max_requests"}
	smaller := *c
	smaller.WAL.MaxFrameSize = 0
	if smaller.perRequest() < c.perRequest() {
		s = append(s, "wal.max_frame_size")
	}
	if !c.defaulted.inFlight {
		s = append(s, "admission.max_in_flight_bytes")
	}
	if !c.defaulted.delivery {
		s = append(s, "delivery.max_in_flight_bytes")
	}
	return s
}
