//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that is measured, or that others are measured with. Its output goes to a file.
type child struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// clockTick is the unit of /proc/*/stat; Linux shows user space 100 a second on every machine.
const clockTick = 10 * time.Millisecond

// launch starts a process whose output goes to a file of dir. It ends with this process.
func launch(dir, name string, env []string, argv ...string) (*child, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &child{cmd: exec.Command(argv[0], argv[1:]...), log: log.Name(), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Env = log, log, append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ended is in its output
	}()
	return c, nil
}

// The kernel ends a child with the thread that started it, so main starts them all on its own.
func init() { runtime.LockOSThread() }

// stop ends the process with SIGTERM, after ten seconds with SIGKILL, and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		c.kill()
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// tail is the end of its output.
func (c *child) tail() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// cpu is the processor time that the process has used.
func (c *child) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses that may hold anything; user and system time are the 14th and 15th.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/*/stat is %q", text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// peak is the largest resident size that the process has had, in bytes (VmHWM).
func (c *child) peak() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/%d/status", c.cmd.Process.Pid)
}

// until waits for a condition, looking every interval, for as long as five minutes.
func until(ctx context.Context, what string, interval time.Duration, condition func() (bool, error)) error {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(interval) {
		ok, err := condition()
		switch {
		case ok:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("waited five minutes until %s (%v)", what, err)
		}
	}
}

// freePort is a port on which nobody listens at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
