// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"time"

	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/pipeline/xpipeline"

	"github.com/otelweir/weir/internal/journal"
)

// phase says who hands a lane its next frames.
//
//	           frame it has no place for
//	┌─▶ current ───────────────────────▶ behind ◀─┐
//	│      │  ▲                           │  │    │ head consumed, frames passed meanwhile
//	│      │  └── catch-up reached main ──┘  │    │
//	│      └──────────┬──────────────────────┘    │
//	│                 ▼ attempt failed            │
//	│          parked ⇄ blocked ──────────────────┤
//	└─────────────────────────────────────────────┘
//	           head consumed, no frame passed
//
// noPipeline is entered at birth and never left. stopped is entered by a lane
// that has come to damage, when nothing is left of what it took before that,
// and never left either.
type phase uint8

const (
	current    phase = iota // the main reader
	behind                  // the catch-up reader, from cursor on
	parked                  // nobody: an attempt failed, and only its head is tried again, when due
	blocked                 // nobody: as parked, but for want of a place for what can not be delivered
	noPipeline              // nobody, until a configuration has a pipeline for the signal
	stopped                 // nobody, until the log is repaired and opened again: it is at damage
)

// halted phases are left only by a successful attempt on the head, or never.
func (p phase) halted() bool { return p >= parked }

// State is a lane's state as people see it.
type State string

// The states of a lane.
const (
	Idle       State = "idle"        // everything read of it is settled
	Delivering State = "delivering"  // it keeps up with the log, or is about to
	Parked     State = "parked"      // waits to try its head again, or can not get past damage
	CatchingUp State = "catching_up" // the main reader is ahead of it
	Held       State = "held"        // all that is unsettled was consumed and is held by a sink
	Blocked    State = "blocked"     // its head can neither be delivered nor set aside
	NoPipeline State = "no_pipeline" // no pipeline takes its signal
)

// lane is one (tenant, signal). Delivery.mu guards all of it.
type lane struct {
	id     journal.Lane
	signal pipeline.Signal

	phase  phase
	from   journal.Position     // frames before it were settled by an earlier run
	cursor journal.Position     // unless current: the first position from which no frame was taken
	missed bool                 // unless current: the main reader may have passed frames at or after cursor
	stuck  bool                 // its next frame found no place; until a group is off or settled
	full   bool                 // stuck, because of what is remembered of unsettled groups
	damage *journal.DamageError // that it has come to, or will when it has caught up with the main reader

	groups  groupList
	ahead   *group     // gathering; the last of groups
	owed    int        // groups to be read again
	owedDue byPosition // those of them no timer holds back
	use     use        // by its runs, one for each group that is running

	line    place  // in Delivery.queue or Delivery.retries
	wanting bool   // in Delivery.wants
	lap     uint64 // the last it took part in
	leftLap uint64 // the last it may take no further frame in

	consumed   time.Time // when a call last succeeded
	attempts   int       // failed in a row, of the head
	due        time.Time
	lastError  string
	graceSince time.Time // since when every failure was one not about the data; zero = it was not

	counts counts
}

// state derives what people see from the phase and the groups.
func (l *lane) state() State {
	switch l.phase {
	case parked, stopped:
		return Parked
	case blocked:
		return Blocked
	case noPipeline:
		return NoPipeline
	case behind:
		return CatchingUp
	}
	switch {
	case l.groups.n == 0:
		return Idle
	case l.ahead != nil || l.use.consumers > 0 || l.owed > 0:
		return Delivering
	}
	return Held
}

// frontier is the first unsettled position of the lane or, when nothing of it
// is outstanding, main: the position up to which the log has been read.
func (l *lane) frontier(main journal.Position) journal.Position {
	switch {
	case l.groups.first != nil:
		return l.groups.first.start
	case l.phase != current:
		return max(l.from, l.cursor)
	}
	return max(l.from, main)
}

// atDamage reports whether the lane's next frame is in a damaged range, or
// behind one that its reader can not pass.
func (l *lane) atDamage() bool {
	return l.damage != nil && (l.phase == current || l.cursor >= l.damage.Start)
}

// leave makes the main reader pass the lane's frames from at on.
func (l *lane) leave(p phase, at journal.Position) {
	if l.phase == current {
		l.cursor, l.missed = at, false
	}
	l.phase = p
}

// pass notes a frame the main reader did not take.
func (l *lane) pass(at journal.Position) {
	if !l.missed {
		l.cursor, l.missed = max(l.cursor, at), true
	}
}

// free notes that the lane's next frame may find a place.
func (l *lane) free() { l.stuck, l.full = false, false }

// rest ends the lane's grace when nothing is left that it was for: what comes
// later, and may meet another outage, has one of its own.
func (l *lane) rest() {
	if l.state() == Idle {
		l.graceSince = time.Time{}
	}
}

// forgettable reports whether a lane the main reader makes anew with its next
// frame would be no different. In every phase but current there may be frames
// that reader has passed.
func (l *lane) forgettable(main journal.Position) bool {
	return l.groups.n == 0 && l.from <= main && l.phase == current && !l.wanting
}

// head is the group a halted lane tries again: the first that is owed and due.
// There is one unless it is being tried: what halts a lane is a group that
// failed, and only a retry takes it off again.
func (l *lane) head() *group { return l.owedDue.first() }

// next is the group the lane would have delivered next, if any.
func (l *lane) next() *group {
	if g := l.owedDue.first(); g != nil {
		return g
	}
	if l.ahead != nil && l.ahead.ready {
		return l.ahead
	}
	return nil
}

func signalOf(k journal.Kind) (pipeline.Signal, bool) {
	switch k {
	case journal.KindLogs:
		return pipeline.SignalLogs, true
	case journal.KindTraces:
		return pipeline.SignalTraces, true
	case journal.KindMetrics:
		return pipeline.SignalMetrics, true
	case journal.KindProfiles:
		return xpipeline.SignalProfiles, true
	}
	return pipeline.Signal{}, false
}
