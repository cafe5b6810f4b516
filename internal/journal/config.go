// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"time"
)

// CorruptionPolicy is what is done about damage.
type CorruptionPolicy uint8

const (
	// CorruptionFail reports damage and goes no further: Open fails, a reader
	// stops before it.
	CorruptionFail CorruptionPolicy = iota
	// CorruptionQuarantine sets the damaged range aside and goes on.
	CorruptionQuarantine
)

// Config is what a log is opened with. Every size is in bytes.
type Config struct {
	Directory             string
	SegmentSize           uint64 // of a segment's file, header included
	SegmentAge            time.Duration
	MaxFrameSize          uint64 // as framed; governs admission only
	Limit                 uint64 // of unreclaimed bytes, resolved (never 0); for the disk formula only
	MaxSegments           int    // closed segments retained, resolved (never 0)
	MaxTenants            int
	RotationRetryAttempts int    // 0 = 10
	GroupCap              uint64 // of one group; 0 = 4 MiB
	OnCorruption          CorruptionPolicy
	QuarantineMaxBytes    uint64
	Preallocate           bool
	ReserveCheckFail      bool             // a volume smaller than the disk formula fails Open instead of warning
	DeadLetterMaxBytes    uint64           // for the disk formula only
	Observer              Observer         // nil = none
	Now                   func() time.Time // nil = time.Now; its monotonic reading spaces attempts and ages segments
}

// DefaultGroupCap is the most bytes of one group of several frames.
const DefaultGroupCap = 4 << 20

const (
	defaultRotationRetries = 10
	// segmentSlack is what a segment holds beyond its largest frame at least: its
	// header. What an operator may choose leaves more.
	segmentSlack = segmentHeaderLen
	// maxSealed is how many sealed segments are retained before appends end:
	// each stands for a descriptor of this disk that failed.
	maxSealed = 8
)

// resolve fills in defaults and checks what the format needs; ranges an
// operator chooses from are the receiver's to check.
func (c Config) resolve() (Config, error) {
	if c.GroupCap == 0 {
		c.GroupCap = DefaultGroupCap
	}
	if c.RotationRetryAttempts == 0 {
		c.RotationRetryAttempts = defaultRotationRetries
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	switch {
	case c.Directory == "":
		return c, fmt.Errorf("no directory")
	case c.MaxFrameSize == 0 || c.MaxFrameSize > 1<<32-1:
		return c, fmt.Errorf("max_frame_size %d: must be 1..4294967295", c.MaxFrameSize)
	case c.SegmentSize < c.MaxFrameSize+segmentSlack:
		return c, fmt.Errorf("segment_size %d: must be at least max_frame_size %d + %d", c.SegmentSize, c.MaxFrameSize, segmentSlack)
	case c.SegmentSize > 1<<32-1:
		return c, fmt.Errorf("segment_size %d: must be below 4 GiB, which a frame's length counts", c.SegmentSize)
	case c.MaxSegments < 1 || c.MaxTenants < 1 || c.RotationRetryAttempts < 0:
		return c, fmt.Errorf("max_segments %d, max_tenants %d, rotation_retry_attempts %d: must be at least 1",
			c.MaxSegments, c.MaxTenants, c.RotationRetryAttempts)
	}
	return c, nil
}

// Observer is told of what happens, never under the journal lock. Its methods
// are called by whoever holds the writer turn, by maintenance and by readers.
type Observer interface {
	// GroupSynced tells of a group whose outcome is known. sync is what the
	// write and the fdatasync took.
	GroupSynced(frames int, bytes uint64, sync time.Duration, err error)
	Event(e Event)
}

// Event is one transition or one warning.
type Event struct {
	Name  string // event.name, e.g. wal.rotation.retrying; "" = a plain warning
	Text  string
	Attrs map[string]any
	Err   error
}

// The events of the log.
const (
	EventRotationRetrying  = "wal.rotation.retrying"
	EventRotationRecovered = "wal.rotation.recovered"
	EventRotationTerminal  = "wal.rotation.terminal"
	EventRecoveryCompleted = "wal.recovery.completed"
	EventRecoveryDamage    = "wal.recovery.damage"
)

type noObserver struct{}

func (noObserver) GroupSynced(int, uint64, time.Duration, error) {}
func (noObserver) Event(Event)                                   {}

func (j *Journal) event(name, text string, err error, attrs map[string]any) {
	j.cfg.Observer.Event(Event{Name: name, Text: text, Err: err, Attrs: attrs})
}

func (j *Journal) warn(text string, err error) { j.event("", text, err, nil) }
