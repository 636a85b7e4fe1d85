package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Emit is a record that a streamlet is to emit.
type Emit struct {
	Outlet  string
	Key     []byte // nil is no key, which an empty one is not
	Value   []byte // nil means empty, as the protocol has no null value
	Headers []kgo.RecordHeader
}

// Unchanged is the emit of a record as it came.
func Unchanged(outlet string, in *kgo.Record) Emit {
	return Emit{Outlet: outlet, Key: in.Key, Value: in.Value, Headers: in.Headers}
}

// Outlet is where an outlet's records are.
type Outlet struct {
	Topic      string
	Partitions int32
}

// History is what a run left behind. Committed has to be read before Outputs when the run is not over, since what is committed by then
// has to be in the outlets already.
type History struct {
	Inputs    []*kgo.Record               // as produced, each partition's in order
	Expect    func(in *kgo.Record) []Emit // what the process emits for a record; always the same
	Outlets   map[string]Outlet           // by outlet name
	Outputs   []*kgo.Record               // as read back from the outlets' topics
	Committed map[TopicPartition]int64    // of every inlet's group; no entry: nothing committed
	Ends      map[TopicPartition]int64    // log ends of the inlets' topics
	Processes []*Process                  // optional: what the process double saw

	// Complete says that all was to be worked off: every expected emit is there, and committed = end. If not, whatever is committed
	// is judged.
	Complete bool
	// Bound holds partitions whose committed offset may not pass a given one, and in a Complete history does not reach the end.
	Bound map[TopicPartition]int64
	// NoRepeats makes each repeat a problem. Otherwise they are counted.
	NoRepeats bool
	// Refused says of records that they were in a batch whose write was refused: among these, order is not promised.
	Refused func(in *kgo.Record) bool
	// Gone says of records that they were removed from their topic before they were committed: they may be missing.
	Gone func(in *kgo.Record) bool
	// Deleted holds, by the names that they have in Inputs, Committed and Ends, the real names of topics that were deleted.
	Deleted map[string]string
	// Identity is what a record says that it is; nil: the function Identity.
	Identity func(*kgo.Record) string
	// Print is how many problems Report.String tells of; 0: 20.
	Print int
}

// Rule is one of the checker's rules.
type Rule string

// The rules.
const (
	Setup     Rule = "setup"     // the history itself is not one that can be judged
	Lost      Rule = "lost"      // an expected emit is not there
	Invented  Rule = "invented"  // a record that nobody was to emit is there
	Bytes     Rule = "bytes"     // key, value or headers are not as emitted
	Order     Rule = "order"     // per key and outlet, first occurrences come in input order
	Partition Rule = "partition" // a keyed record is where Java's default partitioner puts it
	Commit    Rule = "commit"    // nothing is committed before its emits are there, and in the end all is
	Repeat    Rule = "repeat"    // a record came twice where it must not
	Protocol  Rule = "protocol"  // what the process double saw is not what the protocol says
	Delivery  Rule = "delivery"  // what the process was given is not what was produced
)

// Problem is one finding.
type Problem struct {
	Rule Rule
	Text string
}

// Report is the verdict on a history.
type Report struct {
	Inputs, Expected, Outputs int
	Repeats                   int
	RepeatsBy                 map[TopicPartition]int // by outlet partition
	Problems                  []Problem
	print                     int
}

// Err is nil when there is no problem.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s", r)
}

// String tells of the first problems of each rule, as many as there is place for, and counts all.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d records in, %d emits expected, %d records out, %d repeats, %d problems", r.Inputs, r.Expected, r.Outputs, r.Repeats, len(r.Problems))
	for _, tp := range slices.SortedFunc(maps.Keys(r.RepeatsBy), compareTP) {
		fmt.Fprintf(&b, "\n  repeats in %s: %d", tp, r.RepeatsBy[tp])
	}
	byRule := map[Rule][]string{}
	for _, p := range r.Problems {
		byRule[p.Rule] = append(byRule[p.Rule], p.Text)
	}
	// Each rule has its share: a thousand of one kind must not hide the one of another that is the cause.
	share := max(1, r.print/max(1, len(byRule)))
	for _, rule := range sortedKeys(byRule) {
		texts := byRule[rule]
		fmt.Fprintf(&b, "\n  %s: %d", rule, len(texts))
		for _, text := range texts[:min(share, len(texts))] {
			fmt.Fprintf(&b, "\n    %s", text)
		}
		if more := len(texts) - share; more > 0 {
			fmt.Fprintf(&b, "\n    and %d more", more)
		}
	}
	return b.String()
}

// ByRule counts the problems.
func (r *Report) ByRule() map[Rule]int {
	counts := map[Rule]int{}
	for _, p := range r.Problems {
		counts[p.Rule]++
	}
	return counts
}

func (r *Report) problem(rule Rule, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{rule, fmt.Sprintf(format, args...)})
}

// Check judges a history by the promises that every run of the sidecar has to keep, whatever was done to it.
func Check(h History) *Report {
	c := &checker{h: h, report: &Report{Inputs: len(h.Inputs), Outputs: len(h.Outputs), RepeatsBy: map[TopicPartition]int{}, print: h.Print}}
	if c.report.print == 0 {
		c.report.print = 20
	}
	if c.h.Identity == nil {
		c.h.Identity = Identity
	}
	if c.h.Refused == nil {
		c.h.Refused = func(*kgo.Record) bool { return false }
	}
	if c.h.Gone == nil {
		c.h.Gone = func(*kgo.Record) bool { return false }
	}
	c.inputs()
	c.outputs()
	c.commits()
	c.processes()
	return c.report
}

// checker holds a history by what its records are.
type checker struct {
	h       History
	report  *Report
	byID    map[string]*input
	outlets map[string]string // by topic
}

// input is a record as produced, with what is to come of it.
type input struct {
	*kgo.Record
	id     string
	expect []expected
}

type expected struct {
	Emit
	times int // how often it is expected: a streamlet may emit the same twice
	found int
}

func (in *input) at() string {
	return fmt.Sprintf("%s (%s/%d@%d)", printable(in.id), in.Topic, in.Partition, in.Offset)
}

func (in *input) partition() TopicPartition { return TopicPartition{in.Topic, in.Record.Partition} }

func (c *checker) inputs() {
	c.byID, c.outlets = map[string]*input{}, map[string]string{}
	for _, name := range sortedKeys(c.h.Outlets) {
		topic := c.h.Outlets[name].Topic
		if other, twice := c.outlets[topic]; twice {
			c.report.problem(Setup, "outlets %s and %s share the topic %s, so that nobody can tell whose a record is", other, name, topic)
		}
		c.outlets[topic] = name
	}
	for _, r := range c.h.Inputs {
		in := &input{Record: r, id: c.h.Identity(r)}
		if other := c.byID[in.id]; other != nil {
			c.report.problem(Setup, "the inputs %s and %s have one identity", other.at(), in.at())
			continue
		}
		c.byID[in.id] = in
		for _, e := range c.h.Expect(r) {
			c.report.Expected++
			if _, is := c.h.Outlets[e.Outlet]; !is {
				c.report.problem(Setup, "%s is expected on outlet %s, which is none", in.at(), e.Outlet)
			}
			same := slices.IndexFunc(in.expect, func(other expected) bool { return other.Outlet == e.Outlet && difference(other.Emit, e) == "" })
			if same >= 0 {
				in.expect[same].times++
				continue
			}
			in.expect = append(in.expect, expected{Emit: e, times: 1})
		}
	}
}

// difference says in what two emits differ; empty: in nothing.
func difference(want, got Emit) string {
	var ds []string
	if !sameBytes(want.Key, got.Key) {
		ds = append(ds, fmt.Sprintf("the key is %s, not %s", show(got.Key), show(want.Key)))
	}
	if !slices.Equal(want.Value, got.Value) {
		ds = append(ds, fmt.Sprintf("the value is %s, not %s", show(got.Value), show(want.Value)))
	}
	if len(want.Headers) != len(got.Headers) {
		ds = append(ds, fmt.Sprintf("it has %d headers, not %d", len(got.Headers), len(want.Headers)))
	} else {
		for i := range want.Headers {
			w, g := want.Headers[i], got.Headers[i]
			if w.Key != g.Key || !slices.Equal(w.Value, g.Value) {
				ds = append(ds, fmt.Sprintf("header %d is %s=%s, not %s=%s", i, printable(g.Key), show(g.Value), printable(w.Key), show(w.Value)))
			}
		}
	}
	return strings.Join(ds, ", ")
}

// sameBytes tells nil from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

func show(b []byte) string {
	switch {
	case b == nil:
		return "none"
	case len(b) == 0:
		return "empty"
	case len(b) > 40:
		return fmt.Sprintf("%q… of %d bytes", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func printable(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q… of %d bytes", s[:60], len(s))
	}
	return fmt.Sprintf("%q", s)
}
