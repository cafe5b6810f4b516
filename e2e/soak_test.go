// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soakTime is how long the load lasts: WEIR_E2E_SOAK, else a short form for CI.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("WEIR_E2E_SOAK")
	if s == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, "WEIR_E2E_SOAK")
	return d
}

// footprint is what a process occupies.
type footprint struct {
	unreclaimed, disk, rss uint64 // bytes
	files, goroutines      int
}

func (f footprint) String() string {
	return fmt.Sprintf("unreclaimed %d KiB, disk %d KiB, RSS %d MiB, %d files, %d goroutines",
		f.unreclaimed>>10, f.disk>>10, f.rss>>20, f.files, f.goroutines)
}

// TestG03_Soak loads the node while its sink comes and goes. At every moment
// the log is within its limit and its directory within the disk formula; when
// the load has ended everything has arrived, an idle log is empty, and files
// and goroutines are what they were before.
func TestG03_Soak(t *testing.T) {
	const mib = 1 << 20
	const (
		limit   = 8 * mib
		segment = 1 * mib
		group   = 4 * mib // the cap of a commit group
		state   = 1 * mib // STATE, headers and summaries: far less
		// What the README states for these settings: both budgets, and
		// max_requests × 2 × the transport limit of 2 MiB.
		memory = 16*mib + 16*mib + 16*2*2*mib
	)
	sink := newSink(t)
	ports, err := FreePorts(1)
	require.NoError(t, err)
	pprof := Loopback(ports[0])
	n := newNode(t, nodeSettings{Sink: sink.Addr, Pprof: pprof, Wal: `
      segment_size: 1MiB
      segment_age: 2s
      max_frame_size: 512KiB
      unreclaimed_bytes_limit: 8MiB`, Delivery: `
      max_in_flight_bytes: 16MiB`, Extra: `
    admission:
      max_in_flight_bytes: 16MiB
      max_requests: 16`})
	n.start()
	ledger := NewLedger()
	mustAck(t, ledger, newGRPC(t, n.grpc), ledger.Batch(Logs, 1))
	allArrive(t, ledger, sink)
	before := n.footprint(pprof)

	senders := load(t, ledger)
	for i := range 6 {
		senders.add(newGRPC(t, n.grpc), true)
		senders.add(newHTTP(t, n.http, i%2 == 0, i%3 == 0), true)
	}
	stopFlapping := flap(t, sink)
	peak := before
	for end := time.Now().Add(soakTime(t)); time.Now().Before(end); {
		now := n.footprint(pprof)
		require.LessOrEqual(t, now.unreclaimed, uint64(limit), "unreclaimed_bytes_limit: %s", now)
		require.LessOrEqual(t, now.disk, uint64(limit+2*segment+8*group+state), "the disk formula: %s", now)
		require.LessOrEqual(t, now.rss, before.rss+2*memory, "a heap of twice the stated worst case, which GOGC allows: %s", now)
		peak = footprint{
			max(peak.unreclaimed, now.unreclaimed), max(peak.disk, now.disk), max(peak.rss, now.rss),
			max(peak.files, now.files), max(peak.goroutines, now.goroutines),
		}
		pause(t.Context(), 200*time.Millisecond)
	}
	senders.end()
	stopFlapping()
	r := allArrive(t, ledger, sink)

	after := n.footprint(pprof)
	for end := time.Now().Add(patience); after.unreclaimed > 0 || after.files > before.files+4 || after.goroutines > before.goroutines+8; after = n.footprint(pprof) {
		require.True(t, time.Now().Before(end), "an idle node returns what it took\nbefore %s\nafter  %s", before, after)
		pause(t.Context(), 200*time.Millisecond)
	}
	require.NoError(t, n.current.Stop(patience))
	t.Logf("%s: %s", soakTime(t), r)
	t.Logf("before %s", before)
	t.Logf("peak   %s", peak)
	t.Logf("after  %s", after)
}

// footprint measures the node now. Idle connections of this process count at
// the node too, so it closes them first.
func (n *node) footprint(pprof string) footprint {
	n.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	m, err := Scrape(ctx, n.metrics)
	require.NoError(n.t, err)
	f := footprint{unreclaimed: uint64(m.Sum("otelcol_wal_unreclaimed_size")), disk: diskUsage(n.t, n.directory)}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pprof+"/debug/pprof/goroutine?debug=1", http.NoBody)
	require.NoError(n.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(n.t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(n.t, err)
	_, err = fmt.Sscanf(line, "goroutine profile: total %d", &f.goroutines)
	require.NoError(n.t, err, line)

	proc := fmt.Sprintf("/proc/%d/", n.current.Pid())
	fds, err := os.ReadDir(proc + "fd")
	require.NoError(n.t, err)
	f.files = len(fds)
	status, err := os.ReadFile(proc + "status")
	require.NoError(n.t, err)
	_, rss, ok := strings.Cut(string(status), "VmRSS:")
	require.True(n.t, ok)
	_, err = fmt.Sscanf(rss, "%d kB", &f.rss)
	require.NoError(n.t, err)
	f.rss <<= 10
	return f
}

// diskUsage is what du says of a directory that changes meanwhile.
func diskUsage(t *testing.T, dir string) uint64 {
	t.Helper()
	var blocks int64
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		if os.IsNotExist(err) {
			return nil // unlinked meanwhile
		}
		blocks += st.Blocks
		return err
	})
	require.NoError(t, err)
	return uint64(blocks) * 512
}
