package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
)

// poison has the process fail every batch with offset 7 of a partition.
func (b *bed) poison(partition int32) (remove func()) {
	return b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", partition, 7), Text: "poison"})
}

func TestARepairedPartitionGoesOnWhileAnotherStaysPoisoned(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		b.produce(400)
		b.poison(1)
		repair := b.poison(2)
		b.start()
		time.Sleep(5 * time.Minute)
		repair()
		// It takes longer than the other one takes to fail, and so to end the conversation.
		b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 200 * time.Millisecond, When: testkit.AtOffset("in", 2, 7)})
		testkit.Eventually(t, 3*time.Minute, "the repaired partition goes on", func() (bool, string) {
			_, committed := b.offsets()
			return committed[testkit.TopicPartition{Topic: "in", Partition: 2}] > 7, fmt.Sprint(committed)
		})
	})
}

func TestPoisonedPartitionsCostTheOthersLittleTime(t *testing.T) {
	for _, poisoned := range []int32{1, 3, 5} {
		t.Run(fmt.Sprint(poisoned), func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, b *bed) {
				b.produce(600)
				for p := range poisoned {
					b.poison(p)
				}
				s := b.start()
				time.Sleep(5 * time.Minute)
				from := len(s.log.String())
				time.Sleep(20 * time.Minute)
				var waited time.Duration
				for line := range strings.Lines(s.log.String()[from:]) {
					if _, backoff, ok := strings.Cut(strings.TrimSpace(line), " backoff="); ok {
						d, err := time.ParseDuration(backoff)
						if err != nil {
							t.Fatal(err)
						}
						waited += d
					}
				}
				if waited == 0 || waited > 3*time.Minute {
					t.Errorf("%s of 20 minutes in backoffs", waited)
				}
			})
		})
	}
}

func TestAStallEndsWhenRetentionRemovesWhatWasStalled(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(200)
		b.poison(1)
		s := b.start()
		time.Sleep(time.Minute)
		err := b.kafka.Admin(func(admin *kadm.Client) error {
			ends, err := admin.ListEndOffsets(t.Context(), "in")
			if err != nil {
				return err
			}
			remove := ends.Offsets()
			delete(remove["in"], 0)
			_, err = admin.DeleteRecords(t.Context(), remove)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		log := s.log.String()
		if strings.Contains(log, "PartitionStalled") {
			t.Error("a stall is told of where nothing is left")
		}
		if n := strings.Count(log, "removed by retention"); n != 1 {
			t.Errorf("the loss is told %d times", n)
		}
		b.produce(200)
		b.awaitCaughtUp(time.Minute)
	})
}
