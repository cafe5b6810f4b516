// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A message that is taken in one step must count exactly like one that is
// walked: so everything is measured again with no message being flat.
func TestFlatMessagesCountAsOthersDo(t *testing.T) {
	type verdict struct {
		signal  Signal
		payload []byte
		m       Measurement
		err     error
	}
	var all []verdict
	measure := func(s Signal, b []byte) {
		m, err := Measure(s, b, recursionLimit)
		all = append(all, verdict{s, b, m, err})
	}
	for _, s := range shapes {
		measure(s.signal, s.payload(min(s.n, 20)))
	}
	for _, s := range signals {
		g := newGenerator(4)
		for i, paths := 0, paths(s.signal); i < 10_000; i++ {
			g.stray = float64(i%4) * 0.05
			measure(s.signal, g.around(paths[i%len(paths)]))
			measure(s.signal, g.request(s.signal))
		}
	}

	cleared := 0
	for i := range messages {
		defer compile(i)
		for tag, o := range messages[i].ops {
			if o.flat() {
				messages[i].ops[tag] &^= 1 << 40
				cleared++
			}
		}
	}
	require.NotZero(t, cleared)
	for _, v := range all {
		m, err := Measure(v.signal, v.payload, recursionLimit)
		require.Equal(t, v.m, m, "%x", v.payload)
		require.Equal(t, v.err, err, "%x", v.payload)
	}
}

func TestCountVarintsIsReadVarintManyTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	bytewise := func(b []byte) (n, defect int) {
		for pos := 0; pos < len(b); n++ {
			if _, pos = readVarint(b, pos); pos < 0 {
				return 0, pos
			}
		}
		return n, 0
	}
	valid, refused := 0, 0
	for range 500_000 {
		b := make([]byte, r.IntN(100), 110)
		for i, longest := 0, 1+r.IntN(14); i < len(b); i++ {
			if b[i] = byte(r.Uint32()) | 0x80; r.IntN(longest) == 0 {
				b[i] &= 0x7f
			}
		}
		if r.IntN(2) == 0 {
			b = b[:len(b):len(b)] // nothing behind it to read
		}
		want, defect := bytewise(b)
		got, gotDefect := countVarints(b)
		if got != want || (gotDefect < 0) != (defect < 0) {
			t.Fatalf("%x: %d varints (%d), not %d (%d)", b, got, gotDefect, want, defect)
		}
		if defect == 0 {
			valid++
		} else {
			refused++
		}
	}
	require.Greater(t, min(valid, refused), 50_000)
}
