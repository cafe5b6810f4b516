// SPDX-License-Identifier: Apache-2.0

package otlpwire

import "testing"

// search looks for a request on which Measure and pdata disagree, among the
// generated and the mutated.
func search(s Signal, seed uint64, requests int) (payload []byte, why string, accepted int) {
	g := newGenerator(seed)
	for i := range requests {
		g.stray = float64(i%4) * 0.05
		b := g.request(s)
		if i%3 == 2 {
			b = g.mutate(b)
		}
		if why := disagree(s, b); why != "" {
			return b, why, accepted
		}
		if _, err := Measure(s, b, recursionLimit); err == nil {
			accepted++
		}
	}
	return nil, "", accepted
}

func TestE06_MeasureAgreesWithPdata(t *testing.T) {
	const n = 40_000
	for _, s := range signals {
		t.Run(s.name, func(t *testing.T) {
			payload, why, accepted := search(s.signal, 1, n)
			if why != "" {
				t.Fatalf("%s\n%x", why, payload)
			}
			t.Log(accepted)
			if accepted < n/5 || accepted > n*4/5 {
				t.Errorf("%d of %d requests are valid: too one-sided to tell much", accepted, n)
			}
		})
	}
}
