// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

func opened(t *testing.T, config func(*world)) *world {
	t.Helper()
	w := newWorld(3)
	if config != nil {
		config(w)
	}
	require.NoError(t, w.open())
	t.Cleanup(w.close)
	return w
}

// try appends one frame of about n bytes and returns its outcome; nil is
// acknowledged, errAdmission refused before it was queued.
func (w *world) try(n int) error {
	id, f := w.frameOf(testLanes[0], n)
	ticket := w.admit(f)
	if ticket == nil {
		w.decide(id, refused, 0)
		return errAdmission
	}
	w.turn(func() {
		for w.j.Advance() {
		}
	})
	<-ticket.Done()
	p, err := ticket.Outcome()
	var rotation *RotationRefused
	switch {
	case err == nil:
		w.decide(id, acked, p)
		w.o.end = p + w.o.sent[id].len
	case errors.As(err, &rotation):
		w.decide(id, refused, 0)
	}
	return err
}

var errAdmission = errors.New("refused at admission")

func (w *world) state() RotationState {
	w.j.Lock()
	defer w.j.Unlock()
	return w.j.RotationState()
}

func (w *world) figure() Figures {
	w.j.Lock()
	defer w.j.Unlock()
	return w.j.Figures()
}

func (w *world) later(d time.Duration) { w.now.Add(int64(d)) }

// rotateNow ends the current segment by force.
func (w *world) rotateNow() (err error) {
	w.turn(func() { err = w.j.RotateForced() })
	return err
}

// drain settles everything and runs passes until nothing more goes.
func (w *world) drain(t *testing.T) {
	t.Helper()
	all := map[Lane]Position{}
	for _, l := range testLanes {
		all[l] = w.j.Durable()
	}
	maps.Copy(w.o.tried, all)
	require.NoError(t, w.j.Stamp(all))
	maps.Copy(w.o.stamped, all)
	for w.pass(100) > 0 {
	}
}

// powerCut loses everything unsynced, and opens what is left.
func (w *world) powerCut(t *testing.T) {
	t.Helper()
	next := w.fs.Crash(nil)
	w.close()
	w.fs = next
	require.NoError(t, w.open())
}

func (w *world) killed(t *testing.T) {
	t.Helper()
	next := w.fs.Kill()
	w.close()
	w.fs = next
	require.NoError(t, w.open())
}

// ls lists the log's directory, or one in it.
func (w *world) ls(t *testing.T, dir string) []string {
	t.Helper()
	infos, err := w.fs.Clone().List(path.Join(logDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var names []string
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names
}

func TestC12_DirectoryThatCannotBeWritten(t *testing.T) {
	for _, errno := range []error{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		t.Run(errno.Error(), func(t *testing.T) {
			w := newWorld(1)
			w.fs.Inject(crashfs.Fault{Op: crashfs.Mutating, Err: errno})
			err := w.open()
			require.ErrorIs(t, err, errno)
			assert.ErrorContains(t, err, logDir)
			w.fs.ClearFaults()
			require.NoError(t, w.open())
			w.close()
		})
	}
}

// TestC12_ReadOnlyRemount: while it lasts appends are refused as unwritable,
// never terminal, and the backlog is delivered; afterwards they are taken.
func TestC12_ReadOnlyRemount(t *testing.T) {
	w := opened(t, nil)
	w.mustAppend(t, 3)
	before := w.j.Durable()
	remount := w.fs.SetReadOnly()
	w.faulty = true
	for range 100 {
		require.Error(t, w.try(500))
		require.Equal(t, RotationUnwritable, w.state().Kind)
		require.True(t, w.state().AppendsBlocked)
		w.later(time.Second)
	}
	frames, err := w.read(w.j)
	require.NoError(t, err)
	assert.Len(t, frames, 3)
	assert.Equal(t, before, w.j.Durable())

	remount()
	w.later(time.Minute)
	require.NoError(t, w.try(500))
	assert.Equal(t, RotationHealthy, w.state().Kind)
	w.powerCut(t)
}

// TestC13_Clock: years back and forth between two starts change neither the
// order nor the ages that decide anything.
func TestC13_Clock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, jump := range []time.Duration{-10 * year, 10 * year, -57 * year} {
		t.Run(jump.String(), func(t *testing.T) {
			w := opened(t, nil)
			w.mustAppend(t, 3)
			w.close()
			w.later(jump)
			require.NoError(t, w.open())
			w.mustAppend(t, 3)
			frames, err := w.read(w.j)
			require.NoError(t, err)
			require.Len(t, frames, 6)
			for i := range frames[1:] {
				assert.Equal(t, frames[i].Position+frames[i].Len, frames[i+1].Position)
			}

			// Not settled: no age makes it due.
			w.later(time.Hour)
			assert.False(t, w.due(500).Due)
			w.drain(t)
			assert.Equal(t, 6, len(frames))
			segments := len(w.j.Segments())
			w.turn(func() { require.NoError(t, w.j.RotateIfAged()) })
			assert.Len(t, w.j.Segments(), segments+1, "an hour on this clock is an hour")

			// A clock that runs back while the log is open makes nothing due.
			w.mustAppend(t, 1)
			w.later(-2 * year)
			assert.False(t, w.due(500).Due)
			w.mustAppend(t, 1)
			w.powerCut(t)
		})
	}
}

func (w *world) due(n int) Rotation {
	w.j.Lock()
	defer w.j.Unlock()
	return w.j.RotationDue(uint64(n))
}

// TestC17_VolumeFull: whatever fills the volume, the log refuses as full,
// never ends, drains to nothing, and takes data again without a restart.
func TestC17_VolumeFull(t *testing.T) {
	for _, preallocate := range []bool{true, false} {
		for _, closed := range []int{0, 3} {
			for _, room := range []uint64{0, 4096, 24 << 10} {
				t.Run(fmt.Sprintf("preallocate %v, %d closed segments, %d bytes free", preallocate, closed, room), func(t *testing.T) {
					w := opened(t, func(w *world) { w.cfg.Preallocate = preallocate })
					for range closed {
						w.mustAppend(t, 4)
						require.NoError(t, w.rotateNow())
					}
					w.mustAppend(t, 4)
					w.j.tasks.Wait()
					w.faulty = true
					w.fs.SetVolume(w.fs.Used() + room)

					var last error
					for i := range 2000 {
						if last = w.try(2000); last != nil && i > 200 {
							require.Equal(t, RotationVolumeFull, w.state().Kind, "append %d: %v", i, last)
						}
						w.later(100 * time.Millisecond)
					}
					require.Error(t, last, "the volume was never full")

					// It drains with no block free, across a restart too.
					w.fs.SetVolume(w.fs.Used())
					w.killed(t)
					w.drain(t)
					require.NoError(t, w.rotateNow())
					w.drain(t)
					assert.Zero(t, w.figure().Unreclaimed, "%+v", w.j.Segments())

					// Space returns: nothing but time is needed.
					w.fs.SetVolume(0)
					w.later(time.Minute)
					w.turn(func() { require.NoError(t, w.j.Discharge()) })
					require.NoError(t, w.try(2000))
					assert.Equal(t, RotationHealthy, w.state().Kind)
					w.fs.SetVolume(0)
					w.powerCut(t)
				})
			}
		}
	}
}

// TestC18_AttemptsAreSpaced: ten thousand appends in a second cost one attempt.
func TestC18_AttemptsAreSpaced(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC, syscall.EACCES} {
		t.Run(errno.Error(), func(t *testing.T) {
			w := opened(t, nil)
			for !w.due(6000).Due {
				require.NoError(t, w.try(1500))
			}
			w.faulty = true
			w.fs.Inject(crashfs.Fault{Op: crashfs.OpRenameNoReplace, Err: errno})
			attempts := func() int { return w.fs.Calls(crashfs.OpRenameNoReplace) }
			before := attempts()
			for range 10_000 {
				require.Error(t, w.try(6000))
				w.later(99 * time.Microsecond)
			}
			assert.Equal(t, 1, attempts()-before, "attempts in a second")
			for range 10_000 {
				require.Error(t, w.try(6000))
				w.later(time.Millisecond)
			}
			assert.LessOrEqual(t, attempts()-before, 5, "attempts in eleven seconds: 1, 2, 4 … apart")
			require.NotEqual(t, RotationTerminal, w.state().Kind)

			w.fs.ClearFaults()
			w.later(time.Minute)
			require.NoError(t, w.try(6000))
			assert.Equal(t, RotationHealthy, w.state().Kind)
			w.powerCut(t)
		})
	}
}

// TestC20_UnsyncedGroupInThePageCache: a group that only the page cache holds
// is found after kill -9 and delivered; when the power then fails, nothing
// acknowledged since is passed over.
func TestC20_UnsyncedGroupInThePageCache(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*world) // makes the next fdatasync not happen
	}{
		{"never synced", func(w *world) {
			w.fs.SetHook(func(c crashfs.Call) {
				if c.Op == crashfs.OpDatasync && strings.HasSuffix(c.Name, ".wal") {
					w.fs.StopAt(c.Index)
				}
			})
		}},
		{"its fdatasync failed, and made the pages clean", func(w *world) {
			w.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: "*.wal", Times: 1, Err: syscall.EIO})
			w.fs.SetHook(func(c crashfs.Call) {
				if c.Op == crashfs.OpDatasync && strings.HasSuffix(c.Name, ".wal") {
					w.fs.StopAt(c.Index + 1)
				}
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := opened(t, nil)
			w.mustAppend(t, 2)
			tc.fail(w)
			w.faulty = true
			require.Error(t, w.try(700))
			next := w.fs.Kill()
			w.close()
			w.fs = next
			require.NoError(t, w.open())
			require.EqualValues(t, 3, w.rec.Frames, "the page cache still has the group")
			w.drain(t) // delivered and settled
			w.mustAppend(t, 2)
			w.powerCut(t) // checks that all five are where they were
			require.EqualValues(t, 5, w.rec.Frames)
		})
	}
}

// TestC22_LowerLimits: what is in the log stays readable when the
// configuration would no longer take it.
func TestC22_LowerLimits(t *testing.T) {
	for name, lower := range map[string]func(*Config){
		"max_frame_size": func(c *Config) { c.MaxFrameSize = 256 },
		"segment_size":   func(c *Config) { c.MaxFrameSize, c.SegmentSize = 1024, 4096 },
		"max_tenants":    func(c *Config) { c.MaxTenants = 1 },
		"max_segments":   func(c *Config) { c.MaxSegments = 1 },
		"limit":          func(c *Config) { c.Limit = 1000 },
		"group cap":      func(c *Config) { c.GroupCap = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := opened(t, nil)
			for range 3 {
				for range 6 {
					require.NoError(t, w.append(1))
				}
				require.NoError(t, w.rotateNow())
			}
			sent := len(w.o.sent)
			w.close()
			lower(&w.cfg)
			require.NoError(t, w.open()) // compares everything
			assert.EqualValues(t, sent, w.rec.Frames)
			held, reserved := w.seats()
			tenants := map[string]bool{}
			for _, s := range w.o.sent {
				tenants[s.lane.Tenant] = true
			}
			assert.Len(t, tenants, held, "tenants with frames keep their seats")
			assert.Zero(t, reserved)
			w.killed(t)
			w.drain(t)
			w.cfg = newWorld(1).cfg
			w.close()
			require.NoError(t, w.open())
			w.mustAppend(t, 3)
			w.powerCut(t)
		})
	}
}

func (w *world) seats() (held, reserved int) {
	w.j.Lock()
	defer w.j.Unlock()
	return w.j.Seats()
}

func TestC24_PreparedSegment(t *testing.T) {
	partial := path.Join(logDir, "next.wal.partial")
	newest := func(w *world) string {
		s := w.j.Segments()
		return path.Join(logDir, s[len(s)-1].Name)
	}
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, w *world, newest string) // the log is closed
	}{
		{"none", func(t *testing.T, w *world, _ string) { require.NoError(t, w.fs.Unlink(partial)) }},
		{"a segment's other name, as between link and unlink", func(t *testing.T, w *world, newest string) {
			require.NoError(t, w.fs.Unlink(partial))
			require.NoError(t, w.fs.Link(newest, partial))
		}},
		{"as it was", func(*testing.T, *world, string) {}},
		{"with a header that was never installed", func(t *testing.T, w *world, newest string) {
			data, err := w.fs.ReadFile(newest)
			require.NoError(t, err)
			require.NoError(t, w.fs.WriteFile(partial, data))
		}},
		{"with a whole former segment in it", func(t *testing.T, w *world, newest string) {
			data, err := w.fs.ReadFile(newest)
			require.NoError(t, err)
			require.NoError(t, w.fs.WriteFile(partial, append(data, data...)))
		}},
		{"of zero bytes", func(t *testing.T, w *world, _ string) { require.NoError(t, w.fs.WriteFile(partial, nil)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := opened(t, nil)
			w.mustAppend(t, 3)
			require.NoError(t, w.rotateNow())
			w.mustAppend(t, 3)
			name := newest(w)
			w.close()
			require.Contains(t, w.ls(t, ""), "next.wal.partial")
			tc.before(t, w, name)
			require.NoError(t, w.fs.SyncDir(logDir))
			require.NoError(t, w.open())
			w.mustAppend(t, 2)
			for range 3 {
				require.NoError(t, w.rotateNow())
				w.mustAppend(t, 2)
				w.killed(t)
			}
			w.powerCut(t)
		})
	}
	t.Run("reused on a full volume", func(t *testing.T) {
		w := opened(t, nil)
		w.mustAppend(t, 3)
		w.close()
		w.fs.SetVolume(w.fs.Used())
		require.NoError(t, w.open())
		require.NoError(t, w.rotateNow(), "the prepared segment's blocks are there")
		assert.Len(t, w.j.Segments(), 2)
	})
	for name, put := range map[string]func(*crashfs.FS) error{
		"symlink":   func(fs *crashfs.FS) error { return fs.Symlink(partial) },
		"directory": func(fs *crashfs.FS) error { return fs.Mkdir(partial, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			w := opened(t, nil)
			w.close()
			_ = w.fs.Unlink(partial)
			require.NoError(t, put(w.fs))
			err := w.open()
			require.ErrorContains(t, err, "next.wal.partial")
		})
	}
}

// TestC24_EmptyNewestOnAFullVolume: its directory entry is made sure of with no
// block to spare, and wherever the power fails meanwhile the log opens.
func TestC24_EmptyNewestOnAFullVolume(t *testing.T) {
	for _, reclaimed := range []bool{false, true} {
		w := opened(t, nil)
		w.mustAppend(t, 3)
		require.NoError(t, w.rotateNow())
		if reclaimed { // the empty segment is all there is
			w.drain(t)
			require.Len(t, w.j.Segments(), 1)
		}
		w.j.tasks.Wait()
		w.close()
		if err := w.fs.Unlink(path.Join(logDir, "next.wal.partial")); err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		require.NoError(t, w.fs.SyncDir(logDir))
		w.fs.SetVolume(w.fs.Used())
		probe := w.fork(w.fs.Clone(), 0)
		require.NoError(t, probe.open())
		calls := probe.fs.Calls(crashfs.Any)
		require.NoError(t, probe.try(500), "the segment's blocks are there")
		probe.powerCut(t)
		probe.close()
		for cut := range calls {
			for seed := range uint64(5) {
				c := w.fork(w.fs.Clone(), seed)
				c.cutAt(cut)
				_ = c.open()
				left := c.fs.Crash(c.rng)
				c.close()
				c.fs, c.cut = left, -1
				require.NoError(t, c.open(), "cut at call %d, seed %d", cut, seed)
				require.NoError(t, c.try(500))
				c.powerCut(t)
				c.close()
			}
		}
	}
}

// TestD07_Debris: swept at open and by passes, by its exact names only; the
// prepared segment stays.
func TestD07_Debris(t *testing.T) {
	debris := []string{"STATE.new", "dead-letter/01234567-0123456789abcdef-logs.frame.partial"}
	others := []string{
		"STATE.new.1", "state.new", "next.wal.partial.1", "0000000000000000-00000001.wal.partial", "quarantine/x.partial",
		"dead-letter/x.partial", "dead-letter/01234567-0123456789abcdef-logs.frame.partial~", "dead-letter/01234567-0123456789abcdef-logs.frame",
	}
	w := opened(t, nil)
	w.mustAppend(t, 2)
	w.close()
	for _, d := range []string{"dead-letter", "quarantine"} {
		if err := w.fs.Mkdir(path.Join(logDir, d), 0o700); err != nil {
			require.ErrorIs(t, err, fs.ErrExist)
		}
	}
	drop := func() {
		for _, n := range append(debris, others...) {
			require.NoError(t, w.fs.WriteFile(path.Join(logDir, n), []byte("x")))
		}
	}
	swept := func(when string) {
		for _, n := range debris {
			assert.NotContains(t, w.ls(t, path.Dir(n)), path.Base(n), when)
		}
		for _, n := range append(others, "next.wal.partial") {
			assert.Contains(t, w.ls(t, path.Dir(n)), path.Base(n), when)
		}
	}
	drop()
	require.NoError(t, w.open())
	swept("after open")
	w.mustAppend(t, 1)
	w.drain(t)
	drop()
	w.pass(1)
	swept("after a pass")
}

// TestD08_FailedRemoval: a segment whose unlink fails, or may not be durable,
// is counted until it is gone for sure; nothing else is held up.
func TestD08_FailedRemoval(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault crashfs.Fault
		kept  int // closed segments counted after the pass that failed
	}{
		{"an unlink fails", crashfs.Fault{Op: crashfs.OpUnlink, Match: "*-00000001.wal", Times: 1, Err: syscall.EIO}, 1},
		{"every unlink fails", crashfs.Fault{Op: crashfs.OpUnlink, Match: "*.wal", Err: syscall.EBUSY}, 3},
		{"the directory fsync fails", crashfs.Fault{Op: crashfs.OpSyncDir, Times: 1, Err: syscall.EIO}, 3},
		{"the plan cannot be recorded", crashfs.Fault{Op: crashfs.OpDatasync, Match: "STATE", Times: 1, Err: syscall.EIO}, 3},
		{"the plan cannot be written", crashfs.Fault{Op: crashfs.OpWrite, Match: "STATE", Times: 1, Err: syscall.ENOSPC}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := opened(t, nil)
			for range 3 {
				w.mustAppend(t, 3)
				require.NoError(t, w.rotateNow())
			}
			w.mustAppend(t, 1)
			all := map[Lane]Position{}
			for _, l := range testLanes {
				all[l] = w.j.Durable()
			}
			require.NoError(t, w.stamp(all))
			before := w.figure()
			w.faulty = true
			w.fs.Inject(tc.fault)
			w.pass(100)
			f := w.figure()
			assert.Equal(t, tc.kept, f.ClosedRetained)
			if tc.kept == 3 {
				assert.Equal(t, before.Unreclaimed, f.Unreclaimed)
			}
			fork := w.fork(w.fs.Clone(), 9)
			for seed := range uint64(20) {
				again := fork.fork(fork.fs.Clone(), seed)
				again.fs = again.fs.Crash(again.rng)
				again.faulty = false
				require.NoError(t, again.open(), "seed %d", seed)
				again.drain(t)
				assert.Equal(t, 0, again.figure().ClosedRetained, "seed %d", seed)
				require.NoError(t, again.figures())
				again.close()
			}
			w.fs.ClearFaults()
			w.mustAppend(t, 1) // appends were never concerned
			for range 3 {
				w.pass(100)
			}
			assert.Equal(t, 0, w.figure().ClosedRetained)
			w.faulty = false
			require.NoError(t, w.figures())
			w.powerCut(t)
		})
	}
}

// TestD08_CrashAnywhereInAPass: between the plan and its unlinks, between
// those and the commit, with everything unsynced lost and with all of it kept.
func TestD08_CrashAnywhereInAPass(t *testing.T) {
	build := func() *world {
		w := newWorld(4)
		require.NoError(t, w.open())
		for range 3 {
			w.mustAppend(t, 3)
			require.NoError(t, w.rotateNow())
		}
		w.mustAppend(t, 1)
		all := map[Lane]Position{}
		for _, l := range testLanes {
			all[l] = w.j.Durable()
		}
		require.NoError(t, w.stamp(all))
		return w
	}
	w := build()
	begin := w.fs.Calls(crashfs.Any)
	require.Equal(t, 3, w.pass(100))
	calls := w.fs.Calls(crashfs.Any) - begin
	w.close()
	for i := range calls + 1 {
		for name, end := range map[string]func(*crashfs.FS) *crashfs.FS{
			"all unsynced lost": func(f *crashfs.FS) *crashfs.FS { return f.Crash(nil) },
			"kill -9":           (*crashfs.FS).Kill,
		} {
			w := build()
			w.cutAt(i)
			w.pass(100)
			next := end(w.fs)
			w.close()
			again := w.fork(next, uint64(i))
			require.NoError(t, again.open(), "call %d of a pass, %s", i, name)
			again.drain(t)
			require.Equal(t, 0, again.figure().ClosedRetained, "call %d of a pass, %s", i, name)
			again.powerCut(t)
			again.close()
		}
	}
}

// TestB14_ForcedRotationWhoseDirectoryFsyncFails: a later pass makes it good
// with no append; the next append is acknowledged.
func TestB14_ForcedRotationWhoseDirectoryFsyncFails(t *testing.T) {
	w := opened(t, nil)
	w.mustAppend(t, 3)
	w.faulty = true
	w.fs.Inject(crashfs.Fault{Op: crashfs.OpSyncDir, Times: 2, Err: syscall.EIO})
	require.ErrorIs(t, w.rotateNow(), syscall.EIO)
	assert.Len(t, w.j.Segments(), 2, "the installed segment stays")
	assert.Equal(t, RotationRetrying, w.state().Kind)
	assert.Equal(t, 1, w.state().Failures)
	syncs := w.fs.Calls(crashfs.OpSyncDir)
	w.turn(func() { require.NoError(t, w.j.Discharge()) })
	assert.Equal(t, syncs, w.fs.Calls(crashfs.OpSyncDir), "not due yet")

	w.later(time.Second)
	w.turn(func() { require.Error(t, w.j.Discharge()) })
	w.later(2 * time.Second)
	w.turn(func() { require.NoError(t, w.j.Discharge()) })
	assert.Equal(t, RotationHealthy, w.state().Kind)
	w.mustAppend(t, 2)
	w.faulty = false
	w.powerCut(t) // a directory fsync that follows a failed one proves nothing by itself
}

// TestB15_OwedRotationOverrunsTheCap: it needs no slot, and the usage says so.
func TestB15_OwedRotationOverrunsTheCap(t *testing.T) {
	w := opened(t, func(w *world) { w.cfg.MaxSegments = 2 })
	for range 2 {
		w.mustAppend(t, 2)
		require.NoError(t, w.rotateNow())
	}
	w.mustAppend(t, 2)
	segments := len(w.j.Segments())
	require.NoError(t, w.rotateNow())
	require.Len(t, w.j.Segments(), segments, "a discretionary rotation needs a slot")

	w.faulty = true
	// Of the current segment only: the last one's summary is synced beside it.
	w.fs.Inject(crashfs.Fault{Op: crashfs.OpDatasync, Match: w.j.writer.id.name(), Times: 1, Err: syscall.EIO})
	var failed *AppendError
	require.ErrorAs(t, w.try(500), &failed)
	assert.Equal(t, "sync", failed.Op)
	require.NoError(t, w.try(500))
	s := w.j.Stats()
	assert.Equal(t, 3, s.ClosedRetained)
	assert.Equal(t, 2, s.MaxSegments)
	assert.Equal(t, 1, s.Sealed)
	free, over := max(0, s.MaxSegments-s.ClosedRetained), max(0, s.ClosedRetained-s.MaxSegments)
	assert.Equal(t, s.MaxSegments+over, s.ClosedRetained+free)
	w.faulty = false
	w.powerCut(t)
	assert.Zero(t, w.j.Stats().Sealed)
}
