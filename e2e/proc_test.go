//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proc is a process that the suites started. Its output goes to a file, of which a failed test prints the end.
type proc struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // once done
}

// starts are carried out by one thread that lives as long as the suites: the kernel ends a child with the thread that started it.
var starts = sync.OnceValue(func() chan<- func() {
	todo := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range todo {
			f()
		}
	}()
	return todo
})

// start runs a command with its output in dir.
func start(dir, name string, env []string, stdin string, argv ...string) (*proc, error) {
	p := &proc{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, dieWithUs()
	p.cmd.Env = append(os.Environ(), env...)
	if stdin != "" {
		p.cmd.Stdin = strings.NewReader(stdin)
	}
	started := make(chan error)
	starts() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// run starts a process for a test, which ends it and prints the end of its output when it failed.
func run(t *testing.T, dir, name string, env []string, stdin string, argv ...string) *proc {
	t.Helper()
	p, err := start(dir, name, env, stdin, argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		running := p.running()
		p.kill()
		if t.Failed() {
			t.Logf("%s (%s), the end of its output:\n%s", p.name, map[bool]string{true: "was running", false: fmt.Sprint("had ended: ", p.err)}[running], p.tail(40))
		}
	})
	return p
}

func (p *proc) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *proc) signal(sig os.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(sig)
	}
}

// kill ends the process as a crash does, and waits until it is gone.
func (p *proc) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// exit is the code that the process ends with by itself.
func (p *proc) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Fatalf("%s still runs after %v", p.name, within)
	}
	var exited *exec.ExitError
	if errors.As(p.err, &exited) && !exited.Exited() {
		t.Fatalf("%s was ended by a signal: %v", p.name, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *proc) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *proc) tail(lines int) string {
	all := strings.Split(strings.TrimRight(p.output(), "\n"), "\n")
	return "    " + strings.Join(all[max(0, len(all)-lines):], "\n    ")
}

// freePort is one that nobody listens on, below those that the system gives to connections, so that a broker that is stopped finds it
// free when it comes back.
func freePort() int {
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	panic("no free port between 20000 and 32000")
}
