package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// admin calls f with an admin client and fails the test with its error.
func (b *bed) admin(f func(context.Context, *kadm.Client) error) {
	b.t.Helper()
	if err := b.kafka.Admin(func(admin *kadm.Client) error { return f(context.Background(), admin) }); err != nil {
		b.t.Fatal(err)
	}
}

func TestPartitionsThatAreAddedAreReadWithinTenSeconds(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		b.admin(func(ctx context.Context, admin *kadm.Client) error {
			_, err := admin.UpdatePartitions(ctx, 4, "in")
			return err
		})
		records := []*kgo.Record{{Topic: "in", Partition: 3, Value: []byte("new;")}, {Topic: "in", Partition: 2, Value: []byte("newer;")}}
		if err := b.kafka.Produce(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		b.inputs = append(b.inputs, records...)
		b.awaitCaughtUp(10 * time.Second)
		s.stop()
		b.check()
	})
}

func TestRecordsThatRetentionRemovedAreToldWithTheirCount(t *testing.T) {
	for _, when := range []string{"before it was started again", "while the process was away"} {
		t.Run(when, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				s := b.startPod()
				s.awaitReady()
				b.produce(100)
				b.awaitCaughtUp(time.Minute)
				if when == "before it was started again" {
					s.stop()
				} else {
					s.process.Close()
					time.Sleep(time.Second)
				}
				b.produce(200)
				b.admin(func(ctx context.Context, admin *kadm.Client) error {
					offsets := kadm.Offsets{}
					offsets.AddOffset("in", 0, 250, -1)
					_, err := admin.DeleteRecords(ctx, offsets)
					return err
				})
				if when == "before it was started again" {
					s = b.startPod()
				} else {
					s.process = b.newProcess(s.process.Addr())
				}
				b.awaitCaughtUp(time.Minute)
				if s.told("removed by retention", "partition=0", "removed=150", "resumed_at=250") != 1 {
					t.Errorf("the loss is not told once, with its count:\n%s", s.log)
				}
				s.stop()
				b.inputs = append(b.inputs[:100:100], b.inputs[250:]...)
				b.check(func(h *testkit.History) { h.Processes = nil })
			})
		})
	}
}

func TestATopicThatIsCreatedAgainIsToldAndReadFromItsStart(t *testing.T) {
	// After two minutes without the topic another client reads the new one than read the old one.
	for _, gone := range []time.Duration{time.Second, 2 * time.Minute} {
		t.Run(gone.String(), func(t *testing.T) { createdAgain(t, gone) })
	}
}

func createdAgain(t *testing.T, gone time.Duration) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(300)
		b.awaitCaughtUp(time.Minute)
		b.admin(func(ctx context.Context, admin *kadm.Client) error {
			_, err := admin.DeleteTopics(ctx, "in")
			return err
		})
		time.Sleep(gone)
		if err := b.kafka.Create(t.Context(), "in", 2, 1, nil); err != nil {
			t.Fatal(err)
		}
		again := testkit.Load("in", 2, 200)
		for _, r := range again {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: testkit.IDHeader, Value: fmt.Appendf(nil, "again-%s", testkit.Identity(r))})
		}
		if err := b.kafka.Produce(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 2*time.Minute, "every record of the new topic is delivered", func() (bool, string) {
			return b.process.Records() >= 500, fmt.Sprint(b.process.Records(), " records\n", s.log.String())
		})
		testkit.Eventually(t, time.Minute, "it is told", func() (bool, string) {
			return s.told("deleted and created again") > 0, s.log.String()
		})
	})
}

func TestACrashBeforeTheFirstCommitSkipsNothingUnderLatest(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Consumer = map[string]string{"auto.offset.reset": "latest"}
		b.produce(50) // before the group exists: never to be read
		old := len(b.inputs)
		s := b.startPod()
		s.process.Inject(testkit.Fault{Do: testkit.Hang})
		s.awaitReady()
		testkit.Eventually(t, 10*time.Second, "where reading begins is committed", func() (bool, string) {
			_, committed := b.offsets()
			return committed[testkit.TopicPartition{Topic: "in"}] == int64(old), fmt.Sprint(committed)
		})
		b.produce(100)
		time.Sleep(time.Second)
		s.crash()
		b.produce(100)
		second := b.startPod()
		b.awaitCaughtUp(5 * time.Minute)
		second.stop()
		b.inputs = b.inputs[old:]
		b.check(func(h *testkit.History) { h.Processes = nil })
	})
}

func TestOnlyARecordThatIsItselfTooLargeForTheOutletsTopicIsRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		if err := b.kafka.Configure(t.Context(), "out", "max.message.bytes", "2000"); err != nil {
			t.Fatal(err)
		}
		b.produce(3000) // up to 700 bytes each: many share a batch
		s := b.start()
		b.awaitCaughtUp(2 * time.Minute)
		if n := s.told("conversation failed"); n != 0 {
			t.Errorf("small records were refused together:\n%s", s.log)
		}
		large := &kgo.Record{Topic: "in", Value: append([]byte("large;"), make([]byte, 5000)...)}
		if err := b.kafka.Produce(t.Context(), []*kgo.Record{large}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, "the large one is refused, by its offset", func() (bool, string) {
			return s.told("MESSAGE_TOO_LARGE", "offset=3000") > 0, s.log.String()
		})
		if err := b.kafka.Configure(t.Context(), "out", "max.message.bytes", "20000"); err != nil {
			t.Fatal(err)
		}
		b.inputs = append(b.inputs, large)
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check()
	})
}

func TestALogThatEndsInATransactionsMarkerIsReadToItsEnd(t *testing.T) {
	for _, outcome := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		t.Run(fmt.Sprint("committed: ", outcome), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				b.deployment.Inlets[0].Consumer = map[string]string{"isolation.level": "read_committed"}
				s := b.start()
				s.awaitReady()
				b.produce(10)
				client, err := b.kafka.Client(kgo.TransactionalID("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				if err := client.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				records := []*kgo.Record{{Topic: "in", Value: []byte("in a transaction;")}}
				if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if err := client.EndTransaction(t.Context(), outcome); err != nil {
					t.Fatal(err)
				}
				b.awaitCaughtUp(30 * time.Second)
				time.Sleep(5 * time.Minute)
				if n := s.told("conversation failed"); n != 0 {
					t.Errorf("a marker is taken for a record that does not come:\n%s", s.log)
				}
				s.stop()
				if outcome == kgo.TryCommit {
					b.inputs = append(b.inputs, records...)
				}
				b.check(noRepeats)
			})
		})
	}
}

func TestClosingAClientWaitsForItsQuestionWhichMechanismsAListenerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		var ended atomic.Bool
		hangs := network{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(asked)
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			ended.Store(true)
			return nil, ctx.Err()
		}}
		log := &lockedBuffer{}
		conns := newConnections(hangs, Connection{}, newTroubles(Connection{}, "in", newLog(log, "text", slog.LevelInfo)))
		(&clientTroubles{conns.troubles, conns}).OnBrokerConnect(kgo.BrokerMetadata{Host: "broker", Port: 9092}, 0, nil, kerr.UnsupportedSaslMechanism)
		<-asked
		conns.closeClient(func() {}, time.Second)
		if !ended.Load() {
			t.Error("the question goes on after its client was closed")
		}
		conns.ask(func() { t.Error("a client that is closed asks") })
		synctest.Wait()
		if log.String() != "" {
			t.Errorf("told after the end: %s", log)
		}
	})
}
