// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"sync/atomic"

	"github.com/otelweir/weir/internal/refusal"
)

// refusals counts refused requests, each once: here, or with its tenant. The
// metric wal.refusals reads both.
type refusals struct {
	counts [refusal.Count][len(signals) + 1][transports]atomic.Uint64
}

func (r *refusals) add(reason refusal.Reason, s signal, t transport) {
	r.counts[reason][s][t].Add(1)
}

func (r *refusals) count(reason refusal.Reason, s signal, t transport) uint64 {
	return r.counts[reason][s][t].Load()
}

// eachRefusal calls f for every counter, including those of 0: counters exist
// from the start.
func eachRefusal(f func(reason refusal.Reason, s signal, t transport)) {
	for reason := range refusal.Count {
		for _, s := range signals {
			for t := range transports {
				f(reason, s, t)
			}
		}
	}
}
