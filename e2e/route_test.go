//go:build e2e

package e2e

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// route says to which outlets a record of an inlet goes as it is. It is both what the double does and what the checker expects.
type route func(inlet string, value []byte) []string

// to is the route of everything to the same outlets.
func to(outlets ...string) route { return func(string, []byte) []string { return outlets } }

func (r route) handle(b *flowv1.Batch) (emits []*flowv1.Emit, err error) {
	for _, in := range b.GetRecords() {
		for _, outlet := range r(b.GetInlet(), in.GetRecord().GetValue()) {
			emits = append(emits, &flowv1.Emit{Outlet: outlet, Record: in.GetRecord()})
		}
	}
	return emits, nil
}

func (r route) expect(in *kgo.Record) (emits []testkit.Emit) {
	_, inlet, _ := strings.Cut(in.Topic, ".")
	for _, outlet := range r(inlet, in.Value) {
		emits = append(emits, testkit.Unchanged(outlet, in))
	}
	return emits
}

// trickle produces a load in small pieces for as long as it is not stopped: what 'under load' means. stop gives what was produced.
func (w *world) trickle(records []*kgo.Record, piece int) (stop func()) {
	w.t.Helper()
	produce, end, err := w.cluster.Producer()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(end)
	ctx, cancel := context.WithCancel(w.ctx)
	var produced sync.WaitGroup
	var failed error
	n := 0
	produced.Go(func() {
		tick := time.NewTicker(testkit.Interval)
		defer tick.Stop()
		for n < len(records) && failed == nil {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			next := min(n+piece, len(records))
			if failed = produce(w.ctx, records[n:next]); failed == nil {
				n = next
			}
		}
	})
	return func() {
		w.t.Helper()
		cancel()
		produced.Wait()
		if failed != nil {
			w.t.Fatal(failed)
		}
		if n == len(records) {
			w.t.Fatalf("the load of %d records was too short for the test", n)
		}
		w.t.Logf("%d records were produced meanwhile", n)
		w.inputs = append(w.inputs, records[:n]...)
	}
}
