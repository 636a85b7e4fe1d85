package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEveryRecordGoesThroughOnceAndIsCommitted(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		b.produce(2000)
		s := b.start()
		s.awaitReady()
		b.awaitCaughtUp(time.Minute)
		b.produce(500)
		b.awaitCaughtUp(time.Minute)
		if code := s.stop(); code != exitStopped {
			t.Errorf("exit code %d", code)
		}
		b.check(noRepeats)
	})
}

func TestAProcessThatDiesAndComesBackLosesNothing(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		for round := range 5 {
			b.produce(1000)
			testkit.Eventually(t, time.Minute, "some records seen", func() (bool, string) {
				return b.process.Records() > 100, fmt.Sprint(b.process.Records())
			})
			b.process.Close()
			testkit.Eventually(t, time.Second, "not ready", func() (bool, string) { return !s.ready(), "ready" })
			b.startProcess()
			s.awaitReady()
			_ = round
		}
		b.awaitCaughtUp(time.Minute)
		if code := s.stop(); code != exitStopped {
			t.Errorf("exit code %d", code)
		}
		report := b.check()
		t.Log(report)
	})
}

func TestAFailedBatchIsDeliveredAgainUntilItSucceeds(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, b *bed) {
		b.produce(1000)
		remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57), Text: "poison"})
		s := b.start()
		testkit.Eventually(t, 5*time.Minute, "others committed", func() (bool, string) {
			ends, committed := b.offsets()
			for tp, end := range ends {
				want := end
				if tp.Partition == 1 {
					want = 57
				}
				if committed[tp] != want {
					return false, fmt.Sprint(ends, committed)
				}
			}
			return strings.Contains(s.log.String(), "offset=57"), "the log does not name the offset at fault"
		})
		testkit.Eventually(t, time.Minute, "the log names the offset at fault", func() (bool, string) {
			return s.told("poison", "offset=57") > 0, s.log.String()
		})
		remove()
		b.awaitCaughtUp(5 * time.Minute)
		s.stop()
		report := b.check()
		t.Log(report)
	})
}

func TestRollingRestartRepeatsNothing(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, b *bed) {
		stop := b.keepProducing(50 * time.Millisecond)
		s := []*instance{b.startPod(), b.startPod(), b.startPod()}
		for _, i := range s {
			i.awaitReady()
		}
		for i := range s {
			if code := s[i].stop(); code != exitStopped {
				t.Errorf("exit code %d", code)
			}
			s[i] = b.startPod()
			s[i].awaitReady()
		}
		stop()
		b.awaitCaughtUp(time.Minute)
		for _, i := range s {
			i.stop()
		}
		report := b.check(noRepeats)
		t.Log(report)
	})
}

// keepProducing adds a few records each interval until stop is called.
func (b *bed) keepProducing(interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait(ctx, interval) {
			b.produce(25)
		}
	}()
	return func() { cancel(); <-done }
}

func TestItIsNotReadyAndNotLoudWhileItIsNotKnownWhereToBegin(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		var allowed atomic.Bool
		b.cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			if allowed.Load() {
				return nil, nil, false
			}
			fetch := req.(*kmsg.OffsetFetchRequest)
			resp := fetch.ResponseKind().(*kmsg.OffsetFetchResponse)
			for _, asked := range fetch.Groups {
				group := kmsg.NewOffsetFetchResponseGroup()
				group.Group, group.ErrorCode = asked.Group, kerr.GroupAuthorizationFailed.Code
				resp.Groups = append(resp.Groups, group)
			}
			return resp, nil, true
		})
		b.produce(10)
		s := b.start()
		time.Sleep(10 * time.Minute)
		log := s.log.String()
		if strings.Contains(log, "ready=true") {
			t.Error("ready with nothing that can be read")
		}
		if !strings.Contains(log, "GROUP_AUTHORIZATION_FAILED") {
			t.Error("the cause is not told")
		}
		if lines := strings.Count(log, "\n"); lines > 40 {
			t.Errorf("%d lines in ten minutes", lines)
		}
		allowed.Store(true)
		s.awaitReady()
		b.awaitCaughtUp(time.Minute)
	})
}
