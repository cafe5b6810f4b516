// SPDX-License-Identifier: Apache-2.0

package membudget

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"google.golang.org/grpc/mem"
)

// bufferPool charges a budget for the buffers that are out of a base pool.
//
// grpc-go hands back by Put only the buffers that were read: what a stream
// still had unread when it was cancelled, or when its message was refused as
// too large, is dropped for the garbage collector (the receive buffer in
// internal/transport/transport.go, v1.85). A plain count would keep such bytes
// charged for ever, and a client could use up the budget by cancelling. So
// each buffer has a lease, found by the buffer's identity, that ends with Put
// or when the collector frees the buffer, whichever is first.
type bufferPool struct {
	budget *Budget
	base   mem.BufferPool
	leases sync.Map // weak.Pointer[[]byte] → *lease; one as long as the buffer exists
}

// lease is what one buffer is charged with while it is out of the pool.
type lease struct {
	key  weak.Pointer[[]byte]
	held atomic.Uint64 // bytes; 0 while the buffer is in the pool
}

// NewBufferPool returns a pool that takes its buffers from base and charges
// their capacity to b while they are out. It never refuses: what it charges
// makes others be refused. Give it to a gRPC server whose holdings count
// (grpc/experimental.BufferPool).
func NewBufferPool(b *Budget, base mem.BufferPool) mem.BufferPool {
	return &bufferPool{budget: b, base: base}
}

// Get returns a buffer of the given length and charges its capacity.
func (p *bufferPool) Get(length int) *[]byte {
	buf := p.base.Get(length)
	// mem.NewBuffer neither counts references to buffers this small nor puts
	// them back.
	if size := cap(*buf); !mem.IsBelowBufferPoolingThreshold(size) {
		p.budget.held.Add(uint64(size))
		p.budget.transport.Add(uint64(size))
		p.lease(buf).held.Store(uint64(size))
	}
	return buf
}

// Put ends the buffer's lease and returns it to the base pool. What is
// released is what Get charged, whatever the buffer's capacity is now; a
// buffer of another pool releases nothing.
func (p *bufferPool) Put(buf *[]byte) {
	if l, ok := p.leases.Load(weak.Make(buf)); ok {
		p.end(l.(*lease))
	}
	p.base.Put(buf)
}

func (p *bufferPool) end(l *lease) {
	if n := l.held.Swap(0); n != 0 {
		p.budget.transport.Add(-n)
		p.budget.Release(n)
	}
}

// lease finds the lease of a buffer, or makes it when base has allocated a new
// one.
func (p *bufferPool) lease(buf *[]byte) *lease {
	key := weak.Make(buf)
	if l, ok := p.leases.Load(key); ok {
		return l.(*lease)
	}
	l := &lease{key: key}
	p.leases.Store(key, l)
	runtime.AddCleanup(buf, p.collected, l)
	return l
}

// collected runs when the garbage collector has freed the lease's buffer.
func (p *bufferPool) collected(l *lease) {
	p.leases.Delete(l.key)
	p.end(l)
}
