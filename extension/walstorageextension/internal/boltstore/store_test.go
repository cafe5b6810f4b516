// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var exporterID = component.MustNewIDWithName("otlp_grpc", "backend")

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func openClient(t *testing.T, s *Store, storageName string) *Client {
	t.Helper()
	c, err := s.Client(t.Context(), component.KindExporter, exporterID, storageName)
	require.NoError(t, err)
	return c
}

func TestClientKeepsStateAcrossRestart(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	first := openStore(t, dir)
	c := openClient(t, first, "logs")

	require.NoError(t, c.Set(ctx, "a", []byte("1")))
	require.NoError(t, c.Set(ctx, "a", []byte("2")))
	require.NoError(t, c.Set(ctx, "empty", nil))
	require.NoError(t, c.Set(ctx, "gone", []byte("x")))
	require.NoError(t, c.Delete(ctx, "gone"))
	require.NoError(t, c.Delete(ctx, "never there"))
	require.NoError(t, first.Close())

	c = openClient(t, openStore(t, dir), "logs")
	for key, want := range map[string][]byte{"a": []byte("2"), "empty": {}, "gone": nil, "never there": nil} {
		got, err := c.Get(ctx, key)
		require.NoError(t, err)
		assert.Equal(t, want, got, key)
	}
}

func TestBatchIsAllOrNothing(t *testing.T) {
	ctx := t.Context()
	c := openClient(t, openStore(t, t.TempDir()), "")
	require.NoError(t, c.Set(ctx, "old", []byte("1")))

	get, after := storage.GetOperation("old"), storage.GetOperation("new")
	require.NoError(t, c.Batch(ctx, get, storage.SetOperation("new", []byte("2")), storage.DeleteOperation("old"), after))
	assert.Equal(t, []byte("1"), get.Value)
	assert.Equal(t, []byte("2"), after.Value, "operations see the ones before them")

	for _, bad := range []*storage.Operation{
		storage.SetOperation("", []byte("no key")),
		{Key: "k", Type: 42},
	} {
		require.Error(t, c.Batch(ctx, storage.SetOperation("lost", []byte("3")), bad))
		got, err := c.Get(ctx, "lost")
		require.NoError(t, err)
		assert.Nil(t, got, "an operation of a failed batch took effect")
	}
	require.NoError(t, c.Batch(ctx))
}

func TestWalk(t *testing.T) {
	ctx := t.Context()
	fill := func(t *testing.T) *Client {
		c := openClient(t, openStore(t, t.TempDir()), "")
		for i := range 5 {
			require.NoError(t, c.Set(ctx, fmt.Sprint("k", i), []byte{byte(i)}))
		}
		return c
	}
	left := func(t *testing.T, c *Client) (keys []string) {
		require.NoError(t, c.Walk(ctx, func(key string, _ []byte) ([]*storage.Operation, error) {
			keys = append(keys, key)
			return nil, nil
		}))
		return keys
	}
	boom := errors.New("boom")
	for _, tc := range []struct {
		name    string
		at      string
		err     error
		wantErr error
		want    []string
	}{
		{"to the end", "", nil, nil, []string{"new"}},
		{"skip all applies what was collected", "k2", storage.SkipAll, nil, []string{"k3", "k4", "new"}},
		{"an error applies nothing", "k2", boom, boom, []string{"k0", "k1", "k2", "k3", "k4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fill(t)
			err := c.Walk(ctx, func(key string, value []byte) ([]*storage.Operation, error) {
				assert.Equal(t, key, fmt.Sprint("k", value[0]))
				ops := []*storage.Operation{storage.DeleteOperation(key), storage.SetOperation("new", value)}
				if key == tc.at {
					return ops, tc.err
				}
				return ops, nil
			})
			require.ErrorIs(t, err, tc.wantErr)
			assert.Equal(t, tc.want, left(t, c))
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		c := fill(t)
		ctx, cancel := context.WithCancel(ctx)
		err := c.Walk(ctx, func(key string, _ []byte) ([]*storage.Operation, error) {
			cancel()
			return []*storage.Operation{storage.DeleteOperation(key)}, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, left(t, c), 5)
	})
	t.Run("panic in the callback", func(t *testing.T) {
		c := fill(t)
		err := c.Walk(ctx, func(string, []byte) ([]*storage.Operation, error) { panic("boom") })
		require.ErrorContains(t, err, "panic: boom")
		assert.Len(t, left(t, c), 5, "the transaction is over and the client usable")
	})
}

func TestPermissions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openStore(t, dir)
	c := openClient(t, s, "logs")
	for path, want := range map[string]os.FileMode{filepath.Dir(dir): 0o700, dir: 0o700, c.path: 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, want, info.Mode().Perm(), path)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing but the client's file: %v", entries)
}

// What is acknowledged survives a power cut: every transaction is synced, and
// a client whose file's directory entry may be lost is not handed out.
func TestDurability(t *testing.T) {
	s := openStore(t, t.TempDir())
	assert.False(t, openClient(t, s, "logs").db.NoSync)

	s.syncDir = func(dir string) error {
		assert.Equal(t, s.dir, dir)
		return syscall.EIO
	}
	_, err := s.Client(t.Context(), component.KindExporter, exporterID, "traces")
	require.ErrorIs(t, err, syscall.EIO)
	s.syncDir = syncDir
	openClient(t, s, "traces") // the failed attempt left no lock behind
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, filepath.Join(file, "below")} {
		_, err := Open(path)
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "storage directory")
	}
}

// The lock of another process, played by a second descriptor of this one,
// which flock treats alike.
func TestLockedByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	s.lockTimeout = 10 * time.Millisecond
	c := openClient(t, s, "logs")
	path := c.path
	require.NoError(t, c.Close(t.Context()))

	other := flock.New(path)
	require.NoError(t, other.Lock())
	_, err := s.Client(t.Context(), component.KindExporter, exporterID, "logs")
	require.ErrorContains(t, err, "storage file "+path+" is locked by another process")
	require.NoError(t, other.Unlock())
	openClient(t, s, "logs")
}

func TestSecondClientOfTheSameName(t *testing.T) {
	s := openStore(t, t.TempDir())
	c := openClient(t, s, "logs")
	_, err := s.Client(t.Context(), component.KindExporter, exporterID, "logs")
	require.ErrorContains(t, err, c.path+" is already open")
	openClient(t, s, "traces")

	require.NoError(t, c.Close(t.Context()))
	again := openClient(t, s, "logs")
	require.NoError(t, c.Close(t.Context()), "closing twice")
	_, err = s.Client(t.Context(), component.KindExporter, exporterID, "logs")
	require.Error(t, err, "the second close must not forget the open client")
	require.NoError(t, again.Set(t.Context(), "k", nil))
}

func TestClosedClientAndStore(t *testing.T) {
	ctx := t.Context()
	s := openStore(t, t.TempDir())
	c := openClient(t, s, "logs")
	require.NoError(t, s.Close())
	_, err := c.Get(ctx, "k")
	require.ErrorContains(t, err, "the client is closed")
	require.ErrorContains(t, c.Set(ctx, "k", nil), "the client is closed")
	require.NoError(t, c.Close(ctx))
	_, err = s.Client(ctx, component.KindExporter, exporterID, "logs")
	require.ErrorIs(t, err, errClosed)
}

// Closing waits for what runs; every call either took effect or says that the
// client is closed.
func TestCloseWhileUsed(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := openStore(t, dir)
	c := openClient(t, s, "logs")
	var wg sync.WaitGroup
	started := make(chan struct{}, 4)
	acked := make([]int, 4)
	for w := range acked {
		wg.Go(func() {
			for i := 1; ; i++ {
				if err := c.Set(ctx, fmt.Sprint("w", w), []byte(fmt.Sprint(i))); err != nil {
					assert.ErrorIs(t, err, bolterrors.ErrDatabaseNotOpen)
					return
				}
				acked[w] = i
				if i == 1 {
					started <- struct{}{}
				}
			}
		})
	}
	for range acked {
		<-started
	}
	require.NoError(t, c.Close(ctx))
	wg.Wait()

	c = openClient(t, s, "logs")
	for w, want := range acked {
		got, err := c.Get(ctx, fmt.Sprint("w", w))
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(want), string(got), "writer %d", w)
	}
}

func TestCancelledContext(t *testing.T) {
	s := openStore(t, t.TempDir())
	c := openClient(t, s, "logs")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Set(ctx, "k", []byte("v")), context.Canceled)
	_, err := s.Client(ctx, component.KindExporter, exporterID, "other")
	require.ErrorIs(t, err, context.Canceled)
}

func TestDamagedFile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(b []byte) []byte
	}{
		{"not a bbolt file", func([]byte) []byte { return []byte(strings.Repeat("hello ", 2000)) }},
		{"cut in the middle of a page", func(b []byte) []byte { return b[:5000] }},
		{"pages beyond the two meta pages zeroed", func(b []byte) []byte {
			clear(b[2*os.Getpagesize():])
			return b
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir)
			c := openClient(t, s, "logs")
			require.NoError(t, c.Set(t.Context(), "k", []byte("v")))
			require.NoError(t, c.Close(t.Context()))
			b, err := os.ReadFile(c.path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(c.path, tc.damage(b), 0o600))

			_, err = s.Client(t.Context(), component.KindExporter, exporterID, "logs")
			require.ErrorContains(t, err, c.path)
		})
	}
}

func TestFullStorageIsTyped(t *testing.T) {
	for _, cause := range []error{
		&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC},
		fmt.Errorf("truncate: %w", syscall.EDQUOT),
		bolterrors.ErrMaxSizeReached,
	} {
		err := storageError(cause)
		assert.ErrorIs(t, err, storage.ErrStorageFull, "%v", cause)
		assert.ErrorIs(t, err, cause, "the cause is kept")
	}
	assert.NotErrorIs(t, storageError(syscall.EIO), storage.ErrStorageFull)
}

func TestFileNamesAreInjectiveAndHarmless(t *testing.T) {
	long := strings.Repeat("n", 900)
	seen := map[string]string{}
	for _, tc := range []struct {
		kind        component.Kind
		typ, name   string
		storageName string
	}{
		{component.KindExporter, "a", "", ""},
		{component.KindExporter, "a", "b", ""},
		{component.KindExporter, "a", "", "b"},
		{component.KindExporter, "a_b", "", ""},
		{component.KindExporter, "a", "b_c", ""},
		{component.KindExporter, "a", "b", "c"},
		{component.KindReceiver, "a", "b", "c"},
		{component.KindExporter, "a", "b@c", ""},
		{component.KindExporter, "a", "b%40c", ""},
		{component.KindExporter, "a", "../../etc/passwd", ""},
		{component.KindExporter, "a", "..", ".."},
		{component.KindExporter, "a", "B", ""},
		{component.KindExporter, "a", "ü\n", ""},
		{component.KindExporter, "a", long, "1"},
		{component.KindExporter, "a", long, "2"},
	} {
		var id component.ID
		require.NoError(t, id.UnmarshalText([]byte(strings.TrimSuffix(tc.typ+"/"+tc.name, "/"))))
		name := fileName(tc.kind, id, tc.storageName)
		assert.Equal(t, filepath.Base(name), name)
		assert.Regexp(t, `^[A-Za-z0-9_.@%~-]+\.db$`, name)
		assert.LessOrEqual(t, len(name), 255)
		what := fmt.Sprintf("%+v", tc)
		assert.Empty(t, seen[name], "%s has the file name of", what)
		seen[name] = what
	}
	assert.Equal(t, "exporter@otlp_grpc@backend@logs.db", fileName(component.KindExporter, exporterID, "logs"))
}

// Waiting for one file's lock holds up no other client, and Close waits for
// who is waiting.
func TestWaitingForALockHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	s.lockTimeout = time.Minute
	c := openClient(t, s, "logs")
	require.NoError(t, c.Close(t.Context()))
	other := flock.New(c.path)
	require.NoError(t, other.Lock())

	waiting := make(chan error, 1)
	go func() {
		_, err := s.Client(t.Context(), component.KindExporter, exporterID, "logs")
		waiting <- err
	}()
	name := filepath.Base(c.path)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, reserved := s.open[name]
		return reserved
	}, 10*time.Second, time.Millisecond)
	_, err := s.Client(t.Context(), component.KindExporter, exporterID, "logs")
	require.ErrorContains(t, err, "already open")
	openClient(t, s, "traces") // at once

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, other.Unlock())
	require.ErrorIs(t, <-waiting, errClosed)
	require.NoError(t, <-closed)
	require.NoError(t, other.Lock(), "nobody has the file open")
	require.NoError(t, other.Unlock())
}
