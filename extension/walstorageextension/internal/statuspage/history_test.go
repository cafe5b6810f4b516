// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHistoryKeepsAnHourInOrder(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ added, kept int }{{0, 0}, {1, 1}, {360, 360}, {361, 361}, {362, 361}, {1000, 361}} {
		h := NewHistory()
		for i := range tc.added {
			h.Add(Sample{At: begin.Add(time.Duration(i) * SampleInterval), Unreclaimed: uint64(i)})
		}
		got := h.Samples()
		assert.NotNil(t, got, "the JSON has a list, also an empty one")
		if !assert.Len(t, got, tc.kept, "added %d", tc.added) || tc.kept == 0 {
			continue
		}
		for i, s := range got {
			assert.EqualValues(t, tc.added-tc.kept+i, s.Unreclaimed, "added %d", tc.added)
		}
		assert.LessOrEqual(t, got[len(got)-1].At.Sub(got[0].At), time.Hour)
	}
}
