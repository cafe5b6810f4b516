// SPDX-License-Identifier: Apache-2.0

package barrier_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pipeline"
	"go.uber.org/goleak"

	"github.com/otelweir/weir/barrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRetain(t *testing.T) {
	frames := barrier.FrameRange{LogID: [16]byte{7}, Tenant: "acme", Signal: pipeline.SignalTraces, Frames: []barrier.FrameRef{{Position: 40, Items: 3}, {Position: 120, Items: 1}}}
	type outer struct{}

	t.Run("no log behind the context", func(t *testing.T) {
		_, ok := barrier.Retain(t.Context())
		assert.False(t, ok)
		_, ok = barrier.FrameRangeFromContext(t.Context())
		assert.False(t, ok)
	})
	t.Run("a log", func(t *testing.T) {
		var released []bool
		taken := 0
		ctx := barrier.NewContext(context.WithValue(t.Context(), outer{}, "kept"), frames, func() (func(bool), bool) {
			taken++
			return func(durable bool) { released = append(released, durable) }, true
		})
		assert.Equal(t, "kept", ctx.Value(outer{}))

		// What a pipeline puts around the context does not hide the log.
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, outer{}, "more"), time.Hour)
		defer cancel()
		got, ok := barrier.FrameRangeFromContext(ctx)
		require.True(t, ok)
		assert.Equal(t, frames, got)
		for range 2 { // a fan-out: each branch takes its own handle
			release, ok := barrier.Retain(ctx)
			require.True(t, ok)
			defer release(false)
		}
		release, ok := barrier.Retain(context.WithoutCancel(ctx))
		require.True(t, ok)
		release(true)
		assert.Equal(t, 3, taken)
		assert.Equal(t, []bool{true}, released)
	})
	t.Run("a log that gives no handles", func(t *testing.T) {
		ctx := barrier.NewContext(t.Context(), frames, nil)
		_, ok := barrier.Retain(ctx)
		assert.False(t, ok)
		_, ok = barrier.FrameRangeFromContext(ctx)
		assert.True(t, ok)
	})
	t.Run("a log whose attempt is over", func(t *testing.T) {
		ctx := barrier.NewContext(t.Context(), frames, func() (func(bool), bool) { return nil, false })
		release, ok := barrier.Retain(ctx)
		assert.False(t, ok)
		assert.Nil(t, release)
	})
	t.Run("a log behind a log", func(t *testing.T) {
		inner := frames
		inner.Tenant = "inner"
		ctx := barrier.NewContext(barrier.NewContext(t.Context(), frames, nil), inner, nil)
		got, _ := barrier.FrameRangeFromContext(ctx)
		assert.Equal(t, "inner", got.Tenant, "the nearest log's frames are the ones being consumed")
	})
}

// The JSON names are read by programs and documented in the extension's
// README: changing one is a change of version there.
func TestStatusJSONNames(t *testing.T) {
	raw, err := json.Marshal(barrier.Status{
		Oldest:   time.Unix(0, 0).UTC(),
		Segments: []barrier.SegmentStatus{{HeldBy: []string{"logs"}}},
		Lanes:    []barrier.LaneStatus{{Oldest: time.Unix(0, 0).UTC(), Attempts: 1, NextTry: time.Unix(0, 0).UTC(), LastError: "x"}},
		Rotation: barrier.RotationStatus{Cause: "x", NextTry: time.Unix(0, 0).UTC()},
		Latch:    barrier.LatchStatus{Cause: "x", Since: time.Unix(0, 0).UTC(), LastRefusal: "x"},
		Floor:    barrier.FloorStatus{Lanes: []string{"x"}},
	})
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(raw, &got))
	keys := func(v any) (names []string) {
		for name := range v.(map[string]any) {
			names = append(names, name)
		}
		return names
	}
	for _, tc := range []struct {
		of   any
		want []string
	}{
		{got, []string{
			"directory", "log_id", "limit", "unreclaimed", "unflushed", "disk", "oldest_received", "durable_position", "max_segments",
			"prepared_segment", "segments", "lanes", "tenants", "rotation", "refusing", "retain_floor", "retry_after_ns",
		}},
		{got["segments"].([]any)[0], []string{"name", "base", "bytes", "state", "held_by"}},
		{got["lanes"].([]any)[0], []string{"tenant", "signal", "frontier", "horizon", "lag", "oldest_received", "pending_items", "state", "attempts", "next_try", "last_error"}},
		{got["tenants"], []string{"held", "reserved", "limit"}},
		{got["rotation"], []string{"state", "consecutive_failures", "cause", "next_try"}},
		{got["refusing"], []string{"refusing", "cause", "since", "last_refusal"}},
		{got["retain_floor"], []string{"state", "position", "lag", "lag_segments", "lanes"}},
	} {
		assert.ElementsMatch(t, tc.want, keys(tc.of))
	}
}
