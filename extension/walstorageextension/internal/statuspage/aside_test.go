// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/otelweir/weir/extension/walstorageextension/internal/statuspage/statustest"
)

func TestLookAside(t *testing.T) {
	dir := t.TempDir()
	letters, ranges := LookAside(dir)
	assert.Zero(t, letters)
	assert.Zero(t, ranges)

	for name, size := range map[string]int{
		"dead-letter/0011aabb-0000000000000000-logs.frame": 300, "dead-letter/0011aabb-0000000000000100-logs.frame": 20,
		"dead-letter/0011aabb-0000000000000200-logs.frame.partial": 5000, "dead-letter/notes.txt": 5000,
		"quarantine/0000000000000000-00000000-0000000000000040-0011aabb.damaged": 4096,
		"quarantine/0000000000000000-00000000-0000000000000080-0011aabb.torn":    5000,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dead-letter/directory.frame"), 0o700))
	letters, ranges = LookAside(dir)
	assert.Equal(t, Aside{Files: 2, Bytes: 320}, letters)
	assert.Equal(t, Aside{Files: 1, Bytes: 4096}, ranges)

	for i := range mostAside {
		require.NoError(t, os.Link(filepath.Join(dir, "dead-letter/0011aabb-0000000000000100-logs.frame"), filepath.Join(dir, fmt.Sprintf("dead-letter/%d.frame", i))))
	}
	letters, _ = LookAside(dir)
	assert.True(t, letters.More)
	assert.LessOrEqual(t, letters.Files, mostAside)

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	letters, _ = LookAside(file)
	assert.Contains(t, letters.Error, "not a directory")
}

func TestPageSaysWhatIsSetAside(t *testing.T) {
	for want, l := range map[string]Log{
		"Dead letters none Quarantined none":                                               {},
		"Dead letters 1 request, 322 B Quarantined 2 ranges, 8.0 KiB":                      {DeadLetters: Aside{Files: 1, Bytes: 322}, Quarantined: Aside{Files: 2, Bytes: 8192}},
		"Dead letters more than 9,999 requests, 9.5 MiB":                                   {DeadLetters: Aside{Files: 9_999, Bytes: 9_999_000, More: true}},
		"Dead letters open dead-letter: permission denied Quarantined none":                {DeadLetters: Aside{Error: "open dead-letter: permission denied"}},
		"Dead letters 1,000 requests, 1000 KiB Quarantined open quarantine: no such thing": {DeadLetters: Aside{Files: 1000, Bytes: 1_024_000}, Quarantined: Aside{Error: "open quarantine: no such thing"}},
	} {
		l.ID, l.Status = "otlp_wal", statustest.Healthy(time.Now())
		doc, err := html.Parse(strings.NewReader(get(t, handlerOf(l), "GET", "/").Body))
		require.NoError(t, err)
		assert.Contains(t, text(doc), want)
	}
}
