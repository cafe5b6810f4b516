// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFit(t *testing.T) {
	points := map[uint64]uint64{1: 12, 2: 14, 4: 18, 8: 27}
	a, b := fit(points)
	assert.InDelta(t, 2.15, a, 0.01)
	assert.InDelta(t, 9.70, b, 0.01)
	assert.InDelta(t, 0.16, above(points, a, b), 0.01)
}
