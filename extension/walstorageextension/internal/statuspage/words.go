// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

var sizeUnits = [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// size is a number of bytes for reading, to two digits or more; the exact
// figure goes into a title. It never says 1024 of a unit.
func size(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v := float64(n)
	for i, unit := range sizeUnits {
		v /= 1024
		switch {
		case v < 9.95:
			return fmt.Sprintf("%.1f %s", v, unit)
		case v < 1023.5 || i == len(sizeUnits)-1:
			return fmt.Sprintf("%.0f %s", v, unit)
		}
	}
	panic("unreachable")
}

func exact(n uint64) string { return humanize.Comma(int64(min(n, 1<<62))) + " bytes" }

func count[N ~int | ~uint64](n N) string { return humanize.Comma(int64(n)) }

// span is a duration in at most two units.
func span(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case d > 0 && d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case s < 60:
		return fmt.Sprintf("%d s", max(0, s))
	case s < 3600:
		return units(s/60, "min", s%60, "s")
	case s < 86400:
		return units(s/3600, "h", s%3600/60, "min")
	}
	return units(s/86400, "d", s%86400/3600, "h")
}

func units(a int64, unitA string, b int64, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}

const dueNow = "due now"

func until(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	if d := t.Sub(now).Round(time.Second); d > 0 {
		return "in " + span(d)
	}
	return dueNow
}

func age(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return span(max(0, now.Sub(t)))
}

// retryAfter is the header's value: whole seconds, rounded up, at least 1.
func retryAfter(d time.Duration) string {
	return fmt.Sprintf("%d s", max(1, (d+time.Second-1)/time.Second))
}

func boundName(cause string) string {
	if cause == "segments" {
		return "segment limit"
	}
	return "byte limit"
}

func refusingSince(since, now time.Time) string {
	if since.IsZero() {
		return "Nothing accepted is lost."
	}
	return "It has been so for " + age(since, now) + "; nothing accepted is lost."
}

func cause(c string) string {
	if c == "" {
		return ""
	}
	return " First cause: " + strings.TrimRight(c, ". ") + "."
}

func nextTry(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " Next attempt: " + until(t, now) + "."
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return count(n) + " times"
}

func lanesAre(n int) string {
	if n == 1 {
		return "One lane is"
	}
	return count(n) + " lanes are"
}

func percent(part, whole uint64) string {
	if whole == 0 {
		return "–"
	}
	p := 100 * float64(part) / float64(whole)
	if p > 0 && p < 1 {
		return "under 1 %"
	}
	return fmt.Sprintf("%.0f %%", p)
}

// laneName is a lane for reading.
func laneName(tenant, signal string) string {
	if tenant == "" {
		return signal
	}
	return tenant + " / " + signal
}

// laneStates says what a lane's state means.
var laneStates = map[string]string{
	"idle":        "idle",
	"delivering":  "delivering",
	"catching_up": "catching up",
	"held":        "held by a sink",
	"parked":      "waiting to retry",
	"blocked":     "blocked",
	"no_pipeline": "no pipeline",
}

func laneState(state string) string {
	if text, ok := laneStates[state]; ok {
		return text
	}
	return state
}

var quantity = regexp.MustCompile(`(\d) (B|[KMGTPE]iB|ms|s|min|h|d|%)\b`)

// unbroken keeps numbers and their units on one line.
func unbroken(text string) string {
	return quantity.ReplaceAllString(text, "$1\u00a0$2")
}
