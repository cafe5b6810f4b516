// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"go.uber.org/zap"
)

// shrinkAfter is how many failures in a row the whole head is tried for.
// After that each failure halves what is tried: a lane that stays down costs
// less and less to probe, and a group that is too large for its destination
// becomes small enough.
const shrinkAfter = 2

// interval is the backoff after the n-th failure in a row (from 1), drawn from
// interval × (1 ± randomization factor).
func (c *RetryConfig) interval(n int) time.Duration {
	base := min(float64(c.InitialInterval)*math.Pow(c.Multiplier, float64(n-1)), float64(c.MaxInterval))
	return max(time.Duration(base*(1+c.RandomizationFactor*(2*rand.Float64()-1))), 1)
}

// halt stops a lane after a failure: from now on only its head is tried, when
// due. Failures of groups that were under way when the lane stopped change
// nothing.
func (d *Delivery) halt(l *lane, p phase, retry bool, err error) {
	if d.stopping || l.phase.halted() && !retry {
		return
	}
	first := !l.phase.halted()
	d.leaveLap(l)
	l.leave(p, d.main)
	d.queue.remove(l)
	if l.ahead != nil {
		l.ahead.ready = true
		l.ahead.queuedFor = time.Time{}
		d.uncache(l.ahead)
	}
	l.attempts++
	if l.attempts > shrinkAfter {
		if g := l.head(); len(g.refs) > 1 {
			half := (len(g.refs) + 1) / 2
			d.insert(g, g.cut(half, len(g.refs)))
		}
	}
	wait := d.cfg.Retry.interval(l.attempts)
	l.due, l.lastError = time.Now().Add(wait), brief(err)
	d.after(wait, func() {
		d.retries.push(l)
		d.dispatch()
	})
	if !first {
		return
	}
	d.signals[l.id.Kind].halted++
	d.parked.Add(1)
	fields := []zap.Field{
		zap.String("event.name", "wal.delivery.parked"),
		zap.String("tenant", l.id.Tenant),
		zap.String("otelcol.signal", l.signal.String()),
		zap.String("state", string(l.state())),
		zap.Duration("next_try", wait),
		zap.String("error", l.lastError),
	}
	if p, ok := errors.AsType[*panicError](err); ok {
		fields = append(fields, zap.ByteString("stack", p.stack))
	}
	d.tell(func() {
		d.logger.Warn("Delivery of a lane is parked; its frames stay in the log and its head is tried again without end", fields...)
		d.onChange()
	})
}

// maxError bounds what is kept of an error: an exporter may have put its
// destination's whole answer into it.
const maxError = 2 << 10 // bytes

// brief is what an error says, at most maxError of it.
func brief(err error) string {
	s := err.Error()
	if len(s) <= maxError {
		return s
	}
	return strings.ToValidUTF8(s[:maxError], "") + "…"
}

// resumedBy is what let a lane go on.
var resumedBy = map[ending]string{
	consumed:  "Delivery of a lane has resumed",
	buried:    "A parked lane goes on because its head was set aside as a dead letter; that says nothing of its destination",
	discarded: "A parked lane goes on because its head was dropped, as on_permanent_error says; that says nothing of its destination",
	divided:   "A parked lane goes on because its head was refused for good as a whole; each of its frames is now tried alone",
	vanished:  "A parked lane goes on because its head was damaged and is no longer in the log; that says nothing of its destination",
}

// resume lets a lane go on after its head was delivered or set aside.
func (d *Delivery) resume(l *lane, how ending) {
	attempts := l.attempts
	l.phase, l.attempts, l.due, l.lastError = behind, 0, time.Time{}, ""
	d.leaveLap(l) // it may have come past frames of l meanwhile
	d.signals[l.id.Kind].halted--
	d.parked.Add(-1)
	tenant, signal := l.id.Tenant, l.signal.String()
	d.tell(func() {
		d.logger.Info(resumedBy[how],
			zap.String("event.name", "wal.delivery.resumed"),
			zap.String("tenant", tenant), zap.String("otelcol.signal", signal), zap.Int("attempts", attempts))
		d.onChange()
	})
	d.want(l) // with the main reader again, if that has passed nothing of it
}

// insert puts the parts cut from g behind it.
func (d *Delivery) insert(g *group, parts []*group) {
	at := g
	d.remembered += groupBytes * len(parts)
	for _, p := range parts {
		p.count(+1)
		g.lane.groups.insertAfter(at, p)
		at = p
	}
}

// after calls f under the lock, which the caller has too, when wait has
// passed, unless delivery has stopped by then.
func (d *Delivery) after(wait time.Duration, f func()) {
	if d.stopping {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.unlock()
		delete(d.timers, t)
		if !d.stopping {
			f()
		}
	})
	d.timers[t] = struct{}{}
}
