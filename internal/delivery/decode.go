// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/otlpwire"
)

// consumeFunc hands decoded data to the pipeline.
type consumeFunc func(ctx context.Context) error

// takes reports whether a pipeline takes the kind.
func (c *Consumers) takes(k journal.Kind) bool {
	switch k {
	case journal.KindLogs:
		return c.Logs != nil
	case journal.KindTraces:
		return c.Traces != nil
	case journal.KindMetrics:
		return c.Metrics != nil
	case journal.KindProfiles:
		return c.Profiles != nil
	}
	return false
}

// decode merges the frames, all of one kind, in their order. It drops each
// frame as soon as it is decoded. The data belongs to whoever consumes it,
// so it is decoded anew for every attempt: a consumer may change it before it
// fails.
func (c *Consumers) decode(k journal.Kind, frames []journal.ReadFrame) (consumeFunc, error) {
	switch k {
	case journal.KindLogs:
		all, err := merge(frames, plogotlp.NewExportRequest, plogotlp.ExportRequest.UnmarshalProto,
			func(from, to plogotlp.ExportRequest) error {
				from.Logs().ResourceLogs().MoveAndAppendTo(to.Logs().ResourceLogs())
				return nil
			})
		return func(ctx context.Context) error { return c.Logs.ConsumeLogs(ctx, all.Logs()) }, err
	case journal.KindTraces:
		all, err := merge(frames, ptraceotlp.NewExportRequest, ptraceotlp.ExportRequest.UnmarshalProto,
			func(from, to ptraceotlp.ExportRequest) error {
				from.Traces().ResourceSpans().MoveAndAppendTo(to.Traces().ResourceSpans())
				return nil
			})
		return func(ctx context.Context) error { return c.Traces.ConsumeTraces(ctx, all.Traces()) }, err
	case journal.KindMetrics:
		all, err := merge(frames, pmetricotlp.NewExportRequest, pmetricotlp.ExportRequest.UnmarshalProto,
			func(from, to pmetricotlp.ExportRequest) error {
				from.Metrics().ResourceMetrics().MoveAndAppendTo(to.Metrics().ResourceMetrics())
				return nil
			})
		return func(ctx context.Context) error { return c.Metrics.ConsumeMetrics(ctx, all.Metrics()) }, err
	case journal.KindProfiles:
		all, err := merge(frames, pprofileotlp.NewExportRequest, pprofileotlp.ExportRequest.UnmarshalProto,
			func(from, to pprofileotlp.ExportRequest) error {
				return from.Profiles().MergeTo(to.Profiles()) // each has its own dictionary
			})
		return func(ctx context.Context) error { return c.Profiles.ConsumeProfiles(ctx, all.Profiles()) }, err
	}
	return nil, fmt.Errorf("frame of unknown kind %d", k)
}

func merge[R any](frames []journal.ReadFrame, empty func() R, unmarshal func(R, []byte) error, move func(from, to R) error) (R, error) {
	var all R
	for i := range frames {
		r, p := empty(), frames[i].Position
		if err := unmarshal(r, frames[i].Payload); err != nil {
			return all, fmt.Errorf("decode the frame at position %d: %w", p, err)
		}
		frames[i] = journal.ReadFrame{}
		if i == 0 {
			all = r
			continue
		}
		if err := move(r, all); err != nil {
			return all, fmt.Errorf("merge the frame at position %d: %w", p, err)
		}
	}
	return all, nil
}

// maxDecodeDepth is more than pdata decodes: whatever was acknowledged is
// measured, however a bound was changed since.
const maxDecodeDepth = 1 << 10

// estimate is how many bytes the decoded payload will retain. What can not be
// measured will not decode either; it is charged as received.
func estimate(k journal.Kind, payload []byte) uint64 {
	m, err := otlpwire.Measure(otlpwire.Signal(k), payload, maxDecodeDepth)
	if err != nil {
		return uint64(len(payload))
	}
	return m.Estimate
}

// cost is what holding f takes: as received and, in the end, decoded.
func (d *Delivery) cost(f *journal.ReadFrame) uint64 {
	return d.estimate(f.Kind, f.Payload) + uint64(len(f.Payload))
}

// withClient restores the client metadata that was kept with a frame: metadata
// only, for no address and no authentication outlives the connection.
func (d *Delivery) withClient(ctx context.Context, metadata []byte) (context.Context, error) {
	tenant, kept, err := journal.DecodeMetadata(metadata)
	if err != nil {
		return ctx, err
	}
	if tenant == "" && len(kept) == 0 {
		return ctx, nil
	}
	m := make(map[string][]string, len(kept)+1)
	for _, e := range kept {
		m[e.Key] = append(m[e.Key], e.Value)
	}
	if tenant != "" && d.cfg.TenantKey != "" {
		m[d.cfg.TenantKey] = []string{tenant}
	}
	return client.NewContext(ctx, client.Info{Metadata: client.NewMetadata(m)}), nil
}
