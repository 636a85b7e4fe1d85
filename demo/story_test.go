package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestALineOfTheSidecarsLogIsTakenApart(t *testing.T) {
	for logged, want := range map[string]map[string]string{
		"": {},
		`time=2026-01-01T00:00:00Z level=WARN msg="the conversation failed; everything resumes" cause="it said \"no\"" offset=3`: {
			"time": "2026-01-01T00:00:00Z", "level": "WARN", "msg": "the conversation failed; everything resumes", "cause": `it said "no"`, "offset": "3",
		},
		"msg=reconnecting backoff=500ms": {"msg": "reconnecting", "backoff": "500ms"},
		"panic: something":               {},
		`msg="never ends`:                {"msg": `"never`},
	} {
		if got := logFields(logged); !maps.Equal(got, want) {
			t.Errorf("%s is %q", logged, got)
		}
	}
}

func TestTheStoryTellsOfTheSidecarsTrouble(t *testing.T) {
	s := newStory(options{duration: time.Second})
	for _, logged := range []string{
		`level=INFO msg="discovery: the process answered"`,
		`level=WARN msg="the conversation failed; everything resumes from the last commits" cause="the conversation broke off: the process went away (connection reset by peer)"`,
		`level=INFO msg=reconnecting backoff=500ms`,
		`level=WARN msg="partitions lost"`,
		`level=WARN msg="partitions lost"`,
		`level=WARN msg="kafka client: unable to open connection to broker"`,
	} {
		s.sidecarSays(logged)
	}
	var told []string
	for _, e := range s.events {
		told = append(told, e.text)
	}
	if got := strings.Join(told, "\n"); got != "the sidecar notices: the process went away\nthe sidecar reconnects in 500ms\nthe sidecar says: partitions lost" {
		t.Errorf("told is\n%s", got)
	}
}

func TestRecoveredIsWhenCommitsMoveAgainAfterReadinessIsBack(t *testing.T) {
	s := newStory(options{duration: time.Second})
	s.crash.happened = true
	for _, step := range []struct {
		ready     bool
		committed int64
		recovered bool
	}{
		{true, 100, false}, {true, 110, false}, // not noticed yet
		{false, 120, false}, {true, 120, false}, {true, 120, false}, {true, 121, true}, {true, 130, true},
	} {
		s.ready, s.commits.total, s.commits.lag = step.ready, step.committed, 10
		s.followCrash()
		if got := s.crash.took > 0; got != step.recovered {
			t.Fatalf("at %+v recovered is %v", step, got)
		}
	}
	if len(s.events) != 1 || failed(s.findings()[:1]) {
		t.Errorf("told is %v, found is %v", s.events, s.findings())
	}
}

func TestACrashWithoutRecoveryIsFound(t *testing.T) {
	s := newStory(options{duration: time.Second})
	s.stopped(true, "exit 0", time.Second)
	if failed(s.findings()) {
		t.Errorf("without a crash it is %v", s.findings())
	}
	s.crash.happened = true
	if !failed(s.findings()) {
		t.Errorf("with one it is %v", s.findings())
	}
	s = newStory(options{duration: time.Second, process: "somebody's:1"})
	s.stopped(true, "exit 1", time.Second)
	if findings := s.findings(); len(findings) != 1 || !failed(findings) {
		t.Errorf("a process that is somebody's is not killed, and exit 1 is not fine: %v", findings)
	}
}

func TestOptions(t *testing.T) {
	opts, err := parseOptions([]string{"-brokers", "a:1, b:2", "-duration", "3s", "-keep"}, nil)
	if err != nil || strings.Join(opts.brokers, " ") != "a:1 b:2" || opts.duration != 3*time.Second || !opts.keep {
		t.Errorf("%+v, %v", opts, err)
	}
	for args, words := range map[string]string{
		"-brokers x": "not host:port", "-process x": "not host:port", "-duration 5": "has a unit", "-duration 5ms": "less than a second", "now": "takes nothing else", "-x": "see -help",
	} {
		if _, err := parseOptions(strings.Fields(args), nil); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", args, err)
		}
	}
	var help strings.Builder
	if _, err := parseOptions([]string{"-help"}, &help); err == nil || !strings.Contains(help.String(), "-brokers host:port") {
		t.Errorf("help is %q, %v", help.String(), err)
	}
}
