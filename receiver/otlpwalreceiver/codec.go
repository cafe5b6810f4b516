// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"errors"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/otelweir/weir/internal/membudget"
)

// rawMessage is a gRPC message as it came from the wire, decompressed, in one
// piece: what the walk over it and the log's frame need.
type rawMessage struct {
	charge *membudget.Charge // of buffer, made before the message is received
	buffer *[]byte           // from bodies; nil when there is none
	short  uint64            // bytes for which there was no memory: no buffer
}

// release gives back what the message holds, once.
func (m *rawMessage) release() {
	m.charge.Release()
	bodies.put(m.buffer)
}

// emptyReply is the answer of every Export method: the protobuf of a response
// without a partial success is no bytes at all.
type emptyReply struct{}

var errTwoMessages = errors.New("more than one message")

// rawCodec takes messages as bytes. It handles only the types above; all else
// goes to the codec it stands in front of.
type rawCodec struct{ next encoding.CodecV2 }

var _ encoding.CodecV2 = rawCodec{}

func newRawCodec() rawCodec { return rawCodec{next: encoding.GetCodecV2(protoCodec)} }

const protoCodec = "proto"

// Name is that of the codec it stands in front of: it is part of the content
// type.
func (rawCodec) Name() string { return protoCodec }

// Unmarshal copies data into one buffer, which is charged before it is taken.
// Without room for it there is none, and no error: grpc-go would answer with a
// status of its own.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return c.next.Unmarshal(data, v)
	}
	if m.buffer != nil || m.short != 0 {
		return errTwoMessages
	}
	if n := uint64(bodies.capacity(data.Len())); !m.charge.GrowReceived(n) {
		m.short = n
		return nil
	}
	m.buffer = bodies.get(data.Len())
	data.CopyTo(*m.buffer)
	return nil
}

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(emptyReply); ok {
		return nil, nil
	}
	return c.next.Marshal(v)
}
