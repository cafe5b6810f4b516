// SPDX-License-Identifier: Apache-2.0

// Package journal is the log on disk.
package journal // import "github.com/otelweir/weir/internal/journal"
