// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"fmt"
	"time"

	"github.com/otelweir/weir/barrier"
)

// longestHint is the advised delay above which stock senders are likely to
// drop a batch: they give up when the delay exceeds what is left of their
// 300 s.
const longestHint = 120 * time.Second

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
	return w
}

// scheduleWarning says so when the longest delay that a refusal advises
// (contract §3) is more than senders wait.
func scheduleWarning(s barrier.Schedule) (string, bool) {
	// The flush bound applies once a sink registers, which may be later.
	flush := min(10*time.Second, s.BarrierInterval()/2)
	longest := s.BarrierInterval() + flush + s.HousekeepingInterval()
	if longest <= longestHint {
		return "", false
	}
	return fmt.Sprintf("barrier_interval %s + flush bound %s + housekeeping_interval %s: refusals advise up to %s, above %s: "+
		"stock senders drop a batch whose delay exceeds what is left of their retry budget",
		s.BarrierInterval(), flush, s.HousekeepingInterval(), longest, longestHint), true
}
