// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/internal/coordinator"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
)

// log is a journal and a coordinator with the receiver's defaults and no bound
// that a run could meet.
type log struct {
	*coordinator.Coordinator
	journal  *journal.Journal
	recovery journal.Recovery
	groups   groups
}

// groups counts what the journal says of its groups.
type groups struct{ n, frames, failed atomic.Int64 }

func (g *groups) GroupSynced(frames int, _ uint64, _ time.Duration, err error) {
	if err != nil {
		g.failed.Add(1)
		return
	}
	g.n.Add(1)
	g.frames.Add(int64(frames))
}

func (*groups) Event(journal.Event) {}

const (
	segmentSize  = 128 << 20 // the receiver's default
	maxFrameSize = 16 << 20  // the receiver's default
	plenty       = 1 << 40
)

func logConfig(dir string) journal.Config {
	return journal.Config{
		Directory: dir, SegmentSize: segmentSize, SegmentAge: 10 * time.Minute, MaxFrameSize: maxFrameSize,
		Limit: plenty, MaxSegments: 1 << 16, MaxTenants: 1024, Preallocate: true,
	}
}

func openLog(fs fsys.FS, cfg journal.Config) (*log, error) {
	l := &log{}
	cfg.Observer = &l.groups
	var err error
	if l.journal, l.recovery, err = journal.Open(fs, cfg); err != nil {
		return nil, err
	}
	l.Coordinator = coordinator.New(coordinator.Settings{
		Journal: l.journal, Limit: cfg.Limit, MaxSegments: cfg.MaxSegments, MaxTenants: cfg.MaxTenants,
		MaxFrameSize: cfg.MaxFrameSize, SegmentSize: cfg.SegmentSize,
	})
	return l, nil
}

func (l *log) close() error {
	l.Coordinator.Close()
	return l.journal.Close()
}

// put appends one frame of logs.
func (l *log) put(tenant string, metadata, payload []byte, items uint32) error {
	f := &journal.Frame{
		Kind: journal.KindLogs, Tenant: tenant, Items: items, Received: time.Now().UnixNano(),
		Metadata: metadata, Payload: [][]byte{payload},
	}
	_, err := l.Commit(context.Background(), f, func(bool) {})
	return err
}

// metadataOf is the metadata of a frame of a tenant with nothing else kept.
func metadataOf(tenant string) []byte {
	m, err := journal.EncodeMetadata(tenant, nil)
	if err != nil {
		panic(err) // a constant of this package
	}
	return m
}

var errFailedGroups = errors.New("some groups failed")
