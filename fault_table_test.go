package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// externalCall is a call that the sidecar makes, or an answer of the process, and when it goes wrong.
type externalCall struct {
	name    string
	at      int         // which one of them goes wrong: the third where they go on for as long as the sidecar runs
	process bool        // it is between the sidecar and the process
	code    *kerr.Error // what a broker refuses it with
	member  bool        // it shares a connection with the heartbeats: where it hangs, the membership is lost, and what was not committed comes again
	repeats string      // why a failure of it may write records again, without that or a crash; empty: it may not
}

// externalCalls are all of them (DESIGN: 8). LeaveGroup is made at the end of a sidecar, where none of the crash points can
// follow: TestAStopWhoseLeaveFailsKeepsNobodyFromThePartitions.
var externalCalls = []externalCall{
	{name: "Metadata", member: true, at: 3, code: kerr.LeaderNotAvailable},
	{name: "FindCoordinator", member: true, at: 1, code: kerr.CoordinatorNotAvailable},
	{name: "JoinGroup", member: true, at: 1, code: kerr.CoordinatorLoadInProgress},
	{name: "SyncGroup", member: true, at: 1, code: kerr.RebalanceInProgress},
	{name: "OffsetFetch", member: true, at: 1, code: kerr.CoordinatorLoadInProgress},
	{name: "Heartbeat", member: true, at: 3, code: kerr.UnknownMemberID},
	{name: "ListOffsets", member: true, at: 3, code: kerr.NotLeaderForPartition},
	{name: "Fetch", at: 3, code: kerr.NotLeaderForPartition},
	{name: "InitProducerID", at: 1, code: kerr.CoordinatorLoadInProgress},
	{name: "DescribeConfigs", at: 1, code: kerr.TopicAuthorizationFailed},
	{name: "Produce", at: 3, code: kerr.TopicAuthorizationFailed, repeats: "a write that had no answer may be there, and others of its batch are"},
	{name: "OffsetCommit", member: true, at: 3, code: kerr.RequestTimedOut},
	{name: "Discover", at: 1, process: true},
	{name: "Start", at: 1, process: true},
	{name: "Batch", at: 3, process: true},
	{name: "Emit", at: 30, process: true},
	{name: "Ack", at: 3, process: true},
}

// waysToFail are what happens to a call.
var waysToFail = []struct {
	name string
	how  verdict
}{{"fails", fails}, {"is refused", refuses}, {"hangs", hangs}, {"fails after it took effect", takesEffect}}

// leftOut says why a call does not go wrong in one of the ways; empty: it does.
func (c externalCall) leftOut(how verdict) string {
	if how == refuses && c.process {
		return "what a process refuses, and what refusing means, is the protocol's: TestEveryViolationFailsTheConversationAndLosesNothing"
	}
	return ""
}

// crashPoint is where a sidecar is killed: in place of a message, or when it has just passed.
type crashPoint struct {
	name   string
	call   string // empty: it is not killed
	answer bool
	nth    int  // of such messages, after the call went wrong
	passes bool // the message
}

// crashPoints are those between reading a record and committing it (DESIGN: 8), in the order in which a record meets them.
var crashPoints = []crashPoint{
	{name: "no crash"},
	{name: "crash before a batch is sent", call: "Batch"},
	{name: "crash with a batch at the process", call: "Emit"},
	{name: "crash before the write", call: "Produce"},
	{name: "crash between the writes of a batch", call: "Produce", nth: 1},
	{name: "crash after the write, before its answer", call: "Produce", answer: true},
	{name: "crash after the write's answer, before the commit", call: "OffsetCommit"},
	{name: "crash after the commit was sent, before its answer", call: "OffsetCommit", answer: true},
	{name: "crash after the commit was answered", call: "OffsetCommit", answer: true, passes: true},
}

// TestTheFaultTable makes each external call fail, be refused, hang, and fail after it took effect, and then kills the
// sidecar at each crash point; another one goes on. Whatever happened, all is written and committed in the end, and the
// checker reads both ends.
func TestTheFaultTable(t *testing.T) {
	for _, call := range externalCalls {
		for _, way := range waysToFail {
			if call.leftOut(way.how) != "" {
				continue
			}
			for _, crash := range crashPoints {
				t.Run(fmt.Sprintf("%s %s, %s", call.name, way.name, crash.name), func(t *testing.T) {
					t.Parallel()
					inBubble(t, 2, func(t *testing.T, b *bed) { runRow(t, b, call, way.how, crash) })
				})
			}
		}
	}
}

func runRow(t *testing.T, b *bed, call externalCall, how verdict, crash crashPoint) {
	b.deployment.Inlets[0].MaxRecords = 10
	var mu sync.Mutex // guards all below that judge touches
	var s *instance
	fault, crashed := make(chan struct{}), make(chan struct{})
	calls, toCrash, dead := 0, crash.nth, false
	judge := func(m message) verdict {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return fails
		}
		faulty := calls >= call.at
		if m.call == call.name && !m.answer {
			if calls++; calls == call.at {
				close(fault)
				return how
			}
		}
		if !faulty || m.call != crash.call || m.answer != crash.answer {
			return passes
		}
		if toCrash--; toCrash >= 0 {
			return passes
		}
		dead = true
		s.crash()
		close(crashed)
		if crash.passes {
			return passes
		}
		return fails
	}
	const pod, namespace = "FLOW_POD_NAME=pod-0", "FLOW_POD_NAMESPACE=test"
	kept, end, err := b.kafka.Keep()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	b.kafka = kept
	stopLoad := b.keepLoading(time.Second)
	b.tap = &tap{process: b.address, judge: judge}
	if call.code != nil {
		b.tap.code = call.code.Code
	}
	tap := b.tap
	mu.Lock()
	s = b.start(pod, namespace)
	mu.Unlock()

	within := func(happened <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-happened:
		case <-time.After(10 * time.Minute):
			t.Fatalf("not within ten minutes: %s", what)
		}
	}
	within(fault, "the fault")
	if how == hangs && call.process {
		time.Sleep(time.Minute)
		tap.cutHung() // it would hang for ever
	}
	atMost := 0 // repeats
	if crash.call != "" {
		within(crashed, "the crash")
		atMost = b.acknowledgedAndNotCommitted()
		s = b.start(pod, namespace)
	}
	time.Sleep(5 * time.Second)
	stopLoad()
	b.awaitCaughtUpLooking(10*time.Minute, time.Second) // a join that hangs is tried again after max.poll.interval.ms
	s.awaitReady()
	if code := s.stop(); code != exitStopped {
		t.Errorf("exit code %d", code)
	}
	inputs, err := b.kafka.Read(context.Background(), "in")
	if err != nil {
		t.Fatal(err)
	}
	b.inputs = inputs
	report := b.check()
	if call.repeats == "" && !(how == hangs && call.member) && report.Repeats > atMost {
		t.Errorf("%d records came twice, %d were acknowledged and not committed", report.Repeats, atMost)
	}
}

// acknowledgedAndNotCommitted is how many records a crash now may write again (promise 7).
func (b *bed) acknowledgedAndNotCommitted() (n int) {
	_, committed := b.offsets()
	for _, p := range b.processes {
		for _, c := range p.Conversations() {
			for _, batch := range c.Batches {
				for _, offset := range batch.Offsets() {
					if batch.Answer == "ack" && offset >= committed[testkit.TopicPartition{Topic: "in", Partition: batch.Partition}] {
						n++
					}
				}
			}
		}
	}
	return n
}

// keepLoading adds a few records each interval, over one connection, until stop is called.
func (b *bed) keepLoading(interval time.Duration) (stop func()) {
	loader := b.newLoader()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer loader.Close()
		for wait(ctx, interval) {
			b.tryProduce(loader, 20)
		}
	}()
	return func() { cancel(); <-done }
}

// crashAt kills the sidecar that it is given in place of the first message that due says yes to, once it is armed.
type crashAt struct {
	due func(message) bool

	mu      sync.Mutex
	s       *instance // nil: not armed
	crashed chan struct{}
	dead    bool
}

func (c *crashAt) arm(s *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s = s
}

func (c *crashAt) judge(m message) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return fails
	case c.s == nil || !c.due(m):
		return passes
	}
	c.dead = true
	c.s.crash()
	close(c.crashed)
	return fails
}

// A crash in a planned hand-over is a crash: what was acknowledged and not committed comes again, and nothing is lost.
func TestACrashDuringAHandOverLosesNothing(t *testing.T) {
	call := func(name string, answer bool) func(message) bool {
		return func(m message) bool { return m.call == name && m.answer == answer }
	}
	for name, tt := range map[string]struct {
		due    func(message) bool
		revoke bool // else it is a stop
	}{
		"revoke, before the last commit":                {call("OffsetCommit", false), true},
		"revoke, after the last commit was sent":        {call("OffsetCommit", true), true},
		"revoke, before joining again":                  {call("JoinGroup", false), true},
		"revoke, before it is told what it has":         {call("SyncGroup", true), true},
		"stop, before the process is told":              {call("Stop", false), false},
		"stop, before the process answers":              {call("Ack", false), false},
		"stop, before the last write":                   {call("Produce", false), false},
		"stop, after the last write, before its answer": {call("Produce", true), false},
		"stop, before the last commit":                  {call("OffsetCommit", false), false},
		"stop, after the last commit was sent":          {call("OffsetCommit", true), false},
		"stop, before leaving":                          {call("LeaveGroup", false), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 4, func(t *testing.T, b *bed) {
				b.deployment.Inlets[0].MaxRecords = 10
				pod := func(n int) []string {
					return []string{fmt.Sprintf("FLOW_POD_NAME=pod-%d", n), "FLOW_POD_NAMESPACE=test"}
				}
				stopLoad := b.keepLoading(50 * time.Millisecond)
				crash := &crashAt{due: tt.due, crashed: make(chan struct{})}
				b.tap = &tap{process: b.address, judge: crash.judge}
				s := b.start(pod(0)...)
				s.awaitReady()
				time.Sleep(time.Second)
				b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 20 * time.Millisecond}) // so that something is with it
				time.Sleep(time.Second)
				var other *instance
				crash.arm(s)
				if tt.revoke {
					other = b.startPod(pod(1)...)
				} else {
					s.kill()
				}
				select {
				case <-crash.crashed:
				case <-time.After(time.Minute):
					t.Fatal("it did not come to that")
				}
				atMost := b.acknowledgedAndNotCommitted()
				again := b.start(pod(0)...)
				time.Sleep(10 * time.Second)
				stopLoad()
				b.awaitCaughtUpLooking(5*time.Minute, time.Second)
				again.awaitReady()
				again.stop()
				if other != nil {
					other.awaitReady()
					other.stop()
				}
				inputs, err := b.kafka.Read(t.Context(), "in")
				if err != nil {
					t.Fatal(err)
				}
				b.inputs = inputs
				if report := b.check(); report.Repeats > atMost {
					t.Errorf("%d records came twice, %d were acknowledged and not committed", report.Repeats, atMost)
				}
			})
		})
	}
}

func TestAStopWhoseLeaveFailsKeepsNobodyFromThePartitions(t *testing.T) {
	for _, pod := range []string{"", "pod-0"} {
		for _, way := range waysToFail {
			t.Run(fmt.Sprintf("LeaveGroup %s, member %q", way.name, pod), func(t *testing.T) {
				t.Parallel()
				inBubble(t, 2, func(t *testing.T, b *bed) {
					b.produce(100)
					var left atomic.Bool
					b.tap = &tap{process: b.address, code: kerr.CoordinatorNotAvailable.Code, judge: func(m message) verdict {
						if m.call == "LeaveGroup" && !m.answer {
							left.Store(true)
							return way.how
						}
						return passes
					}}
					s := b.start("FLOW_POD_NAME="+pod, "FLOW_POD_NAMESPACE=test")
					b.awaitCaughtUp(time.Minute)
					began := time.Now()
					if code := s.stop(); code != exitStopped {
						t.Errorf("exit code %d", code)
					}
					if took := time.Since(began); took >= 15*time.Second {
						t.Errorf("the stop took %s", took)
					}
					if !left.Load() {
						t.Error("it did not try to leave")
					}
					b.produce(100)
					successor := b.startPod("FLOW_POD_NAME=another", "FLOW_POD_NAMESPACE=test")
					b.awaitCaughtUpLooking(2*time.Minute, time.Second)
					successor.stop()
					b.check(noRepeats)
				})
			})
		}
	}
}
