// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errCause = errors.New("cause")

// TestRotationTransitions is the transition table of the rotation's state.
func TestRotationTransitions(t *testing.T) {
	const (
		healthy, retrying, full, unwritable, terminal = RotationHealthy, RotationRetrying, RotationVolumeFull, RotationUnwritable, RotationTerminal
	)
	events := []rotationEvent{rotationDone, rotationFailed, volumeFull, volumeUnwritable, spaceFreed, sealedCeiling}
	table := map[RotationStateKind][]RotationStateKind{
		//           done     failed    full  unwritable  freed       sealed
		healthy:    {healthy, retrying, full, unwritable, healthy, terminal},
		retrying:   {healthy, retrying, full, unwritable, retrying, terminal},
		full:       {healthy, retrying, full, unwritable, full, terminal},
		unwritable: {healthy, retrying, full, unwritable, unwritable, terminal},
		terminal:   {terminal, terminal, terminal, terminal, terminal, terminal},
	}
	reach := map[RotationStateKind]rotationEvent{
		healthy: rotationDone, retrying: rotationFailed, full: volumeFull, unwritable: volumeUnwritable, terminal: sealedCeiling,
	}
	now := time.Now()
	for from, row := range table {
		for i, want := range row {
			r := rotation{budget: 3}
			r.on(reach[from], errCause, false, now)
			require.Equal(t, from, r.kind)
			changed := r.on(events[i], errCause, false, now)
			require.Equal(t, want, r.kind, "%v on event %d", from, events[i])
			require.Equal(t, want != from, changed, "%v on event %d", from, events[i])
			waits := want != healthy && (events[i] != spaceFreed || want == retrying || want == terminal)
			require.Equal(t, waits, r.waiting(now), "%v on event %d", from, events[i])
		}
	}
}

func TestRotationBudget(t *testing.T) {
	first := errors.New("first")
	now := time.Now()
	r := rotation{budget: 3}
	r.on(rotationFailed, first, false, now)
	r.on(rotationFailed, errCause, false, now)
	r.on(volumeFull, syscall.ENOSPC, false, now) // never counted, and does not interrupt the count
	require.Equal(t, RotationVolumeFull, r.kind)
	require.Equal(t, 2, r.failures)
	require.True(t, r.on(rotationFailed, errCause, false, now))
	require.Equal(t, RotationTerminal, r.kind)
	require.Zero(t, r.snapshot().NextAttempt)
	require.True(t, r.snapshot().AppendsBlocked)

	r = rotation{budget: 3}
	for range 2 {
		r.on(rotationFailed, first, false, now)
	}
	require.Equal(t, first, r.cause)
	r.on(rotationDone, nil, false, now)
	for range 2 { // a success begins the count anew
		r.on(rotationFailed, errCause, false, now)
	}
	require.Equal(t, RotationRetrying, r.kind)
	require.Equal(t, errCause, r.cause)

	r = rotation{budget: 3}
	for range 1000 {
		r.on(volumeFull, syscall.ENOSPC, false, now)
	}
	require.Equal(t, RotationVolumeFull, r.kind)
	require.Zero(t, r.failures)
}

func TestRotationSpacing(t *testing.T) {
	now := time.Now()
	r := rotation{budget: 100}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		r.on(rotationFailed, errCause, false, now)
		require.Equal(t, want*time.Second, r.next.Sub(now))
		require.True(t, r.waiting(now))
		require.False(t, r.waiting(r.next))
	}
	r.on(spaceFreed, nil, false, now)
	require.True(t, r.waiting(now), "space says nothing about an error that counts")
	r.on(volumeFull, syscall.ENOSPC, true, now)
	require.Equal(t, time.Second, r.next.Sub(now), "another state begins its spacing anew")
	r.on(volumeFull, syscall.ENOSPC, false, now)
	require.Equal(t, 2*time.Second, r.next.Sub(now))
	require.True(t, r.blocked, "a narrower failure does not lift the wider one")
	r.on(spaceFreed, nil, false, now)
	require.False(t, r.waiting(now))
}

func TestClassifyFailure(t *testing.T) {
	for errno, want := range map[error]rotationEvent{
		syscall.ENOSPC: volumeFull, syscall.EDQUOT: volumeFull,
		syscall.EROFS: volumeUnwritable, syscall.EACCES: volumeUnwritable, syscall.EPERM: volumeUnwritable,
		syscall.EMFILE: volumeUnwritable, syscall.ENFILE: volumeUnwritable,
		syscall.EIO: rotationFailed, syscall.EEXIST: rotationFailed, errCause: rotationFailed,
	} {
		require.Equal(t, want, classifyFailure(errno), errno)
	}
}
