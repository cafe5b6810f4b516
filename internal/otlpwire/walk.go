// SPDX-License-Identifier: Apache-2.0

package otlpwire

import "sync"

// Signal has the values of the log's frame kinds.
type Signal uint8

// The signals of OTLP.
const (
	Logs     Signal = 1
	Traces   Signal = 2
	Metrics  Signal = 3
	Profiles Signal = 4
)

var requests = [...]int{Logs: exportLogs, Traces: exportTraces, Metrics: exportMetrics, Profiles: exportProfiles}

// Measurement is what the walk found out about one Export…ServiceRequest.
type Measurement struct {
	Items    int    // log records, spans, data points, samples; as pdata counts them
	Estimate uint64 // bytes of heap the decoded request will retain
	Nesting  int    // deepest nesting of arrays and key-value lists inside one value
}

const (
	// recursionLimit is pdata's: how many KeyValue, AnyValue, ArrayValue and
	// KeyValueList may be inside one another.
	recursionLimit = 100
	// maxDepth is the length of the longest chain of messages: a metric's
	// exemplar is the 7th, and its attributes begin the recursion.
	maxDepth = 7 + recursionLimit
	// frameSlots is maxDepth, rounded up to a power of two so that an index
	// can be masked instead of checked.
	frameSlots = 128

	// maxDensity is the largest ratio of estimate to wire size. Honest
	// requests stay below 12 (exponential histograms); empty messages of two
	// bytes reach 109.
	maxDensity = 32
	// denseFrom is the estimate below which density does not matter.
	denseFrom = 1 << 20
)

// frame is one message being walked.
type frame struct {
	message *message
	end     int           // in the payload
	items   int           // counted before it
	counts  [slots]uint32 // occurrences of its fields, by slot
	op      op            // its parent's op that led here
	start   int           // in the payload
	depth   uint8         // recursive messages around it, itself included
	nesting uint8         // containers around it, itself included
	scopes  bool          // a field of note scopes was seen
	atEnd   atEnd
}

// atEnd is what is to be done at the end of a message besides adding up its
// slices; usually nothing.
type atEnd uint8

const (
	again   atEnd = 1 << iota // it occurred before and its slices go on growing
	discard                   // its items do not count
	refers                    // it may refer to the string table
	defines                   // it has the string table
)

// walk is the state of one Measure, except for what its loop has in registers.
type walk struct {
	payload    []byte
	maxNesting int

	items   int
	nesting int
	strings int // length of the string table so far
	need    int // length it must have
	frames  [frameSlots]frame
}

var walks = sync.Pool{New: func() any { return new(walk) }}

// Measure accepts exactly the requests that pdata decodes, and of these
// refuses the ones that nest deeper than maxNesting or whose estimate is over
// 1 MiB and over 32 times the wire size. It does not allocate on success and
// keeps nothing of payload. The error is an [*Error].
func Measure(s Signal, payload []byte, maxNesting int) (Measurement, error) {
	if s == 0 || int(s) >= len(requests) {
		return Measurement{}, &Error{Cause: ErrMalformed, Path: "signal", Text: "there is no such signal"}
	}
	w := walks.Get().(*walk)
	w.payload, w.maxNesting = payload[:len(payload):len(payload)], maxNesting
	w.items, w.nesting, w.strings, w.need = 0, 0, 0, 0
	estimate, err := w.request(&messages[requests[s]])
	m := Measurement{Items: w.items, Estimate: estimate, Nesting: w.nesting}
	w.payload = nil
	walks.Put(w)
	if err != nil {
		return Measurement{}, err
	}
	return m, nil
}

// request walks the payload and checks what can only be told at its end.
func (w *walk) request(root *message) (estimate uint64, err *Error) {
	w.frames[0] = frame{message: root, end: len(w.payload)}
	if estimate, err = w.fields(); err != nil {
		return 0, err
	}
	if w.need > w.strings {
		return 0, w.malformed(0, len(w.payload), "an attribute refers to a string that is not in the string table, or has both key and key_strindex")
	}
	if estimate > denseFrom && estimate/maxDensity > uint64(len(w.payload)) {
		return 0, w.fail(ErrTooDense, 0, len(w.payload), "%d bytes would take %d when decoded, more than %d times as many", len(w.payload), estimate, maxDensity)
	}
	return estimate, nil
}

// fields walks the message of frames[0] and all within. The loop is at one
// field of the innermost open message, frames[sp]: f, m and b are that frame,
// its message, and the payload up to its end.
func (w *walk) fields() (estimate uint64, err *Error) {
	sp := uint(0)
	f := &w.frames[0]
	m := f.message
	b := w.payload
	for pos := 0; ; {
		if pos >= len(b) { // the message ends
			for i, g := range m.slices {
				estimate += g.bytes(f.counts[i%slots])
			}
			if f.atEnd != 0 {
				estimate += w.end(f)
			}
			if sp == 0 {
				return estimate, nil
			}
			sp--
			f = &w.frames[sp%frameSlots]
			m = f.message
			b = w.payload[:f.end]
			continue
		}

		tag := pos
		o := m.ops[b[pos]]
		pos++
		if o == 0 {
			if o, pos = m.rare(b, tag); pos < 0 {
				return 0, w.defect(sp, tag, pos)
			}
			if o == 0 {
				continue
			}
			if o.kind() < text { // an element of a packed field, not packed
				f.counts[o.slot()]++
			}
		}
		estimate += o.cost()

		kind := o.kind()
		if kind < text {
			switch kind {
			case varint:
				if pos < len(b) && b[pos] < 0x80 {
					pos++
					continue
				}
				pos = skipVarint(b, pos)
			case fixed64:
				pos = fits(b, pos+8)
			case fixed32:
				pos = fits(b, pos+4)
			}
			if pos < 0 {
				return 0, w.defect(sp, tag, pos)
			}
			continue
		}

		var n int
		if pos < len(b) && b[pos] < 0x80 {
			n = int(b[pos])
			if pos++; n > len(b)-pos {
				return 0, w.defect(sp, tag, truncated)
			}
		} else if n, pos = readLength(b, pos); pos < 0 {
			return 0, w.defect(sp, tag, pos)
		}
		end := pos + n

		if kind < embedded {
			switch kind {
			case text:
				estimate += textBytes(n)
			case texts:
				f.counts[o.slot()]++
				estimate += textBytes(n)
			case id:
				if n != 0 && n != o.of() {
					return 0, w.defect(sp, tag, badID)
				}
			case packedVarint:
				count, defect := countVarints(b[pos:end])
				if defect < 0 {
					return 0, w.defect(sp, tag, defect)
				}
				f.counts[o.of()%slots] += uint32(count)
			case packedFixed64:
				if n%8 != 0 {
					return 0, w.defect(sp, tag, badPacked)
				}
				estimate += textBytes(n) // allocated at once
			}
			pos = end
			continue
		}

		// A message begins.
		if o.flat() && f.depth+2 <= recursionLimit {
			if o.of() == keyValue {
				if cost, ok := attribute(b[pos:end]); ok {
					f.counts[o.slot()]++
					estimate += cost
					pos = end
					continue
				}
			} else if cost, next := w.run(f, o, b, tag, pos, end); next > tag {
				estimate += cost
				pos = next
				continue
			}
		}
		f.counts[o.slot()]++
		var todo atEnd
		if o.note() == item {
			w.items++
		} else if o.note() >= data || kind == embedded && f.counts[o.slot()] > 1 {
			todo = w.begin(f, o)
		}
		child := &w.frames[(sp+1)%frameSlots]
		m = &messages[o.of()]
		child.depth, child.nesting = 0, f.nesting
		if m.recursive {
			child.depth = f.depth + 1
			if m.container {
				child.nesting++
				w.nesting = max(w.nesting, int(child.nesting))
			}
			if child.depth > recursionLimit {
				return 0, w.malformed(sp, tag, "more than %d values inside one another", recursionLimit)
			}
			if w.nesting > w.maxNesting {
				return 0, w.fail(ErrTooDeep, sp, tag, "more than %d arrays and key-value lists inside one another (max_nesting)", w.maxNesting)
			}
		}
		sp++
		f = child
		f.message = m
		f.start = pos
		f.end = end
		f.items = w.items
		f.counts = [slots]uint32{}
		f.op = o
		f.scopes = false
		f.atEnd = todo
		b = b[:end]
	}
}

// begin sees to a message's note, and to its repetition; f is its parent.
func (w *walk) begin(f *frame, o op) (todo atEnd) {
	switch o.note() {
	case data:
		w.items = f.items
	case scopes:
		if !f.scopes {
			f.scopes = true
			w.items = f.items
		}
	case deprecated:
		if f.scopes {
			todo = discard
		}
	case referring:
		todo = refers
	case dictionary:
		todo = defines
	}
	if o.kind() == embedded && f.counts[o.slot()] > 1 {
		todo |= again
	}
	return todo
}

// end does what begin left for the end of the message f.
func (w *walk) end(f *frame) (estimate uint64) {
	if f.atEnd&again != 0 {
		for i, g := range f.message.slices {
			estimate += g.bytes(f.counts[i])
		}
	}
	if f.atEnd&discard != 0 {
		w.items = f.items
	}
	if f.atEnd&refers != 0 {
		w.need = max(w.need, tableFor(w.payload[f.start:f.end]))
	}
	if f.atEnd&defines != 0 {
		w.strings += int(f.counts[stringTable])
	}
	return estimate
}

// rare is the way of a field whose tag is not one byte, whose wire type is not
// the table's, or which is not in the table; the last is passed over, and its
// op is 0.
func (m *message) rare(b []byte, tag int) (o op, next int) {
	number, wire, next := readTag(b, tag)
	if next < 0 {
		return 0, next
	}
	o, known := m.find(number, wire)
	switch {
	case o != 0:
		return o, next
	case known:
		return 0, badType
	}
	return 0, skip(b, next, wire)
}
