// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile ../../internal/tools/go.mod mdatagen metadata.yaml

// Package walstorageextension implements wal_storage: the extension that runs
// the maintenance of otlp_wal's logs (barriers and housekeeping on two
// cadences, early under pressure), serves their status page, checks at
// start-up that the pipelines behind them only say "done" when they are, and
// keeps other components' state as a storage extension.
//
// The logs belong to their receivers. The extension holds a log only between
// its registration and the end of that registration, never touches its files,
// and outlives every receiver and exporter.
package walstorageextension // import "github.com/otelweir/weir/extension/walstorageextension"
