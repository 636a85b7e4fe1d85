//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin calls f with an admin client and fails the test with its error.
func (w *world) admin(f func(context.Context, *kadm.Client) error) {
	w.t.Helper()
	if err := w.cluster.Admin(func(admin *kadm.Client) error { return f(w.ctx, admin) }); err != nil {
		w.t.Fatal(err)
	}
}

// passing is a world with one inlet and one outlet, and the double of its process.
func passing(t *testing.T, partitions int32) (*world, *testkit.Process) {
	t.Helper()
	spec := testkit.Spec("passing", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(partitions, "in", "out")
	return w, w.double(spec, to("out").handle)
}

// anew gives records that were made before an identity of their own.
func anew(records []*kgo.Record) []*kgo.Record {
	for _, r := range records {
		// The first of the name counts.
		r.Headers = append([]kgo.RecordHeader{{Key: testkit.IDHeader, Value: []byte("anew-" + testkit.Identity(r))}}, r.Headers...)
	}
	return records
}

func TestPartitionsThatAreAddedUnderLoadAreReadWithinTenSeconds(t *testing.T) {
	w, p := passing(t, 2)
	s := w.sidecar(p.Addr())
	s.ready(30 * time.Second)
	stop := w.trickle(testkit.Load(w.topic("in"), 2, 100_000), 5)
	w.admin(func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.UpdatePartitions(ctx, 4, w.topic("in"))
		return err
	})
	w.known("in", 4)
	w.produce([]*kgo.Record{{Topic: w.topic("in"), Partition: 2, Value: []byte("two;")}, {Topic: w.topic("in"), Partition: 3, Value: []byte("three;")}})
	testkit.Eventually(t, 10*time.Second, "the partitions that were added are committed", func() (bool, string) {
		committed, err := w.committed()
		return committed[testkit.TopicPartition{Topic: w.topic("in"), Partition: 2}] == 1 && committed[testkit.TopicPartition{Topic: w.topic("in"), Partition: 3}] == 1, fmt.Sprint(committed, err)
	})
	stop()
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
}

func TestATopicThatIsCreatedAgainIsReadFromItsStart(t *testing.T) {
	w, p := passing(t, 2)
	w.produce(testkit.Load(w.topic("in"), 2, 1_000))
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	w.judge(to("out").expect, func(h *testkit.History) { h.NoRepeats = true })
	w.admin(func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, w.topic("in"))
		return err
	})
	s.unready(time.Minute)
	w.create(2, "in")
	before := w.inputs
	w.inputs = nil
	w.produce(anew(testkit.Load(w.topic("in"), 2, 400)))
	s.logs(time.Minute, "level=ERROR", "was deleted and created again")
	w.allCommitted(time.Minute)
	s.ready(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.NoRepeats = true
		// What the old topic had is there once, and is nobody's any more.
		old := map[string]bool{}
		for _, r := range before {
			old[testkit.Identity(r)] = true
		}
		h.Outputs = slicesWithout(h.Outputs, func(r *kgo.Record) bool { return old[testkit.Identity(r)] })
	})
}

func slicesWithout(records []*kgo.Record, which func(*kgo.Record) bool) (rest []*kgo.Record) {
	for _, r := range records {
		if !which(r) {
			rest = append(rest, r)
		}
	}
	return rest
}

func TestAnOutletsTopicThatIsCreatedAgainGetsWhatComesAfter(t *testing.T) {
	w, p := passing(t, 2)
	s := w.sidecar(p.Addr())
	w.produce(testkit.Load(w.topic("in"), 2, 500))
	w.allCommitted(time.Minute)
	w.admin(func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, w.topic("out"))
		return err
	})
	s.logs(time.Minute, "does not exist: what is emitted cannot be written until it does")
	after := anew(testkit.Load(w.topic("in"), 2, 500))
	w.inputs = nil
	w.produce(after)
	w.create(2, "out")
	w.allCommitted(2 * time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, nil)
}

func TestRecordsThatRetentionRemovedBeforeTheyWereReadAreToldWithTheirCount(t *testing.T) {
	for _, when := range []string{"while it was away", "while its process was away"} {
		t.Run(when, func(t *testing.T) {
			w, p := passing(t, 1)
			pod := []string{"FLOW_POD_NAME=pod-0", "FLOW_POD_NAMESPACE=e2e"}
			s := w.sidecar(p.Addr(), pod...)
			all := testkit.Load(w.topic("in"), 1, 1_000)
			w.produce(all[:300])
			w.allCommitted(time.Minute)
			if when == "while it was away" {
				s.terminated(15 * time.Second)
			} else {
				p.RefuseRun(true)
				p.DropConnections()
				s.unready(15 * time.Second)
			}
			w.produce(all[300:])
			w.admin(func(ctx context.Context, admin *kadm.Client) error {
				offsets := kadm.Offsets{}
				offsets.AddOffset(w.topic("in"), 0, 700, -1)
				_, err := admin.DeleteRecords(ctx, offsets)
				return err
			})
			if p.RefuseRun(false); when == "while it was away" {
				s = w.sidecar(p.Addr(), pod...)
			}
			w.allCommitted(time.Minute)
			s.logs(10*time.Second, "level=ERROR", "removed by retention before they were read", "offset=300", "removed=400")
			s.terminated(15 * time.Second)
			w.inputs = append(w.inputs[:300:300], w.inputs[700:]...)
			w.judge(to("out").expect, func(h *testkit.History) { h.NoRepeats = true })
		})
	}
}

func TestCommitsThatExpiredAreToldWithWhereReadingStarts(t *testing.T) {
	w, p := passing(t, 2)
	w.produce(testkit.Load(w.topic("in"), 2, 600))
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	forget := func(group string) error {
		return w.cluster.Admin(func(admin *kadm.Client) error {
			var all kadm.TopicsSet
			all.Add(w.topic("in"), 0, 1)
			responses, err := admin.DeleteOffsets(w.ctx, group, all)
			if err != nil {
				return err
			}
			return responses.Error()
		})
	}
	if err := forget(w.groups()[0]); err != nil {
		t.Fatal(err)
	}
	s = w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.logs(time.Second, "partitions assigned", "from_auto_offset_reset_earliest=0@0,1@0")
	s.terminated(15 * time.Second)
	report := w.judge(to("out").expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
	if report.Repeats != report.Expected {
		t.Errorf("%d of %d came twice, and all were to", report.Repeats, report.Expected)
	}
}

func TestAKillBeforeTheFirstCommitUnderLatestSkipsNothing(t *testing.T) {
	w, p := passing(t, 2)
	w.deployment.Inlets[0].Consumer = map[string]string{"auto.offset.reset": "latest"}
	w.produce(testkit.Load(w.topic("in"), 2, 200)) // before the group is there: never to be read
	old := len(w.inputs)
	cure := p.Inject(testkit.Fault{Do: testkit.Hang})
	pod := []string{"FLOW_POD_NAME=pod-0", "FLOW_POD_NAMESPACE=e2e"}
	s := w.sidecar(p.Addr(), pod...)
	s.ready(30 * time.Second)
	w.produce(anew(testkit.Load(w.topic("in"), 2, 200)))
	testkit.Eventually(t, 30*time.Second, "something is with the process", func() (bool, string) { return p.Records() > 0, "" })
	s.kill()
	cure()
	w.produce([]*kgo.Record{{Topic: w.topic("in"), Partition: 0, Value: []byte("while it was away;")}})
	s = w.sidecar(p.Addr(), pod...)
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.inputs = w.inputs[old:]
	w.judge(to("out").expect, func(h *testkit.History) {
		h.NoRepeats = true // nothing was answered before the kill
		h.Processes = []*testkit.Process{p}
	})
}

func TestOnlyARecordThatIsItselfTooLargeForTheOutletsTopicIsRefusedUnderLoad(t *testing.T) {
	spec := testkit.Spec("small", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(4, "in")
	w.createWith("out", 2, map[string]string{"max.message.bytes": "2000"})
	p := w.double(spec, to("out").handle)
	s := w.sidecar(p.Addr())
	w.produce(testkit.Load(w.topic("in"), 4, 20_000)) // up to 700 bytes each: many would share a batch
	w.allCommitted(time.Minute)
	if n := s.lines("conversation failed"); n > 0 {
		t.Errorf("%d conversations failed", n)
	}
	stop := w.trickle(anew(testkit.Load(w.topic("in"), 4, 100_000)), 10)
	large := &kgo.Record{Topic: w.topic("in"), Partition: 3, Value: append([]byte("large;"), make([]byte, 5000)...)}
	w.produce([]*kgo.Record{large})
	s.logs(time.Minute, "MESSAGE_TOO_LARGE", fmt.Sprint("offset=", large.Offset))
	held := testkit.TopicPartition{Topic: w.topic("in"), Partition: 3}
	testkit.Eventually(t, time.Minute, "all before the large one is committed, and nothing else", func() (bool, string) {
		committed, err := w.committed()
		return committed[held] == large.Offset, fmt.Sprint(committed[held], " of ", large.Offset, " ", err)
	})
	if err := w.cluster.Configure(w.ctx, w.topic("out"), "max.message.bytes", "20000"); err != nil {
		t.Fatal(err)
	}
	stop()
	w.allCommitted(2 * time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
}

// The misfortunes of one connection are the client's to bear: the request is sent again, and what the broker has done already it knows
// again. So nothing comes twice, and no conversation fails.
func TestWhateverIsLostOnTheWayToABrokerNothingComesTwice(t *testing.T) {
	t.Parallel()
	spec := testkit.Spec("far", testkit.Ports("in"), testkit.Ports("out"))
	for what, name := range misfortunes {
		t.Run(name, func(t *testing.T) {
			w := onShared(t, spec)
			w.throughDoors(t)
			w.deployment.Inlets[0].Consumer = map[string]string{"request.timeout.ms": "2000", "max.poll.interval.ms": "6000"} // the longest wait for a join
			w.deployment.Outlets[0].Producer = map[string]string{"request.timeout.ms": "2000"}
			w.create(3, "in", "out")
			p := w.double(spec, to("out").handle)
			stop := w.trickle(testkit.Load(w.topic("in"), 3, 200_000), 5)
			s := w.sidecar(p.Addr())
			s.ready(30 * time.Second)
			for _, key := range []kmsg.Key{kmsg.Fetch, kmsg.Produce, kmsg.OffsetCommit, kmsg.ListOffsets, kmsg.Metadata, kmsg.Heartbeat} {
				left := w.strike(what, key, 1)
				testkit.Eventually(t, time.Minute, fmt.Sprint(name, ": ", key.Name()), func() (bool, string) { return left() == 0, "there was none" })
			}
			s.ready(time.Minute)
			before := p.Records()
			testkit.Eventually(t, time.Minute, "records flow", func() (bool, string) { return p.Records() > before+100, "" })
			s.terminated(15 * time.Second)
			for _, key := range []kmsg.Key{kmsg.ApiVersions, kmsg.FindCoordinator, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetFetch, kmsg.InitProducerID} {
				w.strike(what, key, 1)
			}
			second := w.double(spec, to("out").handle)
			s2 := w.sidecar(second.Addr())
			s2.ready(time.Minute)
			stop()
			w.allCommitted(time.Minute)
			s2.terminated(15 * time.Second)
			w.judge(to("out").expect, func(h *testkit.History) {
				h.NoRepeats = true
				h.Processes = []*testkit.Process{p, second}
			})
			if n := len(p.Conversations()) + len(second.Conversations()); n != 2 {
				t.Errorf("two sidecars had %d conversations", n)
			}
		})
	}
}

func TestABrokerThatTakesEverythingAndAnswersNothing(t *testing.T) {
	spec := testkit.Spec("mute", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.throughDoors(t)
	w.deployment.Outlets[0].Producer = map[string]string{"request.timeout.ms": "2000", "delivery.timeout.ms": "5000"}
	w.create(3, "in", "out")
	p := w.double(spec, to("out").handle)
	stop := w.trickle(testkit.Load(w.topic("in"), 3, 200_000), 5)
	s := w.sidecar(p.Addr(), "FLOW_POD_NAME=pod-0", "FLOW_POD_NAMESPACE=e2e")
	s.ready(30 * time.Second)
	w.sum(30*time.Second, 100)
	held := w.strike(requestHeld, kmsg.Produce, 1)
	testkit.Eventually(t, 30*time.Second, "a write is on its way when the broker falls silent", func() (bool, string) { return held() == 0, "there was none" })
	cure := w.cluster.doors[0].mute(w.deployment.Pipeline + ".")
	began := time.Now()
	s.unready(30 * time.Second)
	t.Logf("it is not ready %v after the broker fell silent", time.Since(began).Round(100*time.Millisecond))
	s.logs(time.Minute, "conversation failed", "delivery.timeout.ms")
	cure()
	s.ready(time.Minute)
	stop()
	w.allCommitted(time.Minute)
	// A stop does not wait for a broker that hangs.
	cure = w.cluster.doors[0].mute(w.deployment.Pipeline + ".")
	s.terminated(20 * time.Second)
	cure()
	report := w.judge(to("out").expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
	t.Logf("%d of %d came twice", report.Repeats, report.Expected)
	if n := strings.Count(s.output(), "\n"); n > 100 {
		t.Errorf("its log has %d lines", n)
	}
}
