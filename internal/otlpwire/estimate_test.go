// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The contract allows an estimate of 0.95 to 1.6 times what is retained. The
// rules are exact but for small strings that share blocks, so that much less
// than 1.6 already means that one of them is wrong.
const mostRatio = 1.25

// retained is the heap that one decoded copy of a request keeps. It decodes
// copies until they are large beside what else happens on the heap.
func retained(t *testing.T, s Signal, payload []byte, estimate uint64) float64 {
	t.Helper()
	alive := make([]any, 2+(1<<20)/(estimate+1))
	var before, after runtime.MemStats
	collect(&before)
	for i := range alive {
		var err error
		_, alive[i], err = signals[s-1].decode(payload)
		require.NoError(t, err)
	}
	collect(&after)
	runtime.KeepAlive(alive)
	runtime.KeepAlive(payload)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(len(alive))
}

// collect reads the heap with no garbage in it: what the first collection
// leaves to finalizers and pools, the next ones take.
func collect(m *runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(m)
}

func TestE07_EstimateOverRetained(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			payload := s.payload(s.n)
			m, err := Measure(s.signal, payload, recursionLimit)
			require.NoError(t, err)
			heap := retained(t, s.signal, payload, m.Estimate)
			ratio := float64(m.Estimate) / heap
			t.Logf("wire %d, retained %.0f (%.2f × wire), estimate %d: ratio %.3f", len(payload), heap, heap/float64(len(payload)), m.Estimate, ratio)
			assert.GreaterOrEqual(t, ratio, leastRatio)
			assert.LessOrEqual(t, ratio, mostRatio)
		})
	}
}

func TestE07_EstimateOverRetainedOfGenerated(t *testing.T) {
	const seeds = 12
	for _, s := range signals {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprintf("%s %d", s.name, seed), func(t *testing.T) {
				g := newGenerator(seed)
				g.honest = true
				g.fields = 4 + int(seed)*3
				g.text = 1 << (seed % 8)
				var payload []byte
				var m Measurement
				for len(payload) < 8<<10 {
					b := g.request(s.signal)
					var err error
					if m, err = Measure(s.signal, append(payload, b...), recursionLimit); errors.Is(err, ErrMalformed) {
						continue // a reference that does not resolve
					}
					require.NoError(t, err)
					payload = append(payload, b...)
				}
				heap := retained(t, s.signal, payload, m.Estimate)
				ratio := float64(m.Estimate) / heap
				t.Logf("wire %d, retained %.0f (%.2f × wire), estimate %d: ratio %.3f", len(payload), heap, heap/float64(len(payload)), m.Estimate, ratio)
				assert.GreaterOrEqual(t, ratio, leastRatio)
				assert.LessOrEqual(t, ratio, mostRatio)
			})
		}
	}
}
