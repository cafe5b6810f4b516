// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/fsys/crashfs"
)

var writeV1 = flag.Bool("write-v1", false, "write testdata/v1 anew; only when format version 1 has never been released")

// v1 is a log directory of format version 1 and what it holds.
const v1 = "testdata/v1"

// v1Frame is a frame as v1.json tells it.
type v1Frame struct {
	Position Position
	Len      uint64
	Kind     Kind
	Tenant   string
	Metadata []Entry
	Items    uint32
	Received int64
	Payload  []byte
}

type v1Log struct {
	LogID    LogID
	Frames   []v1Frame
	Horizons []v1Horizon
	Durable  Position
	Segments []SegmentInfo
}

type v1Horizon struct {
	Lane
	Horizon Position
}

// buildV1 makes a log with everything the format has: several segments with
// and without a summary, a reclaimed range, a gap, lanes, horizons, a prepared
// segment, a dead letter.
func buildV1(t *testing.T) *crashfs.FS {
	w := newWorld(16)
	w.cfg.Preallocate = false
	require.NoError(t, w.open())
	for i := range 6 {
		w.mustAppendOf(t, 3, testLanes[i])
		w.mustAppendOf(t, 1, testLanes[i])
		require.NoError(t, w.rotateNow())
		if i == 1 {
			w.drain(t)
		}
	}
	w.mustAppend(t, 2)
	require.NoError(t, w.stamp(map[Lane]Position{
		testLanes[2]: w.j.Segments()[0].Base + 1, // inside its segment
		testLanes[3]: w.j.Durable(),              // its segment goes, from the middle of the log
	}))
	require.Equal(t, 1, w.pass(100))
	w.mustAppend(t, 1)
	require.NoError(t, w.stamp(map[Lane]Position{})) // records the hole
	frames, err := w.read(w.j)
	require.NoError(t, err)
	require.NoError(t, w.j.WriteDeadLetter(frames[0], "the sink said no", 1<<20))
	w.j.tasks.Wait()
	w.close()

	s := &site{world: w}
	s.frames, err = w.onDisk()
	require.NoError(t, err)
	hit := s.frames[len(s.frames)-2]
	s.flip(t, hit.file, hit.off+60)
	s.spoilSummary(t, s.frames[0].file)
	w.cfg.OnCorruption = CorruptionQuarantine
	w.o.damaged[hit.id] = []byte{}
	require.NoError(t, w.open())
	w.close()
	return w.fs
}

// TestC16_FormatVersion1OpensForEver: a directory written by the first version
// opens with every frame, horizon and figure, on the real file system too, and
// goes on from there. The files are pinned: a change of this test's data is a
// change of the format.
func TestC16_FormatVersion1OpensForEver(t *testing.T) {
	if *writeV1 {
		writeTestdata(t)
	}
	data, err := os.ReadFile(v1 + ".json")
	require.NoError(t, err)
	var want v1Log
	require.NoError(t, json.Unmarshal(data, &want))
	require.NotEmpty(t, want.Frames)

	dir := filepath.Join(t.TempDir(), "wal")
	require.NoError(t, os.CopyFS(dir, os.DirFS(v1)))
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(name, 0o700)
		}
		return os.Chmod(name, 0o600)
	}))
	cfg := newWorld(0).cfg
	cfg.Directory = dir
	for range 2 {
		j, rec, err := Open(fsys.OS, cfg)
		require.NoError(t, err)
		assert.Zero(t, rec.QuarantinedBytes+rec.TruncatedBytes)
		got := describe(t, j, rec)
		require.Equal(t, want, got)
		require.NoError(t, j.Close())
	}

	w := newWorld(0)
	w.cfg.Directory = dir
	j, _, err := Open(fsys.OS, cfg)
	require.NoError(t, err)
	w.j = j
	w.mustAppend(t, 3)
	frames, err := w.read(j)
	require.NoError(t, err)
	assert.Len(t, frames, len(want.Frames)+3)
	assert.Equal(t, want.Durable, frames[len(want.Frames)].Position)
	w.close()
}

func describe(t *testing.T, j *Journal, rec Recovery) v1Log {
	l := v1Log{LogID: j.LogID(), Durable: j.Durable(), Segments: j.Segments()}
	for _, lane := range testLanes {
		if h, ok := rec.Horizons[lane]; ok {
			l.Horizons = append(l.Horizons, v1Horizon{lane, h})
		}
	}
	r := j.NewReader(0)
	defer r.Close()
	for {
		f, err := r.Next()
		if err != nil {
			return l
		}
		tenant, kept, err := DecodeMetadata(f.Metadata)
		require.NoError(t, err)
		require.Equal(t, f.Tenant, tenant)
		l.Frames = append(l.Frames, v1Frame{f.Position, f.Len, f.Kind, f.Tenant, kept, f.Items, f.Received, bytes.Clone(f.Payload)})
	}
}

func writeTestdata(t *testing.T) {
	mem := buildV1(t)
	require.NoError(t, os.RemoveAll(v1))
	var copyDir func(dir string)
	copyDir = func(dir string) {
		to := filepath.Join(v1, dir)
		require.NoError(t, os.MkdirAll(to, 0o755))
		infos, err := mem.List(path.Join(logDir, dir))
		require.NoError(t, err)
		for _, i := range infos {
			switch {
			case i.Mode.IsDir():
				copyDir(path.Join(dir, i.Name))
			case i.Name == lockName: // names a machine and a process
			default:
				data, err := mem.ReadFile(path.Join(logDir, dir, i.Name))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(to, i.Name), data, 0o644))
			}
		}
	}
	copyDir("")
	cfg := newWorld(0).cfg
	j, rec, err := Open(mem, cfg)
	require.NoError(t, err)
	data, err := json.MarshalIndent(describe(t, j, rec), "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(v1+".json", append(data, '\n'), 0o644))
	require.NoError(t, j.Close())
}
