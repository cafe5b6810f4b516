// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc/codes"

	"github.com/otelweir/weir/internal/membudget"
	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

const (
	contentProtobuf = "application/x-protobuf"
	contentJSON     = "application/json"

	formatProtobuf = "protobuf"
	formatJSON     = "json"
)

// httpTransport serves OTLP over HTTP. The path of a signal without a pipeline
// is not found.
type httpTransport struct {
	front    *front
	paths    map[string]signal // what is served
	maxBytes int64             // of a body, as received and as decompressed
	cors     bool              // browsers are among the clients
	running  handlers
}

func newHTTPTransport(f *front, cfg *HTTPConfig, maxBytes Size, served []signal) *httpTransport {
	all := [...]URLPath{
		otlpwire.Logs:     cfg.LogsURLPath,
		otlpwire.Traces:   cfg.TracesURLPath,
		otlpwire.Metrics:  cfg.MetricsURLPath,
		otlpwire.Profiles: profilesURLPath,
	}
	t := &httpTransport{front: f, paths: make(map[string]signal, len(served)), maxBytes: int64(maxBytes)}
	if cors := cfg.ServerConfig.CORS.Get(); cors != nil {
		t.cors = len(cors.AllowedOrigins) > 0
	}
	for _, s := range served {
		t.paths[string(all[s])] = s
	}
	return t
}

// server builds the HTTP server: confighttp's chain (authentication,
// decompression, limits) around serve, and enter around all of it.
func (t *httpTransport) server(ctx context.Context, cfg *confighttp.ServerConfig, extensions map[component.ID]component.Component, set component.TelemetrySettings) (*http.Server, error) {
	server, err := cfg.ToServer(ctx, extensions, set, http.HandlerFunc(t.serve), confighttp.WithErrorHandler(t.chainFailed))
	if err != nil {
		return nil, err
	}
	server.Handler = t.enter(server.Handler)
	server.MaxHeaderBytes = headerLimit // net/http would take 1 MiB
	return server, nil
}

// handlers are the requests being handled: unlike gRPC's, the HTTP server does
// not wait for its handlers when it is closed.
type handlers struct {
	mu     sync.Mutex
	closed bool           // guarded by mu
	all    sync.WaitGroup // added to under mu, before it is closed
}

// begin lets a handler run, or not when wait was called. Who was let in calls
// end.
func (h *handlers) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.all.Add(1)
	return true
}

func (h *handlers) end() { h.all.Done() }

// wait lets no further handler run and waits for those that do.
func (h *handlers) wait() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.all.Wait()
}

// inbound is one HTTP request from before the chain to its answer.
type inbound struct {
	slot       *slot
	signal     signal
	controller *http.ResponseController
	// early answers a request that was not admitted.
	early func(w http.ResponseWriter)
	// refused is the first refusal met while the body was read from the
	// connection. The decoders above know only that reading failed.
	refused *refusal.Error
}

type inboundKey struct{}

func inboundOf(r *http.Request) *inbound {
	in, _ := r.Context().Value(inboundKey{}).(*inbound)
	return in
}

// enter admits a request before the chain sees it: a decoder may read the
// whole body before serve is called.
func (t *httpTransport) enter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.cors && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			next.ServeHTTP(w, r) // the chain answers by itself
			return
		}
		s, ok := t.paths[r.URL.Path]
		if !ok {
			t.answerEarly(w, r, next, func(w http.ResponseWriter) {
				writeFailure(w, http.StatusNotFound, codes.NotFound, fmt.Sprintf("path %s is not served: no such signal, or no pipeline takes it", r.URL.Path))
			})
			return
		}
		a := t.front.admission
		if !t.running.begin() {
			t.answerEarly(w, r, next, func(w http.ResponseWriter) { t.refuse(w, s, shuttingDown()) })
			return
		}
		defer t.running.end()
		slot, refused := a.enter()
		if refused != nil {
			t.answerEarly(w, r, next, func(w http.ResponseWriter) { t.refuse(w, s, refused) })
			return
		}
		defer slot.leave()
		in := &inbound{slot: slot, signal: s, controller: http.NewResponseController(w)}
		// Not supported only where there is no connection.
		_ = in.controller.SetReadDeadline(time.Now().Add(a.bodyTimeout))
		body := &wireBody{ReadCloser: r.Body, in: in, admission: a}
		if r.Header.Get("Content-Encoding") == "snappy" {
			// confighttp reads a body of this encoding as a whole, before
			// it decodes it.
			body.charge = a.budget.NewCharge()
			defer body.charge.Release()
		}
		r = r.WithContext(context.WithValue(r.Context(), inboundKey{}, in))
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// answerEarly answers a request that is not admitted. A browser sees no answer
// without the headers that CORS adds, so with CORS it passes through the chain,
// without its body.
func (t *httpTransport) answerEarly(w http.ResponseWriter, r *http.Request, next http.Handler, answer func(http.ResponseWriter)) {
	if !t.cors {
		answer(w)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), inboundKey{}, &inbound{early: answer}))
	r.Body, r.ContentLength = http.NoBody, 0
	r.Header.Del("Content-Encoding")
	next.ServeHTTP(w, r)
}

// wireBody is a body as it comes from the connection.
type wireBody struct {
	io.ReadCloser
	in        *inbound
	admission *admission
	charge    *membudget.Charge // nil: what is read is not kept here
}

func (b *wireBody) Read(p []byte) (int, error) {
	if b.in.refused != nil {
		return 0, b.in.refused
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.charge != nil && !b.charge.Grow(uint64(n)):
		b.in.refused = b.admission.noMemory(uint64(n))
		return 0, b.in.refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.in.refused = b.admission.bodyTooSlow()
	}
	return n, err
}

// serve answers one request whose body is readable and not compressed.
func (t *httpTransport) serve(w http.ResponseWriter, r *http.Request) {
	in := inboundOf(r)
	if in.early != nil {
		in.early(w)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeFailure(w, http.StatusMethodNotAllowed, codes.Unimplemented, fmt.Sprintf("method %s is not allowed, only POST", r.Method))
		return
	}
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mediaType != contentProtobuf && mediaType != contentJSON {
		writeFailure(w, http.StatusUnsupportedMediaType, codes.InvalidArgument, fmt.Sprintf("content type %q is not supported, only %s and %s", mediaType, contentProtobuf, contentJSON))
		return
	}
	if in.signal == otlpwire.Profiles {
		if err := pprofileotlp.ValidateDevelopmentVersion(r.Header.Values(pprofileotlp.DevelopmentVersionHeader)); err != nil {
			t.refuse(w, in.signal, invalidPayload(err))
			return
		}
	}
	req := &request{slot: in.slot, signal: in.signal, transport: transportHTTP, format: formatProtobuf}
	refused := t.receive(in, r, req)
	if refused == nil && mediaType == contentJSON {
		refused = t.front.convertJSON(req)
	}
	if refused == nil {
		refused = t.front.accept(r.Context(), req)
	}
	if refused != nil {
		t.front.refused(req, refused)
		writeRefusal(w, refused)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	if mediaType == contentJSON {
		_, _ = io.WriteString(w, "{}") // the client is gone if that fails
	}
}

// receive reads the body into req.
func (t *httpTransport) receive(in *inbound, r *http.Request, req *request) *refusal.Error {
	if r.ContentLength > t.maxBytes {
		return t.tooLarge()
	}
	charge := t.front.admission.budget.NewCharge()
	buffer, err := readBody(r.Body, charge)
	if err != nil {
		next := uint64(2 * cap(*buffer)) // what it would have grown to
		charge.Release()
		bodies.put(buffer)
		var tooLarge *http.MaxBytesError
		switch {
		case in.refused != nil:
			return in.refused
		case errors.Is(err, errNoMemory):
			return t.front.admission.noMemory(next)
		case errors.As(err, &tooLarge):
			return t.tooLarge()
		}
		return invalidPayload(fmt.Errorf("read body: %w", err))
	}
	// The body is complete: a deadline that passes now would look to
	// net/http as if the client had gone.
	_ = in.controller.SetReadDeadline(time.Time{})
	req.payload, req.buffer, req.charge = *buffer, buffer, charge
	return nil
}

// firstRead is the first buffer of a body, in bytes. It grows with what
// arrives, whatever length the client declares: a slow client then holds no
// more than twice what it sent.
const firstRead = 4 << 10

var errNoMemory = errors.New("no memory")

// readBody reads r to its end into one buffer and charges its capacity while
// it grows. It also returns the buffer when it fails.
func readBody(r io.Reader, charge *membudget.Charge) (*[]byte, error) {
	buffer := bodies.get(firstRead)
	if !charge.Grow(uint64(cap(*buffer))) {
		return buffer, errNoMemory
	}
	n := 0
	for {
		if n == cap(*buffer) {
			if !charge.Grow(uint64(n)) {
				return buffer, errNoMemory
			}
			larger := bodies.get(2 * n)
			copy(*larger, *buffer)
			bodies.put(buffer)
			buffer = larger
		}
		*buffer = (*buffer)[:cap(*buffer)]
		m, err := r.Read((*buffer)[n:])
		n += m
		if err == io.EOF {
			*buffer = (*buffer)[:n]
			return buffer, nil
		}
		if err != nil {
			return buffer, err
		}
	}
}

func (t *httpTransport) tooLarge() *refusal.Error {
	return &refusal.Error{
		Reason: refusal.TooLarge, Limit: uint64(t.maxBytes),
		Text: fmt.Sprintf("request too large: body exceeds limit %d (protocols.http.max_request_body_size): send smaller batches", t.maxBytes),
	}
}

func (t *httpTransport) refuse(w http.ResponseWriter, s signal, r *refusal.Error) {
	t.front.refusals.add(r.Reason, s, transportHTTP)
	writeRefusal(w, r)
}

// Messages with which confighttp says that a body is too large. It knows them
// only as texts; a test holds them against it.
const (
	snappyTooLarge = "snappy: decoded size exceeds max request body size"
	bodyTooLarge   = "http: request body too large"
)

// chainFailed answers for confighttp: a client that is not who it says, or a
// body that does not decompress.
func (t *httpTransport) chainFailed(w http.ResponseWriter, r *http.Request, message string, status int) {
	in := inboundOf(r)
	switch {
	case status == http.StatusUnauthorized:
		writeFailure(w, status, codes.Unauthenticated, message)
	case in.refused != nil:
		t.refuse(w, in.signal, in.refused)
	case message == snappyTooLarge || message == bodyTooLarge:
		t.refuse(w, in.signal, t.tooLarge())
	default:
		t.refuse(w, in.signal, invalidPayload(errors.New(message)))
	}
}
