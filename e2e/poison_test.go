//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

var poisonFor = flag.Duration("poison", 40*time.Second, "how long TestAPoisonedPartitionCostsTheOthersLittle has a poisoned partition; ten minutes measure what is promised")

// With the default FLOW_RECONNECT_MAX_BACKOFF. The first failures follow each other closely, so that a short run keeps less of the
// others' throughput than a long one; what is promised is asked of one of five minutes or more.
func TestAPoisonedPartitionCostsTheOthersLittle(t *testing.T) {
	const (
		partitions, poisoned = 12, 7
		batch, each          = 5, 100 * time.Millisecond // what the process takes for a batch: the only thing that all wait for
		before               = 100                       // records between the measured time and the bad one
	)
	promised := 0.85
	if *poisonFor < 5*time.Minute {
		promised = 0.6
	}
	baseline := *poisonFor / 4
	spec := testkit.Spec("poisoned", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.deployment.Inlets[0].MaxRecords = batch
	w.create(partitions, "in", "out")
	var records []*kgo.Record
	for i := range int((baseline+*poisonFor+30*time.Second)/each) * batch {
		for partition := range int32(partitions) {
			records = append(records, &kgo.Record{Topic: w.topic("in"), Partition: partition, Value: fmt.Appendf(nil, "%d-%d;", partition, i)})
		}
	}
	w.produce(records)
	p := w.double(spec, to("out").handle)
	p.Inject(testkit.Fault{Delay: each})
	s := w.sidecar(p.Addr(), "FLOW_RECONNECT_MAX_BACKOFF=30s")
	suspect := testkit.TopicPartition{Topic: w.topic("in"), Partition: poisoned}
	others := func() (sum int64) {
		committed, err := w.committed()
		if err != nil {
			t.Fatal(err)
		}
		for tp, offset := range committed {
			if tp != suspect {
				sum += offset
			}
		}
		return sum
	}
	// rate is what the others commit a second while it lasts.
	rate := func(lasts time.Duration) float64 {
		from, began := others(), time.Now()
		testkit.Eventually(t, lasts+time.Minute, "the time passes", func() (bool, string) { return time.Since(began) >= lasts, "" })
		return float64(others()-from) / time.Since(began).Seconds()
	}
	w.sum(time.Minute, partitions*batch)
	without := rate(baseline)
	committed, err := w.committed()
	if err != nil {
		t.Fatal(err)
	}
	bad := committed[suspect] + before
	p.InjectFirst(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", poisoned, bad), Delay: each})
	testkit.Eventually(t, time.Minute, "the bad record fails for the first time", func() (bool, string) { return s.lines("conversation failed") > 0, "" })
	with := rate(*poisonFor)
	committed, err = w.committed()
	if err != nil || committed[suspect] != bad {
		t.Errorf("of the poisoned partition %d is committed (%v), and the bad record is %d", committed[suspect], err, bad)
	}
	failures := s.lines("conversation failed")
	t.Logf("the other eleven partitions: %.0f records/s without a poisoned one, %.0f with it in %v and %d failures: %.1f%%", without, with, *poisonFor, failures, 100*with/without)
	if with < promised*without {
		t.Errorf("the others keep %.1f%%, not %.0f%%", 100*with/without, 100*promised)
	}
	// Of each of the other partitions at most what was with the process at each failure is delivered again. Nothing of it was written:
	// the checker looks for that.
	seen, again := map[string]bool{}, map[int32]int{}
	for _, c := range p.Conversations() {
		for _, b := range c.Batches {
			for _, offset := range b.Offsets() {
				id := fmt.Sprint(b.GetPartition(), "-", offset)
				if seen[id] {
					again[b.GetPartition()]++
				}
				seen[id] = true
			}
		}
	}
	for partition, n := range again {
		if partition != poisoned && n > failures*batch {
			t.Errorf("partition %d: %d records were delivered again, at %d failures with batches of %d", partition, n, failures, batch)
		}
	}
	t.Logf("delivered again, by partition: %v", again)

	p.Close()
	s.unready(15 * time.Second)
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	repaired := testkit.NewProcess(l, spec, to("out").handle)
	t.Cleanup(repaired.Close)
	repaired.Inject(testkit.Fault{Delay: each})
	testkit.Eventually(t, 2*time.Minute, "the bad record is committed", func() (bool, string) {
		committed, err := w.committed()
		return committed[suspect] > bad, fmt.Sprint(committed[suspect], err)
	})
	goesOn := time.Since(repaired.Conversations()[0].Began)
	if t.Logf("after the repaired process's conversation began it took %v until the bad record was committed", goesOn.Round(time.Millisecond)); goesOn > 5*time.Second {
		t.Errorf("the partition goes on only %v after the conversation began", goesOn)
	}
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.Complete, h.NoRepeats = false, true
		h.Processes = []*testkit.Process{p, repaired}
	})
	t.Logf("the log has %d lines", strings.Count(s.output(), "\n"))
}
