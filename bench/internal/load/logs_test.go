// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

func TestLogsOfSize(t *testing.T) {
	for _, size := range []int{1, 2000, 15 << 10, 244 << 10, 8 << 20} {
		b := LogsOfSize(size)
		r := plogotlp.NewExportRequest()
		require.NoError(t, r.UnmarshalProto(b))
		n := r.Logs().LogRecordCount()
		assert.Positive(t, n)
		if n > 1 {
			assert.LessOrEqual(t, len(b), size)
			assert.Greater(t, len(b), size-2*len(b)/n, "asked for %d", size)
		}
	}
}
