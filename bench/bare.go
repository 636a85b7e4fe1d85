//go:build linux

package main

import (
	"context"
	"sync"

	pb "github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// bareLoop is what is left of the sidecar when nothing may fail: consume, send to the process, produce, commit. It keeps the
// protocol's one rule, a batch of a partition at a time, and commits what is written whenever the commit before it is through.
type bareLoop struct {
	client  *kgo.Client
	stream  grpc.BidiStreamingClient[pb.ToProcess, pb.FromProcess]
	in, out string
	most    int // records in a batch

	sends chan *pb.Batch // has room for every partition's, so that who receives never waits for the process to receive

	mu      sync.Mutex
	room    sync.Cond // that queues have shrunk
	queues  map[int32][]*kgo.Record
	queued  int // bytes of memory, nearly
	batches map[uint64]*bareBatch
	with    map[int32]bool // partitions with a batch with the process
	lastID  uint64
	offsets map[int32]kgo.EpochOffset // to commit
	due     chan struct{}             // capacity 1
}

type bareBatch struct {
	partition   int32
	next        kgo.EpochOffset
	emits       []*kgo.Record
	unconfirmed int
}

// runBare runs the loop until something fails or the process is ended. Without a process's address it consumes and produces
// alone: each batch is written as it was read.
func runBare(ctx context.Context, server, in, out, process string, most int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(server), kgo.ConsumerGroup("bare-"+out), kgo.ConsumeTopics(in), kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DefaultProduceTopic(out), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	l := &bareLoop{client: client, in: in, out: out, most: most, queues: map[int32][]*kgo.Record{}, batches: map[uint64]*bareBatch{},
		sends: make(chan *pb.Batch, 10_000), with: map[int32]bool{}, offsets: map[int32]kgo.EpochOffset{}, due: make(chan struct{}, 1)}
	l.room.L = &l.mu
	failed := make(chan error, 4)
	if process == "" {
		go func() { failed <- l.echo(ctx) }()
	} else {
		connection, err := grpc.NewClient(process, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		if l.stream, err = pb.NewStreamletClient(connection).Run(ctx); err != nil {
			return err
		}
		if err := l.stream.Send(&pb.ToProcess{Message: &pb.ToProcess_Start{Start: &pb.Start{}}}); err != nil {
			return err
		}
		go func() { failed <- l.send() }()
		go func() { failed <- l.receive(ctx) }()
	}
	go func() { failed <- l.poll(ctx) }()
	go func() { failed <- l.commit(ctx) }()
	return <-failed
}

func (l *bareLoop) poll(ctx context.Context) error {
	const most = 32 << 20
	for {
		fetches := l.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		l.mu.Lock()
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			l.queues[p.Partition] = append(l.queues[p.Partition], p.Records...)
			for _, r := range p.Records {
				l.queued += sizeOf(r)
			}
			l.next(p.Partition)
		})
		for l.queued > most {
			l.room.Wait()
		}
		l.mu.Unlock()
	}
}

func sizeOf(r *kgo.Record) int { return len(r.Key) + len(r.Value) + 200 }

// next sends the partition's next batch, when there is one. mu is held.
func (l *bareLoop) next(partition int32) {
	queue := l.queues[partition]
	if l.with[partition] || len(queue) == 0 {
		return
	}
	const mostBytes = 1 << 20 // as the sidecar's are: a process takes no message over 4 MiB
	var records []*kgo.Record
	for bytes := 0; len(records) < min(l.most, len(queue)); {
		r := queue[len(records)]
		if bytes += len(r.Key) + len(r.Value); bytes > mostBytes && len(records) > 0 {
			break
		}
		records = queue[:len(records)+1]
		l.queued -= sizeOf(r)
	}
	l.queues[partition] = queue[len(records):]
	l.room.Signal()
	l.with[partition] = true
	l.lastID++
	last := records[len(records)-1]
	l.batches[l.lastID] = &bareBatch{partition: partition, next: kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}}
	batch := &pb.Batch{BatchId: l.lastID, Inlet: "in", Partition: partition}
	for _, r := range records {
		batch.Records = append(batch.Records, &pb.InputRecord{Offset: r.Offset, TimestampMs: r.Timestamp.UnixMilli(), Record: &pb.Record{Key: r.Key, Value: r.Value}})
	}
	l.sends <- batch
}

func (l *bareLoop) send() error {
	for batch := range l.sends {
		if err := l.stream.Send(&pb.ToProcess{Message: &pb.ToProcess_Batch{Batch: batch}}); err != nil {
			return err
		}
	}
	return nil
}

func (l *bareLoop) receive(ctx context.Context) error {
	for {
		message, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if emit := message.GetEmit(); emit != nil {
			l.mu.Lock()
			b := l.batches[emit.GetBatchId()]
			b.emits = append(b.emits, &kgo.Record{Key: emit.GetRecord().GetKey(), Value: emit.GetRecord().GetValue()})
			l.mu.Unlock()
			continue
		}
		l.answered(ctx, message.GetAck().GetBatchId())
	}
}

// echo is in the process's place.
func (l *bareLoop) echo(ctx context.Context) error {
	for batch := range l.sends {
		emits := make([]*kgo.Record, len(batch.GetRecords()))
		for i, r := range batch.GetRecords() {
			emits[i] = &kgo.Record{Key: r.GetRecord().GetKey(), Value: r.GetRecord().GetValue()}
		}
		l.mu.Lock()
		l.batches[batch.GetBatchId()].emits = emits
		l.mu.Unlock()
		l.answered(ctx, batch.GetBatchId())
	}
	return nil
}

// answered writes what was emitted for a batch, and has the partition's next one sent.
func (l *bareLoop) answered(ctx context.Context, id uint64) {
	l.mu.Lock()
	b := l.batches[id]
	delete(l.batches, id)
	l.with[b.partition] = false
	l.next(b.partition)
	b.unconfirmed = len(b.emits)
	l.mu.Unlock()
	for _, r := range b.emits {
		l.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				panic(err) // no care for failure
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if b.unconfirmed--; b.unconfirmed == 0 {
				l.offsets[b.partition] = b.next
				select {
				case l.due <- struct{}{}:
				default:
				}
			}
		})
	}
}

func (l *bareLoop) commit(ctx context.Context) error {
	for range l.due {
		l.mu.Lock()
		offsets := l.offsets
		l.offsets = map[int32]kgo.EpochOffset{}
		l.mu.Unlock()
		var failed error
		l.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{l.in: offsets}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			failed = err
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}
