package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// echo emits each record to the outlet 'out'.
func echo(b *flowv1.Batch) (emits []*flowv1.Emit, err error) {
	for _, r := range b.GetRecords() {
		emits = append(emits, &flowv1.Emit{Outlet: "out", Record: r.GetRecord()})
	}
	return emits, nil
}

// talk is a test's side of one conversation with a process, over a pipe in memory.
type talk struct {
	t       *testing.T
	process *Process
	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[flowv1.ToProcess, flowv1.FromProcess]
	cancel  context.CancelFunc
}

// with runs f in a bubble, so that waiting costs nothing and ends when nothing can happen any more.
func with(t *testing.T, handler Handler, f func(k *talk), opts ...grpc.DialOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		p := NewProcess(l, Spec("s", Ports("in", "side"), Ports("out")), handler)
		defer p.Close()
		conn, err := grpc.NewClient("passthrough:///process", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		k := &talk{t: t, process: p, conn: conn}
		defer func() { k.cancel() }()
		k.open("11111111-2222-3333-4444-555555555555")
		f(k)
	})
}

func (k *talk) open(id string) {
	k.t.Helper()
	if k.cancel != nil {
		k.cancel()
		synctest.Wait()
	}
	var ctx context.Context
	ctx, k.cancel = context.WithCancel(k.t.Context())
	stream, err := flowv1.NewStreamletClient(k.conn).Run(ctx)
	if err != nil {
		k.t.Fatal(err)
	}
	k.stream = stream
	if id != "" {
		k.send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Start{Start: &flowv1.Start{
			ConversationId: id, Pipeline: "p", Streamlet: "s", ConfigJson: "{}", MaxMessageBytes: MaxMessageBytes,
			Inlets:  []*flowv1.PortBinding{{Port: "in", Topic: "t"}, {Port: "side", Topic: "u"}},
			Outlets: []*flowv1.PortBinding{{Port: "out", Topic: "o"}},
		}}})
	}
}

func (k *talk) send(m *flowv1.ToProcess) {
	k.t.Helper()
	if err := k.stream.Send(m); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) batch(id uint64, partition int32, offsets ...int64) {
	k.t.Helper()
	b := &flowv1.Batch{BatchId: id, Inlet: "in", Partition: partition}
	for _, o := range offsets {
		b.Records = append(b.Records, &flowv1.InputRecord{Offset: o, Record: &flowv1.Record{Value: fmt.Append(nil, o)}})
	}
	k.send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Batch{Batch: b}})
}

func (k *talk) stop() {
	k.t.Helper()
	k.send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Stop{Stop: &flowv1.Stop{Reason: "the end"}}})
	if err := k.stream.CloseSend(); err != nil {
		k.t.Fatal(err)
	}
}

// hears reads as many messages as are given, in words, and compares.
func (k *talk) hears(want ...string) {
	k.t.Helper()
	for _, w := range want {
		m, err := k.stream.Recv()
		got := word(m, err)
		if w != got {
			k.t.Fatalf("the process said %s, not %s", got, w)
		}
	}
}

func word(m *flowv1.FromProcess, err error) string {
	switch x := m.GetMessage().(type) {
	case *flowv1.FromProcess_Ack:
		return fmt.Sprint("ack ", x.Ack.GetBatchId())
	case *flowv1.FromProcess_Fail:
		return fmt.Sprintf("fail %d %s", x.Fail.GetBatchId(), x.Fail.GetError().GetMessage())
	case *flowv1.FromProcess_Emit:
		if len(x.Emit.GetRecord().GetValue()) >= MaxMessageBytes {
			return "an oversized emit"
		}
		return fmt.Sprintf("emit %d %s %s", x.Emit.GetBatchId(), x.Emit.GetOutlet(), x.Emit.GetRecord().GetValue())
	}
	if errors.Is(err, io.EOF) {
		return "end"
	}
	if err != nil {
		return status.Code(err).String()
	}
	return "nothing"
}

func TestTheProcessAnswersWithItsEmitsThenTheAckAndEndsWhenAsked(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.batch(1, 0, 7, 8)
		k.hears("emit 1 out 7", "emit 1 out 8", "ack 1")
		k.batch(2, 0, 9)
		k.stop()
		k.hears("emit 2 out 9", "ack 2", "end")
		c := k.process.Conversations()[0]
		if !c.Ended || !c.Stopped || !c.HalfClosed || c.StopReason != "the end" || len(c.Batches) != 2 || c.Batches[1].Answer != "ack" ||
			!slices.Equal(c.Batches[0].Offsets(), []int64{7, 8}) || len(k.process.Problems()) > 0 || k.process.Records() != 3 || k.process.Running() != 0 {
			t.Fatalf("%+v %v", c, k.process.Problems())
		}
	})
}

func TestAHandlerThatFailsBecomesAFail(t *testing.T) {
	with(t, func(*flowv1.Batch) ([]*flowv1.Emit, error) { return nil, errors.New("no") }, func(k *talk) {
		k.batch(4, 0, 1)
		k.hears("fail 4 no")
		if answer := k.process.Conversations()[0].Batches[0].Answer; answer != "fail" {
			t.Fatal(answer)
		}
	})
}

func TestEachMisdeedIsDoneAsItIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		hears []string
	}{
		"obey, late":      {Fault{Do: Obey, Delay: time.Minute}, []string{"emit 5 out 1", "ack 5"}},
		"fail":            {Fault{Do: FailBatch}, []string{"emit 5 out 1", "fail 5 the test said so"}},
		"unbound":         {Fault{Do: EmitToUnbound}, []string{"emit 5 not-an-outlet ", "emit 5 out 1", "ack 5"}},
		"emit after ack":  {Fault{Do: EmitAfterAck}, []string{"ack 5", "emit 5 out 1"}},
		"ack twice":       {Fault{Do: AckTwice}, []string{"emit 5 out 1", "ack 5", "ack 5"}},
		"ack unknown":     {Fault{Do: AckUnknown}, []string{"ack 1000005", "emit 5 out 1", "ack 5"}},
		"empty":           {Fault{Do: SayNothing}, []string{"nothing", "emit 5 out 1", "ack 5"}},
		"close":           {Fault{Do: CloseSide}, []string{"end"}},
		"drop":            {Fault{Do: DropConnection}, []string{"Unavailable"}},
		"die after emits": {Fault{Do: DieAfterEmits}, []string{"emit 5 out 1", "Unavailable"}},
		"goaway":          {Fault{Do: SendGoAway}, []string{"emit 5 out 1", "ack 5"}},
		"skip":            {Fault{Do: AckOnly}, []string{"ack 5"}},
		"oversized":       {Fault{Do: EmitOversized}, []string{"an oversized emit", "emit 5 out 1", "ack 5"}},
		"not its batch":   {Fault{Do: FailBatch, When: AtOffset("in", 0, 99)}, []string{"emit 5 out 1", "ack 5"}},
		"its partition":   {Fault{Do: AckOnly, When: OfPartition("in", 0)}, []string{"ack 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, echo, func(k *talk) {
				k.process.Inject(c.fault)
				k.batch(5, 0, 1)
				if c.fault.Do == DieAfterEmits {
					// What was written before the cut may be lost with it.
					if m, err := k.stream.Recv(); err == nil && word(m, err) != c.hears[0] || err != nil && word(m, err) != c.hears[1] {
						t.Fatal(word(m, err))
					}
					return
				}
				k.hears(c.hears...)
			}, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
		})
	}
}

func TestAHungBatchLeavesTheOthersAlone(t *testing.T) {
	with(t, echo, func(k *talk) {
		remove := k.process.Inject(Fault{Do: Hang, When: OfPartition("in", 1)})
		k.batch(1, 1, 1)
		k.batch(2, 0, 1)
		k.hears("emit 2 out 1", "ack 2")
		remove()
		k.batch(3, 2, 1)
		k.hears("emit 3 out 1", "ack 3")
	})
}

func TestAFaultIsDoneAsOftenAsItSays(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.process.Inject(Fault{Do: AckOnly, Times: 1})
		k.batch(1, 0, 1)
		k.hears("ack 1")
		k.batch(2, 0, 2)
		k.hears("emit 2 out 2", "ack 2")
	})
}

func TestThePreviousConversationIsAnsweredInTheNextOne(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.batch(71, 0, 1)
		k.hears("emit 71 out 1", "ack 71")
		k.open("21111111-2222-3333-4444-555555555555")
		k.process.Inject(Fault{Do: AnswerPrevious, Times: 1})
		k.batch(1, 0, 1)
		k.hears("emit 71 out of the previous conversation", "ack 71", "emit 1 out 1", "ack 1")
	})
}

func TestStopIsIgnoredWhenToldSo(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.process.IgnoreStop(true)
		k.stop()
		time.Sleep(time.Hour) // virtual
		synctest.Wait()
		if k.process.Running() != 1 {
			t.Fatal("the process completed its side")
		}
	})
}

func TestDiscoverIsAnsweredAsToldAndReportsAreKept(t *testing.T) {
	with(t, nil, func(k *talk) {
		discovery := flowv1.NewDiscoveryClient(k.conn)
		ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
		defer cancel()
		spec, err := discovery.Discover(ctx, &flowv1.SidecarInfo{SidecarVersion: "9"})
		if err != nil || spec.GetStreamlet().GetName() != "s" {
			t.Fatal(spec, err)
		}
		k.process.SetSpec(CartRouter())
		if spec, err = discovery.Discover(ctx, &flowv1.SidecarInfo{}); err != nil || spec.GetStreamlet().GetName() != "cart-router" {
			t.Fatal(spec, err)
		}
		k.process.SetDiscovery(DiscoverRefuses)
		if _, err = discovery.Discover(ctx, &flowv1.SidecarInfo{}); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		k.process.SetDiscovery(DiscoverHangs)
		if _, err = discovery.Discover(ctx, &flowv1.SidecarInfo{}); status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
		if _, err := discovery.ReportError(k.t.Context(), &flowv1.Problems{Problems: []*flowv1.Problem{{Message: "a"}, {Message: "b"}}}); err != nil {
			t.Fatal(err)
		}
		if got := k.process.Reported(); len(got) != 1 || !slices.Equal(got[0], []string{"a", "b"}) || len(k.process.Discoveries()) != 4 {
			t.Fatal(got, k.process.Discoveries())
		}
		k.process.RefuseRun(true)
		k.open("")
		k.hears("Unavailable")
	})
}

func TestAClientThatPingsAQuietConnectionIsCountedAndSentAway(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.hears("Unavailable") // too_many_pings
		if k.process.Pings() < 3 {
			t.Fatal("pings seen: ", k.process.Pings())
		}
	}, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second}))
}

func TestAQuietClientAndItsTrafficAreNotCountedAsPings(t *testing.T) {
	with(t, echo, func(k *talk) {
		for i := range uint64(50) { // enough for grpc to estimate the bandwidth by pings
			k.batch(i+1, 0, int64(i))
			k.hears(fmt.Sprintf("emit %d out %d", i+1, i), fmt.Sprint("ack ", i+1))
		}
		time.Sleep(time.Hour) // virtual
		k.batch(100, 0, 100)
		k.hears("emit 100 out 100", "ack 100")
		if k.process.Pings() != 0 {
			t.Fatal("pings seen: ", k.process.Pings())
		}
	})
}

func TestEachBrokenRuleOfTheProtocolIsRecorded(t *testing.T) {
	start := func(change func(*flowv1.Start)) *flowv1.ToProcess {
		s := &flowv1.Start{ConversationId: "21111111-2222-3333-4444-555555555555", ConfigJson: "{}", MaxMessageBytes: MaxMessageBytes,
			Inlets: []*flowv1.PortBinding{{Port: "in"}, {Port: "side"}}, Outlets: []*flowv1.PortBinding{{Port: "out"}}}
		change(s)
		return &flowv1.ToProcess{Message: &flowv1.ToProcess_Start{Start: s}}
	}
	for says, do := range map[string]func(k *talk){
		"Start came twice":                       func(k *talk) { k.send(start(func(*flowv1.Start) {})) },
		"the first message is a":                 func(k *talk) { k.open(""); k.batch(1, 0, 1) },
		"a message without content came":         func(k *talk) { k.send(&flowv1.ToProcess{}) },
		"is no UUID":                             func(k *talk) { k.open("1") },
		"was used before":                        func(k *talk) { k.open("11111111-2222-3333-4444-555555555555") },
		"max_message_bytes 5":                    func(k *talk) { k.open(""); k.send(start(func(s *flowv1.Start) { s.MaxMessageBytes = 5 })) },
		"is no JSON object":                      func(k *talk) { k.open(""); k.send(start(func(s *flowv1.Start) { s.ConfigJson = "" })) },
		"config_json has the parameters [\"x\"]": func(k *talk) { k.open(""); k.send(start(func(s *flowv1.Start) { s.ConfigJson = `{"x":1}` })) },
		"Start binds the inlets [\"in\"]":        func(k *talk) { k.open(""); k.send(start(func(s *flowv1.Start) { s.Inlets = s.Inlets[:1] })) },
		"Start binds the outlets []":             func(k *talk) { k.open(""); k.send(start(func(s *flowv1.Start) { s.Outlets = nil })) },
		"is empty":                               func(k *talk) { k.batch(1, 0) },
		"batch 5 came before it":                 func(k *talk) { k.batch(5, 0, 1); k.batch(5, 1, 1) },
		"while batch 1 of that partition":        func(k *talk) { k.process.Inject(Fault{Do: Hang}); k.batch(1, 0, 1); k.batch(2, 0, 2) },
		"offset 3 comes after 4":                 func(k *talk) { k.batch(1, 0, 4, 3) },
		"half-closed without Stop":               func(k *talk) { _ = k.stream.CloseSend() },
		"came after Stop":                        func(k *talk) { k.sendStop(); k.batch(1, 0, 1) },
		"Stop came twice":                        func(k *talk) { k.sendStop(); k.sendStop() },
		"a conversation ended without Start":     func(k *talk) { k.open(""); k.sendStop(); _ = k.stream.CloseSend() },
		"Start did not bind this inlet": func(k *talk) {
			k.send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Batch{Batch: &flowv1.Batch{BatchId: 1, Inlet: "x"}}})
		},
		fmt.Sprint("is a message of ", 4<<20-1+28): func(k *talk) { k.process.mu.Lock(); defer k.process.mu.Unlock(); oversized(k.process) },
	} {
		t.Run(says, func(t *testing.T) {
			with(t, nil, func(k *talk) {
				synctest.Wait()
				if problems := k.process.Problems(); len(problems) > 0 {
					t.Fatal(problems)
				}
				do(k)
				synctest.Wait()
				if problems := k.process.Problems(); !strings.Contains(strings.Join(problems, "\n"), says) {
					t.Fatalf("%q", problems)
				}
			})
		})
	}
}

// oversized cannot come through grpc's own receive limit, so it is judged without.
func oversized(p *Process) {
	p.took(p.seen.conversations[0], &flowv1.Batch{BatchId: 1, Inlet: "in", Records: []*flowv1.InputRecord{{}}}, 4<<20-1+28)
}

func (k *talk) sendStop() {
	k.t.Helper()
	k.send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Stop{Stop: &flowv1.Stop{}}})
}

func TestAClosedProcessIsGone(t *testing.T) {
	with(t, echo, func(k *talk) {
		k.process.Close()
		k.hears("Unavailable")
	})
}
