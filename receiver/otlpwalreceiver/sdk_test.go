// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/otelweir/weir/internal/refusal"
)

// The SDK's exporters resend what was refused for a while, after the advised
// delay, and report what was refused for good.
func TestB02_GoSDKUnderstandsTheRefusals(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	records := sdkRecords(t)

	grpcExporter, err := otlploggrpc.New(t.Context(), otlploggrpc.WithInsecure(), otlploggrpc.WithEndpoint(r.servers.grpcAddr.String()),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig{Enabled: true, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxElapsedTime: time.Minute}))
	require.NoError(t, err)
	httpExporter, err := otlploghttp.New(t.Context(), otlploghttp.WithInsecure(), otlploghttp.WithEndpoint(r.servers.httpAddr.String()),
		otlploghttp.WithRetry(otlploghttp.RetryConfig{Enabled: true, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, MaxElapsedTime: time.Minute}))
	require.NoError(t, err)
	for name, e := range map[string]sdklog.Exporter{"grpc": grpcExporter, "http": httpExporter} {
		t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
		for _, row := range wireRows {
			if row.delay > 0 && row.reason != refusal.BackpressureSegments && row.reason != refusal.InFlightBytes {
				continue // the same forms; each costs a second
			}
			t.Run(name+" "+row.errorType, func(t *testing.T) {
				var mu sync.Mutex
				var refused time.Time
				var waited time.Duration
				log.set(func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if !refused.IsZero() && !row.permanent {
						waited = time.Since(refused)
						return nil
					}
					refused = time.Now()
					return &refusal.Error{Reason: row.reason, Text: "the reason in words", RetryAfter: row.delay}
				})
				err := e.Export(t.Context(), records)
				if row.permanent {
					assert.ErrorContains(t, err, "the reason in words")
					assert.Len(t, log.take(), 1, "not sent again")
					return
				}
				assert.NoError(t, err)
				assert.Len(t, log.take(), 2, "sent again")
				if row.advised != "" {
					advised, err := time.ParseDuration(row.advised + "s")
					require.NoError(t, err)
					assert.GreaterOrEqual(t, waited, advised-100*time.Millisecond)
				}
			})
		}
	}
}

// keeper keeps the records of a logger.
type keeper struct{ records []sdklog.Record }

func (k *keeper) OnEmit(_ context.Context, r *sdklog.Record) error {
	k.records = append(k.records, r.Clone())
	return nil
}

func (k *keeper) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (k *keeper) Shutdown(context.Context) error                         { return nil }
func (k *keeper) ForceFlush(context.Context) error                       { return nil }

func sdkRecords(t *testing.T) []sdklog.Record {
	k := &keeper{}
	p := sdklog.NewLoggerProvider(sdklog.WithProcessor(k))
	var r otellog.Record
	r.SetSeverityText("INFO")
	p.Logger("test").Emit(t.Context(), r)
	require.NoError(t, p.Shutdown(t.Context()))
	require.Len(t, k.records, 1)
	return k.records
}
