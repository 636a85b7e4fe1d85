//go:build e2e

package e2e

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

func TestAStopFinishesWhatTheProcessHoldsAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	spec := testkit.Spec("stopped", testkit.Ports("in"), testkit.Ports("out"))
	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			w := onShared(t, spec)
			w.create(4, "in", "out")
			w.produce(testkit.Load(w.topic("in"), 4, 4_000))
			p := w.double(spec, to("out").handle)
			quick := p.Inject(testkit.Fault{Delay: 700 * time.Millisecond})
			s := w.sidecar(p.Addr())
			w.sum(30*time.Second, 1) // in the middle of it
			s.signal(sig)
			if code := s.exit(t, 15*time.Second); code != 0 {
				t.Fatalf("it ended with code %d", code)
			}
			if s.isReady() {
				t.Error("it has ended, and its file 'ready' is still there")
			}
			c := p.Conversations()[0]
			if !c.Stopped || !c.HalfClosed || !c.Ended || c.Err != "" {
				t.Errorf("the conversation: Stop %v, half-closed %v, ended %v (%s)", c.Stopped, c.HalfClosed, c.Ended, c.Err)
			}
			for _, b := range c.Batches {
				if b.Answer == "" {
					t.Errorf("batch %d was never answered", b.GetBatchId())
				}
			}
			// All that it answered is committed: nothing was thrown away.
			committed, err := w.committed()
			sum := int64(0)
			for _, offset := range committed {
				sum += offset
			}
			if err != nil || sum != int64(p.Records()) {
				t.Errorf("%d records were answered, %d are committed (%v)", p.Records(), sum, err)
			}
			quick()
			w.sidecar(p.Addr())
			w.allCommitted(30 * time.Second)
			w.judge(to("out").expect, func(h *testkit.History) {
				h.NoRepeats = true
				h.Processes = []*testkit.Process{p}
			})
		})
	}
}

func TestAProcessThatDoesNotEndDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	spec := testkit.Spec("stubborn", testkit.Ports("in"), testkit.Ports("out"))
	for name, stubborn := range map[string]func(*testkit.Process) (cure func()){
		"a batch is never answered": func(p *testkit.Process) func() {
			return p.Inject(testkit.Fault{Do: testkit.Hang, When: testkit.OfPartition("in", 1)})
		},
		"its side stays open": func(p *testkit.Process) func() {
			p.IgnoreStop(true)
			return func() { p.IgnoreStop(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := onShared(t, spec)
			w.create(3, "in", "out")
			w.produce(testkit.Load(w.topic("in"), 3, 900))
			p := w.double(spec, to("out").handle)
			cure := stubborn(p)
			s := w.sidecar(p.Addr())
			w.sum(30*time.Second, 500)
			s.terminated(15 * time.Second)
			cure()
			w.sidecar(p.Addr())
			w.allCommitted(time.Minute)
			w.judge(to("out").expect, func(h *testkit.History) {
				h.NoRepeats = true // what hung was never written
				h.Processes = []*testkit.Process{p}
			})
		})
	}
}
