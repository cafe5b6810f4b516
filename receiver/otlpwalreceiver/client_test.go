// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
)

// How long tests wait for what happens soon, and how often they look.
const (
	waitFor = 20 * time.Second
	tick    = 2 * time.Millisecond
)

// bytesMessage is a gRPC message that a test made itself, right or wrong.
type bytesMessage struct{ b []byte }

type bytesCodec struct{}

func (bytesCodec) Name() string { return protoCodec }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*bytesMessage).b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*bytesMessage).b = data.Materialize()
	return nil
}

func newRequest(t testing.TB, method, url string, body []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	require.NoError(t, err)
	return req
}

// grpcClient speaks HTTP/2 frame by frame, to send what no library would.
type grpcClient struct {
	t    testing.TB
	conn net.Conn
	fr   *http2.Framer
	hbuf bytes.Buffer
	enc  *hpack.Encoder
}

func dialGRPC(t testing.TB, r *rig) *grpcClient {
	t.Helper()
	conn, err := net.Dial("tcp", r.servers.grpcAddr.String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	c := &grpcClient{t: t, conn: conn, fr: http2.NewFramer(conn, conn)}
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.hbuf)
	require.NoError(t, c.fr.WriteSettings())
	return c
}

func (c *grpcClient) headers(stream uint32, method string, more ...string) {
	c.t.Helper()
	require.NoError(c.t, c.manyHeaders(stream, method, more...))
}

// manyHeaders fails when the server closes the connection meanwhile.
func (c *grpcClient) manyHeaders(stream uint32, method string, more ...string) error {
	fields := append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "weir",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
	c.hbuf.Reset()
	for i := 0; i < len(fields); i += 2 {
		require.NoError(c.t, c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	const most = 16 << 10 // of a frame
	block := c.hbuf.Bytes()
	first := min(len(block), most)
	err := c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:first], EndHeaders: first == len(block)})
	for rest := block[first:]; len(rest) > 0 && err == nil; {
		n := min(len(rest), most)
		err = c.fr.WriteContinuation(stream, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	return err
}

func (c *grpcClient) data(stream uint32, b []byte, end bool) {
	c.t.Helper()
	require.NoError(c.t, c.fr.WriteData(stream, end, b))
}

func (c *grpcClient) reset(stream uint32) {
	c.t.Helper()
	require.NoError(c.t, c.fr.WriteRSTStream(stream, http2.ErrCodeCancel))
}

// settled waits until the server has read all frames that were sent.
func (c *grpcClient) settled() {
	c.t.Helper()
	sent := [8]byte{'s', 'e', 't', 't', 'l', 'e', 'd'}
	require.NoError(c.t, c.fr.WritePing(false, sent))
	c.conn.SetReadDeadline(time.Now().Add(waitFor))
	for {
		f, err := c.fr.ReadFrame()
		require.NoError(c.t, err)
		if ping, ok := f.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == sent {
			return
		}
	}
}

// cutOff waits until the server has closed the connection, or has reset the
// stream: then it returns false.
func (c *grpcClient) cutOff(stream uint32) bool {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(waitFor))
	for {
		f, err := c.fr.ReadFrame()
		if err != nil {
			require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded)
			return true
		}
		if rst, ok := f.(*http2.RSTStreamFrame); ok && rst.StreamID == stream {
			return false
		}
	}
}

// status waits for the stream's trailers.
func (c *grpcClient) status(stream uint32) codes.Code {
	c.conn.SetReadDeadline(time.Now().Add(waitFor))
	for {
		f, err := c.fr.ReadFrame()
		if !assert.NoError(c.t, err) {
			return codes.Unknown
		}
		h, ok := f.(*http2.MetaHeadersFrame)
		if !ok || h.StreamID != stream {
			continue
		}
		for _, field := range h.Fields {
			if field.Name == "grpc-status" {
				n, err := strconv.Atoi(field.Value)
				assert.NoError(c.t, err)
				return codes.Code(n)
			}
		}
	}
}

// compress encodes b as an HTTP body.
func compress(t testing.TB, encoding string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch encoding {
	case "":
		return b
	case "snappy":
		return snappy.Encode(nil, b)
	case "x-snappy-framed":
		w = snappy.NewBufferedWriter(&out)
	case "gzip":
		w = gzip.NewWriter(&out)
	case "zlib", "deflate": // RFC 9110: deflate is the zlib format
		w = zlib.NewWriter(&out)
	case "zstd":
		z, err := zstd.NewWriter(&out)
		require.NoError(t, err)
		w = z
	case "lz4":
		w = lz4.NewWriter(&out)
	default:
		t.Fatalf("unknown encoding %q", encoding)
	}
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}
