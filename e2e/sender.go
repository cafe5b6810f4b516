// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/otelweir/weir/internal/refusal"
)

// Answer is what one attempt to send a batch came to.
type Answer struct {
	Outcome   Outcome
	Reason    string        // error.type, when the log itself answered
	Wait      time.Duration // advised delay; 0 = none
	Permanent bool          // a stock sender would drop the batch
	Err       error
}

// Sender sends batches over one protocol.
type Sender interface {
	Send(ctx context.Context, b Batch) Answer
	Close() error
}

// undecided are the reasons that leave open whether the log has the batch.
var undecided = map[string]bool{
	refusal.AppendIO.String():  true,
	refusal.SyncIO.String():    true,
	refusal.Abandoned.String(): true,
}

// answerFor reads a Status. An answer without the log's own ErrorInfo comes
// from somewhere in between and decides nothing.
func answerFor(st *status.Status, permanent bool) Answer {
	a := Answer{Outcome: Undecided, Permanent: permanent, Err: st.Err()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == refusal.Domain {
				if a.Reason = d.GetReason(); !undecided[a.Reason] {
					a.Outcome = Refused
				}
			}
		case *errdetails.RetryInfo:
			a.Wait = d.GetRetryDelay().AsDuration()
		}
	}
	return a
}

type grpcSender struct {
	conn     *grpc.ClientConn
	logs     plogotlp.GRPCClient
	traces   ptraceotlp.GRPCClient
	metrics  pmetricotlp.GRPCClient
	profiles pprofileotlp.GRPCClient
}

// NewGRPC sends over OTLP/gRPC to addr.
func NewGRPC(addr string) (Sender, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &grpcSender{
		conn: conn, logs: plogotlp.NewGRPCClient(conn), traces: ptraceotlp.NewGRPCClient(conn),
		metrics: pmetricotlp.NewGRPCClient(conn), profiles: pprofileotlp.NewGRPCClient(conn),
	}, nil
}

func (s *grpcSender) Close() error { return s.conn.Close() }

func (s *grpcSender) Send(ctx context.Context, b Batch) Answer {
	var err error
	switch b.Signal {
	case Logs:
		_, err = s.logs.Export(ctx, plogotlp.NewExportRequestFromLogs(b.Logs()))
	case Traces:
		_, err = s.traces.Export(ctx, ptraceotlp.NewExportRequestFromTraces(b.Traces()))
	case Metrics:
		_, err = s.metrics.Export(ctx, pmetricotlp.NewExportRequestFromMetrics(b.Metrics()))
	case Profiles:
		_, err = s.profiles.Export(ctx, pprofileotlp.NewExportRequestFromProfiles(b.Profiles()))
	}
	if err == nil {
		return Answer{Outcome: Acked}
	}
	st := status.Convert(err)
	return answerFor(st, permanentForGRPC(st))
}

// permanentForGRPC is the OTLP specification's rule, which stock exporters
// follow.
func permanentForGRPC(st *status.Status) bool {
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return false
	case codes.ResourceExhausted:
		for _, d := range st.Details() {
			if _, ok := d.(*errdetails.RetryInfo); ok {
				return false
			}
		}
	}
	return true
}

type httpSender struct {
	base string
	json bool
	gzip bool
	http *http.Client
}

// NewHTTP sends over OTLP/HTTP to addr, as protobuf or JSON, gzipped or plain.
func NewHTTP(addr string, json, gzip bool) Sender {
	return &httpSender{base: "http://" + addr, json: json, gzip: gzip, http: &http.Client{Transport: &http.Transport{}}}
}

func (s *httpSender) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

var httpPaths = [...]string{Logs: "/v1/logs", Traces: "/v1/traces", Metrics: "/v1/metrics", Profiles: "/v1development/profiles"}

func (s *httpSender) Send(ctx context.Context, b Batch) Answer {
	fail := func(err error) Answer { return Answer{Outcome: Undecided, Err: err} }
	encode, contentType := b.request().MarshalProto, "application/x-protobuf"
	if s.json {
		encode, contentType = b.request().MarshalJSON, "application/json"
	}
	body, err := encode()
	if err != nil {
		return fail(err)
	}
	if s.gzip {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		if _, err := w.Write(body); err != nil {
			return fail(err)
		}
		if err := w.Close(); err != nil {
			return fail(err)
		}
		body = z.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+httpPaths[b.Signal], bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Content-Type", contentType)
	if s.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode == http.StatusOK {
		return Answer{Outcome: Acked}
	}
	permanent := true
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		permanent = false
	}
	var st spb.Status
	if err := proto.Unmarshal(answer, &st); err != nil {
		return Answer{Outcome: Undecided, Permanent: permanent, Err: fmt.Errorf("HTTP %d with a body that is no Status: %w", resp.StatusCode, err)}
	}
	a := answerFor(status.FromProto(&st), permanent)
	a.Wait = 0 // stock HTTP senders read the header and nothing else
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		a.Wait = time.Duration(seconds) * time.Second
	}
	a.Err = fmt.Errorf("HTTP %d: %s", resp.StatusCode, st.GetMessage())
	return a
}
