// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"errors"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// rawMessage is a gRPC message as it came from the wire, decompressed, in one
// piece: what the walk over it and the log's frame need.
type rawMessage struct {
	buffer *[]byte // from bodies; nil when there is none
}

func (m *rawMessage) release() {
	bodies.put(m.buffer)
	m.buffer = nil
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

// Unmarshal copies data into one buffer, so that grpc-go's pieces go back to
// their pool, where they are counted, at once.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return c.next.Unmarshal(data, v)
	}
	if m.buffer != nil {
		return errTwoMessages
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
