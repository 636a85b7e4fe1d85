package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// told counts the lines of the log that hold every part.
func (s *instance) told(parts ...string) (n int) {
line:
	for line := range strings.Lines(s.log.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue line
			}
		}
		n++
	}
	return n
}

func TestAFailingPodMovesNobody(t *testing.T) {
	for _, pods := range []string{"dynamic", "static"} {
		t.Run(pods, func(t *testing.T) {
			inBubble(t, 6, func(t *testing.T, b *bed) {
				stopLoad := b.keepProducing(200 * time.Millisecond)
				var s []*instance
				for i := range 2 {
					var env []string
					if pods == "static" {
						env = []string{fmt.Sprintf("FLOW_POD_NAME=pod-%d", i), "FLOW_POD_NAMESPACE=test"}
					}
					s = append(s, b.startPod(env...))
					s[i].awaitReady()
				}
				time.Sleep(10 * time.Second) // the group is settled
				before := []int{s[0].told("partitions"), s[1].told("partitions")}
				for range 5 { // it fails, dies and comes back
					s[0].process.Inject(testkit.Fault{Do: testkit.FailBatch, Times: 1})
					time.Sleep(5 * time.Second)
					s[0].process.Close()
					time.Sleep(3 * time.Second)
					s[0].process = b.newProcess(s[0].process.Addr())
					s[0].awaitReady()
				}
				for i := range s {
					if after := s[i].told("partitions"); after != before[i] {
						t.Errorf("pod %d: %d partitions lines, %d before the failures", i, after, before[i])
					}
				}
				stopLoad()
				b.awaitCaughtUp(2 * time.Minute)
				b.check()
			})
		})
	}
}

func TestAPodWhoseProcessStaysAwayGivesItsPartitionsUpAndComesBack(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, b *bed) {
		s := []*instance{b.startPod(), b.startPod()}
		for i := range s {
			s[i].awaitReady()
		}
		time.Sleep(10 * time.Second)
		s[0].process.Close()
		time.Sleep(40 * time.Second)
		if s[0].told("made anew") != 0 {
			t.Fatal("it left before the session timeout")
		}
		b.produce(600)
		time.Sleep(15 * time.Second) // 45 s have passed
		b.awaitCaughtUp(10 * time.Second)
		if s[0].told("session.timeout.ms") != 1 {
			t.Error("it does not say once why it left")
		}
		s[0].process = b.newProcess(s[0].process.Addr())
		s[0].awaitReady()
		b.produce(600)
		b.awaitCaughtUp(time.Minute)
		if s[0].process.Records() == 0 {
			t.Error("the pod that came back reads nothing")
		}
		for i := range s {
			s[i].stop()
		}
		b.check(noRepeats)
	})
}

func TestARebalanceDropsTheUnansweredBatchAndSwallowsItsLateAnswers(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		first := b.startPod()
		first.awaitReady()
		// Both partitions' batches take longer than the rebalance.
		first.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 30 * time.Second, Times: 2})
		b.produce(100)
		testkit.Eventually(t, 10*time.Second, "both partitions are with the process", func() (bool, string) {
			return len(first.process.Conversations()[0].Batches) >= 2, ""
		})
		second := b.startPod()
		second.awaitReady()
		b.awaitCaughtUp(2 * time.Minute)
		if n := first.told("conversation failed"); n != 0 {
			t.Errorf("the late answers failed the conversation:\n%s", first.log)
		}
		if second.process.Records() == 0 {
			t.Error("the new owner read nothing")
		}
		first.stop()
		second.stop()
		b.check(noRepeats) // what was dropped was never written
	})
}

func TestAMemberThatWasExpelledComesBackByItselfAndIsNotReadyMeanwhile(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		s := b.startPod()
		s.awaitReady()
		b.expelAll()
		testkit.Eventually(t, 10*time.Second, "not ready", func() (bool, string) { return !s.ready(), s.log.String() })
		s.awaitReady()
		b.produce(300)
		b.awaitCaughtUp(time.Minute)
		s.stop()
		b.check()
	})
}

func TestAStaticMemberThatWasFencedGoesOnWithoutTheName(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		env := []string{"FLOW_POD_NAME=same", "FLOW_POD_NAMESPACE=test"}
		first := b.startPod(env...)
		first.awaitReady()
		second := b.startPod(env...)
		second.awaitReady()
		testkit.Eventually(t, time.Minute, "the loser says so and is a member again", func() (bool, string) {
			return first.told("another member has this group.instance.id") == 1 && first.ready(), first.log.String()
		})
		b.produce(400)
		b.awaitCaughtUp(2 * time.Minute)
		if second.told("another member has this") != 0 {
			t.Error("the winner lost it, too")
		}
		first.stop()
		second.stop()
		b.check()
	})
}
