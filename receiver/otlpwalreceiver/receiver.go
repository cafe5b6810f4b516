// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/receiver"
)

type walReceiver struct {
	next struct {
		Logs     consumer.Logs
		Traces   consumer.Traces
		Metrics  consumer.Metrics
		Profiles xconsumer.Profiles
	}
}

func newReceiver(cfg *Config, set receiver.Settings) *walReceiver { return &walReceiver{} }

func (r *walReceiver) start(ctx context.Context, host component.Host) error { return nil }
func (r *walReceiver) shutdown(ctx context.Context) error                   { return nil }
