//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTheCartRouterOfTheDocumentsSendsLargeCartsToReview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operator  bool
		config    map[string]string
		threshold int
	}{
		"as a person writes streamlet.conf, with a threshold":      {false, map[string]string{"review-threshold": "50"}, 50},
		"as the operator renders streamlet.conf, with a default":   {true, nil, 100},
		"as the operator renders streamlet.conf, with a threshold": {true, map[string]string{"review-threshold": "150"}, 150},
	} {
		t.Run(name, func(t *testing.T) {
			w := pythonOnShared(t, "cart_router:CartRouter")
			w.operator, w.deployment.Config = c.operator, c.config
			w.deployment.Inlets[0].MaxRecords, w.deployment.Inlets[0].MaxBytes = 100, "1 MiB"
			w.create(3, "in", "valid", "review")
			totals := map[string]int{}
			var carts []*kgo.Record
			for i := range 600 {
				key := fmt.Sprint("cart-", i%50)
				cart := &kgo.Record{Topic: w.topic("in"), Key: []byte(key), Partition: testkit.JavaPartition([]byte(key), 3),
					Value: fmt.Appendf(nil, `{"cart":%q,"total":%d}`, key, i%200), Headers: []kgo.RecordHeader{{Key: testkit.IDHeader, Value: fmt.Append(nil, i)}}}
				totals[fmt.Sprint(i)] = i % 200
				carts = append(carts, cart)
			}
			w.produce(carts)
			port := freePort()
			w.python(port, cartRouter)
			s := w.sidecar(address(port))
			w.allCommitted(time.Minute)
			s.terminated(15 * time.Second)
			w.judge(func(in *kgo.Record) []testkit.Emit {
				if totals[testkit.Identity(in)] > c.threshold {
					return []testkit.Emit{testkit.Unchanged("review", in)}
				}
				return []testkit.Emit{testkit.Unchanged("valid", in)}
			}, func(h *testkit.History) { h.NoRepeats = true })
		})
	}
}

// tooLate is the log line of a batch that was committed before its process broke the protocol about it: that is the one loss that no
// sidecar can prevent, since an Ack without emits is how a streamlet skips.
var tooLate = regexp.MustCompile(`level=ERROR .*committed.* partition=0 offset=(\d+) last_offset=(\d+)`)

func TestAnAckBeforeItsEmitsIsFoundAndWhatItCostIsTold(t *testing.T) {
	w := pythonOnShared(t, "splitter:Splitter")
	w.create(1, "in") // of several, another one's Ack could be the last that is heard of it
	w.create(4, "left", "right")
	w.produce(testkit.Load(w.topic("in"), 1, 1_000))
	port := freePort()
	broken := w.python(port, "splitter.py", "ANKKA_FLOW_BREAK=ack-first")
	s := w.sidecar(address(port))
	testkit.Eventually(t, time.Minute, "the sidecar finds it and tries again and again", func() (bool, string) {
		n := s.lines("level=WARN", "the process broke the protocol: an Emit")
		return n >= 4, fmt.Sprint(n, " conversations failed of it")
	})
	broken.kill() // in the backoff: an Ack whose emits were still to come would be believed
	s.unready(time.Second)
	told := func(in *kgo.Record) bool {
		for _, line := range tooLate.FindAllStringSubmatch(s.output(), -1) {
			first, _ := strconv.ParseInt(line[1], 10, 64)
			last, _ := strconv.ParseInt(line[2], 10, 64)
			if first <= in.Offset && in.Offset <= last {
				return true
			}
		}
		return false
	}
	expect := func(in *kgo.Record) []testkit.Emit {
		if told(in) {
			return nil
		}
		return split.expect(in)
	}
	w.judge(expect, func(h *testkit.History) { h.Complete = false })
	committed, err := w.committed()
	t.Logf("committed are %v (%v), before that could be known", committed, err)
	w.python(port, "splitter.py")
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(expect, func(h *testkit.History) { h.NoRepeats = true })
}

func TestAnEmptyKeyOfTheProcessIsAnEmptyKeyInTheTopic(t *testing.T) {
	w := pythonOnShared(t, "splitter:Splitter")
	w.create(4, "in", "left", "right")
	w.produce(testkit.Load(w.topic("in"), 4, 2_000))
	port := freePort()
	w.python(port, "splitter.py", "ANKKA_FLOW_BREAK=keyless-empty-key")
	s := w.sidecar(address(port))
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(func(in *kgo.Record) []testkit.Emit {
		emits := split.expect(in)
		for i := range emits {
			if emits[i].Key == nil {
				emits[i].Key = []byte{}
			}
		}
		return emits
	}, func(h *testkit.History) { h.NoRepeats = true })
	if report := w.report(split.expect, nil); report.ByRule()[testkit.Bytes] == 0 {
		t.Errorf("that the process broke the rule is not seen: %s", report)
	}
}

func TestAProcessThatDiffersFromItsDescriptorIsRefusedAndToldWhy(t *testing.T) {
	w := pythonOnShared(t, "cart_router:CartRouter")
	w.create(1, "in", "valid", "review")
	w.spec = []byte(strings.NewReplacer(`"default_value": "100"`, `"default_value": "200"`, `"name": "cart-router"`, `"name": "cart-chooser"`).Replace(string(w.spec)))
	port := freePort()
	process := w.python(port, cartRouter)
	s := w.sidecar(address(port))
	if code := s.exit(t, 30*time.Second); code != 1 {
		t.Errorf("it ended with code %d, not 1", code)
	}
	refusals := 0
	for _, words := range [][]string{{"cart-router", "cart-chooser"}, {"review-threshold", "100", "200"}} {
		testkit.Eventually(t, 5*time.Second, fmt.Sprintf("both sides tell of a difference with %q", words), func() (bool, string) {
			told := 0
			for line := range strings.Lines(process.output()) {
				if strings.Contains(line, "the sidecar refused this process") && containsAll(line, words) {
					told++
				}
			}
			return told == 1 && s.lines(words...) == 1, fmt.Sprintf("the process was told %d times, the log says it %d times", told, s.lines(words...))
		})
		refusals++
	}
	if n := strings.Count(process.output(), "the sidecar refused this process"); n != refusals {
		t.Errorf("%d problems were reported, not %d", n, refusals)
	}
}

func containsAll(s string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(s, word) {
			return false
		}
	}
	return true
}
