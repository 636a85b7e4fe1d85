package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSmallRecordsAreWrittenWhereTheTopicsLimitMayNotBeRead(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			describe := req.(*kmsg.DescribeConfigsRequest)
			resp := describe.ResponseKind().(*kmsg.DescribeConfigsResponse)
			for _, asked := range describe.Resources {
				denied := kmsg.NewDescribeConfigsResponseResource()
				denied.ErrorCode, denied.ResourceType, denied.ResourceName = kerr.TopicAuthorizationFailed.Code, asked.ResourceType, asked.ResourceName
				resp.Resources = append(resp.Resources, denied)
			}
			return resp, nil, true
		})
		if err := b.kafka.Configure(t.Context(), "out", "max.message.bytes", "2000"); err != nil {
			t.Fatal(err)
		}
		b.process.Close()
		l, err := b.net.listen("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		b.processes = append(b.processes, testkit.NewProcess(l, b.spec, func(batch *flowv1.Batch) (emits []*flowv1.Emit, _ error) {
			for range batch.Records {
				for i := range 50 { // together they are over the limit
					emits = append(emits, &flowv1.Emit{Outlet: "out", Record: &flowv1.Record{Key: fmt.Append(nil, i), Value: make([]byte, 100+10*i)}})
				}
			}
			return emits, nil
		}))
		b.produce(100)
		b.start()
		b.awaitCaughtUp(time.Minute)
	})
}

func TestARecordThatIsRefusedAndAllBehindItIsNotCommitted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		if err := b.kafka.Configure(t.Context(), "out", "max.message.bytes", "2000"); err != nil {
			t.Fatal(err)
		}
		b.produce(50)
		large := &kgo.Record{Topic: "in", Key: []byte("large"), Value: make([]byte, 5000)}
		if err := b.kafka.Produce(t.Context(), []*kgo.Record{large}); err != nil {
			t.Fatal(err)
		}
		b.produce(50)
		b.start()
		time.Sleep(5 * time.Minute)
		if _, committed := b.offsets(); committed[testkit.TopicPartition{Topic: "in"}] != 50 {
			t.Errorf("committed: %v", committed)
		}
		if err := b.kafka.Configure(t.Context(), "out", "max.message.bytes", "10000"); err != nil {
			t.Fatal(err)
		}
		b.awaitCaughtUp(2 * time.Minute)
	})
}

func TestABatchIsNotCommittedBeforeTheLastOfItsWritesIsConfirmed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		if err := b.kafka.Create(t.Context(), "other", 1, 1, nil); err != nil {
			t.Fatal(err)
		}
		b.spec = testkit.Spec("echo", testkit.Ports("in"), testkit.Ports("out", "other"))
		b.deployment.Outlets = append(b.deployment.Outlets, testkit.OutletPort{Name: "other", Topic: "other"})
		b.serve(func(batch *flowv1.Batch) (emits []*flowv1.Emit, _ error) {
			for _, r := range batch.Records {
				emits = append(emits, &flowv1.Emit{Outlet: "out", Record: r.Record}, &flowv1.Emit{Outlet: "other", Record: r.Record})
			}
			return emits, nil
		})
		var writes atomic.Int64
		b.tap = &tap{process: b.address, judge: func(m message) verdict {
			if m.call == "Produce" && !m.answer && writes.Add(1) == 2 {
				return hangs // each outlet has a producer of its own: that one's only write
			}
			return passes
		}}
		s := b.start()
		s.awaitReady()
		b.produce(1)
		time.Sleep(10 * time.Second)
		if _, committed := b.offsets(); len(committed) > 0 {
			t.Errorf("committed with a write that is not confirmed: %v", committed)
		}
		b.awaitCaughtUpLooking(5*time.Minute, time.Second)
		s.stop()
		both := func(in *kgo.Record) []testkit.Emit {
			return []testkit.Emit{testkit.Unchanged("out", in), testkit.Unchanged("other", in)}
		}
		outputs, err := b.kafka.Read(t.Context(), "out", "other")
		if err != nil {
			t.Fatal(err)
		}
		b.check(func(h *testkit.History) {
			h.Expect, h.Outputs = both, outputs
			h.Outlets["other"] = testkit.Outlet{Topic: "other", Partitions: 1}
		})
	})
}
