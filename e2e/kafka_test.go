//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// splitting goes to the left, to the right or to both, by the length of the value.
func splitting(_ string, value []byte) []string {
	return [][]string{{"left", "right"}, {"left"}, {"right"}}[len(value)%3]
}

func TestEveryRecordPassesOnceWithItsBytesInItsOrder(t *testing.T) {
	spec := testkit.Spec("splitter", testkit.Ports("in"), testkit.Ports("left", "right"))
	w := onShared(t, spec)
	w.operator = true
	w.create(12, "in")
	w.create(5, "left")
	w.create(3, "right")
	w.produce(testkit.Load(w.topic("in"), 12, 20_000))
	p := w.double(spec, route(splitting).handle)
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.ready(time.Second)
	w.judge(route(splitting).expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
	if p.Pings() > 0 {
		t.Errorf("the sidecar pinged the process %d times", p.Pings())
	}
	start := p.Conversations()[0].Start
	if start.GetPipeline() != w.deployment.Pipeline || start.GetStreamlet() != "it" || start.GetInlets()[0].GetTopic() != w.topic("in") {
		t.Errorf("Start says %v", start)
	}
	w.javaAgrees()
	for partition := range 12 {
		label := fmt.Sprintf(`partition="%d"`, partition)
		for name, labels := range map[string][]string{
			"ankka_flow_sidecar_in_flight":       {`inlet="in"`, label},
			"ankka_flow_sidecar_stalled_seconds": {`inlet="in"`, label},
			"kafka_consumer_consumer_fetch_manager_metrics_records_lag": {
				fmt.Sprintf(`client_id="%s.it.in"`, w.deployment.Pipeline), fmt.Sprintf(`topic="%s"`, strings.ReplaceAll(w.topic("in"), ".", "_")), label},
		} {
			if line := s.metric(name, labels...); !strings.HasSuffix(line, " 0") {
				t.Errorf("the metric %s of partition %d is %q when all is worked off", name, partition, line)
			}
		}
	}
	s.terminated(15 * time.Second)
}

// javaAgrees reads the commits by Kafka's own tool: an eye that shares no code with the sidecar.
func (w *world) javaAgrees() {
	w.t.Helper()
	tool := run(w.t, w.dir, "kafka-consumer-groups", nil, "", java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
		"--bootstrap-server", w.deployment.Servers, "--describe", "--offsets", "--group", w.groups()[0])...)
	if code := tool.exit(w.t, time.Minute); code != 0 {
		w.t.Fatal("kafka-consumer-groups ended with code ", code)
	}
	ends, err := w.kept.Ends(w.ctx, w.inletTopics()...)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(tool.output()) {
		// GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] != w.groups()[0] {
			continue
		}
		partition, err := strconv.Atoi(fields[2])
		if err != nil {
			w.t.Fatal(line, err)
		}
		tp := testkit.TopicPartition{Topic: fields[1], Partition: int32(partition)}
		end, known := ends[tp]
		if !known || fields[3] != fmt.Sprint(end) || fields[5] != "0" {
			w.t.Errorf("Kafka's own tool sees of %s: %s", tp, strings.TrimSpace(line))
		}
		delete(ends, tp)
	}
	if len(ends) > 0 {
		w.t.Errorf("Kafka's own tool does not know of %v:\n%s", ends, tool.output())
	}
}

func TestInletsAndOutletsKeepApart(t *testing.T) {
	spec := testkit.Spec("many", testkit.Ports("a", "b", "c"), testkit.Ports("x", "y", "z"))
	w := onShared(t, spec)
	w.deployment.Inlets[1].Group = w.deployment.Pipeline + "-own-group"
	w.create(3, "a", "b", "x")
	w.create(1, "c", "y")
	w.create(4, "z")
	cross := route(func(inlet string, _ []byte) []string {
		return map[string][]string{"a": {"x", "y"}, "b": {"y"}, "c": {"z", "x"}}[inlet]
	})
	for inlet, partitions := range map[string]int32{"a": 3, "b": 3, "c": 1} {
		w.produce(testkit.Load(w.topic(inlet), partitions, 2_000))
	}
	p := w.double(spec, cross.handle)
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(cross.expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
}

func TestEachCodecIsReadAndWritten(t *testing.T) {
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"} // in the order of their numbers on the wire
	var inlets, outlets []string
	for _, codec := range codecs {
		inlets, outlets = append(inlets, "from-"+codec), append(outlets, "to-"+codec)
	}
	spec := testkit.Spec("codecs", testkit.Ports(inlets...), testkit.Ports(outlets...))
	w := onShared(t, spec)
	same := route(func(inlet string, _ []byte) []string { return []string{strings.Replace(inlet, "from", "to", 1)} })
	for i, codec := range codecs {
		stored := strings.Replace(codec, "none", "uncompressed", 1)
		w.createWith(inlets[i], 1, map[string]string{"compression.type": stored})
		w.createWith(outlets[i], 1, nil) // stored as written
		w.deployment.Outlets[i].Producer = map[string]string{"compression.type": codec}
		w.produce(testkit.Load(w.topic(inlets[i]), 1, 1_000))
	}
	p := w.double(spec, same.handle)
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(same.expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
	for i, codec := range codecs {
		records, err := w.kept.Read(w.ctx, w.topic(outlets[i]))
		if err != nil {
			t.Fatal(err)
		}
		with := map[uint8]int{}
		for _, r := range records {
			with[r.Attrs.CompressionType()]++
		}
		if with[uint8(i)] < len(records)/2 { // what compressing makes larger goes as it is
			t.Errorf("compression.type=%s: records by codec on the wire: %v", codec, with)
		}
	}
}

func TestASinkCommitsWhatItsProcessAcknowledged(t *testing.T) {
	spec := testkit.Spec("sink", testkit.Ports("in"), nil)
	w := onShared(t, spec)
	w.create(3, "in")
	w.produce(testkit.Load(w.topic("in"), 3, 3_000))
	p := w.double(spec, nil)
	p.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 500), Times: 2})
	s := w.sidecar(p.Addr())
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to().expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
}

func TestAStreamletWithoutInletsIsReadyAndIdles(t *testing.T) {
	spec := testkit.Spec("source", nil, testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(1, "out")
	p := w.double(spec, nil)
	s := w.sidecar(p.Addr())
	s.ready(20 * time.Second)
	if n := p.Running(); n != 1 {
		t.Errorf("%d conversations run", n)
	}
	first := s.touched("alive")
	testkit.Eventually(t, 10*time.Second, "the file 'alive' is touched again", func() (bool, string) { return s.touched("alive").After(first), first.String() })
	s.terminated(15 * time.Second)
	testkit.Eventually(t, 5*time.Second, "the process has heard of it", func() (bool, string) { return p.Running() == 0, "" })
	c := p.Conversations()
	if len(c) != 1 || len(c[0].Start.GetOutlets()) != 1 || !c[0].Stopped || !c[0].HalfClosed || len(p.Problems()) > 0 {
		t.Errorf("the conversations were %+v, the problems %q", c, p.Problems())
	}
}

func TestAMissingTopicIsToldAndReadyFollowsIt(t *testing.T) {
	spec := testkit.Spec("early", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(2, "out")
	p := w.double(spec, to("out").handle)
	s := w.sidecar(p.Addr())
	sentence := fmt.Sprintf("inlet 'in': topic '%s' does not exist; not ready until it does", w.topic("in"))
	s.logs(20*time.Second, sentence)
	if s.isReady() {
		t.Error("ready without its topic")
	}
	w.create(3, "in")
	s.ready(15 * time.Second)
	w.produce(testkit.Load(w.topic("in"), 3, 600))
	w.allCommitted(30 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.NoRepeats = true
		h.Processes = []*testkit.Process{p}
	})
	if n := s.lines(sentence); n != 1 {
		t.Errorf("the missing topic was told %d times", n)
	}
}

func TestARefusedWriteHoldsItsPartitionAndNothingElseUntilItIsAllowed(t *testing.T) {
	const (
		small  = 3000
		batch  = 20
		before = 2 * batch                // two batches that are fine
		refuse = before + 11              // record 12 of the third
		inAll  = before + batch + 2*batch // and two more after it
	)
	spec := testkit.Spec("refused", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.deployment.Inlets[0].MaxRecords = batch
	w.create(2, "in")
	w.createWith("out", 1, map[string]string{"max.message.bytes": fmt.Sprint(small)})
	var records []*kgo.Record
	for partition := range int32(2) {
		for i := range inAll {
			r := &kgo.Record{Topic: w.topic("in"), Partition: partition, Key: fmt.Append(nil, "k", partition), Value: fmt.Appendf(nil, "%d-%d;", partition, i)}
			if partition == 0 && i == refuse {
				r.Value = append(r.Value, make([]byte, 2*small)...)
			}
			records = append(records, r)
		}
	}
	w.produce(records)
	held, free := testkit.TopicPartition{Topic: w.topic("in"), Partition: 0}, testkit.TopicPartition{Topic: w.topic("in"), Partition: 1}
	p := w.double(spec, to("out").handle)
	s := w.sidecar(p.Addr())
	conversations := func() int { return len(p.Conversations()) }
	testkit.Eventually(t, time.Minute, "what came before is committed, the other partition too, and the sidecar tries again and again", func() (bool, string) {
		committed, err := w.committed()
		if committed[held] > refuse {
			t.Fatalf("offset %d is committed on %s, and record %d was refused", committed[held], held, refuse)
		}
		return committed[held] >= before && committed[free] == inAll && conversations() >= 4,
			fmt.Sprintf("committed is %v (%v), after %d conversations", committed, err, conversations())
	})
	// Nothing may have been written by then that was not committed, or is in the refused batch.
	w.judge(to("out").expect, func(h *testkit.History) {
		h.Complete = false
		h.Bound = map[testkit.TopicPartition]int64{held: refuse}
		h.Processes = []*testkit.Process{p}
	})
	if err := w.cluster.Configure(w.ctx, w.topic("out"), "max.message.bytes", "1048588"); err != nil {
		t.Fatal(err)
	}
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, func(h *testkit.History) {
		h.Processes = []*testkit.Process{p}
		h.Refused = func(in *kgo.Record) bool { return in.Partition == 0 && in.Offset >= before && in.Offset < before+batch }
	})
}

func TestAFailedBatchOfOnePartitionLeavesTheOthersAlone(t *testing.T) {
	spec := testkit.Spec("poisoned", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(4, "in", "out")
	w.produce(testkit.Load(w.topic("in"), 4, 4_000))
	poison := testkit.TopicPartition{Topic: w.topic("in"), Partition: 2}
	p := w.double(spec, to("out").handle)
	cure := p.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 2, 333), Text: "the poison's own words"})
	s := w.sidecar(p.Addr(), "FLOW_STALL_WARNING_AFTER=3s")
	testkit.Eventually(t, time.Minute, "everything is committed but what is at and after the poisoned record", func() (bool, string) {
		committed, err := w.committed()
		ends, _ := w.kept.Ends(w.ctx, w.topic("in"))
		done := committed[poison] == 333
		for tp, end := range ends {
			done = done && (tp == poison || committed[tp] == end)
		}
		return done, fmt.Sprint(committed, err)
	})
	w.judge(to("out").expect, func(h *testkit.History) {
		h.Bound = map[testkit.TopicPartition]int64{poison: 333}
		h.Processes = []*testkit.Process{p}
	})
	warning := []string{"level=WARN", w.deployment.Pipeline, "in", "333", "the poison's own words", "PartitionStalled"}
	s.logs(30*time.Second, warning...)
	stalled := func(partition int) float64 {
		return s.value("ankka_flow_sidecar_stalled_seconds", `inlet="in"`, fmt.Sprintf(`partition="%d"`, partition))
	}
	if got := stalled(2); got < 3 {
		t.Errorf("the poisoned partition is stalled for %v s, after a warning at 3 s", got)
	}
	cure()
	w.allCommitted(time.Minute)
	testkit.Eventually(t, 10*time.Second, "the stall is over", func() (bool, string) { return stalled(2) == 0, fmt.Sprint(stalled(2)) })
	if n := s.lines(warning...); n != 1 {
		t.Errorf("the stall was warned of %d times", n)
	}
	w.judge(to("out").expect, func(h *testkit.History) { h.Processes = []*testkit.Process{p} })
}

// misdeeds are those that a process may commit and lose nothing by.
var misdeeds = map[string]testkit.Misdeed{
	"a Fail": testkit.FailBatch, "an unbound outlet": testkit.EmitToUnbound, "an emit after the ack": testkit.EmitAfterAck,
	"an ack twice": testkit.AckTwice, "an unknown ack": testkit.AckUnknown, "an oversized emit": testkit.EmitOversized,
	"an empty message": testkit.SayNothing, "its side closed": testkit.CloseSide, "a cut connection": testkit.DropConnection,
	"GOAWAY": testkit.SendGoAway, "an answer to the previous conversation": testkit.AnswerPrevious, "death after the emits": testkit.DieAfterEmits,
}

func TestEachMisdeedOfTheProcessIsSurvivedAndLosesNothing(t *testing.T) {
	t.Parallel()
	spec := testkit.Spec("crooked", testkit.Ports("in"), testkit.Ports("left", "right"))
	for name, misdeed := range misdeeds {
		t.Run(name, func(t *testing.T) {
			w := onShared(t, spec)
			w.create(3, "in", "left", "right")
			w.produce(testkit.Load(w.topic("in"), 3, 1_500))
			p := w.double(spec, route(splitting).handle)
			if misdeed == testkit.AnswerPrevious { // there has to be one
				p.Inject(testkit.Fault{Do: testkit.CloseSide, When: testkit.AtOffset("in", 0, 120), Times: 1})
			}
			p.Inject(testkit.Fault{Do: misdeed, When: testkit.AtOffset("in", 1, 250), Times: 1})
			s := w.sidecar(p.Addr())
			w.allCommitted(time.Minute)
			w.judge(route(splitting).expect, func(h *testkit.History) {
				h.Processes = []*testkit.Process{p}
				// A Fail and a violation are in answers that were never written. What was acknowledged by then and is lost with the
				// conversation may repeat.
				if misdeed == testkit.SendGoAway {
					h.NoRepeats = true
				}
			})
			failures := len(p.Conversations()) - 1
			if expected := misdeed != testkit.SendGoAway; expected != (failures > 0) {
				t.Errorf("%d conversations failed", failures)
			}
			s.terminated(15 * time.Second)
		})
	}
}

func TestNoRecordIsInTheLog(t *testing.T) {
	spec := testkit.Spec("private", testkit.Ports("in"), testkit.Ports("out"))
	w := onShared(t, spec)
	w.create(1, "in", "out")
	var records []*kgo.Record
	for i := range 50 {
		records = append(records, &kgo.Record{Topic: w.topic("in"), Key: []byte("secret-key"), Value: fmt.Appendf(nil, "%d;secret-value", i),
			Headers: []kgo.RecordHeader{{Key: "secret-header", Value: []byte("secret-content")}}})
	}
	w.produce(records)
	p := w.double(spec, to("out").handle)
	p.Inject(testkit.Fault{Do: testkit.EmitToUnbound, Times: 1})
	p.Inject(testkit.Fault{Do: testkit.FailBatch, Times: 1})
	s := w.sidecar(p.Addr(), "FLOW_LOG_LEVEL=debug")
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(to("out").expect, nil)
	if i := slices.IndexFunc(strings.Split(s.output(), "\n"), func(line string) bool { return strings.Contains(line, "secret") }); i >= 0 {
		t.Errorf("a record's content is in the log: %s", strings.Split(s.output(), "\n")[i])
	}
}
