// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"github.com/otelweir/weir/internal/journal"
)

// source is what delivery needs of a log. It is *journal.Journal; the seam
// lets a test make reads fail and hold them.
type source interface {
	LogID() [16]byte
	Durable() journal.Position
	Grew() <-chan struct{}
	Lanes() []journal.LaneInfo
	NextOf(l journal.Lane, from journal.Position) (journal.Position, bool)
	WriteDeadLetter(f journal.ReadFrame, reason string, maxBytes uint64) error
	reader(from journal.Position) reader
}

// reader is *journal.Reader. It may be used again after Close, from a Seek on.
type reader interface {
	Next() (journal.ReadFrame, error)
	Position() journal.Position
	Seek(p journal.Position)
	Close() error
}

type journalSource struct{ *journal.Journal }

func (s journalSource) reader(from journal.Position) reader { return s.NewReader(from) }
