package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
)

// awaitLog waits for a line with all of the words.
func (s *instance) awaitLog(within time.Duration, words ...string) string {
	s.bed.t.Helper()
	var found string
	testkit.Eventually(s.bed.t, within, fmt.Sprintf("the log has a line with %q", words), func() (bool, string) {
		for line := range strings.Lines(s.log.String()) {
			all := true
			for _, word := range words {
				all = all && strings.Contains(line, word)
			}
			if all {
				found = line
				return true, ""
			}
		}
		return false, s.log.String()
	})
	return found
}

func TestAMissingTopicIsToldWithTheNearestThatThereIs(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Topic, b.deployment.Outlets[0].Topic = "inn", "owt"
		s := b.start()
		s.awaitLog(10*time.Second, "level=WARN", `"inlet 'in': topic 'inn' does not exist; not ready until it does"`, "did_you_mean=in")
		s.awaitLog(10*time.Second, "level=WARN", "topic 'owt' does not exist: what is emitted cannot be written until it does; did you mean 'out'?", "outlet=out")
		if err := b.kafka.Create(t.Context(), "owt", 1, 1, nil); err != nil {
			t.Fatal(err)
		}
		s.awaitLog(30*time.Second, "the trouble with topic 'owt' is over")
	})
}

func TestAnOutletThatMayNotBeDescribedIsTold(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		way := map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="b";`}
		b.deployment.Inlets[0].Connection, b.deployment.Outlets[0].Connection = way, way
		s := b.start()
		s.awaitLog(10*time.Second, "level=WARN", "does not authorize DESCRIBE and WRITE on topic 'out'", "outlet=out")
	}, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "bob", "b"))
}

func TestAProcessOnAnotherPortIsFoundAtTheThirdAttemptAndNotLookedForAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.process.Close()
		b.listenAt(50051)
		s := b.start()
		line := s.awaitLog(20*time.Second, "discovery: no answer yet", "the process of streamlet 'echo' answers on 127.0.0.1:50051: set FLOW_PROCESS_ADDRESS=127.0.0.1:50051")
		if !strings.Contains(line, "attempt=3") {
			t.Errorf("told by %s", line)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(s.log.String(), "answers on 127.0.0.1:50051"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestAProcessThatHasAnsweredIsNotLookedForElsewhere(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.process.Close()
		b.listenAt(50051)
		s.awaitLog(time.Minute, "discovery: no answer yet", "attempt=4")
		if strings.Contains(s.log.String(), "50051") {
			t.Errorf("it looked:\n%s", s.log)
		}
	})
}

func TestAMetricsPortThatAnotherSidecarHasIsToldAsThat(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		first := b.start()
		first.awaitReady()
		address := first.metricsAddress
		_, port, _ := net.SplitHostPort(address)
		second := b.start("FLOW_METRICS_PORT=" + port)
		<-second.done
		if second.code != 2 {
			t.Errorf("exit %d", second.code)
		}
		second.awaitLog(time.Second, "level=ERROR", "FLOW_METRICS_PORT: port "+port+" is taken by another ankka-flow-sidecar, which runs here already; end it, or give one of them another port")
		b.examine([]string{"-Dflow.metrics.port=" + port}).want(0, "warning", "port "+port+" is taken by another ankka-flow-sidecar")
	})
}

func TestAMetricsPortThatSomethingElseHasIsAProblemForCheckToo(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		l, err := b.net.listen("tcp", "127.0.0.1:23456")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}()
		defer l.Close()
		b.examine([]string{"-Dflow.metrics.port=23456"}).want(2, "problem", "FLOW_METRICS_PORT: port 23456 cannot be served:", "choose another or end who has it")
	})
}

// readOnly are files of which none can be written.
type readOnly struct{ *memFiles }

func (readOnly) WriteFile(string, []byte) error { return errors.New("read-only file system") }

func TestAStateDirectoryThatCannotBeWrittenIsAProblemForCheckToo(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		files := newMemFiles()
		files.write("/etc/flow/config/descriptor.json", testkit.DescriptorJSON(b.spec))
		files.write("/etc/flow/config/streamlet.conf", b.deployment.Conf())
		b.examineWith(readOnly{files}).want(2, "problem", "FLOW_STATE_DIR: /tmp/flow cannot be written: read-only file system")
	})
}

func TestAnInletFarBehindTellsOnceAMinuteWhenItWillHaveCaughtUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.produce(20_000)
		b.process.Close()
		l, err := b.net.listen("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		slow := testkit.NewProcess(l, b.spec, func(batch *flowv1.Batch) ([]*flowv1.Emit, error) {
			time.Sleep(time.Duration(len(batch.Records)) * 19 * time.Millisecond) // 52 records a second
			return nil, nil
		})
		b.processes = append(b.processes, slow)
		s := b.start()
		s.awaitReady()
		// 31 or 32 batches of 100 a minute: after two minutes nearly 14,000 are left.
		line := s.awaitLog(3*time.Minute, `msg="catching up"`, "inlet=in", "topic=in")
		if !regexp.MustCompile(`lag=13\d\d\d records_per_second=5[1-3] caught_up_in=4m`).MatchString(line) {
			t.Error(line)
		}
		time.Sleep(10 * time.Minute)
		if n := strings.Count(s.log.String(), `msg="catching up"`); n != 4 {
			t.Errorf("told %d times:\n%s", n, s.log)
		}
	})
}

func TestAnInletThatMoreComesInToThanGoesThroughIsToldToFallBehind(t *testing.T) {
	in := &inlet{held: map[int32]*assignment{}}
	log := &lockedBuffer{}
	in.log = newLog(log, "text", 0)
	at := func(confirmed, end int64) {
		in.held[0] = &assignment{inlet: in, partition: 0, confirmed: confirmed, logEnd: end}
	}
	at(0, 100_000)
	before := in.logProgress(nil)
	at(6_000, 112_000)
	before = in.logProgress(before)
	if line := log.String(); !strings.Contains(line, `msg="falling behind" lag=106000 records_per_second=100 lag_grew=6000`) {
		t.Errorf("it says %q", line)
	}
	for _, quiet := range []struct {
		rule           string
		confirmed, end int64
	}{
		{"stands still", 6_000, 130_000},
		{"has less than a minute's work left", 129_000, 135_000},
		{"has gone back", 100_000, 140_000},
		{"is little behind", 139_500, 140_000},
		{"is little behind for long", 139_600, 140_300},
	} {
		said := log.String()
		at(quiet.confirmed, quiet.end)
		before = in.logProgress(before)
		if log.String() != said {
			t.Errorf("an inlet that %s says %s", quiet.rule, log.String()[len(said):])
		}
	}
}

func TestTheVersionNamesCommitProtocolAndGo(t *testing.T) {
	out := &lockedBuffer{}
	if code := run(t.Context(), world{args: []string{"--version"}, stdout: out}); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := out.String(); !strings.HasPrefix(text, "ankka-flow-sidecar "+sidecarVersion()+", commit ") || !strings.Contains(text, ", protocol 1.0, go1.") {
		t.Errorf("it says %q", text)
	}
}
