// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
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

// flow is what HTTP/2 lets a client send, and room for a frame's payload.
type flow struct {
	connection, initial int64

	payload [16 << 10]byte
}

// next reads one frame. It returns what it adds to the window of stream id, or
// -1 when that stream has ended. http2's own reader allocates for every frame.
func (c *grpcClient) next(id uint32, window *flow) int64 {
	f, err := http2.ReadFrameHeader(c.conn)
	require.NoError(c.t, err)
	payload := window.payload[:f.Length]
	_, err = io.ReadFull(c.conn, payload)
	require.NoError(c.t, err)
	switch f.Type {
	case http2.FrameWindowUpdate:
		grown := int64(binary.BigEndian.Uint32(payload))
		if f.StreamID == id {
			return grown
		}
		if f.StreamID == 0 {
			window.connection += grown
		}
	case http2.FramePing:
		if !f.Flags.Has(http2.FlagPingAck) {
			require.NoError(c.t, c.fr.WritePing(true, [8]byte(payload)))
		}
	case http2.FrameSettings:
		if f.Flags.Has(http2.FlagSettingsAck) {
			return 0
		}
		before := window.initial
		for ; len(payload) >= 6; payload = payload[6:] {
			if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingInitialWindowSize {
				window.initial = int64(binary.BigEndian.Uint32(payload[2:]))
			}
		}
		require.NoError(c.t, c.fr.WriteSettingsAck())
		return window.initial - before
	case http2.FrameHeaders:
		if f.StreamID == id && f.Flags.Has(http2.FlagHeadersEndStream) {
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
// least of several rounds, since the runtime allocates too, now and then. On
// one P, as testing.AllocsPerRun does it: every P has pools of its own to fill.
func (c *grpcClient) measure(method string, message []byte) (allocs, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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

// grpc-go itself takes about 55 allocations per request of 244 KiB, some of them
// by how the message arrives, and what the Collector puts around every gRPC
// server (otelgrpc, the client's address) 32 more; neither is ours to change.
// The bound of 80 (issue 6) for a server without that leaves 25 for everything
// here: admission, the body's deadline, the walk, the frame, the log, the
// receiver metrics.
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
		ctx.Value(receivingKey{}).(*receiving).leave()
	})
	require.EqualValues(t, 101, n.front.accepted[otlpwire.Logs].items.Load())
	n.atRest()
	require.NoError(t, n.recv.shutdown(t.Context()))
	if !raceEnabled { // the race detector allocates
		assert.LessOrEqual(t, allocs, 25.0+3) // the test's own: stream, its cancel, receive
	}
	t.Logf("%.0f allocations per request", allocs)
}

// bareServer serves the transport from a server that has nothing else.
func bareServer(n *node) net.Addr {
	transport := newGRPCTransport(n.front, []signal{otlpwire.Logs})
	server := grpc.NewServer(append(transport.options(watched{limit: streamLimit(n.recv.cfg.grpcLimit())}), grpc.MaxRecvMsgSize(int(n.recv.cfg.grpcLimit())))...)
	transport.register(server)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(n.t, err)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(n.t, server.Serve(listener)) })
	n.t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr()
}

func TestWholeServerAllocations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen func(*node) net.Addr
		allocs float64
	}{
		{"bare", bareServer, 80},
		{"the Collector's", func(n *node) net.Addr { return n.servers.grpcAddr }, 80 + 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := allocatingNode(t)
			n.servers.grpcAddr = tt.listen(n)
			payload := requestOfSize(t, 244<<10)
			message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(payload))), payload...)
			client := dialGRPC(t, &n.rig)
			allocs, bytes := client.measure("/"+grpcServices[otlpwire.Logs]+"/"+exportMethod, message)
			client.conn.Close() // it would not answer the server's goodbye
			require.EqualValues(t, (1+measuredRounds)*measuredRequests, n.front.accepted[otlpwire.Logs].items.Load())
			require.NoError(t, n.recv.shutdown(t.Context()))
			if !raceEnabled {
				assert.LessOrEqual(t, bytes, 12.0*1024)
				assert.LessOrEqual(t, allocs, tt.allocs)
			}
			t.Logf("%.1f allocations and %.0f bytes per request of %d bytes", allocs, bytes, len(payload))
		})
	}
}
