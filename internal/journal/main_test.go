// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine of a log is joined by Close.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
