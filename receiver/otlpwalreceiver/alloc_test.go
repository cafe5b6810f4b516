// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/otlpwire"
)

// stream sends one request and waits for its answer, within HTTP/2's flow
// control and next to without allocating.
func (c *grpcClient) stream(id uint32, method string, message []byte, window *flow) {
	c.headers(id, method)
	stream := window.initial
	sent := 0
	for sent < len(message) {
		n := min(int64(len(message)-sent), 16<<10, stream, window.connection)
		if n == 0 {
			stream += c.next(id, window)
			continue
		}
		c.data(id, message[sent:sent+int(n)], sent+int(n) == len(message))
		sent += int(n)
		stream -= n
		window.connection -= n
	}
	for c.next(id, window) >= 0 { // until the stream has ended
	}
}

// flow is what HTTP/2 lets a client send.
type flow struct{ connection, initial int64 }

// next reads one frame. It returns what it adds to the window of stream id, or
// -1 when that stream has ended.
func (c *grpcClient) next(id uint32, window *flow) int64 {
	f, err := c.fr.ReadFrame()
	require.NoError(c.t, err)
	switch f := f.(type) {
	case *http2.WindowUpdateFrame:
		if f.StreamID == id {
			return int64(f.Increment)
		}
		if f.StreamID == 0 {
			window.connection += int64(f.Increment)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			require.NoError(c.t, c.fr.WritePing(true, f.Data))
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return 0
		}
		grown := int64(0)
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			grown = int64(v) - window.initial
			window.initial = int64(v)
		}
		require.NoError(c.t, c.fr.WriteSettingsAck())
		return grown
	case *http2.HeadersFrame:
		if f.StreamID == id && f.StreamEnded() {
			return -1
		}
	}
	return 0
}

const (
	measuredRounds   = 10
	measuredRequests = 20 // per round
)

// measure returns what one request of message allocates in this process: the
// least of several rounds, since the runtime allocates too, now and then.
func (c *grpcClient) measure(method string, message []byte) (allocs, bytes float64) {
	c.fr.ReadMetaHeaders = nil // hpack's decoder allocates
	c.fr.SetReuseFrames()
	window := &flow{connection: 65535, initial: 65535}
	id := uint32(1)
	send := func() {
		for range measuredRequests {
			c.stream(id, method, message, window)
			id += 2
		}
	}
	send() // until pools and windows are full
	allocs, bytes = math.Inf(1), math.Inf(1)
	for range measuredRounds {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		send()
		runtime.ReadMemStats(&after)
		allocs = min(allocs, float64(after.Mallocs-before.Mallocs)/measuredRequests)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/measuredRequests)
	}
	return allocs, bytes
}

// allocatingNode is a node on a real file system: the one in memory allocates
// for every block. It does not deliver, which would allocate too.
func allocatingNode(t *testing.T) *node {
	n := newNode(t, nodeOptions{signals: []signal{otlpwire.Logs}, change: func(c *Config) {
		c.WAL.Directory = filepath.Join(t.TempDir(), "wal")
		c.WAL.SegmentSize, c.WAL.MaxFrameSize, c.WAL.UnreclaimedBytesLimit = 256*MiB, MiB, GiB
	}})
	n.recv.fs = fsys.OS
	for _, step := range []func(context.Context, component.Host) error{n.recv.openLog, n.recv.maintain, n.recv.observe, n.recv.serve} {
		require.NoError(t, step(t.Context(), n.host))
	}
	n.connect()
	return n
}

// A bare gRPC server takes about 59 allocations per request of 244 KiB, and
// what the Collector puts around every gRPC server (otelgrpc, the client's
// address) 33 more; neither is ours to change. The bound of 80 (issue 6) for a
// server without that leaves 21 for everything here: admission, the body's
// deadline, the walk, the frame, the log, the receiver metrics.
func TestAckPathAllocations(t *testing.T) {
	n := allocatingNode(t)
	payload := requestOfSize(t, 244<<10)
	var pieces mem.BufferSlice // as grpc-go has them
	for rest := payload; len(rest) > 0; {
		k := min(len(rest), 16<<10)
		pieces = append(pieces, mem.SliceBuffer(rest[:k]))
		rest = rest[k:]
	}
	transport := newGRPCTransport(n.front, []signal{otlpwire.Logs})
	info := &tap.Info{FullMethodName: "/" + grpcServices[otlpwire.Logs] + "/" + exportMethod}
	codec := newRawCodec()
	allocs := testing.AllocsPerRun(100, func() {
		stream, end := context.WithCancel(context.Background())
		defer end()
		ctx, err := transport.tapHandle(stream, info)
		require.NoError(t, err)
		c := &grpcCall{request: request{signal: otlpwire.Logs, transport: transportGRPC, format: formatProtobuf}}
		_, err = transport.export(ctx, c, func(v any) error { return codec.Unmarshal(pieces, v) })
		require.NoError(t, err)
		streamEnds{}.HandleRPC(ctx, &stats.End{})
	})
	require.EqualValues(t, 101, n.front.accepted[otlpwire.Logs].items.Load())
	n.atRest()
	require.NoError(t, n.recv.shutdown(t.Context()))
	if !raceEnabled { // the race detector allocates
		assert.LessOrEqual(t, allocs, 21.0+4) // the test's own: stream, its cancel, the end, receive
	}
	t.Logf("%.0f allocations per request", allocs)
}

func TestWholeServerAllocations(t *testing.T) {
	n := allocatingNode(t)
	payload := requestOfSize(t, 244<<10)
	message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(payload))), payload...)
	client := dialGRPC(t, &n.rig)
	allocs, bytes := client.measure("/"+grpcServices[otlpwire.Logs]+"/"+exportMethod, message)
	client.conn.Close() // it would not answer the server's goodbye
	require.EqualValues(t, (1+measuredRounds)*measuredRequests, n.front.accepted[otlpwire.Logs].items.Load())
	require.NoError(t, n.recv.shutdown(t.Context()))
	if !raceEnabled {
		assert.LessOrEqual(t, bytes, 12.0*1024)
		assert.LessOrEqual(t, allocs, 80.0+33+15) // with the Collector's instrumentation, and the client and its flow control
	}
	t.Logf("%.1f allocations and %.0f bytes per request of %d bytes", allocs, bytes, len(payload))
}
