// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=internal/tools/go.mod mdatagen metadata.yaml
//go:generate rm generated_package_test.go

// The second directive removes a test file whose package mdatagen names after
// the directory of the checkout.

// Package weir is the root of a durable, bounded front door for the
// OpenTelemetry Collector.
//
// It holds no code. The components are in receiver/otlpwalreceiver and
// extension/walstorageextension, the contract between a log and what buffers
// behind it in barrier. metadata.yaml beside this file is the one registry of
// every instrument whose name begins with otelcol.wal, otelcol.in_flight or
// otelcol.delivery; documentation.md and internal/metadata are generated from
// it.
package weir // import "github.com/otelweir/weir"
