// SPDX-License-Identifier: Apache-2.0

// Package e2e drives the built distribution as a child process, with senders
// that remember what was acknowledged and a sink that remembers what arrived.
//
// The tests carry the build tag e2e, because they need bin/otelcol-weir:
// make e2e builds it first. Everything else here is their harness, which
// make demo uses too.
package e2e // import "github.com/otelweir/weir/e2e"
