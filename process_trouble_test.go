package main

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// serve replaces the bed's process by one with a handler of its own, at the same address.
func (b *bed) serve(handler testkit.Handler) {
	b.t.Helper()
	b.process.Close()
	l, err := b.net.listen("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.process = testkit.NewProcess(l, b.spec, handler)
	b.processes = append(b.processes, b.process)
}

// restartProcess kills the process and starts it again after it was away for a while.
func (b *bed) restartProcess(away time.Duration) {
	b.t.Helper()
	b.process.Close()
	time.Sleep(away)
	b.startProcess()
}

func TestABatchThatHangsForEverHoldsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	inBubble(t, 4, func(t *testing.T, b *bed) {
		b.produce(1000)
		b.process.Inject(testkit.Fault{Do: testkit.Hang, When: testkit.AtOffset("in", 1, 57)})
		s := b.start()
		testkit.Eventually(t, time.Minute, "the others are committed to their ends", func() (bool, string) {
			ends, committed := b.offsets()
			for tp, end := range ends {
				if tp.Partition != 1 && committed[tp] != end {
					return false, fmt.Sprint(ends, committed)
				}
			}
			return true, ""
		})
		time.Sleep(time.Hour)
		if n := s.told("conversation failed"); n != 0 {
			t.Error("a slow process is taken for a broken one")
		}
		if n := s.told("PartitionStalled", "partition=1", "the process has not answered"); n != 1 {
			t.Errorf("the stall is told %d times in an hour", n)
		}
		if !s.ready() {
			t.Error("not ready, though records flow on the other partitions")
		}
		b.restartProcess(time.Second)
		b.awaitCaughtUp(time.Minute)
		s.stop()
		b.check()
	})
}

// byteByByte is a listener whose connections write one byte at a time.
type byteByByte struct{ net.Listener }

func (l byteByByte) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return bytewiseConn{conn}, err
}

type bytewiseConn struct{ net.Conn }

func (c bytewiseConn) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestAProcessThatAnswersByteByByteIsUnderstood(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.process.Close()
		l, err := b.net.listen("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		b.process = testkit.NewProcess(byteByByte{l}, b.spec, echo)
		b.processes = append(b.processes, b.process)
		b.produce(100)
		s := b.start()
		b.awaitCaughtUp(time.Minute)
		if n := s.told("conversation failed"); n != 0 {
			t.Errorf("the conversation failed:\n%s", s.log)
		}
		s.stop()
		b.check(noRepeats)
	})
}

func TestAProcessThatDiesInAnyStateIsWaitedForAndLosesNothing(t *testing.T) {
	for _, state := range []string{"Discover", "Start", "Batch", "Emit", "Ack"} {
		t.Run(state, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, b *bed) {
				b.produce(400)
				var died atomic.Bool
				process := b.process
				b.tap = &tap{process: b.address, judge: func(m message) verdict {
					if m.call != state || m.answer || !died.CompareAndSwap(false, true) {
						return passes
					}
					process.Close()
					return fails
				}}
				s := b.start()
				testkit.Eventually(t, time.Minute, "it died", func() (bool, string) { return died.Load(), "" })
				time.Sleep(20 * time.Second)
				if s.ready() {
					t.Error("ready without a process")
				}
				b.startProcess()
				b.awaitCaughtUp(time.Minute)
				s.awaitReady()
				if code := s.stop(); code != exitStopped {
					t.Errorf("exit code %d", code)
				}
				b.check(noRepeats) // nothing was acknowledged, or nothing written
			})
		})
	}
}

func TestAProcessThatDiesAtAStopDoesNotHoldItUp(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 5 * time.Second, When: testkit.AtOffset("in", 1, 20)})
		b.produce(400)
		s := b.start()
		s.awaitReady()
		time.Sleep(time.Second)
		began := time.Now()
		s.kill()
		time.Sleep(100 * time.Millisecond)
		b.process.Close()
		<-s.done
		if took := time.Since(began); s.code != exitStopped || took > 2*time.Second {
			t.Errorf("exit code %d after %s", s.code, took)
		}
		b.startProcess()
		b.start()
		b.awaitCaughtUp(time.Minute)
		b.check(noRepeats)
	})
}

func TestAProcessThatRestartsFasterThanTheBackoffIsNotChased(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(1000)
		s := b.start()
		s.awaitReady()
		for range 200 { // for a minute
			b.restartProcess(100 * time.Millisecond)
			time.Sleep(200 * time.Millisecond)
		}
		// 0.5, 1, 2, 4, 8, 16 and 30 s of waits fill the minute.
		if n := s.told("conversation started"); n < 2 || n > 8 {
			t.Errorf("%d conversations in a minute", n)
		}
		b.awaitCaughtUp(time.Minute)
		s.awaitReady()
		s.stop()
		b.check()
	})
}

func TestAProcessThatNeverAnswersDiscoverIsAskedAgainAndNothingIsRead(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.process.SetDiscovery(testkit.DiscoverHangs)
		b.produce(100)
		s := b.start("FLOW_DISCOVERY_TIMEOUT=5s")
		time.Sleep(10 * time.Minute)
		// Each attempt takes 5 s, and 10 s at most pass between two.
		if n := len(b.process.Discoveries()); n < 40 || n > 45 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		if s.ready() || s.told("partitions assigned") != 0 {
			t.Error("partitions are taken for a process that nobody knows")
		}
		b.process.SetDiscovery(testkit.DiscoverAnswers)
		b.awaitCaughtUp(time.Minute)
		s.stop()
		b.check(noRepeats)
	})
}

func TestAStreamThatIsResetFailsTheConversationAndLosesNothing(t *testing.T) {
	for _, call := range []string{"Start", "Batch", "Emit", "Ack"} {
		t.Run("at "+call, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, b *bed) {
				b.produce(400)
				var reset atomic.Bool
				b.tap = &tap{process: b.address, judge: func(m message) verdict {
					if m.call == call && reset.CompareAndSwap(false, true) {
						return resets
					}
					return passes
				}}
				s := b.start()
				b.awaitCaughtUp(time.Minute)
				if n := s.told("conversation failed", "RST_STREAM"); n != 1 {
					t.Errorf("told %d times:\n%s", n, s.log)
				}
				s.stop()
				b.check(noRepeats)
			})
		})
	}
}

func TestAGoAwayEndsNoConversationThatRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.process.GoAway()
		time.Sleep(time.Second)
		b.produce(400)
		b.awaitCaughtUp(time.Minute)
		if n := s.told("conversation failed"); n != 0 {
			t.Errorf("the conversation failed:\n%s", s.log)
		}
		s.stop()
		b.check(noRepeats)
	})
}

func TestAMessageOfTwentyMebibytesIsRefusedByTheRecordThatItIsFor(t *testing.T) {
	for mebibytes, cause := range map[int]string{20: "the limit is 4194304", 40: "a message over a size limit"} {
		t.Run(fmt.Sprint(mebibytes), func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, b *bed) {
				var small atomic.Bool
				at57 := testkit.AtOffset("in", 1, 57)
				b.serve(func(batch *flowv1.Batch) ([]*flowv1.Emit, error) {
					emits, err := echo(batch)
					if at57(batch) && !small.Load() {
						emits = append(emits, &flowv1.Emit{Outlet: "out", Record: &flowv1.Record{Value: make([]byte, mebibytes<<20)}})
					}
					return emits, err
				})
				b.produce(400)
				s := b.start()
				testkit.Eventually(t, time.Minute, "the cause", func() (bool, string) { return s.told("conversation failed", cause) > 0, s.log.String() })
				if mebibytes == 20 { // beyond 32 nobody can tell whose it is
					testkit.Eventually(t, time.Minute, "the offset", func() (bool, string) { return s.told(cause, "partition=1", "offset=57") > 0, s.log.String() })
				}
				small.Store(true)
				b.awaitCaughtUp(2 * time.Minute)
				s.stop()
				b.check()
			})
		})
	}
}

func TestAnAnswerToABatchOfThePreviousConversationIsAViolationAndCommitsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(400)
		b.process.Inject(testkit.Fault{Do: testkit.DropConnection, When: testkit.AtOffset("in", 1, 20), Times: 1})
		b.process.Inject(testkit.Fault{Do: testkit.AnswerPrevious, When: testkit.AtOffset("in", 1, 20), Times: 1})
		s := b.start()
		b.awaitCaughtUp(time.Minute)
		if n := s.told("conversation failed", "never sent in this conversation"); n != 1 {
			t.Errorf("told %d times:\n%s", n, s.log)
		}
		s.stop()
		b.check(func(h *testkit.History) { h.Processes = nil }) // what it did is what is tested
	})
}

func TestAProcessThatComesBackWithAnotherDescriptorEndsTheSidecarWithOne(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(400)
		s := b.start()
		b.awaitCaughtUp(time.Minute)
		b.spec = testkit.Spec("echo", testkit.Ports("in"), testkit.Ports("elsewhere"))
		b.restartProcess(time.Second)
		<-s.done
		if s.code != exitRefused {
			t.Errorf("exit code %d", s.code)
		}
		if s.ready() {
			t.Error("still ready")
		}
		if reported := b.process.Reported(); len(reported) != 1 || !strings.Contains(fmt.Sprint(reported), "elsewhere") {
			t.Errorf("the process was told: %q", reported)
		}
		b.check(noRepeats)
	})
}

func TestAProcessThatEmitsWithoutAnAckIsBoundedAndTold(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bed) {
		var flooding atomic.Bool
		flooding.Store(true)
		at57 := testkit.AtOffset("in", 1, 57)
		b.serve(func(batch *flowv1.Batch) ([]*flowv1.Emit, error) {
			emits, err := echo(batch)
			if at57(batch) && flooding.Load() {
				for range 1000 {
					emits = append(emits, &flowv1.Emit{Outlet: "out", Record: &flowv1.Record{Value: make([]byte, 10_000)}})
				}
			}
			return emits, err
		})
		b.produce(400)
		s := b.start("FLOW_MAX_EMIT_BYTES=1MiB")
		cause := "more than FLOW_MAX_EMIT_BYTES (1048576) before its Ack"
		testkit.Eventually(t, time.Minute, "the cause, by the record's offset", func() (bool, string) {
			return s.told("conversation failed", cause, "partition=1", "offset=57") > 0, s.log.String()
		})
		flooding.Store(false)
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check()
		ends, err := b.kafka.Ends(t.Context(), "out")
		if err != nil {
			t.Fatal(err)
		}
		var written int64
		for _, end := range ends {
			written += end
		}
		if written > 1000 {
			t.Errorf("%d records were written, 400 came: what was flooded was written, too", written)
		}
	})
}

// floodFrom has the process answer the batches of some partitions with emits of some bytes each in all, and no Ack, until
// stop is called. All of them are out before the first emit comes.
func (b *bed) floodFrom(partitions, bytes int32) (stop func()) {
	var stopped atomic.Bool
	b.serve(func(batch *flowv1.Batch) ([]*flowv1.Emit, error) {
		emits, err := echo(batch)
		if batch.Partition < partitions && !stopped.Load() {
			for range 10 {
				emits = append(emits, &flowv1.Emit{Outlet: "out", Record: &flowv1.Record{Value: make([]byte, bytes/10)}})
			}
		}
		return emits, err
	})
	remove := b.process.Inject(testkit.Fault{Do: testkit.HangAfterEmits, Delay: time.Second, When: func(batch *flowv1.Batch) bool { return batch.Partition < partitions }})
	return func() {
		stopped.Store(true)
		remove()
		b.process.DropConnections()
	}
}

func TestEmitsOfAllBatchesTogetherAreBoundedAndTheLargestBatchIsTold(t *testing.T) {
	t.Parallel()
	inBubble(t, 8, func(t *testing.T, b *bed) {
		stop := b.floodFrom(8, 600_000) // under the bound, each
		b.produce(800)
		s := b.start("FLOW_MAX_EMIT_BYTES=1MiB")
		testkit.Eventually(t, time.Minute, "the cause", func() (bool, string) {
			return s.told("conversation failed", "more than twice FLOW_MAX_EMIT_BYTES (1048576); the largest share", "offset=") > 0, s.log.String()
		})
		stop()
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check()
	})
}

func TestNoBatchGoesOutWhileTheEmitsThatAreHeldExceedTheirBudget(t *testing.T) {
	t.Parallel()
	inBubble(t, 4, func(t *testing.T, b *bed) {
		stop := b.floodFrom(2, 700_000) // over the budget together, under twice of it
		b.produce(400)
		s := b.start("FLOW_MAX_EMIT_BYTES=1MiB")
		time.Sleep(5 * time.Second)
		before := b.process.Records()
		b.produce(400)
		time.Sleep(10 * time.Second)
		if n := b.process.Records() - before; n != 0 {
			t.Errorf("%d more records went out", n)
		}
		if n := s.told("conversation failed"); n != 0 {
			t.Errorf("the conversation failed:\n%s", s.log)
		}
		stop()
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check()
	})
}

func TestTwoSidecarsMayTalkToOneProcess(t *testing.T) {
	t.Parallel()
	inBubble(t, 4, func(t *testing.T, b *bed) {
		stopLoad := b.keepProducing(200 * time.Millisecond)
		first, second := b.start(), b.start()
		first.awaitReady()
		second.awaitReady()
		time.Sleep(10 * time.Second)
		stopLoad()
		b.awaitCaughtUp(time.Minute)
		if first.told("conversation failed")+second.told("conversation failed") != 0 {
			t.Error("they disturb each other")
		}
		if n := b.process.Running(); n != 2 {
			t.Errorf("%d conversations run", n)
		}
		first.stop()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		second.stop()
		b.check(noRepeats)
	})
}
