// SPDX-License-Identifier: Apache-2.0

// Package statustest holds states of a log for tests of the status page: what
// a log could report in each, with figures that agree with one another.
package statustest // import "github.com/otelweir/weir/extension/walstorageextension/internal/statuspage/statustest"

import (
	"fmt"
	"time"

	"github.com/otelweir/weir/barrier"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// Healthy is a log with two signals, some backlog and nothing wrong.
func Healthy(now time.Time) barrier.Status {
	s := barrier.Status{
		Directory: "/var/lib/otelcol/wal", LogID: "7d2c5a0f91be4c4fa6d3b7e10c55aa31",
		Limit: gib, Unflushed: 81920, Oldest: now.Add(-42 * time.Second), Durable: 91_268_055_040,
		MaxSegments: 24, Prepared: true,
		Tenants:    barrier.TenantStatus{Held: 1, Limit: 1024},
		Rotation:   barrier.RotationStatus{State: "healthy"},
		Latch:      barrier.LatchStatus{},
		Floor:      barrier.FloorStatus{State: "min", Position: 90_950_000_000, LagBytes: 61 * mib, LagSegments: 1, Lanes: []string{"logs"}},
		RetryAfter: 7400 * time.Millisecond,
		Lanes: []barrier.LaneStatus{
			{Signal: "logs", Frontier: 91_204_091_904, Horizon: 91_190_000_000, LagBytes: 61 * mib, Oldest: now.Add(-42 * time.Second), Pending: 48_211, State: "delivering"},
			{Signal: "traces", Frontier: 91_268_055_040, Horizon: 91_268_000_000, State: "idle"},
		},
	}
	segments(&s, 3, []string{"logs"})
	s.Segments[0].State = "reclaiming"
	s.Segments[0].HeldBy = nil
	s.Segments[1].HeldBy = nil
	return s
}

// Refusing is a log at its byte limit because one back end is down.
func Refusing(now time.Time) barrier.Status {
	s := Healthy(now)
	s.Lanes[0] = barrier.LaneStatus{
		Signal: "logs", Frontier: 90_194_313_216, Horizon: 90_194_313_216, LagBytes: 1023 * mib, Oldest: now.Add(-38 * time.Minute), Pending: 1_204_882,
		State: "parked", Attempts: 214, NextTry: now.Add(6 * time.Second),
		LastError: "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial tcp 10.0.12.7:4317: connect: connection refused\"",
	}
	s.Oldest = now.Add(-38 * time.Minute)
	segments(&s, 7, []string{"logs"})
	s.Unreclaimed = gib - 3000
	s.Latch = barrier.LatchStatus{
		Refusing: true, Cause: "bytes", Since: now.Add(-4*time.Minute - 11*time.Second),
		LastRefusal: "wal backpressure: bytes: unreclaimed 1073738824 + frame 4096 = 1073742920 exceeds limit 1073741824 (unreclaimed_bytes_limit); retry in 41s",
	}
	s.Floor = barrier.FloorStatus{State: "min", Position: 90_194_313_216, LagBytes: 1023 * mib, LagSegments: 8, Lanes: []string{"logs"}}
	s.RetryAfter = 41 * time.Second
	return s
}

// Terminal is a log whose rotation failed for good.
func Terminal(now time.Time) barrier.Status {
	s := Healthy(now)
	segments(&s, 11, []string{"logs", "traces"})
	for i := 2; i < 11; i++ {
		s.Unreclaimed -= s.Segments[i].Bytes - 3*mib
		s.Segments[i].State, s.Segments[i].Bytes = "sealed", 3*mib
	}
	s.Prepared = false
	s.Rotation = barrier.RotationStatus{
		State: "terminal", Failures: 10,
		Cause: "install segment 0000001540000000-000002a4.wal: fsync directory /var/lib/otelcol/wal: input/output error",
	}
	s.RetryAfter = 0
	return s
}

// VolumeFull is a log on a full volume.
func VolumeFull(now time.Time) barrier.Status {
	s := Healthy(now)
	s.Prepared = false
	s.Rotation = barrier.RotationStatus{
		State: "volume_full", Failures: 3, NextTry: now.Add(8 * time.Second),
		Cause: "prepare next.wal.partial: fallocate 134217728 bytes: no space left on device",
	}
	return s
}

// Fresh is a log that has just been created.
func Fresh(time.Time) barrier.Status {
	return barrier.Status{
		Directory: "/var/lib/otelcol/wal", LogID: "00112233445566778899aabbccddeeff", Limit: gib, Disk: 256 * mib,
		MaxSegments: 24, Prepared: true, Tenants: barrier.TenantStatus{Limit: 1024},
		Segments: []barrier.SegmentStatus{{Name: "0000000000000000-00000000.wal", State: "current"}},
		Rotation: barrier.RotationStatus{State: "healthy"}, Floor: barrier.FloorStatus{State: "unknown"},
		RetryAfter: 50 * time.Second,
	}
}

// ManyTenants is a log with n tenants, of which every ninth waits.
func ManyTenants(now time.Time, n int) barrier.Status {
	s := Healthy(now)
	s.Lanes = nil
	var held []string
	for i := range n {
		name := fmt.Sprintf("team-%03d", i)
		l := barrier.LaneStatus{
			Tenant: name, Signal: []string{"logs", "traces", "metrics"}[i%3],
			Frontier: barrier.Position(91_000_000_000 + 1_000_003*i), Horizon: barrier.Position(90_990_000_000 + 1_000_003*i),
			LagBytes: uint64(i%7) * 37 * 1024, Pending: uint64(i % 7 * 113), State: "idle",
		}
		if l.LagBytes > 0 {
			l.State, l.Oldest = "delivering", now.Add(-time.Duration(i)*time.Second)
		}
		if i%9 == 4 {
			l.State, l.LagBytes, l.Pending = "parked", uint64(i)*mib/3, uint64(i)*977
			l.Attempts, l.NextTry = i, now.Add(time.Duration(i%10)*time.Second)
			l.Oldest = now.Add(-time.Duration(i) * time.Minute)
			l.LastError = fmt.Sprintf("HTTP 503 from https://%s.ingest.example.internal/v1/logs", name)
			held = append(held, name+" / "+l.Signal)
		}
		s.Lanes = append(s.Lanes, l)
	}
	s.Tenants = barrier.TenantStatus{Held: n, Reserved: 2, Limit: 1024}
	segments(&s, 7, held)
	s.Floor = barrier.FloorStatus{State: "pinned", Position: 90_100_000_000, LagBytes: 700 * mib, LagSegments: 6, Lanes: held}
	return s
}

// HostileName is a tenant name that tries to be markup. The tenant grammar
// (printable ASCII without space) allows it.
const HostileName = `"><script>document.title='owned'</script><img/src=x/onerror=document.title='owned'>`

// Hostile has names and errors that try to be markup, and one of the greatest
// length.
func Hostile(now time.Time) barrier.Status {
	s := Refusing(now)
	s.Lanes[0].Tenant = HostileName
	s.Lanes[0].LastError = "</td></tr></table><script>document.title='owned'</script>" + HostileName
	s.Lanes[1].Tenant = fmt.Sprintf("%0128d", 7)
	s.Latch.LastRefusal = "</dd><script>document.title='owned'</script>"
	s.Floor.Lanes = []string{HostileName + " / logs"}
	for i := range s.Segments {
		s.Segments[i].HeldBy = []string{HostileName + " / logs"}
	}
	return s
}

// segments gives s n closed segments held by lanes, a current one, and the
// figures that follow.
func segments(s *barrier.Status, n int, lanes []string) {
	s.Segments = nil
	base := uint64(90_194_313_216)
	s.Unreclaimed = 0
	for i := range n + 1 {
		g := barrier.SegmentStatus{
			Name: fmt.Sprintf("%016x-%08x.wal", base, 660+i), Base: barrier.Position(base),
			Bytes: 128*mib - 64, State: "closed", HeldBy: lanes,
		}
		if i == n {
			g.State, g.Bytes = "current", 37*mib
		}
		s.Segments = append(s.Segments, g)
		s.Unreclaimed += g.Bytes
		base += g.Bytes
	}
	s.Disk = s.Unreclaimed + 219*mib
}
