//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// sidecar is the program under test as its own process.
type sidecar struct {
	*proc
	t       *testing.T
	state   string
	metrics int
}

// sidecar starts one more of a world's sidecars, beside the process at the address. Its own backoff is short, so that tests of failures
// do not wait for it; env comes last and wins.
func (w *world) sidecar(address string, env ...string) *sidecar {
	w.t.Helper()
	w.sidecars++
	name := fmt.Sprintf("sidecar%d", w.sidecars)
	s := &sidecar{t: w.t, state: filepath.Join(w.dir, name+"-state"), metrics: freePort()}
	env = append([]string{
		"FLOW_PROCESS_ADDRESS=" + address,
		"FLOW_CONFIG_DIR=" + w.configDir(name),
		"FLOW_STATE_DIR=" + s.state,
		fmt.Sprint("FLOW_METRICS_PORT=", s.metrics),
		"FLOW_RECONNECT_MAX_BACKOFF=2s",
	}, env...)
	s.proc = run(w.t, w.dir, name, append(w.env, env...), "", sidecarBinary)
	w.t.Cleanup(func() { noSecrets(w.t, s) })
	return s
}

func (s *sidecar) isReady() bool {
	_, err := os.Stat(filepath.Join(s.state, "ready"))
	return err == nil
}

// touched is when one of the probes' files was last written.
func (s *sidecar) touched(name string) time.Time {
	s.t.Helper()
	info, err := os.Stat(filepath.Join(s.state, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.ModTime()
}

// ready waits until the sidecar says that it is.
func (s *sidecar) ready(within time.Duration) {
	s.t.Helper()
	testkit.Eventually(s.t, within, s.name+" is ready", func() (bool, string) {
		if !s.running() {
			s.t.Fatalf("%s has ended: %v", s.name, s.err)
		}
		return s.isReady(), "there is no file 'ready'"
	})
}

// unready waits until the sidecar says that it is not ready.
func (s *sidecar) unready(within time.Duration) {
	s.t.Helper()
	testkit.Eventually(s.t, within, s.name+" is not ready", func() (bool, string) { return !s.isReady(), "the file 'ready' is there" })
}

// logs waits for a line with all of the texts.
func (s *sidecar) logs(within time.Duration, texts ...string) {
	s.t.Helper()
	testkit.Eventually(s.t, within, fmt.Sprintf("%s logs a line with %q", s.name, texts), func() (bool, string) {
		return s.lines(texts...) > 0, "its log ends with\n" + s.tail(3)
	})
}

// lines counts the log lines with all of the texts.
func (s *sidecar) lines(texts ...string) (n int) {
	for line := range strings.Lines(s.output()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			n++
		}
	}
	return n
}

// terminated stops the sidecar as Kubernetes does, and expects exit 0 well within a pod's 30 seconds.
func (s *sidecar) terminated(within time.Duration) {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.exit(s.t, within); code != 0 {
		s.t.Fatalf("%s ended with code %d", s.name, code)
	}
	if s.isReady() {
		s.t.Errorf("%s has ended, and its file 'ready' is still there", s.name)
	}
}

// metric is the line of /metrics that begins with the name and has all of the labels; empty when there is none.
func (s *sidecar) metric(name string, labels ...string) string {
	s.t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.metrics))
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		all := strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")
		for _, label := range labels {
			all = all && strings.Contains(line, label)
		}
		if all {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// value is that of a metric with the labels, which has to be there.
func (s *sidecar) value(name string, labels ...string) float64 {
	s.t.Helper()
	line := s.metric(name, labels...)
	value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
	if err != nil {
		s.t.Fatalf("the metric %s%q is %q", name, labels, line)
	}
	return value
}
