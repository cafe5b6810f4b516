// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// rotationSteps are what a rotation asks of the file system, in its order.
var rotationSteps = []struct {
	name  string
	fault crashfs.Fault
	// ahead: the step belongs to the preparation, which the background tries
	// first and the rotation again.
	ahead bool
	// optional: its failure is no rotation failure.
	optional bool
}{
	{name: "create", fault: crashfs.Fault{Op: crashfs.OpCreate, Match: preparedName}, ahead: true},
	{name: "preallocate", fault: crashfs.Fault{Op: crashfs.OpAllocate, Match: preparedName}, ahead: true},
	{name: "zero block", fault: crashfs.Fault{Op: crashfs.OpWrite, Match: preparedName}, ahead: true},
	{name: "sync of the zero block", fault: crashfs.Fault{Op: crashfs.OpDatasync, Match: preparedName}, ahead: true},
	{name: "header write", fault: crashfs.Fault{Op: crashfs.OpWrite, Match: preparedName, Bytes: 20}},
	{name: "header sync", fault: crashfs.Fault{Op: crashfs.OpDatasync, Match: preparedName}},
	{name: "install", fault: crashfs.Fault{Op: crashfs.OpRenameNoReplace}},
	{name: "directory fsync", fault: crashfs.Fault{Op: crashfs.OpSyncDir}},
	{name: "summary", fault: crashfs.Fault{Op: crashfs.OpWrite, Match: "*.wal"}, optional: true},
	{name: "truncate", fault: crashfs.Fault{Op: crashfs.OpTruncate, Match: "*.wal"}, optional: true},
	{name: "sync of the summary", fault: crashfs.Fault{Op: crashfs.OpDatasync, Match: "*.wal"}, optional: true},
}

// failing opens a log in which the given step of the next rotation fails.
func failing(t *testing.T, fault crashfs.Fault, ahead bool, times int) *world {
	t.Helper()
	w := newWorld(5)
	w.cfg.RotationRetryAttempts = 4
	require.NoError(t, w.open())
	t.Cleanup(w.close)
	w.faulty = true
	fault.Err, fault.Times = syscall.EIO, times
	if ahead {
		if times > 0 {
			fault.Times++
		}
		w.fs.Inject(fault)
	}
	require.NoError(t, w.try(500)) // what is behind the current segment is prepared beside it
	w.j.tasks.Wait()
	w.turn(func() { w.j.collectPrepared(true) })
	if !ahead {
		w.fs.Inject(fault)
	}
	return w
}

// TestC01_EachStepOfARotationFailsOnce: it recovers on the next due attempt,
// leaves nothing selectable behind, and debris is gone after one pass.
func TestC01_EachStepOfARotationFailsOnce(t *testing.T) {
	for _, step := range rotationSteps {
		t.Run(step.name, func(t *testing.T) {
			w := failing(t, step.fault, step.ahead, 1)
			err := w.rotateNow()
			w.j.tasks.Wait()
			if step.optional {
				require.NoError(t, err)
				require.Equal(t, RotationHealthy, w.state().Kind)
			} else {
				require.ErrorIs(t, err, syscall.EIO)
				s := w.state()
				require.Equal(t, RotationRetrying, s.Kind)
				require.Equal(t, 1, s.Failures)
				require.ErrorIs(t, s.Cause, syscall.EIO)
				require.Equal(t, firstRetry, s.NextAttempt.Sub(w.clock()))
				w.turn(func() { require.NoError(t, w.j.Discharge()) })
				require.Equal(t, 1, w.state().Failures, "it is not due yet")
				w.later(firstRetry)
				w.turn(func() { require.NoError(t, w.j.Discharge()) })
				require.Equal(t, RotationHealthy, w.state().Kind)
			}
			require.Len(t, w.j.Segments(), 2)
			require.NoError(t, w.try(500))
			require.NoError(t, w.try(500))
			w.pass(10)
			wal, other := 0, 0
			for _, name := range w.ls(t, "") {
				if _, ok := parseSegmentName(name); ok {
					wal++
				} else if name != lockName && name != stateName && name != preparedName {
					other++
				}
			}
			require.Equal(t, []int{2, 0}, []int{wal, other}, "%s", strings.Join(w.ls(t, ""), " "))
			w.faulty = false
			require.NoError(t, w.figures())
			w.powerCut(t)
			require.Len(t, w.j.Segments(), 2)
			require.EqualValues(t, 3, w.rec.Frames)
		})
	}
}

// TestC02_EachStepOfARotationFailsAlways: the budget ends in Terminal with the
// first cause, nothing more is acknowledged, all else goes on, and the next
// open succeeds.
func TestC02_EachStepOfARotationFailsAlways(t *testing.T) {
	for _, step := range rotationSteps {
		if step.optional {
			continue
		}
		t.Run(step.name, func(t *testing.T) {
			w := failing(t, step.fault, step.ahead, 0)
			require.ErrorIs(t, w.rotateNow(), syscall.EIO)
			first := w.state().Cause
			for range w.cfg.RotationRetryAttempts - 1 {
				require.NotEqual(t, RotationTerminal, w.state().Kind)
				w.later(maxRetry)
				w.turn(func() { require.ErrorIs(t, w.j.Discharge(), syscall.EIO) })
			}
			s := w.state()
			require.Equal(t, RotationTerminal, s.Kind)
			require.Equal(t, first, s.Cause)
			require.Zero(t, s.NextAttempt)
			w.later(time.Hour)
			calls := w.fs.Calls(crashfs.Mutating)
			require.ErrorIs(t, w.try(500), errAdmission)
			tk := enqueue(w.j, newFrame(t, logs, 1, 10)) // one that was admitted just before
			drive(w.j)
			var refused *RotationRefused
			_, err := tk.Outcome()
			require.ErrorAs(t, err, &refused)
			require.Equal(t, RotationTerminal, refused.State.Kind)
			require.Equal(t, calls, w.fs.Calls(crashfs.Mutating), "a terminal log writes nothing")
			frames, err := w.read(w.j)
			require.NoError(t, err)
			require.Len(t, frames, 1, "what it holds is delivered")
			w.drain(t)

			w.heal()
			w.killed(t)
			require.NoError(t, w.try(500))
			require.NoError(t, w.rotateNow())
		})
	}
}

// TestC01_RotationUnderAQueue: with frames waiting for it the turn's holder
// makes the next attempt when it is due, and no earlier.
func TestC01_RotationUnderAQueue(t *testing.T) {
	w := failing(t, crashfs.Fault{Op: crashfs.OpRenameNoReplace}, false, 1)
	for !w.due(6000).Due {
		require.NoError(t, w.try(1500))
	}
	var refused *RotationRefused
	require.ErrorAs(t, w.try(6000), &refused)
	require.ErrorIs(t, w.try(6000), errAdmission)
	tk := enqueue(w.j, newFrame(t, logs, 1, 6000)) // as if admitted just before
	attempts := w.fs.Calls(crashfs.OpRenameNoReplace)
	drive(w.j)
	_, err := tk.Outcome()
	require.ErrorAs(t, err, &refused)
	require.Equal(t, attempts, w.fs.Calls(crashfs.OpRenameNoReplace))
	require.NoError(t, w.try(10), "what fits is not affected")
	w.later(firstRetry)
	require.NoError(t, w.try(6000))
	require.Equal(t, RotationHealthy, w.state().Kind)
}

// TestNameTaken: a file under the next segment's name is never written to.
func TestNameTaken(t *testing.T) {
	w := opened(t, nil)
	require.NoError(t, w.try(500))
	w.faulty = true
	name := segmentID{w.j.Durable(), 1}.name()
	require.NoError(t, w.fs.WriteFile(logDir+"/"+name, []byte("somebody's")))
	require.ErrorIs(t, w.rotateNow(), syscall.EEXIST)
	w.later(firstRetry)
	w.turn(func() { require.NoError(t, w.j.Discharge()) }) // under the next ordinal
	require.NoError(t, w.try(500))
	data, err := w.fs.ReadFile(logDir + "/" + name)
	require.NoError(t, err)
	require.Equal(t, "somebody's", string(data))
}

// TestNothingIsReclaimedBehindAnUnprovenEntry: while the newest segment's
// directory entry may be lost, the one before it may be the newest again.
func TestNothingIsReclaimedBehindAnUnprovenEntry(t *testing.T) {
	w := failing(t, crashfs.Fault{Op: crashfs.OpSyncDir}, false, 1)
	require.ErrorIs(t, w.rotateNow(), syscall.EIO)
	require.NoError(t, w.stamp(map[Lane]Position{testLanes[0]: w.j.Durable()}))
	planned, _, _ := pass(w.j, 10)
	require.Zero(t, planned)
	require.Len(t, w.j.Segments(), 2)
	w.later(firstRetry)
	w.turn(func() { require.NoError(t, w.j.Discharge()) })
	_, removed, _ := pass(w.j, 10)
	require.Equal(t, 1, removed)
}
