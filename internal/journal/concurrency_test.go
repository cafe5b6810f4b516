// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// commit is what a coordinator does with an admitted frame: whoever gets the
// turn works the queue off until its own frame is done.
func (w *world) commit(t *Ticket) (Position, error) {
	for {
		select {
		case <-t.Done():
			return t.Outcome()
		case w.j.TurnC() <- struct{}{}:
			w.j.Advance()
			w.j.ReleaseTurn()
		}
	}
}

// TestReadersWritersAndPasses: many append, two read, one stamps and reclaims
// behind the slower reader, groups fail at times. Each reader sees every
// acknowledged frame exactly once and in order, and nothing else; so does the
// next life.
func TestReadersWritersAndPasses(t *testing.T) {
	for name, fault := range map[string]crashfs.Fault{
		"no fault":                {},
		"fdatasync fails":         {Op: crashfs.OpDatasync, Match: "*-*.wal", After: 40, Times: 5, Err: syscall.EIO},
		"writes fail":             {Op: crashfs.OpWrite, Match: "*-*.wal", After: 40, Times: 30, Err: syscall.EIO, Bytes: 3000},
		"directory fsyncs fail":   {Op: crashfs.OpSyncDir, After: 3, Times: 3, Err: syscall.EIO},
		"installing fails":        {Op: crashfs.OpRenameNoReplace, After: 3, Times: 3, Err: syscall.EIO},
		"unlinking fails":         {Op: crashfs.OpUnlink, Times: 3, Err: syscall.EIO},
		"summaries cannot be cut": {Op: crashfs.OpTruncate, Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			w := newWorld(31)
			w.cfg.Limit = 1 << 30
			w.cfg.MaxSegments = 10_000
			require.NoError(t, w.open())
			if fault.Op != 0 {
				w.faulty = true
				w.fs.Inject(fault)
			}
			const writers, each = 6, 120
			var mu sync.Mutex // of the oracle
			var appending, rest sync.WaitGroup
			for range writers {
				appending.Go(func() {
					for range each {
						mu.Lock()
						id, f := w.frame()
						mu.Unlock()
						ticket := w.admit(f)
						if ticket == nil {
							mu.Lock()
							w.decide(id, refused, 0)
							mu.Unlock()
							w.later(time.Second) // the next attempt comes due
							continue
						}
						p, err := w.commit(ticket)
						var refusal *RotationRefused
						mu.Lock()
						switch {
						case err == nil:
							w.decide(id, acked, p)
						case errors.As(err, &refusal):
							w.decide(id, refused, 0)
							w.later(time.Second)
						}
						mu.Unlock()
					}
				})
			}
			stop := make(chan struct{})
			var reached [2]atomic.Uint64
			var seen [2][]ReadFrame
			var problem [2]error
			for i := range reached {
				rest.Go(func() {
					r := w.j.NewReader(0)
					defer r.Close()
					for last := false; ; {
						grew := w.j.Grew()
						f, err := r.Next()
						switch {
						case err == nil:
							seen[i] = append(seen[i], f)
							reached[i].Store(f.Position + f.Len)
							continue
						case !errors.Is(err, io.EOF):
							problem[i] = fmt.Errorf("at %d: %w", r.Position(), err)
							reached[i].Store(^uint64(0))
							return
						}
						if last {
							return
						}
						select {
						case <-grew:
						case <-stop: // nothing is appended any more: once more to the end
							last = true
						}
					}
				})
			}
			var ended atomic.Bool
			rest.Go(func() {
				for !ended.Load() {
					behind := min(reached[0].Load(), reached[1].Load(), w.j.Durable())
					all := map[Lane]Position{}
					for _, l := range testLanes {
						all[l] = behind
					}
					_ = w.j.Stamp(all)
					w.j.Lock()
					plan := w.j.Prepare(4)
					w.j.Unlock()
					if plan != nil {
						plan.Execute(context.Background())
						w.j.Lock()
						w.j.Commit(plan)
						w.j.Unlock()
					}
					w.turn(func() { _ = w.j.Discharge() })
				}
			})
			appending.Wait()
			ended.Store(true)
			close(stop)
			rest.Wait()

			ackedFrames := 0
			for _, s := range w.o.sent {
				if s.fate == acked {
					ackedFrames++
				}
			}
			require.Greater(t, ackedFrames, writers*each/2, "hardly anything was acknowledged")
			for i := range seen {
				require.NoError(t, problem[i])
				var end Position
				for k := range seen[i] {
					f := &seen[i][k]
					id, err := w.known(f)
					require.NoError(t, err)
					require.Equal(t, acked, w.o.sent[id].fate, "frame %d was not acknowledged", id)
					require.GreaterOrEqual(t, f.Position, end)
					end = f.Position + f.Len
				}
				require.Len(t, seen[i], ackedFrames)
			}
			require.NoError(t, w.figures())
			w.o.reclaimed = map[Lane]Position{}
			for _, l := range testLanes {
				w.o.reclaimed[l] = w.j.Durable()
				w.o.tried[l] = w.j.Durable()
			}
			w.fs.ClearFaults()
			w.powerCut(t)
			w.close()
		})
	}
}
