// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Far more is sent than the process may hold; what it held at most stays
// within the worst case that the README states, which the Go runtime is told
// to keep to: it could not if that much were alive. By hand, with more of
// everything: make bench-memory.
func TestE08_MemoryUnderOverload(t *testing.T) {
	binary := os.Getenv("WEIR_BIN")
	if binary == "" {
		binary = "../../bin/otelcol-weir"
	}
	binary, err := filepath.Abs(binary)
	require.NoError(t, err)
	require.FileExists(t, binary, "make build")

	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			s := settings{Binary: binary, Dir: t.TempDir(), GoMemLimit: stated, Budget: 64 << 20, MaxRequests: 16, Connections: 64}
			var o outcome
			// On a busy machine it takes longer until there is any overload.
			for _, s.Span = range []time.Duration{2 * time.Second, 8 * time.Second, 32 * time.Second} {
				o, err = overload(t.Context(), s, sh)
				require.NoError(t, err)
				if o.acked > 0 && o.refused > 0 {
					break
				}
			}
			t.Logf("acked %d, refused %d %v, idle %s, peak %s, stated worst above idle %s",
				o.acked, o.refused, o.reasons, humanize.IBytes(o.idle), humanize.IBytes(o.peak), humanize.IBytes(s.stated()))
			assert.Positive(t, o.acked)
			assert.Positive(t, o.refused)
			assert.LessOrEqual(t, o.peak, o.idle+s.stated())
			for reason := range o.reasons {
				assert.Contains(t, []string{"in_flight_bytes", "in_flight_requests", "body_timeout", "DeadlineExceeded"}, reason)
			}
		})
	}
}
