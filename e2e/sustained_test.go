// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pushers send batches of logs over a few connections as fast as they are
// allowed to.
type pushers struct {
	t       *testing.T
	ledger  *Ledger
	senders []Sender
	items   int // of a batch

	acked, refused atomic.Uint64 // batches
}

// push sends n batches, one each interval (0 = as fast as they are taken). A
// refused batch is not sent again.
func (p *pushers) push(n int, every time.Duration) {
	p.t.Helper()
	due := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range p.senders {
		wg.Go(func() {
			for range due {
				b := p.ledger.Batch(Logs, p.items)
				a := s.Send(p.t.Context(), b)
				p.ledger.Record(b, a)
				switch a.Outcome {
				case Acked:
					p.acked.Add(1)
				case Refused:
					p.refused.Add(1)
				default:
					assert.NoError(p.t, a.Err)
				}
			}
		})
	}
	begun := time.Now()
	for i := range n {
		pause(p.t.Context(), time.Until(begun.Add(time.Duration(i)*every)))
		due <- struct{}{}
	}
	close(due)
	wg.Wait()
}

// TestA06_SustainedLoad pushes ten times the limit through a node at 0.8 × the
// rate it delivers at, with the default maintenance intervals, under which
// nothing but early passes can keep up: nothing is refused. With the sink
// stopped the log fills to its limit and not beyond; with it back, timers
// alone bring it to accept again. WEIR_E2E_A06=default takes the default
// segment size and limit, 1 GiB, instead of small ones.
func TestA06_SustainedLoad(t *testing.T) {
	const mib = 1 << 20
	limit, settings := uint64(32*mib), nodeSettings{DefaultTimers: true, Wal: `
      segment_size: 4MiB
      max_frame_size: 1MiB
      unreclaimed_bytes_limit: 32MiB`}
	if os.Getenv("WEIR_E2E_A06") == "default" {
		limit, settings = 1<<30, nodeSettings{DefaultTimers: true}
	}
	sink := newSink(t)
	settings.Sink = sink.Addr
	n := newNode(t, settings)
	n.start()
	p := &pushers{t: t, ledger: NewLedger(), items: 2000}
	for range 4 {
		p.senders = append(p.senders, newGRPC(t, n.grpc))
	}
	figure := func(name string, labels ...string) uint64 {
		m, err := Scrape(within(t), n.metrics)
		require.NoError(t, err)
		return uint64(m.Sum(name, labels...))
	}

	// The size of a frame, and the rate of delivery: both from half a limit
	// pushed as fast as it goes.
	p.push(1, 0)
	frame := figure("otelcol_wal_accepted_size")
	rate := func() (bytesPerSecond float64) {
		begun, before := time.Now(), figure("otelcol_wal_settled_size")
		p.push(int(limit/2/frame), 0)
		require.NoError(t, sink.Wait(within(t), p.ledger.AllAcked))
		require.Eventually(t, func() bool { return figure("otelcol_wal_pending_items") == 0 }, patience, 5*time.Millisecond)
		return float64(figure("otelcol_wal_settled_size")-before) / time.Since(begun).Seconds()
	}
	rate() // warm
	r := rate()
	require.Zero(t, p.refused.Load())

	every := time.Duration(float64(frame) / (0.8 * r) * float64(time.Second))
	begun := time.Now()
	p.push(int(10*limit/frame)+1, every)
	took := time.Since(begun)
	require.NoError(t, sink.Wait(within(t), p.ledger.AllAcked))
	t.Logf("delivered %.1f MiB/s; pushed %d MiB in %s, %d refused", r/mib, 10*limit/mib, took.Round(time.Millisecond), p.refused.Load())
	if after := rate(); p.refused.Load() > 0 && after < 0.8*r {
		t.Logf("too noisy to tell: delivery fell from %.1f to %.1f MiB/s while the load ran", r/mib, after/mib)
	} else {
		require.Zero(t, p.refused.Load())
	}
	require.LessOrEqual(t, figure("otelcol_wal_unreclaimed_size"), limit)
	require.LessOrEqual(t, figure("otelcol_wal_segments_usage", `state="retained"`), figure("otelcol_wal_segments_limit"))

	sink.SetDown(true)
	p.refused.Store(0)
	p.push(int(limit/frame)+8, 0)
	require.NotZero(t, p.refused.Load(), "the limit holds")
	require.LessOrEqual(t, figure("otelcol_wal_unreclaimed_size"), limit)
	require.Eventually(t, func() bool {
		p.push(1, 0) // with no other on its way: an acknowledgement after the last refusal would end the refusing
		return figure("otelcol_wal_backpressure_refusing", `cause="bytes"`) == 1
	}, patience, 50*time.Millisecond)
	sink.SetDown(false)
	require.Eventually(t, func() bool { return figure("otelcol_wal_backpressure_refusing") == 0 }, patience, 50*time.Millisecond,
		"no append, no restart: timers alone end the refusing")
	p.refused.Store(0)
	p.push(1, 0)
	require.Zero(t, p.refused.Load())
	allArrive(t, p.ledger, sink)
}
