// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// Signal is one of the four kinds of OTLP data.
type Signal uint8

// The signals.
const (
	Logs Signal = iota
	Traces
	Metrics
	Profiles
)

func (s Signal) String() string { return [...]string{"logs", "traces", "metrics", "profiles"}[s] }

// ID names one item (log record, span, data point, sample) for ever: what an
// item contains follows from its id and its signal, so that what arrives can
// be compared with what was sent without keeping it.
type ID uint64

// Batch is one export request: N items of one signal, with consecutive ids.
type Batch struct {
	Signal Signal
	First  ID
	N      int
}

// idKey is the attribute that carries an item's id.
const idKey = "e2e.id"

// text is what an item says: 20 bytes to some 2 KiB, most of it short.
func (id ID) text() string {
	h := uint64(id) * 0x9E3779B97F4A7C15
	n := int(h >> 61 << 8) // 0..1792
	if h>>32&3 != 0 {
		n = int(h >> 58) // 0..63
	}
	return fmt.Sprintf("item %016x %s", uint64(id), strings.Repeat("x", n))
}

// timestamp is in 2023 and differs from item to item.
func (id ID) timestamp() pcommon.Timestamp { return pcommon.Timestamp(1_700_000_000_000_000_000 + id) }

func (b Batch) resource(r pcommon.Resource) {
	r.Attributes().PutStr("service.name", "e2e")
	r.Attributes().PutInt("e2e.first", int64(b.First))
}

// Logs is the batch as pdata.
func (b Batch) Logs() plog.Logs {
	d := plog.NewLogs()
	rl := d.ResourceLogs().AppendEmpty()
	b.resource(rl.Resource())
	records := rl.ScopeLogs().AppendEmpty().LogRecords()
	for id := range b.ids {
		r := records.AppendEmpty()
		r.SetTimestamp(id.timestamp())
		r.SetSeverityNumber(plog.SeverityNumberInfo)
		r.Body().SetStr(id.text())
		r.Attributes().PutInt(idKey, int64(id))
	}
	return d
}

// Traces is the batch as pdata.
func (b Batch) Traces() ptrace.Traces {
	d := ptrace.NewTraces()
	rs := d.ResourceSpans().AppendEmpty()
	b.resource(rs.Resource())
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for id := range b.ids {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1, 2, 3})
		s.SetSpanID(pcommon.SpanID{4, 5, byte(id)})
		s.SetName(id.text())
		s.SetStartTimestamp(id.timestamp())
		s.SetEndTimestamp(id.timestamp() + 1)
		s.Attributes().PutInt(idKey, int64(id))
	}
	return d
}

// Metrics is the batch as pdata: one gauge with N points.
func (b Batch) Metrics() pmetric.Metrics {
	d := pmetric.NewMetrics()
	rm := d.ResourceMetrics().AppendEmpty()
	b.resource(rm.Resource())
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("e2e.points")
	points := m.SetEmptyGauge().DataPoints()
	for id := range b.ids {
		p := points.AppendEmpty()
		p.SetTimestamp(id.timestamp())
		p.SetIntValue(int64(id))
		p.Attributes().PutInt(idKey, int64(id))
		p.Attributes().PutStr("text", id.text())
	}
	return d
}

// Profiles is the batch as pdata: one profile with N samples whose only value
// is the id.
func (b Batch) Profiles() pprofile.Profiles {
	d := pprofile.NewProfiles()
	d.Dictionary().StringTable().Append("", "e2e")
	d.Dictionary().StackTable().AppendEmpty()
	rp := d.ResourceProfiles().AppendEmpty()
	b.resource(rp.Resource())
	p := rp.ScopeProfiles().AppendEmpty().Profiles().AppendEmpty()
	p.SetProfileID(pprofile.ProfileID{byte(b.First), 1})
	p.SampleType().SetTypeStrindex(1)
	for id := range b.ids {
		s := p.Samples().AppendEmpty()
		s.Values().Append(int64(id))
		s.TimestampsUnixNano().Append(uint64(id.timestamp()))
	}
	return d
}

func (b Batch) ids(yield func(ID) bool) {
	for i := range b.N {
		if !yield(b.First + ID(i)) {
			return
		}
	}
}

// request is the part of the four ExportRequest types that encoding needs.
type request interface {
	MarshalProto() ([]byte, error)
	MarshalJSON() ([]byte, error)
}

func (b Batch) request() request {
	switch b.Signal {
	case Logs:
		return plogotlp.NewExportRequestFromLogs(b.Logs())
	case Traces:
		return ptraceotlp.NewExportRequestFromTraces(b.Traces())
	case Metrics:
		return pmetricotlp.NewExportRequestFromMetrics(b.Metrics())
	default:
		return pprofileotlp.NewExportRequestFromProfiles(b.Profiles())
	}
}
