// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is printed for people.
type Table struct {
	Title string
	Head  []string
	rows  [][]string
}

// Row adds a row; what is no string is formatted with %v.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if s, ok := c.(string); ok {
			row[i] = s
		} else {
			row[i] = fmt.Sprint(c)
		}
	}
	t.rows = append(t.rows, row)
}

// Print writes the table: the first column flush left, the others flush right.
func (t *Table) Print(w io.Writer) {
	width := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.rows...) {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	fmt.Fprintf(w, "\n%s\n", t.Title)
	line := func(row []string) {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 {
				b.WriteString(c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	line(t.Head)
	for _, row := range t.rows {
		line(row)
	}
}

// FormatRate formats operations per second.
func FormatRate(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM/s", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk/s", v/1e3)
	}
	return fmt.Sprintf("%.0f/s", v)
}

// FormatThroughput formats bytes per second.
func FormatThroughput(v float64) string { return fmt.Sprintf("%.0f MB/s", v/1e6) }

// FormatNanos formats a time given in nanoseconds.
func FormatNanos(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.2f s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2f ms", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.1f µs", v/1e3)
	}
	return fmt.Sprintf("%.0f ns", v)
}

// FormatRatio formats a ratio with the spread of its rounds.
func FormatRatio(r Ratio) string { return fmt.Sprintf("%.2f (%.2f..%.2f)", r.Median, r.Low, r.High) }
