// SPDX-License-Identifier: Apache-2.0

// Package membudget bounds the bytes held for requests and deliveries.
package membudget // import "github.com/otelweir/weir/internal/membudget"

import (
	"context"

	"google.golang.org/grpc/mem"
)

// STUB: signatures agreed between the packages. The owner of internal/membudget replaces this file.

// Budget is one atomic count of bytes held.
type Budget struct{}

// New returns a budget; limit 0 = unbounded.
func New(limit uint64) *Budget { panic("stub") }

func (b *Budget) Limit() uint64 { panic("stub") }
func (b *Budget) Held() uint64  { panic("stub") }

// TryAcquire refuses iff held > 0 && held > limit-n.
func (b *Budget) TryAcquire(n uint64) bool { panic("stub") }
func (b *Budget) Release(n uint64)         { panic("stub") }

// Acquire waits for room (delivery); lone holders pass.
func (b *Budget) Acquire(ctx context.Context, n uint64) error { panic("stub") }

// Full reports whether the measured bytes reach the budget (O(1), for the tap).
func (b *Budget) Full() bool { panic("stub") }

// Charge is what one request holds; it grows while the body is read and is released by its last holder.
// It begins with one holder. Not safe for concurrent Grow.
type Charge struct{}

func (b *Budget) NewCharge() *Charge { panic("stub") }
func (c *Charge) Grow(n uint64) bool { panic("stub") } // false = refuse
func (c *Charge) Hold()              { panic("stub") }
func (c *Charge) Release()           { panic("stub") }

// BufferPool is a mem.BufferPool that charges what grpc-go holds to a budget without ever refusing.
func NewBufferPool(b *Budget, base mem.BufferPool) mem.BufferPool { panic("stub") }
