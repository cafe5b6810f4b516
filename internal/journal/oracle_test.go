// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// fate is what the sender of a frame was told.
type fate uint8

const (
	undecided fate = iota // the write or sync failed, or the world ended first: it may be there, once
	acked                 // it is there, once, at its position
	refused               // it is not there, now or ever
)

// sent is one frame the oracle knows of.
type sent struct {
	lane  Lane
	items uint32
	fate  fate
	pos   Position
	len   uint64
}

// oracle is what must be true of a log, known from nothing but what it said.
type oracle struct {
	sent map[uint64]sent // by id

	// Horizons of lanes: stamped is what was last known durable, tried what
	// was ever asked for, reclaimed what was stamped when a pass last began.
	stamped, tried, reclaimed map[Lane]Position

	end Position // proven: the log reaches at least as far

	// damaged frames, by id, with the bytes they became. A copy of those must
	// be found for as long as they are not where they were.
	damaged map[uint64][]byte
	letters map[uint64]bool // frames, by id, that have a dead letter
}

func newOracle() *oracle {
	return &oracle{
		sent: map[uint64]sent{}, stamped: map[Lane]Position{}, tried: map[Lane]Position{}, reclaimed: map[Lane]Position{},
		damaged: map[uint64][]byte{}, letters: map[uint64]bool{},
	}
}

func (o *oracle) clone() *oracle {
	c := *o
	c.sent, c.damaged, c.letters = maps.Clone(o.sent), maps.Clone(o.damaged), maps.Clone(o.letters)
	c.stamped, c.tried, c.reclaimed = maps.Clone(o.stamped), maps.Clone(o.tried), maps.Clone(o.reclaimed)
	return &c
}

// world is a log on a file system that can lose power, and its oracle. Its
// methods return an error when the log broke a promise, and only then.
type world struct {
	fs  *crashfs.FS
	cfg Config
	o   *oracle
	rng *rand.Rand
	now *atomic.Int64 // unix ns

	j      *Journal
	rec    Recovery
	cut    int  // calls after which the power is cut; -1 = never
	before int  // calls made before the last kill -9
	faulty bool // calls were made to fail
	past   []crashfs.Call

	// mutate takes something from the log that it needs; forOpen the same, but
	// only while it is being opened.
	mutate, forOpen []crashfs.Fault
}

const logDir = "/wal"

// testLanes are of four tenants. The long names make a commit of STATE more
// than one sector, which can tear.
var (
	longA     = strings.Repeat("a", maxTenant)
	longB     = strings.Repeat("b", maxTenant)
	longC     = strings.Repeat("c", maxTenant)
	testLanes = []Lane{
		{"", KindLogs}, {longA, KindTraces}, {longA, KindMetrics}, {longB, KindLogs}, {longB, KindProfiles}, {longC, KindLogs},
	}
)

// newWorld is a log that is not open yet, with segments of a few frames.
func newWorld(seed uint64) *world {
	w := &world{
		fs: crashfs.New(64 << 20), o: newOracle(), rng: rand.New(rand.NewPCG(seed, 0)),
		now: &atomic.Int64{}, cut: -1,
	}
	w.now.Store(time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).UnixNano())
	w.cfg = Config{
		Directory: logDir, SegmentSize: 16 << 10, SegmentAge: time.Minute, MaxFrameSize: 8 << 10,
		Limit: 1 << 20, MaxSegments: 32, MaxTenants: 8, RotationRetryAttempts: 10,
		OnCorruption: CorruptionFail, QuarantineMaxBytes: 1 << 20, Preallocate: true,
	}
	if err := w.fs.Mkdir(logDir, 0o700); err != nil {
		panic(err)
	}
	if err := w.fs.SyncDir("/"); err != nil {
		panic(err)
	}
	return w
}

// fork is the same world on another file system.
func (w *world) fork(left *crashfs.FS, seed uint64) *world {
	c := *w
	c.fs, c.o, c.rng, c.j = left, w.o.clone(), rand.New(rand.NewPCG(seed, 1)), nil
	c.now = &atomic.Int64{}
	c.now.Store(w.now.Load())
	c.cut, c.before = -1, 0
	return &c
}

func (w *world) clock() time.Time { return time.Unix(0, w.now.Load()) }

// open opens the log and checks everything. An error of Open itself is
// returned as openError, so that callers can expect one.
func (w *world) open() error {
	cfg := w.cfg
	cfg.Now = w.clock
	w.fs.Inject(w.mutate...)
	restore := w.fs.Inject(w.forOpen...)
	j, rec, err := Open(w.fs, cfg)
	restore()
	if err != nil {
		return &openError{err}
	}
	w.j, w.rec = j, rec
	return w.check()
}

type openError struct{ err error }

func (e *openError) Error() string { return "open: " + e.err.Error() }
func (e *openError) Unwrap() error { return e.err }

// close closes the log as well as the state of the world allows.
func (w *world) close() {
	if w.j != nil {
		_ = w.j.Close() // fails in a stopped world
		w.j = nil
	}
}

// frame makes a frame nobody sent before. Its payload begins with its id.
func (w *world) frame() (uint64, *Frame) {
	n := []int{8, 30, 200, 700, 1500, 3000, 5000}[w.rng.IntN(7)] + w.rng.IntN(20)
	return w.frameOf(testLanes[w.rng.IntN(len(testLanes))], n)
}

func (w *world) frameOf(l Lane, n int) (uint64, *Frame) {
	id := uint64(len(w.o.sent) + 1)
	var kept []Entry
	if w.rng.IntN(4) == 0 {
		kept = append(kept, Entry{"x-key", strconv.FormatUint(id, 10)})
	}
	md, err := EncodeMetadata(l.Tenant, kept)
	if err != nil {
		panic(err)
	}
	p := payloadOf(id, n)
	f := &Frame{
		Kind: l.Kind, Tenant: l.Tenant, Items: uint32(w.rng.IntN(5) + 1), Received: w.now.Load(), Metadata: md,
		Payload: [][]byte{p[:3], p[3:3], p[3 : len(p)/2], p[len(p)/2:]},
	}
	f.Sum()
	w.o.sent[id] = sent{lane: l, items: f.Items, len: f.FramedLen()}
	return id, f
}

// payloadOf is the payload of a frame: n bytes that follow from its id.
func payloadOf(id uint64, n int) []byte {
	p := binary.LittleEndian.AppendUint64(nil, id)
	rng := rand.NewPCG(id, 7)
	for len(p) < n {
		p = binary.LittleEndian.AppendUint64(p, rng.Uint64())
	}
	return p[:max(n, 8)]
}

// append asks for n frames as the coordinator does, and has the writer's work
// done, at times while later frames are still being queued.
func (w *world) append(n int) error {
	tickets := map[uint64]*Ticket{}
	var order []uint64
	for range n {
		id, f := w.frame()
		if t := w.admit(f); t != nil {
			tickets[id] = t
			order = append(order, id)
		} else {
			w.decide(id, refused, 0)
		}
		if w.rng.IntN(4) == 0 {
			w.turn(func() { w.j.Advance() })
		}
	}
	w.turn(func() {
		for w.j.Advance() {
		}
	})
	for _, id := range order {
		t := tickets[id]
		select {
		case <-t.Done():
		default:
			return fmt.Errorf("frame %d has no outcome although nothing is queued", id)
		}
		p, err := t.Outcome()
		var rotation *RotationRefused
		var io *AppendError
		switch {
		case err == nil:
			w.decide(id, acked, p)
			if end := p + w.o.sent[id].len; end > w.o.end {
				w.o.end = end
			}
		case errors.As(err, &rotation):
			w.decide(id, refused, 0)
		case errors.As(err, &io):
		default:
			return fmt.Errorf("frame %d: outcome is neither an *AppendError nor a *RotationRefused: %w", id, err)
		}
	}
	if d := w.j.Durable(); d < w.o.end {
		return fmt.Errorf("durable position %d is before the end %d of an acknowledged frame", d, w.o.end)
	}
	return nil
}

// admit is contract §1 (2)–(6) without words.
func (w *world) admit(f *Frame) *Ticket {
	w.j.Lock()
	defer w.j.Unlock()
	state := w.j.RotationState()
	if state.Kind == RotationTerminal || w.j.Figures().Unreclaimed+f.FramedLen() > w.cfg.Limit {
		return nil
	}
	due := w.j.RotationDue(f.FramedLen())
	if due.AtCeiling || (due.Due || state.AppendsBlocked) && w.clock().Before(state.NextAttempt) {
		return nil
	}
	return w.j.Enqueue(f, due)
}

func (w *world) decide(id uint64, f fate, p Position) {
	s := w.o.sent[id]
	s.fate, s.pos = f, p
	w.o.sent[id] = s
}

func (w *world) turn(fn func()) {
	w.j.TurnC() <- struct{}{}
	defer w.j.ReleaseTurn()
	fn()
}

// settle stamps some lanes up to some frame.
func (w *world) settle() error {
	frontiers, err := w.frontiers()
	if err == nil {
		_ = w.stamp(frontiers)
	}
	return err
}

// frontiers are positions that could be settled: for some lanes, ends of
// frames that can be read.
func (w *world) frontiers() (map[Lane]Position, error) {
	frames, err := w.read(w.j)
	if err != nil {
		return nil, err
	}
	frontiers := map[Lane]Position{}
	for _, l := range testLanes {
		if len(frames) == 0 || w.rng.IntN(3) == 0 {
			continue
		}
		f := frames[len(frames)-1]
		if w.rng.IntN(2) == 0 {
			f = frames[w.rng.IntN(len(frames))]
		}
		frontiers[l] = f.Position + f.Len
	}
	return frontiers, nil
}

func (w *world) stamp(frontiers map[Lane]Position) error {
	for l, p := range frontiers {
		w.o.tried[l] = max(w.o.tried[l], p)
	}
	err := w.j.Stamp(frontiers)
	if err == nil {
		for l, p := range frontiers {
			w.o.stamped[l] = max(w.o.stamped[l], p)
		}
	}
	return err
}

// pass is one pass of housekeeping; it returns how many segments went.
func (w *world) pass(most int) (removed int) {
	maps.Copy(w.o.reclaimed, w.o.stamped)
	w.j.Lock()
	plan := w.j.Prepare(most)
	w.j.Unlock()
	if plan != nil {
		plan.Execute(context.Background())
		w.j.Lock()
		_, removed, _ = w.j.Commit(plan)
		w.j.Unlock()
	}
	w.turn(func() { _ = w.j.Discharge() })
	return removed
}

// read returns every frame the log delivers from its beginning.
func (w *world) read(j *Journal) ([]ReadFrame, error) {
	r := j.NewReader(0)
	defer r.Close()
	var frames []ReadFrame
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			if w.over() {
				return frames, nil
			}
			return nil, fmt.Errorf("reading on from position %d: %w", r.Position(), err)
		}
		frames = append(frames, f)
	}
}

// check compares a log just opened with the oracle, and teaches the oracle
// what recovery has proven.
func (w *world) check() error {
	frames, err := w.read(w.j)
	if err != nil {
		return err
	}
	if w.over() {
		return nil
	}
	present := map[uint64]bool{}
	var end Position
	var count uint64
	laneItems := map[Lane]uint64{}
	tenants := map[string]bool{}
	for i := range frames {
		f := &frames[i]
		if f.Position < end {
			return fmt.Errorf("frame at %d begins before the end %d of the one before it", f.Position, end)
		}
		end = f.Position + f.Len
		id, err := w.known(f)
		if err != nil {
			return err
		}
		if present[id] {
			return fmt.Errorf("frame %d is there twice, again at %d", id, f.Position)
		}
		present[id] = true
		count++
		l := Lane{f.Tenant, f.Kind}
		tenants[f.Tenant] = true
		if f.Position >= w.rec.Horizons[l] {
			laneItems[l] += uint64(f.Items)
		}
	}
	if d := w.j.Durable(); d < w.o.end || d < end {
		return fmt.Errorf("durable position %d after recovery: %d was proven before, frames reach %d", d, w.o.end, end)
	}
	for id, s := range w.o.sent {
		if s.fate == acked && !present[id] && s.pos >= w.o.reclaimed[s.lane] && w.o.damaged[id] == nil {
			return fmt.Errorf("acknowledged frame %d of %v at %d (%d bytes) is lost; horizon stamped %d, durable position %d",
				id, s.lane, s.pos, s.len, w.o.stamped[s.lane], w.j.Durable())
		}
	}
	met := w.met()
	if w.rec.Frames != count && !(met && w.rec.Frames > count) {
		return fmt.Errorf("recovery says %d frames; there are %d", w.rec.Frames, count)
	}
	items := w.rec.QuarantinedItems
	for _, n := range laneItems {
		items += n
	}
	if w.rec.Items != items && !(met && w.rec.Items > items) {
		return fmt.Errorf("recovery says %d items, %d of them in quarantine; %d are outstanding", w.rec.Items, w.rec.QuarantinedItems, items)
	}
	for _, l := range testLanes {
		h := w.rec.Horizons[l]
		if h > w.o.tried[l] {
			return fmt.Errorf("horizon %d of %v was never asked for, at most %d was", h, l, w.o.tried[l])
		}
		if h < w.o.stamped[l] && tenants[l.Tenant] && laneItems[l] > 0 && w.behind(frames, l, w.o.stamped[l]) {
			return fmt.Errorf("horizon of %v went back from %d to %d", l, w.o.stamped[l], h)
		}
		if w.rec.LaneItems[l] != laneItems[l] && !met {
			return fmt.Errorf("recovery says %d items of %v are outstanding; there are %d", w.rec.LaneItems[l], l, laneItems[l])
		}
		w.o.stamped[l] = max(w.o.stamped[l], h) // an undecided commit landed
	}
	for id, s := range w.o.sent { // recovery proved what it found
		if present[id] && s.fate == undecided {
			s.fate = acked
			w.o.sent[id] = s
		}
	}
	for i := range frames {
		id := binary.LittleEndian.Uint64(frames[i].Payload)
		s := w.o.sent[id]
		s.pos = frames[i].Position
		w.o.sent[id] = s
	}
	w.o.end = max(w.o.end, w.j.Durable())
	if err := w.keptAside(); err != nil {
		return err
	}
	return w.figures()
}

// keptAside looks for the bytes of every damaged frame, in quarantine or where
// they were, and for every dead letter.
func (w *world) keptAside() error {
	kept := map[string][][]byte{}
	for _, dir := range []string{"", quarantineName, deadLetterName} {
		names, err := w.fs.ReadDir(path.Join(logDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, name := range names {
			if strings.HasSuffix(name, partialSuffix) || dir == "" && len(w.o.damaged) == 0 {
				continue
			}
			if data, err := w.fs.ReadFile(path.Join(logDir, dir, name)); err == nil {
				kept[dir] = append(kept[dir], data)
			}
		}
	}
	has := func(dir string, b []byte) bool {
		return slices.ContainsFunc(kept[dir], func(data []byte) bool { return bytes.Contains(data, b) })
	}
	for id, b := range w.o.damaged {
		if s := w.o.sent[id]; !has(quarantineName, b) && !has("", b) && s.pos >= w.o.reclaimed[s.lane] {
			return fmt.Errorf("the damaged bytes of frame %d, which were at %d, are neither there nor in quarantine", id, s.pos)
		}
	}
	for id := range w.o.letters {
		if !has(deadLetterName, payloadOf(id, 8)) {
			return fmt.Errorf("the dead letter of frame %d is lost", id)
		}
	}
	return nil
}

// met says whether readers met damage: in a segment whose summary was believed.
func (w *world) met() bool {
	w.j.damage.mu.Lock()
	defer w.j.damage.mu.Unlock()
	return len(w.j.damage.met) > 0
}

// behind says whether a lane has a frame before p.
func (w *world) behind(frames []ReadFrame, l Lane, p Position) bool {
	return slices.ContainsFunc(frames, func(f ReadFrame) bool { return f.Tenant == l.Tenant && f.Kind == l.Kind && f.Position < p })
}

// known finds out which frame was read and whether it is as it was sent.
func (w *world) known(f *ReadFrame) (uint64, error) {
	if len(f.Payload) < 8 {
		return 0, fmt.Errorf("frame at %d: payload of %d bytes was never sent", f.Position, len(f.Payload))
	}
	id := binary.LittleEndian.Uint64(f.Payload)
	s, ok := w.o.sent[id]
	tenant, _, err := DecodeMetadata(f.Metadata)
	switch {
	case !ok:
		return 0, fmt.Errorf("frame %d at %d was never sent", id, f.Position)
	case err != nil:
		return 0, fmt.Errorf("frame %d at %d: %w", id, f.Position, err)
	case s.fate == refused:
		return 0, fmt.Errorf("frame %d at %d was refused", id, f.Position)
	case w.o.damaged[id] != nil:
		return 0, fmt.Errorf("frame %d at %d was damaged", id, f.Position)
	case s.fate == acked && s.pos != f.Position:
		return 0, fmt.Errorf("frame %d was acknowledged at %d and is at %d", id, s.pos, f.Position)
	case s.lane != Lane{f.Tenant, f.Kind}, tenant != f.Tenant, s.items != f.Items, s.len != f.Len,
		!bytes.Equal(f.Payload, payloadOf(id, len(f.Payload))):
		return 0, fmt.Errorf("frame %d at %d is not as it was sent", id, f.Position)
	}
	return id, nil
}

// figures compares the ledger with a sum over the files. Only segments that
// are not on their way out can be compared while a pass is undecided, so this
// is for the moments between passes.
func (w *world) figures() error {
	segments, bytes, err := scanLog(w.fs)
	if err != nil {
		return err
	}
	w.j.Lock()
	f := w.j.Figures()
	w.j.Unlock()
	s := w.j.Stats()
	if s.Unreclaimed != f.Unreclaimed || s.ClosedRetained != f.ClosedRetained || s.Sealed != f.Sealed {
		return fmt.Errorf("stats say %+v, the ledger %+v", s, f)
	}
	if f.Sealed == 0 && f.Unflushed == 0 && !w.faulty && !w.over() && !w.met() && (f.Unreclaimed != bytes || f.ClosedRetained != len(segments)-1) {
		return fmt.Errorf("ledger says %d unreclaimed bytes and %d closed segments; the files hold %d in %d closed ones: %s",
			f.Unreclaimed, f.ClosedRetained, bytes, len(segments)-1, strings.Join(segments, " "))
	}
	return nil
}

// cutAt has the power cut at the call with that index, counted from now.
func (w *world) cutAt(index int) {
	w.cut = w.fs.Calls(crashfs.Any) + index
	w.fs.StopAt(w.cut)
}

// over says whether the power is cut.
func (w *world) over() bool { return w.cut >= 0 && w.fs.Calls(crashfs.Any) > w.cut }

var segmentName = regexp.MustCompile(`^[0-9a-f]{16}-[0-9a-f]{8}\.wal$`)

// scanLog walks the files by nothing but the format's lengths and positions:
// the names of the segments in order and the bytes of their frames and gaps.
func scanLog(mem *crashfs.FS) (segments []string, total uint64, err error) {
	names, err := mem.ReadDir(logDir)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		if segmentName.MatchString(name) {
			segments = append(segments, name)
		}
	}
	for i, name := range segments {
		if i > 0 && name[17:25] <= segments[i-1][17:25] {
			return nil, 0, fmt.Errorf("ordinals do not grow: %s comes after %s", name, segments[i-1])
		}
		base, err := strconv.ParseUint(name[:16], 16, 64)
		if err != nil {
			return nil, 0, err
		}
		limit := uint64(1) << 63
		if i+1 < len(segments) {
			next, err := strconv.ParseUint(segments[i+1][:16], 16, 64)
			if err != nil {
				return nil, 0, err
			}
			limit = next
		}
		data, err := mem.ReadFile(path.Join(logDir, name))
		if err != nil {
			return nil, 0, err
		}
		p := base
		for p < limit {
			off := p - base + 64
			if off+40 > uint64(len(data)) {
				break
			}
			h := data[off : off+40]
			kind := h[32]
			if binary.LittleEndian.Uint64(h[8:]) != p || kind == 0 || kind == 127 {
				break
			}
			p += 40 + uint64(binary.LittleEndian.Uint32(h[4:]))
		}
		total += p - base
	}
	return segments, total, nil
}
