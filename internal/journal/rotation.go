// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// RotationStateKind says whether the log can put its next segment in place.
type RotationStateKind uint8

// The states of rotation. Terminal is left by a restart only.
const (
	RotationHealthy    RotationStateKind = iota
	RotationRetrying                     // attempts fail and are counted
	RotationVolumeFull                   // ENOSPC, EDQUOT: never counted, ends by itself
	RotationUnwritable                   // EROFS, EACCES, EPERM, no descriptors left: never counted, ends by itself
	RotationTerminal                     // appends have ended; everything else goes on
)

// RotationStateKinds are all of them.
var RotationStateKinds = [...]RotationStateKind{RotationHealthy, RotationRetrying, RotationVolumeFull, RotationUnwritable, RotationTerminal}

// String is the state's name in metrics and on the status page.
func (k RotationStateKind) String() string {
	switch k {
	case RotationHealthy:
		return "healthy"
	case RotationRetrying:
		return "retrying"
	case RotationVolumeFull:
		return "volume_full"
	case RotationUnwritable:
		return "unwritable"
	case RotationTerminal:
		return "terminal"
	}
	return fmt.Sprintf("rotation_state(%d)", uint8(k))
}

// RotationState is a copy of the state for whoever answers an append.
type RotationState struct {
	Kind     RotationStateKind
	Failures int   // consecutive counted ones
	Cause    error // the first one's
	// NextAttempt is when the log tries again, on the monotonic clock of
	// Config.Now; zero in Healthy and Terminal.
	NextAttempt time.Time
	// AppendsBlocked says that every append needs the next attempt, not only
	// those that need a new segment.
	AppendsBlocked bool
}

// Attempts are spaced: 1 s, doubling up to 30 s.
const (
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// rotationEvent is what can happen to the state.
type rotationEvent uint8

const (
	// rotationDone: a rotation, a discharge or a probe succeeded.
	rotationDone rotationEvent = iota
	// rotationFailed: an attempt failed with an error that counts.
	rotationFailed
	// volumeFull and volumeUnwritable: an attempt, a preparation or a write
	// failed for a reason that ends by itself.
	volumeFull
	volumeUnwritable
	// spaceFreed: a pass removed a segment.
	spaceFreed
	// sealedCeiling: too many segments hold bytes that could not be cut off.
	sealedCeiling
)

// rotation is the state machine. Guarded by the journal lock; its transition
// table is the table of TestRotationTransitions.
type rotation struct {
	kind     RotationStateKind
	failures int // counted towards Terminal
	tries    int // of this state, counted for the spacing
	cause    error
	next     time.Time
	blocked  bool // appends that need no rotation are affected too
	budget   int  // failures that make it terminal
}

// on applies one event and says whether the state's kind changed.
func (r *rotation) on(e rotationEvent, cause error, blocked bool, now time.Time) (changed bool) {
	before := r.kind
	if before == RotationTerminal {
		return false
	}
	switch e {
	case rotationDone:
		*r = rotation{budget: r.budget}
	case rotationFailed:
		r.failures++
		r.fail(RotationRetrying, cause, blocked, now)
		if r.failures >= r.budget {
			r.end()
		}
	case volumeFull:
		r.fail(RotationVolumeFull, cause, blocked, now)
	case volumeUnwritable:
		r.fail(RotationUnwritable, cause, blocked, now)
	case spaceFreed:
		if before == RotationVolumeFull || before == RotationUnwritable {
			r.next, r.tries = now, 0
		}
	case sealedCeiling:
		r.cause = cause
		r.end()
	}
	return r.kind != before
}

func (r *rotation) fail(to RotationStateKind, cause error, blocked bool, now time.Time) {
	if r.kind != to {
		r.kind, r.tries = to, 0
		if to != RotationRetrying || r.failures == 1 {
			r.cause = nil
		}
	}
	if r.cause == nil {
		r.cause = cause
	}
	r.blocked = blocked || r.blocked && r.tries > 0
	r.next = now.Add(min(firstRetry<<min(r.tries, 10), maxRetry))
	r.tries++
}

func (r *rotation) end() {
	r.kind, r.next, r.blocked = RotationTerminal, time.Time{}, true
}

// waiting says whether the next attempt lies ahead (always, when terminal).
func (r *rotation) waiting(now time.Time) bool {
	return r.kind == RotationTerminal || r.kind != RotationHealthy && now.Before(r.next)
}

func (r *rotation) snapshot() RotationState {
	return RotationState{Kind: r.kind, Failures: r.failures, Cause: r.cause, NextAttempt: r.next, AppendsBlocked: r.blocked}
}

// classifyFailure tells the failures that end by themselves from those that
// count.
func classifyFailure(err error) rotationEvent {
	switch {
	case isFull(err):
		return volumeFull
	case isUnwritable(err):
		return volumeUnwritable
	}
	return rotationFailed
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnwritable also takes the process's or the system's want of descriptors:
// clients can bring it about, and it ends when they go.
func isUnwritable(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) ||
		errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
