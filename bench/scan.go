// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelweir/weir/bench/internal/trial"
	"github.com/otelweir/weir/internal/fsys"
	"github.com/otelweir/weir/internal/journal"
)

// fill appends copies of payload until the log has so many bytes.
func (l *log) fill(bytes uint64, tenant string, payload []byte, items uint32) error {
	const writers = 16
	var (
		left   atomic.Int64
		all    sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	left.Store(int64(bytes))
	metadata := metadataOf(tenant)
	for range writers {
		all.Go(func() {
			for left.Add(-int64(len(payload))) >= -int64(len(payload)) {
				if err := l.put(tenant, metadata, payload, items); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}

// benchScan reads one segment that has no summary, in the page cache: what is
// compared is what the log does besides reading and summing.
func benchScan(o *options) error {
	t := trial.Table{
		Title: "scan: recovery of a segment without a summary, and the reader that delivery uses, against read + CRC32C of the same file (cached)",
		Head:  []string{"payload", "bare", "recovery", "ratio", "bar", "", "reader", "ratio"},
	}
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		err := o.scratch(func(dir string) error { return o.scanOne(dir, size, &t) })
		if err != nil {
			return err
		}
	}
	t.Print(o.out)
	return nil
}

func (o *options) scanOne(dir string, size int, t *trial.Table) error {
	total := min(o.log, 1<<30)
	cfg := logConfig(dir)
	cfg.SegmentSize, cfg.Preallocate = 2<<30, false // one segment: the newest is always scanned
	l, err := openLog(fsys.OS, cfg)
	if err != nil {
		return err
	}
	payload := make([]byte, size)
	_, _ = rand.Read(payload) // never fails
	if err := l.fill(total, "", payload, 1); err != nil {
		return errors.Join(err, l.close())
	}
	segments := l.journal.Segments()
	frames, bytes := int(l.groups.frames.Load()), l.journal.Durable()
	if err := l.close(); err != nil {
		return err
	}
	if len(segments) != 1 {
		return fmt.Errorf("%d segments instead of one", len(segments))
	}
	name := filepath.Join(dir, segments[0].Name)
	run := func(name string, read func() (int, error)) trial.Arm {
		return trial.Arm{Name: name, Run: func() (trial.Run, error) {
			begun := time.Now()
			n, err := read()
			if err == nil && n != frames {
				err = fmt.Errorf("%d frames instead of %d", n, frames)
			}
			return trial.Run{Ops: frames, Bytes: bytes, Elapsed: time.Since(begun)}, err
		}}
	}
	recovery := trial.Arm{Name: "recovery", Run: func() (trial.Run, error) {
		j, rec, err := journal.Open(fsys.OS, cfg)
		if err != nil {
			return trial.Run{}, err
		}
		if int(rec.Frames) != frames {
			err = fmt.Errorf("recovery found %d frames of %d", rec.Frames, frames)
		}
		return trial.Run{Ops: frames, Bytes: bytes, Elapsed: rec.Duration}, errors.Join(err, j.Close())
	}}
	reader := trial.Arm{Name: "reader", Run: func() (trial.Run, error) {
		j, _, err := journal.Open(fsys.OS, cfg)
		if err != nil {
			return trial.Run{}, err
		}
		r, err := run("reader", func() (int, error) { return readAll(j) }).Run()
		return r, errors.Join(err, j.Close())
	}}
	bare := run("bare", func() (int, error) { return frames, bareScan(name) })
	res, err := trial.Compare(o.rounds, bare, recovery, reader)
	if err != nil {
		return err
	}
	what, bar := fmt.Sprintf("%d KiB", size>>10), trial.Bar{AtLeast: 0.8}
	ratio := res.Ratio("recovery", trial.Throughput)
	t.Row(what, trial.FormatThroughput(res.Reference(trial.Throughput)), trial.FormatThroughput(res.Subject("recovery", trial.Throughput)),
		trial.FormatRatio(ratio), bar, o.judge("scan of frames of "+what, ratio, bar),
		trial.FormatThroughput(res.Subject("reader", trial.Throughput)), trial.FormatRatio(res.Ratio("reader", trial.Throughput)))
	return nil
}

func readAll(j *journal.Journal) (frames int, err error) {
	r := j.NewReader(0)
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames, r.Close()
		}
		if err != nil {
			return frames, errors.Join(err, r.Close())
		}
		frames++
	}
}

// bareScan is the least that verifying a file can cost.
func bareScan(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	buf := make([]byte, 256<<10)
	sum := uint32(0)
	for {
		n, err := f.Read(buf)
		sum = crc32.Update(sum, table, buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
