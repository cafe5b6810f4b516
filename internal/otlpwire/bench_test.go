// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkMeasure compares the walk with what it stands in for, decoding, in
// turns on the same payload, and reports the median of the walk's share of the
// time. The bound for realistic shapes is 15 %. It is for reading, not for
// failing: what a machine is doing besides decides too much of it.
func BenchmarkMeasure(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			payload := s.payload(s.n)
			var shares, walks, decodes []float64
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				begin := time.Now()
				if _, err := Measure(s.signal, payload, recursionLimit); err != nil {
					b.Fatal(err)
				}
				walk := time.Since(begin)
				b.StopTimer()
				begin = time.Now()
				if _, _, err := signals[s.signal-1].decode(payload); err != nil {
					b.Fatal(err)
				}
				decode := time.Since(begin)
				shares = append(shares, 100*float64(walk)/float64(decode))
				walks = append(walks, float64(walk))
				decodes = append(decodes, float64(decode))
				b.StartTimer()
			}
			b.ReportMetric(median(shares), "%-of-decoding")
			b.ReportMetric(median(walks)/float64(s.n), "walk-ns/record")
			b.ReportMetric(median(decodes)/float64(s.n), "decoding-ns/record")
		})
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
