// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/receiver/otlpwalreceiver/internal/metadata"
)

// scriptedConn reads what it was given, in pieces.
type scriptedConn struct {
	net.Conn
	script []byte
	piece  func() int
}

func (c *scriptedConn) Read(p []byte) (int, error) {
	if len(c.script) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.piece())], c.script)
	c.script = c.script[n:]
	return n, nil
}

func (c *scriptedConn) Write(p []byte) (int, error) { return len(p), nil }

// However the bytes of a connection are cut, what its streams cost is what the
// frames say.
func TestE05_FramesAreFollowedThroughAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 4000
		var in, out bytes.Buffer
		in.WriteString(http2.ClientPreface)
		client, server := http2.NewFramer(&in, nil), http2.NewFramer(&out, nil)
		want := map[uint32]int64{}
		last, over := uint32(0), false
		stream := rapid.Uint32Range(1, 6)
		payload := make([]byte, 16<<10)
		data := func() {
			id, end := stream.Draw(t, "stream"), rapid.Bool().Draw(t, "end")
			n, pad := rapid.IntRange(0, 16<<10-256).Draw(t, "length"), rapid.IntRange(-1, 255).Draw(t, "padding")
			if rapid.Bool().Draw(t, "small") {
				n %= 100
			}
			cost := int64(0)
			if pad < 0 {
				require.NoError(t, client.WriteData(id, end, payload[:n]))
			} else {
				require.NoError(t, client.WriteDataPadded(id, end, payload[:n], payload[:pad]))
				n += 1 + pad
				cost = maxPadding
			}
			if _, open := want[id]; open && n > 0 {
				want[id] += cost + frameBuffer(n) - int64(n)
				over = over || want[id] > limit
			}
			if end {
				delete(want, id)
			}
		}
		headers := func() {
			id, end := stream.Draw(t, "stream"), rapid.Bool().Draw(t, "end")
			require.NoError(t, client.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, EndStream: end, EndHeaders: true, PadLength: 7,
				BlockFragment: payload[:rapid.IntRange(0, 300).Draw(t, "fields")],
			}))
			if id > last {
				last = id
				want[id] = 0
			}
			if end {
				delete(want, id)
			}
		}
		other := func() {
			require.NoError(t, client.WritePing(false, [8]byte{9}))
			require.NoError(t, client.WriteWindowUpdate(1, 1<<30))
			require.NoError(t, client.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}))
		}
		reset := func() {
			id := stream.Draw(t, "stream")
			require.NoError(t, client.WriteRSTStream(id, http2.ErrCodeCancel))
			delete(want, id)
		}
		for range rapid.IntRange(0, 30).Draw(t, "frames") {
			rapid.SampledFrom([]func(){data, data, data, headers, other, reset}).Draw(t, "frame")()
			if over {
				break
			}
		}
		ended := rapid.Bool().Draw(t, "server ends a stream")
		id := stream.Draw(t, "stream that the server ends")
		if ended {
			require.NoError(t, server.WriteWindowUpdate(id, 1))
			require.NoError(t, server.WriteData(id, false, payload[:100]))
			require.NoError(t, server.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: true}))
			delete(want, id)
		}

		cut := func() int { return rapid.IntRange(1, 4000).Draw(t, "piece") }
		if rapid.Bool().Draw(t, "tiny pieces") {
			cut = func() int {
				return rapid.IntRange(1, 5).Draw(t, "piece") * rapid.SampledFrom([]int{1, 1, 1000}).Draw(t, "times")
			}
		}
		conn := newWatchedConn(&scriptedConn{script: in.Bytes(), piece: cut}, limit)
		_, err := io.ReadAll(conn)
		if over {
			require.ErrorContains(t, err, "more than 4000")
			return
		}
		require.NoError(t, err)
		for out.Len() > 0 {
			_, err := conn.Write(out.Next(cut()))
			require.NoError(t, err)
		}
		require.Equal(t, want, conn.streams.open)
	})
}

// However many ordinary frames are on the way before a message that is too
// large is refused, the connection goes on: its other streams are honest.
func TestE05_OrdinaryFramesEndNoConnection(t *testing.T) {
	s := streamCosts{limit: streamLimit(64 * KiB), open: map[uint32]int64{}}
	require.NoError(t, s.received(frameHeader{kind: http2.FrameHeaders, stream: 1}))
	for range 10_000 {
		require.NoError(t, s.received(frameHeader{kind: http2.FrameData, stream: 1, length: 16 << 10}))
	}
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = s.received(frameHeader{kind: http2.FrameData, stream: 1, length: 1025})
	}
	require.ErrorContains(t, err, "the DATA frames of stream 1 take", "odd ones do")
}

// Streams that grpc-go drops without a word while a connection drains are not
// remembered.
func TestE05_DrainingConnectionRemembersNothingNew(t *testing.T) {
	s := streamCosts{limit: streamLimit(MiB), open: map[uint32]int64{}}
	for id := uint32(1); id < 100; id += 2 {
		require.NoError(t, s.received(frameHeader{kind: http2.FrameHeaders, stream: id}))
		if id < 5 {
			s.sent(frameHeader{kind: http2.FrameGoAway})
		}
	}
	require.Len(t, s.open, 2)
}

// What is counted for a frame is the buffer that it gets.
func TestE05_FrameCostIsTheBufferThatIsTaken(t *testing.T) {
	for n := 1; n <= 16<<10; n++ {
		if mem.IsBelowBufferPoolingThreshold(n) {
			require.EqualValues(t, n+smallFrame, frameBuffer(n))
			continue
		}
		buf := pieces.Get(n)
		require.EqualValues(t, cap(*buf), frameBuffer(n), "%d", n)
		pieces.Put(buf)
	}
}

// A request holds what is stated, however its frames are padded and cut; more
// of it ends the connection, or the stream where flow control does so before,
// and nothing stays.
func TestE05_OddFramesHoldWhatIsStated(t *testing.T) {
	for name, tt := range map[string]struct {
		data, pad int // bytes per frame; pad < 0: none
	}{
		"one byte":            {1, -1},
		"one byte, padded":    {1, 255},
		"300 bytes, padded":   {300, 255},
		"1020 bytes":          {1020, -1},
		"1025 bytes":          {1025, -1},
		"only padding":        {0, 255},
		"16 KiB with padding": {16<<10 - 256, 255},
	} {
		t.Run(name, func(t *testing.T) {
			log := &fakeLog{}
			r := newRig(t, log, func(c *Config) {
				c.WAL.MaxFrameSize = 64 * KiB
				c.Admission.BodyTimeout = time.Minute
			})
			const stated = 2 * 2 << 20 // 2 × the transport limit
			require.EqualValues(t, stated, 2*r.cfg.grpcLimit())
			limit := streamLimit(r.cfg.grpcLimit())
			c := dialGRPC(t, r)
			var frame bytes.Buffer
			length := tt.data
			if tt.pad < 0 {
				require.NoError(t, http2.NewFramer(&frame, nil).WriteData(1, false, make([]byte, tt.data)))
			} else {
				length += 1 + tt.pad
				require.NoError(t, http2.NewFramer(&frame, nil).WriteDataPadded(1, false, make([]byte, tt.data), make([]byte, tt.pad)))
			}
			most := int(limit / frameBuffer(length)) // fewer than are allowed
			if tt.data > 1 {                         // within the stream's window, or a client would have to wait
				most = min(most, (1<<16-6)/length)
			}
			frames := bytes.Repeat(frame.Bytes(), most)
			c.settled()
			before := heapLive()

			c.headers(1, "/"+grpcServices[otlpwire.Logs]+"/"+exportMethod)
			c.data(1, []byte{0, 0, 16, 0, 0}, false)
			_, err := c.conn.Write(frames)
			require.NoError(t, err)
			c.settled()
			held := heapLive() - before
			t.Logf("%d frames hold %d bytes", most, held)
			assert.LessOrEqual(t, held, int64(stated))
			assert.EqualValues(t, 1, r.front.admission.requests.Load())

			go func() { // more and more, until it is over
				for {
					if _, err := c.conn.Write(frames); err != nil {
						return
					}
				}
			}()
			closed := c.cutOff(1)
			assert.True(t, closed || tt.data > 1, "the connection goes on")
			c.conn.Close()
			r.collected()
			require.NoError(t, r.export(t.Context(), otlpwire.Logs, requestOf(t, otlpwire.Logs, 1)))
			r.collected()
		})
	}
}

// seen hands on the connections that are watched.
type seen struct {
	watched
	conns chan *watchedConn
}

func (s seen) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.watched.ServerHandshake(conn)
	if err == nil {
		s.conns <- conn.(*watchedConn)
	}
	return conn, info, err
}

// Whichever side ends a stream, nothing is remembered of it, nor of what its
// client sends until it knows.
func TestE05_EndedStreamsAreForgotten(t *testing.T) {
	f, err := newFront(testConfig(func(c *Config) { c.Admission.MaxRequests = 1 }), &fakeLog{}, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	transport := newGRPCTransport(f, []signal{otlpwire.Logs})
	creds := seen{watched: watched{limit: streamLimit(MiB)}, conns: make(chan *watchedConn, 1)}
	server := grpc.NewServer(append(transport.options(creds.watched), grpc.Creds(creds))...)
	transport.register(server)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, server.Serve(listener)) })
	defer serving.Wait()
	defer server.Stop()
	c := dialGRPC(t, &rig{servers: servers{grpcAddr: listener.Addr()}})
	method := "/" + grpcServices[otlpwire.Logs] + "/" + exportMethod
	conn := <-creds.conns
	open := func() int {
		conn.streams.mu.Lock()
		defer conn.streams.mu.Unlock()
		return len(conn.streams.open)
	}

	held, refused := f.admission.enter()
	require.Nil(t, refused)
	for id := uint32(1); id < 40; id += 2 {
		c.headers(id, method)
		c.data(id, make([]byte, 1000), false)
		assert.Equal(t, codes.ResourceExhausted, c.status(id))
		c.data(id, make([]byte, 1000), false) // it does not know yet
	}
	held.leave()
	c.headers(101, method)
	c.data(101, []byte{0, 0, 0, 1, 0}, false)
	c.settled()
	require.Eventually(t, func() bool { return open() == 1 }, waitFor, tick, "only what goes on is remembered")
	c.reset(101)
	c.headers(103, method+"s")
	assert.Equal(t, codes.Unimplemented, c.status(103))
	c.settled()
	require.Eventually(t, func() bool { return open() == 0 && f.admission.requests.Load() == 0 }, waitFor, tick)
	c.headers(105, method)
	c.data(105, []byte{0, 0, 0, 0, 0}, true)
	assert.Equal(t, codes.OK, c.status(105))
	assert.Zero(t, open())
	c.conn.Close()
}

// The largest message passes, on every kind of connection, and whoever looks at
// the client sees what it did without us.
func TestE05_LargestMessagePasses(t *testing.T) {
	certificate, key := selfSigned(t)
	withTLS := func(c *Config) {
		tc := configtls.NewDefaultServerConfig()
		tc.CertPem, tc.KeyPem = configopaque.String(certificate), configopaque.String(key)
		c.Protocols.GRPC.Get().TLS = configoptional.Some(tc)
	}
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(certificate)))
	socket := filepath.Join(t.TempDir(), "s")
	for name, tt := range map[string]struct {
		change func(*Config)
		target func(*rig) string
		creds  credentials.TransportCredentials
		tls    bool
	}{
		"tcp": {change: func(*Config) {}},
		"tls": {change: withTLS, tls: true, target: func(r *rig) string { return "passthrough:///" + r.servers.grpcAddr.String() }, creds: credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"})},
		"unix": {change: func(c *Config) {
			c.Protocols.GRPC.Get().NetAddr = confignet.AddrConfig{Transport: confignet.TransportTypeUnix, Endpoint: socket}
		}, target: func(*rig) string { return "unix:" + socket }, creds: insecure.NewCredentials()},
	} {
		t.Run(name, func(t *testing.T) {
			log := &fakeLog{}
			var met sync.Map
			log.set(func(ctx context.Context) error {
				p, _ := peer.FromContext(ctx)
				met.Store("auth", p.AuthInfo)
				met.Store("client", client.FromContext(ctx).Addr)
				return nil
			})
			r := newRig(t, log, func(c *Config) {
				c.WAL.MaxFrameSize = MiB
				tt.change(c)
			})
			if tt.target != nil {
				conn, err := grpc.NewClient(tt.target(r), grpc.WithTransportCredentials(tt.creds))
				require.NoError(t, err)
				require.NoError(t, r.conn.Close())
				r.conn = conn
			}
			payload := requestOf(t, otlpwire.Logs, 1)
			rest := int(r.cfg.grpcLimit()) - len(payload) - protowire.SizeTag(99)
			rest -= protowire.SizeVarint(uint64(rest))
			payload = protowire.AppendBytes(protowire.AppendTag(payload, 99, protowire.BytesType), make([]byte, rest))
			require.EqualValues(t, r.cfg.grpcLimit(), len(payload))
			for range 3 {
				require.NoError(t, r.export(t.Context(), otlpwire.Logs, payload))
			}
			require.Len(t, log.take(), 3)
			auth, _ := met.Load("auth")
			if tt.tls {
				info, ok := auth.(credentials.TLSInfo)
				require.True(t, ok, "%T", auth)
				assert.Equal(t, "h2", info.State.NegotiatedProtocol)
			} else {
				assert.Nil(t, auth)
			}
			addr, _ := met.Load("client")
			assert.NotNil(t, addr)
			r.atRest()
		})
	}
}

func selfSigned(t testing.TB) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
