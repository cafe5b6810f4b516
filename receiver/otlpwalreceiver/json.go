// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"errors"
	"fmt"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

// convertJSON turns r, which holds OTLP JSON, into protobuf. It is the one
// place on the way in where data is decoded, so what the decoder will allocate
// is charged, and judged, before it runs. On a refusal r is released.
func (f *front) convertJSON(r *request) *refusal.Error {
	r.format = formatJSON
	refused := f.jsonToProto(r)
	if refused != nil {
		r.release()
	}
	return refused
}

func (f *front) jsonToProto(r *request) *refusal.Error {
	if err := otlpwire.CheckJSON(r.signal, r.payload, maxJSONDepth(f.maxNesting)); err != nil {
		if errors.Is(err, otlpwire.ErrTooDeep) {
			err = fmt.Errorf("JSON nests deeper than %d brackets (admission.max_nesting is %d): %w", maxJSONDepth(f.maxNesting), f.maxNesting, err)
		}
		return invalidPayload(err)
	}
	decoded := shapeOf(r.payload).decodedSize(len(r.payload))
	if decoded > maxDensity*len(r.payload) && decoded > freeDensity {
		return invalidPayload(fmt.Errorf("JSON of %d bytes would decode to about %d, more than %d times as much", len(r.payload), decoded, maxDensity))
	}
	// It grows the request's own charge: a request that is alone is never
	// refused for lack of memory, or it would be for ever.
	if !r.charge.Grow(uint64(decoded)) {
		return f.admission.noMemory(uint64(decoded))
	}
	data := newExportRequest(r.signal)
	if err := data.UnmarshalJSON(r.payload); err != nil {
		return invalidPayload(err)
	}
	payload, err := data.MarshalProto()
	if err != nil {
		return invalidPayload(err)
	}
	// Both forms were held until here; from here on only this one is.
	r.release()
	r.payload, r.buffer, r.charge = payload, nil, f.admission.budget.NewCharge()
	if n := uint64(cap(payload)); !r.charge.Grow(n) {
		return f.admission.noMemory(n)
	}
	return nil
}

// Data that decodes to more than maxDensity times its size, and to more than
// freeDensity bytes, is no telemetry. The walk over protobuf has the same two
// bounds.
const (
	maxDensity  = 32
	freeDensity = 1 << 20
)

// jsonShape is what a look at the brackets and commas of JSON that
// otlpwire.CheckJSON accepts tells about the memory it decodes to.
type jsonShape struct {
	elements int // objects and nulls in arrays: spans, points, attributes
	objects  int // all other objects
	commas   int
}

// Bytes of pdata behind one of each: its largest message, a oneof's wrapper
// with its pointer, a string in a slice that was grown.
const (
	elementSize = 256
	objectSize  = 64
	commaSize   = 24
)

// decodedSize is an upper bound of what JSON of this shape and length decodes
// to.
func (s jsonShape) decodedSize(length int) int {
	return s.elements*elementSize + s.objects*objectSize + s.commas*commaSize + length
}

// maxJSONDepth is the depth of brackets of a value nested as deep as
// admission.max_nesting allows: an attribute of an exemplar is at 15, and a
// kvlist inside a value adds 4.
func maxJSONDepth(nesting int) int { return 16 + 4*(nesting+1) }

// shapeOf looks at JSON once.
func shapeOf(data []byte) jsonShape {
	var s jsonShape
	last := byte(0) // last byte outside strings and white space
	for i := 0; i < len(data); i++ {
		c := data[i]
		inArray := last == '[' || last == ',' // or where a field's name is due, which is a string
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{':
			if inArray {
				s.elements++
			} else {
				s.objects++
			}
		case 'n': // null, of which the decoder makes an element
			if inArray {
				s.elements++
			}
		case ',':
			s.commas++
		}
		last = c
	}
	return s
}
