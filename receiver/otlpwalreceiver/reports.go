// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receiverhelper"

	"github.com/otelweir/weir/internal/otlpwire"
)

// reports feeds the Collector's own receiver metrics. Accepted is counted when
// the data is durable; what is refused or undecided counts as an error.
type reports struct {
	byTransport [transports]*receiverhelper.ObsReport
}

func newReports(set receiver.Settings) (*reports, error) {
	r := &reports{}
	for t := range transports {
		report, err := receiverhelper.NewObsReport(receiverhelper.ObsReportSettings{
			ReceiverID:             set.ID,
			Transport:              transportNames[t],
			ReceiverCreateSettings: set,
		})
		if err != nil {
			return nil, fmt.Errorf("telemetry of transport %s: %w", transportNames[t], err)
		}
		r.byTransport[t] = report
	}
	return r, nil
}

func (r *reports) start(ctx context.Context, req *request) context.Context {
	report := r.byTransport[req.transport]
	switch req.signal {
	case otlpwire.Logs:
		return report.StartLogsOp(ctx)
	case otlpwire.Traces:
		return report.StartTracesOp(ctx)
	case otlpwire.Metrics:
		return report.StartMetricsOp(ctx)
	default:
		return report.StartProfilesOp(ctx)
	}
}

func (r *reports) end(ctx context.Context, req *request, items int, err error) {
	report := r.byTransport[req.transport]
	switch req.signal {
	case otlpwire.Logs:
		report.EndLogsOp(ctx, req.format, items, err)
	case otlpwire.Traces:
		report.EndTracesOp(ctx, req.format, items, err)
	case otlpwire.Metrics:
		report.EndMetricsOp(ctx, req.format, items, err)
	default:
		report.EndProfilesOp(ctx, req.format, items, err)
	}
}
