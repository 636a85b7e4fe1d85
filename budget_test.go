package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceLarge fills each partition of topic "in" with one batch of nearly a mebibyte, of 60 records.
func (b *bed) produceLarge() { b.produceBatches(60, 16<<10) }

// produceBatches gives each partition of topic "in" one batch, of so many records of nearly so many bytes.
func (b *bed) produceBatches(records int32, size int) {
	b.t.Helper()
	client, err := b.kafka.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(1<<20), kgo.ProducerLinger(time.Second))
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	for i := range records * b.partitions {
		r := &kgo.Record{Topic: "in", Partition: i / records, Value: fmt.Appendf(nil, "in#%d;%s", len(b.inputs), strings.Repeat("x", size))}
		b.inputs = append(b.inputs, r)
		client.Produce(context.Background(), r, nil)
	}
	if err := client.Flush(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// stick has the process answer the first batch of each such partition only after so long.
func (b *bed) stick(after time.Duration, partition func(int32) bool) {
	b.process.Inject(testkit.Fault{Delay: after, When: func(batch *flowv1.Batch) bool {
		return batch.GetInlet() == "in" && batch.GetRecords()[0].GetOffset() == 0 && partition(batch.GetPartition())
	}})
}

// turns says of how many partitions of topic "in" the process has had records.
func (b *bed) turns() int {
	had := map[int32]bool{}
	for _, c := range b.process.Conversations() {
		for _, batch := range c.Batches {
			had[batch.GetPartition()] = had[batch.GetPartition()] || batch.GetInlet() == "in"
		}
	}
	return len(had)
}

// TestEveryPartitionHasItsTurnWithinTheBudgetWhileBatchesAreStuckForHours has a backlog of producers' batches that are three times
// their partition's share each, and that would take three times the budget together.
func TestEveryPartitionHasItsTurnWithinTheBudgetWhileBatchesAreStuckForHours(t *testing.T) {
	const stuckFor = 2 * time.Hour
	for name, stuck := range map[string]func(int32) bool{
		"all":             func(int32) bool { return true },
		"every other one": func(p int32) bool { return p%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 100, func(t *testing.T, b *bed) {
				b.deployment.Inlets[0].MaxRecords = 4
				b.produceLarge()
				b.stick(stuckFor, stuck)
				s := b.start()
				s.awaitReady()
				began, most := time.Now(), 0.0
				testkit.Eventually(t, 10*time.Minute, "the process has records of every partition, and has answered all of those that are not stuck", func() (bool, string) {
					most = max(most, s.scrape().value("ankka_flow_sidecar_memory_used_bytes"))
					ends, committed := b.offsets()
					left := 0
					for tp, end := range ends {
						if !stuck(tp.Partition) && committed[tp] != end {
							left++
						}
					}
					had := b.turns()
					return had == int(b.partitions) && left == 0, fmt.Sprintf("%d have had their turn, %d are not done", had, left)
				})
				t.Logf("after %s; at most %.1f MiB were held", time.Since(began), most/(1<<20))
				time.Sleep(stuckFor)
				b.awaitCaughtUpLooking(time.Minute, time.Second)
				if n := len(b.process.Conversations()); n != 1 {
					t.Errorf("it took %d conversations", n)
				}
				if budget := float64(fetchedAtMost); most > 1.6*budget || most < budget/2 {
					t.Errorf("%.0f bytes of fetched records were held, the budget is %.0f", most, budget)
				}
				b.check(noRepeats)
			})
		})
	}
}

func TestWhatIsFetchedForAProcessThatTakesItIsEnoughAndNotMore(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].MaxRecords = 4
		b.process.Inject(testkit.Fault{Delay: 20 * time.Millisecond})
		b.produceLarge()
		s := b.start()
		s.awaitReady()
		most := 0.0
		testkit.Eventually(t, time.Minute, "all is committed", func() (bool, string) {
			most = max(most, s.scrape().value("ankka_flow_sidecar_memory_used_bytes"))
			return b.caughtUp()
		})
		// An answer may come on top, which brings a producer's batch whole.
		if most > enough+oneAnswer+1<<20 || most < enough/2 {
			t.Errorf("at most %.1f MiB were held, of a backlog of 100", most/(1<<20))
		}
	})
}

func TestARecordOfAnIdlePartitionIsNotKeptWaitingByTheQueuesOfOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, func(t *testing.T, b *bed) {
		const idle, slow = 99, 4 * time.Second
		b.deployment.Inlets[0].MaxRecords = 4
		b.process.Inject(testkit.Fault{Delay: slow, When: func(batch *flowv1.Batch) bool { return batch.GetPartition() != idle }})
		b.produceLarge()
		s := b.start()
		s.awaitReady()
		done := func() int64 {
			_, committed := b.offsets()
			return committed[testkit.TopicPartition{Topic: "in", Partition: idle}]
		}
		testkit.Eventually(t, time.Minute, "the partition is idle, and the others have more than enough queued", func() (bool, string) {
			used := s.scrape().value("ankka_flow_sidecar_memory_used_bytes")
			return done() == 60 && used > enough, fmt.Sprintf("%d are done, %.0f bytes are held", done(), used)
		})
		if err := b.kafka.Produce(t.Context(), []*kgo.Record{{Topic: "in", Partition: idle, Value: []byte("in time")}}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		testkit.Eventually(t, slow, "it is delivered and committed", func() (bool, string) { return done() == 61, "" })
		// Answers with records of the others may come first, but only until those have their shares.
		if took := time.Since(began); took > (fetchedAtMost/oneAnswer+1)*hastePauses*hastePause {
			t.Errorf("it took %s", took)
		}
	})
}

// TestAnInletWhoseQueuesAreStuckLeavesAnotherItsTurn has both inlets share the budget, and the one take all of it.
func TestAnInletWhoseQueuesAreStuckLeavesAnotherItsTurn(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, func(t *testing.T, b *bed) {
		b.spec = testkit.Spec("echo", testkit.Ports("in", "other"), testkit.Ports("out"))
		b.process.SetSpec(b.spec)
		b.deployment.Inlets = append(b.deployment.Inlets, testkit.Inlet{Name: "other", Topic: "other"})
		b.deployment.Inlets[0].MaxRecords = 4
		if err := b.cluster.CreateTopic("other", 1, nil); err != nil {
			t.Fatal(err)
		}
		b.produceLarge()
		b.stick(time.Hour, func(int32) bool { return true })
		b.start().awaitReady()
		time.Sleep(time.Minute)
		for range 3 {
			if err := b.kafka.Produce(t.Context(), []*kgo.Record{{Topic: "other", Value: []byte("in time")}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		committed, err := b.kafka.Committed(t.Context(), "pipe.echo.other")
		if err != nil {
			t.Fatal(err)
		}
		if got := committed[testkit.TopicPartition{Topic: "other"}]; got != 3 {
			t.Errorf("while the other inlet is stuck, %d of 3 records are delivered and committed", got)
		}
	})
}

// newInletWithQueue makes an inlet whose partition 0 has n records queued from offset 0 on, with a client that never connects.
func newInletWithQueue(t *testing.T, n int) (*inlet, *assignment, *conversation) {
	t.Helper()
	in, a, c := newTestInlet()
	client, err := kgo.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	in.membership.client = client
	a.beginAt(0)
	if err := in.take(fetched(0, n)); err != nil {
		t.Fatal(err)
	}
	return in, a, c
}

func TestRecordsThatArePolledWhileTheirPartitionsQueueIsGivenBackAreNotTakenBehindIt(t *testing.T) {
	in, a, c := newInletWithQueue(t, 200)
	if _, failure := c.nextMessage(a, newBatchEncoder()); failure != nil {
		t.Fatal(failure)
	}
	in.budget.limit = 0
	in.membership.giveBack()
	if err := in.take(fetched(200, 50)); err != nil {
		t.Fatal(err)
	}
	if len(a.queue) > 0 || a.position != 100 || in.budget.used.Load() != 0 {
		t.Errorf("%d records are queued and %d bytes held; read again from %d, want 0, 0 and 100", len(a.queue), in.budget.used.Load(), a.position)
	}
}

func TestAQueueThatCanBeSentOfIsNotGivenBack(t *testing.T) {
	in, a, _ := newInletWithQueue(t, 10)
	in.budget.limit = 0
	in.membership.giveBack()
	if len(a.queue) != 10 {
		t.Errorf("%d records are left in the queue, want 10: nothing would wake the partition", len(a.queue))
	}
}
