// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"strings"
	"time"
)

// The plot is drawn in a box of its own units and stretched to the page's
// width; its words are HTML around it, so they stay readable on a phone.
const (
	plotWidth  = 1000
	plotHeight = 200
	headroom   = 1.08 // of the limit, so that its line is not the box's edge
)

// plot is one log's last hour, as geometry.
type plot struct {
	Width, Height int
	Line, Area    string // SVG path data
	LimitY        string
	Refusing      []band
	Limit, Lowest string
	Highest       string
	Summary       string // the plot for those who do not see it
	Enough        bool   // there is more than one point to draw
}

type band struct{ X, Width string }

// newPlot draws samples and the present figure against limit. Samples older
// than the span are left out; where nothing was sampled nothing is drawn.
func newPlot(samples []Sample, present Sample, limit uint64) plot {
	points := make([]Sample, 0, len(samples)+1)
	for _, s := range samples {
		if d := present.At.Sub(s.At); d >= 0 && d <= plotSpan {
			points = append(points, s)
		}
	}
	points = append(points, present)

	highest, lowest := present.Unreclaimed, present.Unreclaimed
	for _, s := range points {
		highest, lowest = max(highest, s.Unreclaimed), min(lowest, s.Unreclaimed)
	}
	top := headroom * float64(max(limit, highest, 1))
	x := func(t time.Time) float64 {
		return plotWidth * (1 - float64(present.At.Sub(t))/float64(plotSpan))
	}
	y := func(v uint64) float64 { return plotHeight * (1 - float64(v)/top) }

	p := plot{
		Width: plotWidth, Height: plotHeight,
		LimitY: coordinate(y(limit)),
		Limit:  size(limit), Lowest: size(lowest), Highest: size(highest),
		Enough: len(points) > 1,
		Summary: fmt.Sprintf("Unreclaimed bytes over the last %s: now %s, lowest %s, highest %s, limit %s.",
			span(present.At.Sub(points[0].At)), size(present.Unreclaimed), size(lowest), size(highest), size(limit)),
	}
	var line strings.Builder
	for i, s := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&line, "%s%s %s", command, coordinate(x(s.At)), coordinate(y(s.Unreclaimed)))
	}
	for i := 0; i+1 < len(points); i++ {
		first := i
		for i+1 < len(points) && points[i].Refusing { // neighbours are one band
			i++
		}
		if i > first {
			p.Refusing = append(p.Refusing, band{
				X: coordinate(x(points[first].At)), Width: coordinate(x(points[i].At) - x(points[first].At)),
			})
		}
	}
	p.Line = line.String()
	p.Area = fmt.Sprintf("%sL%s %dL%s %dZ", p.Line, coordinate(plotWidth), plotHeight, coordinate(x(points[0].At)), plotHeight)
	return p
}

func coordinate(v float64) string { return fmt.Sprintf("%.1f", v) }
