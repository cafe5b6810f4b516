// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"sync"
	"time"
)

const (
	// SampleInterval is the distance of the samples behind the plot.
	SampleInterval = 10 * time.Second

	// plotSpan is how far the plot looks back.
	plotSpan = time.Hour

	historySize = int(plotSpan/SampleInterval) + 1
)

// Sample is one log's fill at one instant.
type Sample struct {
	At          time.Time `json:"at"`
	Unreclaimed uint64    `json:"unreclaimed"`
	Refusing    bool      `json:"refusing,omitempty"`
}

// History is the last hour of one log's fill, in memory of fixed size. It is
// safe for concurrent use.
type History struct {
	mu      sync.Mutex
	samples [historySize]Sample // a ring; guarded by mu
	next    int                 // guarded by mu
	full    bool                // guarded by mu
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{} }

// Add appends s; the oldest sample makes room.
func (h *History) Add(s Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples[h.next] = s
	h.next++
	if h.next == historySize {
		h.next, h.full = 0, true
	}
}

// Samples returns a copy, oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	samples := make([]Sample, 0, historySize)
	if h.full {
		samples = append(samples, h.samples[h.next:]...)
	}
	return append(samples, h.samples[:h.next]...)
}
