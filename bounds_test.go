package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// times is when each line that holds every part was logged.
func (s *instance) times(parts ...string) (at []time.Time) {
	s.bed.t.Helper()
	for _, line := range s.logged(parts...) {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		t, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			s.bed.t.Fatal(err)
		}
		at = append(at, t)
	}
	return at
}

// near fails the test unless got is want, give or take the few milliseconds that a scheduler has.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if difference := (got - want).Abs(); difference > 5*time.Millisecond {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestTheWaitBetweenConversationsDoublesToItsMaximumAndBeginsAnewAfterALongOne(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.process.RefuseRun(true)
		s := b.start("FLOW_RECONNECT_MAX_BACKOFF=5s", "FLOW_LOG_LEVEL=debug")
		time.Sleep(40 * time.Second)
		at := s.times("reconnecting", "backoff=")
		var waits []time.Duration
		for i := range at[:len(at)-1] {
			waits = append(waits, at[i+1].Sub(at[i]).Round(time.Millisecond))
		}
		want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}
		if len(waits) < len(want) || !slices.Equal(waits[:len(want)], want) {
			t.Fatalf("the waits are %s", waits)
		}
		b.process.RefuseRun(false)
		// Twice the maximum is 10 s; a conversation that lasts less does not reset the wait, one that lasts longer does.
		for _, tt := range []struct{ lasts, wait time.Duration }{{9900 * time.Millisecond, 5 * time.Second}, {10100 * time.Millisecond, firstBackoff}, {time.Second, time.Second}} {
			s.awaitReady()
			time.Sleep(tt.lasts - time.Since(s.times("conversation started")[s.told("conversation started")-1]))
			b.process.DropConnections()
			time.Sleep(100 * time.Millisecond)
			if last := s.logged("reconnecting", "backoff="); !strings.Contains(last[len(last)-1], "backoff="+tt.wait.String()) {
				t.Errorf("after %s: %s", tt.lasts, last[len(last)-1])
			}
		}
	})
}

func TestASuspectIsHeldForEightTimesTheWaitFromItsSecondFailureOn(t *testing.T) {
	const maxBackoff = 30 * time.Second
	for name, tt := range map[string]struct {
		suspicion suspicion
		wait      time.Duration
		restarted bool
		alone     bool
		want      time.Duration
	}{
		"the first retry comes at once":         {suspicion{failures: 1, failed: true}, firstBackoff, false, false, 0},
		"the second failure":                    {suspicion{failures: 2, failed: true}, time.Second, false, false, 8 * time.Second},
		"never longer than twice the maximum":   {suspicion{failures: 9, failed: true}, maxBackoff, false, false, 2*maxBackoff + time.Second},
		"never shorter than before":             {suspicion{failures: 9, failed: true, hold: time.Minute}, firstBackoff, false, false, time.Minute},
		"a restarted process may bring the fix": {suspicion{failures: 9, failed: true, hold: time.Minute}, firstBackoff, true, false, 0},
		"there are no others to protect":        {suspicion{failures: 9, failed: true}, time.Second, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, a, c := newTestInlet()
				if !tt.alone {
					in.budget.partitions.Add(1)
				}
				a.suspect = &tt.suspicion
				if err := in.take(fetched(0, 1)); err != nil {
					t.Fatal(err)
				}
				a.inReady = false
				c.ready.take(t.Context())
				in.mu.Lock()
				in.holdSuspects(tt.wait, tt.restarted, maxBackoff)
				in.wake(a)
				in.mu.Unlock()
				began := time.Now()
				c.ready.take(t.Context())
				if held := time.Since(began); held != tt.want {
					t.Errorf("held for %s, want %s", held, tt.want)
				}
			})
		})
	}
}

func TestAStallsClockRunsFromTheFirstSendThroughRedeliveryAndBeginsAnewAtACommit(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, b *bed) {
		stalled := func(s *instance) time.Duration {
			t.Helper()
			for _, m := range s.scrape()["ankka_flow_sidecar_stalled_seconds"].GetMetric() {
				return time.Duration(m.GetGauge().GetValue() * float64(time.Second))
			}
			t.Fatal("no series")
			return 0
		}
		b.deployment.Inlets[0].MaxRecords = 10
		b.process.Inject(testkit.Fault{Do: testkit.Hang, When: testkit.AtOffset("in", 0, 25)})
		s := b.start()
		s.awaitReady()
		near(t, "with nothing outstanding", stalled(s), 0)
		b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: time.Minute, When: testkit.AtOffset("in", 0, 5), Times: 1})
		b.produce(20)
		time.Sleep(59 * time.Second)
		near(t, "with the first batch at the process", stalled(s), 59*time.Second)
		time.Sleep(11 * time.Second)
		near(t, "with everything committed", stalled(s), 0)
		b.produce(20)
		time.Sleep(30 * time.Second)
		near(t, "with the second batch at the process", stalled(s), 30*time.Second)
		b.process.DropConnections()
		time.Sleep(20 * time.Second)
		near(t, "after it was delivered again", stalled(s), 50*time.Second)
		b.process.Close()
		time.Sleep(10 * time.Second)
		near(t, "in a backoff", stalled(s), time.Minute)
	})
}

func TestAStopWaitsTenSecondsForTheProcessAndNoLonger(t *testing.T) {
	for _, answers := range []time.Duration{9 * time.Second, time.Hour} {
		t.Run(fmt.Sprint("it answers after ", answers), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				b.process.IgnoreStop(answers > stopBound)
				b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: answers, Times: 1})
				s := b.start()
				s.awaitReady()
				b.produce(10)
				testkit.Eventually(t, time.Minute, "the batch is with the process", func() (bool, string) { return b.process.Records() > 0, "" })
				began := time.Now()
				s.stop()
				// The answer of 9 s counts from when the batch came, not from the stop.
				if took := time.Since(began); took > min(answers, stopBound)+100*time.Millisecond || took < min(answers, stopBound)-time.Second {
					t.Errorf("the stop took %s", took)
				}
				_, committed := b.offsets()
				want := int64(10)
				if answers > stopBound {
					want = 0
				}
				if at := committed[testkit.TopicPartition{Topic: "in"}]; at != want {
					t.Errorf("committed to %d, want %d", at, want)
				}
			})
		})
	}
}

func TestARevokeWaitsThreeSecondsForWritesThatAreNotConfirmedAndCommitsNothingOfThem(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		var hanging atomic.Bool
		var synced atomic.Int64 // when the member learned what it has, the last time
		first := b.newProcess("")
		b.tap = &tap{process: first.Addr(), judge: func(m message) verdict {
			switch {
			case m.call == "SyncGroup" && m.answer:
				synced.Store(time.Now().UnixNano())
			case m.call == "Produce" && !m.answer && hanging.Load():
				return hangs
			}
			return passes
		}}
		s := b.start("FLOW_PROCESS_ADDRESS=" + first.Addr())
		s.awaitReady()
		hanging.Store(true)
		b.produce(100)
		time.Sleep(time.Second)
		other := b.startPod()
		testkit.Eventually(t, time.Minute, "revoked", func() (bool, string) { return s.told("partitions revoked", "finished=false") == 1, s.log.String() })
		revoked := s.times("partitions revoked")[0]
		near(t, "the revoke", revoked.Sub(time.Unix(0, synced.Load())), revokeBound)
		if _, committed := b.offsets(); len(committed) > 0 {
			t.Errorf("committed without a confirmed write: %v", committed)
		}
		hanging.Store(false)
		b.awaitCaughtUpLooking(10*time.Minute, time.Second)
		other.stop()
		s.stop()
		b.check(func(h *testkit.History) { h.Processes = nil })
	})
}

func TestACommitGoesOutTwentyMillisecondsAfterTheFirstConfirmation(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, b *bed) {
		var confirmed, committed atomic.Int64
		b.tap = &tap{process: b.address, judge: func(m message) verdict {
			switch {
			case m.call == "Produce" && m.answer:
				confirmed.CompareAndSwap(0, time.Now().UnixNano())
			case m.call == "OffsetCommit" && !m.answer:
				committed.CompareAndSwap(0, time.Now().UnixNano())
			}
			return passes
		}}
		s := b.start()
		s.awaitReady()
		b.produce(1)
		b.awaitCaughtUp(time.Second)
		near(t, "from the confirmation to the commit", time.Duration(committed.Load()-confirmed.Load()), commitDelay)
	})
}

func TestAWriteThatIsNotAnsweredForTheDeliveryTimeoutFailsTheConversation(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.deployment.Outlets[0].Producer = map[string]string{"delivery.timeout.ms": "60000"}
		var healed atomic.Bool
		b.tap = &tap{process: b.address, judge: func(m message) verdict {
			if m.call == "Produce" && !m.answer && !healed.Load() {
				return hangs
			}
			return passes
		}}
		s := b.start()
		s.awaitReady()
		b.produce(100)
		began := time.Now()
		time.Sleep(70 * time.Second)
		failed := s.times("conversation failed", "has had no answer for 1m0s (delivery.timeout.ms)")
		if len(failed) != 1 {
			t.Fatalf("told %d times:\n%s", len(failed), s.log)
		}
		if after := failed[0].Sub(began); after < time.Minute || after > 63*time.Second { // it looks every second, and what is acknowledged has a second more
			t.Errorf("told after %s", after)
		}
		healed.Store(true)
		b.awaitCaughtUpLooking(5*time.Minute, time.Second)
		s.stop()
		b.check()
	})
}

func TestCommitsThatAreRefusedForTheAPITimeoutFailTheConversation(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		var first atomic.Int64
		var healed atomic.Bool
		b.tap = &tap{process: b.address, code: kerr.CoordinatorLoadInProgress.Code, judge: func(m message) verdict {
			if m.call == "OffsetCommit" && !m.answer && !healed.Load() {
				first.CompareAndSwap(0, time.Now().UnixNano())
				return refuses
			}
			return passes
		}}
		s := b.start()
		s.awaitReady()
		b.produce(100)
		time.Sleep(90 * time.Second)
		failed := s.times("conversation failed", "could not be committed for 1m0s (default.api.timeout.ms)")
		if len(failed) != 1 {
			t.Fatalf("told %d times:\n%s", len(failed), s.log)
		}
		if after := failed[0].Sub(time.Unix(0, first.Load())); after < time.Minute || after > 65*time.Second {
			t.Errorf("told after %s", after)
		}
		if n := s.told("offsets could not be committed; trying again"); n != 1 {
			t.Errorf("the refusals are told %d times before", n)
		}
		healed.Store(true)
		b.awaitCaughtUpLooking(5*time.Minute, time.Second)
		s.stop()
		b.check()
	})
}

func TestAConversationEndsWithinFiveSecondsWhateverHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, 4, func(t *testing.T, b *bed) {
		b.process.Inject(testkit.Fault{Do: testkit.Hang, When: testkit.OfPartition("in", 1)})
		writing := make(chan struct{}, 100)
		b.tap = &tap{process: b.address, judge: func(m message) verdict {
			if m.call == "Produce" && !m.answer {
				writing <- struct{}{}
				return hangs
			}
			return passes
		}}
		s := b.start()
		s.awaitReady()
		b.produce(1000)
		<-writing
		b.net.freeze(b.cluster.ListenAddrs()...)
		began := time.Now()
		b.process.DropConnections()
		testkit.Eventually(t, time.Minute, "the end", func() (bool, string) { return s.told("msg=reconnecting") == 1, s.log.String() })
		if took := s.times("msg=reconnecting")[0].Sub(began); took > 5*time.Second {
			t.Errorf("the end took %s", took)
		}
		b.net.thaw()
		s.stop()
	})
}

func TestTwoHundredConversationsLeaveNoGoroutineBehind(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		before := goleak.IgnoreCurrent()
		s := b.start("FLOW_RECONNECT_MAX_BACKOFF=500ms", "FLOW_LOG_LEVEL=debug")
		s.awaitReady()
		b.process.Inject(testkit.Fault{Do: testkit.DropConnection})
		b.produce(10)
		testkit.Eventually(t, time.Hour, "200 conversations", func() (bool, string) { return s.told("conversation started") >= 200, "" })
		s.stop()
		b.process.Close()
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
}

func TestReadyNeedsEveryOneOfItsConditions(t *testing.T) {
	conditions := map[string]func(*readiness, bool){
		"the group is joined":         func(r *readiness, yes bool) { r.joined("in", yes) },
		"the partitions are fed":      func(r *readiness, yes bool) { r.fed("in", yes) },
		"the topic is there":          func(r *readiness, yes bool) { r.topic("in", yes) },
		"the outlet can be written":   func(r *readiness, yes bool) { r.writable("out", yes) },
		"a conversation runs":         func(r *readiness, yes bool) { r.conversation(yes) },
		"the sidecar is not stopping": nil,
	}
	inlets, outlets := []InletConfig{{PortConfig: PortConfig{Name: "in"}}}, []OutletConfig{{PortConfig: PortConfig{Name: "out"}}}
	for name, condition := range conditions {
		t.Run(name, func(t *testing.T) {
			files := newMemFiles()
			r := newReadiness(files, "/tmp/flow", inlets, outlets, slog.New(slog.DiscardHandler))
			for other, set := range conditions {
				if set != nil && other != name {
					set(r, true)
				}
			}
			if condition == nil {
				condition = func(r *readiness, yes bool) {
					if !yes {
						r.stop()
					}
				}
			} else if files.has("/tmp/flow/ready") {
				t.Error("ready without it")
			}
			condition(r, true)
			if !files.has("/tmp/flow/ready") {
				t.Error("not ready with all")
			}
			condition(r, false)
			if files.has("/tmp/flow/ready") {
				t.Error("still ready when it is gone")
			}
		})
	}
}

func TestWhatIsAcknowledgedWhenAConversationFailsIsWrittenAndCommitted(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		// The write is answered half a second after the conversation failed.
		var held atomic.Bool
		b.tap = &tap{process: b.address, judge: func(m message) verdict {
			if m.call == "Produce" && !m.answer && held.CompareAndSwap(false, true) {
				time.AfterFunc(time.Millisecond, b.process.DropConnections)
				time.Sleep(500 * time.Millisecond)
			}
			return passes
		}}
		b.produce(200)
		s := b.start()
		b.awaitCaughtUp(time.Minute)
		if n := s.told("conversation failed"); n != 1 {
			t.Errorf("it failed %d times", n)
		}
		s.stop()
		b.check(noRepeats)
	})
}

func TestAStopThatComesWhileAFailedConversationIsFinishedHasItsWholeTime(t *testing.T) {
	t.Parallel()
	for answered, repeats := range map[time.Duration]bool{5 * time.Second: false, 30 * time.Second: true} {
		inBubble(t, 2, func(t *testing.T, b *bed) {
			var held atomic.Bool
			b.tap = &tap{process: b.address, judge: func(m message) verdict {
				if m.call == "Produce" && !m.answer && held.CompareAndSwap(false, true) {
					time.AfterFunc(time.Millisecond, b.process.DropConnections)
					time.Sleep(answered)
				}
				return passes
			}}
			b.produce(200)
			s := b.start()
			testkit.Eventually(t, time.Minute, "the first write is on its way", func() (bool, string) { return held.Load(), "" })
			time.Sleep(500 * time.Millisecond) // the process is gone since almost as long
			began := time.Now()
			s.stop()
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the stop took %s", took)
			}
			if told := s.told("could not be written and committed before the stop"); (told == 1) != repeats {
				t.Errorf("told %d times that records come again", told)
			}
			time.Sleep(answered)
			second := b.start()
			b.awaitCaughtUp(time.Minute)
			second.stop()
			if repeats {
				b.check()
			} else {
				b.check(noRepeats)
			}
		})
	}
}

func TestAPartitionThatWasPausedIsReadAgainWhenThereIsRoom(t *testing.T) {
	const partitions = 64 // so that half a mebibyte is the share of each
	inBubble(t, partitions, func(t *testing.T, b *bed) {
		records := make([]*kgo.Record, 4000)
		random := rand.New(rand.NewPCG(1, 2)) // a fetch's limit is of what is compressed
		for i := range records {
			value := fmt.Appendf(nil, "r%d;", i)
			for range 128 {
				value = binary.BigEndian.AppendUint64(value, random.Uint64())
			}
			records[i] = &kgo.Record{Topic: "in", Value: value}
		}
		for batch := range slices.Chunk(records, 100) { // a fetch brings whole batches
			if err := b.kafka.Produce(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		b.inputs = records
		b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 10 * time.Second, Times: 1})
		s := b.start()
		testkit.Eventually(t, time.Minute, "the first batch is with the process", func() (bool, string) { return b.process.Records() > 0, "" })
		time.Sleep(5 * time.Second)
		for _, m := range s.scrape()["ankka_flow_sidecar_records_in_total"].GetMetric() {
			if n := m.GetCounter().GetValue(); n > 2000 {
				t.Errorf("%.0f records were taken in for one that is slow", n)
			}
		}
		b.awaitCaughtUp(time.Minute)
		s.stop()
		b.check(noRepeats)
	})
}

func TestAPartitionThatComesBackWaitsForTheAnswerToItsOldBatch(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		first := b.startPod()
		first.awaitReady()
		first.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: time.Minute, Times: 2})
		b.produce(200)
		testkit.Eventually(t, 10*time.Second, "both partitions are with the process", func() (bool, string) {
			return len(first.process.Conversations()[0].Batches) >= 2, ""
		})
		second := b.startPod()
		second.awaitReady()
		second.process.Inject(testkit.Fault{Do: testkit.FailBatch}) // it gets nowhere
		testkit.Eventually(t, 30*time.Second, "one has moved", func() (bool, string) { return second.process.Records() > 0, "" })
		second.stop()
		b.awaitCaughtUp(3 * time.Minute)
		first.stop()
		b.check(noRepeats) // the process double tells of two batches of one partition at once
	})
}
