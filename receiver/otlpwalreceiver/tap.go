// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"sync/atomic"
	"time"

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
		if d, ok := ctx.Deadline(); ok && time.Until(d) > longDeadline {
			return context.WithValue(ctx, refusedKey{}, refused), nil
		}
		return ctx, refused
	}
	return newReceiving(ctx, slot), nil
}

// longDeadline is from where on a refusal is our handler's to answer, at once.
// grpc-go (1.85, http2Server.operateHeaders) makes the stream's context with a
// timer before it calls the tap and does not cancel it when the tap refuses:
// 300 bytes until the deadline, per refusal, and the client chooses both. A
// stream that came to a handler is cancelled. Stock clients wait for 10 s at
// most, and their refusals stay as cheap as they can be.
const longDeadline = 10 * time.Second

// refusedKey is where such a stream's context has the *refusal.Error.
type refusedKey struct{}

// receiving is the context of one admitted gRPC stream. It holds the request's
// slot and ends the stream when its message takes too long to arrive. grpc-go
// waits for a message on the context that the tap returned and on no other, so
// this is where the body's deadline has to be.
type receiving struct {
	context.Context

	slot     *slot
	cancel   context.CancelFunc
	deadline *time.Timer
	unwatch  func() bool // see handled
	expired  atomic.Bool
}

// newReceiving also watches for the stream's end, which gives the slot back and
// stops the timer, which holds the stream's headers: grpc-go may end it without
// calling our handler, as when it does not know the message's encoding. A stats handler would be told, too, but has grpc-go
// allocate 16 times per request.
func newReceiving(stream context.Context, s *slot) *receiving {
	r := &receiving{slot: s}
	r.Context, r.cancel = context.WithCancel(stream)
	r.deadline = time.AfterFunc(s.admission.bodyTimeout, r.expire)
	r.unwatch = context.AfterFunc(stream, r.leave)
	return r
}

func (r *receiving) expire() {
	r.expired.Store(true)
	r.cancel()
}

// handled says that our handler runs, which gives the slot back when it is done
// and not when the client gives up: false if the stream ended before.
func (r *receiving) handled() bool { return r.unwatch() }

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

// leave gives the slot back for the handler, if the log has not taken it over.
func (r *receiving) leave() {
	r.deadline.Stop()
	r.slot.leave()
}
