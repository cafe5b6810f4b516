// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/otelweir/weir/bench/internal/countfs"
	"github.com/otelweir/weir/bench/internal/load"
	"github.com/otelweir/weir/bench/internal/trial"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
)

// benchRecovery opens logs in a process of its own and looks at that process's
// peak, once as they were closed and once with every segment to be scanned.
func benchRecovery(o *options) error {
	t := trial.Table{
		Title: "recovery: a process that opens a log",
		Head:  []string{"log", "summaries", "frames", "segments scanned", "took", "peak RSS"},
	}
	peaks := map[bool][]float64{} // by whether everything was scanned
	for _, size := range []uint64{o.log / 16, o.log} {
		err := o.scratch(func(dir string) error {
			l, err := openLog(fsys.OS, logConfig(dir))
			if err != nil {
				return err
			}
			if err := errors.Join(l.fill(size, "", load.LogsOfSize(15<<10), 25), l.close()); err != nil {
				return err
			}
			for _, scanned := range []bool{false, true} {
				if scanned {
					if err := stripSummaries(dir); err != nil {
						return err
					}
				}
				out, err := openInChild(dir)
				if err != nil {
					return err
				}
				t.Row(humanize.IBytes(size), map[bool]string{false: "kept", true: "removed"}[scanned], out.Frames, out.Scanned,
					trial.FormatNanos(float64(out.Took)), humanize.IBytes(out.PeakRSS))
				peaks[scanned] = append(peaks[scanned], float64(out.PeakRSS))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.Print(o.out)
	for scanned, p := range peaks {
		r := trial.Ratio{Median: p[1] / p[0], Low: p[1] / p[0], High: p[1] / p[0], Noise: 1}
		bar := trial.Bar{AtMost: 1.25}
		what := fmt.Sprintf("peak memory of recovery, 16 × the log, everything scanned: %v", scanned)
		fmt.Fprintf(o.out, "%s: × %.2f, bar %v: %s\n", what, r.Median, bar, o.judge(what, r, bar))
	}
	return o.openMany()
}

// stripSummaries cuts every summary off, as a crash right after a rotation
// does.
func stripSummaries(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*-*.wal"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := stripSummary(name); err != nil {
			return err
		}
	}
	return nil
}

func stripSummary(name string) error {
	const trailer = 16
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < trailer {
		return err
	}
	var b [trailer]byte
	if _, err := f.ReadAt(b[:], info.Size()-trailer); err != nil {
		return err
	}
	if string(b[8:]) != "WEIRSUM\x01" {
		return nil // the newest has none
	}
	return f.Truncate(info.Size() - int64(binary.LittleEndian.Uint32(b[:])))
}

// opened is what a child says of a log that it opened.
type opened struct {
	Frames  uint64
	Scanned int
	Took    time.Duration
	PeakRSS uint64
}

// openChild runs in the child.
func openChild(dir string) (opened, error) {
	j, rec, err := journal.Open(fsys.OS, logConfig(dir))
	if err != nil {
		return opened{}, err
	}
	peak, err := peakRSS(os.Getpid())
	return opened{rec.Frames, rec.Scanned, rec.Duration, peak}, errors.Join(err, j.Close())
}

// smallSegment makes many segments cheap: one frame each.
const (
	smallSegment = 8 << 10
	smallFrame   = 6 << 10
	// summarySize is that of a segment with one lane of tenant "": frame
	// header, figures, lane, trailer.
	summarySize = 40 + 36 + 34 + 16
)

// manySegments makes a log of so many closed segments.
func manySegments(fs fsys.FS, dir string, n int) (journal.Config, error) {
	cfg := logConfig(dir)
	cfg.SegmentSize, cfg.MaxFrameSize, cfg.Preallocate = smallSegment, smallFrame, false
	l, err := openLog(fs, cfg)
	if err != nil {
		return cfg, err
	}
	payload, metadata := make([]byte, smallSegment/2), metadataOf("")
	for range n + 1 {
		if err := l.put("", metadata, payload, 1); err != nil {
			return cfg, errors.Join(err, l.close())
		}
	}
	return cfg, l.close()
}

// openMany counts what opening a log of many closed segments reads.
func (o *options) openMany() error {
	return o.scratch(func(dir string) error {
		cfg, err := manySegments(fsys.OS, dir, o.files)
		if err != nil {
			return err
		}
		counts := countfs.New(fsys.OS)
		j, rec, err := journal.Open(counts, cfg)
		if err != nil {
			return err
		}
		read, bound := counts.BytesRead.Load(), int64(2*o.files*summarySize)
		fmt.Fprintf(o.out, "%d closed segments: opened in %v, %s read in %d reads, %.2f × their summaries; bar ≤ 2: %s\n",
			o.files, rec.Duration.Round(time.Millisecond), humanize.IBytes(uint64(read)), counts.Reads.Load(),
			float64(read)/float64(o.files*summarySize), o.check(fmt.Sprintf("bytes read to open %d segments: %d, bar ≤ %d", o.files, read, bound), read <= bound))
		return j.Close()
	})
}
