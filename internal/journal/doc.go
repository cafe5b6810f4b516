// SPDX-License-Identifier: Apache-2.0

// Package journal is the log on disk: frames in segments, one record of what
// is settled, and what it takes to have neither lie after a crash. It knows
// nothing of what a frame holds, nor of who sends and who takes it.
//
// # Words
//
// A position is a u64: the number of frame bytes ever put into the log before
// this byte. Headers and summaries have none, so positions have no gaps across
// segments. A segment is one file; the newest is the current one, all others
// are closed, and a closed segment ends where the next one begins: what its
// file holds at or past that is no part of the log. It is sealed when bytes
// past its end could not be cut off; those stay charged to it. A group is the
// frames made durable by one fdatasync. Everything before the durable position
// is on stable storage. A lane is one (tenant, kind). A lane's frontier is the
// first position of it that is not settled or, when nothing of it is
// outstanding, the position up to which the log was read; its horizon is the
// frontier as STATE has it. A rotation is owed when the current segment has
// ended and no frame can be written before it.
//
// # Directory
//
//	LOCK                        flock; who holds it, in words
//	STATE                       the one durable record (state.go)
//	<base>-<ordinal>.wal        a segment; 16 and 8 hex digits, in the log's order
//	next.wal.partial            the prepared next segment; at most one, never swept
//	STATE.new                   debris of a STATE being built
//	dead-letter/                frames set aside by delivery (deadletter.go)
//	dead-letter/*.frame.partial debris of a letter being written
//	quarantine/                 copies of damaged and torn ranges (damage.go)
//
// Names of other shapes are left alone. Nothing is ever written through a
// mapping: a full volume must be an error, not a signal.
//
// # Segment
//
//	+--------+-------+-------+-----+-------+---------+
//	| header | frame | frame |  …  | frame | summary |
//	+--------+-------+-------+-----+-------+---------+
//	0        64                            closed segments only
//
//	frame:  +-----------+----------+---------+
//	        | 40 header | metadata | payload |
//	        +-----------+----------+---------+
//
// All integers are little-endian, all checksums CRC32C. The byte maps stand
// over their codecs: segment header in format.go, frame header in frame.go,
// metadata in metadata.go, summary in summary.go, STATE in state.go. A frame's
// checksum folds in the epoch, which follows from log id, base and ordinal, so
// that no frame of another file or another life ever verifies. Forty zero
// bytes where a header should be are the end if only zeros follow.
//
// # Writing
//
// Two things are taken in this order. The writer turn, one token, covers all
// writing to segments, rotation and discharge. The journal lock covers memory:
// integers, no I/O, no formatting. Whoever waits for a frame either sees it
// done or takes the turn and works for everybody:
//
//	Enqueue   lock   bytes are reserved, the frame is queued; it has no position
//	Advance   turn   1. what must come first: discharge, rotation, successor
//	                 2. cut: positions, group offsets and checksums are fixed
//	                 3. pwritev, sync_file_range per MiB, one fdatasync
//	                 4. the outcome: ledger, durable position, tickets
//
// A group is cut only after the one before it is decided. That makes a group
// offset a proof: a valid frame at p with group offset g shows that every byte
// before p − g was durable, and may have been acknowledged.
//
// A failed write is cut off again, and its positions are used again; nobody
// can have read them. When it cannot be cut off, or the fdatasync failed, the
// segment has ended: the bytes stay charged to it, its descriptor is never
// synced again (a later success would prove nothing), and a rotation with base
// = durable position is owed. More than eight sealed segments are Terminal.
//
// # Rotation
//
// The next segment is prepared beside the groups: allocated, its first block
// written and synced. On a volume with little room no group is written without
// it, so that a rotation on a full volume allocates nothing. The rotation:
//
//	header → fdatasync → RENAME_NOREPLACE → directory fsync → first group
//
// and, off the turn, the old segment's summary, its truncation and fdatasync,
// on which nothing depends. A failure before the rename leaves debris; a
// failed directory fsync leaves an obligation: no group goes to the segment
// until its entry was made anew and synced. The states are in rotation.go.
//
// # STATE
//
// Two slots, rewritten in place: a commit goes over the slot that does not
// hold the last commit known durable, so it needs no block and whichever of
// the two a crash leaves is legal. It records the horizons, the durable
// position, and what is reclaimed or planned to be. Its one writer is the
// log's maintenance goroutine (Stamp, Plan.Execute), and Open and Close.
//
// # Reclaiming
//
// A closed segment is eligible when each lane's last frame in it lies before
// that lane's horizon. The plan is durable before the first unlink: a planned
// segment that is missing was reclaimed, one that is there still is to be.
// Segments count as unreclaimed until their unlinks are durable.
//
// # Recovery
//
// Open trusts closed segments that have a verifying summary, scans those that
// have none, and always scans the newest, streaming. proved is the greatest of
// STATE's durable position, the newest base, and p − g over its valid frames.
// What does not verify before proved is damage: acknowledged data was there.
// It stops Open (CorruptionFail), or is copied to quarantine/ and overwritten
// with a gap frame that keeps the positions (CorruptionQuarantine). What does
// not verify behind proved was torn by the crash: a tail is cut off, a hole in
// the middle becomes a gap and the frames behind it stay. Everything behind
// proved is then written again and synced, before a frame is appended to it:
// a page cache that survived a kill or a failed fsync proves nothing. Anything
// that does not fit together — a missing STATE, segment or range, another
// log's file — is refused, never taken for a fresh log.
package journal // import "github.com/otelweir/weir/internal/journal"
