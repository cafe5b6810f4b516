// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed assets
var embedded embed.FS

var page = template.Must(template.ParseFS(embedded, "assets/page.html.tmpl"))

const (
	// shareFor is how long one look at the logs serves every reader: a log
	// copies its segments and lanes for each.
	shareFor = 500 * time.Millisecond

	// answerWithin bounds how long a reader waits for logs that do not answer.
	answerWithin = 5 * time.Second

	contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// Handler serves the page at /, the JSON at /api/v1/status and the page's
// assets. It is safe for concurrent use.
type Handler struct {
	look          func() *Document
	assets        map[string]asset
	assetsVersion string

	mu      sync.Mutex
	latest  *Document     // guarded by mu
	at      time.Time     // of latest; guarded by mu
	looking chan struct{} // closed when the running look is over; nil without one; guarded by mu
}

type asset struct {
	contentType string
	body        []byte
}

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// NewHandler serves what look returns. look may be slow but must not be
// changed by its callers afterwards; it is never called twice at once.
func NewHandler(look func() *Document) *Handler {
	h := &Handler{look: look, assets: map[string]asset{}}
	sum := sha256.New()
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		panic(err) // it is part of the binary
	}
	for _, e := range entries {
		contentType, ok := contentTypes[path.Ext(e.Name())]
		if !ok {
			continue
		}
		body, err := embedded.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum.Write(body)
		h.assets["/assets/"+e.Name()] = asset{contentType, body}
	}
	h.assetsVersion = hex.EncodeToString(sum.Sum(nil)[:6])
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")

	a, isAsset := h.assets[r.URL.Path]
	known := isAsset || r.URL.Path == "/" || r.URL.Path == "/api/v1/status"
	switch {
	case !known:
		http.Error(w, "not found: the status page is at /, its JSON at /api/v1/status", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the status page is read-only: only GET and HEAD are answered", http.StatusMethodNotAllowed)
	case isAsset:
		if r.URL.Query().Get("v") == h.assetsVersion {
			header.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		respond(w, a.contentType, a.body)
	default:
		h.serveStatus(w, r)
	}
}

func (h *Handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	doc, err := h.document(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	var body bytes.Buffer
	contentType := "text/html; charset=utf-8"
	if r.URL.Path == "/" {
		v := newView(doc)
		v.Assets = h.assetsVersion
		err = page.ExecuteTemplate(&body, "page.html.tmpl", v)
	} else {
		contentType = "application/json"
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(doc)
	}
	if err != nil {
		http.Error(w, "render the status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	respond(w, contentType, body.Bytes())
}

func respond(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body) // net/http leaves the body of a HEAD out; a reader that went away is no error
}

var errNoAnswer = errors.New("a log does not answer; try again")

// document is a fresh look at the logs, or one at most shareFor old. One look
// runs at a time and outlives a reader that gave up, for the next one.
func (h *Handler) document(ctx context.Context) (*Document, error) {
	h.mu.Lock()
	if h.latest != nil && time.Since(h.at) < shareFor {
		defer h.mu.Unlock()
		return h.latest, nil
	}
	if h.looking == nil {
		h.looking = make(chan struct{})
		go h.lookNow(h.looking)
	}
	looking := h.looking
	h.mu.Unlock()

	select {
	case <-looking:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.latest, nil
	case <-ctx.Done():
		return nil, errNoAnswer
	}
}

func (h *Handler) lookNow(done chan struct{}) {
	doc := h.look()
	doc.Version = documentVersion
	for i := range doc.Logs {
		l := &doc.Logs[i]
		if l.Error != "" {
			l.Verdict = Verdict{State: "unknown", Title: "Does not answer", Text: l.Error}
			continue
		}
		l.Verdict = judge(&l.Status, l.Failure, doc.Generated)
	}
	slices.SortFunc(doc.Logs, func(a, b Log) int { return strings.Compare(a.ID, b.ID) })

	h.mu.Lock()
	h.latest, h.at, h.looking = doc, time.Now(), nil
	h.mu.Unlock()
	close(done)
}

// Wait returns when no look is running or ctx ends.
func (h *Handler) Wait(ctx context.Context) {
	h.mu.Lock()
	looking := h.looking
	h.mu.Unlock()
	if looking == nil {
		return
	}
	select {
	case <-looking:
	case <-ctx.Done():
	}
}
