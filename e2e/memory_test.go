//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var backlog = flag.Int64("backlog", 200<<20, "bytes of records before the blocked process of TestABacklogBeforeABlockedProcessTakesLittleMemory; 2147483648 measures what is promised")

// How large a producer made its batches counts too, before compression: of each partition at least one is fetched.
func TestABacklogBeforeABlockedProcessTakesLittleMemory(t *testing.T) {
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	const size = 100 // bytes of a record's value: what is kept beside it weighs more than with large ones
	for name, row := range map[string]struct {
		partitions int32
		codec      kgo.CompressionCodec
		batch      int32 // bytes
		bound      int   // bytes resident
	}{
		"12 partitions":                              {12, kgo.NoCompression(), 1 << 20, 150 << 20},
		"12 partitions, compressed":                  {12, kgo.ZstdCompression(), 1 << 20, 150 << 20},
		"1000 partitions":                            {1000, kgo.NoCompression(), 16 << 10, 300 << 20},
		"1000 partitions, compressed":                {1000, kgo.ZstdCompression(), 16 << 10, 300 << 20},
		"1000 partitions, large batches":             {1000, kgo.NoCompression(), 1 << 20, 300 << 20},
		"1000 partitions, large batches, compressed": {1000, kgo.ZstdCompression(), 1 << 20, 300 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			spec := testkit.Spec("blocked", testkit.Ports("in"), testkit.Ports("out"))
			w := newWorld(t, c, spec)
			w.createWith("in", row.partitions, map[string]string{"segment.index.bytes": "65536"})
			w.create(1, "out")
			total := max(*backlog, int64(row.partitions)*int64(row.batch)*9/8) // at least a batch for each
			filled := w.fill("in", row.partitions, total, size, row.batch, row.codec)
			p := w.double(spec, nil)
			p.Inject(testkit.Fault{Do: testkit.Hang})
			s := w.sidecar(p.Addr())
			s.ready(2 * time.Minute)
			fetched, since := -1.0, time.Now()
			testkit.Eventually(t, 3*time.Minute, "nothing more is fetched for five seconds", func() (bool, string) {
				now := s.value("ankka_flow_sidecar_records_in_total", `inlet="in"`)
				if now != fetched || p.Records() == 0 {
					fetched, since = now, time.Now()
				}
				return time.Since(since) > 5*time.Second, fmt.Sprint(now, " records")
			})
			now, most := s.memory("VmRSS"), s.memory("VmHWM")
			t.Logf("%d MB of backlog: %.0f records fetched, resident %d MB, at most %d MB", total>>20, fetched, now>>20, most>>20)
			if most > row.bound {
				t.Errorf("%d MB were resident, more than %d MB", most>>20, row.bound>>20)
			}
			had := map[int32]bool{}
			for _, conversation := range p.Conversations() {
				for _, batch := range conversation.Batches {
					had[batch.GetPartition()] = true
				}
			}
			if len(had) != int(filled) {
				t.Errorf("of %d partitions with records %d have had their turn", filled, len(had))
			}
			s.terminated(20 * time.Second)
			w.admin(func(ctx context.Context, admin *kadm.Client) error {
				_, err := admin.DeleteTopic(ctx, w.topic("in"))
				return err
			})
		})
	}
}

// fill writes so many bytes to a port's topic, in records of one size and batches of at most one. It returns how many of
// the partitions have records.
func (w *world) fill(port string, partitions int32, total int64, size int, batch int32, codec kgo.CompressionCodec) int32 {
	w.t.Helper()
	client, err := w.cluster.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(50_000), kgo.ProducerBatchMaxBytes(batch), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	value := bytes.Repeat([]byte("backlog;"), size/8+1)[:size]
	const inARow = 10_000 // so that a request has large batches of few partitions
	records := total / int64(size)
	for i := range records {
		client.Produce(w.ctx, &kgo.Record{Topic: w.topic(port), Partition: int32(i/inARow) % partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		w.t.Fatal(*err)
	}
	return int32(min(int64(partitions), (records+inARow-1)/inARow))
}
