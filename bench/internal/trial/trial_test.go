// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rates is an arm with a given rate per run.
func rates(name string, log *[]string, perRun ...int) Arm {
	return Arm{Name: name, Run: func() (Run, error) {
		*log = append(*log, name)
		n := perRun[0]
		perRun = perRun[1:]
		return Run{Ops: n, Elapsed: time.Second}, nil
	}}
}

func TestCompareInterleavesAndTakesTheMedianRound(t *testing.T) {
	var order []string
	r, err := Compare(3,
		rates("R", &order, 100, 100, 400, 400, 100, 110),
		rates("a", &order, 50, 200, 300),
		rates("b", &order, 100, 400, 100))
	require.NoError(t, err)
	assert.Equal(t, "R a b R R a b R R a b R", strings.Join(order, " "))

	a := r.Ratio("a", Rate)
	assert.InDelta(t, 0.5, a.Median, 1e-9, "the slow and the fast minute of the machine cancel out")
	assert.InDelta(t, 0.5, a.Low, 1e-9)
	assert.InDelta(t, 2.86, a.High, 0.01)
	assert.InDelta(t, 1.1, a.Noise, 1e-9, "of three rounds, the worst")
	assert.InDelta(t, 105.0, r.Reference(Rate), 1e-9)
	assert.InDelta(t, 100.0, r.Subject("b", Rate), 1e-9)
}

func TestNoiseIsThatOfThreeRoundsInFour(t *testing.T) {
	r := &Result{Subjects: map[string][]Run{}}
	for _, after := range []int{100, 100, 100, 120, 200} { // by round, after a reference of 100
		second := time.Second
		r.Before = append(r.Before, Run{Ops: 100, Elapsed: second})
		r.After = append(r.After, Run{Ops: after, Elapsed: second})
		r.Subjects["a"] = append(r.Subjects["a"], Run{Ops: 100, Elapsed: second})
	}
	assert.InDelta(t, 1.2, r.Ratio("a", Rate).Noise, 1e-9)
}

func TestCompareReportsWhoFailed(t *testing.T) {
	var order []string
	broken := errors.New("broken")
	_, err := Compare(1, rates("R", &order, 1, 1), Arm{Name: "a", Run: func() (Run, error) { return Run{}, broken }})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "a: ")

	_, err = Compare(1, rates("R", &order, 0))
	require.ErrorContains(t, err, "R: 0 operations", "a run without an operation is no measurement")
}

func TestQuantile(t *testing.T) {
	r := Run{Latency: []time.Duration{4, 1, 3, 2}}
	r.Finish()
	for _, tc := range []struct{ q, want float64 }{{0, 1}, {0.25, 1}, {0.5, 2}, {0.51, 3}, {0.99, 4}, {1, 4}} {
		assert.Equal(t, tc.want, r.Quantile(tc.q), "quantile %v", tc.q) //nolint:testifylint // integers
	}
	assert.Zero(t, (&Run{}).Quantile(0.5))
}

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		bar    Bar
		median float64
		noise  float64
		want   Verdict
	}{
		"nothing asked":            {Bar{}, 0.1, 9, NoBar},
		"reached":                  {Bar{AtLeast: 0.85}, 0.85, 1.25, Held},
		"not reached":              {Bar{AtLeast: 0.85}, 0.84, 1, Missed},
		"above the ceiling":        {Bar{AtMost: 1.2}, 1.21, 1, Missed},
		"below the ceiling":        {Bar{AtMost: 1.2}, 1.2, 1, Held},
		"noisy, though reached":    {Bar{AtLeast: 0.85}, 2, 1.26, Void},
		"noisy, and not reached":   {Bar{AtLeast: 0.85}, 0.1, 2, Void},
		"too noisy for a fine bar": {Bar{AtMost: 1.02, Noise: 1.03}, 1, 1.04, Void},
		"outside of both bounds":   {Bar{AtLeast: 0.9, AtMost: 1.1}, 1.2, 1, Missed},
		"nothing could be divided": {Bar{AtLeast: 0.85}, nan(), 1, Missed},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, tc.bar.Judge(Ratio{Median: tc.median, Noise: tc.noise}))
		})
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestTable(t *testing.T) {
	var b strings.Builder
	tab := Table{Title: "what", Head: []string{"case", "µs", "verdict"}}
	tab.Row("a", "1", Held)
	tab.Row("long name", "1000", Missed)
	tab.Print(&b)
	assert.Equal(t, "\nwhat\ncase         µs  verdict\na             1     held\nlong name  1000   MISSED\n", b.String())
}
