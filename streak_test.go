package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// perMinute counts lines by the minute of their time.
func perMinute(t *testing.T, lines []string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, line := range lines {
		stamp, ok := logFields(line)["time"]
		if !ok {
			t.Fatalf("no time in %q", line)
		}
		counts[stamp[:len("2000-01-01T00:00")]]++
	}
	return counts
}

func TestAFailureThatRepeatsIsToldInAFewLinesAMinuteWithItsBackoffUntilItIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		partitions int32
		env        string
	}{
		"the partition has no others": {1, ""},
		"the others work on":          {4, ""},
		"a short maximum backoff":     {1, "FLOW_RECONNECT_MAX_BACKOFF=1s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.partitions, func(t *testing.T, b *bed) {
				remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 0, 3), Text: "cannot decode the cart"})
				b.produce(100)
				var env []string
				if c.env != "" {
					env = append(env, c.env)
				}
				s := b.start(env...)
				time.Sleep(20 * time.Minute)
				ended := s.scrape().value(ours+"conversation_ends_total", "batch_failed")
				lines := s.logged()
				var told []string
				for _, line := range lines {
					if !strings.Contains(line, "discovery: ") { // an attempt is a line, as the reference says
						told = append(told, line)
					}
				}
				first := true
				for minute, n := range perMinute(t, told) {
					most := 4
					if strings.HasSuffix(minute, "00:00") {
						most = 20 // the backoff begins at 500 ms
					} else {
						first = false
					}
					if n > most {
						t.Errorf("%d lines in the minute %s", n, minute)
					}
				}
				if first {
					t.Error("nothing is told after the first minute")
				}
				again := s.logged("level=WARN", "the conversation failed again", "inlet=in", "topic=in", "partition=0", "offset=3", "cannot decode the cart", "since=2000-01-01T00:00:00Z", "backoff=", "conversation=", "lasted=")
				if len(again) == 0 {
					t.Fatal("no failure is told as a repeat")
				}
				if last, want := logFields(again[len(again)-1])["failures"], fmt.Sprint(ended); c.env == "" && last != want {
					t.Errorf("the last failure is told as number %s of %s", last, want)
				}
				remove()
				at := len(s.log.String())
				b.awaitCaughtUp(2 * time.Minute)
				time.Sleep(3 * time.Minute)
				after := s.log.String()[at:]
				if strings.Count(after, "the conversation lasts: its failures are over") != 1 || strings.Count(after, "readiness ready=true") != 1 {
					t.Errorf("when it is over the log says:\n%s", after)
				}
				s.stop()
				if !strings.Contains(s.log.String()[at:], "readiness ready=false") {
					t.Error("the stop is not told as the end of readiness")
				}
			})
		})
	}
}

func TestEveryCauseOfAFailureIsToldInFullOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		s := newStreak(&Config{ReconnectMaxBackoff: 30 * time.Second}, newReadiness(newMemFiles(), "/", nil, nil, logger), logger)
		gone := &failure{kind: endProcessGone, cause: errors.New("the process went away")}
		refused := &failure{kind: endWriteRefused, cause: errors.New("the write was refused")}
		for range 3 {
			for _, f := range []*failure{gone, refused} {
				s.failed("1", f, time.Second, 30*time.Second)
				time.Sleep(30 * time.Second)
			}
		}
		if n := strings.Count(log.String(), `msg="the conversation failed; `); n != 2 {
			t.Errorf("%d of two causes are told in full:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), `msg="the conversation failed again, `); n != 4 {
			t.Errorf("%d of four repeats are told:\n%s", n, &log)
		}
		log.Reset()
		s.failed("1", gone, 2*time.Minute, 500*time.Millisecond)
		if !strings.Contains(log.String(), "the conversation failed; ") {
			t.Errorf("after a conversation that lasted a failure is told as a repeat:\n%s", &log)
		}
	})
}

func TestACommitThatIsRefusedAgainAndAgainIsToldEverLessOften(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.refuseCommits(1<<30, kerr.RequestTimedOut)
		b.produce(600)
		time.Sleep(20 * time.Minute)
		lines := s.logged("level=WARN", "offsets could not be committed; trying again", "inlet=in", "topic=in", "cause=", "failures=", "since=")
		if len(lines) < 4 || len(lines) > 8 {
			t.Errorf("told %d times within 20 minutes", len(lines))
		}
	})
}

func TestAClientsNoiseSwallowsNoOtherNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		in, out := newTroubles(Connection{}, "shop", logger.With("inlet", "in")), newTroubles(Connection{}, "cart", logger.With("outlet", "out"))
		why := errors.New("the leader moved")
		for range 600 { // a new client each second, as with new conversations
			for _, c := range []*clientLog{&in.client, &out.client} {
				c.Log(kgo.LogLevelWarn, "unable to fetch", "broker", "1", "topic", "shop", "err", why)
			}
			in.client.Log(kgo.LogLevelInfo, "nothing of note")
			time.Sleep(time.Second)
		}
		for _, want := range []string{`inlet=in topic=shop broker=1 cause="the leader moved"`, `outlet=out topic=cart broker=1 other_topic=shop cause="the leader moved"`} {
			if n := strings.Count(log.String(), want); n < 2 || n > 5 {
				t.Errorf("told %d times in ten minutes: %s, in\n%s", n, want, &log)
			}
		}
		if !strings.Contains(log.String(), "untold=") || strings.Contains(log.String(), "nothing of note") {
			t.Errorf("the log:\n%s", &log)
		}
		log.Reset()
		in.client.Log(kgo.LogLevelWarn, "unable to fetch", "broker", "2", "err", why)
		in.client.Log(kgo.LogLevelWarn, "unable to fetch", "broker", "1", "err", errors.New("the disk is full"))
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d of two new things are told:\n%s", n, &log)
		}
		log.Reset()
		time.Sleep(time.Hour)
		for i := range 10000 {
			in.client.Log(kgo.LogLevelWarn, "unable to fetch", "err", fmt.Errorf("port %d", i))
		}
		if n := strings.Count(log.String(), "\n"); n != clientLinesAMinute {
			t.Errorf("%d lines at once of a client whose errors are all different", n)
		}
	})
}

func TestSentencesThatDifferAtEachAttemptAreToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		troubles := newTroubles(Connection{}, "t", slog.New(slog.NewTextHandler(&log, nil)))
		for i := range 600 {
			troubles.tell("broker b", fmt.Sprintf("b: port %d", i))
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n > 16 {
			t.Errorf("%d lines in ten minutes", n)
		}
	})
}

// logFields are the keys and values of a line of the text log.
func logFields(line string) map[string]string {
	fields := map[string]string{}
	for line = strings.TrimSpace(line); line != ""; {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			break
		}
		value, end := rest, strings.IndexByte(rest, ' ')
		if strings.HasPrefix(rest, `"`) {
			end = 1
			for end < len(rest) && rest[end] != '"' {
				if rest[end] == '\\' {
					end++
				}
				end++
			}
			end++
		}
		if end >= 0 && end < len(rest) {
			value = rest[:end]
			rest = rest[end:]
		} else {
			rest = ""
		}
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		fields[key] = value
		line = strings.TrimLeft(rest, " ")
	}
	return fields
}
