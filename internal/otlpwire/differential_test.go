// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"fmt"
	"testing"
)

// search looks for a request on which Measure and pdata disagree: whole
// requests and such as lead to one message, generated and mutated, most of them
// straying from the tables here and there.
func search(s Signal, seed uint64, requests int) (payload []byte, why string, accepted int) {
	g := newGenerator(seed)
	all := paths(s)
	for i := range requests {
		g.stray = float64(i%4) * 0.05
		var b []byte
		if i%2 == 0 {
			b = g.around(all[i/2%len(all)])
		} else {
			b = g.request(s)
		}
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
			if accepted < n/4 || accepted > n*3/4 {
				t.Errorf("%d of %d requests are valid: too one-sided to tell much", accepted, n)
			}
		})
	}
}

// The comparison above is only worth something if it finds a wrong table. So
// each row is made wrong in turn, and must be found out.
func TestE06_AWrongTableIsFound(t *testing.T) {
	others := map[kind]kind{
		varint: fixed64, fixed64: varint, fixed32: fixed64, id: text,
		packedVarint: packedFixed64, packedFixed64: packedVarint,
	}
	seen := map[int]bool{}
	for _, s := range signals {
		for _, p := range paths(s.signal) {
			if seen[p.message] {
				continue
			}
			seen[p.message] = true
			l := &layouts[p.message]
			for i, right := range l.fields {
				for _, wrong := range []struct {
					how   string
					field field
				}{
					{"left out", field{number: 99, name: right.name, kind: varint}},
					{"of another kind", field{right.number, right.name, others[right.kind], 8, plain}},
				} {
					t.Run(fmt.Sprintf("%s.%s %s", l.name, right.name, wrong.how), func(t *testing.T) {
						if wrong.field.kind == unknown { // no message and no string: those read differently
							wrong.field.kind = varint
						}
						l.fields[i] = wrong.field
						compile(p.message)
						defer compile(p.message)
						defer func() { l.fields[i] = right }()
						if !found(s.signal, p) {
							t.Error("not found")
						}
					})
				}
			}
		}
	}
	if len(seen) != len(layouts) {
		t.Errorf("%d of %d messages are reached", len(seen), len(layouts))
	}
}

// found looks for a disagreement around one message. The generator follows the
// tables, so that what they lack comes from straying alone.
func found(s Signal, p path) bool {
	g := newGenerator(2)
	for i := range 20_000 {
		g.stray = float64(i%3) * 0.2
		if disagree(s, g.around(p)) != "" {
			return true
		}
	}
	return false
}

// fuzz looks for a disagreement guided by coverage, pdata's included. By hand:
//
//	go test -run '^$' -fuzz '^FuzzE06_Logs$' -fuzzminimizetime 5x ./internal/otlpwire
//
// without the last flag, most of the time goes into shortening inputs. The
// corpus in testdata is what such runs found to be different from one another.
func fuzz(f *testing.F, s Signal) {
	for _, shape := range shapes {
		if shape.signal == s && shape.realistic {
			f.Add(shape.payload(2))
		}
	}
	g := newGenerator(3)
	for _, p := range paths(s) {
		f.Add(g.around(p))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if why := disagree(s, payload); why != "" {
			t.Fatal(why)
		}
	})
}

func FuzzE06_Logs(f *testing.F)     { fuzz(f, Logs) }
func FuzzE06_Traces(f *testing.F)   { fuzz(f, Traces) }
func FuzzE06_Metrics(f *testing.F)  { fuzz(f, Metrics) }
func FuzzE06_Profiles(f *testing.F) { fuzz(f, Profiles) }
