// SPDX-License-Identifier: Apache-2.0

package maintenance

import "time"

// firstDistance is the wait after the first pressure pass that removed
// nothing; each further one doubles it up to the housekeeping interval.
const firstDistance = 100 * time.Millisecond

// pressureState spaces pressure passes, so that a log whose pressure cannot be
// relieved (a dead sink, an unlink that fails) costs one pass per housekeeping
// interval and no more. It belongs to the maintenance goroutine.
type pressureState struct {
	longest  time.Duration // the housekeeping interval
	distance time.Duration // between the last pass and the next; 0 = none
	last     time.Time     // end of the last pressure pass
	pending  bool
	at       time.Time // of the pending pass
}

// request notes that the log asks for a pass and when it may have it.
func (p *pressureState) request(now time.Time) {
	p.pending = true
	p.at = now
	if p.distance > 0 {
		p.at = later(now, p.last.Add(p.distance))
	}
}

// ready takes the pending request if its time has come.
func (p *pressureState) ready(now time.Time) bool {
	if !p.pending || now.Before(p.at) {
		return false
	}
	p.pending = false
	return true
}

// finished notes the end of a pressure pass, or of a regular pass that removed
// something: then segments come free again and pressure need not wait.
func (p *pressureState) finished(now time.Time, removed int) {
	p.last = now
	if removed > 0 {
		p.distance = 0
		return
	}
	p.distance = min(max(firstDistance, 2*p.distance), p.longest)
}
