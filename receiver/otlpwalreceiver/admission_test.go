// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelweir/weir/internal/otlpwire"
	"github.com/otelweir/weir/internal/refusal"
)

// holdingLog is a log whose commits wait for release.
func holdingLog() (log *fakeLog, entered chan struct{}, release chan struct{}) {
	entered, release = make(chan struct{}, 100), make(chan struct{})
	log = &fakeLog{}
	log.set(func(ctx context.Context) error {
		entered <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return &refusal.Error{Reason: refusal.Abandoned, Text: "gave up"}
		}
	})
	return log, entered, release
}

// requireRefused wants the same refusal over every protocol and encoding.
func (r *rig) requireRefused(code codes.Code, httpStatus int, reason, text string) {
	r.t.Helper()
	payload, json := sample(r.t, otlpwire.Logs)
	err := r.export(context.Background(), otlpwire.Logs, payload)
	require.Equal(r.t, code, status.Code(err), "%v", err)
	info, delay := details(r.t, status.Convert(err).Proto())
	require.Equal(r.t, reason, info.GetReason())
	require.Equal(r.t, time.Second, delay.GetRetryDelay().AsDuration())
	require.ErrorContains(r.t, err, text)
	for contentType, body := range map[string][]byte{contentProtobuf: payload, contentJSON: json} {
		a := r.post(otlpwire.Logs, contentType, body)
		require.Equal(r.t, httpStatus, a.code)
		require.Equal(r.t, "1", a.header.Get("Retry-After"))
		s := a.status(r.t)
		require.Equal(r.t, code, codes.Code(s.GetCode()))
		require.Contains(r.t, s.GetMessage(), text)
		info, _ := details(r.t, s)
		require.Equal(r.t, reason, info.GetReason())
	}
}

func TestB02_MaxRequestsOverAllConnectionsAndProtocols(t *testing.T) {
	log, entered, release := holdingLog()
	r := newRig(t, log, func(c *Config) { c.Admission.MaxRequests = 2 })
	payload, _ := sample(t, otlpwire.Logs)

	var held sync.WaitGroup
	held.Go(func() { assert.NoError(t, r.export(t.Context(), otlpwire.Logs, payload)) })
	held.Go(func() { assert.Equal(t, http.StatusOK, r.post(otlpwire.Logs, contentProtobuf, payload).code) })
	<-entered
	<-entered
	r.requireRefused(codes.ResourceExhausted, 503, "in_flight_requests", "requests in flight: 2 reach limit 2 (admission.max_requests); retry in 1s")

	close(release)
	held.Wait()
	r.atRest()
	require.NoError(t, r.export(t.Context(), otlpwire.Logs, payload))
	assert.EqualValues(t, 1, r.front.refusals.counts[refusal.InFlightRequests][otlpwire.Logs][transportGRPC].Load())
	assert.EqualValues(t, 2, r.front.refusals.counts[refusal.InFlightRequests][otlpwire.Logs][transportHTTP].Load())
}

func TestB02_BytesInFlight(t *testing.T) {
	log, entered, release := holdingLog()
	r := newRig(t, log, func(c *Config) {
		c.WAL.MaxFrameSize = 64 * KiB
		c.Admission.MaxInFlightBytes = 8 * MiB
	})
	payload, _ := sample(t, otlpwire.Logs)

	// Somebody holds all there is.
	require.True(t, r.front.admission.budget.TryAcquire(uint64(8*MiB)))
	r.requireRefused(codes.ResourceExhausted, 503, "in_flight_bytes", "bytes in flight: held 8388608 + request 0 = 8388608 reach limit 8388608 (admission.max_in_flight_bytes); retry in 1s")
	r.front.admission.budget.Release(uint64(8 * MiB))

	// Room for the first bytes, but not for what is read then.
	r.front.admission.budget.TryAcquire(uint64(8*MiB - 2*KiB))
	big := append([]byte{0x12, 0x80, 0x80, 0x02}, make([]byte, 32<<10)...) // an unknown field of 32 KiB
	a := r.post(otlpwire.Logs, contentProtobuf, big)
	assert.Equal(t, 503, a.code)
	info, delay := details(t, a.status(t))
	assert.Equal(t, "in_flight_bytes", info.GetReason())
	assert.NotNil(t, delay)
	err := r.export(t.Context(), otlpwire.Logs, big)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	info, delay = details(t, status.Convert(err).Proto())
	assert.Equal(t, "in_flight_bytes", info.GetReason())
	assert.NotNil(t, delay)
	r.front.admission.budget.Release(uint64(8*MiB - 2*KiB))

	// A request whose frame is still referenced keeps its charge, although
	// its client gave up.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.export(ctx, otlpwire.Logs, payload) }()
	<-entered
	assert.NotZero(t, r.front.admission.budget.Held())
	cancel()
	assert.Equal(t, codes.Canceled, status.Code(<-done))
	close(release)
	r.atRest()
}

func TestB02_ShuttingDown(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	r.front.admission.close() // what stop does first, before it closes listeners
	r.requireRefused(codes.Unavailable, 503, "shutting_down", "the receiver is shutting down; retry in 1s")
	assert.Empty(t, log.take())
	r.atRest()
}

func TestShutdownLetsRequestsInFlightEnd(t *testing.T) {
	log, entered, release := holdingLog()
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Logs)
	var held sync.WaitGroup
	held.Go(func() { assert.NoError(t, r.export(t.Context(), otlpwire.Logs, payload)) })
	held.Go(func() { assert.Equal(t, http.StatusOK, r.post(otlpwire.Logs, contentProtobuf, payload).code) })
	<-entered
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- r.servers.stop(context.Background()) }()
	require.Eventually(t, r.front.admission.closing.Load, waitFor, tick)
	close(release)
	require.NoError(t, <-stopped)
	held.Wait()
}

func TestShutdownDoesNotWaitForStuckRequests(t *testing.T) {
	log, entered, _ := holdingLog() // never released
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Logs)
	var held sync.WaitGroup
	held.Go(func() { assert.Equal(t, codes.Unavailable, status.Code(r.export(t.Context(), otlpwire.Logs, payload))) })
	held.Go(func() {
		req := newRequest(t, http.MethodPost, r.url(logsURLPath), payload)
		req.Header.Set("Content-Type", contentProtobuf)
		resp, err := r.client.Do(req)
		if err == nil { // answered before the connection was closed
			resp.Body.Close()
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		}
	})
	<-entered
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // as if its patience had ended
	require.NoError(t, r.servers.stop(ctx))
	held.Wait()
	r.atRest()
}

func TestB02_BodyTimeout(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) { c.Admission.BodyTimeout = 150 * time.Millisecond })
	payload, _ := sample(t, otlpwire.Logs)

	t.Run("grpc", func(t *testing.T) {
		stream, err := r.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/"+grpcServices[otlpwire.Logs]+"/Export", grpc.ForceCodecV2(bytesCodec{}))
		require.NoError(t, err)
		// A message, and then never the end of the stream.
		require.NoError(t, stream.SendMsg(&bytesMessage{nil}))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(&bytesMessage{})))
	})
	for _, encoding := range []string{"", "gzip", "zstd", "snappy", "x-snappy-framed", "lz4", "deflate"} {
		t.Run("http "+encoding, func(t *testing.T) {
			c := dialSlow(t, r, logsURLPath, encoding, len(payload)+100)
			_, err := c.Write(compress(t, encoding, payload)[:3])
			require.NoError(t, err)
			a := readAnswer(t, c)
			assert.Equal(t, 503, a.code)
			assert.Equal(t, "1", a.header.Get("Retry-After"))
			s := a.status(t)
			assert.Equal(t, codes.DeadlineExceeded, codes.Code(s.GetCode()))
			assert.Equal(t, "the request's body did not arrive within 150ms (admission.body_timeout); retry in 1s", s.GetMessage())
			info, delay := details(t, s)
			assert.Equal(t, "body_timeout", info.GetReason())
			assert.NotNil(t, delay)
		})
	}
	assert.Empty(t, log.take())
	r.atRest()
	assert.EqualValues(t, 1, r.front.refusals.counts[refusal.BodyTimeout][otlpwire.Logs][transportGRPC].Load())
	assert.EqualValues(t, 7, r.front.refusals.counts[refusal.BodyTimeout][otlpwire.Logs][transportHTTP].Load())
}

// A commit that takes longer than the body may must not look like a slow body
// or a client that has gone.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	const timeout = time.Second
	log := &fakeLog{}
	log.set(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return &refusal.Error{Reason: refusal.Abandoned, Text: "gave up"}
		case <-time.After(timeout * 3 / 2):
			return nil
		}
	})
	r := newRig(t, log, func(c *Config) { c.Admission.BodyTimeout = timeout })
	payload, json := sample(t, otlpwire.Logs)
	require.NoError(t, r.export(t.Context(), otlpwire.Logs, payload))
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentProtobuf, payload).code)
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentJSON, json).code)
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentProtobuf, compress(t, "snappy", payload), "Content-Encoding", "snappy").code)
	r.atRest()
}

// dialSlow opens a connection and sends the headers of a POST with a body of
// length bytes, or a chunked one when length < 0.
func dialSlow(t testing.TB, r *rig, path, encoding string, length int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.servers.httpAddr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	header := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: %s\r\nContent-Length: %d\r\n", path, contentProtobuf, length)
	if encoding != "" {
		header += "Content-Encoding: " + encoding + "\r\n"
	}
	_, err = io.WriteString(c, header+"\r\n")
	require.NoError(t, err)
	return c
}

func readAnswer(t testing.TB, c net.Conn) answer {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(waitFor)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{code: resp.StatusCode, header: resp.Header, body: body}
}

// Slow clients cost request slots for a bounded time and next to no memory.
func TestE05_DribblingClients(t *testing.T) {
	const slots, timeout = 8, 3 * time.Second
	log := &fakeLog{}
	r := newRig(t, log, func(c *Config) {
		c.Admission.MaxRequests = slots
		c.Admission.BodyTimeout = timeout
	})
	payload, _ := sample(t, otlpwire.Logs)

	// Half of the slots go to HTTP bodies, half to gRPC messages, of which
	// only the first bytes ever come.
	var slow sync.WaitGroup
	for i := range slots {
		if i%2 == 0 {
			c := dialSlow(t, r, logsURLPath, "", 1<<20)
			_, err := c.Write(payload[:10])
			require.NoError(t, err)
			slow.Go(func() { assert.Equal(t, 503, readAnswer(t, c).code) })
			continue
		}
		c := dialGRPC(t, r)
		c.headers(1, "/"+grpcServices[otlpwire.Logs]+"/Export")
		prefix := binary.BigEndian.AppendUint32([]byte{0}, 1<<20)
		c.data(1, append(prefix, payload[:10]...), false)
		slow.Go(func() { assert.Equal(t, codes.DeadlineExceeded, c.status(1)) })
	}
	require.Eventually(t, func() bool { return r.front.admission.requests.Load() == slots }, waitFor, tick)
	r.requireRefused(codes.ResourceExhausted, 503, "in_flight_requests", "retry in 1s")
	assert.Less(t, r.front.admission.budget.Held(), uint64(slots*(firstRead+16<<10)+1), "only real bytes are charged")

	slow.Wait()
	require.NoError(t, r.export(t.Context(), otlpwire.Logs, payload))
	assert.Equal(t, 200, r.post(otlpwire.Logs, contentProtobuf, payload).code)
	r.atRest()
	assert.Len(t, log.take(), 2)
}

// Whatever a gRPC stream does, its slot comes back.
func TestEveryStreamGivesItsSlotBack(t *testing.T) {
	log := &fakeLog{}
	r := newRig(t, log, nil)
	method := "/" + grpcServices[otlpwire.Logs] + "/Export"
	for name, act := range map[string]func(t *testing.T, c *grpcClient){
		"reset after the headers": func(_ *testing.T, c *grpcClient) { c.headers(1, method); c.reset(1) },
		"reset in the message": func(_ *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, []byte{0, 0, 0, 1, 0, 7, 7, 7}, false)
			c.reset(1)
		},
		"connection closed in the message": func(_ *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, []byte{0, 0, 0, 1, 0, 7, 7, 7}, false)
			c.conn.Close()
		},
		"no message": func(t *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, nil, true)
			assert.Equal(t, codes.Internal, c.status(1))
		},
		"two messages": func(t *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, true)
			assert.Equal(t, codes.Internal, c.status(1))
		},
		"a message over grpc-go's limit": func(t *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, []byte{0, 0xff, 0, 0, 0, 1}, false)
			assert.Equal(t, codes.ResourceExhausted, c.status(1))
		},
		"unknown compression": func(t *testing.T, c *grpcClient) {
			c.headers(1, method, "grpc-encoding", "rot13")
			c.data(1, []byte{1, 0, 0, 0, 1, 0}, true)
			assert.Equal(t, codes.Unimplemented, c.status(1))
		},
		"unknown method": func(t *testing.T, c *grpcClient) {
			c.headers(1, method+"s")
			c.data(1, []byte{0, 0, 0, 0, 0}, true)
			assert.Equal(t, codes.Unimplemented, c.status(1))
		},
		"not protobuf": func(t *testing.T, c *grpcClient) {
			c.headers(1, method)
			c.data(1, []byte{0, 0, 0, 0, 1, 0xff}, true)
			assert.Equal(t, codes.InvalidArgument, c.status(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			act(t, dialGRPC(t, r))
			require.Eventually(t, func() bool { return r.front.admission.requests.Load() == 0 }, waitFor, tick)
		})
	}
	assert.Empty(t, log.take())
}

// Clients that give up while the disk stalls make no room for others: what is
// queued of them is still there.
func TestB02_GivingUpFreesNoSlot(t *testing.T) {
	n := startNode(t, nodeOptions{change: func(c *Config) {
		c.Admission.MaxRequests = 4
		c.MetadataKeys = []string{"x-kept"}
	}})
	payload := requestOf(t, otlpwire.Logs, 1)
	n.recv.journal.TurnC() <- struct{}{} // nobody can write
	kept := strings.Repeat("k", 4<<10)
	for i := range 4 {
		ctx, cancel := context.WithCancel(grpcmetadata.AppendToOutgoingContext(t.Context(), "x-kept", kept))
		done := make(chan error, 1)
		req := newRequest(t, http.MethodPost, n.url(logsURLPath), payload).WithContext(ctx)
		go func() {
			if i%2 == 0 {
				done <- n.export(ctx, otlpwire.Logs, payload)
				return
			}
			req.Header.Set("Content-Type", contentProtobuf)
			req.Header.Set("X-Kept", kept)
			resp, err := n.client.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			done <- err
		}()
		eventually(t, "queued", func() bool { return n.recv.journal.Stats().Unflushed > uint64(i+1)*uint64(len(kept)) })
		cancel()
		require.Error(t, <-done)
	}
	for range 3 {
		err := n.export(t.Context(), otlpwire.Logs, payload)
		info, _ := details(t, status.Convert(err).Proto())
		require.Equal(t, "in_flight_requests", info.GetReason(), "%v", err)
	}
	assert.EqualValues(t, 4, n.front.admission.requests.Load())
	assert.GreaterOrEqual(t, n.front.admission.budget.Held(), uint64(4*len(kept)), "what frames keep of the metadata is charged")
	n.recv.journal.ReleaseTurn()
	n.atRest()
	require.NoError(t, n.export(t.Context(), otlpwire.Logs, payload))
	n.stop()
}

// Closing the HTTP server does not end its handlers; stop waits until they
// have ended.
func TestShutdownWaitsForHTTPHandlers(t *testing.T) {
	log := &fakeLog{}
	entered, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	log.set(func(context.Context) error { // the request's end does not impress it
		close(entered)
		<-release
		ended.Store(true)
		return nil
	})
	r := newRig(t, log, nil)
	payload, _ := sample(t, otlpwire.Logs)
	var client sync.WaitGroup
	client.Go(func() {
		req := newRequest(t, http.MethodPost, r.url(logsURLPath), payload)
		req.Header.Set("Content-Type", contentProtobuf)
		if resp, err := r.client.Do(req); err == nil {
			resp.Body.Close()
		}
	})
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // as if its patience had ended
	stopped := make(chan error, 1)
	go func() { stopped <- r.servers.stop(ctx) }()
	client.Wait() // its connection was closed
	select {
	case err := <-stopped:
		t.Fatalf("stop returned while a handler ran: %v", err)
	default:
	}
	close(release)
	require.NoError(t, <-stopped)
	assert.True(t, ended.Load())
	assert.False(t, r.servers.handlers.begin(), "none begins after it")
}
