// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage/statustest"
)

func handlerOf(logs ...Log) *Handler {
	return NewHandler(func() *Document {
		return &Document{Extension: "wal_storage", Generated: time.Now(), Logs: append([]Log(nil), logs...)}
	})
}

// answer is a response, read to its end.
type answer struct {
	StatusCode int
	Header     http.Header
	Body       string
}

func get(t *testing.T, h http.Handler, method, target string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, http.NoBody))
	return answer{w.Code, w.Header(), w.Body.String()}
}

func states(now time.Time) map[string]barrier.Status {
	return map[string]barrier.Status{
		"healthy": statustest.Healthy(now), "refusing": statustest.Refusing(now), "terminal": statustest.Terminal(now),
		"volume_full": statustest.VolumeFull(now), "fresh": statustest.Fresh(now), "tenants": statustest.ManyTenants(now, 100),
		"hostile": statustest.Hostile(now), "zero": {}, "settled": settled(now), "one_waits": oneWaits(now), "unread": unread(now),
	}
}

// settled is a log in which everything is delivered, but not yet reclaimed.
func settled(now time.Time) barrier.Status {
	s := statustest.Healthy(now)
	s.Lanes = s.Lanes[1:]
	return s
}

func oneWaits(now time.Time) barrier.Status {
	s := statustest.Healthy(now)
	s.Lanes[0].State, s.Lanes[0].Oldest = "parked", now.Add(-3*time.Minute)
	return s
}

// unread is a log just opened: it knows how much waits, not yet since when.
func unread(now time.Time) barrier.Status {
	s := statustest.Healthy(now)
	s.Lanes[0].Oldest = time.Time{}
	return s
}

func TestOnlyGetAndHead(t *testing.T) {
	h := handlerOf(Log{ID: "otlp_wal", Status: statustest.Healthy(time.Now())})
	for _, target := range []string{"/", "/api/v1/status", "/assets/style.css"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
			r := get(t, h, method, target)
			assert.Equal(t, http.StatusMethodNotAllowed, r.StatusCode, "%s %s", method, target)
			assert.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
		}
		assert.Equal(t, http.StatusOK, get(t, h, "GET", target).StatusCode, target)
	}
	for _, target := range []string{"/api/v1/status/", "/index.html", "/assets/", "/assets/page.html.tmpl", "/assets/../assets/live.js"} {
		assert.Equal(t, http.StatusNotFound, get(t, h, "GET", target).StatusCode, target)
	}
}

// A HEAD, over a real connection: the recorder keeps bodies that net/http
// leaves out.
func TestHead(t *testing.T) {
	server := httptest.NewServer(handlerOf())
	defer server.Close()
	r, err := server.Client().Head(server.URL + "/api/v1/status")
	require.NoError(t, err)
	defer r.Body.Close()
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Positive(t, r.ContentLength)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Empty(t, b)
}

func TestHeaders(t *testing.T) {
	h := handlerOf()
	for target, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/api/v1/status": "application/json",
		"/assets/style.css": "text/css; charset=utf-8", "/assets/live.js": "text/javascript; charset=utf-8", "/assets/icon.svg": "image/svg+xml",
	} {
		r := get(t, h, "GET", target)
		assert.Equal(t, contentType, r.Header.Get("Content-Type"), target)
		assert.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"), target)
		assert.Equal(t, "no-store", r.Header.Get("Cache-Control"), target)
		csp := r.Header.Get("Content-Security-Policy")
		assert.Contains(t, csp, "default-src 'none'", target)
		assert.Contains(t, csp, "frame-ancestors 'none'", target)
		assert.NotContains(t, csp, "unsafe", target)
		assert.NotContains(t, csp, "http", target)
	}
	assert.Contains(t, get(t, h, "GET", "/assets/style.css?v="+h.assetsVersion).Header.Get("Cache-Control"), "immutable")
}

// Everything the page asks for is served by the handler itself, and nothing it
// serves names another host.
func TestNoExternalReference(t *testing.T) {
	h := handlerOf(Log{ID: "otlp_wal", Status: statustest.Healthy(time.Now())})
	absolute := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]`)
	for _, target := range []string{"/", "/assets/style.css", "/assets/live.js"} {
		text := strings.ReplaceAll(get(t, h, "GET", target).Body, "// SPDX", "")
		assert.Empty(t, absolute.FindAllString(text, -1), target)
		assert.NotContains(t, text, "@import", target)
		assert.NotContains(t, text, "url(", target)
	}
	refs := regexp.MustCompile(`(?:href|src)="([^"#]+)"`).FindAllStringSubmatch(get(t, h, "GET", "/").Body, -1)
	require.NotEmpty(t, refs)
	for _, ref := range refs {
		assert.Equal(t, http.StatusOK, get(t, h, "GET", "/"+ref[1]).StatusCode, ref[1])
	}
}

// elements are the page's elements with what a check needs to know of them.
func elements(t *testing.T, page string) (all []*html.Node) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attr(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val, true
		}
	}
	return "", false
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// In every state: balanced, unique ids, labelled, no inline style or handler
// (the policy would block them), and no element that a name smuggled in.
func TestPageIsSoundInEveryState(t *testing.T) {
	now := time.Now()
	for name, status := range states(now) {
		t.Run(name, func(t *testing.T) {
			page := get(t, handlerOf(Log{ID: "otlp_wal/a", Status: status}, Log{ID: "otlp_wal/b", Status: status}), "GET", "/").Body
			ids := map[string]bool{}
			scripts := 0
			for _, n := range elements(t, page) {
				if id, ok := attr(n, "id"); ok {
					assert.False(t, ids[id], "id %q twice", id)
					ids[id] = true
				}
				for _, a := range n.Attr {
					assert.False(t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "<%s %s>", n.Data, a.Key)
				}
				switch n.Data {
				case "script":
					scripts++
					assert.Empty(t, text(n), "inline script")
				case "img", "iframe", "object", "embed", "form":
					t.Errorf("unexpected <%s>", n.Data)
				case "th":
					_, ok := attr(n, "scope")
					assert.True(t, ok, "a table header without scope: %s", text(n))
				case "table":
					assert.Equal(t, "caption", firstElement(n).Data)
				case "svg":
					_, label := attr(n, "aria-label")
					_, hidden := attr(n, "aria-hidden")
					assert.True(t, label || hidden, "a picture without words")
				case "input", "button":
					_, id := attr(n, "id")
					assert.True(t, id, "<%s> without id", n.Data)
				}
			}
			assert.Equal(t, 1, scripts)
			for _, label := range regexp.MustCompile(`<label for="([^"]+)"`).FindAllStringSubmatch(page, -1) {
				assert.True(t, ids[label[1]], "label for %q", label[1])
			}
			assert.NotContains(t, page, "ZgotmplZ", "html/template refused a value")
			assert.NotContains(t, page, "%!", "a format error")
		})
	}
}

func firstElement(n *html.Node) *html.Node {
	for c := range n.ChildNodes() {
		if c.Type == html.ElementNode {
			return c
		}
	}
	return &html.Node{}
}

func TestHostileNamesStayText(t *testing.T) {
	h := handlerOf(Log{ID: "otlp_wal", Status: statustest.Hostile(time.Now())})
	page := get(t, h, "GET", "/").Body
	assert.NotContains(t, page, "<script>document")
	assert.NotContains(t, page, "<img")
	found := false
	for _, n := range elements(t, page) {
		if n.Data == "th" && text(n) == statustest.HostileName {
			found = true
		}
	}
	assert.True(t, found, "the name is shown as it is")
	assert.NotContains(t, get(t, h, "GET", "/api/v1/status").Body, "<script>", "not even in the JSON, were it taken for HTML")
}

// What each state must say to a person.
func TestPageSays(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		state string
		want  []string
	}{
		{"healthy", []string{"Accepting 421 MiB of 1.0 GiB are kept", "Room left 603 MiB", "Retry-After 8 s what a refusal would advise", "Oldest waiting 42 s", "3 closed of at most 24", "The slowest lane is 61 MiB (1 segment) behind: logs."}},
		{"refusing", []string{"Refusing: byte limit reached", "Room left 2.9 KiB below the byte limit", "told to come back in 41 s. It has been so for 4 min 11 s", "Last refusal: wal backpressure: bytes: unreclaimed 1073738824 + frame 4096", "advised to senders now", "waiting to retry tried 214 times, again in 6 s", "connection refused"}},
		{"terminal", []string{"Stopped: restart needed", "below the limit, but nothing is taken", "First cause: install segment", "input/output error.", "Retry-After none", "9 sealed after a failed write"}},
		{"volume_full", []string{"Volume full", "Room left 603 MiB below the limit, but the volume is full", "no space left on device. Next attempt: in 8 s.", "Retry-After 8 s advised until the next attempt to begin a segment"}},
		{"settled", []string{"Oldest waiting – everything is settled"}},
		{"one_waits", []string{"One lane is not being delivered; what arrives is kept", "Oldest waiting 3 min"}},
		{"unread", []string{"Oldest waiting 42 s since it was received"}},
		{"fresh", []string{"Accepting 0 B of 1.0 GiB", "No lane holds anything.", "no housekeeping pass has run"}},
		{"tenants", []string{"Accepting, with lanes waiting 11 lanes are not being delivered", "11 lanes waiting, of 100", "89 lanes without trouble", "team-094", "team-099", "Pinned at position", "and 7 more"}},
		{"zero", []string{"The log has no segments."}},
	} {
		t.Run(tc.state, func(t *testing.T) {
			page := get(t, handlerOf(Log{ID: "otlp_wal", Status: states(now)[tc.state]}), "GET", "/").Body
			doc, err := html.Parse(strings.NewReader(page))
			require.NoError(t, err)
			for _, want := range tc.want {
				assert.Contains(t, text(doc)+labels(doc), want)
			}
		})
	}
	t.Run("no log", func(t *testing.T) {
		assert.Contains(t, get(t, handlerOf(), "GET", "/").Body, "No log is registered")
	})
	t.Run("damaged", func(t *testing.T) {
		page := get(t, handlerOf(Log{ID: "otlp_wal", Status: statustest.Healthy(now), Failure: damage}), "GET", "/").Body
		doc, err := html.Parse(strings.NewReader(page))
		require.NoError(t, err)
		assert.Contains(t, text(doc), "Failed: mend it and restart "+damage+". It does not pass by itself. What arrives is accepted until")
		assert.Contains(t, page, `class="verdict bad"`)
		assert.Contains(t, page, "<title>Failed")
	})
	t.Run("a log that fails", func(t *testing.T) {
		page := get(t, handlerOf(Log{ID: "otlp_wal", Error: "the log's status panicked: boom"}), "GET", "/").Body
		assert.Contains(t, page, "Does not answer")
		assert.Contains(t, page, "panicked: boom")
	})
}

func labels(n *html.Node) string {
	var all []string
	for d := range n.Descendants() {
		if label, ok := attr(d, "aria-label"); ok {
			all = append(all, label)
		}
	}
	return strings.Join(all, "\n")
}

const damage = "the log cannot be read any further: /var/lib/otelcol/wal/0000000000000000-00000000.wal: damaged at offset 159399: checksum"

func TestVerdict(t *testing.T) {
	now := time.Now()
	with := func(change func(*barrier.Status)) barrier.Status {
		s := statustest.Refusing(now)
		change(&s)
		return s
	}
	for _, tc := range []struct {
		name    string
		status  barrier.Status
		failure string
		want    string
	}{
		{"accepting", statustest.Healthy(now), "", "accepting"},
		{"parked lane", statustest.ManyTenants(now, 10), "", "degraded"},
		{"refusing", statustest.Refusing(now), "", "refusing"},
		{"retrying beside refusing", with(func(s *barrier.Status) { s.Rotation.State = "retrying" }), "", "refusing"},
		{"retrying", with(func(s *barrier.Status) { s.Rotation.State, s.Latch.Refusing = "retrying", false }), "", "degraded"},
		{"volume full beside refusing", with(func(s *barrier.Status) { s.Rotation.State = "volume_full" }), "", "volume_full"},
		{"unwritable", with(func(s *barrier.Status) { s.Rotation.State = "unwritable" }), "", "unwritable"},
		{"damaged", statustest.Healthy(now), damage, "failed"},
		{"damaged, a lane waits", statustest.ManyTenants(now, 10), damage, "failed"},
		{"damaged beside refusing", statustest.Refusing(now), damage, "failed"},
		{"terminal beside damaged", with(func(s *barrier.Status) { s.Rotation.State = "terminal" }), damage, "terminal"},
		{"terminal", with(func(s *barrier.Status) { s.Rotation.State = "terminal" }), "", "terminal"},
	} {
		assert.Equal(t, tc.want, judge(&tc.status, tc.failure, now).State, tc.name)
	}
}

// A page of very many segments and lanes stays of bounded size, and says what
// it leaves out.
func TestPageIsBounded(t *testing.T) {
	s := statustest.ManyTenants(time.Now(), 5000)
	for i := range 100_000 {
		s.Segments = append(s.Segments, barrier.SegmentStatus{Name: fmt.Sprintf("%016x-%08x.wal", i, i), State: "closed", HeldBy: []string{"x"}})
	}
	r := get(t, handlerOf(Log{ID: "otlp_wal", Status: s}), "GET", "/")
	page := r.Body
	assert.Less(t, len(page), 1<<20)
	assert.Contains(t, page, "more segments")
	assert.Contains(t, page, fmt.Sprintf("%d more are in the", 100_008-mostRows))
}

func TestJSON(t *testing.T) {
	now := time.Now()
	log := Log{
		ID: "otlp_wal", Status: statustest.Refusing(now),
		Maintenance: Maintenance{Housekeeping: Pass{Interval: 10 * time.Second, Runs: 3, Progress: barrier.Progress{Planned: 2, Removed: 1, Remaining: 1}}},
		History:     []Sample{{At: now.Add(-time.Minute), Unreclaimed: 7, Refusing: true}},
	}
	raw := get(t, handlerOf(log, Log{ID: "another", Error: "broken"}), "GET", "/api/v1/status").Body

	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &doc))
	assert.InDelta(t, 1, doc["version"], 0)
	assert.Equal(t, "wal_storage", doc["extension"])
	logs := doc["logs"].([]any)
	require.Len(t, logs, 2)
	assert.Equal(t, "another", logs[0].(map[string]any)["id"], "sorted by id")
	assert.Equal(t, "unknown", logs[0].(map[string]any)["verdict"].(map[string]any)["state"])

	got := logs[1].(map[string]any)
	for path, want := range map[string]any{
		"limit": 1073741824.0, "unreclaimed": 1073738824.0, "refusing.refusing": true, "refusing.cause": "bytes",
		"verdict.state": "refusing", "retry_after_ns": 41e9, "retain_floor.state": "min", "rotation.state": "healthy",
		"maintenance.housekeeping.last_progress.removed": 1.0, "maintenance.housekeeping.interval_ns": 1e10,
		"tenants.limit": 1024.0, "prepared_segment": true,
	} {
		var v any = got
		for key := range strings.SplitSeq(path, ".") {
			v = v.(map[string]any)[key]
		}
		assert.Equal(t, want, v, path)
	}
	assert.Len(t, got["segments"], 8)
	assert.Len(t, got["lanes"], 2)
	assert.InDelta(t, 7, got["history"].([]any)[0].(map[string]any)["unreclaimed"], 0)

	// It reads back into the same document.
	var again Document
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&again))
	assert.Equal(t, log.Segments, again.Logs[1].Segments)
	assert.Equal(t, log.Maintenance, again.Logs[1].Maintenance)
}

// Many readers cost the logs one look per half second.
func TestReadersShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		h := NewHandler(func() *Document {
			looks.Add(1)
			time.Sleep(100 * time.Millisecond)
			return &Document{Generated: time.Now()}
		})
		for range 50 {
			go get(t, h, "GET", "/api/v1/status")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 1, looks.Load())
		get(t, h, "GET", "/")
		assert.EqualValues(t, 1, looks.Load())
		time.Sleep(shareFor)
		get(t, h, "GET", "/")
		assert.EqualValues(t, 2, looks.Load())
	})
}

// A log that hangs costs its readers five seconds and the process one
// goroutine, however many ask.
func TestHangingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var looks atomic.Int64
		h := NewHandler(func() *Document {
			looks.Add(1)
			<-release
			return &Document{Generated: time.Now()}
		})
		for range 3 {
			begin := time.Now()
			r := get(t, h, "GET", "/")
			assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
			assert.Contains(t, r.Body, "a log does not answer")
			assert.Equal(t, answerWithin, time.Since(begin))
		}
		assert.EqualValues(t, 1, looks.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		h.Wait(ctx)
		assert.Equal(t, time.Second, time.Since(begin))

		close(release)
		h.Wait(t.Context())
		assert.Equal(t, http.StatusOK, get(t, h, "GET", "/").StatusCode)
		h.Wait(t.Context())
	})
}
