// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Aside is what lies in a log's dead-letter or quarantine directory now.
type Aside struct {
	Files int    `json:"files"`
	Bytes uint64 `json:"bytes"`
	More  bool   `json:"more,omitempty"` // there are more than were looked at
	Error string `json:"error,omitempty"`
}

// Where a log puts what it sets aside, and how it names the files.
const (
	deadLetterDirectory, deadLetterSuffix = "dead-letter", ".frame"
	quarantineDirectory, quarantineSuffix = "quarantine", ".damaged"
)

// mostAside bounds the files looked at: somebody reads the page every two
// seconds.
const mostAside = 10_000

// LookAside counts the dead letters and the damaged ranges of the log in
// directory.
func LookAside(directory string) (deadLetters, quarantined Aside) {
	return lookAside(filepath.Join(directory, deadLetterDirectory), deadLetterSuffix),
		lookAside(filepath.Join(directory, quarantineDirectory), quarantineSuffix)
}

func lookAside(directory, suffix string) (a Aside) {
	err := func() error {
		d, err := os.Open(directory)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was ever set aside
		}
		if err != nil {
			return err
		}
		defer d.Close()
		entries, err := d.ReadDir(mostAside)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		a.More = len(entries) == mostAside
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), suffix) || !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			if err != nil {
				return err
			}
			a.Files++
			a.Bytes += uint64(info.Size())
		}
		return nil
	}()
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
