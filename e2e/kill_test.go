// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kills is how often the loop kills: WEIR_E2E_KILLS, else a short form for CI.
func kills(t *testing.T) int {
	t.Helper()
	s := os.Getenv("WEIR_E2E_KILLS")
	if s == "" {
		return 3
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, "WEIR_E2E_KILLS")
	require.Positive(t, n, "WEIR_E2E_KILLS")
	return n
}

// TestG01_KillLoop kills the node at random moments under load, with small
// limits and a sink that is down now and then, so that the kills meet
// rotation, refusal, recovery and reclaiming. Nothing acknowledged may be
// missing at the end, nothing refused may have arrived.
func TestG01_KillLoop(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)

	sink := newSink(t)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Wal: `
      segment_size: 1MiB
      max_frame_size: 512KiB
      unreclaimed_bytes_limit: 6MiB`})
	n.start()
	addrs := stock(t, n, false, []route{
		{name: "grpc", exporter: "compression: gzip"},
		{name: "http", exporter: "compression: zstd"},
	})

	ledger := NewLedger()
	senders := load(t, ledger)
	for i := range 6 {
		senders.add(newGRPC(t, n.grpc), i%3 != 0)
		senders.add(newHTTP(t, n.http, i%2 == 0, i%3 == 0), i%3 != 1)
	}
	for range 2 {
		senders.add(newGRPC(t, addrs["grpc"]), true)
		senders.add(newGRPC(t, addrs["http"]), true)
	}
	const generated = 400
	generator := generate(t, addrs["grpc"], generated)
	stopFlapping := flap(t, sink)

	for k := range kills(t) {
		alive := time.Duration(300+random.IntN(2500)) * time.Millisecond
		select {
		case <-time.After(alive): // the moment of a crash is what the test draws
		case <-n.current.Exited():
			t.Fatalf("the node ended by itself before kill %d:\n%s", k+1, n.current.Tail())
		}
		n.current.Kill()
		n.start()
	}
	senders.end()
	require.NoError(t, generator(), "telemetrygen")
	stopFlapping()

	r := allArrive(t, ledger, sink)
	require.NoError(t, sink.Wait(within(t), func(map[ID]int) bool { return sink.services["telemetrygen"] >= generated }),
		"telemetrygen was told that %d records are safe, %d arrived", generated, sink.Service("telemetrygen"))
	require.NoError(t, n.current.Stop(patience))
	require.Positive(t, r.Acked)
	t.Logf("%d kills: %s", kills(t), r)
}

// TestG04_Reload makes the node read its configuration again under load: it
// opens the same directory in the same process, and nothing is lost.
func TestG04_Reload(t *testing.T) {
	sink := newSink(t)
	n := newNode(t, nodeSettings{Sink: sink.Addr, Wal: `
      segment_size: 1MiB
      max_frame_size: 512KiB
      unreclaimed_bytes_limit: 6MiB`})
	n.start()
	ledger := NewLedger()
	senders := load(t, ledger)
	for i := range 4 {
		senders.add(newGRPC(t, n.grpc), true)
		senders.add(newHTTP(t, n.http, i%2 == 0, i%3 == 0), true)
	}
	for range 3 {
		before := ledger.Acked()
		require.Eventually(t, func() bool { return ledger.Acked() > before+2000 }, patience, 10*time.Millisecond, "it takes data")
		require.NoError(t, n.current.Reload())
		require.NoError(t, n.current.WaitReady(within(t)))
	}
	senders.end()
	r := allArrive(t, ledger, sink)
	require.NoError(t, n.current.Stop(patience))
	t.Logf("3 reloads: %s", r)
}

// senders put a node under load until they are ended.
type senders struct {
	t      *testing.T
	ledger *Ledger
	stop   chan struct{}
	all    sync.WaitGroup
	over   []Sender
}

func load(t *testing.T, l *Ledger) *senders {
	t.Helper()
	s := &senders{t: t, ledger: l, stop: make(chan struct{})}
	t.Cleanup(s.all.Wait) // they end with the test's context, too
	return s
}

// add begins a sender. A patient one sends a batch until it is acknowledged,
// as stock exporters do; an impatient one tries once.
func (s *senders) add(over Sender, patient bool) {
	s.over = append(s.over, over)
	s.all.Go(func() {
		for i := 0; s.t.Context().Err() == nil; i++ {
			select {
			case <-s.stop:
				return
			default:
				sendOne(s.t.Context(), s.ledger, over, s.ledger.Batch(Signal(i%3), 1+i%50), patient)
			}
		}
	})
}

// end lets every sender finish its batch, and closes its connection.
func (s *senders) end() {
	s.t.Helper()
	close(s.stop)
	s.all.Wait()
	for _, over := range s.over {
		require.NoError(s.t, over.Close())
	}
}

// attempt bounds one try of a sender: above what a commit takes by far, below
// what a test has.
const attempt = 10 * time.Second

// sendOne sends a batch once, or until it is acknowledged.
func sendOne(ctx context.Context, l *Ledger, s Sender, b Batch, patient bool) {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, attempt)
		a := s.Send(once, b)
		cancel()
		l.Record(b, a)
		if a.Outcome == Acked || a.Permanent || !patient {
			if a.Outcome != Acked {
				pause(ctx, 20*time.Millisecond) // an impatient sender does not spin on a dead node
			}
			return
		}
		// The advised wait, shortened: a test must keep up the load.
		pause(ctx, min(max(a.Wait, 50*time.Millisecond), 300*time.Millisecond))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// flap takes the sink down and up until it is stopped, or the test ends, and
// leaves it up.
func flap(t *testing.T, sink *Sink) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			sink.SetDown(true)
			pause(ctx, 700*time.Millisecond)
			sink.SetDown(false)
			pause(ctx, 1200*time.Millisecond)
		}
	})
	stop = func() {
		cancel()
		done.Wait()
		sink.SetDown(false)
	}
	t.Cleanup(stop)
	return stop
}

// generate runs telemetrygen, a client written by others, as its own process.
// Its exit code 0 says that every record was acknowledged.
func generate(t *testing.T, addr string, records int) (wait func() error) {
	t.Helper()
	bin := tool(t, "WEIR_TELEMETRYGEN", "../.tools/telemetrygen", "make .tools/telemetrygen")
	out := logFile(t, "telemetrygen")
	cmd := exec.Command(bin, "logs", "--otlp-insecure", "--otlp-endpoint", addr, "--timeout", patience.String(),
		"--logs", strconv.Itoa(records), "--rate", "100", "--batch-size", "10")
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(2 * patience):
			return fmt.Errorf("still running; log: %s", out.Name())
		}
	}
}
