//go:build e2e

package e2e

import "syscall"

// dieWithUs has the kernel kill a child when the suites are killed, so that no broker is left behind.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
