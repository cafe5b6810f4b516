// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/barrier"
)

// status is the node's log as its status page shows it.
func (n *node) statusOf() barrier.Status {
	n.t.Helper()
	resp, err := http.Get("http://" + n.status + "/api/v1/status")
	require.NoError(n.t, err)
	defer resp.Body.Close()
	var document struct{ Logs []barrier.Status }
	require.NoError(n.t, json.NewDecoder(resp.Body).Decode(&document))
	require.Len(n.t, document.Logs, 1)
	return document.Logs[0]
}

// TestD11_ASinkThatIsDownConcernsItsLaneAlone: traces have a backend of their
// own, which refuses and then hangs. Logs are delivered, settled and reclaimed
// meanwhile; only when the traces fill the log is everyone refused, and the
// floor names them.
func TestD11_ASinkThatIsDownConcernsItsLaneAlone(t *testing.T) {
	const mib = 1 << 20
	const limit, segment, items = 16 * mib, 1 * mib, 500
	good, bad := newSink(t), newSink(t)
	n := newNode(t, nodeSettings{Sink: good.Addr, Traces: bad.Addr, Wal: `
      segment_size: 1MiB
      max_frame_size: 512KiB
      unreclaimed_bytes_limit: 16MiB`})
	n.start()
	over, logs, traces := newGRPC(t, n.grpc), NewLedger(), NewLedger()
	for name, fail := range map[string]func(){
		"refuses": func() { bad.SetDown(true) },
		"hangs":   func() { bad.SetStall(time.Hour) },
	} {
		fail()
		mustAck(t, traces, over, traces.Batch(Traces, items))
		before := n.statusOf().Durable
		for n.statusOf().Durable-before < limit/2 {
			mustAck(t, logs, over, logs.Batch(Logs, items))
		}
		require.NoError(t, good.Wait(within(t), logs.AllAcked), "logs are delivered although the sink of traces %s", name)
		require.Eventually(t, func() bool { return n.statusOf().Unreclaimed <= 3*segment }, patience, 50*time.Millisecond,
			"only the segments with traces, and the current one, are held")
		arrived, _ := bad.Arrived()
		require.Zero(t, arrived)
	}
	_, repeated := good.Arrived()
	require.Zero(t, repeated)

	// The log fills with traces. What logs it holds is given back meanwhile,
	// even after a first refusal, so it takes a while until it is full of them.
	reason := func(l *Ledger, signal Signal) string {
		b := l.Batch(signal, items)
		a := over.Send(t.Context(), b)
		l.Record(b, a)
		return a.Reason
	}
	require.Eventually(t, func() bool {
		return reason(traces, Traces) == "wal_backpressure_bytes" && reason(logs, Logs) == "wal_backpressure_bytes"
	}, patience, time.Millisecond, "segments and limit are shared")
	require.Eventually(t, func() bool {
		f := n.statusOf().Floor
		return len(f.Lanes) == 1 && f.Lanes[0] == "traces"
	}, patience, 50*time.Millisecond, "the floor names who holds the log")

	bad.SetDown(false)
	bad.SetStall(0)
	n.current.Kill() // the call that hangs would keep its consumer for delivery.timeout
	n.start()
	allArrive(t, traces, bad)
	// A new life refuses nothing until somebody asks for room: what tells is
	// that the barrier has given the traces' segments back.
	require.Eventually(t, func() bool { return n.statusOf().Unreclaimed <= 3*segment }, patience, 50*time.Millisecond)
	mustAck(t, logs, over, logs.Batch(Logs, items))
	allArrive(t, logs, good)
}

// TestD17_KilledWhileDraining kills the node again and again while it drains a
// backlog into a slow sink. Every life gets further than the one before: what
// is delivered twice is what had settled since the last barrier.
func TestD17_KilledWhileDraining(t *testing.T) {
	const batches, items = 400, 100
	sink := newSink(t)
	sink.SetDown(true)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Wal: `
      segment_size: 1MiB
      max_frame_size: 512KiB`, Delivery: `
      consumers: 1
      group: { max_items: 100 }`})
	n.start()
	ledger, over := NewLedger(), newGRPC(t, n.grpc)
	for range batches {
		mustAck(t, ledger, over, ledger.Batch(Logs, items))
	}
	n.current.Kill()
	sink.SetStall(10 * time.Millisecond)
	sink.SetDown(false)

	lives, before := 0, 0
	for n.start(); ; n.start() {
		lives++
		begun, err := n.horizon()
		require.NoError(t, err)
		// A life lasts until a barrier has recorded some of its work, and a
		// little longer.
		require.Eventually(t, func() bool {
			h, err := n.horizon()
			items, _ := sink.Arrived()
			return err == nil && h > begun || items == batches*items
		}, patience, 20*time.Millisecond, "life %d gets further", lives)
		pause(t.Context(), 300*time.Millisecond)
		now, _ := sink.Arrived()
		require.GreaterOrEqual(t, now, before)
		if before = now; now == batches*items {
			break
		}
		n.current.Kill()
	}
	r := allArrive(t, ledger, sink)
	t.Logf("%d lives: %s", lives, r)
	require.Less(t, r.Duplicates, lives*batches*items/2)
}

// horizon is how far the lane of logs is recorded as settled.
func (n *node) horizon() (barrier.Position, error) {
	for _, l := range n.statusOf().Lanes {
		if l.Signal == "logs" {
			return l.Horizon, nil
		}
	}
	return n.statusOf().Durable, nil // the lane holds nothing any more
}
