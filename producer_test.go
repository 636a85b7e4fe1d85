package main

import (
	"fmt"
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
