// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// bucket is the one bucket of a client file.
var bucket = []byte("state")

// Client is one file. Every mutating call is one synced transaction. It is
// safe for concurrent use; a call after Close fails.
type Client struct {
	path   string
	db     *bbolt.DB
	closed func() // tells the store
}

var (
	_ storage.Client = (*Client)(nil)
	_ storage.Walker = (*Client)(nil)
)

// Get returns the value of key, or nil when there is none.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	op := storage.GetOperation(key)
	err := c.Batch(ctx, op)
	return op.Value, err
}

// Set stores value under key; it is durable when Set returns nil.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	return c.Batch(ctx, storage.SetOperation(key, value))
}

// Delete removes key, durably; a missing key is no error.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.Batch(ctx, storage.DeleteOperation(key))
}

// Batch runs ops in order in one transaction: all of them take effect, or none.
func (c *Client) Batch(ctx context.Context, ops ...*storage.Operation) error {
	if !mutates(ops) {
		return c.do(ctx, false, func(b *bbolt.Bucket) (bool, error) { return false, apply(b, ops) })
	}
	return c.do(ctx, true, func(b *bbolt.Bucket) (bool, error) { return true, apply(b, ops) })
}

// Walk calls fn for every entry, in key order, and applies the operations it
// returned in the same transaction; see [storage.Walker].
func (c *Client) Walk(ctx context.Context, fn storage.WalkFunc) error {
	return c.do(ctx, true, func(b *bbolt.Bucket) (bool, error) {
		var ops []*storage.Operation
		cursor := b.Cursor()
		for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			more, err := fn(string(k), v)
			if err != nil && !errors.Is(err, storage.SkipAll) {
				return false, err
			}
			ops = append(ops, more...)
			if err != nil {
				break
			}
		}
		return mutates(ops), apply(b, ops)
	})
}

// Close waits for running calls, closes the file and releases its lock. It may
// be called more than once.
func (c *Client) Close(context.Context) error {
	defer c.closed()
	if err := c.db.Close(); err != nil {
		return fmt.Errorf("close storage file %s: %w", c.path, err)
	}
	return nil
}

// do runs fn on the bucket in one transaction and commits it if fn says so.
// bbolt panics on a damaged file; that becomes an error.
func (c *Client) do(ctx context.Context, writable bool, fn func(*bbolt.Bucket) (commit bool, err error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("storage file %s: %w", c.path, storageError(err))
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	tx, err := c.db.Begin(writable)
	if err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		// After a commit this does nothing and says so.
		if rollback := tx.Rollback(); rollback != nil && !errors.Is(rollback, bolterrors.ErrTxClosed) {
			err = errors.Join(err, rollback)
		}
	}()
	b := tx.Bucket(bucket)
	if b == nil {
		return errors.New("the file is damaged: its bucket is missing")
	}
	commit, err := fn(b)
	if err != nil || !commit {
		return err
	}
	return tx.Commit()
}

func mutates(ops []*storage.Operation) bool {
	for _, op := range ops {
		if op.Type != storage.Get {
			return true
		}
	}
	return false
}

func apply(b *bbolt.Bucket, ops []*storage.Operation) error {
	for _, op := range ops {
		var err error
		switch op.Type {
		case storage.Get:
			op.Value = bytes.Clone(b.Get([]byte(op.Key))) // a missing key stays nil, an empty value does not
		case storage.Set:
			err = b.Put([]byte(op.Key), op.Value)
		case storage.Delete:
			err = b.Delete([]byte(op.Key))
		default:
			err = fmt.Errorf("operation of unknown type %d", op.Type)
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", op.Key, err)
		}
	}
	return nil
}

// storageError adds what callers of a storage client decide on.
func storageError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, bolterrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w", storage.ErrStorageFull, err)
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return fmt.Errorf("the client is closed: %w", err)
	}
	return err
}
