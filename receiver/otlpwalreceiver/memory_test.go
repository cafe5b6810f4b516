// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestE01_BudgetsFitWhatTheProcessMayUse(t *testing.T) {
	const wal = "wal: {max_frame_size: 1MiB}, "
	const small = wal + "admission: {max_requests: 8}, " // 8 × 16 MiB on their way
	for name, c := range map[string]struct {
		config             string
		limit              Size
		inFlight, delivery Size
		exceeds            bool
		worst              Size
	}{
		"unlimited":          {config: "", inFlight: 256 * MiB, delivery: 128 * MiB, worst: (256 + 128 + 64*2*17) * MiB},
		"plenty":             {config: "", limit: 4 * GiB, inFlight: 256 * MiB, delivery: 128 * MiB, worst: (256 + 128 + 64*2*17) * MiB},
		"one GiB":            {config: small, limit: GiB, inFlight: 256 * MiB, delivery: 128 * MiB, worst: (256 + 128 + 8*16) * MiB},
		"shares":             {config: small, limit: 512 * MiB, inFlight: 128 * MiB, delivery: 64 * MiB, worst: (128 + 64 + 8*16) * MiB},
		"too little":         {config: "", limit: 512 * MiB, inFlight: 128 * MiB, delivery: 64 * MiB, worst: (128 + 64 + 64*2*17) * MiB, exceeds: true},
		"valid all the same": {config: "", limit: 16 * MiB, inFlight: 4 * 17 * MiB, delivery: 4 * MiB, worst: (68 + 4 + 64*2*17) * MiB, exceeds: true},
		"configured": {
			config: wal + "admission: {max_requests: 8, max_in_flight_bytes: 200MiB}, delivery: {max_in_flight_bytes: 100MiB}, ", limit: 400 * MiB,
			inFlight: 200 * MiB, delivery: 100 * MiB, worst: (200 + 100 + 8*16) * MiB, exceeds: true,
		},
		"configured as the default": {
			config: wal + "admission: {max_requests: 8, max_in_flight_bytes: 256MiB}, ", limit: 400 * MiB,
			inFlight: 256 * MiB, delivery: 50 * MiB, worst: (256 + 50 + 8*16) * MiB, exceeds: true,
		},
		"unbounded by choice": {config: wal + "admission: {max_requests: 8, max_in_flight_bytes: 0}, ", limit: GiB, inFlight: 0, delivery: 128 * MiB, exceeds: true},
		"beyond counting": {
			config: wal + "admission: {max_requests: 8, max_in_flight_bytes: 18446744073709551615}, ", limit: GiB,
			inFlight: math.MaxUint64, delivery: 128 * MiB, worst: math.MaxUint64, exceeds: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(t, "{"+c.config+"protocols: {grpc: }}")
			require.NoError(t, err)
			before := *cfg
			core, logs := observer.New(zap.InfoLevel)
			r := &walReceiver{cfg: cfg, memory: func() memory { return memory{c.limit, "a test"} }}
			r.set.Logger = zap.New(core)
			r.fitMemory()
			assert.Equal(t, c.inFlight, r.cfg.Admission.MaxInFlightBytes)
			assert.Equal(t, c.delivery, r.cfg.Delivery.MaxInFlightBytes)
			assert.Equal(t, c.worst, r.cfg.worstCase())
			assert.NoError(t, r.cfg.Validate())
			assert.Equal(t, before, *cfg, "the configuration itself is left alone")
			warned := logs.FilterLevelExact(zap.WarnLevel).All()
			if !c.exceeds {
				assert.Empty(t, warned)
				return
			}
			require.Len(t, warned, 1)
			assert.Contains(t, warned[0].Message, "a test")
			assert.Contains(t, warned[0].Message, c.limit.String())
		})
	}
}

// The terms add up, and what is advised helps.
func TestE01_MemoryWarning(t *testing.T) {
	for config, want := range map[string]string{
		"": "hold 2560MiB for data, more than the 100MiB of a test, which each otlp_wal takes for its own: " +
			"admission.max_in_flight_bytes 256MiB + delivery.max_in_flight_bytes 128MiB + admission.max_requests 64 × 34MiB (2 × the transport limit 17MiB), " +
			`see README, "How much memory"; lower admission.max_requests or wal.max_frame_size, or give`,
		"wal: {max_frame_size: 1MiB}, ": "admission.max_requests 64 × 16MiB (what a decompressor holds), " +
			`see README, "How much memory"; lower admission.max_requests, or give`,
		"wal: {max_frame_size: 1MiB}, admission: {max_in_flight_bytes: 1GiB}, ": "lower admission.max_requests or admission.max_in_flight_bytes, or give",
		"delivery: {max_in_flight_bytes: 1GiB}, ":                               "lower admission.max_requests or wal.max_frame_size or delivery.max_in_flight_bytes, or give",
	} {
		cfg, err := parse(t, "{"+config+"protocols: {grpc: }}")
		require.NoError(t, err)
		assert.Contains(t, cfg.memoryWarning(memory{100 * MiB, "a test"}), want, config)
	}
	cfg, err := parse(t, "{wal: {max_frame_size: 1MiB}, protocols: {grpc: {max_recv_msg_size_mib: 32}}}")
	require.NoError(t, err)
	assert.Contains(t, cfg.memoryWarning(memory{100 * MiB, "a test"}), "lower admission.max_requests, or give", "another setting makes the limit")
}

func TestProcessMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	assert.NotEqual(t, "GOMEMLIMIT", processMemory().source)
	debug.SetMemoryLimit(int64(7 * MiB)) // no test runs with less
	assert.Equal(t, memory{7 * MiB, "GOMEMLIMIT"}, processMemory())
}
