package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRecordsThatWereCompressedStayWithinTheMemoryBudget has the process hang before a backlog that would take six times the
// budget, and whose fetches are a thirtieth of what they become.
func TestRecordsThatWereCompressedStayWithinTheMemoryBudget(t *testing.T) {
	inBubble(t, 12, func(t *testing.T, b *bed) {
		b.process.Inject(testkit.Fault{Do: testkit.Hang})
		client, err := b.kafka.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()),
			kgo.ProducerBatchMaxBytes(64<<10), kgo.ProducerLinger(time.Second), kgo.MaxBufferedRecords(1e6))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for i := range int32(600_000) {
			value := fmt.Appendf(nil, "%08x%s", rand.Uint32(), strings.Repeat("x", 92))
			client.Produce(t.Context(), &kgo.Record{Topic: "in", Partition: i % 12, Value: value}, nil)
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := b.start()
		s.awaitReady()
		time.Sleep(time.Minute)
		now := s.scrape()
		used, budget := now.value("ankka_flow_sidecar_memory_used_bytes"), now.value("ankka_flow_sidecar_memory_budget_bytes")
		if used > 1.6*budget || used < budget/4 {
			t.Errorf("%.0f bytes of fetched records are held, the budget is %.0f", used, budget)
		}
		b.process.DropConnections()
	})
}
