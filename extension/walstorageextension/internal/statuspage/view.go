// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelweir/weir/barrier"
)

const (
	// fewLanes are shown in one table; of more, the quiet ones fold away.
	fewLanes = 12
	// mostRows bounds each table of the page. The JSON has everything.
	mostRows = 500
	// mostCells bounds the segment map.
	mostCells = 480
	// mostNames bounds the lanes listed for one segment.
	mostNames = 4
	// mostFree is up to how many segment slots the free ones are drawn too.
	mostFree = 120
)

// view is the page's content, ready to print.
type view struct {
	Title, Extension string
	Generated        time.Time
	Logs             []logView
	Assets           string // version of the assets, for their URLs
}

// logView is one log's section. Slug is what its ids are made of.
type logView struct {
	ID, Slug, Error string
	Verdict         Verdict
	Refusal         string // the last one, while it matters
	Tone            string // ok, warn, bad
	Figures         []figure
	Plot            plot
	Map             segmentMap
	Floor           string
	Lanes, Quiet    laneTable
	Passes          []passView
	Facts           []figure
}

// figure is one named value. Exact, if set, is shown on hovering.
type figure struct{ Name, Value, Note, Exact string }

type segmentMap struct {
	Summary, Caption string
	Cells            []cell
	Rows             []segmentRow
	MoreRows         int
	Legend           []cell
}

type cell struct{ Class, Title string }

type segmentRow struct{ Name, Base, Bytes, Exact, State, HeldBy string }

type laneTable struct {
	Heading string
	Tenants bool // some lane has one
	Rows    []laneRow
	More    int
}

type laneRow struct {
	Tenant, Signal              string
	State, Tone                 string
	Lag, Exact, Oldest, Pending string
	Frontier, Horizon           string
	Trouble, TroubleLabel       string
}

type passView struct{ Name, Interval, Next, Last, Result, Tone string }

func newView(doc *Document) view {
	v := view{Extension: doc.Extension, Generated: doc.Generated.UTC(), Title: title(doc.Logs)}
	for i := range doc.Logs {
		v.Logs = append(v.Logs, newLogView(&doc.Logs[i], fmt.Sprintf("log-%d", i), doc.Generated))
	}
	return v
}

// title is what a browser tab shows: the worst log, or how many are well.
func title(logs []Log) string {
	order := []string{"terminal", "failed", "unwritable", "volume_full", "refusing", "unknown", "degraded"}
	for _, state := range order {
		for i := range logs {
			if logs[i].Verdict.State == state {
				return logs[i].Verdict.Title + " – " + logs[i].ID
			}
		}
	}
	switch len(logs) {
	case 0:
		return "No logs"
	case 1:
		return "Accepting – " + logs[0].ID
	}
	return fmt.Sprintf("%d logs accepting", len(logs))
}

func tone(state string) string {
	switch state {
	case "accepting":
		return "ok"
	case "degraded":
		return "warn"
	}
	return "bad"
}

func newLogView(l *Log, slug string, now time.Time) logView {
	v := logView{ID: l.ID, Slug: slug, Error: l.Error, Verdict: l.Verdict, Tone: tone(l.Verdict.State)}
	if l.Error != "" {
		return v
	}
	s := &l.Status
	v.Verdict.Text = unbroken(v.Verdict.Text)
	if s.Latch.Refusing {
		v.Refusal = s.Latch.LastRefusal
	}
	room := uint64(0)
	if s.Limit > s.Unreclaimed {
		room = s.Limit - s.Unreclaimed
	}
	delay, hint := retryAfter(s.RetryAfter), "what a refusal would advise"
	switch {
	case s.Rotation.State == "terminal":
		delay, hint = "none", "no delay would help"
	case s.Latch.Refusing:
		hint = "advised to senders now"
	case s.Rotation.NextTry.After(now):
		delay, hint = retryAfter(s.Rotation.NextTry.Sub(now)), "advised until the next attempt to begin a segment"
	}
	oldest, waiting := oldestUnsettled(s), "since it was received"
	if oldest.IsZero() {
		waiting = "everything is settled"
	}
	v.Figures = []figure{
		{"Unreclaimed", size(s.Unreclaimed), percent(s.Unreclaimed, s.Limit) + " of " + size(s.Limit), exact(s.Unreclaimed)},
		{"Room left", size(room), roomNote(s), exact(room)},
		{"Oldest waiting", age(oldest, now), waiting, ""},
		{"Retry-After", delay, hint, ""},
		{"Next barrier", until(l.Maintenance.Barrier.Next, now), "makes settled work durable", ""},
		{"Next housekeeping", until(l.Maintenance.Housekeeping.Next, now), "unlinks settled segments", ""},
	}
	v.Plot = newPlot(l.History, Sample{At: now, Unreclaimed: s.Unreclaimed, Refusing: s.Latch.Refusing}, s.Limit)
	v.Map = newSegmentMap(s)
	v.Floor = unbroken(floorText(&s.Floor))
	v.Lanes, v.Quiet = newLaneTables(s, now)
	v.Passes = []passView{
		newPassView("Barrier", l.Maintenance.Barrier, "", now),
		newPassView("Housekeeping", l.Maintenance.Housekeeping, progressText(l.Maintenance.Housekeeping.Progress), now),
	}
	v.Facts = []figure{
		{"Rotation", rotationText(&s.Rotation, now), "", ""},
		{"Refusing at a limit", latchText(&s.Latch, now), "", ""},
		{"Last refusal", cmp.Or(s.Latch.LastRefusal, "none since the start"), "", ""},
		{"Dead letters", asideText(l.DeadLetters, "request", "requests"), "", exact(l.DeadLetters.Bytes)},
		{"Quarantined", asideText(l.Quarantined, "range", "ranges"), "", exact(l.Quarantined.Bytes)},
		{"On disk", size(s.Disk), "", exact(s.Disk)},
		{"Not yet synced", size(s.Unflushed), "", exact(s.Unflushed)},
		{"Durable position", count(uint64(s.Durable)), "", ""},
		{"Tenants", fmt.Sprintf("%s held, %s reserved, limit %s", count(s.Tenants.Held), count(s.Tenants.Reserved), count(s.Tenants.Limit)), "", ""},
		{"Directory", s.Directory, "", ""},
		{"Log", s.LogID, "", ""},
	}
	return v
}

// roomNote is what the room below the byte limit is worth.
func roomNote(s *barrier.Status) string {
	switch {
	case s.Rotation.State == "terminal":
		return "below the limit, but nothing is taken"
	case s.Rotation.State == "volume_full":
		return "below the limit, but the volume is full"
	case s.Rotation.State == "unwritable":
		return "below the limit, but the volume is not writable"
	case s.Rotation.State == "retrying", s.Latch.Refusing:
		return "below the byte limit"
	}
	return "before batches are refused"
}

// oldestUnsettled is when the oldest request that still waits was received.
// The oldest frame kept may be settled, and wait for its segment's end only.
func oldestUnsettled(s *barrier.Status) (oldest time.Time) {
	some := false
	for i := range s.Lanes {
		l := &s.Lanes[i]
		some = some || l.Pending > 0 || l.LagBytes > 0
		if !l.Oldest.IsZero() && (oldest.IsZero() || l.Oldest.Before(oldest)) {
			oldest = l.Oldest
		}
	}
	if some && oldest.IsZero() {
		return s.Oldest // no lane has come as far as to know its own
	}
	return oldest
}

func newSegmentMap(s *barrier.Status) segmentMap {
	var m segmentMap
	counts := map[string]int{}
	closed := 0
	classes := make([]string, len(s.Segments))
	for i := range s.Segments {
		g := &s.Segments[i]
		class := g.State
		if g.State == "closed" && len(g.HeldBy) == 0 {
			class = "settled"
		}
		if g.State != "current" {
			closed++
		}
		classes[i] = class
		counts[class]++
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		if hidden := len(s.Segments) - mostCells; hidden > 0 && i >= mostCells/2 && i < mostCells/2+hidden {
			if i == mostCells/2 {
				m.Cells = append(m.Cells, cell{"more", fmt.Sprintf("%s more segments", count(hidden))})
			}
			continue
		}
		m.Cells = append(m.Cells, cell{classes[i], fmt.Sprintf("%s, %s, %s%s", g.Name, segmentState(classes[i]), size(g.Bytes), heldBy(g.HeldBy))})
	}
	if s.Prepared {
		counts["prepared"]++
		m.Cells = append(m.Cells, cell{"prepared", "the next segment, prepared"})
	}
	if free := s.MaxSegments - closed; free > 0 && s.MaxSegments <= mostFree {
		for range free {
			m.Cells = append(m.Cells, cell{"free", "a free slot"})
		}
		counts["free"] = free
	}
	var parts []string
	for _, class := range []string{"current", "closed", "settled", "reclaiming", "sealed", "prepared", "free"} {
		if n := counts[class]; n > 0 {
			m.Legend = append(m.Legend, cell{class, fmt.Sprintf("%s %s", count(n), segmentState(class))})
			parts = append(parts, fmt.Sprintf("%s %s", count(n), segmentState(class)))
		}
	}
	m.Summary = "Segments: " + strings.Join(parts, ", ") + "."
	m.Caption = fmt.Sprintf("%s closed of at most %s", count(closed), count(s.MaxSegments))
	if len(s.Segments) == 0 {
		m.Summary = "The log has no segments."
	}
	for i := range s.Segments {
		if i == mostRows {
			m.MoreRows = len(s.Segments) - mostRows
			break
		}
		g := &s.Segments[i]
		m.Rows = append(m.Rows, segmentRow{
			Name: g.Name, Base: count(uint64(g.Base)), Bytes: size(g.Bytes), Exact: exact(g.Bytes),
			State: segmentState(classes[i]), HeldBy: cmp.Or(names(g.HeldBy), "–"),
		})
	}
	return m
}

// segmentState is a segment's state for reading.
func segmentState(class string) string {
	switch class {
	case "closed":
		return "held"
	case "settled":
		return "settled, to be unlinked"
	case "reclaiming":
		return "being unlinked"
	case "sealed":
		return "sealed after a failed write"
	}
	return class
}

func heldBy(lanes []string) string {
	if len(lanes) == 0 {
		return ""
	}
	return ", held by " + names(lanes)
}

func names(lanes []string) string {
	if len(lanes) <= mostNames {
		return strings.Join(lanes, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(lanes[:mostNames], ", "), count(len(lanes)-mostNames))
}

func floorText(f *barrier.FloorStatus) string {
	switch f.State {
	case "none":
		return "Nothing is held: every segment but the current one can go."
	case "min":
		return fmt.Sprintf("The slowest lane is %s (%s) behind%s. Segments from position %s on are kept for it.",
			size(f.LagBytes), segments(f.LagSegments), of(f.Lanes), count(uint64(f.Position)))
	case "pinned":
		return fmt.Sprintf("Pinned at position %s by lanes of which nothing has ever settled%s. Every segment from there on is kept: check where they deliver to.",
			count(uint64(f.Position)), of(f.Lanes))
	case "unknown", "":
		return "Not known yet: no housekeeping pass has run."
	}
	return f.State
}

func of(lanes []string) string {
	if len(lanes) == 0 {
		return ""
	}
	return ": " + names(lanes)
}

func segments(n int) string {
	if n == 1 {
		return "1 segment"
	}
	return count(n) + " segments"
}

// newLaneTables puts the lanes that wait for something first, the furthest
// behind on top. Of many lanes the others fold away.
func newLaneTables(s *barrier.Status, now time.Time) (first, quiet laneTable) {
	lanes := slices.Clone(s.Lanes)
	slices.SortStableFunc(lanes, func(a, b barrier.LaneStatus) int {
		return cmp.Or(
			boolCompare(needsAttention(b.State), needsAttention(a.State)),
			cmp.Compare(b.LagBytes, a.LagBytes),
			cmp.Compare(laneName(a.Tenant, a.Signal), laneName(b.Tenant, b.Signal)),
		)
	})
	split := len(lanes)
	if len(lanes) > fewLanes {
		split = slices.IndexFunc(lanes, func(l barrier.LaneStatus) bool { return !needsAttention(l.State) })
		if split < 0 {
			split = len(lanes)
		}
	}
	first = newLaneTable(lanes[:split], now)
	quiet = newLaneTable(lanes[split:], now)
	switch {
	case len(lanes) == 0:
	case split == len(lanes):
		first.Heading = fmt.Sprintf("%s in all", lanesCount(len(lanes)))
	case split > 0:
		first.Heading = fmt.Sprintf("%s waiting, of %s", lanesCount(split), count(len(lanes)))
		quiet.Heading = lanesCount(len(lanes)-split) + " without trouble"
	default:
		first.Heading = "No lane is waiting for anything"
		quiet.Heading = "All " + lanesCount(len(lanes))
	}
	return first, quiet
}

func lanesCount(n int) string {
	if n == 1 {
		return "1 lane"
	}
	return count(n) + " lanes"
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func newLaneTable(lanes []barrier.LaneStatus, now time.Time) (t laneTable) {
	if len(lanes) > mostRows {
		t.More = len(lanes) - mostRows
		lanes = lanes[:mostRows]
	}
	for i := range lanes {
		l := &lanes[i]
		t.Tenants = t.Tenants || l.Tenant != ""
		row := laneRow{
			Tenant: l.Tenant, Signal: l.Signal, State: laneState(l.State), Tone: "plain",
			Lag: size(l.LagBytes), Exact: exact(l.LagBytes), Oldest: age(l.Oldest, now), Pending: count(l.Pending),
			Frontier: count(uint64(l.Frontier)), Horizon: count(uint64(l.Horizon)),
			Trouble: l.LastError,
		}
		if l.LagBytes == 0 {
			row.Lag = "none"
		}
		if needsAttention(l.State) {
			row.Tone = "warn"
		}
		if l.Attempts > 0 {
			row.TroubleLabel = fmt.Sprintf("tried %s", times(l.Attempts))
			switch next := until(l.NextTry, now); {
			case l.NextTry.IsZero():
			case next == dueNow:
				row.TroubleLabel += ", again now"
			default:
				row.TroubleLabel += ", again " + next
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func newPassView(name string, p Pass, result string, now time.Time) passView {
	v := passView{Name: name, Interval: "every " + span(p.Interval), Next: until(p.Next, now), Last: "not yet", Result: cmp.Or(result, "done"), Tone: "plain"}
	switch {
	case p.Running:
		v.Next = "running for " + age(p.Started, now)
	case p.Runs > 0:
		v.Last = fmt.Sprintf("%s ago, took %s", age(p.Started, now), span(p.Took))
	}
	if p.Runs == 0 || (p.Running && p.Runs == 1) {
		v.Result = "–"
	} else if p.LastError != "" {
		v.Result, v.Tone = p.LastError, "bad"
	}
	return v
}

func progressText(p barrier.Progress) string {
	if p.Planned == 0 && p.Remaining == 0 {
		return "nothing to unlink"
	}
	text := fmt.Sprintf("unlinked %s of %s", count(p.Removed), count(p.Planned))
	if p.Remaining > 0 {
		text += fmt.Sprintf(", %s left", count(p.Remaining))
	}
	return text
}

func rotationText(r *barrier.RotationStatus, now time.Time) string {
	switch r.State {
	case "healthy":
		return "healthy"
	case "terminal":
		return "stopped for good after " + count(r.Failures) + " failures; restart needed." + cause(r.Cause)
	}
	return strings.ReplaceAll(r.State, "_", " ") + fmt.Sprintf(", %s in a row.", failures(r.Failures)) + cause(r.Cause) + nextTry(r.NextTry, now)
}

func asideText(a Aside, one, many string) string {
	switch {
	case a.Error != "":
		return a.Error
	case a.More:
		return fmt.Sprintf("more than %s %s, %s", count(a.Files), many, size(a.Bytes))
	case a.Files == 0:
		return "none"
	case a.Files == 1:
		return fmt.Sprintf("1 %s, %s", one, size(a.Bytes))
	}
	return fmt.Sprintf("%s %s, %s", count(a.Files), many, size(a.Bytes))
}

func failures(n int) string {
	if n == 1 {
		return "1 failure"
	}
	return count(n) + " failures"
}

func latchText(l *barrier.LatchStatus, now time.Time) string {
	if !l.Refusing {
		return "no"
	}
	return fmt.Sprintf("yes, for %s (%s)", age(l.Since, now), boundName(l.Cause))
}
