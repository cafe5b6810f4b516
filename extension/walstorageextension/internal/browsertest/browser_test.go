// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage"
	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage/statustest"
)

// browser is one Chromium for all tests; every test has a tab of its own.
var browser context.Context

func TestMain(m *testing.M) {
	allocator, stopAllocator := chromedp.NewExecAllocator(
		context.Background(),
		chromedp.Headless,
		chromedp.NoFirstRun,
		chromedp.NoSandbox, // tests run as root in containers
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
	)
	var stop context.CancelFunc
	browser, stop = chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "start Chromium:", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	stopAllocator()
	os.Exit(code)
}

// site is a status page whose logs the test sets.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	logs []statuspage.Log
}

func newSite(t *testing.T, logs ...statuspage.Log) *site {
	t.Helper()
	s := &site{logs: logs}
	s.Server = httptest.NewServer(statuspage.NewHandler(func() *statuspage.Document {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &statuspage.Document{Extension: "wal_storage", Generated: time.Now(), Logs: append([]statuspage.Log(nil), s.logs...)}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) set(logs ...statuspage.Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = logs
}

// logOf is a log in the given state, with an hour behind it.
func logOf(id string, state func(time.Time) barrier.Status) statuspage.Log {
	now := time.Now()
	status := state(now)
	l := statuspage.Log{
		ID: id, Status: status,
		Maintenance: statuspage.Maintenance{
			Barrier:      statuspage.Pass{Next: now.Add(21 * time.Second), Interval: 30 * time.Second, Runs: 211, Started: now.Add(-9 * time.Second), Took: 14 * time.Millisecond},
			Housekeeping: statuspage.Pass{Next: now.Add(4 * time.Second), Interval: 10 * time.Second, Runs: 644, Started: now.Add(-6 * time.Second), Took: 3 * time.Millisecond, Progress: barrier.Progress{Planned: 2, Removed: 2}},
		},
	}
	for i := 360; i > 0; i-- {
		fill := uint64(360-i) * status.Unreclaimed / 360
		l.History = append(l.History, statuspage.Sample{At: now.Add(-time.Duration(i) * 10 * time.Second), Unreclaimed: fill, Refusing: status.Latch.Refusing && i < 26})
	}
	return l
}

// tab is one open page and what it asked for and complained of.
type tab struct {
	ctx context.Context

	mu       sync.Mutex
	requests []string
	problems []string
}

func open(t *testing.T, before ...step) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancelTimeout)
	b := &tab{ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch event := event.(type) {
		case *network.EventRequestWillBeSent:
			b.requests = append(b.requests, event.Request.URL)
		case *log.EventEntryAdded:
			b.problems = append(b.problems, event.Entry.Text)
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, event.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, append([]step{command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{})}, before...)...)
	return b
}

type step = chromedp.Action[chromedp.Void]

// command is a protocol command as a step.
func command[P, R any](c cdp.Command[P, R], params P) step {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, c, params)
		return err
	})
}

func (b *tab) run(t *testing.T, steps ...step) {
	t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eval is the value of a JavaScript expression in the page.
func eval[T any](t *testing.T, b *tab, expression string, options ...chromedp.EvaluateOption) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		t.Fatalf("%v: %s", err, expression)
	}
	return v
}

// until waits for a JavaScript condition in the page. It asks from outside:
// the page's policy forbids what a poller inside it would need.
func (b *tab) until(t *testing.T, condition string) {
	t.Helper()
	for !eval[bool](t, b, condition) {
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *tab) seen() (requests, problems []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.requests...), append([]string(nil), b.problems...)
}

const bodyText = `document.body.innerText.replaceAll("\u00a0", " ")`

// The page swaps in what changed, and leaves alone what the reader did.
func TestF03_UpdatesLive(t *testing.T) {
	tenants := func(now time.Time) barrier.Status { return statustest.ManyTenants(now, 100) }
	s := newSite(t, logOf("otlp_wal", tenants))
	b := open(t)
	b.run(t, chromedp.Navigate(s.URL))

	// The reader opens the quiet lanes and filters them.
	b.run(t,
		chromedp.Click(chromedp.CSS("#log-0-quiet summary")),
		chromedp.SendKeys(chromedp.CSS("#log-0-filter"), "team-09"),
	)
	const visible = `[...document.querySelectorAll("#log-0-quiet-table tbody tr")].filter((r) => r.offsetParent).length`
	rows := eval[int](t, b, visible)
	if rows == 0 || rows > 10 {
		t.Fatalf("%d rows are shown for team-09, want some of the ten", rows)
	}

	changed := logOf("otlp_wal", func(now time.Time) barrier.Status {
		s := tenants(now)
		s.Unreclaimed = 123 << 20
		s.Lanes[1].LastError = "a new trouble"
		s.Lanes[1].State = "parked"
		return s
	})
	s.set(changed)
	b.until(t, bodyText+`.includes("123 MiB") && `+bodyText+`.includes("a new trouble")`)
	if after := eval[int](t, b, visible); after != rows {
		t.Errorf("%d rows are shown after the update, %d before: the filter is lost", after, rows)
	}
	if !eval[bool](t, b, `document.getElementById("log-0-quiet").open && document.getElementById("log-0-filter").value === "team-09"`) {
		t.Error("the update closed what the reader had opened")
	}

	// Another verdict, and then another log.
	s.set(logOf("otlp_wal", func(now time.Time) barrier.Status {
		s := tenants(now)
		s.Latch = statustest.Refusing(now).Latch
		return s
	}))
	b.until(t, `document.querySelector(".verdict").classList.contains("bad") && document.title.startsWith("Refusing")`)
	s.set(changed, logOf("otlp_wal/second", statustest.Healthy))
	b.until(t, `document.querySelectorAll("section.log").length === 2`)
	if !eval[bool](t, b, `document.getElementById("log-0-quiet").open`) {
		t.Error("a new log closed what the reader had opened")
	}
	if _, problems := b.seen(); len(problems) > 0 {
		t.Errorf("the browser complains: %q", problems)
	}
}

func TestF03_Pause(t *testing.T) {
	s := newSite(t, logOf("otlp_wal", statustest.Healthy))
	b := open(t)
	b.run(t, chromedp.Navigate(s.URL), chromedp.Click(chromedp.CSS("#pause")))
	s.set(logOf("otlp_wal", statustest.Refusing))
	before := eval[string](t, b, bodyText)
	eval[chromedp.Void](t, b, `new Promise((done) => setTimeout(done, 5000))`, chromedp.EvalAwaitPromise) // more than two updates
	if before != eval[string](t, b, bodyText) {
		t.Error("the page changed while paused")
	}
	b.run(t, chromedp.Click(chromedp.CSS("#pause")))
	b.until(t, bodyText+`.includes("Refusing: byte limit reached")`)
}

// A page whose server is gone says that it is old.
func TestF03_ServerGone(t *testing.T) {
	s := newSite(t, logOf("otlp_wal", statustest.Healthy))
	b := open(t)
	b.run(t, chromedp.Navigate(s.URL))
	s.CloseClientConnections()
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	b.until(t, `document.getElementById("connection").textContent.includes("what you see is old")`)
	s.Config.Handler = statuspage.NewHandler(func() *statuspage.Document {
		return &statuspage.Document{Extension: "wal_storage", Generated: time.Now(), Logs: []statuspage.Log{logOf("otlp_wal", statustest.Healthy)}}
	})
	b.until(t, `document.getElementById("connection").textContent === ""`)
}

func TestF03_WithoutJavaScript(t *testing.T) {
	s := newSite(t, logOf("otlp_wal", func(now time.Time) barrier.Status { return statustest.ManyTenants(now, 100) }))
	b := open(t, command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.run(t, chromedp.Navigate(s.URL), chromedp.Click(chromedp.CSS("#log-0-quiet summary")), chromedp.Click(chromedp.CSS("#log-0-segments summary")))
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "\u00a0", " ")
	for _, want := range []string{
		"Accepting, with lanes waiting", "Next barrier", "limit 1.0 GiB", "7 closed of at most 24", "team-004", "team-099", ".wal", "unlinked 2 of 2", "Reload",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	for _, not := range []string{"Pause updates", "Filter by tenant"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is shown although it cannot work", not)
		}
	}
}

// Nothing leaves for anywhere else, and the browser has nothing to complain of
// (a blocked style or script would be said).
func TestF03_NoExternalRequest(t *testing.T) {
	s := newSite(t, logOf("otlp_wal", statustest.Refusing))
	b := open(t)
	b.run(t, chromedp.Navigate(s.URL))
	first, _ := b.seen()
	b.until(t, `performance.getEntriesByType("resource").filter((e) => e.initiatorType === "fetch").length >= 2`)
	requests, problems := b.seen()
	if len(requests) <= len(first) {
		t.Errorf("no live update was asked for: %q", requests)
	}
	for _, url := range requests {
		if !strings.HasPrefix(url, s.URL+"/") {
			t.Errorf("asked for %s", url)
		}
	}
	if len(problems) > 0 {
		t.Errorf("the browser complains: %q", problems)
	}
	if styled := eval[string](t, b, `getComputedStyle(document.querySelector(".verdict")).borderLeftWidth`); styled != "5px" {
		t.Errorf("the style sheet is not applied: border %s", styled)
	}
}

func TestF03_HostileNames(t *testing.T) {
	s := newSite(t, logOf("otlp_wal", statustest.Hostile))
	b := open(t)
	b.run(t, chromedp.Navigate(s.URL))
	b.until(t, `performance.getEntriesByType("resource").some((e) => e.initiatorType === "fetch")`)
	s.set(logOf("otlp_wal", func(now time.Time) barrier.Status {
		s := statustest.Hostile(now)
		s.Unreclaimed = 77 << 20
		return s
	}))
	b.until(t, bodyText+`.includes("77 MiB")`) // swapped in by the script, too
	title := eval[string](t, b, `document.title`)
	injected := eval[int](t, b, `document.querySelectorAll("img, body script").length`)
	if title == "owned" || injected > 0 {
		t.Errorf("a name became markup: title %q, %d elements", title, injected)
	}
	if _, problems := b.seen(); len(problems) > 0 {
		t.Errorf("the browser complains: %q", problems)
	}
}

// unreadable lists text whose contrast with what is behind it is below WCAG's
// AA, what is wider than the screen, and what is too small to be hit.
const unreadable = `(() => {
  const found = [];
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m[3] ?? 1 }; };
  const luminance = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; (n = walker.nextNode());) {
    const e = n.parentElement;
    if (!n.data.trim() || !e.checkVisibility() || e.closest("svg, .hidden, .skip, noscript")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [luminance(parse(style.color).rgb), luminance(ground(e))];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 4.5) found.push("contrast " + contrast.toFixed(2) + ": " + n.data.trim().slice(0, 60));
    if (parseFloat(style.fontSize) < 13) found.push("font " + style.fontSize + ": " + n.data.trim().slice(0, 60));
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".hidden, .skip")).map((e) => e.tagName + "." + e.className);
    found.push("wider than the screen: " + document.documentElement.scrollWidth + " > " + innerWidth + ": " + wide.slice(0, 5).join(" "));
  }
  for (const e of document.querySelectorAll("button, summary, input")) {
    if (e.checkVisibility() && e.getBoundingClientRect().height < 24) found.push("hard to hit: " + e.outerHTML.slice(0, 60));
  }
  return found;
})()`

func TestF03_Readable(t *testing.T) {
	states := map[string][]statuspage.Log{
		"healthy":  {logOf("otlp_wal", statustest.Healthy)},
		"refusing": {logOf("otlp_wal", statustest.Refusing)},
		"terminal": {logOf("otlp_wal", statustest.Terminal)},
		"full":     {logOf("otlp_wal", statustest.VolumeFull)},
		"fresh":    {logOf("otlp_wal", statustest.Fresh)},
		"hostile":  {logOf("otlp_wal", statustest.Hostile)},
		"tenants":  {logOf("otlp_wal", func(now time.Time) barrier.Status { return statustest.ManyTenants(now, 100) })},
		"two":      {logOf("otlp_wal/edge", statustest.Healthy), logOf("otlp_wal/gateway", statustest.Refusing)},
		"failing":  {{ID: "otlp_wal", Error: "the log's status panicked: boom"}},
		"none":     {},
	}
	damaged := logOf("otlp_wal", statustest.Healthy)
	damaged.Failure = "the log cannot be read any further: /var/lib/otelcol/wal/0000001500000000-00000294.wal: damaged at offset 300150: checksum does not match"
	damaged.DeadLetters = statuspage.Aside{Files: 2, Bytes: 640}
	states["damaged"] = []statuspage.Log{damaged}
	screens := map[string]struct{ width, height int64 }{"phone": {360, 780}, "tablet": {820, 1180}, "desk": {1280, 900}}
	for name, logs := range states {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, logs...)
			b := open(t)
			for screen, sz := range screens {
				for _, scheme := range []string{"light", "dark"} {
					b.run(t,
						command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
							Width: sz.width, Height: sz.height, DeviceScaleFactor: 1, Mobile: screen == "phone",
						}),
						command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
							Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
						}),
						chromedp.Navigate(s.URL),
						chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => d.open = true)`),
					)
					for _, p := range eval[[]string](t, b, unreadable) {
						t.Errorf("%s, %s: %s", screen, scheme, p)
					}
					dark := eval[bool](t, b, `getComputedStyle(document.body).backgroundColor !== "rgb(247, 249, 250)"`)
					if dark != (scheme == "dark") {
						t.Errorf("%s: the %s scheme is not followed", screen, scheme)
					}
					shoot(t, b, fmt.Sprintf("%s-%s-%s", name, screen, scheme))
				}
			}
		})
	}
}

func shoot(t *testing.T, b *tab, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach((d) => d.open = false)`))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
