// SPDX-License-Identifier: Apache-2.0

// Package load makes requests and sends them without decoding or encoding
// them again, so that what is measured is the receiver and not its client.
package load // import "github.com/otelweir/weir/bench/internal/load"

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

// Logs is an export request of n log records as instrumented applications send
// them: 12 attributes and a body of 120 bytes, some 600 bytes each.
func Logs(n int) []byte {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	for i := range 8 {
		rl.Resource().Attributes().PutStr(fmt.Sprintf("service.resource.attribute_%d", i), fmt.Sprintf("value of attribute %d", i))
	}
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("github.com/example/shop/checkout")
	records := sl.LogRecords()
	records.EnsureCapacity(n)
	for i := range n {
		r := records.AppendEmpty()
		r.SetTimestamp(pcommon.Timestamp(1_700_000_000_000_000_000 + i))
		r.SetSeverityNumber(plog.SeverityNumberInfo)
		r.SetSeverityText("INFO")
		body := fmt.Sprintf("request %d to /cart was served: ", i)
		r.Body().SetStr(body + strings.Repeat("x", 120-len(body)))
		a := r.Attributes()
		a.EnsureCapacity(12)
		for k := range 12 {
			key := fmt.Sprintf("service.attribute_%d.name", k)
			if k%3 == 2 {
				a.PutInt(key, int64(i*7919+k))
			} else {
				a.PutStr(key, fmt.Sprintf("value-%d-of-attribute-%d", i, k))
			}
		}
	}
	b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		panic(err) // what pdata holds can be marshalled
	}
	return b
}

// LogsOfSize is a request of at most so many bytes, and little less, but of at
// least one record.
func LogsOfSize(size int) []byte {
	n := max(1, size/600)
	b := Logs(n)
	for len(b) > size && n > 1 || size-len(b) > 2*len(b)/n {
		n = max(1, n*size/len(b))
		if next := Logs(n); len(next) != len(b) {
			b = next
			continue
		}
		break
	}
	return b
}
