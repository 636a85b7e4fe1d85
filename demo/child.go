package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is an OS process of ours. It has its own process group, so that a Ctrl-C reaches this program alone, which then ends its children
// in order. Should this program be killed itself, its children end too: the cart process when its input ends, the sidecar at its next
// log line, for which there is no reader any more.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string   // its output; what nobody takes in time is only in the tail
	done  chan struct{} // closed when it has ended

	mu   sync.Mutex
	tail []string // the last lines
}

// tailLines is what is kept of a child's output, for telling why it ended.
const tailLines = 12

// start runs a command with exactly the environment given.
func start(name string, env []string, path string, args ...string) (*child, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = env
	ownGroup(cmd)
	out, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, write
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	_ = write.Close() // the child has its own
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("%s could not be started: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, stdin: stdin, lines: make(chan string, 1000), done: make(chan struct{})}
	go c.watch(out)
	return c, nil
}

// watch reads the child's output until its end, and then waits for it.
func (c *child) watch(out io.ReadCloser) {
	defer close(c.done)
	defer out.Close()
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			c.mu.Lock()
			c.tail = append(c.tail, line)
			c.tail = c.tail[max(0, len(c.tail)-tailLines):]
			c.mu.Unlock()
			select {
			case c.lines <- line:
			default:
			}
		}
		if err != nil {
			break
		}
	}
	_ = c.cmd.Wait() // how it ended is in ProcessState
}

// heard hands one more line of output to hear. It says whether there was one.
func (c *child) heard(hear func(line string)) bool {
	select {
	case line := <-c.lines:
		hear(line)
		return true
	default:
		return false
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill is kill -9, and waits for the end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it fails only when there is nobody to kill
	<-c.done
}

// stop asks the child to end, and kills it after the patience or when hurry is closed. It says whether the child ended by itself.
func (c *child) stop(patience time.Duration, hurry <-chan struct{}) bool {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.kill()
		return false
	}
	select {
	case <-c.done:
		return true
	case <-time.After(patience):
	case <-hurry:
	}
	c.kill()
	return false
}

// ended is how it ended, in words.
func (c *child) ended() string {
	<-c.done
	if code := c.cmd.ProcessState.ExitCode(); code >= 0 {
		return fmt.Sprintf("exit %d", code)
	}
	return c.cmd.ProcessState.String()
}

// lastLines are the last of its output.
func (c *child) lastLines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tail)
}

// environment is this program's without what would tell the sidecar something else, or that it runs in a cluster.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "FLOW_") || strings.HasPrefix(variable, "KUBERNETES_SERVICE_")
	})
	return append(env, more...)
}
