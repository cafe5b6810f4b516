// SPDX-License-Identifier: Apache-2.0

package otlpwire

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// signals are those of OTLP with what pdata, the oracle, makes of a request.
// decode returns the items and something that keeps the decoded request alive.
var signals = []struct {
	signal Signal
	name   string
	decode func([]byte) (items int, alive any, err error)
}{
	{Logs, "Logs", func(b []byte) (int, any, error) {
		r := plogotlp.NewExportRequest()
		if err := r.UnmarshalProto(b); err != nil {
			return 0, nil, err
		}
		return r.Logs().LogRecordCount(), r, nil
	}},
	{Traces, "Traces", func(b []byte) (int, any, error) {
		r := ptraceotlp.NewExportRequest()
		if err := r.UnmarshalProto(b); err != nil {
			return 0, nil, err
		}
		return r.Traces().SpanCount(), r, nil
	}},
	{Metrics, "Metrics", func(b []byte) (int, any, error) {
		r := pmetricotlp.NewExportRequest()
		if err := r.UnmarshalProto(b); err != nil {
			return 0, nil, err
		}
		return r.Metrics().DataPointCount(), r, nil
	}},
	{Profiles, "Profiles", func(b []byte) (int, any, error) {
		r := pprofileotlp.NewExportRequest()
		if err := r.UnmarshalProto(b); err != nil {
			return 0, nil, err
		}
		return r.Profiles().SampleCount(), r, nil
	}},
}

// disagree compares Measure with pdata on one request; the empty string is
// agreement.
func disagree(s Signal, payload []byte) string {
	items, _, want := signals[s-1].decode(payload)
	m, got := Measure(s, payload, recursionLimit)
	switch {
	case errors.Is(got, ErrTooDense) && want == nil:
		return "" // refused although it decodes; as it should
	case (got == nil) != (want == nil):
		return fmt.Sprintf("Measure says %v, pdata says %v", got, want)
	case got == nil && m.Items != items:
		return fmt.Sprintf("Measure counts %d items, pdata %d", m.Items, items)
	}
	return ""
}
