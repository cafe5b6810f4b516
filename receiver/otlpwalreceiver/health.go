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

// health reports the component's status on change. A permanent error is
// reported at once and is the last thing reported: the Collector lets nothing
// follow it.
type health struct {
	host      component.Host
	condition func() (status componentstatus.Status, why error)

	mu       sync.Mutex
	running  bool                   // between begin and stop; guarded by mu
	timer    *time.Timer            // runs while a change waits to be judged; guarded by mu
	reported componentstatus.Status // guarded by mu
}

func newHealth(host component.Host, condition func() (componentstatus.Status, error)) *health {
	return &health{host: host, condition: condition, reported: componentstatus.StatusOK}
}

// begin is called when the condition can be judged: what changed before is
// judged then.
func (h *health) begin() {
	h.mu.Lock()
	h.running = true
	h.mu.Unlock()
	h.changed()
}

// changed tells that the condition may have changed. It does not block.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running && h.timer == nil {
		h.timer = time.AfterFunc(settleTime, h.judge)
	}
}

// judge reports the condition as it is now.
func (h *health) judge() {
	status, why := h.condition()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = nil
	if !h.running || status == h.reported || h.reported == componentstatus.StatusPermanentError {
		return
	}
	h.reported = status
	componentstatus.ReportStatus(h.host, componentstatus.NewEvent(status, componentstatus.WithError(why)))
}

// stop ends reporting.
func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
	if h.timer != nil {
		h.timer.Stop()
	}
}

// condition is what the log's state means for the component.
func (r *walReceiver) condition() (componentstatus.Status, error) {
	r.journal.Lock()
	rotation := r.journal.RotationState()
	r.journal.Unlock()
	switch damage := r.delivery.Damage(); {
	case rotation.Kind == journal.RotationTerminal:
		return componentstatus.StatusPermanentError, fmt.Errorf("the log takes no more data until a restart: %w", rotation.Cause)
	case damage != nil:
		return componentstatus.StatusPermanentError, fmt.Errorf("the log cannot be read any further: %w", damage)
	case rotation.Kind != journal.RotationHealthy:
		return componentstatus.StatusRecoverableError, fmt.Errorf("the log's next segment: %s: %w", rotationNames[rotation.Kind], rotation.Cause)
	}
	if latch := r.coordinator.Latch(); latch.Refusing {
		return componentstatus.StatusRecoverableError, errors.New("the log is full and refuses: " + latch.LastRefusal)
	}
	if err := r.delivery.ReadError(); err != nil {
		return componentstatus.StatusRecoverableError, fmt.Errorf("the log cannot be read at present: %w", err)
	}
	if parked := r.delivery.Stats().Parked; parked > 0 {
		return componentstatus.StatusRecoverableError, fmt.Errorf("%d lanes wait for their pipeline to take data again", parked)
	}
	return componentstatus.StatusOK, nil
}
