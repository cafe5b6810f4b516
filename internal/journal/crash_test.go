// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// The crash matrix: a workload runs until the power is cut, or the process
// killed, at one file-system call; what is left is opened, with the power cut once more at calls of that
// recovery, and compared with what the log had promised. Every failure names
// the numbers that repeat it:
//
//	CRASH_SEED=7 CRASH_CUT=123 go test ./internal/journal -run TestC07_PowerCutAtEveryCall
//
// CRASH_N is the number of power cuts, 10 000 unless set.

// flavour is what a workload does besides appending, settling, reclaiming,
// rotating and reopening.
type flavour struct {
	name   string
	config func(*world)
	steps  []step // in share of a hundred steps one of these, instead of something else
	share  int
}

type step func(*world) error

var flavours = []flavour{
	{name: "plain"},
	{
		name: "kill -9",
		config: func(w *world) {
			w.cfg.Preallocate = false
			w.fs.TearSectors(true)
		},
		steps: []step{(*world).kill},
		share: 10,
	},
	{name: "faults", steps: []step{(*world).fault}, share: 10},
	{
		name:   "damage",
		config: func(w *world) { w.cfg.OnCorruption = CorruptionQuarantine },
		steps:  []step{(*world).damage},
		share:  30,
	},
	{name: "dead letters", steps: []step{(*world).setAside}, share: 30},
	{
		name:   "full volume",
		config: func(w *world) { w.cfg.Preallocate = w.rng.IntN(2) == 0 },
		steps:  []step{(*world).fill},
		share:  10,
	},
	{
		name:   "no RENAME_NOREPLACE",
		config: func(w *world) { w.fs.RenameInTwoSteps(true) },
		steps:  []step{(*world).kill, (*world).fault},
		share:  10,
	},
	{
		name: "everything at once",
		config: func(w *world) {
			w.fs.TearSectors(true)
			w.cfg.MaxSegments = 4
		},
		steps: []step{(*world).kill, (*world).fault, (*world).fault, (*world).fill},
		share: 15,
	},
}

// workload is what one seed does, and how much of it.
func (w *world) workload(f flavour, steps int) error {
	if f.config != nil {
		f.config(w)
	}
	if err := w.reopen(); err != nil {
		return err
	}
	for range steps {
		if w.over() {
			break
		}
		if err := w.step(f); err != nil {
			return err
		}
	}
	return w.shut()
}

// shut closes the log and looks for files left open.
func (w *world) shut() error {
	w.close()
	if open := w.fs.OpenFiles(); !w.over() && len(open) > 0 {
		return fmt.Errorf("the log is closed and left these open: %s", strings.Join(open, " "))
	}
	return nil
}

// both appends while a pass runs.
func (w *world) both() error {
	frontiers, err := w.frontiers()
	if err != nil {
		return err
	}
	var pass sync.WaitGroup
	pass.Go(func() {
		_ = w.stamp(frontiers)
		w.pass(4)
	})
	err = w.append(1 + w.rng.IntN(8))
	pass.Wait()
	return errors.Join(err, w.figures())
}

func (w *world) step(f flavour) error {
	w.now.Add(int64(w.rng.IntN(40)) * int64(time.Second))
	if w.rng.IntN(100) < f.share {
		return f.steps[w.rng.IntN(len(f.steps))](w)
	}
	switch n := w.rng.IntN(100); {
	case n < 40:
		return w.append(1 + w.rng.IntN(6))
	case n < 50:
		return w.both()
	case n < 63:
		return w.settle()
	case n < 76:
		w.pass(1 + w.rng.IntN(8))
		return w.figures()
	case n < 81:
		w.turn(func() { _ = w.j.RotateForced() })
		return w.figures()
	case n < 84:
		w.turn(func() { _ = w.j.RotateIfAged() })
		return w.figures()
	case n < 87:
		return w.setAside()
	case n < 94:
		return w.live()
	default:
		return errors.Join(w.shut(), w.reopen())
	}
}

// setAside writes a frame's dead letter.
func (w *world) setAside() error {
	frames, err := w.read(w.j)
	if err != nil || len(frames) == 0 {
		return err
	}
	f := frames[w.rng.IntN(len(frames))]
	if w.j.WriteDeadLetter(f, "because", 1<<20) == nil {
		w.o.letters[le.Uint64(f.Payload)] = true
	}
	return nil
}

// live reads the log while it is open: every acknowledged frame is there, and
// none that failed in this life.
func (w *world) live() error {
	frames, err := w.read(w.j)
	if err != nil || w.over() {
		return err
	}
	present := map[uint64]bool{}
	for i := range frames {
		id, err := w.known(&frames[i])
		if err != nil {
			return err
		}
		if present[id] || w.o.sent[id].fate != acked {
			return fmt.Errorf("frame %d, which is read at %d, failed or is there twice", id, frames[i].Position)
		}
		present[id] = true
	}
	for id, s := range w.o.sent {
		if s.fate == acked && !present[id] && s.pos >= w.o.reclaimed[s.lane] && w.o.damaged[id] == nil {
			return fmt.Errorf("acknowledged frame %d at %d cannot be read", id, s.pos)
		}
	}
	return w.figures()
}

// fill makes the volume nearly full, or large again.
func (w *world) fill() error {
	w.faulty = true
	if w.rng.IntN(2) == 0 {
		w.fs.SetVolume(0)
	} else {
		w.fs.SetVolume(w.fs.Used() + uint64(w.rng.IntN(8))*crashfs.BlockSize)
	}
	return nil
}

// reopen opens the log, at times with other limits, which STATE may have to
// grow for; only the power cut excuses a failure.
func (w *world) reopen() error {
	w.heal()
	if w.rng.IntN(3) == 0 {
		w.cfg.GroupCap = []uint64{0, 3000}[w.rng.IntN(2)]
		w.cfg.MaxSegments = []int{4, 32, 150}[w.rng.IntN(3)]
		w.cfg.MaxTenants = []int{4, 8, 40}[w.rng.IntN(3)]
	}
	err := w.open()
	if err != nil && w.over() {
		var open *openError
		if errors.As(err, &open) {
			return nil
		}
	}
	return err
}

// kill is kill -9 and a restart; what is left of the power goes on.
func (w *world) kill() error {
	next := w.fs.Kill()
	left, calls := -1, w.fs.Calls(crashfs.Any)
	if w.cut >= 0 {
		left = max(0, w.cut-calls)
	}
	w.before += calls
	w.close()
	w.fs, w.cut = next, -1
	if left >= 0 {
		w.cutAt(left)
	}
	return w.reopen()
}

// fault makes one call soon go wrong once.
func (w *world) fault() error {
	ops := []crashfs.Op{
		crashfs.OpWrite, crashfs.OpWrite, crashfs.OpDatasync, crashfs.OpDatasync, crashfs.OpSyncDir, crashfs.OpTruncate,
		crashfs.OpCreate, crashfs.OpAllocate, crashfs.OpRenameNoReplace, crashfs.OpUnlink, crashfs.OpRead, crashfs.OpStatfs,
	}
	errs := []error{syscall.EIO, syscall.EIO, syscall.ENOSPC, syscall.EROFS}
	f := crashfs.Fault{
		Op: ops[w.rng.IntN(len(ops))], After: w.rng.IntN(6), Times: 1 + w.rng.IntN(2), Err: errs[w.rng.IntN(len(errs))],
		Bytes: int64(w.rng.IntN(3000)),
	}
	if f.Op == crashfs.OpRead {
		f.Times = 1 // twice in a row is damage, and stops a reader
	}
	w.fs.Inject(f)
	w.faulty = true
	return nil
}

// heal ends all faults.
func (w *world) heal() { w.fs.ClearFaults() }

// damage closes the log, flips a bit of one frame and opens it again.
func (w *world) damage() error {
	w.close()
	if w.over() {
		return nil
	}
	present, err := w.onDisk()
	if err != nil || len(present) == 0 {
		return errors.Join(err, w.reopen())
	}
	hit := present[w.rng.IntN(len(present))]
	data, err := w.fs.ReadFile(hit.file)
	if err != nil {
		return err
	}
	data[hit.off+int64(w.rng.IntN(int(hit.len)))] ^= 1 << w.rng.IntN(8)
	if err := w.fs.WriteFile(hit.file, data); err != nil {
		return err
	}
	w.o.damaged[hit.id] = slices.Clone(data[hit.off : hit.off+int64(hit.len)])
	return w.reopen()
}

// place is where a frame lies.
type place struct {
	id   uint64
	file string
	off  int64
	len  uint64
}

// onDisk finds the acknowledged frames in the files of a closed log.
func (w *world) onDisk() ([]place, error) {
	names, _, err := scanLog(w.fs)
	if err != nil {
		return nil, err
	}
	var found []place
	for id, s := range w.o.sent {
		if s.fate != acked || w.o.damaged[id] != nil {
			continue
		}
		i, _ := slices.BinarySearch(names, fmt.Sprintf("%016x-z", s.pos))
		if i == 0 {
			continue
		}
		base, err := strconv.ParseUint(names[i-1][:16], 16, 64)
		if err != nil {
			return nil, err
		}
		p := place{id, path.Join(logDir, names[i-1]), int64(s.pos-base) + 64, s.len}
		data, err := w.fs.ReadFile(p.file)
		if err != nil {
			return nil, err
		}
		if int64(len(data)) >= p.off+int64(p.len) && le.Uint64(data[p.off+8:]) == s.pos {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b place) int { return int(a.id) - int(b.id) })
	return found, nil
}

// matrix is a run of the crash matrix.
type matrix struct {
	steps    int
	flavours []flavour
	mutate   func(*world) // applied to every world there is
	cuts     atomic.Int64
}

// failure is a broken promise and how to see it again.
type failure struct {
	seed   uint64
	cut    int
	second int // the call of the recovery, -1 = none
	err    error
	trace  []crashfs.Call
}

func (f *failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CRASH_SEED=%d CRASH_CUT=%d", f.seed, f.cut)
	if f.second >= 0 {
		fmt.Fprintf(&b, " (then at call %d of the recovery)", f.second)
	}
	fmt.Fprintf(&b, ": %v", f.err)
	if n := len(f.trace); n > 0 {
		b.WriteString("\nthe last calls:")
		for _, c := range f.trace[max(0, n-100):] {
			b.WriteString("\n" + c.String())
		}
	}
	return b.String()
}

// run cuts the power of one seed's workload at one call, and at some calls of
// the recovery that follows. It returns how many calls the workload took; a
// cut of -1 never comes.
func (m *matrix) run(seed uint64, cut int, trace bool) (calls int, fail *failure) {
	flavour := m.flavours[seed%uint64(len(m.flavours))]
	broken := func(w *world, second int, err error) *failure {
		return &failure{seed: seed, cut: cut, second: second, err: err, trace: append(w.past, w.fs.Trace()...)}
	}
	w := newWorld(seed)
	if m.mutate != nil {
		m.mutate(w)
	}
	if trace {
		w.fs.StartTrace()
	}
	if cut >= 0 {
		w.cutAt(cut)
	}
	err := w.workload(flavour, m.steps)
	calls = w.before + w.fs.Calls(crashfs.Any)
	rng := rand.New(rand.NewPCG(seed, uint64(cut)+1))
	left := m.end(w, rng)
	w.close()
	if err != nil {
		return calls, broken(w, -1, err)
	}

	// What is left opens, holds what was promised, and takes more.
	first := w.fork(left.Clone(), seed)
	if trace {
		first.fs.StartTrace()
	}
	if err := first.open(); err != nil {
		return calls, broken(first, -1, err)
	}
	recovery := first.fs.Calls(crashfs.Any)
	if err := m.goOn(first, rng, trace); err != nil {
		return calls, broken(first, -1, err)
	}

	// The power fails again while it opens.
	for range 2 {
		second := rng.IntN(recovery)
		again := w.fork(left.Clone(), seed)
		if trace {
			again.fs.StartTrace()
		}
		again.cutAt(second)
		err := again.open()
		var open *openError
		if err != nil && !errors.As(err, &open) {
			again.close()
			return calls, broken(again, second, err)
		}
		m.cuts.Add(1)
		if err := m.goOn(again, rng, trace); err != nil {
			return calls, broken(again, second, err)
		}
	}
	return calls, nil
}

// end cuts the power, or at times kills the process only: what was written at
// the cut is in the page cache then, and dirty.
func (m *matrix) end(w *world, rng *rand.Rand) *crashfs.FS {
	if rng.IntN(4) == 0 {
		return w.fs.Kill()
	}
	m.cuts.Add(1)
	return w.fs.Crash(rng)
}

// goOn appends, stops the world in one of two ways, opens what is left, and
// does the same once more: what recovery called proven must survive that.
func (m *matrix) goOn(w *world, rng *rand.Rand, trace bool) error {
	for range 2 {
		if w.j != nil && !w.over() && rng.IntN(3) > 0 {
			if err := w.append(1 + rng.IntN(4)); err != nil {
				return err
			}
		}
		left := m.end(w, rng)
		w.close()
		w.past = append(w.past, w.fs.Trace()...)
		w.fs, w.cut = left, -1
		if trace {
			w.fs.StartTrace()
		}
		if err := w.open(); err != nil {
			return fmt.Errorf("opened again: %w", err)
		}
	}
	w.close()
	return nil
}

// all runs seeds, every cut of each, until there were n cuts or a failure.
func (m *matrix) all(first uint64, n int64) *failure {
	var seed atomic.Uint64
	seed.Store(first)
	var mu sync.Mutex
	var found *failure
	var wg sync.WaitGroup
	stop := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return found != nil || m.cuts.Load() >= n
	}
	for range 2 {
		wg.Go(func() {
			for !stop() {
				s := seed.Add(1) - 1
				calls, fail := m.run(s, -1, false)
				for cut := 0; cut <= calls && fail == nil && !stop(); cut++ {
					_, fail = m.run(s, cut, false)
				}
				if fail != nil {
					mu.Lock()
					if found == nil {
						found = fail
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return found
}

func envInt(t testing.TB, name string, otherwise int64) int64 {
	s, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func TestC07_PowerCutAtEveryCall(t *testing.T) {
	m := &matrix{steps: 25, flavours: flavours}
	if _, ok := os.LookupEnv("CRASH_CUT"); ok {
		for range 500 { // what runs in the background does not always run at the same moment
			if _, fail := m.run(uint64(envInt(t, "CRASH_SEED", 0)), int(envInt(t, "CRASH_CUT", 0)), true); fail != nil {
				t.Fatal(fail)
			}
		}
		return
	}
	first := uint64(envInt(t, "CRASH_SEED", 1))
	fail := m.all(first, envInt(t, "CRASH_N", 10_000))
	t.Logf("%d power cuts, seeds from %d", m.cuts.Load(), first)
	if fail != nil {
		t.Fatal(fail)
	}
}

// TestC07_MutationsAreCaught takes one thing at a time from the log that
// makes it durable, and expects the matrix to notice: a harness that cannot
// fail proves nothing.
func TestC07_MutationsAreCaught(t *testing.T) {
	const segment, prepared = "????????????????-????????.wal", preparedName
	lie := func(op crashfs.Op, match string) crashfs.Fault { return crashfs.Fault{Op: op, Match: match, Lie: true} }
	everywhere := func(f ...crashfs.Fault) func(*world) { return func(w *world) { w.mutate = f } }
	opening := func(f ...crashfs.Fault) func(*world) { return func(w *world) { w.forOpen = f } }
	for _, tc := range []struct {
		name     string
		mutate   func(*world)
		flavours []string
	}{
		{"fdatasync of a group", everywhere(lie(crashfs.OpDatasync, segment)), []string{"plain"}},
		{"fdatasync of a segment's header", everywhere(lie(crashfs.OpDatasync, prepared)), []string{"plain"}},
		{"fsync of the directory", everywhere(lie(crashfs.OpSyncDir, path.Base(logDir))), []string{"plain"}},
		{"fdatasync of STATE", everywhere(lie(crashfs.OpDatasync, stateName)), []string{"plain"}},
		{"fdatasync of a new STATE", everywhere(lie(crashfs.OpDatasync, stateNewName)), []string{"plain"}},
		{"fdatasync of a copy in quarantine", everywhere(lie(crashfs.OpDatasync, "*"+suffixDamaged)), []string{"damage"}},
		{"fsync of the quarantine directory", everywhere(lie(crashfs.OpSyncDir, quarantineName)), []string{"damage"}},
		{"fdatasync of a dead letter", everywhere(lie(crashfs.OpDatasync, "*"+letterSuffix+partialSuffix)), []string{"dead letters"}},
		{"fsync of the dead letters' directory", everywhere(lie(crashfs.OpSyncDir, deadLetterName)), []string{"dead letters"}},
		{"fdatasync of the rewritten tail", opening(lie(crashfs.OpDatasync, segment)), []string{"kill -9", "faults"}},
		{"fsync of the directory at open", opening(lie(crashfs.OpSyncDir, path.Base(logDir))), []string{"kill -9", "faults"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := &matrix{steps: 15, mutate: tc.mutate}
			for _, f := range flavours {
				if slices.Contains(tc.flavours, f.name) {
					m.flavours = append(m.flavours, f)
				}
			}
			fail := m.all(1, 10_000) // it takes 500 at most
			if fail == nil {
				t.Fatalf("%d power cuts and nobody noticed", m.cuts.Load())
			}
			t.Logf("noticed after %d power cuts: %v", m.cuts.Load(), fail.err)
		})
	}
}

// A commit of STATE whose fdatasync failed may be what the page cache shows
// and the medium does not have. After a restart it must not be taken for the
// last commit known durable: the next commit would overwrite the one that is.
func TestC07_FailedCommitThenRestartThenTornCommit(t *testing.T) {
	w := newWorld(21)
	w.fs.TearSectors(true)
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.mustAppend(t, 10)
		if err := w.rotateNow(); err != nil {
			t.Fatal(err)
		}
		w.drain(t)
	}
	w.mustAppend(t, 10)
	w.faulty = true
	w.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: stateName, Err: syscall.EIO})
	half := map[Lane]Position{}
	for _, l := range testLanes {
		half[l] = w.j.Durable()
	}
	if err := w.stamp(half); err == nil {
		t.Fatal("stamped without a sync")
	}
	next := w.fs.Kill()
	w.close()
	w.fs = next

	probe := w.fork(w.fs.Clone(), 0)
	if err := probe.open(); err != nil {
		t.Fatal(err)
	}
	calls := probe.fs.Calls(crashfs.Any)
	probe.close()
	for cut := range calls {
		for seed := range uint64(10) {
			again := w.fork(w.fs.Clone(), seed)
			again.cutAt(cut)
			var open *openError
			if err := again.open(); err != nil && !errors.As(err, &open) {
				t.Fatal(err)
			}
			left := again.fs.Crash(again.rng)
			again.close()
			again.fs, again.cut = left, -1
			if err := again.open(); err != nil {
				t.Fatalf("seed %d, cut at call %d of the recovery: %v", seed, cut, err)
			}
			again.close()
		}
	}
}

// A directory fsync that failed leaves the entry of the segment just installed
// clean and not durable: after a restart that found it in the page cache,
// nothing may be acknowledged in it before the entry is made anew.
func TestC07_FailedDirectoryFsyncThenRestart(t *testing.T) {
	for _, kill := range []bool{true, false} {
		w := newWorld(22)
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		w.mustAppend(t, 3)
		w.faulty = true
		w.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, Err: syscall.EIO})
		if err := w.rotateNow(); err == nil {
			t.Fatal("rotated without a directory fsync")
		}
		if kill {
			next := w.fs.Kill()
			w.close()
			w.fs = next
		}
		w.close()
		w.fs.ClearFaults()
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		w.mustAppend(t, 3)
		w.powerCut(t)
		w.close()
	}
}
