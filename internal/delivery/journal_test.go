// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/otelweir/weir/barrier"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
	"github.com/otelweir/weir/internal/journal"
)

func journalConfig(dir string) journal.Config {
	return journal.Config{
		Directory: dir, SegmentSize: 1 << 20, SegmentAge: time.Hour, MaxFrameSize: 256 << 10, Limit: 1 << 30,
		MaxSegments: 4096, MaxTenants: 64, OnCorruption: journal.CorruptionQuarantine, QuarantineMaxBytes: 1 << 20, DeadLetterMaxBytes: 1 << 20,
	}
}

// commit appends one frame and returns its position once it is durable.
func commit(t testing.TB, j *journal.Journal, lane journal.Lane, items int, payload []byte) journal.Position {
	t.Helper()
	meta, err := journal.EncodeMetadata(lane.Tenant, nil)
	require.NoError(t, err)
	f := &journal.Frame{Kind: lane.Kind, Tenant: lane.Tenant, Items: uint32(items), Received: time.Now().UnixNano(), Metadata: meta, Payload: [][]byte{payload}}
	f.Sum()
	j.Lock()
	ticket := j.Enqueue(f, j.RotationDue(f.FramedLen()))
	j.Unlock()
	j.TurnC() <- struct{}{}
	for j.Advance() {
	}
	j.ReleaseTurn()
	<-ticket.Done()
	p, err := ticket.Outcome()
	require.NoError(t, err)
	return p
}

// housekeep reclaims what the frontiers allow.
func housekeep(t testing.TB, j *journal.Journal, d *Delivery) {
	t.Helper()
	require.NoError(t, j.Stamp(d.Frontiers()))
	for {
		j.Lock()
		p := j.Prepare(128)
		j.Unlock()
		if p == nil {
			return
		}
		p.Execute(context.Background())
		j.Lock()
		_, removed, _ := j.Commit(p)
		j.Unlock()
		if removed == 0 {
			return
		}
	}
}

// life is a journal and the delivery over it, from opening to closing.
type life struct {
	*Delivery
	j *journal.Journal
	p *sink
}

func live(t testing.TB, fs fsys.FS, cfg journal.Config, react func(*call) error, set func(*Settings)) *life {
	t.Helper()
	j, recovery, err := journal.Open(fs, cfg)
	require.NoError(t, err)
	l := &life{j: j, p: &sink{react: react}}
	s := Settings{Journal: j, Recovery: recovery, Next: l.p.consumers(), Config: DefaultConfig()}
	s.Config.Retry.InitialInterval, s.Config.Retry.MaxInterval = 10*time.Millisecond, 20*time.Millisecond
	if set != nil {
		set(&s)
	}
	l.Delivery, err = New(s)
	require.NoError(t, err)
	l.Start()
	return l
}

// end stops without a barrier, as kill -9 would, but for what is in memory.
func (l *life) end(t testing.TB) {
	t.Helper()
	require.NoError(t, l.Shutdown(context.Background()))
	l.Close()
	require.NoError(t, l.j.Close())
}

// settle waits until every lane of the log is settled up to its end.
func (l *life) settle(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, f := range l.Frontiers() {
			if f < l.j.Durable() {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond, "not settled: %+v", l.Lanes())
}

func ok(*call) error { return nil }

func TestA03_DeliversAfterACrash(t *testing.T) {
	fs := crashfs.New(0)
	cfg := journalConfig("/wal")
	never := func(c *call) error { <-c.ctx.Done(); return c.ctx.Err() }
	first := live(t, fs, cfg, never, nil)
	var want []string
	for i := range 50 {
		body := fmt.Sprintf("a%d", i)
		commit(t, first.j, logLane("t"), 1, logPayload(body))
		want = append(want, body)
	}
	crashed := fs.Crash(rand.New(rand.NewPCG(1, 1)))
	first.cancel(errShutdown)
	require.NoError(t, first.Shutdown(context.Background()))
	require.Error(t, first.j.Close(), "its power is cut")

	second := live(t, crashed, cfg, ok, nil)
	defer second.end(t)
	second.settle(t)
	assert.Subset(t, second.p.bodies(), want)
	assert.Len(t, second.p.bodies(), len(want), "each once: nothing had been settled, and nothing failed")
	assert.Equal(t, uint64(50), second.Stats().Signals[journal.KindLogs].Settled.Items)
}

func TestA04_GracefulStopKeepsTheBacklog(t *testing.T) {
	cfg := journalConfig(t.TempDir())
	first := live(t, fsys.OS, cfg, func(c *call) error {
		if c.tenant == "down" {
			return errUnavailable
		}
		return nil
	}, nil)
	var want []string
	for i := range 50 {
		body := fmt.Sprintf("a%d", i)
		commit(t, first.j, logLane("down"), 1, logPayload(body))
		commit(t, first.j, logLane("up"), 1, logPayload("b"))
		want = append(want, body)
	}
	require.Eventually(t, func() bool { return first.Frontiers()[logLane("up")] == first.j.Durable() }, time.Minute, time.Millisecond)
	require.NoError(t, first.Shutdown(context.Background()))
	require.NoError(t, first.j.Stamp(first.Frontiers())) // the last barrier
	first.Close()
	require.NoError(t, first.j.Close())

	second := live(t, fsys.OS, cfg, ok, nil)
	defer second.end(t)
	require.Equal(t, uint64(50), second.Stats().Signals[journal.KindLogs].PendingItems)
	second.settle(t)
	assert.ElementsMatch(t, want, second.p.bodies(), "the backlog, and nothing that was settled")
}

// TestB20_LaggingLane is the lanes' part of the scenario: a lane that lags keeps its segments and no others, and goes on when
// its destination is back.
func TestB20_LaggingLane(t *testing.T) {
	var mu sync.Mutex
	down := true
	l := live(t, fsys.OS, journalConfig(t.TempDir()), func(c *call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.tenant == "lags" && down {
			return errUnavailable
		}
		return nil
	}, nil)
	defer l.end(t)
	big := logPayload(string(bytes.Repeat([]byte("x"), 100<<10)))
	for i := range 60 { // 6 MiB in segments of 1
		if i == 35 {
			commit(t, l.j, logLane("lags"), 1, logPayload("a"))
		}
		commit(t, l.j, logLane("runs"), 1, big)
	}
	require.Eventually(t, func() bool { return l.Frontiers()[logLane("runs")] == l.j.Durable() }, time.Minute, time.Millisecond)
	before := len(l.j.Segments())
	require.Greater(t, before, 5)
	housekeep(t, l.j, l.Delivery)
	segments := l.j.Segments()
	require.Len(t, segments, 2, "the lagging lane's and the current one")
	assert.Equal(t, []journal.Lane{logLane("lags")}, segments[0].Lanes)
	status := l.Lanes()
	require.NotEmpty(t, status)
	i := slices.IndexFunc(status, func(s barrier.LaneStatus) bool { return s.Tenant == "lags" })
	assert.Equal(t, "parked", status[i].State)

	mu.Lock()
	down = false
	mu.Unlock()
	l.settle(t)
	housekeep(t, l.j, l.Delivery)
	assert.Len(t, l.j.Segments(), 1, "only the current segment remains")
}

// TestCatchesUpAcrossReclaimedSegments: the catch-up reader goes from a
// lagging lane's frame to its next over segments that are gone.
func TestCatchesUpAcrossReclaimedSegments(t *testing.T) {
	var mu sync.Mutex
	down := true
	l := live(t, fsys.OS, journalConfig(t.TempDir()), func(c *call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.tenant == "lags" && down {
			return errUnavailable
		}
		return nil
	}, nil)
	defer l.end(t)
	big := logPayload(string(bytes.Repeat([]byte("x"), 100<<10)))
	for i := range 60 {
		if i%25 == 5 {
			commit(t, l.j, logLane("lags"), 1, logPayload(fmt.Sprintf("lag%d", i)))
		}
		commit(t, l.j, logLane("runs"), 1, big)
	}
	require.Eventually(t, func() bool { return l.Frontiers()[logLane("runs")] == l.j.Durable() }, time.Minute, time.Millisecond)
	housekeep(t, l.j, l.Delivery)
	require.Len(t, l.j.Segments(), 3, "of 6: those the lagging lane has a frame in")
	mu.Lock()
	down = false
	mu.Unlock()
	l.settle(t)
	for _, want := range []string{"lag5", "lag30", "lag55"} {
		assert.Contains(t, l.p.bodies(), want)
	}
}

// TestLanesComeAndGo: tenants that appear, send a little and are settled, with
// barriers and housekeeping beside them. In the end no lane holds a segment and
// delivery remembers none.
func TestLanesComeAndGo(t *testing.T) {
	cfg := journalConfig(t.TempDir())
	cfg.MaxTenants = 4096
	l := live(t, fsys.OS, cfg, ok, nil)
	defer l.end(t)
	stop := make(chan struct{})
	var housekeeping sync.WaitGroup
	housekeeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				housekeep(t, l.j, l.Delivery)
			}
		}
	})
	payload := logPayload(string(bytes.Repeat([]byte("x"), 10<<10)))
	for i := range 500 {
		commit(t, l.j, logLane(fmt.Sprint("tenant", i%50+i/100*50)), 1, payload)
	}
	close(stop)
	housekeeping.Wait()
	l.settle(t)
	housekeep(t, l.j, l.Delivery)
	assert.Empty(t, l.j.Lanes(), "lanes that hold a segment")
	assert.Len(t, l.j.Segments(), 1)
	l.Frontiers()
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.lanes)
}

// TestD12_RedeliveryWritesNoSecondLetter: the letter is durable, the barrier
// that would say so is not.
func TestD12_RedeliveryWritesNoSecondLetter(t *testing.T) {
	cfg := journalConfig(t.TempDir())
	bad := consumererror.NewPermanent(fmt.Errorf("malformed"))
	first := live(t, fsys.OS, cfg, poison("bad", bad), nil)
	commit(t, first.j, logLane("t"), 1, logPayload("good"))
	p := commit(t, first.j, logLane("t"), 1, logPayload("bad"))
	first.settle(t)
	first.end(t)

	second := live(t, fsys.OS, cfg, poison("bad", bad), nil)
	second.settle(t)
	assert.Equal(t, uint64(1), second.Stats().Signals[journal.KindLogs].DeadLettered.Items, "again, for this run")
	second.end(t)
	letters, err := os.ReadDir(filepath.Join(cfg.Directory, "dead-letter"))
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Contains(t, letters[0].Name(), fmt.Sprintf("-%016x-logs.frame", p))
	b, err := os.ReadFile(filepath.Join(cfg.Directory, "dead-letter", letters[0].Name()))
	require.NoError(t, err)
	assert.True(t, bytes.Contains(b, logPayload("bad")), "the frame as received")
	assert.True(t, bytes.Contains(b, []byte("malformed")), "and why")
}

// TestRandomFailures is the Collector's consume contract at the level of the
// log: whatever a destination answers, every acknowledged frame arrives, and
// over restarts too.
func TestRandomFailures(t *testing.T) {
	cfg := journalConfig(t.TempDir())
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(7, 7))
	arrived := map[string]int{}
	flaky := func(c *call) error {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(3) == 0 {
			return errUnavailable
		}
		for _, b := range c.bodies {
			arrived[b]++
		}
		return nil
	}
	sent := 0
	for range 3 {
		l := live(t, fsys.OS, cfg, flaky, func(s *Settings) { s.Config.Group.MaxItems = 20 })
		for range 300 {
			commit(t, l.j, logLane(fmt.Sprint(sent%7)), 1, logPayload(fmt.Sprintf("f%d", sent)))
			sent++
			if sent%100 == 0 {
				housekeep(t, l.j, l.Delivery)
			}
		}
		if sent == 900 {
			l.settle(t)
			s := l.Stats().Signals[journal.KindLogs]
			assert.Zero(t, s.PendingItems)
		}
		l.end(t)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range sent {
		assert.NotZero(t, arrived[fmt.Sprintf("f%d", i)], "frame %d never arrived", i)
	}
}
