// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
)

// realisticLogs is a request of n records with 12 attributes and a body of 120
// bytes.
func realisticLogs(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 1))
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "checkout")
	sl := rl.ScopeLogs().AppendEmpty()
	for range n {
		lr := sl.LogRecords().AppendEmpty()
		body := make([]byte, 120)
		for i := range body {
			body[i] = 'a' + byte(rnd.IntN(26))
		}
		lr.Body().SetStr(string(body))
		lr.SetTimestamp(1)
		for a := range 12 {
			lr.Attributes().PutStr(fmt.Sprintf("attribute.%d", a), fmt.Sprintf("value %d", rnd.IntN(1_000_000)))
		}
	}
	b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		panic(err)
	}
	return b
}

// backlog fills a log with about size bytes of one lane, from many frames.
func backlog(b *testing.B, cfg journal.Config, size, records int) (frames int) {
	j, _, err := journal.Open(fsys.OS, cfg)
	require.NoError(b, err)
	payload := realisticLogs(records)
	frames = size / len(payload)
	for range frames {
		commit(b, j, logLane("t"), records, payload)
	}
	require.NoError(b, j.Close())
	return frames
}

// BenchmarkDrain compares delivery with the plainest loop that reads, decodes
// and consumes, frame by frame. The bound is 0.7 of its rate on a machine that
// does nothing else.
func BenchmarkDrain(b *testing.B) {
	for _, records := range []int{10, 100, 2000} {
		const size = 48 << 20
		cfg := journalConfig(b.TempDir())
		cfg.SegmentSize, cfg.MaxFrameSize = 16<<20, 4<<20
		frames := backlog(b, cfg, size, records)
		b.Run(fmt.Sprintf("records=%d/bare", records), func(b *testing.B) {
			b.SetBytes(size)
			defer cpu(b)()
			for b.Loop() {
				j, _, err := journal.Open(fsys.OS, cfg)
				require.NoError(b, err)
				r := j.NewReader(0)
				next := consumertest.NewNop()
				n := 0
				for {
					f, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					require.NoError(b, err)
					req := plogotlp.NewExportRequest()
					require.NoError(b, req.UnmarshalProto(f.Payload))
					require.NoError(b, next.ConsumeLogs(context.Background(), req.Logs()))
					n++
				}
				require.Equal(b, frames, n)
				require.NoError(b, r.Close())
				require.NoError(b, j.Close())
			}
		})
		for _, consumers := range []int{1, 10} {
			b.Run(fmt.Sprintf("records=%d/consumers=%d", records, consumers), func(b *testing.B) {
				b.SetBytes(size)
				defer cpu(b)()
				for b.Loop() {
					drain(b, cfg, consumers, frames*records)
				}
			})
		}
	}
}

// cpu reports the processor time of the iterations, which other processes on
// the machine do not change as they change the rate.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Milliseconds())/float64(b.N), "cpu-ms/op") }
}

func drain(b *testing.B, cfg journal.Config, consumers, items int) {
	j, recovery, err := journal.Open(fsys.OS, cfg)
	require.NoError(b, err)
	s := Settings{Journal: j, Recovery: recovery, Next: Consumers{Logs: consumertest.NewNop()}, Config: DefaultConfig()}
	s.Config.Consumers = consumers
	all := make(chan struct{})
	var settled atomic.Uint64
	total := j.Durable()
	s.OnSettled = func(n uint64) {
		if settled.Add(n) == total {
			close(all)
		}
	}
	d, err := New(s)
	require.NoError(b, err)
	d.Start()
	select {
	case <-all:
	case <-time.After(time.Minute):
		b.Fatalf("stuck: %+v", d.Lanes())
	}
	require.Equal(b, uint64(items), d.Stats().Signals[journal.KindLogs].Settled.Items)
	require.NoError(b, d.Shutdown(context.Background()))
	d.Close()
	require.NoError(b, j.Close())
}
