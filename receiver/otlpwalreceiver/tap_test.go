// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// A client that resets its streams must not have more handlers running than
// there are slots; a stream that ends without a handler must not keep its slot.
func TestE01_SlotsOfStreamsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := newFront(testConfig(nil), &fakeLog{}, receivertest.NewNopSettings(metadata.Type))
		require.NoError(t, err)
		transport := newGRPCTransport(f, []signal{otlpwire.Logs})
		method := "/" + grpcServices[otlpwire.Logs] + "/" + exportMethod
		handler := transport.service(method, otlpwire.Logs).Methods[0].Handler
		open := func() (ctx context.Context, end context.CancelFunc) {
			stream, end := context.WithCancel(t.Context())
			ctx, err := transport.tapHandle(stream, &tap.Info{FullMethodName: method})
			require.NoError(t, err)
			require.EqualValues(t, 1, f.admission.requests.Load())
			return ctx, end
		}

		ctx, end := open()
		_, err = handler(nil, ctx, nil, func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			end()
			synctest.Wait()
			assert.EqualValues(t, 1, f.admission.requests.Load(), "the handler runs")
			return nil, context.Canceled
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, f.admission.requests.Load(), "the handler is done")

		ctx, end = open()
		end()
		synctest.Wait()
		assert.Zero(t, f.admission.requests.Load(), "the stream has ended")
		_, err = handler(nil, ctx, nil, func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			assert.Fail(t, "it has no slot any more")
			return nil, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, f.admission.requests.Load())
	})
}
