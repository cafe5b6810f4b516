// SPDX-License-Identifier: Apache-2.0

// Package boltstore keeps other components' state for wal_storage: one bbolt
// file per storage client, every write on stable storage before it returns.
//
// Unlike stores that leave fsync off by default, an acknowledged Set survives
// a power cut: bbolt syncs every transaction, and the directory entry of a new
// file is synced before its client is handed out.
package boltstore // import "github.com/otelweir/weir/extension/walstorageextension/internal/boltstore"

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.opentelemetry.io/collector/component"
)

const (
	dirMode  = 0o700 // what components keep here may hold customers' data
	fileMode = 0o600

	// lockTimeout is how long a file held by another process is waited
	// for: long enough for a predecessor that is just closing.
	lockTimeout = 2 * time.Second
)

var errClosed = errors.New("the extension has shut down")

// Store is one directory of client files. It is safe for concurrent use.
type Store struct {
	dir         string
	lockTimeout time.Duration
	syncDir     func(dir string) error // makes a new file's entry durable; a seam for its failure

	mu     sync.Mutex
	closed bool               // guarded by mu
	open   map[string]*Client // by file name, nil while it is being opened; guarded by mu

	opening sync.WaitGroup // added to under mu, before closed
}

// Open creates the directory if needed and checks that files can be made in
// it. It opens no file.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("storage directory: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("storage directory: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return nil, fmt.Errorf("storage directory %s is not writable: %w", dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("storage directory %s: %w", dir, err)
	}
	return &Store{dir: dir, lockTimeout: lockTimeout, syncDir: syncDir, open: map[string]*Client{}}, nil
}

// Client opens the client of one component's one storage. A second one for the
// same three names fails until the first is closed. The error names the file.
func (s *Store) Client(ctx context.Context, kind component.Kind, id component.ID, storageName string) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := fileName(kind, id, storageName)
	path := filepath.Join(s.dir, name)

	if err := s.reserve(name, path); err != nil {
		return nil, err
	}
	defer s.opening.Done()
	db, err := s.openFile(path) // may wait for another process's lock: mu is not held

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.open, name)
	} else if s.closed {
		return nil, errors.Join(fmt.Errorf("storage client %s: %w", path, errClosed), db.Close())
	}
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("storage file %s is locked by another process (waited %v): two Collectors must not share a storage directory", path, s.lockTimeout)
	case err != nil:
		return nil, fmt.Errorf("open storage file %s: %w", path, storageError(err))
	}
	c := &Client{path: path, db: db}
	c.closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[name] == c {
			delete(s.open, name)
		}
	}
	s.open[name] = c
	return c, nil
}

// reserve takes the name for one caller.
func (s *Store) reserve(name, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("storage client %s: %w", path, errClosed)
	}
	if _, ok := s.open[name]; ok {
		return fmt.Errorf("storage client %s is already open: a component must close it before it asks for it again", path)
	}
	s.open[name] = nil
	s.opening.Add(1)
	return nil
}

// Close closes every client still open, after the calls that run on them, so
// that another process or a reload finds the files unlocked. It may be called
// more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	left := s.open
	s.open = nil
	s.mu.Unlock()
	s.opening.Wait()

	var errs error
	for _, c := range left {
		if c == nil {
			continue // whoever was opening it has closed it
		}
		errs = errors.Join(errs, c.Close(context.Background()))
	}
	return errs
}

// openFile opens path and makes its directory entry durable. A damaged file
// makes bbolt panic in places; that becomes an error.
func (s *Store) openFile(path string) (db *bbolt.DB, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the file is damaged: %v", v)
		}
	}()
	db, err = bbolt.Open(path, fileMode, &bbolt.Options{
		Timeout:      s.lockTimeout,
		NoSync:       false, // the point of this store
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
	})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err == nil {
		err = s.syncDir(s.dir)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// makeDir creates dir and its missing parents and makes their entries durable.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxName keeps file names below the 255 bytes file systems allow.
const maxName = 200

// fileName is a different name for every (kind, id, storageName), made of
// characters that mean nothing to a file system. The parts are separated by
// "@", which escape never produces.
func fileName(kind component.Kind, id component.ID, storageName string) string {
	parts := []string{strings.ToLower(kind.String()), id.Type().String(), id.Name(), storageName}
	for i, p := range parts {
		parts[i] = escape(p)
	}
	name := strings.Join(parts, "@")
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxName-2*sha256.Size-1] + "~" + hex.EncodeToString(sum[:])
	}
	return name + ".db"
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
