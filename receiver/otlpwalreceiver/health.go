// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"

	"github.com/otelweir/weir/internal/journal"
)

// settleTime is how long a condition must last before the component's status
// follows it: refusing and accepting may alternate with every request.
const settleTime = time.Second

// lookEvery is how often the condition is looked at although nobody told of a
// change: nobody tells when reading the log works again.
const lookEvery = 5 * time.Second

// health reports the component's status once it has held for settleTime. A
// permanent error is reported at once and is the last thing reported: the
// Collector lets nothing follow it.
type health struct {
	host      component.Host
	condition func() condition

	judging sync.Mutex // held while the condition is judged and reported; taken before mu

	mu       sync.Mutex
	running  bool                   // between begin and stop; guarded by mu
	timer    *time.Timer            // of the next look; guarded by mu
	at       time.Time              // when that is; guarded by mu
	reported componentstatus.Status // guarded by mu
	now      componentstatus.Status // as of the last look; guarded by mu
	began    time.Time              // when now was first seen; guarded by mu
}

// condition is what the log's state means for the component.
type condition struct {
	status componentstatus.Status
	why    error
	// since is when this state began, if the log knows: it may have ended and
	// begun anew between two looks.
	since time.Time
}

func newHealth(host component.Host, look func() condition) *health {
	return &health{host: host, condition: look, reported: componentstatus.StatusOK, now: componentstatus.StatusOK}
}

// begin is called when the condition can be judged: what changed before is
// judged then.
func (h *health) begin() {
	h.mu.Lock()
	h.running = true
	h.mu.Unlock()
	h.changed()
}

// changed tells that the condition may have changed. It does not block, and
// may be called under any lock of the log.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookIn(0)
}

// lookIn arranges a look after d, or earlier if one is to come earlier. mu is
// held.
func (h *health) lookIn(d time.Duration) {
	at := time.Now().Add(d)
	if !h.running || h.timer != nil && !at.Before(h.at) {
		return
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	h.at = at
	h.timer = time.AfterFunc(d, h.judge)
}

// judge looks at the condition, and reports it when it has held long enough.
// Who watches the status may take long: changed never waits for it, and one
// look at most waits behind it.
func (h *health) judge() {
	h.judging.Lock()
	defer h.judging.Unlock()
	h.mu.Lock()
	h.timer = nil // what changes from here on is looked at again
	h.mu.Unlock()
	if c := h.condition(); h.due(c) {
		componentstatus.ReportStatus(h.host, componentstatus.NewEvent(c.status, componentstatus.WithError(c.why)))
	}
}

// due says whether c is to be reported now.
func (h *health) due(c condition) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running || h.reported == componentstatus.StatusPermanentError {
		return false
	}
	h.lookIn(lookEvery)
	now := time.Now()
	if c.status != h.now {
		h.now, h.began = c.status, now
	}
	if c.since.After(h.began) {
		h.began = c.since
	}
	if c.status == h.reported {
		return false
	}
	if left := settleTime - now.Sub(h.began); left > 0 && c.status != componentstatus.StatusPermanentError {
		h.lookIn(left)
		return false
	}
	if h.reported = c.status; h.reported == componentstatus.StatusPermanentError {
		h.timer.Stop()
	}
	return true
}

// stop ends reporting. It does not wait for a report under way.
func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
	if h.timer != nil {
		h.timer.Stop()
	}
}

// condition judges the log.
func (r *walReceiver) condition() condition {
	r.journal.Lock()
	rotation := r.journal.RotationState()
	r.journal.Unlock()
	permanent := func(why error) condition {
		return condition{status: componentstatus.StatusPermanentError, why: why}
	}
	recoverable := func(why error) condition {
		return condition{status: componentstatus.StatusRecoverableError, why: why}
	}
	switch damage := r.delivery.Damage(); {
	case rotation.Kind == journal.RotationTerminal:
		return permanent(fmt.Errorf("the log takes no more data until a restart: %w", rotation.Cause))
	case damage != nil:
		return permanent(fmt.Errorf("the log cannot be read any further: %w", damage))
	case rotation.Kind != journal.RotationHealthy:
		return recoverable(fmt.Errorf("the log's next segment: %s: %w", rotation.Kind, rotation.Cause))
	}
	if err := r.delivery.ReadError(); err != nil {
		return recoverable(fmt.Errorf("the log cannot be read at present: %w", err))
	}
	// The latch comes last: it may be left and set again with every request,
	// which must not hide what lasts.
	latch, parked := r.coordinator.Latch(), r.delivery.Stats().Parked
	switch {
	case parked > 0 && latch.Refusing:
		return recoverable(fmt.Errorf("%d lanes wait for their pipeline to take data again, and the log is full and refuses: %s", parked, latch.LastRefusal))
	case parked > 0:
		return recoverable(fmt.Errorf("%d lanes wait for their pipeline to take data again", parked))
	case latch.Refusing:
		return condition{componentstatus.StatusRecoverableError, errors.New("the log is full and refuses: " + latch.LastRefusal), latch.Since}
	}
	return condition{status: componentstatus.StatusOK, since: latch.Since}
}
