// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"path"
	"runtime/metrics"
	"testing"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// C14: whatever bytes a file holds, nothing panics, and nothing is allocated
// because a length field says so.

// allocated is the bytes the program has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// withinFile fails when fn allocates more than a few times the file's size
// and what an open log needs anyway.
func withinFile(t *testing.T, size int, fn func()) {
	t.Helper()
	before := allocated()
	fn()
	if n := allocated() - before; n > 64*uint64(size)+32<<20 {
		t.Fatalf("%d bytes were allocated for a file of %d", n, size)
	}
}

var fuzzLog = LogID{1, 2, 3}

// resealed is data with the checksums of every frame that could be one made
// right, so that the fuzzer gets behind them. A segment's frames begin at 64.
func resealed(data []byte, id segmentID) []byte {
	data = bytes.Clone(data)
	e := epochOf(fuzzLog, id)
	for off := segmentHeaderLen; off+frameHeaderLen <= len(data); {
		b := data[off:]
		h := decodeFrameHeader(b)
		if h.framed() > uint64(len(b)) || uint32(h.metadata) > h.length {
			break
		}
		var body uint32
		if h.kind != kindGap {
			m := frameHeaderLen + int(h.metadata)
			body = sum(sum(0, b[m:h.framed()]), b[frameHeaderLen:m])
		}
		seal(b, body, e)
		off += int(h.framed())
	}
	return data
}

// fuzzSegment is a small whole segment.
func fuzzSegment(id segmentID, frames int) []byte {
	h := segmentHeader{log: fuzzLog, id: id, created: 1}
	b := h.encode()
	p := id.base
	for i := range frames {
		md, err := EncodeMetadata("a", []Entry{{"k", "v"}})
		if err != nil {
			panic(err)
		}
		payload := payloadOf(uint64(i), 50+10*i)
		fh := frameHeader{
			length: uint32(len(md) + len(payload)), position: p, received: int64(i), items: 3, group: uint32(i % 2),
			kind: KindLogs, metadata: uint16(len(md)),
		}
		head := make([]byte, frameHeaderLen)
		fh.put(head)
		seal(head, sum(sum(0, payload), md), epochOf(fuzzLog, id))
		b = append(append(append(b, head...), md...), payload...)
		p = fh.end()
	}
	return b
}

func FuzzC14_Frame(f *testing.F) {
	id := segmentID{1000, 3}
	whole := fuzzSegment(id, 4)
	f.Add(whole, false)
	f.Add(whole, true)
	f.Add(whole[:len(whole)-7], true)
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...), true)
	f.Add(append(bytes.Clone(whole), gapHeader(1000+uint64(len(whole)-64), 1100+uint64(len(whole)-64), 5, epochOf(fuzzLog, id))...), true)
	f.Add(append(bytes.Clone(whole[:64]), bytes.Repeat([]byte{0xFF}, 200)...), true)
	var s scanner // its buffer is kept from one run to the next
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		if reseal {
			data = resealed(data, id)
		}
		fs := crashfs.New(0)
		if err := fs.WriteFile("/f", data); err != nil {
			t.Skip()
		}
		file, err := fs.OpenFile("/f", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		withinFile(t, len(data), func() {
			s.reset(file, fuzzLog, id, int64(len(data)))
			if len(data) < segmentHeaderLen {
				return
			}
			at := int64(segmentHeaderLen)
			covered := int64(0)
			bad, last, _, _, err := s.walk(func(h *frameHeader, tenant []byte) error {
				off := id.offset(h.position)
				if off < at || off+int64(h.framed()) > int64(len(data)) || len(tenant) > maxTenant {
					t.Fatalf("frame at %d +%d behind %d of %d", off, h.framed(), at, len(data))
				}
				at = off + int64(h.framed())
				covered += int64(h.framed())
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range bad {
				covered += r.end - r.start
			}
			if last != segmentHeaderLen+covered {
				t.Fatalf("frames and bad ranges cover %d bytes, the walk ended at %d", covered, last)
			}
			for off := int64(segmentHeaderLen); off < int64(len(data)); off += 17 {
				s.stated(off, int64(len(data)), func(Lane) Position { return Position(off) })
			}
		})
	})
}

func FuzzC14_Summary(f *testing.F) {
	e := epochOf(fuzzLog, segmentID{7, 1})
	s := &segment{id: segmentID{7, 1}, end: 500, frames: 3, firstReceived: 1, lastReceived: 9}
	s.spans = []span{{lane: &lane{Lane: Lane{"tenant", KindTraces}}, first: 7, last: 300, frames: 3, items: 12}}
	f.Add(encodeSummary(s, e))
	f.Add(encodeSummary(&segment{id: segmentID{7, 1}, end: 7}, e))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.Clone(data)
		if len(data) >= frameHeaderLen {
			seal(data, sum(0, data[frameHeaderLen:]), e)
		}
		withinFile(t, len(data), func() {
			got, err := decodeSummary(data, e)
			if err == nil && len(got.lanes)*summaryLane > len(data) {
				t.Fatalf("%d lanes in %d bytes", len(got.lanes), len(data))
			}
		})
	})
}

func FuzzC14_Metadata(f *testing.F) {
	for _, kept := range [][]Entry{nil, {{"k", "v"}}, {{"k", "v"}, {"k", ""}, {"", "w"}}} {
		b, err := EncodeMetadata("tenant", kept)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{255, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		tenant, kept, err := DecodeMetadata(data)
		name, ok := tenantOf(data)
		if err != nil {
			return
		}
		if len(tenant) <= maxTenant && (!ok || string(name) != tenant) {
			t.Fatalf("tenant %q or %q (%v)", tenant, name, ok)
		}
		if len(tenant) > maxTenant {
			return
		}
		again, err := EncodeMetadata(tenant, kept)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x decodes and encodes to %x (%v)", data, again, err)
		}
	})
}

// FuzzC14_State opens a log whose STATE is any bytes, with right checksums at
// times: it opens whole or refuses.
func FuzzC14_State(f *testing.F) {
	w := newWorld(5)
	if err := w.open(); err != nil {
		f.Fatal(err)
	}
	for range 2 {
		w.mustAppend(f, 3)
		if err := w.rotateNow(); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.settle(); err != nil {
		f.Fatal(err)
	}
	w.close()
	state, err := w.fs.ReadFile(logDir + "/STATE")
	if err != nil {
		f.Fatal(err)
	}
	second := blockSize + int(le.Uint32(state[32:]))
	used := func(off int) []byte { return state[off : off+int(le.Uint32(state[off:]))] }
	head, one, two := state[:stateHeaderLen], used(blockSize), used(second)
	f.Add(head, one, two, false)
	f.Add(head, one, two, true)
	f.Add(head, one, []byte{}, true)
	f.Add(head, []byte{}, two[:slotFixed], true)
	f.Add(head[:20], one, two, true)
	f.Add([]byte{}, []byte{}, []byte{}, false)
	f.Fuzz(func(t *testing.T, head, one, two []byte, reseal bool) {
		if len(head) > stateHeaderLen || len(one) > blockSize || len(two) > blockSize {
			t.Skip()
		}
		if reseal {
			head, one, two = resealedHeader(head), resealedSlot(one), resealedSlot(two)
		}
		data := append(bytes.Clone(head), make([]byte, second+blockSize-len(head))...)
		copy(data[blockSize:], one)
		copy(data[second:], two)
		if len(two) == 0 {
			data = data[:blockSize+len(one)]
		}
		c := w.fork(w.fs.Clone(), 1)
		if err := c.fs.WriteFile(logDir+"/STATE", data); err != nil {
			t.Skip()
		}
		withinFile(t, len(data), func() {
			j, _, err := Open(c.fs, c.cfg)
			if err != nil {
				return
			}
			if _, err := c.read(j); err != nil {
				t.Fatalf("it opened and cannot be read: %v", err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func resealedHeader(b []byte) []byte {
	if len(b) < stateHeaderLen {
		return b
	}
	b = bytes.Clone(b)
	le.PutUint32(b[60:], sum(0, b[:60]))
	return b
}

func resealedSlot(b []byte) []byte {
	if len(b) < slotFixed {
		return b
	}
	b = bytes.Clone(b)
	le.PutUint32(b, uint32(len(b)))
	le.PutUint32(b[4:], sum(0, b[8:]))
	return b
}

// FuzzC14_Segment opens a log one of whose segments, closed or the newest, holds
// any bytes behind its header: fail opens it whole or says why not, and what
// quarantine opened once opens ever after.
func FuzzC14_Segment(f *testing.F) {
	w := newWorld(6)
	w.cfg.Preallocate = false
	if err := w.open(); err != nil {
		f.Fatal(err)
	}
	for range 2 {
		w.mustAppend(f, 3)
		if err := w.rotateNow(); err != nil {
			f.Fatal(err)
		}
	}
	w.mustAppend(f, 2)
	w.mustAppend(f, 1)
	names := w.j.Segments()
	log := w.j.LogID()
	w.j.tasks.Wait()
	next := w.fs.Kill()
	w.close()
	w.fs = next
	for i, s := range names {
		data, err := w.fs.ReadFile(path.Join(logDir, s.Name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
		f.Add(uint8(i), data[:len(data)/2])
		f.Add(uint8(i), append(bytes.Clone(data), 1, 2, 3))
		f.Add(uint8(i), append(bytes.Clone(data[:200]), data[210:]...))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		name := path.Join(logDir, names[int(which)%len(names)].Name)
		c := w.fork(w.fs.Clone(), 1)
		if err := c.fs.WriteFile(name, data); err != nil {
			t.Skip()
		}
		open := func(p CorruptionPolicy) error {
			c.cfg.OnCorruption = p
			var openErr error
			withinFile(t, len(data), func() {
				j, _, err := Open(c.fs, c.cfg)
				if openErr = err; err != nil {
					return
				}
				if j.LogID() != log {
					t.Fatal("another log")
				}
				_, err = c.read(j)
				var damage *DamageError
				if err != nil && (p == CorruptionQuarantine || !errors.As(err, &damage)) {
					t.Fatalf("it opened and cannot be read: %v", err)
				}
				discharge(j)
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
			})
			return openErr
		}
		_ = open(CorruptionFail)
		if open(CorruptionQuarantine) == nil {
			if err := open(CorruptionFail); err != nil {
				t.Fatalf("quarantine opened it, and left: %v", err)
			}
		}
	})
}

// discharge is what a pass does with damage readers met.
func discharge(j *Journal) {
	j.TurnC() <- struct{}{}
	defer j.ReleaseTurn()
	_ = j.Discharge()
}
