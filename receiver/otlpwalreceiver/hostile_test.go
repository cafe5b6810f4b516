// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelweir/weir/internal/otlpwire"
)

// heapPeak is the most the heap held while f ran.
func heapPeak(f func()) uint64 {
	done := make(chan struct{})
	var peak uint64
	var watch sync.WaitGroup
	watch.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-done:
				return
			case <-look.C:
			}
		}
	})
	f()
	close(done)
	watch.Wait()
	return peak
}

func TestE02_Bombs(t *testing.T) {
	const (
		blown  = 32 << 20 // what each decompresses to
		limit  = 1 << 20
		atOnce = 50
	)
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) {
		c.WAL.MaxFrameSize = 512 * KiB
		c.Protocols.HTTP.Get().ServerConfig.MaxRequestBodySize = limit
		c.Protocols.GRPC.Get().MaxRecvMsgSizeMiB = 1
		c.Admission.MaxInFlightBytes = 16 * MiB
		c.Admission.BodyTimeout = time.Minute // 50 clients compress at once
	})
	zeros := make([]byte, blown)

	for _, enc := range []string{"gzip", "zlib", "deflate", "zstd", "snappy", "x-snappy-framed", "lz4"} {
		bomb := compress(t, enc, zeros)
		t.Run("http "+enc, func(t *testing.T) {
			var all sync.WaitGroup
			peak := heapPeak(func() {
				for i := range atOnce {
					var body io.Reader = bytes.NewReader(bomb)
					if i%2 == 0 {
						body = io.MultiReader(body) // hides the length: chunked
					}
					all.Go(func() { r.sendBomb(t, enc, body) })
				}
				all.Wait()
			})
			// README, "Memory", and what the test itself holds.
			assert.Less(t, peak, uint64(r.cfg.Admission.MaxInFlightBytes)+atOnce*16<<20+blown+64<<20, "heap")
			// Alone, nothing else can be the reason.
			a := r.post(otlpwire.Logs, contentProtobuf, bomb, "Content-Encoding", enc)
			assert.Equal(t, http.StatusRequestEntityTooLarge, a.code, "%s", a.body)
		})
	}
	for _, enc := range []string{"gzip", "zstd", "snappy"} {
		t.Run("grpc "+enc, func(t *testing.T) {
			require.NotNil(t, encoding.GetCompressor(enc))
			var all sync.WaitGroup
			for range atOnce {
				all.Go(func() {
					err := r.export(t.Context(), otlpwire.Logs, zeros[:limit+1], grpc.UseCompressor(enc))
					// grpc-go's own answer; contract §2.
					assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
				})
			}
			all.Wait()
		})
	}
	assert.Empty(t, log.take())
	r.atRest()
}

// sendBomb posts a body that decompresses to more than is allowed.
func (r *rig) sendBomb(t *testing.T, enc string, body io.Reader) {
	req, err := http.NewRequest(http.MethodPost, r.url(logsURLPath), body)
	if !assert.NoError(t, err) {
		return
	}
	req.Header.Set("Content-Type", contentProtobuf)
	req.Header.Set("Content-Encoding", enc)
	resp, err := r.client.Do(req)
	if err != nil {
		return // the server closed the connection while the bomb was still being sent
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if !assert.NoError(t, err) {
		return
	}
	a := answer{code: resp.StatusCode, header: resp.Header, body: b}
	info, _ := details(t, a.status(t))
	switch a.code {
	case http.StatusRequestEntityTooLarge:
		assert.Equal(t, "too_large", info.GetReason())
	case http.StatusServiceUnavailable: // others hold the budget
		assert.Contains(t, info.GetReason(), "in_flight_")
		assert.Equal(t, "1", a.header.Get("Retry-After"))
	default:
		assert.Fail(t, "unexpected answer", "%d %s", a.code, a.status(t).GetMessage())
	}
}

func TestE02_BodiesWithinTheLimitInEveryEncoding(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	payload, json := sample(t, otlpwire.Logs)
	for _, enc := range []string{"", "gzip", "zlib", "deflate", "zstd", "snappy", "x-snappy-framed", "lz4"} {
		for contentType, body := range map[string][]byte{contentProtobuf: payload, contentJSON: json} {
			var header []string
			if enc != "" {
				header = []string{"Content-Encoding", enc}
			}
			a := r.post(otlpwire.Logs, contentType, compress(t, enc, body), header...)
			assert.Equal(t, 200, a.code, "%s %s: %s", enc, contentType, a.body)
			frames := log.take()
			if assert.Len(t, frames, 1, "%s %s", enc, contentType) {
				assert.Equal(t, payload, frames[0].payload, "%s %s", enc, contentType)
			}
		}
	}
	r.atRest()
}

// What pdata would not accept is not acknowledged; what it accepts is kept as
// it was sent.
func TestE09_OddPayloads(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Logs)
	unknown := protowire.AppendBytes(protowire.AppendTag(bytes.Clone(payload), 99, protowire.BytesType), []byte("from the future"))
	twice := append(bytes.Clone(payload), payload...)
	notUTF8 := bytes.Replace(payload, []byte("hello, world"), []byte("hello,\xff\xfe\xfdrld"), 1)

	for name, c := range map[string]struct {
		payload []byte
		items   uint32 // 0 = refused
	}{
		"unknown field":     {unknown, 3},
		"duplicated field":  {twice, 6},
		"invalid UTF-8":     {notUTF8, 3},
		"truncated":         {payload[:len(payload)-1], 0},
		"wrong wire type":   {protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), 0},
		"length beyond end": {append(protowire.AppendTag(nil, 1, protowire.BytesType), 0xff, 0xff, 0xff, 0xff, 0x0f), 0},
		"field number 0":    {[]byte{0x02, 0x00}, 0},
		"endless varint":    {bytes.Repeat([]byte{0xff}, 12), 0},
		"group without end": {protowire.AppendTag(nil, 5, protowire.StartGroupType), 0},
		"too deep":          {nested(40), 0},
		"deep enough":       {nested(20), 1},
		"dense":             {bytes.Repeat([]byte{0x0a, 0x00}, 1<<20), 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.export(t.Context(), otlpwire.Logs, c.payload)
			a := r.post(otlpwire.Logs, contentProtobuf, c.payload)
			frames := log.take()
			if c.items > 0 {
				require.NoError(t, err)
				require.Equal(t, 200, a.code, "%s", a.body)
				require.Len(t, frames, 2)
				for _, f := range frames {
					assert.Equal(t, c.items, f.frame.Items)
					assert.Equal(t, c.payload, f.payload)
				}
				return
			}
			assert.Empty(t, frames)
			assert.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
			assert.Equal(t, 400, a.code)
			info, _ := details(t, a.status(t))
			assert.Equal(t, "invalid_payload", info.GetReason())
			assert.Contains(t, a.status(t).GetMessage(), "invalid payload: ")
			assert.Equal(t, a.status(t).GetMessage(), status.Convert(err).Message(), "the same words on both transports")
		})
	}
	r.atRest()
}

// nested is a log record whose body is depth arrays inside each other.
func nested(depth int) []byte {
	value := []byte{}
	for range depth {
		array := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), value)
		value = protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), array)
	}
	for _, field := range []protowire.Number{5, 2, 2, 1} { // body, log_records, scope_logs, resource_logs
		value = protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), value)
	}
	return value
}

func TestE03_JSONThatWouldBlowUpIsRefusedBeforeItIsDecoded(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	deep := func(n int) string {
		return `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` +
			strings.Repeat(`{"arrayValue":{"values":[`, n) + strings.Repeat(`]}}`, n) + `}]}]}]}`
	}
	for name, c := range map[string]struct {
		s       signal
		json    string
		refused string
	}{
		"empty spans":                {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{},", 1<<20) + `{}]}]}]}`, "more than 32 times as much"},
		"empty with space":           {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{ } ,", 1<<20) + `{}]}]}]}`, "more than 32 times as much"},
		"null spans":                 {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("null,", 1<<20) + `null]}]}]}`, "more than 32 times as much"},
		"null log records":           {otlpwire.Logs, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat("null ,", 1<<20) + `null]}]}]}`, "more than 32 times as much"},
		"ends of objects":            {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("},", 1<<20) + `}]}]}]}`, "expected an object or null"},
		"few null spans":             {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("null,", 1<<10) + `{}]}]}]}`, ""},
		"few empty spans":            {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{},", 1<<10) + `{}]}]}]}`, ""},
		"deep":                       {otlpwire.Logs, deep(5000), "nests deeper than 148 brackets"},
		"deeper than Measure allows": {otlpwire.Logs, deep(40), "invalid payload: "},
		"deep enough":                {otlpwire.Logs, deep(20), ""},
		"brackets in strings": {otlpwire.Logs, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"` +
			strings.Repeat(`[{\"`, 1000) + `"}}]}]}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.post(c.s, contentJSON, []byte(c.json))
			if c.refused == "" {
				assert.Equal(t, 200, a.code, "%s", a.body)
				assert.Len(t, log.take(), 1)
				return
			}
			assert.Equal(t, 400, a.code)
			assert.Contains(t, a.status(t).GetMessage(), c.refused)
			assert.Empty(t, log.take())
		})
	}
	r.atRest()
}

// After its first error pdata's JSON decoder no longer knows where it is, and
// makes an element of each ",1" that follows, wherever it stands. So it is given
// nothing that it would report an error on.
func TestE03_JSONThatTheDecoderWouldLoseItsPlaceInIsRefused(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	fill := strings.Repeat(",1", 1<<20) // some 200 MiB, read as elements
	patterns := map[string]string{
		"elements of another type": `[1FILL]`,
		"inside a string":          `["FILL"]`,
		"name within a value":      `[{"FIELD":{"FILL":1}}]`,
		"name after a fraction":    `[{"FIELD":1.5,"FILL":0}]`,
		"name after a bool":        `[{"FIELD":true,"FILL":0}]`,
		"name after an overflow":   `[{"FIELD":"99999999999999999999","FILL":0}]`,
		"name after an exponent":   `[{"FIELD":1e1,"FILL":0}]`,
		"name after an empty one":  `[{"":1,"FILL":0}]`,
		"after an unknown number":  `[{"unknown":1e999,"FILL":0}]`,
		"in an unknown field":      `[{"unknown":[01FILL]}]`,
		"string after an object":   `[{}"FILL"]`,
		"no array":                 `"FILL"`,
		"an object for the array":  `{"FILL":1}`,
	}
	for place, c := range map[string]struct {
		s           signal
		field       string // of the element, no string and no message
		open, close string
	}{
		"resources":   {otlpwire.Traces, "deprecatedScopeSpans", `{"resourceSpans":`, `}`},
		"attributes":  {otlpwire.Traces, "keyStrindex", `{"resourceSpans":[{"resource":{"attributes":`, `}}]}`},
		"spans":       {otlpwire.Traces, "startTimeUnixNano", `{"resourceSpans":[{"scopeSpans":[{"spans":`, `}]}]}`},
		"log records": {otlpwire.Logs, "time_unix_nano", `{"resource_logs":[{"scope_logs":[{"log_records":`, `}]}]}`},
		"values":      {otlpwire.Logs, "intValue", `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"arrayValue":{"values":`, `}}}]}]}]}`},
		"points":      {otlpwire.Metrics, "count", `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":`, `}}]}]}]}`},
		"samples":     {otlpwire.Profiles, "stackIndex", `{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"samples":`, `}]}]}]}`},
	} {
		for name, pattern := range patterns {
			t.Run(place+" "+name, func(t *testing.T) {
				body := []byte(strings.NewReplacer("FIELD", c.field, "FILL", fill).Replace(c.open + pattern + c.close))
				var a answer
				before := heapLive()
				peak := heapPeak(func() { a = r.post(c.s, contentJSON, body) })
				assert.Less(t, float64(int64(peak)-before), 16*float64(len(body)), "heap")
				assert.Equal(t, 400, a.code)
				info, _ := details(t, a.status(t))
				assert.Equal(t, "invalid_payload", info.GetReason())
				assert.Regexp(t, `^invalid payload: malformed: byte \d+, Export\w+ServiceRequest\.\w+.*: `, a.status(t).GetMessage())
			})
		}
	}
	assert.Empty(t, log.take())
	r.atRest()
}

// Converting JSON may cost more than the whole budget: alone it is done all the
// same, and nothing of it stays charged.
func TestE01_LoneJSONRequestIsNeverShortOfMemory(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) {
		c.WAL.MaxFrameSize = MiB
		c.Admission.MaxInFlightBytes = 8 * MiB
	})
	protobuf, json := sampleOf(t, otlpwire.Logs, 5000)
	require.Greater(t, shapeOf(json).decodedSize(len(json)), int(r.cfg.Admission.MaxInFlightBytes))
	a := r.post(otlpwire.Logs, contentJSON, json)
	require.Equal(t, 200, a.code, "%s", a.body)
	frames := log.take()
	require.Len(t, frames, 1)
	assert.Equal(t, protobuf, frames[0].payload)
	r.atRest()

	// Not alone, it has to wait.
	require.True(t, r.front.admission.budget.TryAcquire(1))
	a = r.post(otlpwire.Logs, contentJSON, json)
	assert.Equal(t, 503, a.code)
	info, _ := details(t, a.status(t))
	assert.Equal(t, "in_flight_bytes", info.GetReason())
	r.front.admission.budget.Release(1)
	r.atRest()
}

// The bound on what JSON decodes to holds for honest and for hostile data: the
// heap that the decoded form keeps is below it.
func TestJSONShapeBoundsWhatIsDecoded(t *testing.T) {
	for _, s := range signals {
		_, json := sample(t, s)
		shape := shapeOf(json)
		assert.LessOrEqual(t, shape.decodedSize(len(json)), maxDensity*len(json), "%s: honest data is no bomb", signalNames[s])
	}
	for name, c := range map[string]struct {
		s    signal
		json string
	}{
		"spans":       {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("{},", 20_000) + `{}]}]}]}`},
		"events":      {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"events":[` + strings.Repeat("{},", 20_000) + `{}]}]}]}]}`},
		"histograms":  {otlpwire.Metrics, `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"exponentialHistogram":{"dataPoints":[` + strings.Repeat("{},", 20_000) + `{}]}}]}]}]}`},
		"buckets":     {otlpwire.Metrics, `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"bucketCounts":[` + strings.Repeat("1,", 20_000) + `1]}]}}]}]}]}`},
		"attributes":  {otlpwire.Logs, `{"resourceLogs":[{"resource":{"attributes":[` + strings.Repeat("{},", 20_000) + `{}]}}]}`},
		"values":      {otlpwire.Logs, `{"resourceLogs":[{"resource":{"attributes":[` + strings.Repeat(`{"value":{"kvlistValue":{}}},`, 20_000) + `{}]}}]}`},
		"profiles":    {otlpwire.Profiles, `{"resourceProfiles":[{"scopeProfiles":[{"profiles":[` + strings.Repeat("{},", 20_000) + `{}]}]}]}`},
		"log records": {otlpwire.Logs, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat("{},", 20_000) + `{}]}]}]}`},

		"null spans":       {otlpwire.Traces, `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Repeat("null,", 20_000) + `{}]}]}]}`},
		"null log records": {otlpwire.Logs, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat("null,", 20_000) + `{}]}]}]}`},
		"null histograms":  {otlpwire.Metrics, `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"exponentialHistogram":{"dataPoints":[` + strings.Repeat("null,", 20_000) + `{}]}}]}]}]}`},
		"null attributes":  {otlpwire.Logs, `{"resourceLogs":[{"resource":{"attributes":[` + strings.Repeat("null,", 20_000) + `{}]}}]}`},
		"strings":          {otlpwire.Profiles, `{"dictionary":{"stringTable":[` + strings.Repeat(`"",`, 20_000) + `""]}}`},
		"null strings":     {otlpwire.Profiles, `{"dictionary":{"stringTable":[` + strings.Repeat(`null,`, 20_000) + `""]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			bound := shapeOf([]byte(c.json)).decodedSize(len(c.json))
			data := newExportRequest(c.s)
			before := heapLive()
			require.NoError(t, data.UnmarshalJSON([]byte(c.json)))
			held := heapLive() - before
			assert.LessOrEqual(t, held, int64(bound), "%d bytes of JSON", len(c.json))
			_, err := data.MarshalProto() // keeps data alive
			require.NoError(t, err)
		})
	}
}

// A client that is refused by authentication has no message read.
func TestAuthenticationComesBeforeTheBody(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) {
		c.Protocols.GRPC.Get().Auth = requireAuth()
		c.Protocols.HTTP.Get().ServerConfig.Auth = requireHTTPAuth()
	})
	payload, _ := sample(t, otlpwire.Logs)

	// The message never comes, the refusal does.
	c := dialGRPC(t, r)
	c.headers(1, "/"+grpcServices[otlpwire.Logs]+"/Export")
	assert.Equal(t, codes.Unauthenticated, c.status(1))

	h := dialSlow(t, r, logsURLPath, "", len(payload))
	_, err := h.Write(payload) // net/http reads the rest of a short body before it answers
	require.NoError(t, err)
	a := readAnswer(t, h)
	assert.Equal(t, http.StatusUnauthorized, a.code)
	assert.Equal(t, codes.Unauthenticated, codes.Code(a.status(t).GetCode()))
	assert.Equal(t, "no password", a.status(t).GetMessage())
	assert.Empty(t, a.header.Values("Retry-After"))

	require.NoError(t, r.export(withPassword(context.Background()), otlpwire.Logs, payload))
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentProtobuf, payload, "Password", "open sesame").code)
	assert.Len(t, log.take(), 2)
	r.atRest()
}

// Headers are held before anything is counted: there are few of them.
func TestE01_HeadersAreFew(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Logs)
	value := strings.Repeat("h", 8<<10)
	message := append([]byte{0, 0, 0, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	for n, served := range map[int]bool{14: true, 17: false, 1000: false} {
		name := strconv.Itoa(n*len(value)>>10) + " KiB"
		t.Run("grpc "+name, func(t *testing.T) {
			c := dialGRPC(t, r)
			var more []string
			for i := range n {
				more = append(more, "x-"+strconv.Itoa(i), value)
			}
			taken := c.manyHeaders(1, "/"+grpcServices[otlpwire.Logs]+"/"+exportMethod, more...)
			if served {
				require.NoError(t, taken)
				c.data(1, message, true)
				assert.Equal(t, codes.OK, c.status(1))
				return
			}
			_ = c.conn.SetReadDeadline(time.Now().Add(waitFor))
			for {
				frame, err := c.fr.ReadFrame()
				if err != nil {
					assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
					return // the connection was closed
				}
				if rst, ok := frame.(*http2.RSTStreamFrame); ok {
					assert.EqualValues(t, 1, rst.StreamID)
					return
				}
				require.NotEqual(t, http2.FrameHeaders, frame.Header().Type, "it was answered")
			}
		})
		t.Run("http "+name, func(t *testing.T) {
			req := newRequest(t, http.MethodPost, r.url(logsURLPath), payload)
			req.Header.Set("Content-Type", contentProtobuf)
			for i := range n {
				req.Header.Set("X-"+strconv.Itoa(i), value)
			}
			resp, err := r.client.Do(req)
			if err != nil { // closed while the client wrote
				assert.False(t, served, "%v", err)
				return
			}
			defer resp.Body.Close()
			assert.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusRequestHeaderFieldsTooLarge}[served], resp.StatusCode)
		})
	}
	assert.Len(t, log.take(), 2)
	r.atRest()
}

// However a client cuts its message, the budget holds little more than its
// bytes.
func TestE01_MessagesInSmallFrames(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) { c.Admission.BodyTimeout = time.Minute })
	for _, size := range []int{1025, 1500, 2049, 4097, 8193, 16 << 10} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			c := dialGRPC(t, r)
			c.headers(1, "/"+grpcServices[otlpwire.Logs]+"/"+exportMethod)
			c.data(1, []byte{0, 0, 1, 0, 0}, false) // 64 KiB follow, of which the window lets most through
			n := (60 << 10) / size
			for range n {
				c.data(1, make([]byte, size), false)
			}
			c.settled()
			held := r.front.admission.budget.Held()
			assert.GreaterOrEqual(t, held, uint64(n*size))
			assert.LessOrEqual(t, float64(held), 1.3*float64(n*size))
			c.reset(1)
			c.conn.Close() // grpc-go keeps a connection's last frame
			r.collected()
		})
	}
	r.atRest()
	for n := 1025; n <= 16<<10; n++ {
		buf := pieces.Get(n)
		require.LessOrEqual(t, float64(cap(*buf)), 1.25*float64(n))
		pieces.Put(buf)
	}
}
