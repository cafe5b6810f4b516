// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
)

// Outcome is what a sender knows about a batch after one attempt.
type Outcome uint8

// The outcomes. Undecided covers everything without an answer from the log
// itself: it may or may not have the batch.
const (
	Acked Outcome = iota + 1
	Refused
	Undecided
)

// Ledger is what the senders know. Of one batch the best-known outcome counts:
// acked over undecided over refused.
type Ledger struct {
	mu      sync.Mutex // guards everything below
	next    ID
	known   map[ID]Outcome
	acked   int
	reasons map[string]int
	invalid []error
}

// NewLedger begins with id 1.
func NewLedger() *Ledger {
	return &Ledger{next: 1, known: map[ID]Outcome{}, reasons: map[string]int{}}
}

// Batch draws a new batch.
func (l *Ledger) Batch(s Signal, n int) Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := Batch{Signal: s, First: l.next, N: n}
	l.next += ID(n)
	return b
}

// Record adds the outcome of one attempt.
func (l *Ledger) Record(b Batch, a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Reason != "" {
		l.reasons[a.Reason]++
	}
	if a.Permanent {
		l.invalid = append(l.invalid, fmt.Errorf("%s, %d items from %d on: %w", b.Signal, b.N, b.First, a.Err))
	}
	for id := range b.ids {
		switch k := l.known[id]; {
		case k == Acked, k == Undecided && a.Outcome == Refused:
		default:
			l.known[id] = a.Outcome
			if a.Outcome == Acked {
				l.acked++
			}
		}
	}
}

// Acked is how many items were acknowledged so far.
func (l *Ledger) Acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// AllAcked says whether every acknowledged item arrived.
func (l *Ledger) AllAcked(arrived map[ID]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, k := range l.known {
		if k == Acked && arrived[id] == 0 {
			return false
		}
	}
	return true
}

// Report is a ledger compared with a sink.
type Report struct {
	Sent, Acked, Refused, Undecided, Arrived, Duplicates int
	Reasons                                              map[string]int

	Missing []ID    // acknowledged and not arrived: a broken promise (P1, P5)
	Leaked  []ID    // refused at admission and arrived all the same: a broken promise (P2)
	Unknown []ID    // arrived and never sent
	Invalid []error // valid batches refused for good: a broken promise (P7)
	Damaged []string
}

// Compare says how what arrived relates to what the senders know.
func (l *Ledger) Compare(s *Sink) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Report{Sent: len(l.known), Arrived: len(s.arrived), Reasons: l.reasons, Invalid: l.invalid, Damaged: s.damaged}
	for id, k := range l.known {
		switch k {
		case Acked:
			if r.Acked++; s.arrived[id] == 0 {
				r.Missing = append(r.Missing, id)
			}
		case Refused:
			if r.Refused++; s.arrived[id] > 0 {
				r.Leaked = append(r.Leaked, id)
			}
		case Undecided:
			r.Undecided++
		}
	}
	for id, n := range s.arrived {
		if _, ok := l.known[id]; !ok {
			r.Unknown = append(r.Unknown, id)
		}
		r.Duplicates += n - 1
	}
	return r
}

// Err is nil when every promise was kept.
func (r Report) Err() error {
	var broken []string
	if n := len(r.Missing); n > 0 {
		broken = append(broken, fmt.Sprintf("%d acknowledged items never arrived, e.g. %v", n, first(r.Missing)))
	}
	if n := len(r.Leaked); n > 0 {
		broken = append(broken, fmt.Sprintf("%d items arrived although they were refused, e.g. %v", n, first(r.Leaked)))
	}
	if n := len(r.Unknown); n > 0 {
		broken = append(broken, fmt.Sprintf("%d items arrived that nobody sent, e.g. %v", n, first(r.Unknown)))
	}
	if n := len(r.Invalid); n > 0 {
		broken = append(broken, fmt.Sprintf("%d valid batches were refused for good, e.g. %v", n, r.Invalid[0]))
	}
	if n := len(r.Damaged); n > 0 {
		broken = append(broken, fmt.Sprintf("items arrived changed: %s", strings.Join(r.Damaged, "; ")))
	}
	if broken == nil {
		return nil
	}
	return fmt.Errorf("broken promises: %s\n%s", strings.Join(broken, "; "), r)
}

func first(ids []ID) []ID { return ids[:min(len(ids), 10)] }

func (r Report) String() string {
	return fmt.Sprintf("%d items sent: %d acked, %d refused, %d undecided; %d arrived, %d duplicates; refusals %v",
		r.Sent, r.Acked, r.Refused, r.Undecided, r.Arrived, r.Duplicates, r.Reasons)
}
