// SPDX-License-Identifier: Apache-2.0

//go:build race

package otlpwire

// Under the race detector the allocator does not let small strings and numbers
// share blocks of 16 bytes, so that more is retained than in production.
const leastRatio = 0.55
