// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/otelweir/weir/internal/refusal"
)

// writeRefusal answers an HTTP request with what gRPC would have been told:
// the same Status, and the delay once more as a header, which is where HTTP
// clients look for it.
func writeRefusal(w http.ResponseWriter, r *refusal.Error) {
	if s, ok := r.RetryAfterSeconds(); ok {
		w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
	}
	if r.Reason == refusal.BodyTimeout {
		w.Header().Set("Connection", "close") // the rest of the body is still to come
	}
	writeStatus(w, r.HTTPStatus(), r.GRPCStatus())
}

// writeFailure answers a request that never became one of ours.
func writeFailure(w http.ResponseWriter, code int, grpc codes.Code, message string) {
	writeStatus(w, code, status.New(grpc, message))
}

// writeStatus writes the binary Status whatever the request's encoding was:
// stock clients decode nothing else.
func writeStatus(w http.ResponseWriter, code int, s *status.Status) {
	body, err := proto.Marshal(s.Proto())
	if err != nil { // a message that is not UTF-8
		body, _ = proto.Marshal(status.New(s.Code(), strconv.QuoteToASCII(s.Message())).Proto())
	}
	w.Header().Set("Content-Type", contentProtobuf)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client is gone if that fails
}
