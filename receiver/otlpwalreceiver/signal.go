// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/otlpwire"
)

// signal is a frame kind that can be received. The log and the walk over the
// wire number them alike.
type signal = otlpwire.Signal

// signals are all of them, in the order of their numbers.
var signals = [...]signal{otlpwire.Logs, otlpwire.Traces, otlpwire.Metrics, otlpwire.Profiles}

func kindOf(s signal) journal.Kind { return journal.Kind(s) }

// signalNames are the values of otelcol.signal, by signal.
var signalNames = [...]string{
	otlpwire.Logs:     "logs",
	otlpwire.Traces:   "traces",
	otlpwire.Metrics:  "metrics",
	otlpwire.Profiles: "profiles",
}

// transport is a value of the attribute of that name.
type transport uint8

const (
	transportGRPC transport = iota
	transportHTTP
	transports // how many there are
)

var transportNames = [transports]string{"grpc", "http"}

// exportRequest is what the request types of pdata have in common.
type exportRequest interface {
	UnmarshalJSON([]byte) error
	MarshalProto() ([]byte, error)
}

// newExportRequest returns an empty request of s.
func newExportRequest(s signal) exportRequest {
	switch s {
	case otlpwire.Logs:
		return plogotlp.NewExportRequest()
	case otlpwire.Traces:
		return ptraceotlp.NewExportRequest()
	case otlpwire.Metrics:
		return pmetricotlp.NewExportRequest()
	default:
		return pprofileotlp.NewExportRequest()
	}
}
