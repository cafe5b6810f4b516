// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestPoolChargesCapacityWhileOut(t *testing.T) {
	b := New(20 << 10)
	p := NewBufferPool(b, mem.DefaultBufferPool())
	buf := p.Get(5000)
	assert.Len(t, *buf, 5000)
	assert.Equal(t, uint64(cap(*buf)), b.Held())
	assert.False(t, b.Full())

	more := p.Get(16 << 10) // never refuses
	assert.Equal(t, uint64(cap(*buf)+cap(*more)), b.Held())
	assert.True(t, b.Full())
	assert.False(t, b.TryAcquire(1), "what grpc-go holds counts against requests")

	*buf = (*buf)[:10] // a prefix, as the framer cuts padding off
	p.Put(buf)
	*more = (*more)[100:] // not a prefix: another capacity
	p.Put(more)
	assert.Zero(t, b.Held())
	p.Put(more)
	assert.Zero(t, b.Held(), "putting twice releases once")
}

func TestE01_PartsOfOtherMessagesDoNotRefuseAWholeOne(t *testing.T) {
	b := New(64 << 10)
	p := NewBufferPool(b, mem.DefaultBufferPool())
	for range 8 { // others are on their way
		defer p.Put(p.Get(16 << 10))
	}
	require.True(t, b.Full())
	whole := b.NewCharge()
	assert.False(t, whole.Grow(20<<10), "what arrives piece by piece waits")
	assert.True(t, whole.GrowReceived(20<<10))
	second := b.NewCharge()
	assert.True(t, second.GrowReceived(44<<10))
	third := b.NewCharge()
	assert.False(t, third.GrowReceived(1), "whole ones fill the budget")
	whole.Release()
	assert.True(t, third.GrowReceived(1))
	assert.False(t, third.GrowReceived(1<<63))
	second.Release()
	third.Release()
}

func TestPoolReleasesOnlyItsOwn(t *testing.T) {
	b := New(0)
	p := NewBufferPool(b, mem.NopBufferPool{})
	require.True(t, b.TryAcquire(1<<20))
	foreign := make([]byte, 1<<20)
	p.Put(&foreign)
	assert.Equal(t, uint64(1<<20), b.Held())

	small := p.Get(100) // mem.NewBuffer never returns one of these
	assert.Equal(t, uint64(1<<20), b.Held())
	p.Put(small)
	assert.Equal(t, uint64(1<<20), b.Held())
}

func TestPoolFollowsReferences(t *testing.T) {
	b := New(0)
	p := NewBufferPool(b, mem.DefaultBufferPool())
	whole := mem.Copy(make([]byte, 10_000), p)
	require.NotZero(t, b.Held())
	left, right := mem.SplitUnsafe(whole, 4000)
	right.Ref()
	left.Free()
	right.Free()
	require.NotZero(t, b.Held(), "one reference is left")
	right.Free()
	assert.Zero(t, b.Held())
}

func TestPoolReleasesWhatIsDropped(t *testing.T) {
	b := New(0)
	p := NewBufferPool(b, mem.DefaultBufferPool())
	kept := p.Get(32 << 10)
	for range 10 {
		p.Get(16 << 10)
	}
	collectUntil(t, b, uint64(cap(*kept)))
	p.Put(kept)
	assert.Zero(t, b.Held())
}

// collectUntil collects garbage until the budget holds want; cleanups run in
// their own goroutine, some time after the collection.
func collectUntil(t *testing.T, b *Budget, want uint64) {
	t.Helper()
	for range 10_000 {
		if b.Held() == want {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Fatalf("budget holds %d bytes, want %d", b.Held(), want)
}

// A server whose clients send too much, cancel with a body half read, or do as
// they should ends up holding nothing. grpc-go drops the unread buffers of the
// first two: with a plain count this budget would stay charged for ever.
func TestE01_GRPCServerHoldsNothingAtRest(t *testing.T) {
	b := New(0)
	decoding := heldCodec{CodecV2: encoding.GetCodecV2("proto"), budget: b, held: make(chan uint64, 8)}
	started := make(chan struct{})
	srv := grpc.NewServer(
		experimental.BufferPool(NewBufferPool(b, mem.DefaultBufferPool())),
		grpc.MaxRecvMsgSize(256<<10),
		grpc.ForceServerCodecV2(decoding),
	)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Bytes",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Send", Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return new(emptypb.Empty), dec(new(wrapperspb.BytesValue))
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Ignore", ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			close(started)
			<-s.Context().Done()
			return s.Context().Err()
		}}},
	}, nil)
	lis, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	send := func(n int) error {
		return conn.Invoke(ctx, "/test.Bytes/Send", &wrapperspb.BytesValue{Value: make([]byte, n)}, new(emptypb.Empty))
	}
	require.NoError(t, send(200<<10))
	require.GreaterOrEqual(t, <-decoding.held, uint64(200<<10), "the message being decoded is charged")
	assert.Equal(t, codes.ResourceExhausted, status.Code(send(1<<20)))

	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/test.Bytes/Ignore")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&wrapperspb.BytesValue{Value: make([]byte, 40<<10)}))
	<-started
	for b.Held() < 40<<10 {
		runtime.Gosched()
	}
	cancel()
	require.ErrorContains(t, stream.RecvMsg(new(emptypb.Empty)), "canceled")

	require.NoError(t, conn.Close())
	srv.Stop()
	require.NoError(t, ignoreClosed(<-served))
	collectUntil(t, b, 0)
}

// heldCodec says what the budget held while a message was being decoded.
type heldCodec struct {
	encoding.CodecV2
	budget *Budget
	held   chan uint64
}

func (c heldCodec) Unmarshal(data mem.BufferSlice, v any) error {
	c.held <- c.budget.Held()
	return c.CodecV2.Unmarshal(data, v)
}

func ignoreClosed(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

func BenchmarkPool(b *testing.B) {
	for _, arm := range []struct {
		name string
		pool mem.BufferPool
	}{
		{"base", mem.DefaultBufferPool()},
		{"counting", NewBufferPool(New(0), mem.DefaultBufferPool())},
	} {
		b.Run(arm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				arm.pool.Put(arm.pool.Get(16 << 10))
			}
		})
	}
}
