package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// TestAFetchHasRoomForABatchOfEachOfAThousandPartitions is about speed: a batch that is larger than its partition's limit takes
// a request of its own. The first limit counts as much, since a broker keeps it until it has sent something of the partition.
func TestAFetchHasRoomForABatchOfEachOfAThousandPartitions(t *testing.T) {
	t.Parallel()
	const javaBatchSize = 16 << 10
	inBubble(t, 1000, func(t *testing.T, b *bed) {
		var mu sync.Mutex
		limits := map[int32]int32{} // the least ever
		b.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			mu.Lock()
			defer mu.Unlock()
			for _, topic := range req.(*kmsg.FetchRequest).Topics {
				for _, p := range topic.Partitions {
					limits[p.Partition] = min(p.PartitionMaxBytes, cmp.Or(limits[p.Partition], math.MaxInt32))
				}
			}
			return nil, nil, false
		})
		b.start()
		for range 4 { // the limit follows what a byte on the wire takes in memory
			b.produceBatches(20, 100)
			b.awaitCaughtUp(time.Minute)
		}
		testkit.Eventually(t, time.Minute, "each partition has room for a batch", func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			least := slices.Min(append(slices.Collect(maps.Values(limits)), math.MaxInt32))
			return len(limits) == int(b.partitions) && least >= javaBatchSize, fmt.Sprintf("%d partitions are fetched, one with a limit of %d", len(limits), least)
		})
	})
}
