// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when this process ends,
// however it ends.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
