package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestEveryViolationFailsTheConversationAndLosesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		fault testkit.Fault
		cause string
		judge func(*testkit.History)
	}{
		"a Fail":                                    {testkit.Fault{Do: testkit.FailBatch, Text: "no good"}, "no good", nil},
		"an Emit to an outlet that is not bound":    {testkit.Fault{Do: testkit.EmitToUnbound}, "which Start did not bind", nil},
		"an Emit after its Ack":                     {testkit.Fault{Do: testkit.EmitAfterAck}, "which it has answered already", nil},
		"a second Ack":                              {testkit.Fault{Do: testkit.AckTwice}, "which it has answered already", nil},
		"an Ack of a batch that was never sent":     {testkit.Fault{Do: testkit.AckUnknown}, "which was never sent", nil},
		"an Emit over max_message_bytes":            {testkit.Fault{Do: testkit.EmitOversized}, "the limit is 4194304", nil},
		"an empty message":                          {testkit.Fault{Do: testkit.SayNothing}, "none of Emit, Ack and Fail", nil},
		"closing its side":                          {testkit.Fault{Do: testkit.CloseSide}, "closed its side", nil},
		"dying with a batch":                        {testkit.Fault{Do: testkit.DropConnection}, "went away", nil},
		"dying between the emits and the Ack":       {testkit.Fault{Do: testkit.DieAfterEmits}, "went away", nil},
		"answering a batch of another conversation": {testkit.Fault{Do: testkit.AnswerPrevious}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bed) {
				b.produce(1000)
				tt.fault.Times = 1
				tt.fault.When = testkit.AtOffset("in", 1, 150)
				b.process.Inject(tt.fault)
				s := b.start()
				b.awaitCaughtUp(time.Minute)
				if log := s.log.String(); tt.cause != "" && (strings.Count(log, "conversation failed") != 1 || !strings.Contains(log, tt.cause)) {
					t.Errorf("the log does not tell once that the conversation failed, and why (%q):\n%s", tt.cause, log)
				}
				if code := s.stop(); code != exitStopped {
					t.Errorf("exit code %d", code)
				}
				b.check(func(h *testkit.History) {
					h.Processes = nil // what it did is what is tested
				})
			})
		})
	}
}

func TestAMissingTopicIsToldOnceAndReadyFollowsItsCreation(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Topic = "later"
		s := b.start()
		sentence := "inlet 'in': topic 'later' does not exist; not ready until it does"
		testkit.Eventually(t, time.Minute, "the sentence", func() (bool, string) {
			return strings.Contains(s.log.String(), sentence), s.log.String()
		})
		time.Sleep(time.Minute)
		if s.ready() {
			t.Error("ready without a topic")
		}
		if n := strings.Count(s.log.String(), sentence); n != 1 {
			t.Errorf("told %d times", n)
		}
		if err := b.kafka.Create(t.Context(), "later", 3, 1, nil); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 5*time.Second, "ready", func() (bool, string) { return s.ready(), s.log.String() })
	})
}

func TestAnOutletsTopicThatIsMissingFailsTheConversationAtTheFirstWriteAndHeals(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		b.admin(func(ctx context.Context, admin *kadm.Client) error {
			_, err := admin.DeleteTopic(ctx, "out")
			return err
		})
		s := b.start()
		s.awaitReady()
		s.awaitLog(10*time.Second, "topic 'out' does not exist: what is emitted cannot be written until it does", "outlet=out")
		b.produce(30)
		s.awaitLog(10*time.Second, "the conversation failed", "UNKNOWN_TOPIC_OR_PARTITION")
		if _, committed := b.offsets(); len(committed) > 0 {
			t.Errorf("committed %v, and nothing is written", committed)
		}
		if err := b.kafka.Create(t.Context(), "out", 3, 1, nil); err != nil {
			t.Fatal(err)
		}
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check()
	})
}

func TestARecordOverTheLimitFailsWithItsPlaceAfterEverythingBeforeItIsCommitted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.produce(150)
		huge := &kgo.Record{Topic: "in", Key: []byte("huge"), Value: make([]byte, maxRecordBytes)}
		client, err := b.kafka.Client(kgo.ProducerBatchMaxBytes(8 << 20))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.ProduceSync(t.Context(), huge).FirstErr(); err != nil {
			t.Fatal(err)
		}
		s := b.start()
		testkit.Eventually(t, time.Minute, "everything before the record committed", func() (bool, string) {
			_, committed := b.offsets()
			return committed[testkit.TopicPartition{Topic: "in"}] == huge.Offset, fmt.Sprint(committed)
		})
		place := fmt.Sprintf("record in/0 offset %d cannot be delivered", huge.Offset)
		testkit.Eventually(t, time.Minute, "the record's place in the log", func() (bool, string) {
			return strings.Contains(s.log.String(), place), s.log.String()
		})
		for _, c := range b.process.Conversations() {
			for _, batch := range c.Batches {
				for _, offset := range batch.Offsets() {
					if offset >= huge.Offset {
						t.Errorf("offset %d was sent", offset)
					}
				}
			}
		}
	})
}

func TestAStopEndsInTimeWhateverHangs(t *testing.T) {
	for _, hang := range []string{"nothing", "the process", "the broker", "both"} {
		t.Run(hang, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bed) {
				if hang == "the process" || hang == "both" {
					b.process.Inject(testkit.Fault{Do: testkit.Hang, When: testkit.AtOffset("in", 1, 150)})
					b.process.IgnoreStop(true)
				}
				b.produce(1000)
				s := b.start()
				testkit.Eventually(t, time.Minute, "records seen", func() (bool, string) { return b.process.Records() > 500, "" })
				if hang == "the broker" || hang == "both" {
					b.net.freeze(b.cluster.ListenAddrs()...)
				}
				began := time.Now()
				if code := s.stop(); code != exitStopped {
					t.Errorf("exit code %d", code)
				}
				if took := time.Since(began); took >= 15*time.Second {
					t.Errorf("the stop took %s", took)
				}
				b.net.thaw()
			})
		})
	}
}

func TestAnotherDescriptorIsRefusedWithEveryProblemAndExitOne(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.process.SetSpec(testkit.Spec("other", testkit.Ports("in"), testkit.Ports("elsewhere")))
		s := b.start()
		<-s.done
		if s.code != exitRefused {
			t.Errorf("exit code %d", s.code)
		}
		reported := b.process.Reported()
		if len(reported) != 1 || len(reported[0]) < 3 {
			t.Errorf("reported: %q", reported)
		}
	})
}

func TestAStallIsWarnedOfOnceWithItsLastError(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		b.produce(600)
		b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57), Text: "cannot decode the cart"})
		s := b.start()
		time.Sleep(20 * time.Minute)
		log := s.log.String()
		if n := strings.Count(log, "PartitionStalled"); n != 1 {
			t.Fatalf("%d warnings", n)
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, "PartitionStalled") {
				for _, part := range []string{"pipeline=pipe", "streamlet=echo", "inlet=in", "partition=1", "offset=57", "offset_exact=true", "cannot decode the cart", "stalled=5m"} {
					if !strings.Contains(line, part) {
						t.Errorf("the warning lacks %q: %s", part, line)
					}
				}
			}
		}
	})
}
