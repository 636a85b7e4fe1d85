//go:build e2e

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// What setup.sh gives, and the binary under test.
var kafkaLibs, python, sidecarBinary string

// suiteDir is kept until the suites end.
var suiteDir string

// shared is the cluster of one broker that every test uses which does nothing to its brokers. It starts with the first of them.
var shared func() (*cluster, error)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for time-outs and rebalances far more than they compute, and wait together: more than there are cores.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set("6")
	}
	code, err := prepared(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func prepared(tests func() int) (int, error) {
	setup := exec.Command("./setup.sh")
	setup.Stderr = os.Stderr
	out, err := setup.Output()
	if err != nil {
		return 0, fmt.Errorf("setup.sh: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "KAFKA_LIBS":
			kafkaLibs = value
		case "PYTHON":
			python = value
		}
	}
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	suiteDir = dir
	if sidecarBinary = os.Getenv("ANKKA_FLOW_SIDECAR"); sidecarBinary == "" {
		sidecarBinary = filepath.Join(dir, "ankka-flow-sidecar")
		// A version as the go command records it in a changed working copy, with the + that brokers refuse in a client's.
		if out, err := exec.Command("go", "build", "-ldflags", "-X main.version=v0.0.0-suites+dirty", "-o", sidecarBinary, "..").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("go build: %w\n%s", err, bytes.TrimSpace(out))
		}
	}
	var started *cluster
	shared = sync.OnceValues(func() (*cluster, error) {
		c, err := boot(dir, 1, beside{doors: true})
		started = c
		return c, err
	})
	defer func() {
		for _, kdc := range suiteKDCs {
			kdc.kill()
		}
		for _, c := range []*cluster{started, bootedLock} {
			if c != nil {
				c.kill()
			}
		}
	}()
	return tests(), nil
}
