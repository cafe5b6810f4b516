// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// A dead letter is one frame set aside:
//
//	dead-letter/<8 hex of log id>-<16 hex position>-<kind>.frame
//
// the header of the frame's own segment with flag bit 0 set (64 bytes), the
// frame as it was in the log, the reason in words to the end of the file. So
// the frame verifies with the epoch of that header.

// letters guards the dead-letter directory.
type letters struct {
	mu     sync.Mutex
	closed bool // guarded by mu: the directory is another's from now on
}

// ErrDeadLetterFull says that a dead letter would take dead_letter_max_bytes
// past its limit, or that the volume has no room for it.
var ErrDeadLetterFull = errors.New("no room for another dead letter")

// WriteDeadLetter stores a frame and why it was set aside, durably. A second
// letter for the same frame is success. maxBytes bounds all letters together;
// ErrDeadLetterFull says that this one does not fit.
func (j *Journal) WriteDeadLetter(f ReadFrame, reason string, maxBytes uint64) error {
	j.letter.mu.Lock()
	defer j.letter.mu.Unlock()
	if j.letter.closed {
		return fmt.Errorf("dead letter for position %d: %w", f.Position, ErrClosed)
	}
	err := j.writeLetter(&f, reason, maxBytes)
	if err != nil {
		err = fmt.Errorf("dead letter for position %d: %w", f.Position, err)
		if isFull(err) {
			err = errors.Join(ErrDeadLetterFull, err)
		}
	}
	return err
}

func (j *Journal) writeLetter(f *ReadFrame, reason string, maxBytes uint64) error {
	dir := j.path(deadLetterName)
	if err := j.makeDir(dir); err != nil {
		return err
	}
	entries, err := j.fs.List(dir)
	if err != nil {
		return err
	}
	var total uint64
	taken := make(map[string]bool, len(entries))
	for _, e := range entries {
		total += uint64(e.Size)
		taken[e.Name] = true
	}
	h := segmentHeader{flags: flagDeadLetter, log: j.log, id: f.segment, created: f.created}
	letter := [][]byte{h.encode(), f.header[:], f.Metadata, f.Payload, []byte(reason)}

	stem := fmt.Sprintf("%x-%016x-%s", j.log[:4], f.Position, f.Kind)
	name := stem + letterSuffix
	for n := 1; taken[name]; n++ {
		same, err := j.sameLetter(filepath.Join(dir, name), &h, f)
		if err != nil {
			return err
		}
		if same { // delivered again after a crash
			return j.syncDir(dir)
		}
		name = fmt.Sprintf("%s-%d%s", stem, n, letterSuffix)
	}
	size := uint64(0)
	for _, b := range letter {
		size += uint64(len(b))
	}
	if total+size > maxBytes {
		return fmt.Errorf("%w: %d bytes are there, %d more exceed dead_letter_max_bytes %d", ErrDeadLetterFull, total, size, maxBytes)
	}
	return j.placeLetter(dir, name, letter)
}

// placeLetter gives the letter its name only when it is whole and durable.
func (j *Journal) placeLetter(dir, name string, letter [][]byte) error {
	final := filepath.Join(dir, name)
	temp := final + partialSuffix
	if err := j.fs.Unlink(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := j.fs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = out.Pwritev(letter, 0)
	if err == nil {
		err = out.Datasync()
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		err = j.fs.Link(temp, final)
	}
	if gone := j.fs.Unlink(temp); err == nil {
		err = gone
	}
	if err != nil {
		return err
	}
	return j.syncNew(dir, name)
}

// sameLetter says whether a letter holds this very frame.
func (j *Journal) sameLetter(name string, h *segmentHeader, f *ReadFrame) (bool, error) {
	file, err := j.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	var b [segmentHeaderLen + frameHeaderLen]byte
	if _, err := file.ReadAt(b[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil // shorter than any letter of ours: another one
		}
		return false, err
	}
	there, err := decodeSegmentHeader(b[:], flagDeadLetter)
	return err == nil && there.log == h.log && le.Uint32(b[segmentHeaderLen:]) == le.Uint32(f.header[:]), nil
}
