// SPDX-License-Identifier: Apache-2.0

// Package refusal holds the typed reasons a request is refused for and what
// each of them means on the wire. The table of contract §2 is [reasons]; every
// transport derives its answer from [Error] and from nothing else.
package refusal // import "github.com/otelweir/weir/internal/refusal"

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Reason is why a request was refused; it is the value of error.type.
type Reason uint8

// The reasons of contract §2.
const (
	BackpressureBytes Reason = iota
	BackpressureSegments
	InFlightBytes
	InFlightRequests
	RotationRetrying
	VolumeFull
	Unwritable
	ShuttingDown
	BodyTimeout
	TenantCap
	Terminal
	AppendIO
	SyncIO
	Abandoned
	TooLarge
	InvalidPayload
	InvalidTenant
	InvalidMetadata
	Count // how many reasons there are
)

// Domain is the ErrorInfo domain of every refusal.
const Domain = "weir"

// reasons is contract §2's table, one row per Reason.
var reasons = [Count]struct {
	name string
	code codes.Code
	http int
}{
	BackpressureBytes:    {"wal_backpressure_bytes", codes.Unavailable, http.StatusServiceUnavailable},
	BackpressureSegments: {"wal_backpressure_segments", codes.Unavailable, http.StatusServiceUnavailable},
	InFlightBytes:        {"in_flight_bytes", codes.ResourceExhausted, http.StatusServiceUnavailable},
	InFlightRequests:     {"in_flight_requests", codes.ResourceExhausted, http.StatusServiceUnavailable},
	RotationRetrying:     {"wal_rotation_retrying", codes.Unavailable, http.StatusServiceUnavailable},
	VolumeFull:           {"wal_volume_full", codes.Unavailable, http.StatusServiceUnavailable},
	Unwritable:           {"wal_unwritable", codes.Unavailable, http.StatusServiceUnavailable},
	ShuttingDown:         {"shutting_down", codes.Unavailable, http.StatusServiceUnavailable},
	BodyTimeout:          {"body_timeout", codes.DeadlineExceeded, http.StatusServiceUnavailable},
	TenantCap:            {"wal_tenant_cap", codes.Unavailable, http.StatusServiceUnavailable},
	Terminal:             {"wal_terminal", codes.Unavailable, http.StatusServiceUnavailable},
	AppendIO:             {"wal_append_io", codes.Unavailable, http.StatusServiceUnavailable},
	SyncIO:               {"wal_sync_io", codes.Unavailable, http.StatusServiceUnavailable},
	Abandoned:            {"wal_abandoned", codes.Unavailable, http.StatusServiceUnavailable},
	TooLarge:             {"too_large", codes.InvalidArgument, http.StatusRequestEntityTooLarge},
	InvalidPayload:       {"invalid_payload", codes.InvalidArgument, http.StatusBadRequest},
	InvalidTenant:        {"invalid_tenant", codes.InvalidArgument, http.StatusBadRequest},
	InvalidMetadata:      {"invalid_metadata", codes.InvalidArgument, http.StatusBadRequest},
}

// String is the reason's error.type.
func (r Reason) String() string {
	if r >= Count {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasons[r].name
}

// Permanent says that sending the same bytes again can never succeed.
func (r Reason) Permanent() bool { return reasons[r].code == codes.InvalidArgument }

// Error is one refusal. It is made after every lock was released.
type Error struct {
	Reason Reason
	// Text says in words what was refused and why, with the measurement
	// and the limit; the delay is added by Error().
	Text string
	// Pre, Projected and Limit are the measurement of a bound, in bytes or
	// segments. Projected is nil when it overflows; all are zero for reasons
	// that measure nothing.
	Pre, Limit uint64
	Projected  *uint64
	// RetryAfter is the honest delay; 0 means that none is known.
	RetryAfter time.Duration
	// Cause is the error below, if any.
	Cause error
}

// Error is the text a client sees. It is valid UTF-8 whatever it quotes: a
// Status that is not cannot be encoded, and would lose its details with it.
func (e *Error) Error() string {
	text := strings.ToValidUTF8(e.Text, "\uFFFD")
	if d := e.delay(); d > 0 {
		return fmt.Sprintf("%s; retry in %s", text, d)
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }

// delay is RetryAfter in whole seconds, rounded up: stock senders truncate.
func (e *Error) delay() time.Duration {
	if e.RetryAfter <= 0 || e.Reason.Permanent() {
		return 0
	}
	return (e.RetryAfter + time.Second - 1).Truncate(time.Second)
}

// GRPCStatus is the refusal on the wire: code, message, ErrorInfo, and
// RetryInfo exactly when a delay is known. gRPC and the Collector's own
// components find it through status.FromError.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(reasons[e.Reason].code, e.Error())
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: e.Reason.String(), Domain: Domain}}
	if d := e.delay(); d > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
	with, err := st.WithDetails(details...)
	if err != nil { // only for code OK, which no reason has
		return st
	}
	return with
}

// HTTPStatus is the response code.
func (e *Error) HTTPStatus() int { return reasons[e.Reason].http }

// RetryAfterSeconds is the Retry-After header's value; ok is false when the
// header must be absent.
func (e *Error) RetryAfterSeconds() (s int64, ok bool) {
	d := e.delay()
	return int64(d / time.Second), d > 0
}
