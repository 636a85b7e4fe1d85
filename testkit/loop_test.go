package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// loop is the simplest thing that could be a sidecar, one partition after the other: what the kit is tried on. Its flaws are switches,
// so that the checker is seen failing on histories that were really made by a broken loop on a (fake) Kafka.
type loop struct {
	written     *atomic.Int64 // records of this life whose emits are confirmed
	kafka       *Kafka
	process     string
	commitFirst bool // commits a batch before it is written
	skip        bool // a failed batch is passed over
	again       bool // never commits, so that a second life repeats
}

func (l loop) run(ctx context.Context) error {
	conn, err := grpc.NewClient(l.process, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := l.kafka.Client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.DisableAutoCommit(), kgo.FetchMaxWait(minAge),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	stream, err := flowv1.NewStreamletClient(conn).Run(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Start{Start: &flowv1.Start{
		ConversationId: "11111111-2222-3333-4444-555555555555", ConfigJson: "{}", MaxMessageBytes: MaxMessageBytes,
		Inlets:  []*flowv1.PortBinding{{Port: "in", Topic: "in"}},
		Outlets: []*flowv1.PortBinding{{Port: "left", Topic: "l"}, {Port: "right", Topic: "r"}},
	}}}); err != nil {
		return err
	}
	for id := uint64(1); ; {
		fetches := client.PollRecords(ctx, 100)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 && err == nil {
				err = l.batch(ctx, client, stream, id, p.Records)
				id++
			}
		})
		if err != nil {
			return err
		}
	}
}

func (l loop) batch(ctx context.Context, client *kgo.Client, stream grpc.BidiStreamingClient[flowv1.ToProcess, flowv1.FromProcess], id uint64, records []*kgo.Record) error {
	commit := func() error {
		if l.again {
			return nil
		}
		return client.CommitRecords(ctx, records...)
	}
	if l.commitFirst {
		if err := commit(); err != nil {
			return err
		}
	}
	b := &flowv1.Batch{BatchId: id, Inlet: "in", Partition: records[0].Partition}
	for _, r := range records {
		in := &flowv1.InputRecord{Offset: r.Offset, TimestampMs: r.Timestamp.UnixMilli(), Record: &flowv1.Record{Key: r.Key, Value: r.Value}}
		for _, h := range r.Headers {
			in.Record.Headers = append(in.Record.Headers, &flowv1.Header{Key: h.Key, Value: h.Value})
		}
		b.Records = append(b.Records, in)
	}
	if err := stream.Send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Batch{Batch: b}}); err != nil {
		return err
	}
	var out []*kgo.Record
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetFail() != nil {
			if l.skip {
				return commit()
			}
			return errors.New(m.GetFail().GetError().GetMessage())
		}
		if m.GetAck() != nil {
			break
		}
		e := m.GetEmit().GetRecord()
		r := &kgo.Record{Topic: m.GetEmit().GetOutlet()[:1], Key: e.GetKey(), Value: append([]byte{}, e.GetValue()...)}
		for _, h := range e.GetHeaders() {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.GetKey(), Value: append([]byte{}, h.GetValue()...)})
		}
		out = append(out, r)
	}
	if err := client.ProduceSync(ctx, out...).FirstErr(); err != nil {
		return err
	}
	l.written.Add(int64(len(records)))
	if l.commitFirst {
		return nil
	}
	return commit()
}

// split is what the process does in these tests, as an SDK would do it, and expectSplit what is to come of it.
func split(b *flowv1.Batch) (emits []*flowv1.Emit, err error) {
	for _, r := range b.GetRecords() {
		if len(r.GetRecord().GetValue())%3 < 2 {
			emits = append(emits, &flowv1.Emit{Outlet: "left", Record: r.GetRecord()})
		}
		if len(r.GetRecord().GetValue())%3 != 1 {
			emits = append(emits, &flowv1.Emit{Outlet: "right", Record: r.GetRecord()})
		}
	}
	return emits, nil
}

func expectSplit(in *kgo.Record) (emits []Emit) {
	if len(in.Value)%3 < 2 {
		emits = append(emits, Unchanged("left", in))
	}
	if len(in.Value)%3 != 1 {
		emits = append(emits, Unchanged("right", in))
	}
	return emits
}

// lives runs the loop once for each given fault, the last time to the end, and judges what is left behind.
func lives(t *testing.T, l loop, faults ...Fault) *Report {
	t.Helper()
	ctx := t.Context()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"), kfake.SeedTopics(3, "l"), kfake.SeedTopics(5, "r"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	l.kafka = &Kafka{Seeds: cluster.ListenAddrs()}
	inputs := Load("in", 4, 2000)
	if err := l.kafka.Produce(ctx, inputs); err != nil {
		t.Fatal(err)
	}
	var processes []*Process
	for _, f := range append(faults, Fault{}) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := NewProcess(listener, Spec("s", Ports("in"), Ports("left", "right")), split)
		defer p.Close()
		processes = append(processes, p)
		if f.Do != Obey {
			p.Inject(f)
		}
		l.process, l.written = p.Addr(), new(atomic.Int64)
		life, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- l.run(life) }()
		Eventually(t, 20*time.Second, "the loop has failed or worked all off", func() (bool, string) {
			select {
			case err := <-ended:
				ended <- err
				return true, ""
			default:
			}
			if l.again {
				return l.written.Load() == int64(len(inputs)), fmt.Sprint(l.written.Load(), " records are written")
			}
			committed, err := l.kafka.Committed(ctx, "g")
			sum := int64(0)
			for _, at := range committed {
				sum += at
			}
			return sum == int64(len(inputs)) && unanswered(p) == 0, fmt.Sprint(committed, err)
		})
		end()
		<-ended
	}
	committed, err := l.kafka.Committed(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	ends, err := l.kafka.Ends(ctx, "in")
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := l.kafka.Read(ctx, "l", "r")
	if err != nil {
		t.Fatal(err)
	}
	return Check(History{Inputs: inputs, Expect: expectSplit, Outlets: map[string]Outlet{"left": {"l", 3}, "right": {"r", 5}},
		Outputs: outputs, Committed: committed, Ends: ends, Processes: processes, Complete: true})
}

func unanswered(p *Process) (n int) {
	for _, c := range p.Conversations() {
		for _, b := range c.Batches {
			if b.Answer == "" {
				n++
			}
		}
	}
	return n
}

func TestALoopThatIsRightPassesThroughAFailureToo(t *testing.T) {
	if report := lives(t, loop{}, Fault{Do: FailBatch, When: AtOffset("in", 2, 250)}, Fault{Do: DropConnection, When: AtOffset("in", 1, 300)}); report.Err() != nil {
		t.Fatal(report)
	}
}

func TestALoopThatCommitsFirstIsCaught(t *testing.T) {
	report := lives(t, loop{commitFirst: true}, Fault{Do: FailBatch, When: AtOffset("in", 2, 250)})
	if by := report.ByRule(); by[Lost] == 0 || by[Commit] == 0 {
		t.Fatal(report)
	}
}

func TestALoopThatPassesOverAFailedBatchIsCaught(t *testing.T) {
	report := lives(t, loop{skip: true}, Fault{Do: FailBatch, When: AtOffset("in", 2, 250)})
	if by := report.ByRule(); by[Lost] == 0 {
		t.Fatal(report)
	}
}

func TestALoopThatNeverCommitsIsCaughtAndItsRepeatsAreCounted(t *testing.T) {
	report := lives(t, loop{again: true}, Fault{Do: FailBatch, When: AtOffset("in", 2, 250)})
	if by := report.ByRule(); by[Commit] == 0 || by[Lost] > 0 || report.Repeats == 0 {
		t.Fatal(report)
	}
}
