// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// wire is contract §2, once more and by hand.
var wire = map[Reason]struct {
	name      string
	code      codes.Code
	http      int
	permanent bool
}{
	BackpressureBytes:    {"wal_backpressure_bytes", codes.Unavailable, 503, false},
	BackpressureSegments: {"wal_backpressure_segments", codes.Unavailable, 503, false},
	InFlightBytes:        {"in_flight_bytes", codes.ResourceExhausted, 503, false},
	InFlightRequests:     {"in_flight_requests", codes.ResourceExhausted, 503, false},
	RotationRetrying:     {"wal_rotation_retrying", codes.Unavailable, 503, false},
	VolumeFull:           {"wal_volume_full", codes.Unavailable, 503, false},
	Unwritable:           {"wal_unwritable", codes.Unavailable, 503, false},
	ShuttingDown:         {"shutting_down", codes.Unavailable, 503, false},
	BodyTimeout:          {"body_timeout", codes.DeadlineExceeded, 503, false},
	TenantCap:            {"wal_tenant_cap", codes.Unavailable, 503, false},
	Terminal:             {"wal_terminal", codes.Unavailable, 503, false},
	AppendIO:             {"wal_append_io", codes.Unavailable, 503, false},
	SyncIO:               {"wal_sync_io", codes.Unavailable, 503, false},
	Abandoned:            {"wal_abandoned", codes.Unavailable, 503, false},
	TooLarge:             {"too_large", codes.InvalidArgument, 413, true},
	InvalidPayload:       {"invalid_payload", codes.InvalidArgument, 400, true},
	InvalidTenant:        {"invalid_tenant", codes.InvalidArgument, 400, true},
	InvalidMetadata:      {"invalid_metadata", codes.InvalidArgument, 400, true},
}

func TestB02_ReasonsAreTheContracts(t *testing.T) {
	if len(wire) != int(Count) {
		t.Fatalf("%d rows for %d reasons", len(wire), Count)
	}
	for reason := range Count {
		want := wire[reason]
		e := &Error{Reason: reason, Text: "why"}
		if got := reason.String(); got != want.name {
			t.Errorf("reason %d is %q, want %q", reason, got, want.name)
		}
		if got := e.GRPCStatus().Code(); got != want.code {
			t.Errorf("%s: code %v, want %v", reason, got, want.code)
		}
		if got := e.HTTPStatus(); got != want.http {
			t.Errorf("%s: HTTP %d, want %d", reason, got, want.http)
		}
		if got := reason.Permanent(); got != want.permanent {
			t.Errorf("%s: permanent %v, want %v", reason, got, want.permanent)
		}
	}
	if got := Count.String(); got != fmt.Sprintf("reason(%d)", Count) {
		t.Errorf("an unknown reason is %q", got)
	}
}

func TestB03_DelaysAreWholeSecondsRoundedUp(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		delay  time.Duration
		want   int64 // seconds; 0 = no hint anywhere
	}{
		{BackpressureBytes, 0, 0},
		{BackpressureBytes, -time.Second, 0},
		{BackpressureBytes, 1, 1},
		{BackpressureBytes, time.Second, 1},
		{BackpressureBytes, time.Second + 1, 2},
		{BackpressureBytes, 49*time.Second + 999*time.Millisecond, 50},
		{InvalidPayload, time.Minute, 0}, // a resend cannot help
		{TooLarge, time.Minute, 0},
	} {
		e := &Error{Reason: c.reason, Text: "why", RetryAfter: c.delay}
		s, ok := e.RetryAfterSeconds()
		if s != c.want || ok != (c.want > 0) {
			t.Errorf("%s after %v: Retry-After %d, %v; want %d", c.reason, c.delay, s, ok, c.want)
		}
		info, retry := details(t, e)
		if info.GetReason() != c.reason.String() || info.GetDomain() != "weir" {
			t.Errorf("%s: ErrorInfo %v", c.reason, info)
		}
		if (retry != nil) != (c.want > 0) || retry.GetRetryDelay().GetSeconds() != c.want || retry.GetRetryDelay().GetNanos() != 0 {
			t.Errorf("%s after %v: RetryInfo %v; want %d s", c.reason, c.delay, retry, c.want)
		}
		want := "why"
		if c.want > 0 {
			want = fmt.Sprintf("why; retry in %s", time.Duration(c.want)*time.Second)
		}
		if e.Error() != want || e.GRPCStatus().Message() != want {
			t.Errorf("text %q, message %q; want %q", e.Error(), e.GRPCStatus().Message(), want)
		}
	}
}

// Components between the log and the wire wrap errors.
func TestRefusalIsFoundInWrappedErrors(t *testing.T) {
	cause := errors.New("disk on fire")
	err := fmt.Errorf("commit: %w", &Error{Reason: SyncIO, Text: "why", Cause: cause})
	var e *Error
	if !errors.As(err, &e) || e.Reason != SyncIO || !errors.Is(err, cause) {
		t.Errorf("%v: refusal %v", err, e)
	}
	if s, ok := status.FromError(err); !ok || s.Code() != codes.Unavailable || len(s.Details()) != 1 {
		t.Errorf("status %v, %v", s, ok)
	}
}

func details(t *testing.T, e *Error) (info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range e.GRPCStatus().Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		default:
			t.Errorf("unexpected detail %T", d)
		}
	}
	return info, retry
}

// What a refusal quotes of a request may be anything; a Status must be UTF-8
// or it cannot be encoded.
func TestRefusalOfWhatIsNotUTF8KeepsItsDetails(t *testing.T) {
	e := &Error{Reason: VolumeFull, Text: "it says \xff\xfe here", RetryAfter: time.Second}
	const want = "it says \uFFFD here; retry in 1s"
	if e.Error() != want {
		t.Errorf("text %q; want %q", e.Error(), want)
	}
	b, err := proto.Marshal(e.GRPCStatus().Proto())
	if err != nil {
		t.Fatalf("the Status cannot be encoded: %v", err)
	}
	var s rpcstatus.Status
	if err := proto.Unmarshal(b, &s); err != nil || s.GetMessage() != want || len(s.GetDetails()) != 2 {
		t.Errorf("on the wire: %v, %v", &s, err)
	}
}
