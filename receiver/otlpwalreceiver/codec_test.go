// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/otelweir/weir/internal/membudget"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// What there is no memory for is not copied; what is, is charged by then.
func TestE01_CopiesAreChargedBeforeTheyAreMade(t *testing.T) {
	message := mem.BufferSlice{mem.SliceBuffer(make([]byte, 5000)), mem.SliceBuffer(make([]byte, 5000))}
	budget := membudget.New(32 << 10)
	require.True(t, budget.TryAcquire(20<<10))
	codec := newRawCodec()

	refused := &rawMessage{charge: budget.NewCharge()}
	require.NoError(t, codec.Unmarshal(message, refused), "grpc-go would answer it")
	assert.Nil(t, refused.buffer)
	assert.EqualValues(t, 16<<10, refused.short)
	assert.EqualValues(t, 20<<10, budget.Held())
	require.ErrorIs(t, codec.Unmarshal(message, refused), errTwoMessages)
	refused.release()

	budget.Release(10 << 10)
	taken := &rawMessage{charge: budget.NewCharge()}
	require.NoError(t, codec.Unmarshal(message, taken))
	assert.Len(t, *taken.buffer, 10_000)
	assert.Equal(t, uint64(10<<10+cap(*taken.buffer)), budget.Held())
	require.ErrorIs(t, codec.Unmarshal(message, taken), errTwoMessages)
	taken.release()
	assert.EqualValues(t, 10<<10, budget.Held())
}

// However the receiving of a message ends, what it was charged with is given
// back, once: twice would panic.
func TestE01_MessagesThatAreNotTakenHoldNothing(t *testing.T) {
	payload, _ := sample(t, otlpwire.Logs)
	message := mem.BufferSlice{mem.SliceBuffer(payload)}
	codec := newRawCodec()
	for name, tt := range map[string]struct {
		held    uint64
		receive func(*receiving, any) error
		reason  refusal.Reason // refusal.Count: none of ours
		code    codes.Code
	}{
		"no message": {receive: func(*receiving, any) error { return status.Error(codes.Internal, "none") }, reason: refusal.Count, code: codes.Internal},
		"two messages": {receive: func(_ *receiving, m any) error {
			assert.NoError(t, codec.Unmarshal(message, m))
			return status.Error(codes.Internal, codec.Unmarshal(message, m).Error())
		}, reason: refusal.Count, code: codes.Internal},
		"too late": {receive: func(in *receiving, m any) error {
			in.deadline.Stop()
			return codec.Unmarshal(message, m)
		}, reason: refusal.BodyTimeout, code: codes.DeadlineExceeded},
		"no memory": {held: uint64(256*MiB) - 1, receive: func(_ *receiving, m any) error { return codec.Unmarshal(message, m) }, reason: refusal.InFlightBytes, code: codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newFront(testConfig(nil), &fakeLog{}, receivertest.NewNopSettings(metadata.Type))
			require.NoError(t, err)
			require.True(t, f.admission.budget.TryAcquire(tt.held))
			transport := newGRPCTransport(f, []signal{otlpwire.Logs})
			stream, end := context.WithCancel(t.Context())
			defer end()
			ctx, err := transport.tapHandle(stream, &tap.Info{FullMethodName: "/" + grpcServices[otlpwire.Logs] + "/" + exportMethod})
			require.NoError(t, err)
			in := ctx.Value(receivingKey{}).(*receiving)
			c := &grpcCall{request: request{signal: otlpwire.Logs, transport: transportGRPC, format: formatProtobuf}}
			_, err = transport.export(ctx, c, func(m any) error { return tt.receive(in, m) })
			assert.Equal(t, tt.code, status.Code(err), "%v", err)
			if tt.reason != refusal.Count {
				assert.EqualValues(t, 1, f.refusals.count(tt.reason, otlpwire.Logs, transportGRPC))
			}
			in.leave()
			assert.Equal(t, tt.held, f.admission.budget.Held())
			assert.Zero(t, f.admission.requests.Load())
		})
	}
}
