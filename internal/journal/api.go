// SPDX-License-Identifier: Apache-2.0

// Package journal is the log on disk.
package journal // import "github.com/otelweir/weir/internal/journal"

import (
	"context"
	"sync"
	"time"

	"github.com/otelweir/weir/internal/fsys"
)

// STUB: signatures agreed between the packages. The owner of internal/journal replaces this file.

type Position = uint64

type Kind uint8

const (
	KindLogs     Kind = 1
	KindTraces   Kind = 2
	KindMetrics  Kind = 3
	KindProfiles Kind = 4
)

// String is "logs", "traces", "metrics", "profiles".
func (k Kind) String() string { panic("stub") }

type Lane struct {
	Tenant string
	Kind   Kind
}

type Entry struct{ Key, Value string }

// EncodeMetadata: entry 0 is the tenant.
func EncodeMetadata(tenant string, kept []Entry) ([]byte, error)       { panic("stub") }
func DecodeMetadata(b []byte) (tenant string, kept []Entry, err error) { panic("stub") }

type CorruptionPolicy uint8

const (
	CorruptionFail CorruptionPolicy = iota
	CorruptionQuarantine
)

type Config struct {
	Directory             string
	SegmentSize           uint64
	SegmentAge            time.Duration
	MaxFrameSize          uint64
	Limit                 uint64 // unreclaimed_bytes_limit, resolved (never 0)
	MaxSegments           int    // resolved (never 0)
	MaxTenants            int
	RotationRetryAttempts int
	GroupCap              uint64 // 0 = 4 MiB
	OnCorruption          CorruptionPolicy
	QuarantineMaxBytes    uint64
	Preallocate           bool
	ReserveCheckFail      bool
	DeadLetterMaxBytes    uint64           // for the disk formula only
	Observer              Observer         // nil = none
	Now                   func() time.Time // nil = time.Now
}

// Observer is told of what happens, outside the journal lock.
type Observer interface {
	GroupSynced(frames int, bytes uint64, sync time.Duration, err error)
	Event(e Event)
}

// Event is one transition: rotation.retrying/.recovered/.terminal, recovery.completed/.damage, a warning.
type Event struct {
	Name  string // event.name, e.g. wal.rotation.retrying; "" = a plain warning
	Text  string
	Attrs map[string]any
	Err   error
}

// Recovery is what Open found.
type Recovery struct {
	Frames, Items, Bytes                               uint64
	TruncatedBytes, QuarantinedBytes, QuarantinedItems uint64
	QuarantinedUnknown                                 bool // some quarantined range has an unknown item count
	Ambiguous                                          bool
	Duration                                           time.Duration
	Horizons                                           map[Lane]Position // as STATE holds them
	LaneItems                                          map[Lane]uint64   // items of surviving frames at or after the lane's horizon
}

func Open(fs fsys.FS, cfg Config) (*Journal, Recovery, error) { panic("stub") }

type Journal struct {
	sync.Mutex // the journal lock; memory and integers only
}

func (j *Journal) Close() error    { panic("stub") } // prepared segment and lock released; durable position committed
func (j *Journal) LogID() [16]byte { panic("stub") }

// --- admission side -------------------------------------------------------------------------------------------

type Frame struct {
	Kind     Kind
	Tenant   string
	Items    uint32
	Received int64    // unix ns
	Metadata []byte   // from EncodeMetadata
	Payload  [][]byte // never modified; referenced until the ticket is done
}

func (f *Frame) Sum()                        { panic("stub") } // checksums the payload; call before taking the journal lock
func (f *Frame) FramedLen() uint64           { panic("stub") }
func FramedLen(metadata, payload int) uint64 { panic("stub") }

// Rotation is the token of one evaluation of "rotation due" against the end of the queue.
type Rotation struct {
	Due       bool // this append would rotate
	Owed      bool // ... because a rotation is owed: needs no segment slot
	ByAge     bool
	AtCeiling bool // Due, not owed, and closed_retained + queued + 1 > max_segments
}

// Ledger figures, all O(1).
type Figures struct {
	Unreclaimed, Unflushed                  uint64
	ClosedRetained, QueuedRotations, Sealed int
	CurrentBytes                            uint64 // charged bytes of the current segment (incl. reserved and queued for it)
}

type RotationStateKind uint8

const (
	RotationHealthy RotationStateKind = iota
	RotationRetrying
	RotationVolumeFull
	RotationUnwritable
	RotationTerminal
)

type RotationState struct {
	Kind           RotationStateKind
	Failures       int
	Cause          error     // first
	NextAttempt    time.Time // monotonic
	AppendsBlocked bool      // volume full / unwritable entered by a write: every append is affected, not only rotating ones
}

func (j *Journal) Figures() Figures                     { panic("stub") } // L
func (j *Journal) RotationDue(framed uint64) Rotation   { panic("stub") } // L
func (j *Journal) RotationState() RotationState         { panic("stub") } // L
func (j *Journal) Enqueue(f *Frame, t Rotation) *Ticket { panic("stub") } // L; reserves bytes, queues, no position yet

// Tenant slots are derived from the ledger and the queue, so nothing has to be returned by hand: a tenant is seated while a segment holds a
// durable frame of it (held) or a frame of it is queued (reserved). Enqueue seats, an outcome without a frame and reclaiming unseat.
func (j *Journal) TenantSeated(tenant string) bool { panic("stub") } // L
func (j *Journal) Seats() (held, reserved int)     { panic("stub") } // L, O(1)

// Ticket is a queued frame. Done is closed when its outcome is known and its Payload no longer referenced.
type Ticket struct{}

func (t *Ticket) Done() <-chan struct{}      { panic("stub") }
func (t *Ticket) Outcome() (Position, error) { panic("stub") } // after Done; err is nil, *AppendError, or *RotationRefused

// AppendError: the group's write or sync failed; the frame is undecided.
type AppendError struct {
	Op  string // "append" or "sync"
	Err error
}

func (e *AppendError) Error() string { panic("stub") }

// RotationRefused: the frame was queued behind a rotation that failed; nothing of it was written. State says which refusal it is.
type RotationRefused struct{ State RotationState }

func (e *RotationRefused) Error() string { panic("stub") }

// The writer turn: one token. Taken before the journal lock.
func (j *Journal) TurnC() chan<- struct{} { panic("stub") } // send to take it
func (j *Journal) ReleaseTurn()           { panic("stub") }

// Advance (T) does one step of the queue's work: a queued or owed rotation that is due and then the next group (cut under the journal lock,
// one pwritev + one fdatasync, outcome published), or just the group. more says whether frames are still queued.
func (j *Journal) Advance() (more bool) { panic("stub") }

// --- maintenance side -----------------------------------------------------------------------------------------

// RotateIfAged (T): the discretionary rotation by age of the barrier; skipped at the ceiling.
func (j *Journal) RotateIfAged() error { panic("stub") }

// RotateForced (T): the forced rotation of housekeeping.
func (j *Journal) RotateForced() error { panic("stub") }

// Discharge (T): the pending directory fsync, a due rotation attempt, the volume probe; nil when nothing is pending.
func (j *Journal) Discharge() error { panic("stub") }

// Stamp: horizons = max(old, frontier) per lane and the durable position, in one STATE commit. barrier_seen is set from then on.
// Only the maintenance goroutine calls it. Lanes without a frontier keep their horizon.
func (j *Journal) Stamp(frontiers map[Lane]Position) error { panic("stub") }

func (j *Journal) BarrierSeen() bool { panic("stub") }

type Plan struct{}

func (j *Journal) Prepare(max int) *Plan                            { panic("stub") } // L; nil when nothing to do
func (p *Plan) Execute(ctx context.Context)                         { panic("stub") } // no lock
func (j *Journal) Commit(p *Plan) (planned, removed, remaining int) { panic("stub") } // L

// Reclaim facts (L): whether a segment is eligible that no pass has attempted; how many are eligible or being retried; floor.
type ReclaimState struct {
	Eligible, Retrying  int
	EligibleUnattempted bool
	CurrentHoldsAll     bool // the current segment holds all unreclaimed bytes
}

func (j *Journal) ReclaimState() ReclaimState { panic("stub") } // L

// LaneInfo is a lane of the ledger (L): first frame at or after the horizon, last frame, horizon, bytes from first to the end, segments between.
type LaneInfo struct {
	Lane
	First, Last, Horizon Position
	Oldest               int64 // received, unix ns, of the oldest segment holding it (approximate)
	Segments             int
}

func (j *Journal) Lanes() []LaneInfo { panic("stub") } // takes the lock itself

// --- delivery side --------------------------------------------------------------------------------------------

// Durable is the durable position (atomic); Grew is closed and replaced when it grows.
func (j *Journal) Durable() Position     { panic("stub") }
func (j *Journal) Grew() <-chan struct{} { panic("stub") }

// Reader reads verified frames in order from a position, below the durable position only.
type Reader struct{}

func (j *Journal) NewReader(from Position) *Reader { panic("stub") }

// ReadFrame is a frame as read. Payload and Metadata belong to the caller.
type ReadFrame struct {
	Position Position
	Len      uint64 // framed length: the next frame begins at Position+Len
	Kind     Kind   // never gap: gaps are passed over
	Tenant   string
	Metadata []byte
	Items    uint32
	Received int64
	Payload  []byte
}

// Next returns the next frame, or io.EOF at the durable position (call again after Grew), or *DamageError.
func (r *Reader) Next() (ReadFrame, error) { panic("stub") }
func (r *Reader) Position() Position       { panic("stub") } // of the next frame
func (r *Reader) Seek(p Position)          { panic("stub") }
func (r *Reader) Close() error             { panic("stub") }

// NextOf (takes the lock): the first position ≥ from at which a frame of lane may be; ok false when the log holds none.
func (j *Journal) NextOf(l Lane, from Position) (Position, bool) { panic("stub") }

type DamageError struct {
	File       string
	Offset     int64
	Start, End Position
	Err        error
}

func (e *DamageError) Error() string { panic("stub") }

// WriteDeadLetter stores one frame durably; a second letter for the same frame is success. ErrDeadLetterFull at the limit.
func (j *Journal) WriteDeadLetter(f ReadFrame, reason string, maxBytes uint64) error { panic("stub") }

// --- outside --------------------------------------------------------------------------------------------------

// Stats are atomics for metric callbacks; Segments is for the status page (takes the lock, copies).
type Stats struct {
	Unreclaimed, Unflushed, Disk        uint64
	ClosedRetained, Sealed, MaxSegments int
	OldestReceived                      int64 // unix ns; 0 = none
	Rotation                            RotationStateKind
	RotationFailures                    int
	Durable                             Position
	Prepared                            bool
}

func (j *Journal) Stats() Stats { panic("stub") }

type SegmentInfo struct {
	Name  string
	Base  Position
	Bytes uint64
	State string // current, closed, sealed, reclaiming
	Lanes []Lane // lanes with a frame at or after their horizon in it
}

func (j *Journal) Segments() []SegmentInfo { panic("stub") }
