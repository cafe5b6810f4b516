// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/internal/membudget"
	"github.com/otelweir/weir/internal/refusal"
)

// shortDelay is the delay advised for what ends within moments: memory in use
// and a restart.
const shortDelay = time.Second

// admission bounds what clients can make the process hold while requests are
// received and committed (contract §7). Both transports ask it once per
// request, before the body is read.
type admission struct {
	budget      *membudget.Budget
	maxRequests int64
	bodyTimeout time.Duration

	requests atomic.Int64 // in flight
	closing  atomic.Bool
}

// enter takes a request slot, or says why there is none. It is cheap and takes no lock: on gRPC it runs under the
// connection's own.
func (a *admission) enter() (*slot, *refusal.Error) {
	if a.closing.Load() {
		return nil, shuttingDown()
	}
	if n := a.requests.Add(1); n > a.maxRequests {
		a.requests.Add(-1)
		return nil, &refusal.Error{
			Reason: refusal.InFlightRequests, Pre: uint64(n - 1), Limit: uint64(a.maxRequests), RetryAfter: shortDelay,
			Text: fmt.Sprintf("requests in flight: %d reach limit %d (admission.max_requests)", n-1, a.maxRequests),
		}
	}
	if a.budget.Full() {
		a.leave()
		return nil, a.noMemory(0)
	}
	return &slot{admission: a}, nil
}

func (a *admission) leave() { a.requests.Add(-1) }

// slot is a request's place among admission.max_requests. The transport has it
// until the request is handed to the log, and then the log, until nothing
// refers to the request any more: a client that gives up while its frame is
// queued must not make room for another one. It refers to nothing of the
// transport, whose contexts would stay with it.
type slot struct {
	admission *admission
	state     atomic.Uint32
}

// States of a slot.
const (
	slotOfTransport uint32 = iota
	slotOfLog
	slotFree
)

// leave gives the slot back for the transport, unless the log has it or it was
// given back already.
func (s *slot) leave() { s.free(slotOfTransport) }

// handOver gives the slot to the log.
func (s *slot) handOver() { s.state.CompareAndSwap(slotOfTransport, slotOfLog) }

// done gives the slot back for the log, if the log has it.
func (s *slot) done() { s.free(slotOfLog) }

func (s *slot) free(from uint32) {
	if s.state.CompareAndSwap(from, slotFree) {
		s.admission.leave()
	}
}

// noMemory is the refusal of n more bytes.
func (a *admission) noMemory(n uint64) *refusal.Error {
	held, limit := a.budget.Held(), a.budget.Limit()
	projected := held + n
	return &refusal.Error{
		Reason: refusal.InFlightBytes, Pre: held, Projected: &projected, Limit: limit, RetryAfter: shortDelay,
		Text: fmt.Sprintf("bytes in flight: held %d + request %d = %d reach limit %d (admission.max_in_flight_bytes)", held, n, projected, limit),
	}
}

// close refuses every request from now on.
func (a *admission) close() { a.closing.Store(true) }

func shuttingDown() *refusal.Error {
	return &refusal.Error{Reason: refusal.ShuttingDown, RetryAfter: shortDelay, Text: "the receiver is shutting down"}
}

func (a *admission) bodyTooSlow() *refusal.Error {
	return &refusal.Error{
		Reason: refusal.BodyTimeout, RetryAfter: shortDelay,
		Text: fmt.Sprintf("the request's body did not arrive within %s (admission.body_timeout)", a.bodyTimeout),
	}
}
