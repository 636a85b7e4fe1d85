package testkit

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fine is a complete history of two outlets: every third record goes to both, the others to one.
func fine() History {
	h := History{
		Inputs: Load("in", 4, 400),
		Expect: func(in *kgo.Record) []Emit {
			switch len(in.Value) % 3 {
			case 0:
				return []Emit{Unchanged("left", in), Unchanged("right", in)}
			case 1:
				return []Emit{Unchanged("left", in)}
			default:
				return []Emit{Unchanged("right", in)}
			}
		},
		Outlets:   map[string]Outlet{"left": {"l", 3}, "right": {"r", 5}},
		Committed: map[TopicPartition]int64{},
		Ends:      map[TopicPartition]int64{},
		Complete:  true,
	}
	next := map[TopicPartition]int64{}
	for _, in := range h.Inputs {
		tp := TopicPartition{in.Topic, in.Partition}
		in.Offset = h.Ends[tp]
		h.Ends[tp]++
		h.Committed[tp]++
		for _, e := range h.Expect(in) {
			h.Outputs = append(h.Outputs, written(h, next, e))
		}
	}
	return h
}

// written is the record that an emit becomes, at the end of its partition.
func written(h History, next map[TopicPartition]int64, e Emit) *kgo.Record {
	o := h.Outlets[e.Outlet]
	r := &kgo.Record{Topic: o.Topic, Key: slices.Clone(e.Key), Value: append([]byte{}, e.Value...), Headers: slices.Clone(e.Headers)}
	if e.Key != nil {
		r.Partition = JavaPartition(e.Key, o.Partitions)
	}
	tp := TopicPartition{r.Topic, r.Partition}
	r.Offset = next[tp]
	next[tp]++
	return r
}

// which is the first output that fits.
func which(t *testing.T, h History, fits func(*kgo.Record) bool) *kgo.Record {
	t.Helper()
	i := slices.IndexFunc(h.Outputs, fits)
	if i < 0 {
		t.Fatal("the history has no such record")
	}
	return h.Outputs[i]
}

func again(h *History, r *kgo.Record) {
	copied := *r
	for _, other := range h.Outputs {
		if other.Topic == r.Topic && other.Partition == r.Partition {
			copied.Offset = max(copied.Offset, other.Offset+1)
		}
	}
	h.Outputs = append(h.Outputs, &copied)
}

// oneKey are two outputs of one key in one outlet, the earlier one first.
func oneKey(t *testing.T, h History) (*kgo.Record, *kgo.Record) {
	t.Helper()
	for i, a := range h.Outputs {
		for _, b := range h.Outputs[i+1:] {
			if a.Topic == b.Topic && a.Key != nil && b.Key != nil && string(a.Key) == string(b.Key) && Identity(a) != Identity(b) {
				return a, b
			}
		}
	}
	t.Fatal("no two outputs share a key")
	return nil, nil
}

func TestAHistoryThatKeepsEveryPromisePasses(t *testing.T) {
	h := fine()
	report := Check(h)
	if err := report.Err(); err != nil || report.Repeats != 0 || report.Expected != len(h.Outputs) {
		t.Fatalf("%v", report)
	}
}

func TestARepeatIsCountedAndBreaksNothing(t *testing.T) {
	h := fine()
	for _, r := range h.Outputs[:5] {
		again(&h, r)
	}
	if report := Check(h); report.Err() != nil || report.Repeats != 5 {
		t.Fatal(report)
	}
}

func TestEachRuleFailsOnAHistoryThatBreaksIt(t *testing.T) {
	keyed := func(r *kgo.Record) bool { return len(r.Key) > 0 }
	anywhere := TopicPartition{"in", 1}
	for name, c := range map[string]struct {
		rule  Rule
		says  string
		spoil func(t *testing.T, h *History)
	}{
		"an emit is lost":                      {Lost, "is there 0 of 1 times", func(t *testing.T, h *History) { h.Outputs = h.Outputs[1:] }},
		"the last emit of a partition is lost": {Lost, "is there 0 of 1 times", func(t *testing.T, h *History) { h.Outputs = h.Outputs[:len(h.Outputs)-1] }},
		"of an emit that is expected twice one is lost": {Lost, "is there 1 of 2 times", func(t *testing.T, h *History) {
			expect := h.Expect
			h.Expect = func(in *kgo.Record) []Emit { return append(expect(in), expect(in)...) }
		}},
		"a record without an input": {Invented, "no input is", func(t *testing.T, h *History) {
			again(h, &kgo.Record{Topic: "l", Value: []byte("nobody;")})
		}},
		"a record on an outlet that it was not for": {Invented, "was not to go to outlet", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Value)%3 == 1 && r.Topic == "l" && r.Key == nil })
			moved := *r
			moved.Topic = "r"
			again(h, &moved)
		}},
		"no key became an empty one": {Bytes, "the key is empty, not none", func(t *testing.T, h *History) {
			which(t, *h, func(r *kgo.Record) bool { return r.Key == nil }).Key = []byte{}
		}},
		"an empty key became none": {Bytes, "the key is none, not empty", func(t *testing.T, h *History) {
			which(t, *h, func(r *kgo.Record) bool { return r.Key != nil && len(r.Key) == 0 }).Key = nil
		}},
		"a binary key became text": {Bytes, "the key is", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Key) > 2 && r.Key[0] == 0 })
			r.Key = []byte(strings.ToValidUTF8(string(r.Key), "\ufffd"))
		}},
		"a value lost its last byte": {Bytes, "the value is", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Value) > 20 })
			r.Value = r.Value[:len(r.Value)-1]
		}},
		"an empty value became null": {Bytes, "has a null", func(t *testing.T, h *History) {
			which(t, *h, func(r *kgo.Record) bool { return len(r.Value) == 0 }).Value = nil
		}},
		"an empty header value became null": {Bytes, "has a null", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Headers) == 4 })
			r.Headers[2].Value = nil
		}},
		"two headers changed places": {Bytes, "header 0 is", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Headers) == 4 })
			r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0]
		}},
		"a header that was there twice is there once": {Bytes, "it has 3 headers, not 4", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return len(r.Headers) == 4 })
			r.Headers = r.Headers[1:]
		}},
		"two records of a key changed places": {Order, "comes for the first time after", func(t *testing.T, h *History) {
			a, b := oneKey(t, *h)
			a.Offset, b.Offset = b.Offset, a.Offset
		}},
		"a keyed record is on another partition": {Partition, "belongs to partition", func(t *testing.T, h *History) {
			r := which(t, *h, keyed)
			r.Partition, r.Offset = (r.Partition+1)%3, 1_000_000
		}},
		"an empty key is placed as if it were none": {Partition, "belongs to partition", func(t *testing.T, h *History) {
			r := which(t, *h, func(r *kgo.Record) bool { return r.Key != nil && len(r.Key) == 0 })
			r.Partition, r.Offset = (r.Partition+1)%3, 1_000_000
		}},
		"not all is committed": {Commit, "is committed, the end is", func(t *testing.T, h *History) { h.Committed[anywhere]-- }},
		"nothing is committed": {Commit, "nothing is committed", func(t *testing.T, h *History) { delete(h.Committed, anywhere) }},
		"more is committed than there is": {Commit, "past the end", func(t *testing.T, h *History) {
			h.Complete = false
			h.Committed[anywhere]++
		}},
		"more is committed than the bound allows": {Commit, "nothing over 3 may be", func(t *testing.T, h *History) {
			h.Bound = map[TopicPartition]int64{anywhere: 3}
		}},
		"less is committed than the bound": {Commit, "all before 3 was to be", func(t *testing.T, h *History) {
			h.Bound = map[TopicPartition]int64{anywhere: 3}
			h.Committed[anywhere] = 2
		}},
		"committed before it was written": {Commit, "is committed, but its emit", func(t *testing.T, h *History) {
			h.Complete = false
			h.Outputs = h.Outputs[:len(h.Outputs)/2]
		}},
		"a repeat where none may be": {Repeat, "is there again", func(t *testing.T, h *History) {
			h.NoRepeats = true
			again(h, h.Outputs[7])
		}},
		"one identity for two inputs": {Setup, "have one identity", func(t *testing.T, h *History) { h.Inputs = append(h.Inputs, h.Inputs[0]) }},
		"a record read twice":         {Setup, "was read twice", func(t *testing.T, h *History) { h.Outputs = append(h.Outputs, h.Outputs[3]) }},
		"a topic of no outlet":        {Setup, "no outlet has this topic", func(t *testing.T, h *History) { h.Outputs[3].Topic = "other" }},
		"an outlet that is none":      {Setup, "which is none", func(t *testing.T, h *History) { delete(h.Outlets, "left") }},
		"a log end that is not said":  {Setup, "its log end is not said", func(t *testing.T, h *History) { delete(h.Ends, anywhere) }},
		"two outlets of one topic":    {Setup, "share the topic", func(t *testing.T, h *History) { h.Outlets["third"] = h.Outlets["left"] }},
		"a partition count not said":  {Setup, "is not said", func(t *testing.T, h *History) { h.Outlets["left"] = Outlet{Topic: "l"} }},
	} {
		t.Run(name, func(t *testing.T) {
			h := fine()
			c.spoil(t, &h)
			report := Check(h)
			if !slices.ContainsFunc(report.Problems, func(p Problem) bool { return p.Rule == c.rule && strings.Contains(p.Text, c.says) }) {
				t.Fatalf("no problem of the rule %s says %q: %s", c.rule, c.says, report)
			}
		})
	}
}

func TestAmongTheRecordsOfARefusedBatchOrderIsNotJudged(t *testing.T) {
	h := fine()
	a, b := oneKey(t, h)
	a.Offset, b.Offset = b.Offset, a.Offset
	both := []string{Identity(a), Identity(b)}
	h.Refused = func(in *kgo.Record) bool { return slices.Contains(both, Identity(in)) }
	if report := Check(h); report.Err() != nil {
		t.Fatal(report)
	}
	h.Refused = func(in *kgo.Record) bool { return both[0] == Identity(in) }
	if report := Check(h); report.ByRule()[Order] == 0 {
		t.Fatalf("order between a record of a refused batch and one that was not in it was not judged: %s", report)
	}
}

func TestWhatIsNotCommittedYetIsNotMissed(t *testing.T) {
	h := fine()
	h.Complete = false
	last := h.Inputs[len(h.Inputs)-1]
	h.Committed[TopicPartition{last.Topic, last.Partition}]--
	h.Outputs = slices.DeleteFunc(h.Outputs, func(r *kgo.Record) bool { return Identity(r) == Identity(last) })
	if report := Check(h); report.Err() != nil {
		t.Fatal(report)
	}
}

func TestTheReportTellsOfEveryRuleAndOfFewProblems(t *testing.T) {
	h := fine()
	h.Outputs = h.Outputs[:1]
	h.Committed[TopicPartition{"in", 1}]--
	h.Print = 6
	text := Check(h).String()
	if lines := strings.Count(text, "\n"); lines > 12 || !strings.Contains(text, "lost:") || !strings.Contains(text, "commit:") || !strings.Contains(text, "more") {
		t.Fatal(text)
	}
}

func TestTheProcessesOfAHistoryAreJudged(t *testing.T) {
	in := &kgo.Record{Topic: "in", Key: []byte("k"), Value: []byte("a;"), Timestamp: time.UnixMilli(1700000000000)}
	right := &flowv1.InputRecord{TimestampMs: 1700000000000, Record: &flowv1.Record{Key: []byte("k"), Value: []byte("a;")}}
	for name, c := range map[string]struct {
		record *flowv1.InputRecord
		answer string
		broken string
		rule   Rule
	}{
		"all is well":         {record: right, answer: "ack"},
		"never acknowledged":  {record: right, rule: Lost},
		"a broken rule":       {record: right, answer: "ack", broken: "Start came twice", rule: Protocol},
		"the key was changed": {record: &flowv1.InputRecord{TimestampMs: 1700000000000, Record: &flowv1.Record{Value: []byte("a;")}}, answer: "ack", rule: Delivery},
		"the time is missing": {record: &flowv1.InputRecord{Record: &flowv1.Record{Key: []byte("k"), Value: []byte("a;")}}, answer: "ack", rule: Delivery},
		"the offset is wrong": {record: &flowv1.InputRecord{Offset: 1, TimestampMs: 1700000000000, Record: right.Record}, answer: "ack", rule: Delivery},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := NewProcess(l, Spec("s", Ports("in"), nil), nil)
			defer p.Close()
			p.seen.conversations = []*Conversation{{
				Start:   &flowv1.Start{Inlets: []*flowv1.PortBinding{{Port: "in", Topic: "in"}}},
				Batches: []Batch{{Batch: &flowv1.Batch{Inlet: "in", Records: []*flowv1.InputRecord{c.record}}, Answer: c.answer}},
			}}
			if c.broken != "" {
				p.seen.problems = []string{c.broken}
			}
			tp := TopicPartition{"in", 0}
			report := Check(History{
				Inputs: []*kgo.Record{in}, Expect: func(*kgo.Record) []Emit { return nil }, Processes: []*Process{p}, Complete: true,
				Committed: map[TopicPartition]int64{tp: 1}, Ends: map[TopicPartition]int64{tp: 1},
			})
			if (c.rule == "") != (report.Err() == nil) || c.rule != "" && report.ByRule()[c.rule] == 0 {
				t.Fatalf("expected the rule %q: %s", c.rule, report)
			}
		})
	}
}

func TestTheLoadIsAsAwkwardAsItSays(t *testing.T) {
	records := Load("in", 12, 2000)
	kinds, keys := map[string]int{}, map[string]int{}
	for _, r := range records {
		switch {
		case r.Key == nil:
			kinds["no key"]++
		case len(r.Key) == 0:
			kinds["empty key"]++
		case r.Key[0] == 0:
			kinds["binary key"]++
		}
		keys[string(r.Key)]++
		switch {
		case r.Value == nil:
			kinds["tombstone"]++
		case len(r.Value) == 0:
			kinds["empty value"]++
		}
		names := map[string]int{}
		for _, h := range r.Headers {
			if names[h.Key]++; names[h.Key] == 2 {
				kinds["repeated header"]++
			}
			if len(h.Value) == 0 {
				kinds["empty header"]++
			}
		}
		kinds[fmt.Sprint("partition ", r.Partition)]++
	}
	for _, kind := range []string{"no key", "empty key", "binary key", "empty value", "tombstone", "repeated header", "empty header"} {
		if kinds[kind] < 30 {
			t.Errorf("%s: %d of %d", kind, kinds[kind], len(records))
		}
	}
	if len(kinds) != 7+12 || keys["key-4"] < 2 {
		t.Errorf("%v", kinds)
	}
}

func TestPartitionsAreThoseOfJava(t *testing.T) {
	// The hashes are those that Kafka's own UtilsTest states.
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%s: %d, not %d", key, got, want)
		}
	}
}
