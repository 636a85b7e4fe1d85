package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// finding is one line of the verdict.
type finding struct {
	ok     bool
	what   string
	detail string
	proof  []string // what was found, when it is not ok
}

// verdict is what the topics and the group say about a run, as far as it was checked.
type verdict struct {
	deployment
	in, skipped, committed, end, repeats int
	out                                  map[string]int // first occurrences, by topic
	customers                            map[string]bool
	problems                             map[testkit.Rule][]string
}

func newVerdict(d deployment) *verdict {
	return &verdict{deployment: d, out: map[string]int{}, customers: map[string]bool{}, problems: map[testkit.Rule][]string{}}
}

// evidence is what one check is about: what was produced, what the outlets' topics got since, and what was committed before they were read.
type evidence struct {
	sent, written []*kgo.Record
	committed     map[int32]int64
	ends          map[string]map[int32]int64
}

// check judges the evidence by the rules that the tests of the sidecar have, and adds it to what was checked before.
func (v *verdict) check(e evidence) {
	expect := v.fromRouter
	if !isCartRouter(v.spec) {
		expect, e.written = v.asItWas(e)
	}
	h := testkit.History{
		Inputs: e.sent, Outputs: e.written, Expect: expect, Identity: event, Complete: true,
		Outlets: map[string]testkit.Outlet{}, Committed: map[testkit.TopicPartition]int64{}, Ends: map[testkit.TopicPartition]int64{},
	}
	for _, outlet := range v.outlets {
		h.Outlets[outlet.name] = testkit.Outlet{Topic: outlet.topic, Partitions: partitions}
	}
	v.committed, v.end = 0, 0 // the last check has them whole
	for p, end := range e.ends[v.inlet.topic] {
		at := testkit.TopicPartition{Topic: v.inlet.topic, Partition: p}
		h.Ends[at] = end
		v.end += int(end)
		if committed, some := e.committed[p]; some {
			h.Committed[at] = committed
			v.committed += int(committed)
		} else if end == 0 {
			h.Committed[at] = 0 // nothing to commit
		}
	}
	report := testkit.Check(h)
	v.in += report.Inputs
	v.repeats += report.Repeats
	for _, problem := range report.Problems {
		v.problems[problem.Rule] = append(v.problems[problem.Rule], problem.Text)
	}
	for _, r := range e.sent {
		v.customers[string(r.Key)] = true
	}
	for _, r := range e.written {
		v.out[r.Topic]++
	}
	for tp, n := range report.RepeatsBy {
		v.out[tp.Topic] -= n
	}
}

// fromRouter is what the cart router emits for a record.
func (v *verdict) fromRouter(in *kgo.Record) []testkit.Emit {
	var c cart
	_ = json.Unmarshal(in.Value, &c) // newCart made it
	return []testkit.Emit{testkit.Unchanged(outletFor(c, threshold), in)}
}

// asItWas takes for granted what a process that the demo does not know has emitted with the event of a cart. A cart whose event is nowhere
// counts as skipped; records without the event of any cart are left out.
func (v *verdict) asItWas(e evidence) (expect func(in *kgo.Record) []testkit.Emit, written []*kgo.Record) {
	outlets := map[string]string{}
	for _, outlet := range v.outlets {
		outlets[outlet.topic] = outlet.name
	}
	known := map[string]bool{}
	for _, r := range e.sent {
		known[event(r)] = true
	}
	emits := map[string][]testkit.Emit{}
	for _, r := range e.written {
		id, outlet := event(r), outlets[r.Topic]
		if !known[id] {
			continue
		}
		written = append(written, r)
		again := func(emit testkit.Emit) bool {
			return emit.Outlet == outlet && bytes.Equal(emit.Key, r.Key) && bytes.Equal(emit.Value, r.Value)
		}
		if !slices.ContainsFunc(emits[id], again) {
			emits[id] = append(emits[id], testkit.Unchanged(outlet, r))
		}
	}
	for _, r := range e.sent {
		if len(emits[event(r)]) == 0 {
			v.skipped++
		}
	}
	return func(in *kgo.Record) []testkit.Emit { return emits[event(in)] }, written
}

// event is what makes a cart another than all others.
func event(r *kgo.Record) string {
	var c cart
	_ = json.Unmarshal(r.Value, &c) // what is no cart has no event
	return c.Event
}

// findings are the verdict in lines.
func (v *verdict) findings() []finding {
	var outlets []string
	sum := 0
	for _, outlet := range v.outlets {
		outlets = append(outlets, fmt.Sprintf("%s %s", thousands(v.out[outlet.topic]), outlet.name))
		sum += v.out[outlet.topic]
	}
	known := isCartRouter(v.spec)
	balance := fmt.Sprintf("%s in, %s out: %s", thousands(v.in), thousands(sum), strings.Join(outlets, " + "))
	if len(outlets) == 0 {
		balance = thousands(v.in) + " in; the streamlet has no outlets"
	}
	what, lost, none := "in = out", "nothing lost", "each cart in the outlet that its total says, byte for byte"
	if !known {
		what, lost, none = "in and out", "emitted", fmt.Sprintf("%s of %s carts are in an outlet", thousands(v.in-v.skipped), thousands(v.in))
		if v.skipped > 0 {
			none += "; the others the process skipped"
		}
	}
	return []finding{
		v.finding(what, balance, known && v.in != sum, testkit.Setup, testkit.Invented),
		v.finding(lost, none, false, testkit.Lost, testkit.Bytes),
		v.finding("order per key", fmt.Sprintf("kept for each of %d customers", len(v.customers)), false, testkit.Order, testkit.Partition),
		v.finding("committed = end", fmt.Sprintf("%s of %s, in %d partitions", thousands(v.committed), thousands(v.end), partitions), v.committed != v.end, testkit.Commit),
		{ok: true, what: "repeats", detail: thousands(v.repeats) + " (delivery is at least once: a crash may cost some)"},
	}
}

// finding is a line about some rules, which is not ok either when wrong is said.
func (v *verdict) finding(what, detail string, wrong bool, rules ...testkit.Rule) finding {
	f := finding{what: what, detail: detail}
	for _, rule := range rules {
		f.proof = append(f.proof, v.problems[rule]...)
	}
	f.ok = !wrong && len(f.proof) == 0
	const most = 3
	if more := len(f.proof) - most; more > 0 {
		f.proof = append(f.proof[:most:most], fmt.Sprintf("and %s more", thousands(more)))
	}
	return f
}

// failed says that a check has found something.
func failed(findings []finding) bool {
	return slices.ContainsFunc(findings, func(f finding) bool { return !f.ok })
}

// thousands writes a number with commas.
func thousands[N int | int64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
