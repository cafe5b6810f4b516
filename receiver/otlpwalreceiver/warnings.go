// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// warnings are the things that are allowed and that somebody will regret.
// Start logs them.
func (c *Config) warnings() []string {
	var w []string
	if limit := c.WAL.limit(); limit < 2*c.WAL.SegmentSize {
		w = append(w, fmt.Sprintf("wal.unreclaimed_bytes_limit: %s is less than 2 × wal.segment_size = %s: "+
			"room is freed by whole segments, so one slow tenant or signal refuses everyone and pressure cannot help", limit, c.WAL.SegmentSize))
	}
	if grpc := c.Protocols.GRPC.Get(); grpc != nil && c.grpcLimit() <= c.WAL.MaxFrameSize {
		w = append(w, fmt.Sprintf("protocols.grpc.max_recv_msg_size_mib: %d is not above wal.max_frame_size = %s: "+
			"grpc-go itself refuses larger messages, with RESOURCE_EXHAUSTED and no reason", grpc.MaxRecvMsgSizeMiB, c.WAL.MaxFrameSize))
	}
	if c.Delivery.OnPermanentError == policyDeadLetter && c.Delivery.DeadLetterMaxBytes < c.WAL.MaxFrameSize {
		w = append(w, fmt.Sprintf("delivery.dead_letter_max_bytes: %s is less than wal.max_frame_size = %s: "+
			"a larger frame that no pipeline takes cannot be set aside and blocks its lane", c.Delivery.DeadLetterMaxBytes, c.WAL.MaxFrameSize))
	}
	if series, limit := len(signals)*(c.Tenant.MaxTenants+1), seriesLimit(); c.Tenant.Metrics && limit > 0 && series >= limit {
		w = append(w, fmt.Sprintf("tenant.metrics: tenant.max_tenants: %d allows %d series of a metric, and the OpenTelemetry SDK keeps %d: "+
			"more become one without receiver and tenant (otel_metric_overflow), and what it shows is of no use; "+
			"set tenant.max_tenants to at most %d, or the environment variable %s to more than %d",
			c.Tenant.MaxTenants, series, limit-1, seriesTenants(limit), seriesLimitVariable, series))
	}
	return w
}

const seriesLimitVariable = "OTEL_GO_X_CARDINALITY_LIMIT"

// seriesLimit is how many series of one instrument the SDK keeps, the one of
// those that are too many included; 0 or less = any number.
// Source: go.opentelemetry.io/otel/sdk/metric, cardinalityLimitFromEnv and
// limiter.Attributes. The Collector's configuration does not reach it.
func seriesLimit() int {
	n, err := strconv.Atoi(strings.TrimSpace(os.Getenv(seriesLimitVariable)))
	if err != nil {
		return 2000
	}
	return n
}

// seriesTenants is how many tenants with all signals fit into limit.
func seriesTenants(limit int) int { return max((limit-1)/len(signals)-1, 0) }
