// SPDX-License-Identifier: Apache-2.0

//go:build linux

package reference

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reference that loses a write would be a bad thing to be compared with.
func TestGroupWritesEverythingOnce(t *testing.T) {
	dir := t.TempDir()
	g, err := OpenGroup(dir)
	require.NoError(t, err)
	const writers, each = 16, 50
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				p := binary.BigEndian.AppendUint64(nil, uint64(w*each+i+1))
				assert.NoError(t, g.Append(p))
			}
		})
	}
	all.Wait()
	require.NoError(t, g.Close())

	b, err := os.ReadFile(filepath.Join(dir, "group"))
	require.NoError(t, err)
	seen := map[uint64]int{}
	for i := range writers * each {
		seen[binary.BigEndian.Uint64(b[8*i:])]++
	}
	for v := range uint64(writers * each) {
		assert.Equal(t, 1, seen[v+1], "value %d", v+1)
	}
}

func TestDirectAppends(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDirect(dir)
	require.NoError(t, err)
	require.NoError(t, d.Append([]byte("ab")))
	require.NoError(t, d.Append([]byte("cd")))
	require.NoError(t, d.Close())
	b, err := os.ReadFile(filepath.Join(dir, "direct"))
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(b, []byte("abcd")))
}
