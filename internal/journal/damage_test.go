// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// site is a log that is not open, to be damaged: three segments of four
// frames each, the frames of the last one in two groups.
type site struct {
	*world
	frames []place  // in the order of the log
	names  []string // of the segments' files, in order
}

// newSite makes the log and closes it, or leaves it as kill -9 does. A log
// that was killed has proven nothing of the last group.
func newSite(t *testing.T, clean bool) *site {
	t.Helper()
	w := newWorld(11)
	require.NoError(t, w.open())
	for range 2 {
		w.mustAppend(t, 4)
		w.turn(func() { require.NoError(t, w.j.RotateForced()) })
	}
	w.mustAppend(t, 2)
	w.mustAppend(t, 2)
	w.j.tasks.Wait() // summaries
	s := &site{world: w}
	if clean {
		w.close()
	} else {
		next := w.fs.Kill()
		w.close()
		w.fs = next
	}
	var err error
	s.frames, err = w.onDisk()
	require.NoError(t, err)
	require.Len(t, s.frames, 12)
	for _, f := range s.frames {
		if !slices.Contains(s.names, f.file) {
			s.names = append(s.names, f.file)
		}
	}
	require.Len(t, s.names, 3)
	return s
}

// mustAppend appends frames of a few hundred bytes, of any lanes, as one group.
func (w *world) mustAppend(t testing.TB, n int) {
	t.Helper()
	w.mustAppendOf(t, n, testLanes...)
}

func (w *world) mustAppendOf(t testing.TB, n int, lanes ...Lane) {
	t.Helper()
	var ids []uint64
	var tickets []*Ticket
	for range n {
		id, f := w.frameOf(lanes[w.rng.IntN(len(lanes))], 300+w.rng.IntN(500))
		ticket := w.admit(f)
		require.NotNil(t, ticket, "refused in state %v", w.j.Stats())
		ids, tickets = append(ids, id), append(tickets, ticket)
	}
	w.turn(func() {
		for w.j.Advance() {
		}
	})
	for i, ticket := range tickets {
		<-ticket.Done()
		p, err := ticket.Outcome()
		require.NoError(t, err)
		w.decide(ids[i], acked, p)
		w.o.end = p + w.o.sent[ids[i]].len
	}
}

// again is the site on a copy of its files, with a policy.
func (s *site) again(p CorruptionPolicy) *site {
	c := *s
	c.world = s.fork(s.fs.Clone(), 1)
	c.cfg.OnCorruption = p
	return &c
}

// edit changes a file's bytes, durably; nil removes the file.
func (s *site) edit(t testing.TB, file string, fn func([]byte) []byte) {
	t.Helper()
	data, err := s.fs.ReadFile(file)
	require.NoError(t, err)
	if data = fn(data); data == nil {
		require.NoError(t, s.fs.Unlink(file))
		require.NoError(t, s.fs.SyncDir(path.Dir(file)))
		return
	}
	require.NoError(t, s.fs.WriteFile(file, data))
}

func (s *site) flip(t testing.TB, file string, off int64) {
	s.edit(t, file, func(b []byte) []byte {
		b[off] ^= 0x10
		return b
	})
}

// spoilSummary makes a closed segment be scanned.
func (s *site) spoilSummary(t testing.TB, file string) {
	s.edit(t, file, func(b []byte) []byte {
		b[len(b)-20] ^= 1
		return b
	})
}

// headerSays is what a damaged frame's header still says of its items.
type headerSays uint8

const (
	nothing    headerSays = iota // it cannot be right
	itsItems                     // how many there were
	otherItems                   // their number, with the lowest bit flipped
)

// frameDamage is what can be wrong with one frame. off is counted from the
// frame's first byte.
var frameDamage = []struct {
	name string
	says headerSays
	fn   func(b []byte, off int64, p place) // b is the file
}{
	{"checksum", itsItems, func(b []byte, off int64, _ place) { b[off+1] ^= 1 }},
	{"length", nothing, func(b []byte, off int64, _ place) { b[off+4] ^= 1 }},
	{"length 0", nothing, func(b []byte, off int64, _ place) { copy(b[off+4:], []byte{0, 0, 0, 0}) }},
	{"length 0xFFFFFFFF", nothing, func(b []byte, off int64, _ place) { copy(b[off+4:], []byte{255, 255, 255, 255}) }},
	{"length beyond the end of the file", nothing, func(b []byte, off int64, _ place) { le.PutUint32(b[off+4:], uint32(len(b))) }},
	{"length of two frames", nothing, func(b []byte, off int64, p place) { le.PutUint32(b[off+4:], 2*uint32(p.len)) }},
	{"position", nothing, func(b []byte, off int64, _ place) { b[off+8] ^= 4 }},
	{"high byte of the position", nothing, func(b []byte, off int64, _ place) { b[off+15] ^= 0x80 }},
	{"received", itsItems, func(b []byte, off int64, _ place) { b[off+16] ^= 1 }},
	{"items", otherItems, func(b []byte, off int64, _ place) { b[off+24] ^= 1 }},
	{"group offset", itsItems, func(b []byte, off int64, _ place) { b[off+28] ^= 1 }},
	{"another signal's kind", itsItems, func(b []byte, off int64, _ place) { b[off+32] = b[off+32]%kinds + 1 }},
	{"more items than bytes", nothing, func(b []byte, off int64, _ place) { b[off+27] ^= 0x10 }},
	{"kind gap", nothing, func(b []byte, off int64, _ place) { b[off+32] = byte(kindGap) }},
	{"kind summary", nothing, func(b []byte, off int64, _ place) { b[off+32] = byte(kindSummary) }},
	{"kind 0", nothing, func(b []byte, off int64, _ place) { b[off+32] = 0 }},
	{"flags", nothing, func(b []byte, off int64, _ place) { b[off+33] ^= 1 }},
	{"metadata length", itsItems, func(b []byte, off int64, _ place) { b[off+34] ^= 1 }},
	{"zero bytes", nothing, func(b []byte, off int64, _ place) { b[off+36] ^= 1 }},
	{"metadata", itsItems, func(b []byte, off int64, _ place) { b[off+40] ^= 1 }},
	{"first payload byte", itsItems, func(b []byte, off int64, _ place) { b[off+40+int64(le.Uint16(b[off+34:]))] ^= 1 }},
	{"last payload byte", itsItems, func(b []byte, off int64, p place) { b[off+int64(p.len)-1] ^= 0x80 }},
	{"a zeroed header", nothing, func(b []byte, off int64, _ place) { clear(b[off : off+40]) }},
	{"all zeros", nothing, func(b []byte, off int64, p place) { clear(b[off : off+int64(p.len)]) }},
	{"all ones", nothing, func(b []byte, off int64, p place) {
		for i := range b[off : off+int64(p.len)] {
			b[off+int64(i)] = 0xFF
		}
	}},
	{"another frame's bytes", nothing, func(b []byte, off int64, p place) { copy(b[off:off+int64(p.len)], b[64:]) }},
}

// TestC09_DamagedFrame: under quarantine the damaged frame alone is lost,
// under fail the log says exactly where it is and does not open.
func TestC09_DamagedFrame(t *testing.T) {
	clean := newSite(t, true)
	for _, at := range []struct {
		name  string
		frame int
	}{
		{"first of a closed segment", 0},
		{"inside a closed segment", 5},
		{"last of a closed segment", 7},
		{"first of the newest", 8},
		{"inside the newest", 9},
		{"last of the newest", 11},
	} {
		for _, d := range frameDamage {
			hit := clean.frames[at.frame]
			if at.frame == 0 || at.frame == 4 || at.frame == 8 {
				if d.name == "another frame's bytes" {
					continue // those would be its own
				}
			}
			t.Run(at.name+"/"+d.name, func(t *testing.T) {
				s := clean.again(CorruptionFail)
				if at.frame < 8 {
					s.spoilSummary(t, hit.file)
				}
				s.edit(t, hit.file, func(b []byte) []byte {
					d.fn(b, hit.off, hit)
					return b
				})
				s.damagedAt(t, hit, d.says)
			})
		}
	}
}

// TestC09_DamageProvedByALaterGroup: STATE knows nothing of the newest groups
// after kill -9, but a group is written only when the one before it is
// durable: what is wrong before the last group is damage, not a torn write.
func TestC09_DamageProvedByALaterGroup(t *testing.T) {
	killed := newSite(t, false)
	for _, d := range frameDamage {
		for _, i := range []int{8, 9} {
			if i == 8 && d.name == "another frame's bytes" {
				continue
			}
			t.Run(fmt.Sprintf("frame %d/%s", i, d.name), func(t *testing.T) {
				s := killed.again(CorruptionFail)
				hit := killed.frames[i]
				s.edit(t, hit.file, func(b []byte) []byte {
					d.fn(b, hit.off, hit)
					return b
				})
				s.damagedAt(t, hit, d.says)
			})
		}
	}
}

// damagedAt expects exactly one frame to be damaged.
func (s *site) damagedAt(t *testing.T, hit place, says headerSays) {
	t.Helper()
	pos := s.o.sent[hit.id].pos

	fail := s.again(CorruptionFail)
	before, err := fail.fs.ReadFile(hit.file)
	require.NoError(t, err)
	err = fail.open()
	fail.close()
	var open *openError
	require.ErrorAs(t, err, &open, "opened although %s is damaged", hit.file)
	for _, want := range []string{path.Base(hit.file), fmt.Sprint(hit.off), fmt.Sprint(pos), fmt.Sprint(pos + hit.len), "set on_corruption: quarantine"} {
		assert.ErrorContains(t, err, want)
	}
	after, err := fail.fs.ReadFile(hit.file)
	require.NoError(t, err)
	assert.Equal(t, before, after, "fail must change nothing")

	q := s.again(CorruptionQuarantine)
	q.o.damaged[hit.id] = []byte{}
	require.NoError(t, q.open())
	assert.EqualValues(t, hit.len, q.rec.QuarantinedBytes)
	items := uint64(q.o.sent[hit.id].items)
	switch says {
	case nothing:
		items = 0
	case otherItems:
		items ^= 1
	}
	assert.Equal(t, says == nothing, q.rec.QuarantinedUnknown)
	assert.Equal(t, items, q.rec.QuarantinedItems)
	assert.False(t, q.rec.Ambiguous)
	q.mustAppend(t, 1)
	require.Contains(t, q.quarantined(t), string(before[hit.off:hit.off+int64(hit.len)]), "the damaged bytes are not set aside")
	q.close()

	for _, policy := range []CorruptionPolicy{CorruptionFail, CorruptionQuarantine} {
		q.cfg.OnCorruption = policy
		q.fs = q.fs.Crash(nil)
		require.NoError(t, q.open(), "the gap must be no damage")
		assert.Zero(t, q.rec.QuarantinedBytes)
		assert.Zero(t, q.rec.QuarantinedItems, "counted by the start that wrote the gap")
		assert.False(t, q.rec.QuarantinedUnknown)
		q.close()
	}
}

// quarantined is everything in the quarantine directory.
func (w *world) quarantined(t *testing.T) string {
	t.Helper()
	c := w.fs.Clone()
	infos, err := c.List(path.Join(logDir, "quarantine"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	require.NoError(t, err)
	var b strings.Builder
	for _, i := range infos {
		data, err := c.ReadFile(path.Join(logDir, "quarantine", i.Name))
		require.NoError(t, err)
		b.Write(data)
	}
	return b.String()
}

// TestC09_SeveralDamagedFrames: valid frames behind and between bad ones are
// never discarded.
func TestC09_SeveralDamagedFrames(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	var lost uint64
	for _, i := range []int{1, 2, 6, 8, 10} {
		hit := s.frames[i]
		s.flip(t, hit.file, hit.off+50)
		s.o.damaged[hit.id] = []byte{}
		lost += hit.len
	}
	s.spoilSummary(t, s.names[0])
	s.spoilSummary(t, s.names[1])
	require.NoError(t, s.open())
	assert.Equal(t, lost, s.rec.QuarantinedBytes)
	s.close()
}

// TestF02_LostItemsAreCountedOnce: what a start finds lost is part of what it
// has to account for; no later one counts it again, and what was settled is
// not lost.
func TestF02_LostItemsAreCountedOnce(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	require.NoError(t, s.open())
	settled := map[Lane]Position{}
	for _, l := range testLanes {
		settled[l] = s.o.sent[s.frames[3].id].pos
	}
	require.NoError(t, s.stamp(settled))
	s.close()
	itemsOf := func(frames ...int) (n uint64) {
		for _, i := range frames {
			n += uint64(s.o.sent[s.frames[i].id].items)
		}
		return n
	}
	all := itemsOf(3, 4, 5, 6, 7, 8, 9, 10, 11)
	start := func(recovered, lost uint64, unknown bool) {
		t.Helper()
		require.NoError(t, s.open())
		assert.Equal(t, recovered, s.rec.Items)
		assert.Equal(t, lost, s.rec.QuarantinedItems)
		assert.Equal(t, unknown, s.rec.QuarantinedUnknown)
		s.close()
	}
	start(all, 0, false)

	s.spoilSummary(t, s.names[0])
	s.spoilSummary(t, s.names[1])
	for _, i := range []int{1, 5, 9, 10} { // the first is settled, the last two are one range
		s.flip(t, s.frames[i].file, s.frames[i].off+int64(s.frames[i].len)-1)
		s.o.damaged[s.frames[i].id] = []byte{}
	}
	start(all, itemsOf(5, 9, 10), false)
	start(all-itemsOf(5, 9, 10), 0, false)

	gap := s.frames[9]
	s.flip(t, gap.file, gap.off+25) // its count of items
	start(all-itemsOf(5, 9, 10), 0, true)
	start(all-itemsOf(5, 9, 10), 0, false)
}

// TestF02_RecoveryCountsBehindDamage: where a lane's horizon lies inside a
// segment that is known by its summary, no damage in it hides the items behind
// it; a frame that does not verify may be counted, for its reader will find it
// lost, but no frame that does is left out.
func TestF02_RecoveryCountsBehindDamage(t *testing.T) {
	clean := newSite(t, true).again(CorruptionQuarantine)
	require.NoError(t, clean.open())
	settled := map[Lane]Position{}
	for _, l := range testLanes {
		settled[l] = clean.o.sent[clean.frames[1].id].pos
	}
	require.NoError(t, clean.stamp(settled))
	clean.close()
	for _, d := range frameDamage {
		for _, i := range []int{0, 1, 2} { // settled, the first that is not, the next
			t.Run(fmt.Sprintf("%s %d", d.name, i), func(t *testing.T) {
				s := clean.again(CorruptionQuarantine)
				hit := s.frames[i]
				s.edit(t, hit.file, func(b []byte) []byte {
					d.fn(b, hit.off, hit)
					return b
				})
				j, rec, err := Open(s.fs, s.cfg)
				require.NoError(t, err)
				defer func() { require.NoError(t, j.Close()) }()
				require.Zero(t, rec.Scanned, "besides the newest")
				readable := map[Lane]uint64{}
				r := j.NewReader(0)
				defer r.Close()
				for {
					f, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					require.NoError(t, err)
					if l := (Lane{f.Tenant, f.Kind}); f.Position >= rec.Horizons[l] {
						readable[l] += uint64(f.Items)
					}
				}
				for l, n := range readable {
					assert.GreaterOrEqual(t, rec.LaneItems[l], n, "%v", l)
				}
			})
		}
	}
}

// TestC09_QuarantineFull: without room to set the range aside quarantine
// behaves like fail, and changes nothing.
func TestC09_QuarantineFull(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	s.cfg.QuarantineMaxBytes = 10
	hit := s.frames[9]
	s.flip(t, hit.file, hit.off+50)
	before, err := s.fs.ReadFile(hit.file)
	require.NoError(t, err)
	err = s.open()
	require.ErrorContains(t, err, path.Base(hit.file))
	require.ErrorContains(t, err, "raise quarantine_max_bytes")
	require.NotContains(t, err.Error(), "on_corruption")
	after, err := s.fs.ReadFile(hit.file)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	s.cfg.QuarantineMaxBytes = 1 << 20
	s.o.damaged[hit.id] = []byte{}
	require.NoError(t, s.open())
	s.close()
}

// TestC09_FreshLogBesideOldCopies: a log that was begun anew in the directory
// has the same names and positions; what it sets aside overwrites nothing.
func TestC09_FreshLogBesideOldCopies(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	hit := s.frames[9]
	s.flip(t, hit.file, hit.off+50)
	s.o.damaged[hit.id] = []byte{}
	require.NoError(t, s.open())
	s.close()
	first := s.quarantined(t)

	fresh := newSite(t, true).again(CorruptionQuarantine)
	names, err := s.fs.ReadDir(path.Join(logDir, quarantineName))
	require.NoError(t, err)
	require.NoError(t, fresh.fs.Mkdir(path.Join(logDir, quarantineName), 0o700))
	for _, n := range names {
		data, err := s.fs.ReadFile(path.Join(logDir, quarantineName, n))
		require.NoError(t, err)
		require.NoError(t, fresh.fs.WriteFile(path.Join(logDir, quarantineName, n), data))
	}
	fresh.flip(t, hit.file, hit.off+60)
	fresh.o.damaged[hit.id] = []byte{}
	require.NoError(t, fresh.open())
	fresh.close()
	assert.Contains(t, fresh.quarantined(t), first)
	assert.Len(t, fresh.quarantined(t), 2*len(first))
}

// TestC09_DamagedAgain: what is set aside a second time, at the same position,
// replaces no copy.
func TestC09_DamagedAgain(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	hit := s.frames[9]
	var want []string
	setAside := func(copies int) {
		t.Helper()
		require.NoError(t, s.open())
		s.close()
		names, err := s.fs.ReadDir(path.Join(logDir, quarantineName))
		require.NoError(t, err)
		require.Len(t, names, copies)
		var have []string
		for _, n := range names {
			data, err := s.fs.ReadFile(path.Join(logDir, quarantineName, n))
			require.NoError(t, err)
			have = append(have, string(data))
		}
		require.ElementsMatch(t, want, have)
	}
	s.o.damaged[hit.id] = []byte{}
	for i, off := range []int64{50, 1, 25} { // the payload, then the gap's header, twice
		s.edit(t, hit.file, func(b []byte) []byte {
			b[hit.off+off] ^= 0x10
			want = append(want, string(b[hit.off:hit.off+int64(hit.len)]))
			return b
		})
		setAside(i + 1)
	}
	for i := range 2 { // a segment's header
		s.edit(t, hit.file, func(b []byte) []byte {
			b[20+i] ^= 0x10
			want = append(want, string(b[:segmentHeaderLen]))
			return b
		})
		setAside(4 + i)
	}
}

// TestC09_InterruptedCopy: a copy that a crash left unfinished, in whatever
// state, is finished in its place.
func TestC09_InterruptedCopy(t *testing.T) {
	clean := newSite(t, true).again(CorruptionQuarantine)
	hit := clean.frames[9]
	clean.flip(t, hit.file, hit.off+50)
	clean.o.damaged[hit.id] = []byte{}
	whole := clean.again(CorruptionQuarantine)
	require.NoError(t, whole.open())
	whole.close()
	names, err := whole.fs.ReadDir(path.Join(logDir, quarantineName))
	require.NoError(t, err)
	require.Len(t, names, 1)
	name := path.Join(logDir, quarantineName, names[0])
	data, err := whole.fs.ReadFile(name)
	require.NoError(t, err)
	for _, begun := range [][]byte{
		{}, data[:100], make([]byte, len(data)), append(make([]byte, 100), data[100:200]...), data,
	} {
		s := clean.again(CorruptionQuarantine)
		require.NoError(t, s.fs.Mkdir(path.Join(logDir, quarantineName), 0o700))
		require.NoError(t, s.fs.WriteFile(name, begun))
		s.cfg.QuarantineMaxBytes = hit.len // no room for two
		require.NoError(t, s.open())
		s.close()
		names, err := s.fs.ReadDir(path.Join(logDir, quarantineName))
		require.NoError(t, err)
		require.Equal(t, []string{path.Base(name)}, names)
		after, err := s.fs.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, data, after)
	}
}

// logDamage is what can be wrong with a log's files. Damage that cost
// something refuses to open under any policy, naming what says names; damage
// that did not is mended.
var logDamage = []struct {
	name string
	fn   func(t *testing.T, s *site)
	fail string // what Open says under fail; empty = opens, with every frame
	same bool   // quarantine refuses too; else it opens with every frame
}{
	{"C09 header magic of a closed segment", func(t *testing.T, s *site) { s.flip(t, s.names[1], 0) }, "seg1", false},
	{"C09 header magic of the newest", func(t *testing.T, s *site) { s.flip(t, s.names[2], 3) }, "seg2", false},
	{"C09 header base of the newest", func(t *testing.T, s *site) { s.flip(t, s.names[2], 33) }, "seg2", false},
	{"C09 header checksum of a closed segment", func(t *testing.T, s *site) { s.flip(t, s.names[0], 61) }, "seg0", false},
	{"C09 header log id", func(t *testing.T, s *site) { s.flip(t, s.names[0], 20) }, "seg0", false},
	{"C09 summary", func(t *testing.T, s *site) { s.spoilSummary(t, s.names[0]) }, "", false},
	{"C09 summary cut short", func(t *testing.T, s *site) {
		s.edit(t, s.names[1], func(b []byte) []byte { return b[:len(b)-1] })
	}, "", false},
	{"C09 summary gone", func(t *testing.T, s *site) {
		last := s.frames[7]
		s.edit(t, s.names[1], func(b []byte) []byte { return b[:last.off+int64(last.len)] })
	}, "", false},
	{"C09 zeros behind a summary", func(t *testing.T, s *site) {
		s.edit(t, s.names[1], func(b []byte) []byte { return append(b, make([]byte, 5000)...) })
	}, "", false},
	{"C09 junk behind a closed segment's end", func(t *testing.T, s *site) {
		last := s.frames[7]
		s.edit(t, s.names[1], func(b []byte) []byte {
			return append(b[:last.off+int64(last.len)], []byte(strings.Repeat("junk", 500))...)
		})
	}, "", false},
	{"C09 first STATE slot", func(t *testing.T, s *site) { s.flip(t, logDir+"/STATE", 4096+20) }, "", false},
	{"C09 second STATE slot", func(t *testing.T, s *site) { s.flip(t, logDir+"/STATE", s.slot(t, 1)+20) }, "", false},
	{"C09 both STATE slots", func(t *testing.T, s *site) {
		s.flip(t, logDir+"/STATE", s.slot(t, 0)+20)
		s.flip(t, logDir+"/STATE", s.slot(t, 1)+20)
	}, "STATE", true},
	{"C09 STATE header", func(t *testing.T, s *site) { s.flip(t, logDir+"/STATE", 17) }, "STATE", true},

	{"C10 first segment missing", func(t *testing.T, s *site) { s.edit(t, s.names[0], remove) }, "0", true},
	{"C10 middle segment missing", func(t *testing.T, s *site) { s.edit(t, s.names[1], remove) }, "seg1 base", true},
	{"C10 newest segment missing", func(t *testing.T, s *site) { s.edit(t, s.names[2], remove) }, "seg2 base", true},
	{"C10 all segments missing", func(t *testing.T, s *site) {
		for _, n := range s.names {
			s.edit(t, n, remove)
		}
	}, "no segment", true},
	{"C10 foreign segment", func(t *testing.T, s *site) {
		o := newSite(t, true)
		data, err := o.fs.ReadFile(o.names[1])
		require.NoError(t, err)
		require.NoError(t, s.fs.WriteFile(s.names[1], data))
	}, "seg1", true},
	{"C10 segment of an unknown version", func(t *testing.T, s *site) {
		s.edit(t, s.names[1], func(b []byte) []byte {
			b[8] = 2
			le.PutUint32(b[60:], sum(0, b[:60]))
			return b
		})
	}, "version", true},
	{"C10 STATE of an unknown version", func(t *testing.T, s *site) {
		s.edit(t, logDir+"/STATE", func(b []byte) []byte {
			b[8] = 2
			le.PutUint32(b[60:], sum(0, b[:60]))
			return b
		})
	}, "version", true},
	{"C10 duplicate of a closed segment", func(t *testing.T, s *site) {
		data, err := s.fs.ReadFile(s.names[0])
		require.NoError(t, err)
		require.NoError(t, s.fs.WriteFile(s.names[0][:len(s.names[0])-len("0.wal")]+"9.wal", data))
	}, "seg0 base", true},
	{"C10 symlinked segment", func(t *testing.T, s *site) {
		s.edit(t, s.names[0], remove)
		require.NoError(t, s.fs.Symlink(s.names[0]))
	}, "seg0", true},
	{"C10 directory as a segment", func(t *testing.T, s *site) {
		s.edit(t, s.names[0], remove)
		require.NoError(t, s.fs.Mkdir(s.names[0], 0o700))
	}, "seg0", true},
	{"C10 symlinked STATE", func(t *testing.T, s *site) {
		s.edit(t, logDir+"/STATE", remove)
		require.NoError(t, s.fs.Symlink(logDir+"/STATE"))
	}, "STATE", true},
	{"C10 unreadable segment", func(t *testing.T, s *site) {
		s.fs.Inject(crashfs.Fault{Op: crashfs.OpOpen, Match: path.Base(s.names[1]), Err: syscall.EACCES})
	}, "seg1", true},
	{"C10 unreadable bytes in a segment", func(t *testing.T, s *site) {
		s.fs.Inject(crashfs.Fault{Op: crashfs.OpRead, Match: path.Base(s.names[1]), Err: syscall.EIO})
	}, "seg1", true},
	{"C10 unreadable bytes in STATE", func(t *testing.T, s *site) {
		s.fs.Inject(crashfs.Fault{Op: crashfs.OpRead, Match: "STATE", Err: syscall.EIO})
	}, "STATE", true},
	{"C10 STATE missing", func(t *testing.T, s *site) { s.edit(t, logDir+"/STATE", remove) }, "move the whole directory " + logDir + " away", true},
	{"C10 STATE of zero bytes", func(t *testing.T, s *site) {
		s.edit(t, logDir+"/STATE", func([]byte) []byte { return []byte{} })
	}, "STATE", true},
	{"C10 STATE of another log", func(t *testing.T, s *site) {
		data, err := newSite(t, true).fs.ReadFile(logDir + "/STATE")
		require.NoError(t, err)
		require.NoError(t, s.fs.WriteFile(logDir+"/STATE", data))
	}, "log", true},
	{"C10 files that are not the log's", func(t *testing.T, s *site) {
		for _, n := range []string{"notes.txt", "0000000000000000-00000000.wal.bak", "0000000000000000-0000000G.wal", "X.wal", "STATE~"} {
			require.NoError(t, s.fs.WriteFile(path.Join(logDir, n), []byte("mine")))
		}
	}, "", false},
}

func remove([]byte) []byte { return nil }

// slot is where a STATE slot begins.
func (s *site) slot(t *testing.T, i int64) int64 {
	data, err := s.fs.ReadFile(logDir + "/STATE")
	require.NoError(t, err)
	return 4096 + i*int64(le.Uint32(data[32:]))
}

func TestC09C10_DamagedLog(t *testing.T) {
	clean := newSite(t, true)
	for _, tc := range logDamage {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.fail
			for i, name := range clean.names {
				want = strings.ReplaceAll(want, fmt.Sprintf("seg%d base", i), fmt.Sprint(clean.o.sent[clean.frames[4*i].id].pos))
				want = strings.ReplaceAll(want, fmt.Sprintf("seg%d", i), path.Base(name))
			}
			for _, policy := range []CorruptionPolicy{CorruptionFail, CorruptionQuarantine} {
				s := clean.again(policy)
				tc.fn(t, s)
				err := s.open()
				if tc.fail != "" && (tc.same || policy == CorruptionFail) {
					var open *openError
					require.ErrorAs(t, err, &open, "policy %d opened it: %+v", policy, s.rec)
					require.ErrorContains(t, err, want)

					// C19: whatever was open is closed, the lock too.
					l, err := s.fs.Lock(path.Join(logDir, "LOCK"))
					require.NoError(t, err)
					require.NoError(t, l.Unlock())
					continue
				}
				require.NoError(t, err, "policy %d", policy)
				s.mustAppend(t, 1)
				s.close()
				s.cfg.OnCorruption = CorruptionFail
				s.fs = s.fs.Crash(nil)
				require.NoError(t, s.open(), "not mended under policy %d", policy)
				s.close()
			}
		})
	}
}

// TestC10_ShortenedSegment: at a frame boundary, where every frame left is
// whole, and inside a frame.
func TestC10_ShortenedSegment(t *testing.T) {
	clean := newSite(t, true)
	for i, name := range clean.names {
		for k := range 4 {
			hit := clean.frames[4*i+k]
			for _, cut := range []int64{hit.off, hit.off + 100} {
				t.Run(fmt.Sprintf("segment %d at %d", i, cut), func(t *testing.T) {
					s := clean.again(CorruptionFail)
					s.edit(t, name, func(b []byte) []byte { return b[:cut] })
					err := s.open()
					require.ErrorContains(t, err, path.Base(name))
					require.ErrorContains(t, err, fmt.Sprint(s.o.sent[hit.id].pos), "the position of the first lost byte")

					q := clean.again(CorruptionQuarantine)
					q.edit(t, name, func(b []byte) []byte { return b[:cut] })
					for _, f := range clean.frames[4*i+k : 4*i+4] {
						q.o.damaged[f.id] = []byte{}
					}
					require.NoError(t, q.open())
					q.mustAppend(t, 1)
					q.close()
					q.cfg.OnCorruption = CorruptionFail
					q.fs = q.fs.Crash(nil)
					require.NoError(t, q.open())
					q.close()
				})
			}
		}
	}
}

// TestC10_ZeroByteSegment: what creating a file and losing its bytes leaves.
func TestC10_ZeroByteSegment(t *testing.T) {
	clean := newSite(t, true)
	for i, name := range clean.names {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := clean.again(CorruptionFail)
			s.edit(t, name, func([]byte) []byte { return []byte{} })
			require.ErrorContains(t, s.open(), path.Base(name))

			q := clean.again(CorruptionQuarantine)
			q.edit(t, name, func([]byte) []byte { return []byte{} })
			for _, f := range clean.frames[4*i : 4*i+4] {
				q.o.damaged[f.id] = []byte{}
			}
			require.NoError(t, q.open())
			q.mustAppend(t, 1)
			q.close()
		})
	}
}

// TestC10_FileUnderTheNextName: a rotation replaces nothing. The attempt after
// it takes another name; the next start refuses, since the file may be
// anybody's data, until it is moved away.
func TestC10_FileUnderTheNextName(t *testing.T) {
	w := newWorld(8)
	require.NoError(t, w.open())
	w.mustAppend(t, 3)
	foreign := path.Join(logDir, fmt.Sprintf("%016x-%08x.wal", w.j.Durable(), 1))
	require.NoError(t, w.fs.WriteFile(foreign, []byte("somebody's")))
	require.ErrorIs(t, w.rotateNow(), fs.ErrExist)
	assert.Equal(t, 1, w.state().Failures)
	w.later(2 * time.Second)
	w.turn(func() { require.NoError(t, w.j.Discharge()) })
	assert.Len(t, w.j.Segments(), 2)
	w.mustAppend(t, 3)
	w.faulty = true // the files are not only the log's
	next := w.fs.Crash(nil)
	w.close()
	w.fs = next
	data, err := w.fs.ReadFile(foreign)
	require.NoError(t, err)
	assert.Equal(t, "somebody's", string(data))
	require.ErrorContains(t, w.open(), path.Base(foreign))
	require.NoError(t, w.fs.Unlink(foreign))
	require.NoError(t, w.open())
	w.close()
}

// TestC10_OlderAndNewerState: a STATE restored from before is believed as far
// as it goes; one that knows more than the segments hold is refused.
func TestC10_OlderAndNewerState(t *testing.T) {
	s := newSite(t, true)
	old, err := s.fs.ReadFile(logDir + "/STATE")
	require.NoError(t, err)
	before := s.fs.Clone()
	require.NoError(t, s.open())
	s.mustAppend(t, 3)
	s.close()
	newer, err := s.fs.ReadFile(logDir + "/STATE")
	require.NoError(t, err)

	older := s.again(CorruptionFail)
	require.NoError(t, older.fs.WriteFile(logDir+"/STATE", old))
	require.NoError(t, older.open())
	older.close()

	for _, policy := range []CorruptionPolicy{CorruptionFail, CorruptionQuarantine} {
		lost := s.again(policy)
		lost.fs = before.Clone()
		require.NoError(t, lost.fs.WriteFile(logDir+"/STATE", newer))
		err := lost.open()
		if policy == CorruptionFail {
			require.ErrorContains(t, err, fmt.Sprint(s.o.end))
		}
		lost.close()
	}
}

// TestC08_TornTailAtEveryByte: the last group, of which nobody heard, is cut
// at every byte, the rest being zeros, missing, or junk. What was acknowledged
// before is whole; whole frames of the group before the cut are kept; the log
// goes on behind them.
func TestC08_TornTailAtEveryByte(t *testing.T) {
	s := newSite(t, false)
	first, last := s.frames[10], s.frames[11] // the last group
	for _, f := range []place{first, last} {
		s.decide(f.id, undecided, s.o.sent[f.id].pos)
	}
	s.o.end = s.o.sent[first.id].pos
	end := last.off + int64(last.len)
	for name, tail := range map[string]func(b []byte, cut int64) []byte{
		"zeros":   func(b []byte, cut int64) []byte { clear(b[cut:]); return b },
		"missing": func(b []byte, cut int64) []byte { return b[:cut] },
		"junk": func(b []byte, cut int64) []byte {
			for i := cut; i < end; i++ {
				b[i] = byte(i)*7 + 1
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := first.off; cut <= end; cut++ {
				c := s.again(CorruptionFail)
				c.edit(t, first.file, func(b []byte) []byte { return tail(b, cut) })
				require.NoError(t, c.open(), "cut at %d", cut)
				whole := s.o.sent[first.id].pos
				for _, f := range []place{first, last} {
					if cut >= f.off+int64(f.len) {
						whole += f.len
					}
				}
				require.Equal(t, whole, c.j.Durable(), "cut at %d", cut)
				if cut%64 == 0 {
					c.mustAppend(t, 1)
					next := c.fs.Crash(nil)
					c.close()
					c.fs = next
					require.NoError(t, c.open(), "cut at %d, then appended", cut)
				}
				c.close()
			}
		})
	}
}

// TestC08_TornInTheMiddle: the first frame of an unacknowledged group is lost
// and the second is not: the hole becomes a gap and the frame stays.
func TestC08_TornInTheMiddle(t *testing.T) {
	s := newSite(t, false)
	first, last := s.frames[10], s.frames[11]
	for _, f := range []place{first, last} {
		s.decide(f.id, undecided, s.o.sent[f.id].pos)
	}
	s.o.end = s.o.sent[first.id].pos
	s.edit(t, first.file, func(b []byte) []byte {
		clear(b[first.off : first.off+int64(first.len)])
		return b
	})
	for _, policy := range []CorruptionPolicy{CorruptionFail, CorruptionQuarantine} {
		c := s.again(policy)
		require.NoError(t, c.open())
		assert.Equal(t, acked, c.o.sent[last.id].fate, "the whole frame behind the hole must stay")
		assert.Equal(t, undecided, c.o.sent[first.id].fate)
		assert.Equal(t, c.o.sent[last.id].pos+last.len, c.j.Durable())
		c.close()
	}
}

// TestC23_DamageMetByTheReader: a closed segment with a good summary is not
// scanned at open, so its damage is met when it is read.
func TestC23_DamageMetByTheReader(t *testing.T) {
	clean := newSite(t, true)
	for _, d := range frameDamage {
		hit := clean.frames[5]
		t.Run(d.name, func(t *testing.T) {
			damage := func(s *site) {
				s.edit(t, hit.file, func(b []byte) []byte {
					d.fn(b, hit.off, hit)
					return b
				})
			}
			pos := clean.o.sent[hit.id].pos

			fail := clean.again(CorruptionFail)
			damage(fail)
			j, _, err := Open(fail.fs, fail.cfg)
			require.NoError(t, err, "nothing was scanned")
			r := j.NewReader(0)
			var frames int
			var met *DamageError
			for range 2 { // it stays where it is
				for {
					_, err = r.Next()
					if err != nil {
						break
					}
					frames++
				}
				require.ErrorAs(t, err, &met)
				assert.Equal(t, 5, frames)
				assert.Equal(t, pos, r.Position())
			}
			assert.Equal(t, path.Base(hit.file), path.Base(met.File))
			assert.Equal(t, hit.off, met.Offset)
			assert.Equal(t, [2]Position{pos, pos + hit.len}, [2]Position{met.Start, met.End})
			assert.ErrorContains(t, met, "set on_corruption: quarantine")
			fail.j = j
			fail.mustAppend(t, 1) // appends go on
			require.NoError(t, r.Close())
			fail.close()

			q := clean.again(CorruptionQuarantine)
			damage(q)
			before, err := q.fs.ReadFile(hit.file)
			require.NoError(t, err)
			q.o.damaged[hit.id] = []byte{}
			j, _, err = Open(q.fs, q.cfg)
			require.NoError(t, err)
			q.j = j
			seen, err := q.read(j)
			require.NoError(t, err)
			require.Len(t, seen, 11)
			require.Contains(t, q.quarantined(t), string(before[hit.off:hit.off+int64(hit.len)]))
			q.turn(func() { require.NoError(t, j.Discharge()) }) // writes the gap frame
			q.mustAppend(t, 1)
			q.close()
			q.cfg.OnCorruption = CorruptionFail
			q.fs = q.fs.Crash(nil)
			require.NoError(t, q.open())
			q.close()
		})
	}
}

// TestC23_ShortenedUnderReaders: a closed segment that loses its end while the
// log is open loses it once, wherever readers begin; what else is in the log
// they all see, and the next start finds no more damage.
func TestC23_ShortenedUnderReaders(t *testing.T) {
	clean := newSite(t, true)
	for _, c := range []struct {
		name   string
		first  int // lost, as is everything behind it in its segment
		beyond int64
	}{
		{"to nothing", 4, -segmentHeaderLen},
		{"to the header", 4, 0},
		{"to a frame's boundary", 5, 0},
		{"inside a frame's header", 6, 20},
		{"inside a frame", 5, 100},
		{"inside the last frame", 7, 100},
	} {
		for _, order := range [][]int{{11, 10, 9, 8, 7, 6, 5, 4, 3, 0}, {0, 4, 5, 6, 7, 8}, {6, 7, 5, 0}} {
			t.Run(fmt.Sprintf("%s/readers begin at %v", c.name, order), func(t *testing.T) {
				s := clean.again(CorruptionQuarantine)
				require.NoError(t, s.open())
				hit := s.frames[c.first]
				cut := hit.off + c.beyond
				var left []byte // of the range
				s.edit(t, hit.file, func(b []byte) []byte {
					left = b[min(hit.off, cut):cut]
					return b[:cut]
				})
				var items uint64
				for _, f := range s.frames[c.first:8] {
					s.o.damaged[f.id] = []byte{}
					items += uint64(s.o.sent[f.id].items)
				}
				start, end := s.o.sent[hit.id].pos, s.o.sent[s.frames[8].id].pos
				read := func() {
					for _, i := range order {
						var want, got []Position
						for k, f := range s.frames[i:] {
							if i+k < c.first || i+k >= 8 {
								want = append(want, s.o.sent[f.id].pos)
							}
						}
						for _, f := range readAll(t, s.j, s.o.sent[s.frames[i].id].pos) {
							got = append(got, f.Position)
						}
						require.Equal(t, want, got)
					}
				}
				read()
				require.Len(t, s.j.damage.met, 1)
				met := s.j.damage.met[0].err
				assert.Equal(t, [2]Position{start, end}, [2]Position{met.Start, met.End})
				assert.True(t, met.Known)
				assert.Equal(t, items, met.Items)
				assert.Equal(t, end-start, s.j.Stats().QuarantinedBytes)
				assert.Equal(t, string(left), s.quarantined(t), "what the file still had of the range, once")

				s.turn(func() { require.NoError(t, s.j.Discharge()) }) // writes the gap frame
				read()
				require.Len(t, s.j.damage.met, 1)
				s.mustAppend(t, 1)
				s.close()
				s.fs = s.fs.Crash(nil)
				require.NoError(t, s.open())
				assert.Zero(t, s.rec.QuarantinedBytes)
				s.close()
			})
		}
	}
}

// TestC23_StoppedInsideDamage: under fail all readers that begin in a damaged
// range stop at the same damage, which says where it begins and is told once.
func TestC23_StoppedInsideDamage(t *testing.T) {
	s := newSite(t, true).again(CorruptionFail)
	require.NoError(t, s.open())
	defer s.close()
	s.edit(t, s.names[1], func(b []byte) []byte { return b[:s.frames[5].off+100] })
	start, end := s.o.sent[s.frames[5].id].pos, s.o.sent[s.frames[8].id].pos
	for _, i := range []int{7, 6, 5, 0} {
		r := s.j.NewReader(s.o.sent[s.frames[i].id].pos)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		var met *DamageError
		require.ErrorAs(t, err, &met)
		assert.Equal(t, [2]Position{start, end}, [2]Position{met.Start, met.End})
		r.Seek(met.End)
		f, err := r.Next()
		require.NoError(t, err)
		assert.Equal(t, end, f.Position)
		require.NoError(t, r.Close())
	}
	assert.Len(t, s.j.damage.met, 1)
	assert.Empty(t, s.quarantined(t))
}

// TestC23_ShortenedAgain: a range that is met beside ranges that were met
// before begins and ends where they do.
func TestC23_ShortenedAgain(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	require.NoError(t, s.open())
	pos := func(i int) Position { return s.o.sent[s.frames[i].id].pos }
	var want string
	for _, i := range []int{7, 5} {
		hit := s.frames[i]
		s.edit(t, hit.file, func(b []byte) []byte {
			want = string(b[hit.off:hit.off+100]) + want
			return b[:hit.off+100]
		})
		for _, from := range []int{6, 7, 0} {
			readAll(t, s.j, pos(from))
		}
	}
	require.Len(t, s.j.damage.met, 2)
	assert.Equal(t, pos(8)-pos(5), s.j.Stats().QuarantinedBytes)
	assert.Equal(t, want, s.quarantined(t))
	for _, f := range s.frames[5:8] {
		s.o.damaged[f.id] = []byte{}
	}
	s.turn(func() { require.NoError(t, s.j.Discharge()) })
	s.close()
	s.cfg.OnCorruption = CorruptionFail
	s.fs = s.fs.Crash(nil)
	require.NoError(t, s.open())
	s.close()
}

// TestF02_ReadersLoseNothingSettled: damage to frames that their lane's horizon
// has passed costs no items.
func TestF02_ReadersLoseNothingSettled(t *testing.T) {
	s := newSite(t, true).again(CorruptionQuarantine)
	require.NoError(t, s.open())
	defer s.close()
	hit := s.frames[5]
	of := s.o.sent[hit.id].lane
	require.NoError(t, s.stamp(map[Lane]Position{of: s.j.Durable()}))
	s.flip(t, hit.file, hit.off+60)
	seen, err := s.read(s.j)
	require.NoError(t, err)
	assert.Len(t, seen, 11)
	assert.Equal(t, hit.len, s.j.Stats().QuarantinedBytes)
	require.Len(t, s.j.damage.met, 1)
	assert.True(t, s.j.damage.met[0].err.Known)
	assert.Zero(t, s.j.damage.met[0].err.Items)
}

// TestC11_SecondOpener: exits at once and names the holder; the first goes on.
func TestC11_SecondOpener(t *testing.T) {
	w := newWorld(1)
	require.NoError(t, w.open())
	_, _, err := Open(w.fs, w.cfg)
	require.Error(t, err)
	host, hostErr := os.Hostname()
	require.NoError(t, hostErr)
	for _, want := range []string{logDir, fmt.Sprint(os.Getpid()), host} {
		assert.ErrorContains(t, err, want)
	}
	w.mustAppend(t, 2)
	w.close()
	require.NoError(t, w.open())
	w.close()
}

// TestC19_EveryErrorOfOpenEndsIt: whichever call fails, Open fails or opens
// the log whole, leaves no lock and no goroutine, and the next one succeeds.
func TestC19_EveryErrorOfOpenEndsIt(t *testing.T) {
	clean := newSite(t, false)
	probe := clean.again(CorruptionFail)
	require.NoError(t, probe.open())
	calls := probe.fs.Calls(crashfs.Any)
	probe.close()
	failed := 0
	for i := range calls {
		s := clean.again(CorruptionFail)
		s.faulty = true
		s.fs.Inject(crashfs.Fault{Op: crashfs.Any &^ crashfs.OpUnlock, After: i, Times: 1, Err: syscall.EIO})
		err := s.open()
		if err != nil {
			failed++
			require.ErrorIs(t, err, syscall.EIO, "call %d", i)
			l, err := s.fs.Lock(path.Join(logDir, "LOCK"))
			require.NoError(t, err, "call %d left the lock", i)
			require.NoError(t, l.Unlock())
			for _, name := range s.fs.OpenFiles() { // unless it was a close that failed
				require.NotEqual(t, 0, s.fs.Calls(crashfs.OpClose), "call %d left %s open", i, name)
			}
		}
		s.fs.ClearFaults()
		s.close()
		require.NoError(t, s.open(), "after call %d failed", i)
		s.mustAppend(t, 1)
		s.close()
	}
	assert.Greater(t, failed, calls/2, "most calls of an open must matter")
}
