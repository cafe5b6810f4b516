// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"sync/atomic"

	"github.com/otelweir/weir/internal/refusal"
)

// refusals counts refused requests. The metric wal.refusals reads it.
type refusals struct {
	counts [refusal.Count][len(signals) + 1][transports]atomic.Uint64
}

func (r *refusals) add(reason refusal.Reason, s signal, t transport) {
	r.counts[reason][s][t].Add(1)
}

// each calls f with every count, including those of 0: counters exist from the
// start.
func (r *refusals) each(f func(reason refusal.Reason, s signal, t transport, n uint64)) {
	for reason := range refusal.Count {
		for _, s := range signals {
			for t := range transports {
				f(reason, s, t, r.counts[reason][s][t].Load())
			}
		}
	}
}
