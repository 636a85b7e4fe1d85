package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logEvent is a row of docs/operations.md's table of log events.
type logEvent struct {
	text           string // as it is in the table
	message        *regexp.Regexp
	level          string
	keys, optional []string
	free           bool // it has further keys
}

// documentedEvents are the rows, those with the longest fixed text first, so that the first that fits is the one.
func documentedEvents(t *testing.T) []logEvent {
	t.Helper()
	events, err := readDocumentedEvents()
	if err != nil {
		t.Fatal(err)
	}
	return events
}

var readDocumentedEvents = sync.OnceValues(func() ([]logEvent, error) {
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		return nil, err
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (keys []string) {
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			keys = append(keys, m[1])
		}
		return keys
	}
	var events []logEvent
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (info|warn|error) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		required, optional, _ := strings.Cut(m[3], "or ")
		events = append(events, logEvent{
			text: m[1], message: regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", ".*") + "$"),
			level: strings.ToUpper(m[2]), keys: names(required), optional: names(optional), free: strings.HasPrefix(m[1], "kafka client: "),
		})
	}
	slices.SortStableFunc(events, func(a, b logEvent) int { return len(b.text) - len(a.text) })
	return events, nil
})

// undocumented says what of a line at info or above is not as the table has it, and which event it is.
func undocumented(events []logEvent, fields map[string]string) (event, problem string) {
	i := slices.IndexFunc(events, func(e logEvent) bool { return e.message.MatchString(fields["msg"]) })
	if i < 0 {
		return "", "no such event is documented"
	}
	e := events[i]
	if fields["level"] != e.level {
		return e.text, "its level is documented as " + e.level
	}
	for _, key := range e.keys {
		if _, ok := fields[key]; !ok {
			return e.text, key + " is missing"
		}
	}
	for key := range fields {
		if !slices.Contains([]string{"time", "level", "msg"}, key) && !slices.Contains(e.keys, key) && !slices.Contains(e.optional, key) && !e.free {
			return e.text, key + " is not documented"
		}
	}
	return e.text, ""
}

var numberKeys = []string{"partition", "offset", "failures", "attempt", "committed", "log_end", "resumed_at", "removed", "last_offset"}

// checkLog compares a sidecar's log with the documented events, and returns which there were.
func checkLog(t *testing.T, log string) (seen map[string]bool) {
	t.Helper()
	events := documentedEvents(t)
	seen = map[string]bool{}
	started := false
	number := regexp.MustCompile(`^-?\d+$`)
	for line := range strings.Lines(log) {
		fields := logFields(line)
		if fields["level"] == "DEBUG" {
			continue
		}
		event, problem := undocumented(events, fields)
		if problem == "no such event is documented" && !started && fields["level"] != "INFO" {
			continue // of the configuration, in its own words
		}
		started = started || event == "starting"
		for _, key := range numberKeys {
			if value, ok := fields[key]; ok && problem == "" && !number.MatchString(value) {
				problem = key + " is no number"
			}
		}
		if problem != "" {
			t.Errorf("docs/operations.md: %s: %s", problem, line)
		}
		seen[event] = true
	}
	return seen
}

func TestEveryDocumentedLogEventHappensAndEveryLineIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for name, live := range map[string]func(b *bed){
		"failures": func(b *bed) {
			b.process.SetDiscovery(testkit.DiscoverRefuses)
			s := b.start()
			time.Sleep(time.Second)
			b.process.SetDiscovery(testkit.DiscoverAnswers)
			s.awaitReady()
			remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57)})
			b.refuseCommits(1, kerr.RequestTimedOut)
			b.produce(600)
			time.Sleep(6 * time.Minute)
			remove()
			time.Sleep(3 * time.Minute)
			s.files.fail(errors.New("the disk is full"))
			time.Sleep(2 * time.Second)
			b.process.DropConnections()
			time.Sleep(time.Second)
		},
		"a group in trouble": func(b *bed) {
			env := []string{"FLOW_POD_NAME=same", "FLOW_POD_NAMESPACE=test"}
			first := b.startPod(env...)
			first.awaitReady()
			b.startPod(env...).awaitReady()
			time.Sleep(time.Minute)
			b.expelAll()
			time.Sleep(time.Minute)
			b.process.Close()
			first.process.Close()
			time.Sleep(2 * time.Minute)
		},
		"brokers in trouble": func(b *bed) {
			s := b.start("FLOW_POD_NAME=pod", "FLOW_POD_NAMESPACE=test")
			s.awaitReady()
			for _, address := range b.cluster.ListenAddrs() {
				b.net.kill(address)
			}
			time.Sleep(time.Minute)
			for _, address := range b.cluster.ListenAddrs() {
				b.net.revive(address)
			}
			s.awaitReady()
			for _, address := range b.cluster.ListenAddrs() {
				b.net.kill(address)
			}
			s.stop()
		},
		"a stop before brokers that do not answer": func(b *bed) {
			var writing atomic.Bool
			b.tap = &tap{process: b.address, judge: func(m message) verdict {
				if m.call == "Produce" && !m.answer {
					writing.Store(true)
					return hangs
				}
				return passes
			}}
			b.produce(10)
			s := b.start()
			testkit.Eventually(b.t, time.Minute, "a write is on its way", func() (bool, string) { return writing.Load(), "" })
			s.stop()
		},
		"a listener that asks for SASL": func(b *bed) {
			b.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.cluster.KeepControl()
				return nil, errors.New("the connection is closed"), req.Key() != int16(kmsg.ApiVersions)
			})
			b.start()
			time.Sleep(10 * time.Second)
		},
		"an ACL that is missing": func(b *bed) {
			b.refuseWrites(1, kerr.TopicAuthorizationFailed)
			b.produce(10)
			b.start().awaitReady()
			time.Sleep(time.Minute)
		},
		"a topic that comes and goes": func(b *bed) {
			b.deployment.Inlets[0].Topic = "later"
			s := b.start()
			time.Sleep(10 * time.Second)
			for _, gone := range []time.Duration{0, time.Minute, 0} { // after a minute another client reads it
				time.Sleep(gone)
				if err := b.kafka.Create(context.Background(), "later", 1, 1, nil); err != nil {
					b.t.Fatal(err)
				}
				s.awaitReady()
				if err := b.kafka.Produce(context.Background(), []*kgo.Record{{Topic: "later", Value: []byte("1")}}); err != nil {
					b.t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				b.admin(func(ctx context.Context, admin *kadm.Client) error {
					_, err := admin.DeleteTopics(ctx, "later")
					return err
				})
			}
		},
		"offsets that are gone": func(b *bed) {
			commit := func(at int64) {
				b.admin(func(ctx context.Context, admin *kadm.Client) error {
					var offsets kadm.Offsets
					offsets.AddOffset("in", 0, at, -1)
					_, err := admin.CommitOffsets(ctx, "pipe.echo.in", offsets)
					return err
				})
			}
			b.produce(300)
			b.deleteBefore(0, 50)
			commit(5000)
			s := b.start()
			s.awaitReady()
			b.awaitCaughtUp(time.Minute)
			s.stop()
			commit(10)
			s = b.start()
			s.awaitReady()
			time.Sleep(10 * time.Second)
			b.process.Close()
			time.Sleep(2 * time.Minute)
			b.admin(func(ctx context.Context, admin *kadm.Client) error {
				_, err := admin.DeleteGroup(ctx, "pipe.echo.in")
				return err
			})
			b.startProcess()
			s.awaitReady()
		},
		"an inlet far behind": func(b *bed) {
			b.deployment.Outlets[0].Topic = "later"
			b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 10 * time.Second}) // at most 10 records a second of a partition
			b.produce(10000)
			b.start().awaitReady()
			time.Sleep(time.Minute)
			if err := b.kafka.Create(context.Background(), "later", 2, 1, nil); err != nil {
				b.t.Fatal(err)
			}
			time.Sleep(3 * time.Minute)
			b.produce(10000)
			time.Sleep(3 * time.Minute)
		},
		"another process": func(b *bed) {
			deployed := b.spec
			b.spec = testkit.Spec("echo", testkit.Ports("in", "more"), testkit.Ports("out"))
			other := b.newProcess("")
			b.spec = deployed
			<-b.start("FLOW_PROCESS_ADDRESS=" + other.Addr()).done
		},
		"a configuration with problems": func(b *bed) {
			<-b.start("FLOW_METRICS_PORT=x", "FLOW_DISCOVERY_TIMEOUT=1 fortnight").done
		},
		"what no cluster in memory does": func(b *bed) {
			s := b.start()
			s.awaitReady()
			log := newLog(s.log, "text", 0)
			in := newInlet(&InletConfig{PortConfig: PortConfig{Name: "in", Topic: "in"}}, "", network{}, &memoryBudget{}, newReadiness(s.files, "/", nil, nil, log), newMetrics(nil, nil).inlet("in"), log)
			a := newAssignment(in, 0)
			in.held[0], a.base = a, 5
			_ = in.fetchError(a, &kgo.ErrDataLoss{Topic: "in", ConsumedTo: 5, ResetTo: 3})
			in.distrust(&batch{assignment: a, first: 0, next: 5}, log.With("conversation", "1"))
			store := reloading[int]{known: true, read: func() ([]byte, error) { return nil, errors.New("it is empty") }}
			_, _ = store.get(func(text string) { in.troubles.tell("a store", text) })
			nobody, err := dialProcess("127.0.0.1:1", b.net.dial)
			if err != nil {
				b.t.Fatal(err)
			}
			reportProblems(context.Background(), log.With("address", "127.0.0.1:1", "attempt", 1), nobody, nil)
			closeConn(nobody)
			listener, err := b.net.listen("tcp", "")
			if err != nil {
				b.t.Fatal(err)
			}
			listener.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			serveMetrics(ctx, listener, newGatherer(newMetrics(nil, &memoryBudget{}), nil, nil), log)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, b *bed) {
				live(b)
				for _, s := range b.sidecars {
					s.stop()
					maps.Copy(seen, checkLog(t, s.log.String()))
				}
			})
		})
	}
	for _, event := range documentedEvents(t) {
		if !seen[event.text] {
			t.Errorf("docs/operations.md has an event that never happened: %s", event.text)
		}
	}
}

// fail makes every later change of a file fail.
func (f *memFiles) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}
