package main

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAnInletThatStandsStillForNoReasonFailsTheConversation(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		var empty atomic.Bool
		empty.Store(true)
		b.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			if !empty.Load() {
				return nil, nil, false
			}
			nothing := req.ResponseKind().(*kmsg.FetchResponse)
			nothing.ThrottleMillis = 500 // else the client asks again at once
			return nothing, nil, true
		})
		b.produce(100)
		time.Sleep(110 * time.Second)
		if n := s.told("stands still"); n != 0 {
			t.Error("it is told before two minutes have passed")
		}
		time.Sleep(30 * time.Second)
		if n := s.told("conversation failed", "stands still"); n != 1 {
			t.Errorf("told %d times:\n%s", n, s.log)
		}
		empty.Store(false)
		b.awaitCaughtUp(2 * time.Minute)
		s.stop()
		b.check(noRepeats)
	})
}

func TestASlowProcessIsNoStandstill(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.process.Inject(testkit.Fault{Do: testkit.Obey, Delay: 20 * time.Minute, Times: 1})
		b.deployment.Inlets[0].MaxRecords = 10
		s := b.start()
		b.produce(200)
		b.awaitCaughtUpLooking(time.Hour, time.Second)
		if n := s.told("conversation failed"); n != 0 {
			t.Errorf("a slow process failed the conversation:\n%s", s.log)
		}
		s.stop()
		b.check(noRepeats)
	})
}
