// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// directory is the names in one directory: as every call sees them, as the
// medium holds them, and the changes between the two in their order.
type directory struct {
	live, durable map[string]*inode
	pending       []change
}

// change is one atomic change to one or two names.
type change struct {
	entries []entry
	clean   bool // a failed SyncDir took it for written
}

// entry is a name and what it means from then on; nil is nothing.
type entry struct {
	name string
	n    *inode
}

func newDirectory() *directory {
	return &directory{live: map[string]*inode{}, durable: map[string]*inode{}}
}

// synced is a SyncDir that worked: every name changed since the last one, that
// one failed or not, is durable as it is now.
func (d *directory) synced() {
	written := map[string]bool{}
	for _, c := range d.pending {
		if c.clean {
			continue
		}
		for _, e := range c.entries {
			written[e.name] = true
		}
	}
	for name := range written {
		set(d.durable, entry{name, d.live[name]})
	}
	var left []change
	for _, c := range d.pending {
		c.entries = slices.DeleteFunc(slices.Clone(c.entries), func(e entry) bool { return written[e.name] })
		if len(c.entries) > 0 {
			left = append(left, c)
		}
	}
	d.pending = left
}

func (d *directory) syncFailed() {
	for i := range d.pending {
		d.pending[i].clean = true
	}
}

// survivors is the names power loss leaves. A change is lost with every later
// one to the same names.
func (d *directory) survivors(rng *rand.Rand, keep float64) map[string]*inode {
	names := maps.Clone(d.durable)
	lost := map[string]bool{}
	for _, c := range d.pending {
		kept := flip(rng, keep)
		for _, e := range c.entries {
			kept = kept && !lost[e.name]
		}
		for _, e := range c.entries {
			if kept {
				set(names, e)
			} else {
				lost[e.name] = true
			}
		}
	}
	return names
}

func set(names map[string]*inode, e entry) {
	if e.n == nil {
		delete(names, e.name)
	} else {
		names[e.name] = e.n
	}
}
