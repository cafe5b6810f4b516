// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

type eventRecorder struct {
	noObserver
	events []Event
}

func (o *eventRecorder) Event(e Event) { o.events = append(o.events, e) }

// A log on a slow disk says while it opens how far it is, how fast, and how
// long it will take.
func TestF05_LongRecoveryTellsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(0)
		o := &eventRecorder{}
		cfg := Config{
			Directory: "/wal", SegmentSize: 64 << 20, MaxFrameSize: 1 << 20, Limit: 1 << 30, MaxSegments: 16, MaxTenants: 4,
			SegmentAge: time.Hour, Observer: o,
		}
		j, _, err := Open(fs, cfg)
		require.NoError(t, err)
		meta, err := EncodeMetadata("", nil)
		require.NoError(t, err)
		payload := make([]byte, 64<<10)
		for range 200 { // 12.5 MiB, 13 reads of 1 MiB
			f := &Frame{Kind: KindLogs, Items: 1, Received: 1, Metadata: meta, Payload: [][]byte{payload}}
			f.Sum()
			j.TurnC() <- struct{}{}
			j.Lock()
			ticket := j.Enqueue(f, j.RotationDue(f.FramedLen()))
			j.Unlock()
			j.Advance()
			j.ReleaseTurn()
			_, err := ticket.Outcome()
			require.NoError(t, err)
		}
		require.NoError(t, j.Close())

		o.events = nil
		fs.SetHook(func(c crashfs.Call) {
			if c.Op == crashfs.OpRead {
				time.Sleep(2 * time.Second)
			}
		})
		j, _, err = Open(fs, cfg)
		require.NoError(t, err)
		fs.SetHook(nil)
		var said []Event
		for _, e := range o.events {
			if e.Text == "Recovering the log" {
				said = append(said, e)
			}
		}
		require.GreaterOrEqual(t, len(said), 2)
		last := said[len(said)-1].Attrs
		assert.Greater(t, last["bytes"], said[0].Attrs["bytes"])
		assert.Less(t, last["bytes"], last["of"])
		assert.Less(t, last["eta"], said[0].Attrs["eta"])
		assert.Positive(t, last["bytes_per_second"])
		require.NoError(t, j.Close())
	})
}
