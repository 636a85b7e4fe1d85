package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bed is a cluster and a process in memory, inside a synctest bubble, for whole sidecars to run against.
type bed struct {
	t          *testing.T
	net        *memnet
	cluster    *kfake.Cluster
	kafka      *testkit.Kafka
	deployment testkit.Deployment
	spec       *flowv1.Spec
	process    *testkit.Process   // the last one
	processes  []*testkit.Process // all of them
	sidecars   []*instance
	hosts      int
	address    string // of the process
	inputs     []*kgo.Record
	produced   int             // by tryProduce
	partitions int32           // of topic in
	tap        *tap            // of the next sidecar
	onReady    func(*instance) // told when a sidecar says that it is ready; may be nil
}

// inBubble runs f with a bed: topics in and out of the given number of partitions, and a process that emits each record
// unchanged.
func inBubble(t *testing.T, partitions int32, f func(t *testing.T, b *bed), opts ...kfake.Opt) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet()
		opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.ListenFn(n.listen), kfake.SeedTopics(partitions, "in", "out")}, opts...)
		cluster, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		b := &bed{
			t: t, net: n, cluster: cluster, partitions: partitions,
			kafka: &testkit.Kafka{Seeds: cluster.ListenAddrs(), Dial: n.dial},
			spec:  testkit.Spec("echo", testkit.Ports("in"), testkit.Ports("out")),
			deployment: testkit.Deployment{
				Pipeline: "pipe", Streamlet: "echo", Servers: strings.Join(cluster.ListenAddrs(), ","),
				Inlets:  []testkit.Inlet{{Name: "in", Topic: "in"}},
				Outlets: []testkit.OutletPort{{Name: "out", Topic: "out"}},
			},
		}
		b.startProcess()
		defer func() {
			for _, s := range b.sidecars {
				s.stop()
			}
			for _, p := range b.processes {
				p.Close()
			}
		}()
		f(t, b)
	})
}

// echo emits every record unchanged to outlet "out".
func echo(batch *flowv1.Batch) ([]*flowv1.Emit, error) {
	var emits []*flowv1.Emit
	for _, r := range batch.Records {
		emits = append(emits, &flowv1.Emit{Outlet: "out", Record: r.Record})
	}
	return emits, nil
}

// startProcess starts the process where it was before, if it was.
func (b *bed) startProcess() {
	b.t.Helper()
	b.process = b.newProcess(b.address)
	b.address = b.process.Addr()
}

func (b *bed) newProcess(address string) *testkit.Process {
	b.t.Helper()
	l, err := b.net.listen("tcp", address)
	if err != nil {
		b.t.Fatal(err)
	}
	p := testkit.NewProcess(l, b.spec, echo)
	b.processes = append(b.processes, p)
	return p
}

// startPod runs a sidecar with a process of its own.
func (b *bed) startPod(env ...string) *instance {
	b.t.Helper()
	p := b.newProcess("")
	s := b.start(append(env, "FLOW_PROCESS_ADDRESS="+p.Addr())...)
	s.process = p
	return s
}

// produce adds n records of testkit's load to topic "in".
func (b *bed) produce(n int) {
	b.t.Helper()
	records := testkit.LoadFrom("in", b.partitions, len(b.inputs), n)
	if err := b.kafka.Produce(b.t.Context(), records); err != nil {
		b.t.Fatal(err)
	}
	b.inputs = append(b.inputs, records...)
}

// newLoader makes the client that tryProduce writes with. Its producer id is there before any fault: two brokers' writes
// that wait for it under kgo's lock would stop a bubble's clock.
func (b *bed) newLoader() *kgo.Client {
	b.t.Helper()
	client, err := b.kafka.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MetadataMinAge(250*time.Millisecond),
		kgo.AllowIdempotentProduceCancellation())
	if err == nil {
		_, _, err = client.ProducerID(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return client
}

// tryProduce writes n records to a cluster in trouble. It gives up what does not succeed within a while: what is there in
// the end is found out by reading the topic.
func (b *bed) tryProduce(loader *kgo.Client, n int) {
	records := testkit.LoadFrom("in", b.partitions, b.produced, n)
	b.produced += n
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = loader.ProduceSync(ctx, records...)
}

// expelAll removes every member from the group, as an operator's tool can.
func (b *bed) expelAll() {
	err := b.kafka.Admin(func(admin *kadm.Client) error {
		groups, err := admin.DescribeGroups(context.Background(), "pipe.echo.in")
		if err != nil {
			return err
		}
		for _, group := range groups {
			for _, member := range group.Members {
				req := kmsg.NewPtrLeaveGroupRequest()
				req.Group = group.Group
				leaving := kmsg.NewLeaveGroupRequestMember()
				leaving.MemberID, leaving.InstanceID = member.MemberID, member.InstanceID
				req.Members = append(req.Members, leaving)
				if err := b.request(req); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) request(req kmsg.Request) error {
	client, err := b.kafka.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Request(context.Background(), req)
	return err
}

// instance is a sidecar that runs in the bed.
type instance struct {
	bed      *bed
	host     string           // its name in the network
	process  *testkit.Process // of its own; nil when it talks to the bed's
	files    *memFiles
	pod      string // FLOW_POD_NAME
	log      *lockedBuffer
	kill     context.CancelFunc // SIGTERM
	done     chan struct{}
	code     int
	dead     atomic.Bool // it crashed
	started  time.Time
	wasReady atomic.Bool // the simulation's

	metricsAddress string // guarded by the net's mu
}

// start runs a sidecar, with env on top of the bed's.
func (b *bed) start(env ...string) *instance {
	b.t.Helper()
	b.hosts++
	s := &instance{bed: b, host: fmt.Sprintf("host-%d", b.hosts), files: newMemFiles(), log: &lockedBuffer{}, done: make(chan struct{}), started: time.Now()}
	s.files.write("/etc/flow/config/descriptor.json", testkit.DescriptorJSON(b.spec))
	s.files.write("/etc/flow/config/streamlet.conf", b.deployment.Conf())
	vars := map[string]string{"FLOW_PROCESS_ADDRESS": b.address}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		vars[name] = value
	}
	s.pod = vars["FLOW_POD_NAME"]
	s.files.written = func(name string) {
		if name == "/tmp/flow/ready" && b.onReady != nil {
			b.onReady(s)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.kill = cancel
	tap := b.tap
	b.tap = nil
	b.sidecars = append(b.sidecars, s)
	go func() {
		defer close(s.done)
		s.code = run(ctx, world{
			lookupEnv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }, stdout: s.log, files: s.files,
			network: network{listen: s.listen, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := b.net.dialFrom(ctx, s.host, network, address)
				if err == nil && tap != nil {
					conn = tap.wrap(conn, address)
				}
				return conn, err
			}},
		})
	}()
	b.t.Cleanup(func() {
		checkLog(b.t, s.log.String())
		if b.t.Failed() {
			b.t.Logf("log of the sidecar:\n%s", s.log)
		}
	})
	return s
}

// listen keeps where the metrics port is, which is all that a sidecar listens on.
func (s *instance) listen(network, address string) (net.Listener, error) {
	l, err := s.bed.net.listen(network, address)
	if err == nil {
		s.bed.net.mu.Lock()
		defer s.bed.net.mu.Unlock()
		s.metricsAddress = l.Addr().String()
	}
	return l, err
}

// stop sends SIGTERM, waits, and returns the exit code.
func (s *instance) stop() int {
	s.kill()
	<-s.done
	return s.code
}

// crash is kill -9: nothing of the sidecar reaches anybody any more. What is left of it ends in its own time.
func (s *instance) crash() {
	s.dead.Store(true)
	s.bed.net.kill(s.host)
	s.kill()
}

func (s *instance) ready() bool { return s.files.has("/tmp/flow/ready") }

func (s *instance) awaitReady() {
	s.bed.t.Helper()
	testkit.Eventually(s.bed.t, time.Minute, "ready", func() (bool, string) { return s.ready(), s.log.String() })
}

// awaitCaughtUp waits until the group has committed the end of every partition.
func (b *bed) awaitCaughtUp(within time.Duration) {
	b.t.Helper()
	b.awaitCaughtUpLooking(within, testkit.Interval)
}

// awaitCaughtUpLooking is awaitCaughtUp with an interval of its own.
func (b *bed) awaitCaughtUpLooking(within, interval time.Duration) {
	b.t.Helper()
	for deadline := time.Now().Add(within - interval); time.Now().Before(deadline); time.Sleep(interval) {
		if ok, _ := b.caughtUp(); ok {
			return
		}
	}
	if ok, instead := b.caughtUp(); !ok {
		b.t.Fatalf("not within %s: committed = end; instead: %s", within, instead)
	}
}

func (b *bed) caughtUp() (ok bool, instead string) {
	b.t.Helper()
	ends, committed := b.offsets()
	for tp, end := range ends {
		if end > 0 && committed[tp] != end {
			return false, fmt.Sprintf("committed %v, ends %v", committed, ends)
		}
	}
	return true, ""
}

// offsets are the ends of topic "in" and what the group has committed, as the cluster itself has them.
func (b *bed) offsets() (ends, committed map[testkit.TopicPartition]int64) {
	b.t.Helper()
	ends, committed = map[testkit.TopicPartition]int64{}, map[testkit.TopicPartition]int64{}
	for _, p := range b.cluster.PartitionInfos("in") {
		ends[testkit.TopicPartition{Topic: "in", Partition: p.Partition}] = p.HighWatermark
	}
	if group := b.cluster.GroupInfo("pipe.echo.in"); group != nil {
		for p, commit := range group.Commits["in"] {
			committed[testkit.TopicPartition{Topic: "in", Partition: p}] = commit.Offset
		}
	}
	return ends, committed
}

// check judges what the bed's sidecars did.
func (b *bed) check(change ...func(*testkit.History)) *testkit.Report {
	b.t.Helper()
	ends, committed := b.offsets()
	outputs, err := b.kafka.Read(context.Background(), "out")
	if err != nil {
		b.t.Fatal(err)
	}
	h := testkit.History{
		Inputs: b.inputs, Outputs: outputs, Committed: committed, Ends: ends, Complete: true,
		Expect:    func(in *kgo.Record) []testkit.Emit { return []testkit.Emit{testkit.Unchanged("out", in)} },
		Outlets:   map[string]testkit.Outlet{"out": {Topic: "out", Partitions: int32(len(b.cluster.PartitionInfos("out")))}},
		Processes: b.processes,
	}
	for _, f := range change {
		f(&h)
	}
	report := testkit.Check(h)
	if err := report.Err(); err != nil {
		b.t.Error(err)
	}
	return report
}

// noRepeats makes each repeat a problem.
func noRepeats(h *testkit.History) { h.NoRepeats = true }

// memFiles is a disk in memory.
type memFiles struct {
	mu      sync.Mutex
	files   map[string][]byte
	failure error // of every change

	written func(name string) // told of each file that was written; may be nil
}

func newMemFiles() *memFiles { return &memFiles{files: map[string][]byte{}} }

func (f *memFiles) write(name string, content []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[name] = content
}

func (f *memFiles) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.files[name]
	return ok
}

func (f *memFiles) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if content, ok := f.files[name]; ok {
		return content, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (f *memFiles) WriteFile(name string, content []byte) error {
	f.mu.Lock()
	failure := f.failure
	if failure == nil {
		f.files[name] = content
	}
	f.mu.Unlock()
	if failure == nil && f.written != nil {
		f.written(name)
	}
	return failure
}

func (f *memFiles) MkdirAll(string) error { return nil }
func (f *memFiles) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure != nil {
		return f.failure
	}
	delete(f.files, name)
	return nil
}

// lockedBuffer is a log that is written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
