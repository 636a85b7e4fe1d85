package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// simulation is one seed's run.
type simulation struct {
	*bed
	rand   *rand.Rand
	pods   []*instance
	static bool // members are static, by the names of their pods

	stops        sync.WaitGroup
	planned      bool     // nothing fails: pods come and go as in a roll or when they are scaled, and nothing comes twice
	misbehaviour []func() // of the processes; each takes one away

	loader       *kgo.Client
	loading      chan struct{}                    // full while records are written; a lock that was waited for would stop the clock
	removed      []*kgo.Record                    // by retention, or with their topic
	gone         map[*kgo.Record]bool             // the removed ones that were not committed, which nobody has to deliver
	deleted      map[string]string                // the history's names of topic "in" before it was deleted
	commits      map[testkit.TopicPartition]int64 // of the deleted ones
	brokerFaults atomic.Int32                     // requests still to be refused
	brokerRand   *rand.Rand                       // the cluster's one goroutine alone draws from it
	history      []string                         // what was done, for a failure
	began        time.Time

	commitSeen chan struct{} // capacity 1
	expelling  atomic.Bool   // a member may be gone before it can know
	mayGoBack  atomic.Int64  // Unix nanoseconds: until then a commit may be of the topic that was deleted
}

func (s *simulation) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf("%9.3fs  ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

func simulate(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	partitions := int32(1 + r.IntN(6))
	inBubble(t, partitions, func(t *testing.T, b *bed) {
		s := &simulation{bed: b, rand: r, brokerRand: rand.New(rand.NewPCG(seed, 2)), began: time.Now(), commitSeen: make(chan struct{}, 1),
			loading: make(chan struct{}, 1), gone: map[*kgo.Record]bool{}, deleted: map[string]string{}, commits: map[testkit.TopicPartition]int64{}}
		defer func() {
			if t.Failed() {
				t.Logf("seed %d, %d partitions:\n%s", seed, partitions, strings.Join(s.history, "\n"))
			}
		}()
		b.deployment.Inlets[0].MaxRecords = []int{1, 7, 100}[r.IntN(3)]
		// Most of a quiet minute's cost would be looks that find nothing.
		b.deployment.Inlets[0].Consumer = map[string]string{"fetch.max.wait.ms": "5000"}
		if r.IntN(4) > 0 {
			defer func(usual time.Duration) { topicInterval = usual }(topicInterval)
			topicInterval = 15 * time.Second
			b.deployment.Inlets[0].Consumer = map[string]string{"fetch.max.wait.ms": "15000", "metadata.max.age.ms": "20000"}
			b.deployment.Outlets[0].Producer = map[string]string{"metadata.max.age.ms": "20000"}
		}
		if r.IntN(3) == 0 {
			b.deployment.Inlets[0].Consumer["partition.assignment.strategy"] = "org.apache.kafka.clients.consumer.RangeAssignor"
		}
		s.static = r.IntN(2) == 0
		s.planned = r.IntN(8) == 0
		b.onReady = s.checkReady
		for range 1 + r.IntN(3) {
			s.startPod()
		}
		s.loader = b.newLoader()
		defer s.loader.Close()
		s.brokerErrors()
		watching, endWatching := context.WithCancel(context.Background())
		var watch sync.WaitGroup
		defer watch.Wait()
		defer endWatching()
		watch.Go(func() { s.watchCommits(watching) })
		ctx, stop := context.WithCancel(context.Background())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			pace := rand.New(rand.NewPCG(seed, 3))
			for wait(ctx, time.Duration(pace.IntN(8000))*time.Millisecond) {
				s.loading <- struct{}{}
				b.tryProduce(s.loader, 1+pace.IntN(40))
				<-s.loading
			}
		}()
		for time.Since(s.began) < 10*time.Minute {
			s.fault()
			time.Sleep(time.Duration(s.rand.IntN(20000)) * time.Millisecond)
		}
		s.note("heal")
		b.net.thaw()
		for _, broker := range b.cluster.ListenAddrs() {
			b.net.slowDown(broker, 0)
		}
		s.brokerFaults.Store(0)
		stop()
		<-loaded
		for _, p := range b.processes {
			p.SetDiscovery(testkit.DiscoverAnswers)
		}
		s.stops.Wait() // a pod that is about to end works nothing off
		if len(s.alive()) == 0 {
			s.startPod()
		}
		// kfake keeps members for ever whose connection broke while they were joining. Expelling all, which the living ones
		// must come back from by themselves, is the only way to be rid of them.
		for range 3 {
			if s.heals(2 * time.Minute) {
				break
			}
			s.note("every member is expelled")
			s.planned = false
			s.expelling.Store(true)
			s.expelAll()
			s.expelling.Store(false)
		}
		if !s.heals(10 * time.Minute) {
			t.Fatal("after everything is healed: ", s.unhealed())
		}
		for _, pod := range b.sidecars {
			s.stop(pod)
		}
		b.inputs = append(s.removed, s.read()...)
		b.check(s.excuse, func(h *testkit.History) { h.NoRepeats = s.planned })
	}, kfake.NumBrokers(3))
}

func (s *simulation) startPod() {
	var env []string
	if s.static {
		env = append(env, fmt.Sprintf("FLOW_POD_NAME=pod-%d", len(s.pods)), "FLOW_POD_NAMESPACE=test")
	}
	s.pods = append(s.pods, s.bed.startPod(env...))
}

// stop stops a pod, which has its time for that whatever hangs.
func (s *simulation) stop(pod *instance) {
	began := time.Now()
	code := pod.stop()
	if took := time.Since(began); took > 15*time.Second {
		s.t.Errorf("%s took %s to stop", pod.host, took)
	}
	if code != exitStopped {
		s.t.Errorf("%s has exit code %d", pod.host, code)
	}
}

// heals says whether all is as it is to be within that time.
func (s *simulation) heals(within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		time.Sleep(time.Second)
		if s.unhealed() == "" {
			return true
		}
	}
	return false
}

// unhealed says what is not as it is to be when nothing fails any more: all is committed, every pod is ready.
func (s *simulation) unhealed() string {
	if ok, instead := s.caughtUp(); !ok {
		return instead
	}
	for _, pod := range s.alive() {
		if !pod.ready() {
			return pod.host + " is not ready"
		}
	}
	return ""
}

// alive is the pods that run.
func (s *simulation) alive() (alive []*instance) {
	for _, p := range s.pods {
		select {
		case <-p.done:
		default:
			if !p.dead.Load() {
				alive = append(alive, p)
			}
		}
	}
	return alive
}

// fault does one thing that can go wrong, drawn at random.
func (s *simulation) fault() {
	alive := s.alive()
	if len(alive) == 0 || len(alive) < 4 && s.rand.IntN(12) == 0 {
		s.note("a pod starts")
		s.startPod()
		return
	}
	pod := alive[s.rand.IntN(len(alive))]
	if s.planned {
		s.plan(pod, len(alive))
		return
	}
	brokers := s.cluster.ListenAddrs()
	broker := brokers[s.rand.IntN(len(brokers))]
	d := time.Duration(s.rand.IntN(15000)) * time.Millisecond
	if s.rand.IntN(4) == 0 {
		d *= 5
	}
	switch s.rand.IntN(23) {
	case 0:
		if s.rand.IntN(3) == 0 {
			process := pod.process.Addr()
			s.note("the process of %s hangs for %s", pod.host, d)
			s.net.freeze(process)
			time.AfterFunc(d, func() { s.net.thaw(process) })
		}
		s.note("%s is stopped", pod.host)
		s.stops.Go(func() { s.stop(pod) })
	case 1:
		s.note("%s is killed", pod.host)
		pod.crash()
	case 2, 3:
		s.note("the process of %s restarts, %s away", pod.host, d)
		pod.process.Close()
		time.Sleep(d)
		pod.process = s.newProcess(pod.process.Addr())
	case 4, 5, 6:
		misdeed := testkit.Misdeed(1 + s.rand.IntN(int(testkit.DieAfterEmits)))
		if misdeed == testkit.AckOnly || misdeed == testkit.EmitAfterAck {
			misdeed = testkit.FailBatch // skipping is the streamlet's right; what it emits late is its own loss
		}
		times := 1 + s.rand.IntN(3)
		s.note("the process of %s misbehaves: %d, %d times", pod.host, misdeed, times)
		remove := pod.process.Inject(testkit.Fault{Do: misdeed, Times: times})
		s.misbehaviour = append(s.misbehaviour, remove)
		if misdeed == testkit.Hang {
			process := pod.process
			time.AfterFunc(d, func() { remove(); process.DropConnections() })
		}
	case 7:
		s.note("%s is cut from the brokers and its process", pod.host)
		s.net.cut(pod.host)
	case 8:
		s.note("%s hangs for %s", pod.host, d)
		s.net.freeze(pod.host)
		time.AfterFunc(d, func() { s.net.thaw(pod.host) })
	case 9:
		s.note("broker %s hangs for %s", broker, d)
		s.net.freeze(broker)
		time.AfterFunc(d, func() { s.net.thaw(broker) })
	case 10:
		s.note("broker %s's answers are lost for %s", broker, d/10)
		s.net.swallow(broker, d/10)
	case 11:
		s.note("connections to broker %s are cut", broker)
		s.net.cut(broker)
	case 12, 13:
		n := 1 + s.rand.Int32N(10)
		s.note("the next %d writes and commits are refused", n)
		s.brokerFaults.Store(n)
	case 14:
		s.note("coordinators move")
		s.cluster.RehashCoordinators()
	case 15:
		s.note("leaders move")
		s.cluster.ShufflePartitionLeaders()
	case 16:
		s.grow()
	case 17, 18:
		s.retain()
	case 19:
		if s.rand.IntN(3) == 0 {
			s.recreate()
		}
	case 20:
		if s.rand.IntN(3) == 0 {
			s.poison()
		}
	case 21, 22:
		pause := time.Duration(1+s.rand.IntN(100)) * time.Millisecond
		s.note("all brokers are slow, %s a read, for %s", pause, d)
		for _, b := range brokers {
			s.net.slowDown(b, pause)
			time.AfterFunc(d, func() { s.net.slowDown(b, 0) })
		}
	}
}

// plan scales out, or in, or replaces a pod, while records are on their way.
func (s *simulation) plan(pod *instance, alive int) {
	pause := time.Duration(1+s.rand.IntN(30)) * time.Millisecond
	for _, broker := range s.cluster.ListenAddrs() {
		s.net.slowDown(broker, pause)
		time.AfterFunc(5*time.Second, func() { s.net.slowDown(broker, 0) })
	}
	s.loading <- struct{}{}
	s.tryProduce(s.loader, 40)
	<-s.loading
	time.Sleep(time.Duration(s.rand.IntN(20)) * pause)
	if alive < 4 && s.rand.IntN(2) == 0 {
		s.note("a pod starts")
		s.startPod()
	}
	if s.rand.IntN(2) == 0 {
		s.note("%s is stopped", pod.host)
		s.stops.Go(func() { s.stop(pod) })
	}
}

// grow gives topic "in" a partition more, up to eight.
func (s *simulation) grow() {
	if s.partitions == 8 {
		return
	}
	s.quiet(func() {
		s.note("topic in grows to %d partitions", s.partitions+1)
		err := s.kafka.Admin(func(admin *kadm.Client) error {
			_, err := admin.CreatePartitions(context.Background(), 1, "in")
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.partitions++
	})
}

// retain lets retention take records from the start of a partition; one at least stays.
func (s *simulation) retain() {
	s.quiet(func() {
		tp := testkit.TopicPartition{Topic: "in", Partition: s.rand.Int32N(s.partitions)}
		info := s.cluster.PartitionInfo(tp.Topic, tp.Partition)
		if info.HighWatermark-info.LogStartOffset < 2 {
			return
		}
		start := info.LogStartOffset + 1 + s.rand.Int64N(info.HighWatermark-info.LogStartOffset-1)
		s.note("%s is retained from %d on, its end is %d", tp, start, info.HighWatermark)
		_, committed := s.offsets()
		for _, r := range s.read() {
			if r.Partition == tp.Partition && r.Offset < start {
				s.removed = append(s.removed, r)
				s.gone[r] = r.Offset >= committed[tp]
			}
		}
		if err := s.cluster.DeleteRecords(tp.Topic, tp.Partition, start); err != nil {
			s.t.Fatal(err)
		}
	})
}

// recreate deletes topic "in" and creates it again. What was committed of the old one has to be in the outlet.
func (s *simulation) recreate() {
	s.quiet(func() {
		name := fmt.Sprintf("in, deleted %d", len(s.deleted)+1)
		s.note("topic in is deleted and created again")
		_, committed := s.offsets()
		for _, r := range s.read() {
			s.removed = append(s.removed, r)
			s.gone[r] = r.Offset >= committed[testkit.TopicPartition{Topic: "in", Partition: r.Partition}]
		}
		for _, r := range s.removed {
			if r.Topic == "in" {
				r.Topic = name
			}
		}
		for p := range s.partitions {
			s.commits[testkit.TopicPartition{Topic: name, Partition: p}] = committed[testkit.TopicPartition{Topic: "in", Partition: p}]
		}
		s.deleted[name] = "in"
		s.mayGoBack.Store(time.Now().Add(time.Minute).UnixNano()) // who has not found out yet commits what it read of the old one
		if err := s.cluster.DeleteTopic("in"); err != nil {
			s.t.Fatal(err)
		}
		if err := s.cluster.CreateTopic("in", s.partitions, nil); err != nil {
			s.t.Fatal(err)
		}
	})
}

// quiet does f while nobody writes to topic "in" and every broker answers.
func (s *simulation) quiet(f func()) {
	s.net.thaw()
	s.brokerFaults.Store(0)
	s.loading <- struct{}{}
	defer func() { <-s.loading }()
	time.Sleep(5 * time.Second)
	f()
}

func (s *simulation) read() []*kgo.Record {
	records, err := s.kafka.Read(context.Background(), "in")
	if err != nil {
		s.t.Fatal(err)
	}
	return records
}

// excuse tells the checker of what nobody has to deliver any more.
func (s *simulation) excuse(h *testkit.History) {
	h.Gone = func(r *kgo.Record) bool { return s.gone[r] }
	h.Deleted = s.deleted
	for tp, committed := range s.commits {
		h.Committed[tp], h.Ends[tp] = committed, committed
	}
}

// brokerErrors lets the brokers refuse requests with errors that they do refuse them with.
func (s *simulation) brokerErrors() {
	s.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		if !s.refuse() {
			return nil, nil, false
		}
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		code := []int16{kerr.NotEnoughReplicas.Code, kerr.NotLeaderForPartition.Code, kerr.RequestTimedOut.Code, kerr.TopicAuthorizationFailed.Code}[s.brokerRand.IntN(4)]
		for _, t := range produce.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, code
				topic.Partitions = append(topic.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	s.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		select {
		case s.commitSeen <- struct{}{}:
		default:
		}
		if !s.refuse() {
			return nil, nil, false
		}
		commit := req.(*kmsg.OffsetCommitRequest)
		resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		code := []int16{kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, kerr.RebalanceInProgress.Code, kerr.RequestTimedOut.Code}[s.brokerRand.IntN(4)]
		for _, t := range commit.Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewOffsetCommitResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, code
				topic.Partitions = append(topic.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

// refuse says whether the next request is refused.
func (s *simulation) refuse() bool {
	if s.brokerFaults.Load() <= 0 {
		return false
	}
	s.brokerFaults.Add(-1)
	return true
}
