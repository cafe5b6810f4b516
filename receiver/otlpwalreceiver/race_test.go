// SPDX-License-Identifier: Apache-2.0

//go:build race

package otlpwalreceiver

// raceEnabled: the race detector allocates.
const raceEnabled = true
