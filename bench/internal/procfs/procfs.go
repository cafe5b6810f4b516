// SPDX-License-Identifier: Apache-2.0

// Package procfs reads what Linux says of a process.
package procfs // import "github.com/otelweir/weir/bench/internal/procfs"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Figures of a process's memory.
const (
	PeakRSS = "VmHWM" // the most that was resident at once
	RSS     = "VmRSS"
)

// Memory is a figure of a process, in bytes.
func Memory(pid int, figure string) (uint64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, figure+":"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %s: %w", name, figure, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s: no %s", name, figure)
}
