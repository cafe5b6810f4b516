// SPDX-License-Identifier: Apache-2.0

package trial

import "fmt"

// Bar is what a ratio has to reach. The zero Bar is none.
type Bar struct {
	AtLeast float64 // 0 = no lower bound
	AtMost  float64 // 0 = no upper bound
	Noise   float64 // that is too much to tell; 0 = MaxNoise
}

// Verdict is what a ratio says about its bar.
type Verdict uint8

// The verdicts.
const (
	NoBar  Verdict = iota // nothing was asked
	Held                  // the bar was reached
	Missed                // it was not
	Void                  // the reference disagreed with itself: nothing is known
)

func (v Verdict) String() string {
	return [...]string{NoBar: "-", Held: "held", Missed: "MISSED", Void: "too noisy"}[v]
}

// Judge compares a ratio with the bar.
func (b Bar) Judge(r Ratio) Verdict {
	noise := b.Noise
	if noise == 0 {
		noise = MaxNoise
	}
	switch {
	case b == Bar{}:
		return NoBar
	case !(r.Noise <= noise): // also NaN
		return Void
	case b.AtLeast != 0 && !(r.Median >= b.AtLeast), b.AtMost != 0 && !(r.Median <= b.AtMost):
		return Missed
	}
	return Held
}

func (b Bar) String() string {
	switch {
	case b.AtLeast != 0 && b.AtMost != 0:
		return fmt.Sprintf("%.2f..%.2f", b.AtLeast, b.AtMost)
	case b.AtLeast != 0:
		return fmt.Sprintf("≥ %.2f", b.AtLeast)
	case b.AtMost != 0:
		return fmt.Sprintf("≤ %.2f", b.AtMost)
	}
	return "-"
}
