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
	start   int           // in the payload
	end     int           // in the payload
	items   int           // counted before it
	counts  [slots]uint32 // occurrences of its fields by slot
	op      op            // its parent's op that led here
	depth   uint8         // recursive messages around it, itself included
	nesting uint8         // containers around it, itself included
	again   bool          // an embedded message that occurred before
	discard bool          // its items do not count
	scopes  bool          // a field of note scopes was seen
}

type walk struct {
	frames [maxDepth]frame
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
	m, err := w.measure(&messages[requests[s]], payload, maxNesting, s == Profiles)
	walks.Put(w)
	if err != nil {
		return Measurement{}, err
	}
	return m, nil
}

// measure walks payload, a request of the given message. The loop is at one field
// of the innermost open message, frames[sp]; f, m and b are that frame, its
// message, and the payload up to its end.
func (w *walk) measure(root *message, payload []byte, maxNesting int, profiles bool) (total Measurement, err *Error) {
	var (
		estimate uint64
		items    int
		nesting  int
		table    int // length of the string table
		need     int // length it must have
		sp       int
		pos      int
		m        = root
		b        = payload
		f        = &w.frames[0]
	)
	*f = frame{message: root, end: len(payload)}
	for {
		if pos >= len(b) { // the message ends
			for i, g := range m.slices {
				bytes := g.bytes(f.counts[i])
				if f.again { // its slices go on growing
					bytes *= 2
				}
				estimate += bytes
			}
			if f.discard {
				items = f.items
			}
			if profiles && f.op.note == referring {
				need = max(need, tableFor(payload[f.start:f.end]))
			}
			if sp == 0 {
				break
			}
			sp--
			f = &w.frames[sp]
			m = f.message
			b = payload[:f.end]
			continue
		}

		tag := pos
		c := b[pos]
		o := m.ops[c&0x7f]
		pos++
		if c >= 0x80 || o.kind == unknown {
			if o, pos, err = w.rare(sp, b, tag); err != nil {
				return total, err
			}
		}
		f.counts[o.slot&(slots-1)]++
		estimate += uint64(o.cost)
		if o.note >= data {
			switch o.note {
			case data:
				items = f.items
			case item:
				items++
			case scopes:
				if !f.scopes {
					f.scopes = true
					items = f.items
				}
			case strings:
				table++
			}
		}

		switch o.kind {
		case varint:
			if pos < len(b) && b[pos] < 0x80 {
				pos++
				continue
			}
			if _, pos = readVarint(b, pos); pos < 0 {
				return total, w.defect(sp, tag, o, pos)
			}
			continue
		case fixed64:
			if pos += 8; pos > len(b) {
				return total, w.defect(sp, tag, o, truncated)
			}
			continue
		case fixed32:
			if pos += 4; pos > len(b) {
				return total, w.defect(sp, tag, o, truncated)
			}
			continue
		case skipped:
			continue
		}

		n := 0
		if pos < len(b) && b[pos] < 0x80 {
			n = int(b[pos])
			if pos++; n > len(b)-pos {
				return total, w.defect(sp, tag, o, truncated)
			}
		} else if n, pos = readLength(b, pos); pos < 0 {
			return total, w.defect(sp, tag, o, pos)
		}

		switch o.kind {
		case text, texts:
			estimate += textBytes(n)
			pos += n
		case id:
			if n != 0 && n != int(o.of) {
				return total, w.malformed(sp, tag, o, "an id of %d bytes has %d or none", n, o.of)
			}
			pos += n
		case packedVarint:
			count, defect := countVarints(b[pos : pos+n])
			if defect < 0 {
				return total, w.defect(sp, tag, o, defect)
			}
			f.counts[o.of&(slots-1)] += uint32(count)
			pos += n
		case packedFixed64:
			if n%8 != 0 {
				return total, w.malformed(sp, tag, o, "packed 8-byte values of %d bytes in all", n)
			}
			estimate += textBytes(n) // allocated at once
			pos += n
		default: // a message
			child := &messages[o.of]
			depth := (f.depth + 1) * child.recursive
			if depth > recursionLimit {
				return total, w.malformed(sp, tag, o, "more than %d values inside one another", recursionLimit)
			}
			deeper := f.nesting + child.container
			if nesting = max(nesting, int(deeper)); nesting > maxNesting {
				return total, w.fail(ErrTooDeep, sp, tag, o, "more than %d arrays and key-value lists inside one another (max_nesting)", maxNesting)
			}
			again := o.kind == embedded && f.counts[o.slot&(slots-1)] > 1
			discard := o.note == deprecated && f.scopes
			sp++
			f = &w.frames[sp]
			m = child
			f.message = child
			f.start = pos
			f.end = pos + n
			f.items = items
			f.counts = [slots]uint32{}
			f.op = o
			f.depth = depth
			f.nesting = deeper
			f.again = again
			f.discard = discard
			f.scopes = false
			b = payload[:f.end]
		}
	}
	total = Measurement{Items: items, Estimate: estimate, Nesting: nesting}
	if need > table {
		return total, &Error{Cause: ErrMalformed, Offset: len(payload), Path: root.layout.name, Text: "an attribute refers to a string that the string table does not have, or has both key and key_strindex"}
	}
	if estimate > denseFrom && estimate/maxDensity > uint64(len(payload)) {
		return total, w.fail(ErrTooDense, 0, 0, op{kind: unknown}, "%d bytes would take %d when decoded, more than %d times as many", len(payload), estimate, maxDensity)
	}
	return total, nil
}

// rare is the way of a field whose tag is not one byte, whose wire type is not
// the table's, or which is not in the table; the last is passed over.
func (w *walk) rare(sp int, b []byte, tag int) (o op, next int, err *Error) {
	number, wire, next := readTag(b, tag)
	if next < 0 {
		return op{}, 0, w.defect(sp, tag, op{}, next)
	}
	o, known := w.frames[sp].message.find(number, wire)
	switch {
	case o.kind != unknown:
		return o, next, nil
	case known:
		return op{}, 0, w.malformed(sp, tag, op{}, "field %d has wire type %d", number, wire)
	}
	if next = skip(b, next, wire); next < 0 {
		return op{}, 0, w.defect(sp, tag, op{}, next)
	}
	return op{kind: skipped, slot: nowhere}, next, nil
}
