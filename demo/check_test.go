package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// aRun is the evidence of a run in which everything went as promised.
func aRun(d deployment, carts int) evidence {
	e := evidence{committed: map[int32]int64{}, ends: map[string]map[int32]int64{}}
	for _, topic := range d.topics() {
		e.ends[topic] = map[int32]int64{}
		for p := range int32(partitions) {
			e.ends[topic][p] = 0
		}
	}
	place := func(r *kgo.Record) *kgo.Record {
		r.Partition = testkit.JavaPartition(r.Key, partitions)
		r.Offset = e.ends[r.Topic][r.Partition]
		e.ends[r.Topic][r.Partition]++
		return r
	}
	for i := range carts {
		in := place(newCart(d.inlet.topic, fmt.Sprint(i)))
		e.sent = append(e.sent, in)
		outlet := newVerdict(d).fromRouter(in)[0].Outlet
		at := slices.IndexFunc(d.outlets, func(p port) bool { return p.name == outlet })
		e.written = append(e.written, place(&kgo.Record{Topic: d.outlets[at].topic, Key: in.Key, Value: in.Value}))
	}
	for p, end := range e.ends[d.inlet.topic] {
		e.committed[p] = end
	}
	return e
}

func TestTheVerdict(t *testing.T) {
	d := deploy(cartSpec(), "")
	for name, tt := range map[string]struct {
		spoil func(e *evidence)
		notOK []string
		words string // somewhere in the findings
	}{
		"all as promised":  {func(*evidence) {}, nil, "500 in, 500 out"},
		"a lost record":    {func(e *evidence) { e.written = slices.Delete(e.written, 100, 101) }, []string{"in = out", "nothing lost", "committed = end"}, "is there 0 of 1 times"},
		"a changed record": {func(e *evidence) { e.written[7].Headers = []kgo.RecordHeader{{Key: "x", Value: []byte{}}} }, []string{"nothing lost", "committed = end"}, "not as emitted"},
		"a record that is nobody's": {func(e *evidence) {
			r := *e.written[0]
			r.Offset, r.Value = e.ends[r.Topic][r.Partition], []byte(`{"event":"x"}`)
			e.written = append(e.written, &r)
		}, []string{"in = out"}, "no input is"},
		"a repeat": {func(e *evidence) {
			r := *e.written[0]
			r.Offset = e.ends[r.Topic][r.Partition]
			e.written = append(e.written, &r)
		}, nil, "1 (delivery is at least once"},
		"another order":     {swapTwo, []string{"order per key"}, "was produced later with the same key"},
		"too few committed": {func(e *evidence) { e.committed[2]-- }, []string{"committed = end"}, "499 of 500"},
		"nothing committed": {func(e *evidence) { clear(e.committed) }, []string{"committed = end"}, "nothing is committed"},
	} {
		t.Run(name, func(t *testing.T) {
			e := aRun(d, 500)
			tt.spoil(&e)
			v := newVerdict(d)
			v.check(e)
			var notOK []string
			for _, f := range v.findings() {
				if !f.ok {
					notOK = append(notOK, f.what)
				}
			}
			text := fmt.Sprint(v.findings())
			if !slices.Equal(notOK, tt.notOK) || !strings.Contains(text, tt.words) {
				t.Errorf("not ok are %q, to be %q, with the words %q:\n%s", notOK, tt.notOK, tt.words, text)
			}
		})
	}
}

// swapTwo exchanges the first two carts of one customer in one outlet.
func swapTwo(e *evidence) {
	for i, a := range e.written {
		for _, b := range e.written[i+1:] {
			if a.Topic == b.Topic && string(a.Key) == string(b.Key) {
				a.Offset, b.Offset = b.Offset, a.Offset
				return
			}
		}
	}
}

func TestTheVerdictOverSeveralChecksAddsUp(t *testing.T) {
	d := deploy(cartSpec(), "")
	e := aRun(d, 900)
	first, second := e, e
	first.sent, first.written, first.committed = e.sent[:400], e.written[:400], map[int32]int64{}
	first.ends = map[string]map[int32]int64{d.inlet.topic: {}}
	second.sent, second.written = e.sent[400:], e.written[400:]
	for _, r := range first.sent {
		first.ends[r.Topic][r.Partition] = r.Offset + 1
		first.committed[r.Partition] = r.Offset + 1
	}
	v := newVerdict(d)
	v.check(first)
	v.check(second)
	if text := fmt.Sprint(v.findings()); failed(v.findings()) || !strings.Contains(text, "900 in, 900 out") || !strings.Contains(text, "900 of 900") {
		t.Error(text)
	}
}

func TestAProcessThatTheDemoDoesNotKnowIsJudgedByWhatItEmitted(t *testing.T) {
	spec := cartSpec()
	spec.Streamlet.Name = "somebody-elses"
	spec.Streamlet.Outlets = []*flowv1.Port{{Name: "out"}}
	d := deploy(spec, "")
	v := newVerdict(d)
	e := evidence{committed: map[int32]int64{}, ends: map[string]map[int32]int64{d.inlet.topic: {}}}
	for p := range int32(partitions) {
		e.ends[d.inlet.topic][p] = 0
	}
	for i := range 100 {
		in := newCart(d.inlet.topic, fmt.Sprint(i))
		in.Partition = testkit.JavaPartition(in.Key, partitions)
		in.Offset = e.committed[in.Partition]
		e.committed[in.Partition]++
		e.ends[in.Topic][in.Partition]++
		e.sent = append(e.sent, in)
		if i%4 > 0 { // it skips every fourth, and adds to the others
			value := fmt.Appendf(nil, `{"event":"%d","seen":true}`, i)
			e.written = append(e.written, &kgo.Record{Topic: d.outlets[0].topic, Key: in.Key, Value: value, Partition: in.Partition, Offset: int64(i)})
		}
	}
	v.check(e)
	if text := fmt.Sprint(v.findings()); failed(v.findings()) || !strings.Contains(text, "75 of 100 carts are in an outlet; the others") || !strings.Contains(text, "75 out") {
		t.Error(text)
	}
	again := newVerdict(d)
	swapTwo(&e)
	again.check(e)
	if !failed(again.findings()) {
		t.Error("another order per key was not found")
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %q, to be %q", n, got, want)
		}
	}
}
