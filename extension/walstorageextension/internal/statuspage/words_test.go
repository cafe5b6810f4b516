// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 10 << 10: "10 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB",
		441450304: "421 MiB", 1<<30 - 3000: "1.0 GiB", 1 << 30: "1.0 GiB", 1023 << 20: "1023 MiB", math.MaxUint64: "16 EiB",
	} {
		assert.Equal(t, want, size(n), "%d", n)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", 3 * time.Microsecond: "1 ms", 14 * time.Millisecond: "14 ms",
		1500 * time.Millisecond: "2 s", 59 * time.Second: "59 s", 60 * time.Second: "1 min", 251 * time.Second: "4 min 11 s",
		2*time.Hour + 5*time.Minute + 40*time.Second: "2 h 5 min", 76 * time.Hour: "3 d 4 h",
	} {
		assert.Equal(t, want, span(d), "%v", d)
	}
}

func TestRetryAfterIsTheHeadersValue(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1 s", time.Millisecond: "1 s", time.Second: "1 s", time.Second + 1: "2 s", 7400 * time.Millisecond: "8 s",
	} {
		assert.Equal(t, want, retryAfter(d), "%v", d)
	}
}

func TestUntil(t *testing.T) {
	now := time.Now()
	assert.Equal(t, "–", until(time.Time{}, now))
	assert.Equal(t, "due now", until(now.Add(-time.Hour), now))
	assert.Equal(t, "due now", until(now.Add(300*time.Millisecond), now))
	assert.Equal(t, "in 21 s", until(now.Add(21*time.Second), now))
}

func TestPercent(t *testing.T) {
	assert.Equal(t, "–", percent(1, 0))
	assert.Equal(t, "0 %", percent(0, 10))
	assert.Equal(t, "under 1 %", percent(1, 1000))
	assert.Equal(t, "141 %", percent(141, 100))
}

func TestUnbroken(t *testing.T) {
	assert.Equal(t, "421\u00a0MiB of 1.0\u00a0GiB in 4\u00a0min 11\u00a0s, 3 segments", unbroken("421 MiB of 1.0 GiB in 4 min 11 s, 3 segments"))
}
