// SPDX-License-Identifier: Apache-2.0

// Package otlpwire walks OTLP protobuf once, without decoding it.
package otlpwire // import "github.com/otelweir/weir/internal/otlpwire"

// STUB: signatures agreed between the packages. The owner of internal/otlpwire replaces this file.

// Signal has the values of the log's frame kinds.
type Signal uint8

const (
	Logs     Signal = 1
	Traces   Signal = 2
	Metrics  Signal = 3
	Profiles Signal = 4
)

// Measurement of one Export…ServiceRequest.
type Measurement struct {
	Items    int    // log records, spans, data points, samples
	Estimate uint64 // bytes the decoded pdata will retain
	Nesting  int    // deepest array/kvlist nesting inside one value
}

// Measure accepts exactly what pdata decodes, refusing also what nests deeper than maxNesting or whose estimate is over 32 × the wire size
// (and over 1 MiB). No allocation on success.
func Measure(s Signal, payload []byte, maxNesting int) (Measurement, error) { panic("stub") }
