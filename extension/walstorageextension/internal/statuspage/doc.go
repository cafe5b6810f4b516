// SPDX-License-Identifier: Apache-2.0

// Package statuspage renders what the logs of a wal_storage say about
// themselves: a page for people and the same as JSON for programs.
//
// The page is complete without JavaScript. Its script only fetches the page
// again and swaps in what changed, so there is one renderer. Everything is
// served from the binary: no request leaves for anywhere else, and the
// Content-Security-Policy says so. Nothing here changes anything: only GET and
// HEAD are answered.
//
// Tenant names and error texts come from clients and back ends. They reach the
// page through html/template alone.
package statuspage // import "github.com/otelweir/weir/extension/walstorageextension/internal/statuspage"
