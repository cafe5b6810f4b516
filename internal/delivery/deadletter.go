// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/otelweir/weir/internal/journal"
)

// maxReason bounds the error text stored with a dead letter, in bytes.
const maxReason = 4 << 10

// sustain returns err when the frames of g are to be tried again as they are:
// it is retryable, or it is not about the data and the lane's grace for such
// has not passed; the error then says when it will have. Otherwise it returns
// nil.
func (d *Delivery) sustain(g *group, v verdict, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := g.lane
	switch v {
	case retryable:
		l.graceSince = time.Time{}
		return err
	case elsewhere:
		if g.graceOver {
			return nil
		}
		now := time.Now()
		if l.graceSince.IsZero() {
			l.graceSince = now
		}
		until := l.graceSince.Add(d.cfg.PermanentGrace)
		if g.graceOver = !now.Before(until); g.graceOver {
			return nil
		}
		return fmt.Errorf("%w; this is not about the data and is tried again until permanent_grace ends at %s, then on_permanent_error applies",
			err, until.UTC().Format(time.RFC3339))
	}
	l.graceSince = time.Time{} // the destination looks at data again
	return nil
}

// condemn deals with a group that failed permanently. Of several frames each
// gets a chance of its own first; a single one goes as the policy says.
func (r *run) condemn(reason error) (ending, error) {
	if len(r.g.refs) > 1 {
		return divided, nil
	}
	switch r.d.cfg.OnPermanentError {
	case Drop:
		r.d.logger.Warn("Dropped a frame that can not be delivered, as on_permanent_error says", r.fields(reason)...)
		return discarded, nil
	case DeadLetter:
		frames, _, err := r.d.read(r.g) // decoding let go of the payload
		if err != nil {
			return failed, err
		}
		if len(frames) == 0 {
			return vanished, nil
		}
		return r.bury(frames, reason)
	}
	return refused, reason
}

// bury stores the frames as dead letters. Until that is durable they are not
// settled; a letter written twice is one.
func (r *run) bury(frames []journal.ReadFrame, reason error) (ending, error) {
	d := r.d
	text := strings.ToValidUTF8(reason.Error(), "\uFFFD")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	for i := range frames {
		if d.abandoned.Load() {
			return failed, errors.New("delivery has ended")
		}
		if err := d.source.WriteDeadLetter(frames[i], text, d.cfg.DeadLetterMaxBytes); err != nil {
			return refused, fmt.Errorf("store a dead letter for %q: %w", text, err)
		}
	}
	d.logger.Warn("Stored frames that can not be delivered as dead letters",
		append(r.fields(reason), zap.String("event.name", "wal.dead_letter.written"))...)
	return buried, nil
}

func (r *run) fields(reason error) []zap.Field {
	l := r.g.lane
	return []zap.Field{
		zap.String("tenant", l.id.Tenant),
		zap.String("otelcol.signal", l.signal.String()),
		zap.Uint64("position", r.g.start),
		zap.Int("frames", len(r.g.refs)),
		zap.Uint64("items", r.g.items),
		zap.Uint64("size", r.g.framed),
		zap.NamedError("reason", reason),
	}
}
