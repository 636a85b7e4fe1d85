//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the command into a process group of its own: a terminal sends its signals to the group that it runs.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
