// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestE01_TryAcquireRefusesByTheRuleOfTheContract(t *testing.T) {
	for _, tt := range []struct {
		name           string
		limit, held, n uint64
		want           bool
	}{
		{"fits", 100, 40, 50, true},
		{"fits exactly", 100, 40, 60, true},
		{"one over", 100, 40, 61, false},
		{"lone request larger than the budget", 100, 0, 1000, true},
		{"larger than the budget with company", 100, 1, 1000, false},
		{"nothing more at the limit", 100, 100, 0, true},
		{"nothing more above the limit", 100, 101, 0, false},
		{"one more above the limit", 100, 101, 1, false},
		{"zero is unbounded", 0, 1 << 50, 1 << 50, true},
		{"sum would wrap", 100, 40, math.MaxUint64 - 10, false},
		{"unbounded, sum would wrap", 0, 40, math.MaxUint64 - 10, false},
		{"lone, more than any process holds", 100, 0, math.MaxUint64, false},
		{"lone, all that is believable", 100, 0, maxCost, true},
		{"largest limit", math.MaxUint64, 100, maxCost, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := New(tt.limit)
			require.True(t, b.TryAcquire(tt.held), "an empty budget admits anything")
			assert.Equal(t, tt.want, b.TryAcquire(tt.n))
			want := tt.held
			if tt.want {
				want += tt.n
			}
			assert.Equal(t, want, b.Held())
			b.Release(b.Held())
			assert.Zero(t, b.Held())
		})
	}
}

func TestE01_ReleaseMakesRoomAndMoreThanHeldPanics(t *testing.T) {
	b := New(100)
	require.True(t, b.TryAcquire(100))
	require.True(t, b.Full())
	require.False(t, b.TryAcquire(1))
	b.Release(1)
	require.False(t, b.Full())
	require.True(t, b.TryAcquire(1))
	assert.Panics(t, func() { b.Release(101) })
	assert.False(t, New(0).Full(), "an unbounded budget is never full")
}

// However requests race, the budget holds at most its limit, or one request.
func TestE01_RacingLoneRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Uint64Range(1, 64).Draw(t, "limit")
		costs := rapid.SliceOfN(rapid.Uint64Range(0, 128), 2, 8).Draw(t, "costs")
		b := New(limit)
		var wg sync.WaitGroup
		var large, running atomic.Int64 // requests larger than the budget; all that hold something
		var broken atomic.Bool
		for _, n := range costs {
			wg.Go(func() {
				for range 20 {
					if !b.TryAcquire(n) {
						continue
					}
					if n > limit {
						large.Add(1)
					}
					if n > 0 {
						running.Add(1)
					}
					if l := large.Load(); l > 1 || l == 1 && n > limit && running.Load() > 1 {
						broken.Store(true)
					}
					if n > 0 {
						running.Add(-1)
					}
					if n > limit {
						large.Add(-1)
					}
					b.Release(n)
				}
			})
		}
		wg.Wait()
		if broken.Load() {
			t.Fatalf("a request over the budget of %d was not alone; costs %v", limit, costs)
		}
		if b.Held() != 0 {
			t.Fatalf("%d bytes held at rest", b.Held())
		}
	})
}

func TestE01_ChargeIsReleasedOnce(t *testing.T) {
	b := New(100)
	c := b.NewCharge()
	require.True(t, c.Grow(80))
	assert.Equal(t, uint64(80), b.Held())
	assert.False(t, b.TryAcquire(21))
	c.Release()
	assert.Zero(t, b.Held())
	assert.Panics(t, c.Release, "released twice")
	assert.Panics(t, func() { c.Grow(1) }, "grown after the release")
	assert.Zero(t, b.Held())
}

func TestE01_ChargeGrowsWithTheBody(t *testing.T) {
	b := New(100)
	lone := b.NewCharge()
	require.True(t, lone.Grow(60))
	require.True(t, lone.Grow(60), "a lone request may pass the budget piece by piece")
	other := b.NewCharge()
	require.False(t, other.Grow(1))
	require.False(t, lone.Grow(math.MaxUint64))
	assert.Equal(t, uint64(120), b.Held(), "a refusal leaves what was charged")
	lone.Release()
	require.True(t, other.Grow(40))
	third := b.NewCharge()
	require.True(t, third.Grow(60))
	require.False(t, other.Grow(1), "not alone: the limit holds")
	other.Release()
	third.Release()
	assert.Zero(t, b.Held())
}
