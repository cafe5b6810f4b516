// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

func TestE01_CancelledCallerKeepsTheCharge(t *testing.T) {
	b := New(100)
	caller := b.NewCharge()
	require.True(t, caller.Grow(80))
	caller.Hold()    // the commit group that has the bytes queued
	caller.Release() // the caller's context ended
	assert.Equal(t, uint64(80), b.Held())
	assert.False(t, b.TryAcquire(21))
	caller.Release() // the group is written
	assert.Zero(t, b.Held())
	assert.Panics(t, caller.Release, "released more often than held")
	assert.Panics(t, caller.Hold, "held after the last release")
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

func TestE01_DeliveryWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		require.NoError(t, b.Acquire(t.Context(), 60))
		var order []string
		var mu sync.Mutex
		wait := func(name string, n uint64) {
			go func() {
				if assert.NoError(t, b.Acquire(t.Context(), n)) {
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		wait("larger than the budget", 500)
		wait("small", 10)
		assert.Empty(t, order, "the small one fits but came later")
		assert.False(t, b.TryAcquire(1), "nor may a request overtake")
		assert.False(t, b.NewCharge().Grow(1))

		b.Release(60)
		synctest.Wait()
		assert.Equal(t, []string{"larger than the budget"}, order, "alone, it passes")
		b.Release(500)
		synctest.Wait()
		assert.Equal(t, []string{"larger than the budget", "small"}, order)
		assert.Equal(t, uint64(10), b.Held())
	})
}

func TestE01_ContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100)
		require.True(t, b.TryAcquire(50))
		ctx, cancel := context.WithCancelCause(t.Context())
		var first, second error
		go func() { first = b.Acquire(ctx, 90) }()
		synctest.Wait()
		go func() { second = b.Acquire(t.Context(), 20); assert.NoError(t, second) }()
		synctest.Wait()
		require.Equal(t, uint64(50), b.Held())

		cancel(errors.New("shutdown"))
		synctest.Wait()
		require.ErrorIs(t, first, context.Canceled)
		assert.Equal(t, uint64(70), b.Held(), "who waited behind gets in; who gave up holds nothing")
		require.ErrorIs(t, b.Acquire(ctx, 1), context.Canceled, "even where there is room")
		b.Release(70)
		assert.True(t, b.TryAcquire(100), "no one waits any more")
		require.ErrorContains(t, b.Acquire(t.Context(), math.MaxUint64), "more than any process can hold")
	})
}

// Waiting, cancelling and releasing at random never loses a byte or a waiter.
func TestE01_NoWaiterStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Uint64Range(1, 64).Draw(t, "limit")
		costs := rapid.SliceOfN(rapid.Uint64Range(0, 128), 2, 8).Draw(t, "costs")
		b := New(limit)
		var wg sync.WaitGroup
		for i, n := range costs {
			wg.Go(func() {
				for range 20 {
					ctx, cancel := context.WithCancel(context.Background())
					if i%2 == 1 {
						go cancel() // half of them give up at some point
					}
					if b.Acquire(ctx, n) == nil {
						b.Release(n)
					}
					cancel()
				}
			})
		}
		wg.Wait() // hangs, and the test times out, when a waiter is forgotten
		if held, waiting := b.Held(), b.waiting.Load(); held != 0 || waiting != 0 || b.waiters.Len() != 0 {
			t.Fatalf("at rest: %d bytes held, %d waiting, %d queued", held, waiting, b.waiters.Len())
		}
	})
}
