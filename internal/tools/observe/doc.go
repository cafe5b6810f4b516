// SPDX-License-Identifier: Apache-2.0

// Package observe checks deploy/ against the telemetry registry. It is a
// module of its own for the sake of the PromQL parser.
package observe // import "github.com/otelweir/weir/internal/tools/observe"
