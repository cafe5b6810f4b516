// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
