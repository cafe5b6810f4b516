// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"net/http"
	"reflect"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// verdict is what an error of a Consume call means for its frames.
type verdict uint8

const (
	retryable verdict = iota // try again, without end
	elsewhere                // permanent, but going by its status not because of the data
	aboutData                // permanent
)

// permanentType is the type of consumererror.NewPermanent's errors, which is
// not exported. Asking for it node by node is what tells an error that is
// permanent from one of which merely some part is.
var permanentType = reflect.TypeOf(consumererror.NewPermanent(errors.New("")))

// judge finds the verdict on err. Where several pipelines failed, one
// retryable failure makes the whole retryable, and one that is not about the
// data makes the permanent ones so: too many deliveries are better than one
// too few. That is more careful than consumererror.IsPermanent, which one
// permanent failure among several satisfies.
func judge(err error) verdict {
	for {
		if reflect.TypeOf(err) == permanentType {
			return judgeStatus(err)
		}
		if e, ok := err.(*consumererror.Error); ok && !e.IsRetryable() { //nolint:errorlint // one node at a time
			return judgeOTLP(e)
		}
		switch u := err.(type) { //nolint:errorlint // one node at a time
		case interface{ Unwrap() []error }:
			least := aboutData
			for _, e := range u.Unwrap() {
				if e != nil {
					least = min(least, judge(e))
				}
			}
			return least
		case interface{ Unwrap() error }:
			if err = u.Unwrap(); err == nil {
				return retryable
			}
		default:
			return retryable
		}
	}
}

// judgeStatus is the verdict on a permanent error by the gRPC or HTTP status
// it carries; without one it is about the data.
func judgeStatus(err error) verdict {
	if e, ok := errors.AsType[*consumererror.Error](err); ok {
		return judgeOTLP(e)
	}
	if s, ok := status.FromError(err); ok {
		return judgeCode(s.Code())
	}
	return aboutData
}

// judgeOTLP is the verdict on an error that carries an OTLP status of its own.
// ToHTTPStatus is exact for all but 500, which also stands for every gRPC code
// without a counterpart.
func judgeOTLP(e *consumererror.Error) verdict {
	switch code := consumererror.ToHTTPStatus(e); {
	case code == http.StatusInternalServerError:
		return judgeCode(consumererror.ToGRPCStatus(e).Code())
	case code > 500, code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound,
		code == http.StatusRequestTimeout, code == http.StatusTooManyRequests:
		return elsewhere
	}
	return aboutData
}

func judgeCode(c codes.Code) verdict {
	switch c {
	case codes.Unauthenticated, codes.PermissionDenied, codes.NotFound, codes.Unimplemented,
		codes.Internal, codes.Unknown, codes.ResourceExhausted,
		// Retryable by themselves, so not about the data either.
		codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return elsewhere
	}
	return aboutData
}
