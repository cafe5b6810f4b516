// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSegmentName(t *testing.T) {
	id := segmentID{0x0123456789abcdef, 0xfe}
	require.Equal(t, "0123456789abcdef-000000fe.wal", id.name())
	got, ok := parseSegmentName(id.name())
	require.True(t, ok)
	require.Equal(t, id, got)
	for _, name := range []string{
		"", "x", ".wal", "0123456789ABCDEF-000000fe.wal", "0123456789abcdef-000000fe.wa", "0123456789abcdef-000000fe.wal.partial",
		"0123456789abcdef_000000fe.wal", "+123456789abcdef-000000fe.wal", "0123456789abcdef-+00000fe.wal", "0123456789abcdeg-000000fe.wal",
	} {
		_, ok := parseSegmentName(name)
		assert.False(t, ok, name)
	}
}

// TestSegmentHeader pins the byte map over the codec.
func TestSegmentHeader(t *testing.T) {
	h := segmentHeader{log: LogID{15: 0xAA}, id: segmentID{0x1122334455667788, 0x99AABBCC}, created: 0x0102030405060708}
	b := h.encode()
	require.Len(t, b, 64)
	require.Equal(t, "WEIRWAL\x01\x01\x00\x40\x00\x00\x00\x00\x00", string(b[:16]))
	require.Equal(t, byte(0xAA), b[31])
	require.Equal(t, []byte{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xCC, 0xBB, 0xAA, 0x99}, b[32:44])
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}, b[44:60])
	got, err := decodeSegmentHeader(b, 0)
	require.NoError(t, err)
	require.Equal(t, h, got)

	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		_, err := decodeSegmentHeader(bad, 0)
		require.Error(t, err, "byte %d", i)
		require.NotErrorIs(t, err, errUnknownVersion, "byte %d is damage, not a version", i)
	}
	for name, change := range map[string]func([]byte){
		"version": func(b []byte) { b[8] = 2 },
		"length":  func(b []byte) { b[10] = 72 },
		"flag":    func(b []byte) { b[12] = 2 },
		"letter":  func(b []byte) { b[12] = flagDeadLetter },
	} {
		newer := bytes.Clone(b)
		change(newer)
		le.PutUint32(newer[60:], sum(0, newer[:60]))
		_, err := decodeSegmentHeader(newer, 0)
		require.ErrorIs(t, err, errUnknownVersion, name)
	}
}

// TestFrameHeader pins the byte map over the codec.
func TestFrameHeader(t *testing.T) {
	h := frameHeader{
		length: 0x01020304, position: 0x1112131415161718, received: 0x2122232425262728, items: 0x31323334,
		group: 0x41424344, kind: KindMetrics, metadata: 0x5152,
	}
	var b [frameHeaderLen]byte
	h.put(b[:])
	require.Equal(t, []byte{
		0, 0, 0, 0, 4, 3, 2, 1,
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
		0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41,
		3, 0, 0x52, 0x51, 0, 0, 0, 0,
	}, b[:])
	require.Equal(t, h, decodeFrameHeader(b[:]))

	// The checksum is over payload ‖ metadata ‖ header[4..40] ‖ epoch.
	e := epochOf(LogID{1}, segmentID{2, 3})
	seal(b[:], sum(0, []byte("payloadmetadata")), e)
	whole := append(append([]byte("payloadmetadata"), b[4:]...), e[:]...)
	require.Equal(t, sum(0, whole), le.Uint32(b[:]))
	for _, other := range []epoch{epochOf(LogID{2}, segmentID{2, 3}), epochOf(LogID{1}, segmentID{3, 3}), epochOf(LogID{1}, segmentID{2, 4})} {
		require.NotEqual(t, e, other)
	}
}

func TestMetadata(t *testing.T) {
	kept := []Entry{{"k", "v"}, {"k", "v2"}, {"", ""}, {strings.Repeat("x", 255), strings.Repeat("y", 60_000)}}
	for _, tenant := range []string{"", "acme", strings.Repeat("t", 128)} {
		b, err := EncodeMetadata(tenant, kept)
		require.NoError(t, err)
		gotTenant, gotKept, err := DecodeMetadata(b)
		require.NoError(t, err)
		require.Equal(t, tenant, gotTenant)
		require.Equal(t, kept, gotKept)
		first, ok := tenantOf(b[:min(len(b), tenantPrefix)])
		require.True(t, ok)
		require.Equal(t, tenant, string(first))
		for n := range b[:300] {
			_, _, err := DecodeMetadata(b[:n])
			require.Error(t, err, "%d bytes of it", n)
		}
		_, _, err = DecodeMetadata(append(b, 0))
		require.Error(t, err, "a byte more")
	}
	for name, f := range map[string]func() ([]byte, error){
		"tenant":  func() ([]byte, error) { return EncodeMetadata(strings.Repeat("t", 129), nil) },
		"key":     func() ([]byte, error) { return EncodeMetadata("", []Entry{{strings.Repeat("k", 256), ""}}) },
		"value":   func() ([]byte, error) { return EncodeMetadata("", []Entry{{"", strings.Repeat("v", 65536)}}) },
		"entries": func() ([]byte, error) { return EncodeMetadata("", make([]Entry, 255)) },
		"whole":   func() ([]byte, error) { return EncodeMetadata("", []Entry{{"", strings.Repeat("v", 65530)}}) },
	} {
		_, err := f()
		require.Error(t, err, name)
	}
}

func TestSummary(t *testing.T) {
	e := epochOf(LogID{1}, segmentID{1000, 7})
	l := newLedger()
	s := &segment{id: segmentID{1000, 7}, end: 5000}
	l.record(s, l.lane("", KindLogs), 1000, 5, 77)
	l.record(s, l.lane("acme", KindProfiles), 2000, 6, 55)
	l.record(s, l.lane("", KindLogs), 3000, 7, 99)
	b := encodeSummary(s, e)
	got, err := decodeSummary(b, e)
	require.NoError(t, err)
	require.Equal(t, &summary{
		end: 5000, frames: 3, bytes: 4000, first: 55, last: 99,
		lanes: []laneSummary{
			{tenant: "", kind: KindLogs, first: 1000, last: 3000, frames: 2, items: 12},
			{tenant: "acme", kind: KindProfiles, first: 2000, last: 2000, frames: 1, items: 6},
		},
	}, got)
	n, ok := summaryLength(b[len(b)-summaryTrailer:])
	require.True(t, ok)
	require.EqualValues(t, len(b), n)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		_, err := decodeSummary(bad, e)
		require.Error(t, err, "byte %d", i)
	}
	for i := range b {
		_, err := decodeSummary(b[:i], e)
		require.Error(t, err)
	}
	_, err = decodeSummary(b, epochOf(LogID{1}, segmentID{1000, 8}))
	require.Error(t, err, "another segment's")
}

func TestStateSlot(t *testing.T) {
	g := geometryFor(10, 3)
	require.Zero(t, g.slot%blockSize)
	r := stateRecord{
		barrierSeen: true, nextOrdinal: 9, durable: 5000, lowWater: 100,
		reclaimed: []ordinalRange{{first: 2, last: 4, base: 200, end: 400}},
		planned:   []ordinalRange{{first: 5, last: 5, base: 400, end: 500, uncertain: true}},
		tenants: []tenantHorizons{
			{name: "", horizons: [kinds]Position{5000, 0, 3, 4}},
			{name: strings.Repeat("t", 128), horizons: [kinds]Position{1, 2, 3, 4}},
		},
	}
	b := r.encode(42)
	got, generation, err := decodeSlot(b, g)
	require.NoError(t, err)
	require.Equal(t, uint64(42), generation)
	require.Equal(t, r, got)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		_, _, err := decodeSlot(bad, g)
		require.Error(t, err, "byte %d", i)
		_, _, err = decodeSlot(b[:i], g)
		require.Error(t, err, "%d bytes of it", i)
	}
	reseal := func(b []byte) []byte {
		le.PutUint32(b[4:], sum(0, b[8:]))
		return b
	}
	for name, change := range map[string]func([]byte){
		"more ranges than there is room for":  func(b []byte) { le.PutUint32(b[40:], 11) },
		"so many that they overflow":          func(b []byte) { le.PutUint32(b[40:], math.MaxUint32); le.PutUint32(b[44:], 2) },
		"more tenants than there is room for": func(b []byte) { le.PutUint32(b[48:], 4) },
		"a tenant more than there is":         func(b []byte) { le.PutUint32(b[48:], 3) },
		"a tenant less than there is":         func(b []byte) { le.PutUint32(b[48:], 1) },
		"a range that ends before it begins":  func(b []byte) { le.PutUint64(b[slotFixed+16:], 100) },
		"ordinals that run backwards":         func(b []byte) { le.PutUint32(b[slotFixed:], 5) },
		"a horizon past the durable position": func(b []byte) { le.PutUint64(b[slotFixed+2*rangeLen+1:], 5001) },
	} {
		bad := bytes.Clone(b)
		change(bad)
		_, _, err := decodeSlot(reseal(bad), g)
		require.Error(t, err, name)
	}
	newer := bytes.Clone(b)
	newer[16] |= 2
	_, _, err = decodeSlot(reseal(newer), g)
	require.ErrorIs(t, err, errUnknownVersion)

	h := encodeStateHeader(LogID{7}, g)
	log, gotG, err := decodeStateHeader(h)
	require.NoError(t, err)
	require.Equal(t, LogID{7}, log)
	require.Equal(t, g, gotG)
	for i := range h {
		bad := bytes.Clone(h)
		bad[i] ^= 1
		_, _, err := decodeStateHeader(bad)
		require.Error(t, err, "byte %d", i)
	}
	// The largest content fits the slot.
	full := stateRecord{durable: math.MaxUint64}
	for range 10 {
		full.reclaimed = append(full.reclaimed, ordinalRange{})
	}
	for range 3 {
		full.tenants = append(full.tenants, r.tenants[1])
	}
	require.LessOrEqual(t, len(full.encode(1)), int(g.slot))
}

func TestMergeRanges(t *testing.T) {
	got := mergeRanges([]ordinalRange{
		{first: 7, last: 7, base: 700, end: 800},
		{first: 3, last: 3, base: 300, end: 300}, // frameless
		{first: 2, last: 2, base: 200, end: 300},
		{first: 4, last: 5, base: 300, end: 500},
		{first: 9, last: 9, base: 900, end: 901},
	})
	require.Equal(t, []ordinalRange{
		{first: 2, last: 5, base: 200, end: 500},
		{first: 7, last: 7, base: 700, end: 800},
		{first: 9, last: 9, base: 900, end: 901},
	}, got)
}
