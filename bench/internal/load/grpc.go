// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// LogsMethod is the method that requests are sent to.
const LogsMethod = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// raw is a codec of bytes: payloads go out as they are, answers are dropped.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*[]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(*p)}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

// Client sends requests over some connections.
type Client struct{ conns []*grpc.ClientConn }

// Dial connects to addr so many times.
func Dial(addr string, connections int) (*Client, error) {
	c := &Client{}
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallSendMsgSize(1<<30)))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// Send sends one request over the connection of a writer.
func (c *Client) Send(ctx context.Context, writer int, payload []byte, opts ...grpc.CallOption) error {
	var nothing []byte
	return c.conns[writer%len(c.conns)].Invoke(ctx, LogsMethod, &payload, &nothing, opts...)
}

// Close closes the connections.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
