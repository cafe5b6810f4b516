// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/receiver"

	"github.com/otelweir/weir/internal/journal"
	"github.com/otelweir/weir/internal/membudget"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

// committer makes a frame durable, or says why not: coordinator.Coordinator.
// done runs exactly once, when nothing refers to the frame's buffers any more.
type committer interface {
	Commit(ctx context.Context, f *journal.Frame, done func(durable bool)) (journal.Position, error)
}

// front is what both transports do with a request once they have its bytes.
type front struct {
	admission  *admission
	identity   *identity
	maxNesting int
	log        committer
	reports    *reports

	refusals refusals
	accepted [len(signals) + 1]accepted // by signal
	tenants  *tenantTable               // nil unless tenant.metrics
}

func newFront(cfg *Config, log committer, set receiver.Settings) (*front, error) {
	id, err := newIdentity(cfg)
	if err != nil {
		return nil, err
	}
	r, err := newReports(set)
	if err != nil {
		return nil, err
	}
	return &front{
		admission: &admission{
			budget:      membudget.New(uint64(cfg.Admission.MaxInFlightBytes)),
			maxRequests: int64(cfg.Admission.MaxRequests),
			bodyTimeout: cfg.Admission.BodyTimeout,
		},
		identity:   id,
		maxNesting: cfg.Admission.MaxNesting,
		log:        log,
		reports:    r,
		tenants:    newTenantTable(cfg),
	}, nil
}

// accepted counts what became durable.
type accepted struct{ items, bytes atomic.Uint64 }

// request is one export request in OTLP protobuf. It and its buffer belong to
// whoever has it: front.accept takes them over.
type request struct {
	signal    signal
	transport transport
	format    string // what the client sent: protobuf or json

	payload []byte
	buffer  *[]byte // payload's, from bodies; nil when it is not pooled
	charge  *membudget.Charge
	slot    *slot

	frame  journal.Frame
	pieces [1][]byte
}

// release gives back what the request holds, exactly once: its memory, and its
// slot if it was handed to the log.
func (r *request) release() {
	r.payload, r.pieces[0], r.frame.Metadata = nil, nil, nil
	r.charge.Release()
	bodies.put(r.buffer)
	r.slot.done()
}

// accept makes r durable and returns nil, or the refusal to answer with. It is
// the part of contract §1 that comes before the journal lock.
func (f *front) accept(ctx context.Context, r *request) *refusal.Error {
	m, err := otlpwire.Measure(r.signal, r.payload, f.maxNesting)
	if err != nil {
		r.release()
		return invalidPayload(err)
	}
	if m.Items == 0 {
		r.release()
		return nil
	}
	ctx = f.reports.start(ctx, r)
	err = f.commit(ctx, r, m)
	f.reports.end(ctx, r, m.Items, err)
	if err != nil {
		return asRefusal(err)
	}
	return nil
}

// refused counts a refusal of r, which is about to be answered.
func (f *front) refused(r *request, e *refusal.Error) {
	if r.frame.Kind != 0 && f.tenants.refuse(r.frame.Tenant, e.Reason, r.signal, r.transport) {
		return // it came so far that its tenant is known, and counted
	}
	f.refusals.add(e.Reason, r.signal, r.transport)
}

// commit returns nil once r's frame is durable.
func (f *front) commit(ctx context.Context, r *request, m otlpwire.Measurement) error {
	tenant, metadata, err := f.identity.of(ctx)
	if err != nil {
		r.release()
		return err
	}
	if n := uint64(len(metadata)); !r.charge.Grow(n) {
		r.release()
		return f.admission.noMemory(n)
	}
	if m.Items > math.MaxUint32 {
		r.release()
		return invalidPayload(fmt.Errorf("%d items", m.Items))
	}
	r.pieces[0] = r.payload
	r.frame = journal.Frame{
		Kind:     kindOf(r.signal),
		Tenant:   tenant,
		Items:    uint32(m.Items),
		Received: time.Now().UnixNano(),
		Metadata: metadata,
		Payload:  r.pieces[:],
	}
	r.slot.handOver()
	// What became durable is in the log and will be delivered, also if its
	// client gave up before.
	_, err = f.log.Commit(ctx, &r.frame, func(durable bool) {
		if durable {
			f.count(r)
		}
		r.release()
	})
	return err
}

// count counts r as accepted.
func (f *front) count(r *request) {
	items, size := uint64(r.frame.Items), r.frame.FramedLen()
	f.accepted[r.signal].items.Add(items)
	f.accepted[r.signal].bytes.Add(size)
	f.tenants.accept(r.frame.Tenant, r.signal, items, size)
}

func invalidPayload(err error) *refusal.Error {
	return &refusal.Error{Reason: refusal.InvalidPayload, Cause: err, Text: fmt.Sprintf("invalid payload: %v", err)}
}

// asRefusal finds the refusal in err. There always is one; if there were not,
// the data would be undecided.
func asRefusal(err error) *refusal.Error {
	var r *refusal.Error
	if errors.As(err, &r) {
		return r
	}
	return &refusal.Error{Reason: refusal.AppendIO, Cause: err, Text: fmt.Sprintf("wal append failed: %v", err)}
}
