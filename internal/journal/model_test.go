// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelFrame is a frame of the model: the log is a list of them.
type modelFrame struct {
	id    uint64
	lane  Lane
	pos   Position
	len   uint64
	items uint32
}

// model is a log whose file system never fails, against a list, a map of
// horizons and a list of segment bases.
type model struct {
	*world
	frames   []modelFrame
	end      Position
	horizons map[Lane]Position
	segments []extent // that must be there, in order; the last is the current
	seen     bool     // a barrier was recorded
}

type extent struct{ from, to Position }

func (e extent) holds(f modelFrame) bool { return e.from <= f.pos && f.pos < e.to }

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		w.cfg.MaxSegments = rapid.IntRange(2, 8).Draw(t, "max segments")
		w.cfg.Limit = uint64(rapid.IntRange(2, 8).Draw(t, "limit")) * w.cfg.SegmentSize
		w.cfg.Preallocate = rapid.Bool().Draw(t, "preallocate")
		m := &model{world: w, horizons: map[Lane]Position{}}
		defer w.close()
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		m.segments = []extent{{}}
		t.Repeat(map[string]func(*rapid.T){
			"":              m.invariant,
			"append":        m.Append,
			"stamp":         m.Stamp,
			"reclaim":       m.Reclaim,
			"rotate":        m.RotateForced,
			"rotate by age": m.RotateIfAged,
			"reopen":        m.Reopen,
			"kill":          m.Kill,
			"power cut":     m.PowerCut,
			"next of":       m.NextOf,
			"seek":          m.Seek,
		})
	})
}

func (m *model) current() *extent { return &m.segments[len(m.segments)-1] }

func (m *model) rotate(base Position) { m.segments = append(m.segments, extent{base, base}) }

// Append sends frames one by one; each rotates exactly when it would not fit,
// or when the segment is old and settled, and is refused exactly at a bound.
func (m *model) Append(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "frames") {
		l := rapid.SampledFrom(testLanes).Draw(t, "lane")
		id, f := m.frameOf(l, rapid.SampledFrom([]int{8, 100, 1000, 4000, 8000}).Draw(t, "payload"))
		framed := f.FramedLen()

		m.j.Lock()
		due := m.j.RotationDue(framed)
		m.j.Unlock()
		used := m.end - m.current().from
		full := used > 0 && 64+used+framed > m.cfg.SegmentSize
		if full && !due.Due {
			t.Fatalf("a frame of %d bytes behind %d does not rotate segments of %d", framed, used, m.cfg.SegmentSize)
		}
		if due.Due && !full && !due.ByAge {
			t.Fatalf("a frame of %d bytes behind %d rotates segments of %d: %+v", framed, used, m.cfg.SegmentSize, due)
		}
		ceiling := due.Due && len(m.segments) > m.cfg.MaxSegments
		if due.AtCeiling != ceiling {
			t.Fatalf("%d segments of at most %d: %+v", len(m.segments), m.cfg.MaxSegments, due)
		}
		allowed := m.unreclaimed()+framed <= m.cfg.Limit && !ceiling

		ticket := m.admit(f)
		if (ticket != nil) != allowed {
			t.Fatalf("admitted: %v; unreclaimed %d + %d of %d, %d segments of %d, rotation %+v",
				ticket != nil, m.unreclaimed(), framed, m.cfg.Limit, len(m.segments), m.cfg.MaxSegments, due)
		}
		if ticket == nil {
			m.decide(id, refused, 0)
			continue
		}
		m.turn(func() {
			for m.j.Advance() {
			}
		})
		<-ticket.Done()
		p, err := ticket.Outcome()
		if err != nil || p != m.end {
			t.Fatalf("frame is at %d (%v), not at %d", p, err, m.end)
		}
		if due.Due {
			m.rotate(p)
		}
		m.decide(id, acked, p)
		m.frames = append(m.frames, modelFrame{id, l, p, framed, f.Items})
		m.end = p + framed
		m.current().to = m.end
		m.o.end = m.end
	}
}

func (m *model) Stamp(t *rapid.T) {
	frontiers := map[Lane]Position{}
	for _, l := range testLanes {
		if !rapid.Bool().Draw(t, "lane has a frontier") {
			continue
		}
		frontiers[l] = m.end
		if len(m.frames) > 0 && rapid.Bool().Draw(t, "lags") {
			frontiers[l] = rapid.SampledFrom(m.frames).Draw(t, "frontier").pos
		}
	}
	m.j.tasks.Wait() // what it does beside changes sizes
	if err := m.j.Stamp(frontiers); err != nil {
		t.Fatal(err)
	}
	if disk, want := m.j.Stats().Disk, occupied(t, m.fs); disk != want {
		t.Fatalf("%d bytes on disk; the files take %d", disk, want)
	}
	m.seen = true
	for l, p := range frontiers {
		m.o.tried[l] = max(m.o.tried[l], p)
		m.o.stamped[l] = max(m.o.stamped[l], p)
		m.horizons[l] = max(m.horizons[l], p)
	}
}

// settled says whether segment i is closed and nothing in it is outstanding.
func (m *model) settled(i int) bool {
	return i+1 < len(m.segments) && !slices.ContainsFunc(m.frames, func(f modelFrame) bool {
		return m.segments[i].holds(f) && f.pos >= m.horizons[f.lane]
	})
}

// Reclaim removes as many settled segments as it may, oldest first, and no
// other.
func (m *model) Reclaim(t *rapid.T) {
	most := rapid.IntRange(1, 5).Draw(t, "at most")
	maps.Copy(m.o.reclaimed, m.o.stamped)
	m.j.Lock()
	plan := m.j.Prepare(most)
	m.j.Unlock()
	removed := 0
	if plan != nil {
		plan.Execute(context.Background())
		m.j.Lock()
		_, removed, _ = m.j.Commit(plan)
		m.j.Unlock()
	}
	want := 0
	for i := 0; i < len(m.segments) && want < most; {
		if !m.settled(i) {
			i++
			continue
		}
		m.frames = slices.DeleteFunc(m.frames, m.segments[i].holds)
		m.segments = slices.Delete(m.segments, i, i+1)
		want++
	}
	if removed != want {
		t.Fatalf("a pass of at most %d removed %d segments, not %d", most, removed, want)
	}
}

func (m *model) RotateForced(t *rapid.T) {
	var err error
	m.turn(func() { err = m.j.RotateForced() })
	m.rotated(t, err)
}

func (m *model) RotateIfAged(t *rapid.T) {
	m.now.Add(int64(rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Minute}).Draw(t, "later")))
	var err error
	m.turn(func() { err = m.j.RotateIfAged() })
	m.rotated(t, err)
}

// rotated follows a discretionary rotation the log may have made.
func (m *model) rotated(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
	segments := m.j.Segments()
	base := segments[len(segments)-1].Base
	if base == m.current().from {
		return
	}
	if base != m.end {
		t.Fatalf("rotated to %d; the log ends at %d, the current segment began at %d", base, m.end, m.current().from)
	}
	m.rotate(base)
	if len(m.segments)-1 > m.cfg.MaxSegments {
		t.Fatalf("%d closed segments of at most %d", len(m.segments)-1, m.cfg.MaxSegments)
	}
}

func (m *model) Reopen(t *rapid.T) {
	m.close()
	m.reopened(t)
}

func (m *model) Kill(t *rapid.T) {
	next := m.fs.Kill()
	m.close()
	m.fs = next
	m.reopened(t)
}

func (m *model) PowerCut(t *rapid.T) {
	next := m.fs.Crash(m.rng)
	m.close()
	m.fs = next
	m.reopened(t)
}

func (m *model) reopened(t *rapid.T) {
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	if m.rec.TruncatedBytes != 0 || m.rec.QuarantinedBytes != 0 || m.rec.Ambiguous {
		t.Fatalf("nothing was torn or damaged: %+v", m.rec)
	}
	for _, f := range m.frames {
		if h := m.rec.Horizons[f.lane]; (f.pos < h) != (f.pos < m.horizons[f.lane]) {
			t.Fatalf("the frame of %v at %d: its horizon is %d, in the model %d", f.lane, f.pos, h, m.horizons[f.lane])
		}
	}
}

// NextOf never passes a frame over and says no exactly when there is none.
func (m *model) NextOf(t *rapid.T) {
	l := rapid.SampledFrom(testLanes).Draw(t, "lane")
	from := Position(0)
	if len(m.frames) > 0 {
		from = rapid.SampledFrom(m.frames).Draw(t, "from").pos
	}
	p, ok := m.j.NextOf(l, from)
	i := slices.IndexFunc(m.frames, func(f modelFrame) bool { return f.lane == l && f.pos >= from })
	switch {
	case i >= 0 && (!ok || p > m.frames[i].pos || p < from):
		t.Fatalf("next of %v from %d is %d, %v; the next is at %d", l, from, p, ok, m.frames[i].pos)
	case i < 0 && ok && !slices.ContainsFunc(m.segments, func(e extent) bool {
		return e.from <= p && p < e.to && slices.ContainsFunc(m.frames, func(f modelFrame) bool { return f.lane == l && e.holds(f) })
	}):
		t.Fatalf("next of %v from %d is %d, in whose segment it has no frame", l, from, p)
	}
}

// Seek reads on from some frame.
func (m *model) Seek(t *rapid.T) {
	if len(m.frames) == 0 {
		t.Skip("empty")
	}
	i := rapid.IntRange(0, len(m.frames)-1).Draw(t, "frame")
	r := m.j.NewReader(0)
	defer r.Close()
	r.Seek(m.frames[i].pos)
	for _, want := range m.frames[i:] {
		f, err := r.Next()
		if err != nil || f.Position != want.pos || f.Len != want.len {
			t.Fatalf("read %d +%d (%v), not %d +%d", f.Position, f.Len, err, want.pos, want.len)
		}
	}
}

func (m *model) unreclaimed() (total uint64) {
	for _, e := range m.segments {
		total += e.to - e.from
	}
	return total
}

// invariant is what holds between any two operations.
func (m *model) invariant(t *rapid.T) {
	frames, err := m.read(m.j)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != len(m.frames) {
		t.Fatalf("the log has %d frames, the model %d", len(frames), len(m.frames))
	}
	for i := range frames {
		id, err := m.known(&frames[i])
		if err != nil {
			t.Fatal(err)
		}
		if id != m.frames[i].id {
			t.Fatalf("frame %d is number %d, in the model %d", i, id, m.frames[i].id)
		}
	}
	if err := m.figures(); err != nil {
		t.Fatal(err)
	}
	m.j.Lock()
	figures, reclaim, seen := m.j.Figures(), m.j.ReclaimState(), m.j.BarrierSeen()
	m.j.Unlock()
	if figures.Unreclaimed != m.unreclaimed() || figures.ClosedRetained != len(m.segments)-1 || figures.CurrentBytes != m.end-m.current().from {
		t.Fatalf("figures %+v; model: %d unreclaimed, %d in the current, %d segments", figures, m.unreclaimed(), m.end-m.current().from, len(m.segments))
	}
	if seen != m.seen || m.j.Durable() != m.end {
		t.Fatalf("barrier seen %v, durable position %d; model: %v, %d", seen, m.j.Durable(), m.seen, m.end)
	}
	if all := m.unreclaimed() == m.end-m.current().from; m.end > 0 && m.unreclaimed() > 0 && reclaim.CurrentHoldsAll != all {
		t.Fatalf("current segment holds everything: %v, in the model %v", reclaim.CurrentHoldsAll, all)
	}
	segments := m.j.Segments()
	if len(segments) != len(m.segments) {
		t.Fatalf("%d segments, in the model %d", len(segments), len(m.segments))
	}
	for i, s := range segments {
		if e := m.segments[i]; s.Base != e.from || s.Bytes != e.to-e.from {
			t.Fatalf("segment %d is %+v, in the model %+v", i, s, e)
		}
		for _, l := range s.Lanes {
			if !slices.ContainsFunc(m.frames, func(f modelFrame) bool { return f.lane == l && m.segments[i].holds(f) }) {
				t.Fatalf("segment %s lists %v, of which it has no frame", s.Name, l)
			}
		}
	}
	for _, l := range m.j.Lanes() {
		i := slices.IndexFunc(m.frames, func(f modelFrame) bool { return f.lane == l.Lane && f.pos >= m.horizons[l.Lane] })
		if h := m.horizons[l.Lane]; l.Horizon > h {
			t.Fatalf("horizon of %v is %d, in the model %d", l.Lane, l.Horizon, h)
		}
		if i >= 0 && (l.First > m.frames[i].pos || l.Last < m.frames[i].pos) {
			t.Fatalf("%v lies from %d to %d; a frame is at %d", l.Lane, l.First, l.Last, m.frames[i].pos)
		}
	}
}
