// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configcompression"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

// wireRows is contract §2, once more and by hand.
var wireRows = []struct {
	reason    refusal.Reason
	errorType string
	code      codes.Code
	http      int
	delay     time.Duration // as refused; 0 = the table says none
	advised   string        // Retry-After
	permanent bool
}{
	{refusal.BackpressureBytes, "wal_backpressure_bytes", codes.Unavailable, 503, 6100 * time.Millisecond, "7", false},
	{refusal.BackpressureSegments, "wal_backpressure_segments", codes.Unavailable, 503, 10 * time.Millisecond, "1", false},
	{refusal.InFlightBytes, "in_flight_bytes", codes.ResourceExhausted, 503, time.Second, "1", false},
	{refusal.InFlightRequests, "in_flight_requests", codes.ResourceExhausted, 503, time.Second, "1", false},
	{refusal.RotationRetrying, "wal_rotation_retrying", codes.Unavailable, 503, 2 * time.Second, "2", false},
	{refusal.VolumeFull, "wal_volume_full", codes.Unavailable, 503, 30 * time.Second, "30", false},
	{refusal.Unwritable, "wal_unwritable", codes.Unavailable, 503, 4 * time.Second, "4", false},
	{refusal.ShuttingDown, "shutting_down", codes.Unavailable, 503, time.Second, "1", false},
	{refusal.TenantCap, "wal_tenant_cap", codes.Unavailable, 503, 0, "", false},
	{refusal.Terminal, "wal_terminal", codes.Unavailable, 503, 0, "", false},
	{refusal.AppendIO, "wal_append_io", codes.Unavailable, 503, 0, "", false},
	{refusal.SyncIO, "wal_sync_io", codes.Unavailable, 503, 0, "", false},
	{refusal.Abandoned, "wal_abandoned", codes.Unavailable, 503, 0, "", false},
	{refusal.TooLarge, "too_large", codes.InvalidArgument, 413, 0, "", true},
	{refusal.InvalidPayload, "invalid_payload", codes.InvalidArgument, 400, 0, "", true},
	{refusal.InvalidTenant, "invalid_tenant", codes.InvalidArgument, 400, 0, "", true},
	{refusal.InvalidMetadata, "invalid_metadata", codes.InvalidArgument, 400, 0, "", true},
}

func TestB02_EveryRowOfTheContractOnTheWire(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	payload, json := sample(t, otlpwire.Logs)
	require.Len(t, wireRows, int(refusal.Count)-1, "body_timeout is tested with a slow body")

	for _, row := range wireRows {
		t.Run(row.errorType, func(t *testing.T) {
			const text = "the reason in words"
			log.set(func(context.Context) error {
				return &refusal.Error{Reason: row.reason, Text: text, RetryAfter: row.delay}
			})
			message := text
			if row.advised != "" {
				message += "; retry in " + row.advised + "s"
			}
			check := func(t *testing.T, s *rpcstatus.Status) {
				t.Helper()
				assert.Equal(t, row.code, codes.Code(s.GetCode()))
				assert.Equal(t, message, s.GetMessage())
				info, delay := details(t, s)
				require.NotNil(t, info, "ErrorInfo")
				assert.Equal(t, row.errorType, info.GetReason())
				assert.Equal(t, "weir", info.GetDomain())
				if row.advised == "" {
					assert.Nil(t, delay, "RetryInfo")
				} else if assert.NotNil(t, delay, "RetryInfo") {
					assert.Equal(t, row.advised+"s", delay.GetRetryDelay().AsDuration().String())
				}
			}
			t.Run("grpc", func(t *testing.T) {
				check(t, status.Convert(r.export(t.Context(), otlpwire.Logs, payload)).Proto())
			})
			for contentType, body := range map[string][]byte{contentProtobuf: payload, contentJSON: json} {
				t.Run(contentType, func(t *testing.T) {
					a := r.post(otlpwire.Logs, contentType, body)
					assert.Equal(t, row.http, a.code)
					assert.Equal(t, row.advised, a.header.Get("Retry-After"))
					assert.Equal(t, row.advised != "", a.header.Values("Retry-After") != nil, "Retry-After")
					check(t, a.status(t))
				})
			}
		})
	}
	r.atRest()
}

// details returns what is attached to a status.
func details(t testing.TB, s *rpcstatus.Status) (info *errdetails.ErrorInfo, delay *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range status.FromProto(s).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			delay = d
		default:
			t.Errorf("unexpected detail %T: %v", d, d)
		}
	}
	return info, delay
}

func TestB02_StockExportersUnderstandEveryRow(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	for name, send := range stockExporters(t, r, configcompression.TypeGzip) {
		t.Run(name, func(t *testing.T) {
			for _, row := range wireRows {
				log.set(func(context.Context) error {
					return &refusal.Error{Reason: row.reason, Text: "the reason in words", RetryAfter: row.delay}
				})
				err := send(t.Context())
				require.ErrorContains(t, err, "the reason in words", row.errorType)
				assert.Equal(t, row.permanent, consumererror.IsPermanent(err), "%s: dropped by the sender: %v", row.errorType, err)
				if row.advised == "" {
					assert.NotContains(t, err.Error(), "Throttle", row.errorType)
				} else {
					assert.ErrorContains(t, err, "Throttle ("+row.advised+"s)", row.errorType)
				}
			}
			log.set(nil)
			require.NoError(t, send(t.Context()))
		})
	}
}

// stockExporters are the Collector's own OTLP exporters without queue and
// retries, so that they report what each answer means to them.
func stockExporters(t *testing.T, r *rig, compression configcompression.Type) map[string]func(context.Context) error {
	t.Helper()
	grpcFactory := otlpexporter.NewFactory()
	grpcCfg := grpcFactory.CreateDefaultConfig().(*otlpexporter.Config)
	grpcCfg.ClientConfig.Endpoint = r.servers.grpcAddr.String()
	grpcCfg.ClientConfig.TLS.Insecure = true
	grpcCfg.ClientConfig.Compression = compression
	grpcCfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	grpcCfg.RetryConfig = configretry.BackOffConfig{}

	httpFactory := otlphttpexporter.NewFactory()
	httpCfg := httpFactory.CreateDefaultConfig().(*otlphttpexporter.Config)
	httpCfg.ClientConfig.Endpoint = r.url("")
	httpCfg.ClientConfig.Compression = compression
	httpCfg.QueueConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	httpCfg.RetryConfig = configretry.BackOffConfig{}

	sends := map[string]func(context.Context) error{}
	for name, f := range map[string]struct {
		factory exporter.Factory
		cfg     component.Config
	}{"otlp_grpc": {grpcFactory, grpcCfg}, "otlp_http": {httpFactory, httpCfg}} {
		e, err := f.factory.CreateLogs(t.Context(), exportertest.NewNopSettings(f.factory.Type()), f.cfg)
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
		t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
		sends[name] = func(ctx context.Context) error { return e.ConsumeLogs(ctx, someLogs(3)) }
	}
	return sends
}

func TestB02_SuccessInTheRequestsOwnEncodingWithoutPartialSuccess(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	for _, s := range signals {
		t.Run(signalNames[s], func(t *testing.T) {
			payload, json := sample(t, s)
			require.NoError(t, r.export(t.Context(), s, payload))

			a := r.post(s, contentProtobuf, payload)
			assert.Equal(t, http.StatusOK, a.code)
			assert.Equal(t, contentProtobuf, a.header.Get("Content-Type"))
			assert.Empty(t, a.body)

			a = r.post(s, contentJSON+"; charset=utf-8", json)
			assert.Equal(t, http.StatusOK, a.code)
			assert.Equal(t, contentJSON, a.header.Get("Content-Type"))
			assert.Equal(t, "{}", string(a.body))

			frames := log.take()
			require.Len(t, frames, 3)
			for i, f := range frames {
				assert.Equal(t, kindOf(s), f.frame.Kind)
				assert.EqualValues(t, 3, f.frame.Items)
				assert.Equal(t, payload, f.payload, "payload %d", i)
			}
		})
	}
	r.atRest()
}

func TestB02_FailuresBeforeTheLog(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) { c.Protocols.HTTP.Get().ServerConfig.MaxRequestBodySize = 1 << 20 })
	payload, _ := sample(t, otlpwire.Logs)

	for name, c := range map[string]struct {
		method, path string
		header       http.Header
		body         []byte
		http         int
		code         codes.Code
		errorType    string
	}{
		"unknown path":      {path: "/v1/nothing", http: 404, code: codes.NotFound},
		"GET":               {method: http.MethodGet, http: 405, code: codes.Unimplemented},
		"PUT":               {method: http.MethodPut, http: 405, code: codes.Unimplemented},
		"content type":      {header: http.Header{"Content-Type": {"text/plain"}}, http: 415, code: codes.InvalidArgument},
		"no content type":   {header: http.Header{"Content-Type": nil}, http: 415, code: codes.InvalidArgument},
		"content encoding":  {header: http.Header{"Content-Encoding": {"br"}}, http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"bad gzip":          {header: http.Header{"Content-Encoding": {"gzip"}}, http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"bad zstd":          {header: http.Header{"Content-Encoding": {"zstd"}}, http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"bad snappy":        {header: http.Header{"Content-Encoding": {"snappy"}}, body: []byte("\x04\xff\xff\xff"), http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"bad protobuf":      {body: []byte("\xff\xff\xff"), http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"bad JSON":          {header: http.Header{"Content-Type": {contentJSON}}, body: []byte(`{"resourceLogs":[`), http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"too large":         {body: make([]byte, 1<<20+1), http: 413, code: codes.InvalidArgument, errorType: "too_large"},
		"profiles version":  {path: profilesURLPath, header: http.Header{"Otlp-Profiles-Development-Version": {"7"}}, http: 400, code: codes.InvalidArgument, errorType: "invalid_payload"},
		"two path segments": {path: logsURLPath + "/", http: 404, code: codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			method, path, body := c.method, c.path, c.body
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = logsURLPath
			}
			if body == nil {
				body = payload
			}
			req := newRequest(t, method, r.url(path), body)
			req.Header.Set("Content-Type", contentProtobuf)
			for k, v := range c.header {
				req.Header[k] = v
			}
			a := r.do(req)
			assert.Equal(t, c.http, a.code)
			s := a.status(t)
			assert.Equal(t, c.code, codes.Code(s.GetCode()), s.GetMessage())
			assert.NotEmpty(t, s.GetMessage())
			assert.Empty(t, a.header.Values("Retry-After"))
			info, _ := details(t, s)
			assert.Equal(t, c.errorType, info.GetReason())
		})
	}
	assert.Empty(t, log.take())
	r.atRest()
}

func TestProfilesOfAnotherVersionAreRefusedBeforeTheyAreRead(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Profiles)
	ctx := grpcmetadata.AppendToOutgoingContext(t.Context(), "otlp-profiles-development-version", "7")
	err := r.export(ctx, otlpwire.Profiles, payload)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	info, _ := details(t, status.Convert(err).Proto())
	assert.Equal(t, "invalid_payload", info.GetReason(), "%v", err)
	ctx = grpcmetadata.AppendToOutgoingContext(t.Context(), "otlp-profiles-development-version", "1")
	require.NoError(t, r.export(ctx, otlpwire.Profiles, payload))
	assert.Len(t, log.take(), 1)
	r.atRest()
}

// A browser asks before it sends.
func TestPreflightRequestsReachCORS(t *testing.T) {
	r := newRig(t, &fakeLog{}, func(c *Config) {
		c.Protocols.HTTP.Get().ServerConfig.CORS = configoptional.Some(confighttp.CORSConfig{AllowedOrigins: []string{"https://shop.example"}})
	})
	req := newRequest(t, http.MethodOptions, r.url(logsURLPath), nil)
	req.Header.Set("Origin", "https://shop.example")
	req.Header.Set("Access-Control-Request-Method", http.MethodPost)
	a := r.do(req)
	assert.Equal(t, http.StatusNoContent, a.code, "%s", a.body)
	assert.Equal(t, "https://shop.example", a.header.Get("Access-Control-Allow-Origin"))
	r.atRest()
}

// A browser is told why it was not admitted, without its body being read. Its
// question beforehand takes no place.
func TestRefusalsReachBrowsers(t *testing.T) {
	for _, auth := range []bool{false, true} {
		t.Run(fmt.Sprintf("authentication %t", auth), func(t *testing.T) {
			r := newRig(t, &fakeLog{}, func(c *Config) {
				c.Admission.MaxRequests = 1
				c.Protocols.HTTP.Get().ServerConfig.CORS = configoptional.Some(confighttp.CORSConfig{AllowedOrigins: []string{"https://shop.example"}, AllowedHeaders: []string{"Password"}})
				if auth {
					c.Protocols.HTTP.Get().ServerConfig.Auth = requireHTTPAuth()
				}
			})
			post := func(path, more string) answer {
				c, err := net.Dial("tcp", r.servers.httpAddr.String())
				require.NoError(t, err)
				defer c.Close()
				// Its body never comes.
				_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: weir\r\nOrigin: https://shop.example\r\nContent-Type: %s\r\nContent-Length: 1000000\r\nPassword: open sesame\r\n%s\r\n", path, contentProtobuf, more)
				require.NoError(t, err)
				return readAnswer(t, c)
			}
			held, refused := r.front.admission.enter()
			require.Nil(t, refused)
			ask := newRequest(t, http.MethodOptions, r.url(logsURLPath), nil)
			ask.Header.Set("Origin", "https://shop.example")
			ask.Header.Set("Access-Control-Request-Method", http.MethodPost)
			assert.Equal(t, http.StatusNoContent, r.do(ask).code)
			for _, encoding := range []string{"", "Content-Encoding: gzip\r\n", "Content-Encoding: snappy\r\n"} {
				a := post(logsURLPath, encoding)
				assert.Equal(t, 503, a.code)
				assert.Equal(t, "1", a.header.Get("Retry-After"))
				assert.Equal(t, "https://shop.example", a.header.Get("Access-Control-Allow-Origin"))
				info, _ := details(t, a.status(t))
				assert.Equal(t, "in_flight_requests", info.GetReason())
			}
			assert.EqualValues(t, 3, r.front.refusals.count(refusal.InFlightRequests, otlpwire.Logs, transportHTTP))
			a := post("/elsewhere", "")
			assert.Equal(t, 404, a.code)
			assert.Equal(t, "https://shop.example", a.header.Get("Access-Control-Allow-Origin"))
			held.leave()
			r.front.admission.close()
			a = post(logsURLPath, "")
			assert.Equal(t, 503, a.code)
			assert.Equal(t, "https://shop.example", a.header.Get("Access-Control-Allow-Origin"))
			info, _ := details(t, a.status(t))
			assert.Equal(t, "shutting_down", info.GetReason())
			if auth { // who the client is comes first
				req := newRequest(t, http.MethodPost, r.url(logsURLPath), []byte{1})
				req.Header.Set("Origin", "https://shop.example")
				assert.Equal(t, http.StatusUnauthorized, r.do(req).code)
			}
			r.atRest()
		})
	}
}

// A refusal that quotes what is not UTF-8 keeps its details on both transports.
func TestRefusalThatQuotesGarbageKeepsItsDetails(t *testing.T) {
	log := &fakeLog{}
	log.set(func(context.Context) error {
		return &refusal.Error{Reason: refusal.VolumeFull, Text: "open \xff\xfe: no space", RetryAfter: time.Second}
	})
	r := newRig(t, log, nil)
	r.requireRefused(codes.Unavailable, 503, "wal_volume_full", "open \uFFFD: no space; retry in 1s")
}
