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

// enter takes a request slot, or says why there is none. Who was let in calls
// leave exactly once. It is cheap and takes no lock: on gRPC it runs under the
// connection's own.
func (a *admission) enter() *refusal.Error {
	if a.closing.Load() {
		return shuttingDown()
	}
	if n := a.requests.Add(1); n > a.maxRequests {
		a.requests.Add(-1)
		return &refusal.Error{
			Reason: refusal.InFlightRequests, Pre: uint64(n - 1), Limit: uint64(a.maxRequests), RetryAfter: shortDelay,
			Text: fmt.Sprintf("requests in flight: %d reach limit %d (admission.max_requests)", n-1, a.maxRequests),
		}
	}
	if a.budget.Full() {
		a.leave()
		return a.noMemory(0)
	}
	return nil
}

func (a *admission) leave() { a.requests.Add(-1) }

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
