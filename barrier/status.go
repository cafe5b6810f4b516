// SPDX-License-Identifier: Apache-2.0

package barrier

import "time"

// Status is what a log tells people: the status page and its JSON render it.
// Sizes are bytes.
type Status struct {
	Directory string `json:"directory"`
	LogID     string `json:"log_id"`

	Limit       uint64    `json:"limit"`
	Unreclaimed uint64    `json:"unreclaimed"`
	Unflushed   uint64    `json:"unflushed"`
	Disk        uint64    `json:"disk"`
	Oldest      time.Time `json:"oldest_received,omitzero"`
	Durable     Position  `json:"durable_position"`

	MaxSegments int             `json:"max_segments"`
	Prepared    bool            `json:"prepared_segment"`
	Segments    []SegmentStatus `json:"segments"`
	Lanes       []LaneStatus    `json:"lanes"`
	Tenants     TenantStatus    `json:"tenants"`

	Rotation RotationStatus `json:"rotation"`
	Latch    LatchStatus    `json:"refusing"`
	Floor    FloorStatus    `json:"retain_floor"`

	// RetryAfter is what a refusal for lack of room would advise now.
	RetryAfter time.Duration `json:"retry_after_ns"`
}

// SegmentStatus is one file of the log, oldest first.
type SegmentStatus struct {
	Name   string   `json:"name"`
	Base   Position `json:"base"`
	Bytes  uint64   `json:"bytes"` // charged frame bytes
	State  string   `json:"state"` // current, closed, sealed, reclaiming
	HeldBy []string `json:"held_by,omitempty"`
}

// LaneStatus is one (tenant, signal).
type LaneStatus struct {
	Tenant    string    `json:"tenant"`
	Signal    string    `json:"signal"`
	Frontier  Position  `json:"frontier"`
	Horizon   Position  `json:"horizon"`
	LagBytes  uint64    `json:"lag"`                      // from the frontier to the lane's last frame
	Oldest    time.Time `json:"oldest_received,omitzero"` // of the oldest unsettled frame known
	Pending   uint64    `json:"pending_items"`            // items not yet settled
	State     string    `json:"state"`                    // idle, delivering, parked, catching_up, held, blocked, no_pipeline
	Attempts  int       `json:"attempts,omitempty"`
	NextTry   time.Time `json:"next_try,omitzero"`
	LastError string    `json:"last_error,omitempty"`
}

// TenantStatus counts tenant slots.
type TenantStatus struct {
	Held     int `json:"held"`
	Reserved int `json:"reserved"`
	Limit    int `json:"limit"`
}

// RotationStatus is the state of the log's ability to begin a new segment.
type RotationStatus struct {
	State    string    `json:"state"` // healthy, retrying, volume_full, unwritable, terminal
	Failures int       `json:"consecutive_failures"`
	Cause    string    `json:"cause,omitempty"` // the first of the failures
	NextTry  time.Time `json:"next_try,omitzero"`
}

// LatchStatus says whether the log refuses for lack of room.
type LatchStatus struct {
	Refusing    bool      `json:"refusing"`
	Cause       string    `json:"cause,omitempty"` // bytes, segments
	Since       time.Time `json:"since,omitzero"`
	LastRefusal string    `json:"last_refusal,omitempty"`
}

// FloorStatus says what keeps the oldest segments from being reclaimed.
type FloorStatus struct {
	State       string   `json:"state"` // unknown, none, min, pinned
	Position    Position `json:"position"`
	LagBytes    uint64   `json:"lag"`
	LagSegments int      `json:"lag_segments"`
	Lanes       []string `json:"lanes,omitempty"`
}
