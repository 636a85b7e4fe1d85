package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the tests' binary be started as the streamlet's process, as the demo starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == cartRole {
		os.Exit(cartProcess())
	}
	os.Exit(m.Run())
}

// output is what a run prints. It calls seen when it has a text in it.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	of   string
	seen func()
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.seen != nil && strings.Contains(o.text.String(), o.of) {
		o.seen()
		o.seen = nil
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// nothingIsLeft looks for the processes that the output names, and for files.
func nothingIsLeft(t *testing.T, output, tmp string) {
	t.Helper()
	pids := regexp.MustCompile(`pid (\d+)`).FindAllStringSubmatch(output, -1)
	if len(pids) == 0 {
		t.Error("no process is named")
	}
	for _, pid := range pids {
		n, err := strconv.Atoi(pid[1])
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(n)
		if err == nil {
			err = p.Signal(syscall.Signal(0))
		}
		if !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d is still there: %v", n, err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(tmp, "*")); len(files) > 0 {
		t.Errorf("left are %q", files)
	}
}

func TestTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the sidecar and runs it for some seconds")
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	sidecar, err := buildSidecar(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("shows a recovery and finds everything as promised", func(t *testing.T) {
		var out, stderr output
		code := run(t.Context(), t.Context(), options{duration: 3 * time.Second, sidecar: sidecar}, &screen{out: &out, every: time.Second}, &stderr)
		text := out.String()
		if code != exitFine {
			t.Fatalf("exit %d:\n%s\n%s", code, text, stderr.String())
		}
		for _, words := range []string{"the process is killed", "the sidecar notices", "the sidecar reconnects", "recovered after", "✓ in = out", "✓ recovered", "✓ stopped", "All as promised."} {
			if !strings.Contains(text, words) {
				t.Errorf("%q is not said:\n%s", words, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("it moves the cursor where there is none:\n%q", text)
		}
		nothingIsLeft(t, text, tmp)
	})

	t.Run("leaves nothing when it is interrupted", func(t *testing.T) {
		asked, ask := context.WithCancel(t.Context())
		defer ask()
		out, stderr := output{of: "the process is started again", seen: ask}, output{}
		code := run(asked, t.Context(), options{duration: 3 * time.Second, sidecar: sidecar}, &screen{out: &out, every: time.Second}, &stderr)
		if code != exitInterrupted || !strings.Contains(out.String(), "Interrupted") {
			t.Errorf("exit %d:\n%s\n%s", code, out.String(), stderr.String())
		}
		nothingIsLeft(t, out.String(), tmp)
	})

	t.Run("goes on until it is interrupted, and then checks", func(t *testing.T) {
		asked, ask := context.WithCancel(t.Context())
		defer ask()
		out, stderr := output{of: "checked:", seen: ask}, output{}
		code := run(asked, t.Context(), options{duration: 2 * time.Second, keep: true, sidecar: sidecar}, &screen{out: &out, every: time.Second}, &stderr)
		if code != exitFine || !strings.Contains(out.String(), "All as promised.") {
			t.Errorf("exit %d:\n%s\n%s", code, out.String(), stderr.String())
		}
		nothingIsLeft(t, out.String(), tmp)
	})

	t.Run("says why it cannot be run", func(t *testing.T) {
		for name, tt := range map[string]struct {
			opts  options
			words string
		}{
			"no broker":  {options{brokers: []string{"127.0.0.1:1"}, sidecar: "-"}, "nothing listens there"},
			"no process": {options{process: "127.0.0.1:1", sidecar: "-"}, "Is the process running?"},
			"no sidecar": {options{sidecar: filepath.Join(tmp, "none")}, "could not be started"},
		} {
			var out, stderr output
			if code := run(t.Context(), t.Context(), tt.opts, &screen{out: &out, every: time.Second}, &stderr); code != exitNoDemo || !strings.Contains(stderr.String(), tt.words) {
				t.Errorf("%s: exit %d, %s", name, code, stderr.String())
			}
		}
		t.Setenv("PATH", "")
		var out, stderr output
		if code := run(t.Context(), t.Context(), options{}, &screen{out: &out, every: time.Second}, &stderr); code != exitNoDemo || !strings.Contains(stderr.String(), "no 'go' in PATH") {
			t.Errorf("no go: exit %d, %s", code, stderr.String())
		}
		if files, _ := filepath.Glob(filepath.Join(tmp, "*")); len(files) > 0 {
			t.Errorf("left are %q", files)
		}
	})
}
