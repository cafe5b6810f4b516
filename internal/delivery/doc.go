// SPDX-License-Identifier: Apache-2.0

// Package delivery brings what is in a log to the pipelines, and knows what of
// it is settled.
//
// A lane is one (tenant, signal). Each settles, parks and catches up by itself;
// what it shares with the others is consumers, budget and readers, and of those
// no lane gets so much that another could get none.
//
//	             ┌────────────┐ next frame of a lane   ┌───────────┐ line ┌──────────┐
//	log ────────▶│ main reader├───────────────────────▶│ group     ├─────▶│ consumer │── Consume
//	 │           └────────────┘ that keeps up          │ gathering │      └────┬─────┘
//	 │           ┌────────────┐                        └───────────┘           │ nil
//	 └──────────▶│  catch-up  ├──────────────────────────▲                     ▼
//	             └────────────┘ that is behind           ┌──────┐ error  settled, or held
//	                                         due again ──┤ owed │◀─────  by handles
//	                                                     └──────┘
//
// # Who waits for whom
//
// The main reader waits for new frames only. A lane that has no place for its
// next frame falls behind, and the main reader passes its frames from then on.
// One catch-up reader serves all lanes behind, in laps; it waits while none of
// them can take a frame. Consumers are goroutines that live as long as one
// Consume call; there are at most Config.Consumers. There is no goroutine and no
// file per lane, and a timer only while something of it waits to be due.
//
// # What is in memory
//
// Of an unsettled group its lane remembers where its frames are: 20 bytes each
// and 320 for the group and its handles. For all lanes together that is at most
// 64 MiB, besides one group of each lane (up to about 10 KiB): a lane that would
// need more waits, and its status says so. The frames themselves are read when
// the group is delivered, into the budget, and are read again for every attempt.
// As an exception, up to 4 × Group.MaxBytes of frames, or one frame larger than
// that, wait for their consumer in memory, because there usually is one free. Beyond the budget (MaxInFlightBytes, or
// one frame larger than that) this is all: the frame each of the two readers
// has in hand, those frames, what is remembered, and per lane about 400 bytes
// and the metadata of the group it gathers.
//
// # What is promised
//
// A frame is settled when Consume returned nil and every handle taken on it was
// released as durable, or when it is durably a dead letter, or was dropped by
// policy. The frontier of a lane never passes a frame that is not settled. Until
// then it is delivered again, after whatever happened, without end. Nothing here
// is written to disk but dead letters: what was settled is made durable by a
// barrier that asks for [Delivery.Frontiers].
//
// # Locks
//
// Delivery.mu guards every lane, group and handle. Under it nothing blocks and
// nothing is read, decoded, logged or called back, and the journal lock is not
// taken. What a running group's consumer may do without it is said at group.
// Stats reads atomics.
package delivery // import "github.com/otelweir/weir/internal/delivery"
