//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestWithThreeBrokers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, append(quickToNotice, "min.insync.replicas=2")...)
	t.Run("each may die and nothing is lost", func(t *testing.T) { eachMayDie(t, c) })
	t.Run("what is not confirmed is not committed, and a kill loses nothing", func(t *testing.T) {
		notConfirmedNotCommitted(t, c, func(s *sidecar) { s.kill() })
	})
	t.Run("what is not confirmed is not committed, and a stop loses nothing", func(t *testing.T) {
		notConfirmedNotCommitted(t, c, func(s *sidecar) { s.terminated(20 * time.Second) })
	})
	t.Run("leaders and coordinators move, and nothing comes twice", func(t *testing.T) { theyMove(t, c) })
	t.Run("with too few replicas nothing is committed, and nothing comes twice", func(t *testing.T) { tooFewReplicas(t, c) })
	t.Run("one that is frozen holds up no more than a request's timeout", func(t *testing.T) { oneIsFrozen(t, c) })
	t.Run("all are frozen, and it is not ready", func(t *testing.T) { allAreFrozen(t, c) })
	t.Run(fmt.Sprintf("all are down for %v", *outage), func(t *testing.T) { allAreDown(t, c) })
}

var outage = flag.Duration("outage", 20*time.Second, "how long TestWithThreeBrokers keeps all of them down; two minutes is what a release should have seen")

// flowing is a world on the cluster under load, with a sidecar that works.
func flowing(t *testing.T, c *cluster, outlets ...string) (w *world, p *testkit.Process, s *sidecar, stop func()) {
	t.Helper()
	for i, b := range c.brokers {
		if b.signal(syscall.SIGCONT); !b.running() { // a test before failed
			t.Logf("broker %d is started again", i+1)
			b.again(t)
		}
	}
	spec := testkit.Spec("flowing", testkit.Ports("in"), testkit.Ports(outlets...))
	w = newWorld(t, c, spec)
	w.create(6, append(outlets, "in")...)
	p = w.double(spec, to(outlets...).handle)
	stop = w.trickle(testkit.Load(w.topic("in"), 6, 200_000), 5)
	s = w.sidecar(p.Addr())
	s.ready(time.Minute)
	w.flows(p)
	return w, p, s, stop
}

// flows waits until more records come, and says how long it took.
func (w *world) flows(p *testkit.Process) time.Duration {
	w.t.Helper()
	before, began := p.Records(), time.Now()
	testkit.Eventually(w.t, 2*time.Minute, "records of all partitions flow", func() (bool, string) {
		return p.Records() > before+300, fmt.Sprint(p.Records()-before, " records")
	})
	return time.Since(began).Round(100 * time.Millisecond)
}

// ended stops the load and the sidecar and judges.
func (w *world) ended(p *testkit.Process, s *sidecar, stop func(), change func(*testkit.History)) {
	w.t.Helper()
	stop()
	w.allCommitted(2 * time.Minute)
	s.ready(time.Minute)
	s.terminated(20 * time.Second)
	var outlets []string
	for _, out := range w.deployment.Outlets {
		outlets = append(outlets, out.Name)
	}
	report := w.judge(to(outlets...).expect, func(h *testkit.History) {
		h.Processes = []*testkit.Process{p}
		if change != nil {
			change(h)
		}
	})
	w.t.Logf("%d of %d emits came twice; the log has %d lines", report.Repeats, report.Expected, strings.Count(s.output(), "\n"))
}

func nothingTwice(h *testkit.History) { h.NoRepeats = true }

func theyMove(t *testing.T, c *cluster) {
	w, p, s, stop := flowing(t, c, "out")
	for _, topic := range []string{w.topic("in"), w.topic("out"), "__consumer_offsets"} {
		for range 2 {
			if err := w.moveLeaders(w.ctx, topic); err != nil {
				t.Fatal(err)
			}
			t.Logf("the leaders of %s moved, and 300 records were through after %v", topic, w.flows(p))
		}
	}
	w.ended(p, s, stop, nothingTwice)
	if n := len(p.Conversations()); n != 1 {
		t.Errorf("there were %d conversations", n)
	}
}

func tooFewReplicas(t *testing.T, c *cluster) {
	w, p, s, stop := flowing(t, c, "out")
	if err := c.Configure(w.ctx, w.topic("out"), "min.insync.replicas", "3"); err != nil {
		t.Fatal(err)
	}
	c.brokers[0].kill()
	var last map[testkit.TopicPartition]int64
	since := time.Now()
	testkit.Eventually(t, time.Minute, "nothing is committed for five seconds", func() (bool, string) {
		committed, err := w.committed()
		if err != nil || !maps.Equal(committed, last) {
			last, since = committed, time.Now()
		}
		return time.Since(since) > 5*time.Second, fmt.Sprint(committed, err)
	})
	c.brokers[0].again(t)
	t.Logf("with enough replicas again records flow after %v", w.flows(p))
	w.ended(p, s, stop, nothingTwice)
	if n := len(p.Conversations()); n != 1 {
		t.Errorf("there were %d conversations", n)
	}
}

func oneIsFrozen(t *testing.T, c *cluster) {
	w, p, s, stop := flowing(t, c, "out")
	for i, b := range c.brokers {
		b.signal(syscall.SIGSTOP)
		t.Logf("broker %d is frozen, and 300 records were through after %v; ready is %v", i+1, w.flows(p), s.isReady())
		b.signal(syscall.SIGCONT)
		w.flows(p)
	}
	w.ended(p, s, stop, nil)
}

// allAreFrozen has two sidecars, one with and one without an outlet, since an outlet has a watch of its own.
func allAreFrozen(t *testing.T, c *cluster) {
	const bound = 30 * time.Second // a look at the topic every three seconds has an answer within ten
	w, p, s, stop := flowing(t, c, "out")
	sink, sp, ss, stopSink := flowing(t, c)
	for _, b := range c.brokers {
		b.signal(syscall.SIGSTOP)
	}
	began := time.Now()
	s.unready(bound)
	t.Logf("with an outlet it is not ready after %v", time.Since(began).Round(100*time.Millisecond))
	ss.unready(bound - time.Since(began))
	t.Logf("without an outlet it is not ready after %v", time.Since(began).Round(100*time.Millisecond))
	for _, b := range c.brokers {
		b.signal(syscall.SIGCONT)
	}
	began = time.Now()
	s.ready(2 * time.Minute)
	ss.ready(2 * time.Minute)
	t.Logf("both are ready %v after the brokers go on", time.Since(began).Round(100*time.Millisecond))
	w.ended(p, s, stop, nil)
	sink.ended(sp, ss, stopSink, nil)
}

func allAreDown(t *testing.T, c *cluster) {
	w, p, s, stop := flowing(t, c, "out")
	for _, b := range c.brokers {
		b.kill()
	}
	began := time.Now()
	s.unready(time.Minute)
	t.Logf("it is not ready %v after all brokers were killed", time.Since(began).Round(100*time.Millisecond))
	testkit.Eventually(t, *outage+time.Minute, "the outage is over", func() (bool, string) { return time.Since(began) > *outage, "" })
	if !s.running() || time.Since(s.touched("alive")) > 15*time.Second {
		t.Fatal("the sidecar does not live through it")
	}
	for _, b := range c.brokers {
		if err := b.launch(); err != nil { // each waits for another to serve
			t.Fatal(err)
		}
	}
	for _, b := range c.brokers {
		if err := b.serves(2 * time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	began = time.Now()
	s.ready(2 * time.Minute)
	t.Logf("it is ready %v after the brokers serve again", time.Since(began).Round(100*time.Millisecond))
	w.ended(p, s, stop, nil)
	if n := strings.Count(s.output(), "\n"); n > 150 {
		t.Errorf("its log has %d lines", n)
	}
}

func eachMayDie(t *testing.T, c *cluster) {
	spec := testkit.Spec("replicated", testkit.Ports("in"), testkit.Ports("left", "right"))
	w := newWorld(t, c, spec)
	w.create(6, "in", "left")
	w.create(4, "right")
	p := w.double(spec, route(splitting).handle)
	s := w.sidecar(p.Addr())
	stop := w.trickle(testkit.Load(w.topic("in"), 6, 200_000), 30)
	for i, b := range c.brokers {
		works := func() {
			t.Helper()
			records := p.Records()
			testkit.Eventually(t, time.Minute, "records flow", func() (bool, string) { return p.Records() > records+500, "" })
		}
		works()
		began := time.Now()
		b.kill()
		works()
		t.Logf("broker %d was killed, and records flow after %v", i+1, time.Since(began).Round(time.Millisecond))
		b.again(t)
	}
	stop()
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	report := w.judge(route(splitting).expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
	t.Logf("%d of %d emits came twice", report.Repeats, report.Expected)
}

// notConfirmedNotCommitted has the outlet's only partition on a broker that is dead, so that the process acknowledges and no write is
// ever answered, until the sidecar has been ended.
func notConfirmedNotCommitted(t *testing.T, c *cluster, end func(*sidecar)) {
	spec := testkit.Spec("unconfirmed", testkit.Ports("in"), testkit.Ports("out"))
	w := newWorld(t, c, spec)
	w.create(3, "in")
	dies := len(c.brokers)
	if !c.brokers[dies-1].running() { // the one before failed
		c.brokers[dies-1].again(t)
	}
	w.createOn(dies, "out")
	w.produce(testkit.Load(w.topic("in"), 3, 900))
	c.brokers[dies-1].kill()
	p := w.double(spec, to("out").handle)
	// A static member, so that the next one need not wait until the group has missed it.
	pod := []string{"FLOW_POD_NAME=pod-0", "FLOW_POD_NAMESPACE=e2e"}
	s := w.sidecar(p.Addr(), pod...)
	var since time.Time // a batch of each partition is acknowledged
	testkit.Eventually(t, time.Minute, "batches are acknowledged, and a good while passes in which they could be committed", func() (bool, string) {
		committed, err := w.committed()
		if len(committed) > 0 {
			t.Fatalf("committed is %v, and nothing can have been written", committed)
		}
		acknowledged := map[int32]bool{}
		for _, conversation := range p.Conversations() {
			for _, b := range conversation.Batches {
				if b.Answer == "ack" {
					acknowledged[b.GetPartition()] = true
				}
			}
		}
		if len(acknowledged) == 3 && since.IsZero() {
			since = time.Now()
		}
		return err == nil && !since.IsZero() && time.Since(since) > time.Second, fmt.Sprint(len(acknowledged), " partitions have an acknowledged batch; ", err)
	})
	end(s)
	if committed, err := w.committed(); len(committed) > 0 || err != nil {
		t.Fatalf("after its end committed is %v (%v)", committed, err)
	}
	c.brokers[dies-1].again(t)
	s = w.sidecar(p.Addr(), pod...)
	w.allCommitted(time.Minute)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
	s.terminated(15 * time.Second)
}

// createOn makes a port's topic with one partition, on one broker alone.
func (w *world) createOn(broker int, port string) {
	w.t.Helper()
	client, err := w.cluster.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = w.topic(port), -1, -1
	at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	at.Replicas = []int32{int32(broker)}
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, at)
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), 10_000
	response, err := request.RequestWith(w.ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].ErrorCode)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.partitions[port] = 1
}
