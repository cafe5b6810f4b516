// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Op is a kind of call, and as a set of bits several kinds.
type Op uint32

// The kinds of calls. OpCreate is an open that may create.
const (
	OpOpen Op = 1 << iota
	OpCreate
	OpList
	OpLstat
	OpMkdir
	OpRename
	OpRenameNoReplace
	OpLink
	OpUnlink
	OpSyncDir
	OpStatfs
	OpLock
	OpUnlock
	OpRead
	OpWrite
	OpDatasync
	OpWriteback
	OpAllocate
	OpTruncate
	OpSeekData
	OpStat
	OpClose

	// Any is every kind.
	Any = 1<<iota - 1
	// Mutating is the kinds a read-only file system refuses.
	Mutating = OpCreate | OpMkdir | OpRename | OpRenameNoReplace | OpLink | OpUnlink | OpWrite | OpAllocate | OpTruncate
)

var opNames = []string{
	"open", "create", "list", "lstat", "mkdir", "rename", "renamenoreplace", "link", "unlink", "syncdir", "statfs",
	"lock", "unlock", "read", "write", "datasync", "writeback", "allocate", "truncate", "seekdata", "stat", "close",
}

func (o Op) String() string {
	if o == Any {
		return "any"
	}
	var names []string
	for i, name := range opNames {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// ErrPowerCut is what every call on a stopped or dead file system ends in; it
// is an EIO too.
var ErrPowerCut = fmt.Errorf("the power is cut: %w", syscall.EIO)

// Call is one call as hooks and traces see it.
type Call struct {
	Index         int // from 0, over all kinds
	Op            Op
	Name, NewName string
	Off, Len      int64 // bytes; for a truncation Len is the new size
	Err           error // in traces
}

func (c Call) String() string {
	s := fmt.Sprintf("%4d %-15s %s", c.Index, c.Op, c.Name)
	if c.NewName != "" {
		s += " -> " + c.NewName
	}
	if c.Off != 0 || c.Len != 0 {
		s += fmt.Sprintf(" [%d,+%d)", c.Off, c.Len)
	}
	if c.Err != nil {
		s += ": " + c.Err.Error()
	}
	return s
}

// Fault says which calls go wrong, and how.
type Fault struct {
	Op    Op
	Match string // pattern of path.Match for the base name, or of the new one; empty matches all
	After int    // how many matching calls go well first
	Times int    // how many go wrong then; 0 = all
	// Err is what a call fails with, having done nothing: but a Datasync or
	// SyncDir makes clean what was dirty, and a write gets through as far as
	// Bytes goes.
	Err error
	// Bytes is how many bytes of the writes hit get through before one fails.
	Bytes int64
	// Lie makes a Datasync or SyncDir succeed without doing anything, for
	// showing that a test would notice.
	Lie bool
}

type activeFault struct {
	Fault
	seen, hit int
}

// outcome is how a call is to go wrong; it concerns only writes and syncs, all
// other calls that are to fail are not made.
type outcome struct {
	err   error
	bytes int64
	lie   bool
}

// Inject adds faults; the first that hits a call decides. The function
// returned takes them away again.
func (f *FS) Inject(faults ...Fault) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var added []*activeFault
	for _, fault := range faults {
		if _, err := path.Match(fault.Match, ""); err != nil {
			panic(err)
		}
		if fault.Op == 0 || (fault.Err == nil) == !fault.Lie {
			panic("crashfs: a fault needs an Op, and either Err or Lie")
		}
		added = append(added, &activeFault{Fault: fault})
	}
	f.faults = append(f.faults, added...)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(slices.Clone(f.faults), func(a *activeFault) bool { return slices.Contains(added, a) })
	}
}

// ClearFaults takes all faults away.
func (f *FS) ClearFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// SetReadOnly makes every change of the file system fail with EROFS, or lets
// them pass again with a call of what it returns.
func (f *FS) SetReadOnly() (remount func()) {
	return f.Inject(Fault{Op: Mutating, Err: syscall.EROFS})
}

// StopAt makes the call with that index and every later one fail and do
// nothing. [FS.Crash] then shows what a power cut at that call leaves.
func (f *FS) StopAt(index int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopAt = index
}

// SetHook has fn called before every call, outside all locks: it may block,
// and so hold the call. It is not called for calls that the end of the world
// refuses. nil takes it away.
func (f *FS) SetHook(fn func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// Calls is how many calls of these kinds were made so far, failed ones
// included.
func (f *FS) Calls(ops Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ops == Any {
		return f.calls
	}
	n := 0
	for op, c := range f.byOp {
		if op&ops != 0 {
			n += c
		}
	}
	return n
}

// StartTrace forgets the trace and records every call from here on.
func (f *FS) StartTrace() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.traced, f.trace = true, nil
}

// Trace is the calls since StartTrace, in the order in which they took effect.
func (f *FS) Trace() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trace)
}

// call makes one call: counts it, lets the hook hold it, decides whether it
// goes wrong, and does it.
func (f *FS) call(c Call, fn func(*outcome) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Index = f.calls
	f.calls++
	f.byOp[c.Op]++
	if f.hook != nil && !f.over(c.Index) {
		hook := f.hook
		f.mu.Unlock()
		hook(c)
		f.mu.Lock()
	}
	var err error
	if f.over(c.Index) {
		err = ErrPowerCut
	} else {
		out := f.judge(c)
		if out.err != nil && c.Op&(OpWrite|OpDatasync|OpSyncDir) == 0 {
			err = out.err
		} else {
			err = fn(&out)
		}
	}
	err = wrap(c, err)
	if f.traced {
		c.Err = err
		f.trace = append(f.trace, c)
	}
	return err
}

// over says whether the call comes after the end of the world.
func (f *FS) over(index int) bool { return f.dead || f.stopAt >= 0 && index >= f.stopAt }

// judge finds the fault that hits the call.
func (f *FS) judge(c Call) outcome {
	for _, a := range f.faults {
		if a.Op&c.Op == 0 || !a.matches(c) {
			continue
		}
		a.seen++
		if a.seen <= a.After || a.Times > 0 && a.hit >= a.Times {
			continue
		}
		if c.Op == OpWrite && c.Len <= a.Bytes {
			a.Bytes -= c.Len
			continue
		}
		a.hit++
		out := outcome{err: a.Err, bytes: a.Bytes, lie: a.Lie}
		a.Bytes = 0
		return out
	}
	return outcome{}
}

func (a *activeFault) matches(c Call) bool {
	if a.Match == "" {
		return true
	}
	for _, name := range []string{c.Name, c.NewName} {
		if ok, _ := path.Match(a.Match, path.Base(filepath.ToSlash(name))); ok && name != "" {
			return true
		}
	}
	return false
}

// wrap makes errors look like the operating system's.
func wrap(c Call, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return err
	case c.NewName != "":
		return &os.LinkError{Op: c.Op.String(), Old: c.Name, New: c.NewName, Err: err}
	}
	return &fs.PathError{Op: c.Op.String(), Path: c.Name, Err: err}
}
