// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"math/bits"
	"sync"
)

// bodies keeps buffers for the bodies of requests, one pool per power of two.
// grpc-go's own pools clear what they hand out; these do not, since every byte
// is written before it is read.
var bodies bodyPools

// Buffers of 2^minBodyBits .. 2^maxBodyBits bytes are kept; larger ones than
// any sensible frame are left to the garbage collector.
const (
	minBodyBits = 12
	maxBodyBits = 30
)

type bodyPools struct {
	pools [maxBodyBits - minBodyBits + 1]sync.Pool // of *[]byte
}

// tier is the pool of buffers for n bytes, or beyond the pools.
func (b *bodyPools) tier(n int) int {
	return max(bits.Len(uint(max(n, 1)-1)), minBodyBits) - minBodyBits
}

// capacity is what the buffer has that get returns for n bytes: less than 2·n
// unless n is small.
func (b *bodyPools) capacity(n int) int {
	if tier := b.tier(n); tier < len(b.pools) {
		return 1 << (tier + minBodyBits)
	}
	return n
}

// get returns a buffer of length n. Its content is arbitrary.
func (b *bodyPools) get(n int) *[]byte {
	tier := b.tier(n)
	if tier >= len(b.pools) {
		buf := make([]byte, n)
		return &buf
	}
	if buf, ok := b.pools[tier].Get().(*[]byte); ok {
		*buf = (*buf)[:n]
		return buf
	}
	buf := make([]byte, n, 1<<(tier+minBodyBits))
	return &buf
}

// put takes back a buffer that get returned. nil is allowed.
func (b *bodyPools) put(buf *[]byte) {
	if buf == nil || cap(*buf) > 1<<maxBodyBits {
		return
	}
	b.pools[bits.Len(uint(cap(*buf)))-1-minBodyBits].Put(buf)
}
