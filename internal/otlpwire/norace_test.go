// SPDX-License-Identifier: Apache-2.0

//go:build !race

package otlpwire

// leastRatio is how low the estimate may be compared with the retained heap.
const leastRatio = 0.95
