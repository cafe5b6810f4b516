// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys/crashfs"
)

// TestLowVolumeRule: with less than two segments free no group is written
// before the successor exists; with more it is prepared beside them.
func TestLowVolumeRule(t *testing.T) {
	const segment = 1 << 20 // testConfig's
	for _, tc := range []struct {
		name     string
		free     uint64
		kind     RotationStateKind
		inWay    bool // the successor was there before the group was written
		appended bool
	}{
		{"two segments free", 2*segment + 1<<16, RotationHealthy, false, true},
		{"less than two", 2*segment - 1<<16, RotationHealthy, true, true},
		{"less than one", segment - 1<<16, RotationVolumeFull, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const total = 64 << 20
			f := crashfs.New(total)
			j, _, err := Open(f, testConfig("/wal"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = j.Close() })
			free, _, err := f.Statfs("/wal")
			require.NoError(t, err)
			f.SetVolume(total - free + tc.free)

			release := make(chan struct{})
			group := j.writer.id.name()
			prepared := false
			f.SetHook(func(c crashfs.Call) {
				switch {
				case c.Op == crashfs.OpAllocate && !tc.inWay:
					<-release // a preparation that takes long keeps no group waiting
				case c.Op == crashfs.OpWrite && c.Name == j.path(group):
					prepared = j.writer.prepared != nil
				}
			})
			_, err = commit(j, newFrame(t, logs, 1, 100))
			close(release)
			require.Equal(t, tc.appended, err == nil, "%v", err)
			require.Equal(t, tc.inWay && tc.appended, prepared)
			require.Equal(t, tc.kind, j.Stats().Rotation)
			if !tc.appended {
				var refused *RotationRefused
				require.ErrorAs(t, err, &refused)
				require.True(t, refused.State.AppendsBlocked)
				require.Zero(t, j.Durable())
			}
		})
	}
}
