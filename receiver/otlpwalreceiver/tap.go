// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"
)

// tapHandle admits gRPC requests when their headers arrive: grpc-go buffers,
// reads and decompresses a message before any code of ours sees a byte of it.
// It runs under the connection's mutex, once per stream.
func (t *grpcTransport) tapHandle(ctx context.Context, info *tap.Info) (context.Context, error) {
	s, ours := t.methods[info.FullMethodName]
	if !ours {
		return ctx, nil // grpc-go answers UNIMPLEMENTED without reading a message
	}
	if ctx.Err() != nil {
		return ctx, nil // grpc-go drops it
	}
	slot, refused := t.front.admission.enter()
	if refused != nil {
		t.front.refusals.add(refused.Reason, s, transportGRPC)
		return ctx, refused
	}
	return newReceiving(ctx, slot), nil
}

// receiving is the context of one admitted gRPC stream. It holds the request's
// slot and ends the stream when its message takes too long to arrive. grpc-go
// waits for a message on the context that the tap returned and on no other, so
// this is where the body's deadline has to be.
type receiving struct {
	context.Context

	slot     *slot
	cancel   context.CancelFunc
	deadline *time.Timer
	expired  atomic.Bool
}

func newReceiving(stream context.Context, s *slot) *receiving {
	r := &receiving{slot: s}
	r.Context, r.cancel = context.WithCancel(stream)
	r.deadline = time.AfterFunc(s.admission.bodyTimeout, r.expire)
	return r
}

// expire also gives the slot back: should grpc-go ever drop a stream between
// the tap and its handling, this is where its slot ends.
func (r *receiving) expire() {
	r.expired.Store(true)
	r.cancel()
	r.leave()
}

// Err tells the body's deadline from an ended stream: grpc-go makes the status
// of it.
func (r *receiving) Err() error {
	err := r.Context.Err()
	if err != nil && r.expired.Load() {
		return context.DeadlineExceeded
	}
	return err
}

type receivingKey struct{}

// Value returns r itself for receivingKey.
func (r *receiving) Value(key any) any {
	if _, ok := key.(receivingKey); ok {
		return r
	}
	return r.Context.Value(key)
}

// received lifts the body's deadline; false means that it has passed.
func (r *receiving) received() bool { return r.deadline.Stop() }

// leave gives the slot back if the log has not taken it over.
func (r *receiving) leave() {
	r.deadline.Stop()
	r.slot.leave()
}

// streamEnds gives slots back: grpc-go reports the end of every stream that it
// handles, whether or not our handler was called.
type streamEnds struct{}

var _ stats.Handler = streamEnds{}

// HandleRPC waits for the end.
func (streamEnds) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.End); !ok {
		return
	}
	if r, ok := ctx.Value(receivingKey{}).(*receiving); ok {
		r.leave()
	}
}

// TagRPC does nothing.
func (streamEnds) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn does nothing.
func (streamEnds) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (streamEnds) HandleConn(context.Context, stats.ConnStats) {}
