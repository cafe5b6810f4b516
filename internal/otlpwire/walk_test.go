// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// in wraps b in messages by the field numbers given, outermost first.
func in(b []byte, numbers ...protowire.Number) []byte {
	for i := len(numbers) - 1; i >= 0; i-- {
		b = wrap(nil, numbers[i], b)
	}
	return b
}

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func TestE03_EmptyMessagesAreRefusedBeforeDecoding(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal Signal
		path   []protowire.Number
	}{
		{"resource logs", Logs, []protowire.Number{1}},
		{"log records", Logs, []protowire.Number{1, 2, 2}},
		{"entity references", Logs, []protowire.Number{1, 1, 3}},
		{"spans", Traces, []protowire.Number{1, 2, 2}},
		{"span events", Traces, []protowire.Number{1, 2, 2, 11}},
		{"span links", Traces, []protowire.Number{1, 2, 2, 13}},
		{"metrics", Metrics, []protowire.Number{1, 2, 2}},
		{"number points", Metrics, []protowire.Number{1, 2, 2, 5, 1}},
		{"histogram points", Metrics, []protowire.Number{1, 2, 2, 9, 1}},
		{"exponential histogram points", Metrics, []protowire.Number{1, 2, 2, 10, 1}},
		{"exemplars", Metrics, []protowire.Number{1, 2, 2, 7, 1, 5}},
		{"profiles", Profiles, []protowire.Number{1, 2, 2}},
		{"samples", Profiles, []protowire.Number{1, 2, 2, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			payload := empties(tt.path...)(2 << 20)
			m, err := Measure(tt.signal, payload, 32)
			require.ErrorIs(t, err, ErrTooDense)
			assert.Zero(t, m, "nothing to build on")
			few := empties(tt.path...)(4000)
			_, err = Measure(tt.signal, few, 32)
			require.NoError(t, err, "below 1 MiB, density does not matter")
			allocs := testing.AllocsPerRun(2, func() { _, _ = Measure(tt.signal, payload, 32) })
			assert.Less(t, allocs, 20.0, "a refusal costs no more than its text")
		})
	}
}

// nested is an AnyValue of containers, one inside the other, with a string in
// the innermost.
func nested(depth int, lists bool) []byte {
	v := in([]byte("leaf"), 1)
	for range depth {
		if lists {
			v = in(join(in([]byte("key"), 1), in(v, 2)), 6, 1) // kvlist_value, values
		} else {
			v = in(v, 5, 1) // array_value, values
		}
	}
	return v
}

// places are where values occur, with the recursive messages around them.
var places = []struct {
	name   string
	signal Signal
	around int
	path   []protowire.Number
}{
	{"body", Logs, 0, []protowire.Number{1, 2, 2, 5}},
	{"log attribute", Logs, 1, []protowire.Number{1, 2, 2, 6, 2}},
	{"resource attribute", Logs, 1, []protowire.Number{1, 1, 1, 2}},
	{"scope attribute", Traces, 1, []protowire.Number{1, 2, 1, 3, 2}},
	{"span link attribute", Traces, 1, []protowire.Number{1, 2, 2, 13, 4, 2}},
	{"exemplar attribute", Metrics, 1, []protowire.Number{1, 2, 2, 9, 1, 8, 7, 2}},
	{"metric metadata", Metrics, 1, []protowire.Number{1, 2, 2, 12, 2}},
	{"profile resource attribute", Profiles, 1, []protowire.Number{1, 1, 1, 2}},
	{"profile dictionary attribute", Profiles, 0, []protowire.Number{2, 6, 2}},
}

func TestE04_NestingIsLimited(t *testing.T) {
	const limit = 32
	for _, p := range places {
		for _, lists := range []bool{false, true} {
			m, err := Measure(p.signal, in(nested(limit, lists), p.path...), limit)
			require.NoError(t, err, p.name)
			assert.Equal(t, limit, m.Nesting, p.name)

			_, err = Measure(p.signal, in(nested(limit+1, lists), p.path...), limit)
			require.ErrorIs(t, err, ErrTooDeep, p.name)
			assert.ErrorContains(t, err, "max_nesting")
		}
	}
	m, err := Measure(Logs, in([]byte("leaf"), 1, 2, 2, 5, 1), 0)
	require.NoError(t, err, "a scalar is not nested")
	assert.Zero(t, m.Nesting)
	m, err = Measure(Logs, join(in(nested(3, true), 1, 2, 2, 5), in(nested(2, false), 1, 2, 2, 5)), 3)
	require.NoError(t, err)
	assert.Equal(t, 3, m.Nesting, "the deepest counts")
}

// However high the limit is, nothing passes that pdata does not decode.
func TestE04_PdataRecursionLimit(t *testing.T) {
	for _, p := range places {
		for _, lists := range []bool{false, true} {
			deepest := 0
			for depth := 1; depth <= 60; depth++ {
				payload := in(nested(depth, lists), p.path...)
				require.Empty(t, disagree(p.signal, payload), "%s, %d deep", p.name, depth)
				if m, err := Measure(p.signal, payload, 1000); err == nil {
					deepest = depth
					assert.Equal(t, depth, m.Nesting)
				}
			}
			each := 2 // ArrayValue, AnyValue
			if lists {
				each = 3 // KeyValueList, KeyValue, AnyValue
			}
			assert.Equal(t, (recursionLimit-p.around-1)/each, deepest, p.name)
		}
	}
}

func TestE09_WhatPdataMakesOfOddRequests(t *testing.T) {
	record := in(nil, 2)         // in ScopeLogs
	points := in(nil, 1)         // one data point, in Gauge and others
	reference := []byte{0x40, 3} // string_value_strindex
	attribute := func(kv []byte) []byte { return in(kv, 1, 1, 1) }
	table := func(n int) []byte { return in(empties(5)(n), 2) }
	for _, tt := range []struct {
		name    string
		signal  Signal
		payload []byte
		items   int
		wrong   string // "" or the error
	}{
		{"nothing", Logs, nil, 0, ""},
		{"no records", Logs, in(nil, 1, 2), 0, ""},
		{"invalid UTF-8 in a key and a body", Logs, join(in([]byte("\xff\xfe"), 1, 2, 2, 5, 1), in([]byte("\xc3\x28"), 1, 2, 2, 6, 1)), 2, ""},
		{"unknown fields of every form", Logs, join(in(join([]byte{0x98, 0x06, 1}, []byte{0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8}, []byte{0x9d, 0x06, 1, 2, 3, 4}, []byte{0x9a, 0x06, 1, 2}, []byte{0x9b, 0x06, 0x9c, 0x06}, record), 1, 2)), 1, ""},
		{"the end of a group at the end of a message", Logs, []byte{0x9b, 0x06, 0x9c, 0x06}, 0, "byte 0, ExportLogsServiceRequest.field 99: the value is longer"},
		{"a group with a value in it", Logs, []byte{0x9b, 0x06, 0x08, 1, 0x9c, 0x06, 0x98, 0x06, 1}, 0, "byte 4, ExportLogsServiceRequest.field 99: a group ends"},
		{"a group left open behind a value", Logs, []byte{0x9b, 0x06, 0x08, 1}, 0, ""},
		{"a singular message twice", Logs, in(join(in(nil, 1), in(nil, 1, 1), in(record, 2)), 1), 1, ""},
		{"scalars twice", Logs, in([]byte{0x10, 1, 0x10, 2}, 1, 2, 2), 1, ""},
		{"deprecated scopes alone", Logs, in(in(record, 1000), 1), 1, ""},
		{"deprecated scopes before scopes", Logs, in(join(in(join(record, record), 1000), in(record, 2)), 1), 1, ""},
		{"deprecated scopes behind scopes", Logs, in(join(in(record, 2), in(join(record, record), 1000), in(record, 2)), 1), 2, ""},
		{"deprecated scopes beside an empty scope", Traces, in(join(in(nil, 2), in(record, 1000)), 1), 0, ""},
		{"two forms of data: the last counts", Metrics, in(join(in(join(points, points), 5), in(points, 7)), 1, 2, 2), 1, ""},
		{"the same form of data twice: the last counts", Metrics, in(join(in(join(points, points), 11), in(points, 11)), 1, 2, 2), 1, ""},
		{"items of all metrics", Metrics, join(in(in(points, 5), 1, 2, 2), in(in(join(points, points), 9), 1, 2, 2), in(in(points, 10), 1, 2, 2)), 4, ""},
		{"samples", Profiles, join(in(nil, 1, 2, 2, 2), in(nil, 1, 2, 2, 2)), 2, ""},
		{"packed fields not packed", Metrics, in([]byte{0x31, 1, 2, 3, 4, 5, 6, 7, 8}, 1, 2, 2, 9, 1), 1, ""},
		{"packed and not in one field", Profiles, in([]byte{0x12, 2, 1, 2, 0x10, 3}, 1, 2, 2, 2), 1, ""},
		{"a field number in more bytes than it needs", Logs, []byte{0x8a, 0x80, 0x00, 0x00}, 0, ""},
		{"a field number of 2³²+1 is 1", Logs, join(protowire.AppendVarint(nil, 1<<35|1<<3|2), []byte{4}, in(record, 2)), 1, ""},
		{"field number 0", Logs, []byte{0x02, 0}, 0, "byte 0, ExportLogsServiceRequest: a field number"},
		{"a varint of ten bytes whose last is more than a bit", Logs, in([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, 1, 2, 2), 1, ""},
		{"a varint of eleven bytes", Logs, in([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 1, 2, 2), 0, "byte 6, ExportLogsServiceRequest.resource_logs.scope_logs.log_records.severity_number: a varint has more than 10 bytes"},
		{"a varint cut off", Logs, in([]byte{0x10, 0xff}, 1, 2, 2), 0, "byte 6, ExportLogsServiceRequest.resource_logs.scope_logs.log_records.severity_number: the value is longer"},
		{"a length past the end", Logs, []byte{0x0a, 5, 1}, 0, "byte 0, ExportLogsServiceRequest.resource_logs: the value is longer"},
		{"a length past the end of the message but not of the request", Logs, join(in([]byte{0x12, 5}, 1), in(nil, 1), in(nil, 1)), 0, "byte 2, ExportLogsServiceRequest.resource_logs.scope_logs: the value is longer"},
		{"a length of 2⁶³", Logs, protowire.AppendVarint([]byte{0x0a}, 1<<63), 0, "a length is 2⁶³ or more"},
		{"a length that overflows with the position", Logs, protowire.AppendVarint([]byte{0x0a}, 1<<63-1), 0, "the value is longer"},
		{"a wrong wire type", Traces, in([]byte{0x08, 0}, 1, 2, 2), 0, "byte 6, ExportTraceServiceRequest.resource_spans.scope_spans.spans.trace_id: the field has another wire type"},
		{"wire type 7", Traces, []byte{0x9f, 0x06, 0}, 0, "byte 0, ExportTraceServiceRequest.field 99: a wire type is 6 or 7"},
		{"an empty id", Traces, in(in(nil, 1), 1, 2, 2), 1, ""},
		{"a short id", Traces, in(in([]byte{1}, 2), 1, 2, 2), 0, "spans.span_id: an id is neither empty nor of its length"},
		{"packed doubles of 9 bytes", Metrics, in(in(make([]byte, 9), 7), 1, 2, 2, 9, 1), 0, "histogram.data_points.explicit_bounds: packed values of 8 bytes"},
		{"a packed varint cut off", Metrics, in([]byte{1, 2, 0x80}, 1, 2, 2, 10, 1, 8, 2), 0, "exponential_histogram.data_points.positive.bucket_counts: the value is longer"},
		{"a double cut off in a quantile", Metrics, in([]byte{0x11, 1, 2, 3}, 1, 2, 2, 11, 1, 6), 0, "summary.data_points.quantile_values.value: the value is longer"},
		{"a double cut off in a value", Profiles, in([]byte{0x21, 1, 2, 3}, 2, 6, 2), 0, "attribute_table.value.double_value: the value is longer"},
		{"elements with a tag of three bytes", Profiles, in([]byte{0x8a, 0x80, 0x00, 0, 0x8a, 0x80, 0x00, 0}, 2), 0, ""},
		{"an element past the end of the message behind others", Profiles, join(in(join(in(nil, 1), in(nil, 1), []byte{0x0a, 2, 0x08}), 2), in(nil, 1)), 0, "dictionary.mapping_table: the value is longer"},
		{"a key_strindex without a table", Profiles, attribute([]byte{0x18, 1}), 0, "string table"},
		{"a key_strindex, then the table", Profiles, join(attribute([]byte{0x18, 1}), table(2)), 0, ""},
		{"a key_strindex, then the table in two pieces", Profiles, join(table(1), attribute([]byte{0x18, 1}), table(1)), 0, ""},
		{"a key_strindex behind the table", Profiles, join(table(2), attribute([]byte{0x18, 2})), 0, "string table"},
		{"key and key_strindex", Profiles, join(table(2), attribute(join(in([]byte("k"), 1), []byte{0x18, 1}))), 0, "string table"},
		{"key_strindex 0 is none", Profiles, attribute([]byte{0x18, 0}), 0, ""},
		{"string_value_strindex 0 is one", Profiles, attribute(in([]byte{0x40, 0}, 2)), 0, "string table"},
		{"a reference that another value replaces", Profiles, attribute(in(join(reference, in(nil, 1)), 2)), 0, ""},
		{"a reference that a repeated value keeps", Profiles, attribute(join(in(reference, 2), in(nil, 2))), 0, "string table"},
		{"a reference in an array in a list", Profiles, join(table(4), attribute(in(in(reference, 5, 1), 2, 6, 1, 2))), 0, ""},
		{"a reference in an array in a list, one too high", Profiles, join(table(3), attribute(in(in(reference, 5, 1), 2, 6, 1, 2))), 0, "string table"},
		{"a reference where pdata does not resolve it", Profiles, in(reference, 2, 6, 2), 0, ""},
		{"a reference in another signal", Logs, attribute(in(reference, 2)), 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Empty(t, disagree(tt.signal, tt.payload))
			m, err := Measure(tt.signal, tt.payload, 32)
			if tt.wrong == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.items, m.Items)
				return
			}
			require.ErrorIs(t, err, ErrMalformed)
			assert.ErrorContains(t, err, tt.wrong)
		})
	}
}

func TestErrorSaysWhereAndWhat(t *testing.T) {
	payload := join(in(nil, 1), in([]byte{0x0a, 9}, 1, 2, 2, 6))
	_, err := Measure(Logs, payload, 32)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, Error{
		Cause: ErrMalformed, Offset: 10,
		Path: "ExportLogsServiceRequest.resource_logs.scope_logs.log_records.attributes.key",
		Text: "the value is longer than the message",
	}, *e)
	assert.EqualError(t, err, "malformed: byte 10, ExportLogsServiceRequest.resource_logs.scope_logs.log_records.attributes.key: the value is longer than the message")
	assert.Equal(t, byte(0x0a), payload[e.Offset])

	_, err = Measure(Logs, empties(1)(1<<20), 32)
	assert.Regexp(t, `^too dense: byte 2097152, ExportLogsServiceRequest: 2097152 bytes would take 14\d{7} when decoded, more than 32 times as many$`, err.Error())

	for _, s := range []Signal{0, 5, 255} {
		_, err = Measure(s, nil, 32)
		assert.ErrorIs(t, err, ErrMalformed)
	}
}

// Duplicated messages and values must not hide memory from the estimate.
func TestE09_EstimateOfDuplicatedFields(t *testing.T) {
	attribute := in(join(in([]byte("some.key"), 1), in([]byte("value"), 2, 1)), 1)
	for _, tt := range []struct {
		name    string
		payload []byte
	}{
		{"a resource in 300 pieces", in([]byte(strings.Repeat(string(in(attribute, 1)), 300)), 1)},
		{"a resource in 300 pieces of 10 attributes", in([]byte(strings.Repeat(string(in([]byte(strings.Repeat(string(attribute), 10)), 1)), 300)), 1)},
		{"a scope in 300 pieces", in([]byte(strings.Repeat(string(in(in(attribute[2:], 3), 1)), 300)), 1, 2)},
	} {
		m, err := Measure(Logs, tt.payload, 32)
		require.NoError(t, err)
		ratio := float64(m.Estimate) / retained(t, Logs, tt.payload, m.Estimate)
		t.Logf("%s: %.2f", tt.name, ratio)
		assert.GreaterOrEqual(t, ratio, leastRatio, tt.name)
		assert.LessOrEqual(t, ratio, 2.5, tt.name)
	}
}

func TestMeasureDoesNotAllocate(t *testing.T) {
	for _, s := range shapes {
		payload := s.payload(min(s.n, 50))
		allocs := testing.AllocsPerRun(50, func() {
			if _, err := Measure(s.signal, payload, recursionLimit); err != nil {
				t.Error(err)
			}
		})
		assert.Zero(t, allocs, s.name)
	}
}

// A payload is read only within its length, whatever lies behind it.
func TestMeasureDoesNotReadPastThePayload(t *testing.T) {
	for _, s := range shapes {
		whole := s.payload(3)
		for end := range min(len(whole), 2000) {
			padded := append(whole[:end:end], 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01)
			got, gotErr := Measure(s.signal, padded[:end], recursionLimit)
			want, wantErr := Measure(s.signal, append(make([]byte, 0, end), whole[:end]...), recursionLimit)
			if got != want || (gotErr == nil) != (wantErr == nil) || errors.Is(gotErr, ErrTooDeep) {
				t.Fatalf("%s, %d bytes: %v %v, alone %v %v", s.name, end, got, gotErr, want, wantErr)
			}
		}
	}
}
