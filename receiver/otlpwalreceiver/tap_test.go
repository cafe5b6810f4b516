// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
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

// What the tap refuses leaves nothing behind, however long its client would
// have waited.
func TestE01_RefusedStreamsEnd(t *testing.T) {
	for _, timeout := range []time.Duration{0, 5 * time.Second, time.Hour} {
		t.Run(timeout.String(), func(t *testing.T) {
			f, err := newFront(testConfig(func(c *Config) { c.Admission.MaxRequests = 1 }), &fakeLog{}, receivertest.NewNopSettings(metadata.Type))
			require.NoError(t, err)
			held, refused := f.admission.enter()
			require.Nil(t, refused)
			transport := newGRPCTransport(f, []signal{otlpwire.Logs})
			streams := make(chan context.Context, 1)
			server := grpc.NewServer(grpc.ForceServerCodecV2(newRawCodec()), grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
				streams <- ctx
				return transport.tapHandle(ctx, info)
			}))
			transport.register(server)
			listener, err := net.Listen("tcp", "localhost:0")
			require.NoError(t, err)
			var serving sync.WaitGroup
			serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
			defer serving.Wait()
			defer server.Stop()
			conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer conn.Close()
			r := &rig{t: t, conn: conn}

			ctx := t.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			err = r.export(ctx, otlpwire.Logs, requestOf(t, otlpwire.Logs, 1))
			require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
			require.ErrorContains(t, err, "admission.max_requests")
			assert.Len(t, status.Convert(err).Details(), 2, "the reason and the delay")
			assert.EqualValues(t, 1, f.refusals.count(refusal.InFlightRequests, otlpwire.Logs, transportGRPC))
			if timeout == time.Hour {
				select {
				case <-(<-streams).Done():
				case <-time.After(waitFor):
					assert.Fail(t, "the stream's context and its timer stay")
				}
			}
			held.leave()
			require.EqualValues(t, 0, f.admission.requests.Load())
		})
	}
}

// A stream that grpc-go ends by itself leaves no timer behind, which would keep
// its headers until the body's deadline.
func TestE01_StreamsThatEndWithoutAHandlerLeaveNothing(t *testing.T) {
	const streams = 50
	f, err := newFront(testConfig(func(c *Config) { c.Admission.BodyTimeout = 10 * time.Minute }), &fakeLog{}, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	transport := newGRPCTransport(f, []signal{otlpwire.Logs})
	admitted := make(chan weak.Pointer[receiving], streams)
	server := grpc.NewServer(grpc.ForceServerCodecV2(newRawCodec()), grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
		ctx, err := transport.tapHandle(ctx, info)
		admitted <- weak.Make(ctx.Value(receivingKey{}).(*receiving))
		return ctx, err
	}))
	transport.register(server)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
	defer serving.Wait()
	defer server.Stop()

	c := dialGRPC(t, &rig{servers: servers{grpcAddr: listener.Addr()}})
	var large []string
	for i := range 12 {
		large = append(large, "x-"+strconv.Itoa(i), strings.Repeat("h", 8<<10))
	}
	for i := range streams {
		id := uint32(2*i + 1)
		c.headers(id, "/"+grpcServices[otlpwire.Logs]+"/"+exportMethod, append(large, "grpc-encoding", "rot13")...)
		assert.Equal(t, codes.Unimplemented, c.status(id))
	}
	c.conn.Close()
	close(admitted)
	for r := range admitted {
		require.Eventually(t, func() bool {
			runtime.GC()
			return r.Value() == nil
		}, waitFor, tick, "a stream that has ended is still held")
	}
	assert.Zero(t, f.admission.requests.Load())
}
