// SPDX-License-Identifier: Apache-2.0

//go:build !race

package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The race detector makes values escape that do not otherwise.
func TestRefusalAllocatesItsAnswerOnly(t *testing.T) {
	r := newRig(t)
	r.fill(logsLane, unit)
	f, ctx, none, now := frame(t, logsLane, unit), t.Context(), func(bool) {}, time.Now()

	r.j.Lock()
	f.Sum()
	ticket, v := r.c.admit(f, f.FramedLen(), now)
	r.j.Unlock()
	require.Nil(t, ticket)
	answer := testing.AllocsPerRun(100, func() { _ = r.c.refuse(v, now) })
	whole := testing.AllocsPerRun(100, func() {
		if _, err := r.c.Commit(ctx, f, none); err == nil {
			t.Fatal("admitted")
		}
	})
	t.Logf("allocations of a refusal: %v, of its answer %v", whole, answer)
	assert.Equal(t, int(answer), int(whole))
}
