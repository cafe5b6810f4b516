// SPDX-License-Identifier: Apache-2.0

package otlpwalreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBodyBuffers(t *testing.T) {
	for n, want := range map[int]int{
		0:         4 << 10,
		1:         4 << 10,
		4 << 10:   4 << 10,
		4<<10 + 1: 8 << 10,
		244 << 10: 256 << 10,
		17 << 20:  32 << 20,
		1<<20 + 0: 1 << 20,
	} {
		buf := bodies.get(n)
		assert.Len(t, *buf, n)
		assert.Equal(t, want, cap(*buf), "%d", n)
		assert.Equal(t, want, bodies.capacity(n), "%d", n)
		*buf = (*buf)[:0]
		bodies.put(buf)
		again := bodies.get(n)
		assert.Len(t, *again, n, "whatever length a buffer came back with")
		assert.Equal(t, want, cap(*again))
		bodies.put(again)
	}
	assert.Equal(t, 1<<30+1, bodies.capacity(1<<30+1), "of no pool")
	bodies.put(nil)
}
