// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"sync"
	"syscall"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// What grpc-go (1.85, framer.readDataFrame) holds of a message is more than its
// bytes when the frames are odd: those of up to 1 KiB come from no pool, so
// nothing counts them, each has its own allocation and its place in a list, and
// padding stays in the buffer while flow control gives its window back. A
// client that sends one byte per frame, padded, would make one request hold as
// much as it likes. So what the DATA frames of a stream cost beside their bytes,
// which flow control and the limit of a message bound, is summed up where they
// come from the connection, and a connection with a stream that costs too much
// is closed.

// smallFrame is what a frame from no pool costs beside its length.
const smallFrame = 64

// streamSlack is what a stream may cost in any case.
const streamSlack = 64 << 10

// streamLimit is what the frames of a stream may cost beside their bytes where
// messages have up to max bytes. Buffers are less than a quarter larger than
// ordinary frames.
func streamLimit(max Size) int64 { return int64(max)/4 + streamSlack }

// maxPadding is the most that padding takes of a frame, its length included.
const maxPadding = 256

// frameCost is what grpc-go holds for a DATA frame beside its bytes.
func frameCost(h frameHeader) int64 {
	cost := frameBuffer(h.length) - int64(h.length)
	if h.flags.Has(http2.FlagDataPadded) {
		cost += maxPadding
	}
	return cost
}

// frameBuffer is what grpc-go takes for a DATA frame of n bytes, padding
// included.
func frameBuffer(n int) int64 {
	if mem.IsBelowBufferPoolingThreshold(n) {
		return int64(n) + smallFrame
	}
	step := 1 << (bits.Len(uint(n-1)) - 3) // the sizes of pieces
	return int64((n + step - 1) / step * step)
}

// watched are transport credentials whose connections end when the frames of a
// stream cost more than limit.
type watched struct {
	credentials.TransportCredentials // nil: no TLS
	limit                            int64
}

func (w watched) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var info credentials.AuthInfo // none without TLS, as grpc-go has it without credentials
	if w.TransportCredentials != nil {
		var err error
		if conn, info, err = w.TransportCredentials.ServerHandshake(conn); err != nil {
			return nil, nil, err
		}
	}
	return newWatchedConn(conn, w.limit), info, nil
}

func (w watched) Info() credentials.ProtocolInfo {
	if w.TransportCredentials == nil {
		return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
	}
	return w.TransportCredentials.Info()
}

func (w watched) Clone() credentials.TransportCredentials {
	if w.TransportCredentials != nil {
		w.TransportCredentials = w.TransportCredentials.Clone()
	}
	return w
}

// watchedConn follows the HTTP/2 frames that pass through a connection. One
// goroutine reads from it, another one writes.
type watchedConn struct {
	net.Conn
	socket  *socketReader // nil when there is something between us and the socket
	streams streamCosts
	in, out frameScanner
}

func newWatchedConn(conn net.Conn, limit int64) *watchedConn {
	return &watchedConn{
		Conn:    conn,
		socket:  newSocketReader(conn),
		streams: streamCosts{limit: limit, open: make(map[uint32]int64)},
		in:      frameScanner{skip: len(http2.ClientPreface)},
	}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if over := c.received(p[:n]); over != nil {
		return 0, over
	}
	return n, err
}

// ReadOnReady reads as grpc-go does from a connection of the operating system's
// (internal/transport/readyreader, which asks for this method): the buffer is
// taken when there is something to read, so that an idle connection has none.
func (c *watchedConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	var buf *[]byte
	var n int
	var err error
	if c.socket != nil {
		buf, n, err = c.socket.read(size, pool)
	} else {
		buf = pool.Get(size)
		n, err = c.Conn.Read(*buf)
	}
	if n > 0 {
		if over := c.received((*buf)[:n]); over != nil {
			err = over
		}
	}
	if err != nil {
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	return buf, n, nil
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	for rest, ok := c.out.next(p[:n]); ok; rest, ok = c.out.next(rest) {
		c.streams.sent(c.out.header())
	}
	return n, err
}

// SyscallConn is for grpc-go's report of the socket's options.
func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (c *watchedConn) received(p []byte) error {
	for rest, ok := c.in.next(p); ok; rest, ok = c.in.next(rest) {
		if err := c.streams.received(c.in.header()); err != nil {
			return err
		}
	}
	return nil
}

// frameScanner finds the frames' headers in what passes by, however it is cut.
type frameScanner struct {
	skip int // bytes until the next header
	head [9]byte
	have int // of head
}

// next goes on to the end of the next header and returns what follows; false:
// p ends before.
func (s *frameScanner) next(p []byte) ([]byte, bool) {
	if s.skip >= len(p) {
		s.skip -= len(p)
		return nil, false
	}
	p = p[s.skip:]
	s.skip = 0
	n := copy(s.head[s.have:], p)
	s.have += n
	if s.have < len(s.head) {
		return nil, false
	}
	s.have = 0
	s.skip = s.header().length
	return p[n:], true
}

// frameHeader is the header of an HTTP/2 frame.
type frameHeader struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

func (s *frameScanner) header() frameHeader {
	return frameHeader{
		length: int(s.head[0])<<16 | int(s.head[1])<<8 | int(s.head[2]),
		kind:   http2.FrameType(s.head[3]),
		flags:  http2.Flags(s.head[4]),
		stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1),
	}
}

// ends says whether the sender ends the stream: END_STREAM is the same bit of
// DATA and HEADERS.
func (h frameHeader) ends() bool {
	switch h.kind {
	case http2.FrameData, http2.FrameHeaders:
		return h.flags.Has(http2.FlagDataEndStream)
	case http2.FrameRSTStream:
		return true
	}
	return false
}

// goAways is how many GOAWAY frames grpc-go sends before it lets a connection
// drain. Streams that come after that are dropped without an answer.
const goAways = 2

// streamCosts sums up what the DATA frames of each stream cost.
type streamCosts struct {
	limit int64

	// mu guards everything declared below.
	mu sync.Mutex
	// open are the streams that neither side has ended. DATA of others is
	// dropped by grpc-go, which also bounds how many there are.
	open    map[uint32]int64
	last    uint32 // the highest that was opened
	goAways int    // sent
}

// received is told of a frame from the client.
func (s *streamCosts) received(h frameHeader) error {
	switch h.kind {
	case http2.FrameData, http2.FrameHeaders, http2.FrameRSTStream:
	default:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.kind == http2.FrameHeaders && h.stream > s.last && s.goAways < goAways {
		s.last = h.stream
		s.open[h.stream] = 0
	}
	cost, open := s.open[h.stream]
	if open && h.kind == http2.FrameData && h.length > 0 {
		cost += frameCost(h)
		if cost > s.limit {
			return fmt.Errorf("the DATA frames of stream %d take %d bytes of memory beside their own, more than %d", h.stream, cost, s.limit)
		}
		s.open[h.stream] = cost
	}
	if h.ends() {
		delete(s.open, h.stream)
	}
	return nil
}

// sent is told of a frame to the client.
func (s *streamCosts) sent(h frameHeader) {
	goAway := h.kind == http2.FrameGoAway
	if !goAway && !h.ends() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if goAway {
		s.goAways++
		return
	}
	delete(s.open, h.stream)
}

// socketReader reads from a socket once there is something to read.
type socketReader struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // s.readOnce, made once

	// of the read under way
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// newSocketReader returns nil when conn is not a socket itself.
func newSocketReader(conn net.Conn) *socketReader {
	var raw syscall.RawConn
	var err error
	switch conn := conn.(type) {
	case *net.TCPConn:
		raw, err = conn.SyscallConn()
	case *net.UnixConn:
		raw, err = conn.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s := &socketReader{raw: raw}
	s.try = s.readOnce
	return s
}

// read returns a buffer of pool with at least one byte, or an error and
// perhaps a buffer.
func (s *socketReader) read(size int, pool mem.BufferPool) (*[]byte, int, error) {
	s.size, s.pool, s.buf, s.n, s.err = size, pool, nil, 0, nil
	err := s.raw.Read(s.try)
	buf, n := s.buf, s.n
	switch {
	case err != nil:
	case s.err != nil:
		err = s.err
	case n == 0:
		err = io.EOF
	}
	s.pool, s.buf = nil, nil
	return buf, max(n, 0), err
}

// readOnce returns false when there is nothing to read yet.
func (s *socketReader) readOnce(fd uintptr) bool {
	s.buf = s.pool.Get(s.size)
	for {
		s.n, s.err = syscall.Read(int(fd), *s.buf)
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(s.err, syscall.EAGAIN) {
		s.pool.Put(s.buf)
		s.buf = nil
		return false
	}
	return true
}
