package main

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newTestInlet is an inlet that holds one partition and feeds a conversation.
func newTestInlet() (*inlet, *assignment, *conversation) {
	cfg := &InletConfig{PortConfig: PortConfig{Name: "in", Topic: "in"}, BatchMaxRecords: 100, BatchMaxBytes: 1 << 20}
	log := slog.New(slog.DiscardHandler)
	budget, ready := &memoryBudget{limit: fetchedAtMost}, newReadiness(newMemFiles(), "/", nil, nil, log)
	in := newInlet(cfg, "", network{}, budget, ready, newMetrics(ready, budget).inlet(cfg.Name), log)
	in.membership = &membership{inlet: in, commitDue: make(chan struct{}, 1)}
	c := &conversation{
		cfg: &Config{}, log: log, ready: newMailbox[*assignment](), writes: newMailbox[*batch](), end: func(error) {},
		freed: make(chan struct{}, 1), withProcess: map[uint64]*batch{},
	}
	in.conversation = c
	a := newAssignment(in, 0)
	in.held[0] = a
	in.budget.partitions.Add(1)
	return in, a, c
}

// fetched is what a poll returns of partition 0 of topic in, from an offset on.
func fetched(first int64, n int) kgo.Fetches {
	p := kgo.FetchPartition{HighWatermark: first + int64(n)}
	for i := range n {
		p.Records = append(p.Records, &kgo.Record{Topic: "in", Offset: first + int64(i), Value: []byte("v")})
	}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "in", Partitions: []kgo.FetchPartition{p}}}}}
}

func TestAPartitionWhoseStartIsNotKnownGoesBackToTheFirstRecordThatCame(t *testing.T) {
	in, a, c := newTestInlet()
	c.ending.Store(true) // what comes now is not taken
	if err := in.take(fetched(5, 10)); err != nil {
		t.Fatal(err)
	}
	if a.base != 5 {
		t.Errorf("the next conversation rewinds it to %d, so that what came and was not taken is skipped", a.base)
	}
}

func TestAPartitionThatIsTakenAwayGivesTheRoomOfItsEmitsBack(t *testing.T) {
	in, a, c := newTestInlet()
	a.beginAt(0)
	acknowledged, writing := &batch{assignment: a, conversation: c}, &batch{assignment: a, conversation: c}
	for _, b := range []*batch{acknowledged, writing} {
		b.emitBytes = 1000
		c.held.Add(b.emitBytes)
	}
	a.acknowledged, a.writing = acknowledged, writing
	c.writes.put(writing)
	in.mu.Lock()
	in.forget(a)
	in.mu.Unlock()
	b, _ := c.writes.take(t.Context())
	c.write(t.Context(), b)
	if held := c.held.Load(); held != 0 {
		t.Errorf("%d bytes are held for ever", held)
	}
}

func TestMarkersCarryTheFrontierNoFurtherThanEverythingIsConfirmed(t *testing.T) {
	in, a, _ := newTestInlet()
	in.cfg.BatchMaxRecords = 5
	if err := in.take(fetched(0, 10)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // both are taken from the queue, and the second is dropped with its conversation
		b, _, err := a.nextBatch(nil)
		if err != nil || b == nil {
			t.Fatal(b, err)
		}
		a.withProcess = nil
	}
	a.confirmed = 5
	in.passMarkers(a)
	if a.confirmed != 5 {
		t.Errorf("the frontier is %d, but only what is below 5 is confirmed", a.confirmed)
	}
	a.confirmed, a.position = 10, 11 // an offset behind the last record, which held a marker
	in.passMarkers(a)
	if a.confirmed != 11 {
		t.Errorf("the frontier stays at %d, before a marker", a.confirmed)
	}
}

func TestACommitNeverNamesAPartitionOfAnotherEpochOrPassesItsLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(in *inlet, a *assignment)
		refuse bool
	}{
		"held":                     {func(*inlet, *assignment) {}, false},
		"taken away":               {func(in *inlet, a *assignment) { in.forget(a) }, true},
		"taken away and come back": {func(in *inlet, a *assignment) { in.forget(a); in.held[0] = newAssignment(in, 0) }, true},
		"no longer trusted":        {func(_ *inlet, a *assignment) { a.commitLimit = 4 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			in, a, _ := newTestInlet()
			partition := kmsg.NewOffsetCommitRequestTopicPartition()
			partition.Offset = 5
			topic := kmsg.NewOffsetCommitRequestTopic()
			topic.Partitions = append(topic.Partitions, partition)
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Topics = append(req.Topics, topic)
			tt.change(in, a)
			if err := in.fence(req, map[int32]*assignment{0: a}); (err != nil) != tt.refuse {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestABatchIsNotWrittenBeforeTheOneBeforeItIsConfirmed(t *testing.T) {
	in, a, c := newTestInlet()
	a.beginAt(0)
	first, second := &batch{assignment: a, conversation: c, next: 5}, &batch{assignment: a, conversation: c, first: 5, next: 9}
	a.acknowledged = first
	a.writeNext(c)
	a.acknowledged = second
	a.writeNext(c)
	if due := *c.writes.items; len(due) != 1 || due[0] != first {
		t.Fatalf("%d batches are being written", len(due))
	}
	in.confirmed(c, first)
	if due := *c.writes.items; len(due) != 2 || due[1] != second || a.confirmed != 5 {
		t.Errorf("%d batches were written, confirmed to %d", len(due), a.confirmed)
	}
}
