// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import "fmt"

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
