// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelweir/weir/barrier"
)

// documentVersion grows when a field changes its meaning or goes away; new
// fields leave it alone.
const documentVersion = 1

// Document is the JSON at /api/v1/status and what the page is rendered from.
// The extension's README documents it.
type Document struct {
	Version   int       `json:"version"`
	Generated time.Time `json:"generated"`
	Extension string    `json:"extension"`
	Logs      []Log     `json:"logs"`
}

// Log is one registered log.
type Log struct {
	ID      string  `json:"id"`
	Error   string  `json:"error,omitempty"` // why the log could not be asked; all else is then zero
	Verdict Verdict `json:"verdict"`
	Failure string  `json:"failure,omitempty"` // the permanent error that the log's component has reported
	barrier.Status
	DeadLetters Aside       `json:"dead_letters"`
	Quarantined Aside       `json:"quarantined"`
	Maintenance Maintenance `json:"maintenance"`
	History     []Sample    `json:"history"`
}

// Verdict is the state of a log in one word and one sentence.
type Verdict struct {
	State string `json:"state"` // accepting, degraded, refusing, volume_full, unwritable, failed, terminal, unknown
	Title string `json:"title"`
	Text  string `json:"text"`
}

// Maintenance is when the log's passes run and how the last ones went.
type Maintenance struct {
	Barrier      Pass `json:"barrier"`
	Housekeeping Pass `json:"housekeeping"`
}

// Pass is one of the two kinds of passes.
type Pass struct {
	Next      time.Time        `json:"next"`
	Interval  time.Duration    `json:"interval_ns"`
	Runs      uint64           `json:"runs"`
	Failures  uint64           `json:"failures"`
	Running   bool             `json:"running"`
	Started   time.Time        `json:"last_started,omitzero"`
	Took      time.Duration    `json:"last_took_ns"`
	LastError string           `json:"last_error,omitempty"`
	Progress  barrier.Progress `json:"last_progress,omitzero"`
}

// judge says what matters most about a log, worst first.
func judge(s *barrier.Status, failure string, now time.Time) Verdict {
	troubled := 0
	for i := range s.Lanes {
		if needsAttention(s.Lanes[i].State) {
			troubled++
		}
	}
	switch {
	case s.Rotation.State == "terminal":
		return Verdict{
			State: "terminal", Title: "Stopped: restart needed",
			Text: "No batch is accepted until the Collector is restarted. Delivery and reclaiming go on." + cause(s.Rotation.Cause),
		}
	case failure != "":
		fate := "What arrives is accepted until the byte limit is reached."
		if s.Latch.Refusing {
			fate = "What arrives is turned away: the " + boundName(s.Latch.Cause) + " is reached."
		}
		return Verdict{
			State: "failed", Title: "Failed: mend it and restart",
			Text: strings.TrimRight(failure, ". ") + ". It does not pass by itself. " + fate,
		}
	case s.Rotation.State == "unwritable":
		return Verdict{
			State: "unwritable", Title: "Volume not writable",
			Text: "Batches that need to write where the volume refuses it are turned away until it is writable again; nothing accepted is lost." +
				cause(s.Rotation.Cause) + nextTry(s.Rotation.NextTry, now),
		}
	case s.Rotation.State == "volume_full":
		return Verdict{
			State: "volume_full", Title: "Volume full",
			Text: "Batches that need room on the volume are turned away until there is some; delivery and reclaiming go on and make room." +
				cause(s.Rotation.Cause) + nextTry(s.Rotation.NextTry, now),
		}
	case s.Latch.Refusing:
		return Verdict{
			State: "refusing", Title: "Refusing: " + boundName(s.Latch.Cause) + " reached",
			Text: fmt.Sprintf("Batches that would cross the limit are turned away and told to come back in %s. %s",
				retryAfter(s.RetryAfter), refusingSince(s.Latch.Since, now)),
		}
	case s.Rotation.State == "retrying":
		return Verdict{
			State: "degraded", Title: "Accepting, with rotation failing",
			Text: fmt.Sprintf("Beginning a new segment failed %s in a row; what needs one is turned away meanwhile.", times(s.Rotation.Failures)) +
				cause(s.Rotation.Cause) + nextTry(s.Rotation.NextTry, now),
		}
	case troubled > 0:
		return Verdict{
			State: "degraded", Title: "Accepting, with lanes waiting",
			Text: fmt.Sprintf("%s not being delivered; what arrives is kept until the byte limit is reached.", lanesAre(troubled)),
		}
	}
	return Verdict{
		State: "accepting", Title: "Accepting",
		Text: fmt.Sprintf("%s of %s are kept for delivery or reclaiming.", size(s.Unreclaimed), size(s.Limit)),
	}
}

// needsAttention reports whether a lane in this state waits for something that
// may need a person.
func needsAttention(state string) bool {
	switch state {
	case "parked", "blocked", "no_pipeline":
		return true
	}
	return false
}
