// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"

	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// NewFactory returns the factory of the otlp_wal receiver. Creating receivers
// touches no file, takes no lock and starts no goroutine: that is Start's.
func NewFactory() receiver.Factory {
	return xreceiver.NewFactory(
		metadata.Type,
		createDefaultConfig,
		xreceiver.WithLogs(createLogs, metadata.LogsStability),
		xreceiver.WithTraces(createTraces, metadata.TracesStability),
		xreceiver.WithMetrics(createMetrics, metadata.MetricsStability),
		xreceiver.WithProfiles(createProfiles, metadata.ProfilesStability),
	)
}

func createLogs(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
	i := instances.of(cfg.(*Config), set)
	i.receiver.next.Logs = next
	return i, nil
}

func createTraces(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
	i := instances.of(cfg.(*Config), set)
	i.receiver.next.Traces = next
	return i, nil
}

func createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	i := instances.of(cfg.(*Config), set)
	i.receiver.next.Metrics = next
	return i, nil
}

func createProfiles(_ context.Context, set receiver.Settings, cfg component.Config, next xconsumer.Profiles) (xreceiver.Profiles, error) {
	i := instances.of(cfg.(*Config), set)
	i.receiver.next.Profiles = next
	return i, nil
}
