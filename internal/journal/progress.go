// SPDX-License-Identifier: Apache-2.0

package journal

import "time"

// progressEvery is how often a long recovery says how far it is: often enough
// for whoever watches a start to see that it is none that hangs.
const progressEvery = 5 * time.Second

// progress is how far recovery has come in the log's positions.
type progress struct {
	first, last Position // of what is to be read
	begun, told time.Time
	calls       uint
}

// setOut begins to count, before the first file of the chain is read.
func (r *recovery) setOut(now time.Time) {
	newest := &r.files[len(r.files)-1]
	r.progress = progress{
		first: r.files[0].id.base, last: newest.id.base + uint64(max(newest.info.Size-segmentHeaderLen, 0)),
		begun: now, told: now,
	}
}

// reached says, now and then, that everything before p was read. ETA is what
// the rate so far promises.
func (r *recovery) reached(p Position) {
	g := &r.progress
	if g.calls++; g.calls%64 != 1 { // frames may be small and many
		return
	}
	now := r.cfg.Now()
	if now.Sub(g.told) < progressEvery {
		return
	}
	g.told = now
	done, total := p-g.first, max(g.last, p)-g.first
	rate := float64(done) / now.Sub(g.begun).Seconds()
	r.event("", "Recovering the log", nil, map[string]any{
		"directory": r.cfg.Directory, "bytes": done, "of": total, "bytes_per_second": uint64(rate),
		"eta": time.Duration(float64(total-done) / max(rate, 1) * float64(time.Second)).Round(time.Second),
	})
}
