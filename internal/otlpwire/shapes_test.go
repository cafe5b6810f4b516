// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"
)

// shape is a request of a certain form and size.
type shape struct {
	name      string
	signal    Signal
	realistic bool // what instrumented applications send
	payload   func(n int) []byte
	n         int // records, points or samples
}

var shapes = []shape{
	{"logs, 12 attributes, 120 B body", Logs, true, func(n int) []byte { return logs(n, 12, 120, 0) }, 1000},
	{"logs, 5 attributes, 2 KiB body", Logs, true, func(n int) []byte { return logs(n, 5, 2048, 0) }, 300},
	{"one log of 4 MiB", Logs, false, func(n int) []byte { return logs(n, 0, 4<<20, 0) }, 1},
	{"logs, 12 tiny integer attributes", Logs, false, tinyLogs, 500},
	{"logs, 9 tiny integer attributes", Logs, false, func(n int) []byte { return logs(n, 0, 0, 9) }, 500},
	{"logs, key-value lists 30 deep", Logs, false, nestedLogs, 200},
	{"traces, 12 attributes, 1 event", Traces, true, traces, 500},
	{"sums, 12 attributes, 10 points per metric", Metrics, true, func(n int) []byte { return sums(n, 12, 10) }, 1000},
	{"sums, 4 attributes, 1 point per metric", Metrics, true, func(n int) []byte { return sums(n, 4, 1) }, 1000},
	{"gauges, points of time and value alone", Metrics, false, func(n int) []byte { return sums(n, 0, n) }, 5000},
	{"histograms, 15 buckets, 6 attributes", Metrics, true, func(n int) []byte { return histograms(n, 6, 15, 0) }, 500},
	{"histograms, 15 buckets, 4 exemplars", Metrics, true, func(n int) []byte { return histograms(n, 6, 15, 4) }, 500},
	{"exponential histograms, 160 buckets, 6 attributes", Metrics, true, func(n int) []byte { return expHistograms(n, 6, 160) }, 300},
	{"exponential histograms, 160 buckets", Metrics, false, func(n int) []byte { return expHistograms(n, 0, 160) }, 300},
	{"summaries, 5 quantiles, 3 attributes", Metrics, true, summaries, 500},
	{"profiles, stacks of 30", Profiles, true, func(n int) []byte { return profiles(n, 30) }, 500},
	{"profiles, stacks of 1", Profiles, false, func(n int) []byte { return profiles(n, 1) }, 3000},

	{"empty resource logs", Logs, false, empties(1), 4000},
	{"empty log records", Logs, false, empties(1, 2, 2), 4000},
	{"empty log attributes", Logs, false, empties(1, 2, 2, 6), 4000},
	{"empty array elements", Logs, false, empties(1, 2, 2, 5, 5, 1), 4000},
	{"empty entity references", Logs, false, empties(1, 1, 3), 4000},
	{"empty spans", Traces, false, empties(1, 2, 2), 4000},
	{"empty span events", Traces, false, empties(1, 2, 2, 11), 4000},
	{"empty span links", Traces, false, empties(1, 2, 2, 13), 4000},
	{"empty metrics", Metrics, false, empties(1, 2, 2), 4000},
	{"empty number points", Metrics, false, empties(1, 2, 2, 5, 1), 4000},
	{"empty histogram points", Metrics, false, empties(1, 2, 2, 9, 1), 4000},
	{"empty exponential histogram points", Metrics, false, empties(1, 2, 2, 10, 1), 4000},
	{"empty summary points", Metrics, false, empties(1, 2, 2, 11, 1), 4000},
	{"empty quantiles", Metrics, false, empties(1, 2, 2, 11, 1, 6), 4000},
	{"empty exemplars", Metrics, false, empties(1, 2, 2, 7, 1, 5), 4000},
	{"empty profiles", Profiles, false, empties(1, 2, 2), 4000},
	{"empty samples", Profiles, false, empties(1, 2, 2, 2), 4000},
	{"empty locations", Profiles, false, empties(2, 2), 4000},
	{"empty strings", Profiles, false, empties(2, 5), 4000},
	{"empty attributes of the dictionary", Profiles, false, empties(2, 6), 4000},
}

// empties makes n empty messages, inside one another by the field numbers
// given.
func empties(path ...protowire.Number) func(n int) []byte {
	return func(n int) []byte {
		var b []byte
		for range n {
			b = wrap(b, path[len(path)-1], nil)
		}
		for i := len(path) - 2; i >= 0; i-- {
			b = wrap(nil, path[i], b)
		}
		return b
	}
}

// wrap appends a length-delimited field.
func wrap(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// attributes fills m in with n attributes as semantic conventions name them:
// mostly strings, some integers, a few of the other types.
func attributes(m pcommon.Map, n, seed int) {
	m.EnsureCapacity(n)
	for i := range n {
		key := fmt.Sprintf("service.attribute_%d.name", i)
		switch i % 6 {
		case 1:
			m.PutInt(key, int64(seed)*7919)
		case 4:
			m.PutBool(key, seed%2 == 0)
		case 5:
			m.PutDouble(key, float64(seed)/3)
		default:
			m.PutStr(key, fmt.Sprintf("value-%d-of-attribute-%d", seed, i))
		}
	}
}

func logs(n, attrs, body, tiny int) []byte {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	attributes(rl.Resource().Attributes(), 8, 0)
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("github.com/example/shop/checkout")
	for i := range n {
		lr := sl.LogRecords().AppendEmpty()
		lr.SetTimestamp(pcommon.Timestamp(1_700_000_000_000_000_000 + i))
		lr.SetObservedTimestamp(lr.Timestamp() + 1000)
		lr.SetSeverityNumber(plog.SeverityNumberInfo)
		lr.SetSeverityText("INFO")
		lr.SetTraceID([16]byte{1, 2, byte(i)})
		lr.SetSpanID([8]byte{3, byte(i)})
		if body > 0 {
			lr.Body().SetStr(strings.Repeat("x", body))
		}
		attributes(lr.Attributes(), attrs, i)
		for j := range tiny {
			lr.Attributes().PutInt(string(rune('a'+j)), int64(j))
		}
	}
	return must((&plog.ProtoMarshaler{}).MarshalLogs(ld))
}

func tinyLogs(n int) []byte { return logs(n, 0, 0, 12) }

func nestedLogs(n int) []byte {
	ld := plog.NewLogs()
	sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	for range n {
		m := sl.LogRecords().AppendEmpty().Body().SetEmptyMap()
		for range 29 {
			m.PutInt("n", 1)
			m = m.PutEmptyMap("child")
		}
	}
	return must((&plog.ProtoMarshaler{}).MarshalLogs(ld))
}

func traces(n int) []byte {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	attributes(rs.Resource().Attributes(), 8, 0)
	ss := rs.ScopeSpans().AppendEmpty()
	for i := range n {
		sp := ss.Spans().AppendEmpty()
		sp.SetTraceID([16]byte{1, 2, byte(i)})
		sp.SetSpanID([8]byte{3, byte(i)})
		sp.SetParentSpanID([8]byte{4, byte(i)})
		sp.SetName("HTTP GET /api/v1/orders")
		sp.SetKind(ptrace.SpanKindServer)
		sp.SetStartTimestamp(pcommon.Timestamp(1_700_000_000_000_000_000 + i))
		sp.SetEndTimestamp(sp.StartTimestamp() + 1000)
		sp.SetFlags(1)
		sp.Status().SetCode(ptrace.StatusCodeOk)
		attributes(sp.Attributes(), 12, i)
		ev := sp.Events().AppendEmpty()
		ev.SetName("exception")
		ev.SetTimestamp(sp.StartTimestamp())
		attributes(ev.Attributes(), 3, i)
	}
	return must((&ptrace.ProtoMarshaler{}).MarshalTraces(td))
}

// metrics makes n points, in metrics that point fills in and that have each
// points of them.
func metrics(n, each int, fill func(m pmetric.Metric) (point func(i int))) []byte {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	attributes(rm.Resource().Attributes(), 8, 0)
	sm := rm.ScopeMetrics().AppendEmpty()
	var point func(int)
	for i := range n {
		if i%each == 0 {
			m := sm.Metrics().AppendEmpty()
			m.SetName(fmt.Sprintf("http.server.request.count_%d", i))
			m.SetUnit("{request}")
			point = fill(m)
		}
		point(i)
	}
	return must((&pmetric.ProtoMarshaler{}).MarshalMetrics(md))
}

const start, now = pcommon.Timestamp(1_700_000_000_000_000_000), pcommon.Timestamp(1_700_000_010_000_000_000)

func sums(n, attrs, each int) []byte {
	return metrics(n, each, func(m pmetric.Metric) func(int) {
		s := m.SetEmptySum()
		return func(i int) {
			p := s.DataPoints().AppendEmpty()
			p.SetTimestamp(now)
			p.SetIntValue(int64(i))
			if attrs > 0 {
				p.SetStartTimestamp(start)
				attributes(p.Attributes(), attrs, i)
			}
		}
	})
}

func exemplars(s pmetric.ExemplarSlice, n int) {
	for i := range n {
		e := s.AppendEmpty()
		e.SetTimestamp(now)
		e.SetDoubleValue(float64(i))
		e.SetTraceID([16]byte{1, byte(i)})
		e.SetSpanID([8]byte{1, byte(i)})
	}
}

func histograms(n, attrs, buckets, exs int) []byte {
	return metrics(n, 10, func(m pmetric.Metric) func(int) {
		h := m.SetEmptyHistogram()
		return func(i int) {
			p := h.DataPoints().AppendEmpty()
			p.SetStartTimestamp(start)
			p.SetTimestamp(now)
			p.SetCount(uint64(i))
			p.SetSum(float64(i))
			for j := range buckets {
				p.BucketCounts().Append(uint64(j))
				p.ExplicitBounds().Append(float64(j))
			}
			attributes(p.Attributes(), attrs, i)
			exemplars(p.Exemplars(), exs)
		}
	})
}

func expHistograms(n, attrs, buckets int) []byte {
	return metrics(n, 10, func(m pmetric.Metric) func(int) {
		h := m.SetEmptyExponentialHistogram()
		return func(i int) {
			p := h.DataPoints().AppendEmpty()
			p.SetStartTimestamp(start)
			p.SetTimestamp(now)
			p.SetCount(uint64(i))
			p.SetScale(3)
			for j := range buckets {
				p.Positive().BucketCounts().Append(uint64(j * i % 200))
			}
			attributes(p.Attributes(), attrs, i)
		}
	})
}

func summaries(n int) []byte {
	return metrics(n, 10, func(m pmetric.Metric) func(int) {
		s := m.SetEmptySummary()
		return func(i int) {
			p := s.DataPoints().AppendEmpty()
			p.SetTimestamp(now)
			p.SetCount(uint64(i))
			for j := range 5 {
				q := p.QuantileValues().AppendEmpty()
				q.SetQuantile(float64(j) / 5)
				q.SetValue(float64(i * j))
			}
			attributes(p.Attributes(), 3, i)
		}
	})
}

// profiles makes n samples as a sampling profiler of a whole host sends them:
// each with its own stack of frames shared with others, a value, timestamps and
// two attributes.
func profiles(n, stack int) []byte {
	pd := pprofile.NewProfiles()
	d := pd.Dictionary()
	d.StringTable().Append("")
	d.LinkTable().AppendEmpty()
	rp := pd.ResourceProfiles().AppendEmpty()
	attributes(rp.Resource().Attributes(), 8, 0)
	p := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	p.SetTime(now)
	p.SetDurationNano(1e9)
	for i := range n {
		d.StringTable().Append(fmt.Sprintf("github.com/example/shop/checkout.(*Cart).Method%d", i))
		m := d.MappingTable().AppendEmpty()
		m.SetMemoryStart(0x400000)
		m.SetMemoryLimit(0x900000)
		m.AttributeIndices().Append(1)
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(1)
		a.Value().SetStr(fmt.Sprintf("thread-%d", i))
		f := d.FunctionTable().AppendEmpty()
		f.SetNameStrindex(int32(i + 1))
		f.SetFilenameStrindex(1)
		f.SetStartLine(int64(i))
		l := d.LocationTable().AppendEmpty()
		l.SetMappingIndex(int32(i))
		l.SetAddress(uint64(0x400000 + i*16))
		l.AttributeIndices().Append(int32(i))
		line := l.Lines().AppendEmpty()
		line.SetFunctionIndex(int32(i))
		line.SetLine(int64(i))
		st := d.StackTable().AppendEmpty()
		for j := range stack {
			st.LocationIndices().Append(int32((i + j) % n))
		}
		s := p.Samples().AppendEmpty()
		s.SetStackIndex(int32(i))
		s.Values().Append(int64(i))
		s.TimestampsUnixNano().Append(uint64(now) + uint64(i))
		s.AttributeIndices().Append(int32(i), 1)
	}
	return must((&pprofile.ProtoMarshaler{}).MarshalProfiles(pd))
}
