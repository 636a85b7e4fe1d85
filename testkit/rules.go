package testkit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stream is what promise 3 orders: the emits with one key that one inlet partition's records send to one outlet.
type stream struct {
	from   TopicPartition
	outlet string
	key    string
}

// place is where in a stream's order an emit belongs.
type place struct {
	offset int64
	nth    int // among the emits of the record
}

// latest is the emit furthest in a stream's order so far, and where it was read.
type latest struct {
	place
	in *input
	at string
}

// outputs judges every record of the outlets: whose it is, its bytes, its partition, its order.
func (c *checker) outputs() {
	records := slices.Clone(c.h.Outputs)
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	furthest := map[stream]latest{}
	for i, r := range records {
		at := fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset)
		if i > 0 && records[i-1].Topic == r.Topic && records[i-1].Partition == r.Partition && records[i-1].Offset == r.Offset {
			c.report.problem(Setup, "%s was read twice", at)
			continue
		}
		outlet, is := c.outlets[r.Topic]
		if !is {
			c.report.problem(Setup, "%s: no outlet has this topic", at)
			continue
		}
		c.placed(r, at, c.h.Outlets[outlet].Partitions)
		in, nth := c.owner(r, at, outlet)
		if in == nil {
			continue
		}
		e := &in.expect[nth]
		if e.found++; e.found > e.times {
			c.report.Repeats++
			c.report.RepeatsBy[TopicPartition{r.Topic, r.Partition}]++
			if c.h.NoRepeats {
				c.report.problem(Repeat, "%s: %s is there again", at, in.at())
			}
			continue
		}
		if r.Key == nil {
			continue // without a key there is no order
		}
		s := stream{in.partition(), outlet, string(r.Key)}
		before, p := furthest[s], place{in.Offset, nth}
		if before.in != nil && cmp.Or(cmp.Compare(before.offset, p.offset), cmp.Compare(before.nth, p.nth)) > 0 {
			if !c.h.Refused(in.Record) || !c.h.Refused(before.in.Record) {
				c.report.problem(Order, "%s: %s comes for the first time after %s at %s, which was produced later with the same key %s",
					at, in.at(), before.in.at(), before.at, show(r.Key))
			}
			continue
		}
		furthest[s] = latest{p, in, at}
	}
}

func (c *checker) placed(r *kgo.Record, at string, partitions int32) {
	if partitions <= 0 {
		c.report.problem(Setup, "%s: how many partitions %s has is not said", at, r.Topic)
		return
	}
	if r.Key == nil {
		return
	}
	if want := JavaPartition(r.Key, partitions); r.Partition != want {
		c.report.problem(Partition, "%s: the key %s belongs to partition %d", at, show(r.Key), want)
	}
}

// owner is the input whose emit a record is, and which of its emits.
func (c *checker) owner(r *kgo.Record, at, outlet string) (*input, int) {
	in := c.byID[c.h.Identity(r)]
	if in == nil {
		c.report.problem(Invented, "%s: no input is %s (key %s, value %s)", at, printable(c.h.Identity(r)), show(r.Key), show(r.Value))
		return nil, 0
	}
	got := Emit{Outlet: outlet, Key: r.Key, Value: r.Value, Headers: r.Headers}
	// The protocol has no null, neither as a value nor in a header, so that one in an outlet can only be the sidecar's.
	null := r.Value == nil
	for _, h := range r.Headers {
		null = null || h.Value == nil
	}
	if null {
		c.report.problem(Bytes, "%s: %s has a null as its value or in a header; an empty one is empty bytes", at, in.at())
	}
	differs := ""
	for i := range in.expect {
		if in.expect[i].Outlet != outlet {
			continue
		}
		d := difference(in.expect[i].Emit, got)
		if d == "" {
			return in, i
		}
		differs = d
	}
	if differs == "" {
		c.report.problem(Invented, "%s: %s was not to go to outlet %s", at, in.at(), outlet)
		return nil, 0
	}
	c.report.problem(Bytes, "%s: %s is not as emitted: %s", at, in.at(), differs)
	return nil, 0
}

// commits judges what is committed against what is in the outlets, and what is missing there.
func (c *checker) commits() {
	taken := c.acknowledged()
	for _, r := range c.h.Inputs {
		if c.h.Gone(r) {
			continue
		}
		in := c.byID[c.h.Identity(r)]
		committed, some := c.h.Committed[in.partition()]
		done := some && in.Offset < committed
		bound, bounded := c.h.Bound[in.partition()]
		due := c.h.Complete && (!bounded || in.Offset < bound)
		for _, e := range in.expect {
			if e.found >= e.times {
				continue
			}
			if done {
				c.report.problem(Commit, "%s: offset %d is committed, but its emit to outlet %s is there %d of %d times", in.at(), committed, e.Outlet, e.found, e.times)
			}
			if done || due {
				c.report.problem(Lost, "%s: its emit to outlet %s (key %s) is there %d of %d times", in.at(), e.Outlet, show(e.Key), e.found, e.times)
			}
		}
		if taken != nil && (done || due) && !taken[in.id] {
			c.report.problem(Lost, "%s: no process ever acknowledged it", in.at())
		}
	}
	partitions := map[TopicPartition]bool{}
	for _, m := range []map[TopicPartition]int64{c.h.Committed, c.h.Ends, c.h.Bound} {
		for tp := range m {
			partitions[tp] = true
		}
	}
	for _, in := range c.byID {
		partitions[in.partition()] = true
	}
	for _, tp := range slices.SortedFunc(maps.Keys(partitions), compareTP) {
		c.committed(tp)
	}
}

func (c *checker) committed(tp TopicPartition) {
	end, known := c.h.Ends[tp]
	if !known {
		c.report.problem(Setup, "%s: its log end is not said", tp)
		return
	}
	committed, some := c.h.Committed[tp]
	bound, bounded := c.h.Bound[tp]
	switch {
	case bounded && committed > bound:
		c.report.problem(Commit, "%s: offset %d is committed, and nothing over %d may be", tp, committed, bound)
	case bounded && c.h.Complete && committed < bound:
		c.report.problem(Commit, "%s: offset %d is committed, and all before %d was to be", tp, committed, bound)
	case committed > end:
		c.report.problem(Commit, "%s: offset %d is committed, past the end at %d", tp, committed, end)
	case c.h.Complete && !bounded && committed != end:
		said := "nothing"
		if some {
			said = fmt.Sprintf("offset %d", committed)
		}
		c.report.problem(Commit, "%s: %s is committed, the end is %d", tp, said, end)
	}
}

// acknowledged is what the process doubles acknowledged; nil when there are none to ask.
func (c *checker) acknowledged() map[string]bool {
	if len(c.h.Processes) == 0 {
		return nil
	}
	byPlace := c.byPlace()
	taken := map[string]bool{}
	for _, p := range c.h.Processes {
		for _, conversation := range p.Conversations() {
			topics := topicsOf(conversation.Start.GetInlets())
			for _, b := range conversation.Batches {
				for _, r := range b.GetRecords() {
					at := placeOf{TopicPartition{topics[b.GetInlet()], b.GetPartition()}, r.GetOffset()}
					if in, _ := delivered(byPlace[at], r); in != nil && b.Answer == "ack" {
						taken[in.id] = true
					}
				}
			}
		}
	}
	return taken
}

type placeOf struct {
	TopicPartition
	offset int64
}

// byPlace has several inputs at a place whose topic was deleted and created again.
func (c *checker) byPlace() map[placeOf][]*input {
	byPlace := map[placeOf][]*input{}
	for _, in := range c.byID {
		tp := in.partition()
		if topic, deleted := c.h.Deleted[tp.Topic]; deleted {
			tp.Topic = topic
		}
		at := placeOf{tp, in.Offset}
		byPlace[at] = append(byPlace[at], in)
	}
	return byPlace
}

// delivered is which of the inputs of its place a record is, nil when there is none, and in what it differs from it.
func delivered(inputs []*input, r *flowv1.InputRecord) (in *input, differs string) {
	for _, in = range inputs {
		if differs = difference(Unchanged("", in.Record), given(r)); differs == "" {
			break
		}
	}
	return in, differs
}

func topicsOf(bindings []*flowv1.PortBinding) map[string]string {
	topics := map[string]string{}
	for _, b := range bindings {
		topics[b.GetPort()] = b.GetTopic()
	}
	return topics
}

// processes judges what the process doubles were given: the protocol's rules, and that each record came as it was produced.
func (c *checker) processes() {
	if len(c.h.Processes) == 0 {
		return
	}
	byPlace := c.byPlace()
	for n, p := range c.h.Processes {
		for _, text := range p.Problems() {
			c.report.problem(Protocol, "process %d: %s", n, text)
		}
		for _, conversation := range p.Conversations() {
			topics := topicsOf(conversation.Start.GetInlets())
			for _, b := range conversation.Batches {
				for _, r := range b.GetRecords() {
					at := placeOf{TopicPartition{topics[b.GetInlet()], b.GetPartition()}, r.GetOffset()}
					in, differs := delivered(byPlace[at], r)
					if in == nil {
						c.report.problem(Delivery, "process %d was given %s@%d of inlet %s, which nobody produced", n, at.TopicPartition, at.offset, b.GetInlet())
						continue
					}
					if differs != "" {
						c.report.problem(Delivery, "process %d was not given %s as it was produced: %s", n, in.at(), differs)
					}
					if produced := in.Timestamp; !produced.IsZero() && produced.UnixMilli() != r.GetTimestampMs() {
						c.report.problem(Delivery, "process %d was given %s with the timestamp %d, not %d", n, in.at(), r.GetTimestampMs(), produced.UnixMilli())
					}
				}
			}
		}
	}
}

func given(r *flowv1.InputRecord) Emit {
	e := Emit{Value: r.GetRecord().GetValue(), Key: r.GetRecord().GetKey()}
	for _, h := range r.GetRecord().GetHeaders() {
		e.Headers = append(e.Headers, kgo.RecordHeader{Key: h.GetKey(), Value: h.GetValue()})
	}
	return e
}

func compareTP(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
