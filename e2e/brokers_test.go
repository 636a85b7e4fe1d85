//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestWithThreeBrokers(t *testing.T) {
	t.Parallel()
	// A dead broker is found out after these, which are 9 s and 2 s by default.
	c := newCluster(t, 3, "min.insync.replicas=2", "broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=400",
		"controller.quorum.fetch.timeout.ms=1000", "controller.quorum.election.timeout.ms=500")
	t.Run("each may die and nothing is lost", func(t *testing.T) { eachMayDie(t, c) })
	t.Run("what is not confirmed is not committed, and a kill loses nothing", func(t *testing.T) {
		notConfirmedNotCommitted(t, c, func(s *sidecar) { s.kill() })
	})
	t.Run("what is not confirmed is not committed, and a stop loses nothing", func(t *testing.T) {
		notConfirmedNotCommitted(t, c, func(s *sidecar) { s.terminated(20 * time.Second) })
	})
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
