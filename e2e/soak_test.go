//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	soakFor  = flag.Duration("soak", time.Minute, "how long TestSoak makes trouble")
	soakSeed = flag.Uint64("soak.seed", 0, "the seed of TestSoak's first round; 0: one is drawn")
)

// TestSoak has everything go wrong at random that can be made to on three real brokers, in rounds of up to two minutes: brokers killed,
// stopped and frozen, leaders moved, topics grown, requests and answers lost on the way, processes killed, slow and wrong, sidecars
// killed, stopped, started and fewer. At the end of a round everything is made well, and all has to be worked off and be right. Each
// round has a topic, a group and a seed of its own, which draws its troubles; their effects are never twice the same.
func TestSoak(t *testing.T) {
	const longest = 2 * time.Minute
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64N(1e9)
	}
	c := newCluster(t, 3, append(quickToNotice, "min.insync.replicas=2",
		"group.consumer.min.session.timeout.ms=6000", "group.consumer.session.timeout.ms=6000",
		"group.consumer.min.heartbeat.interval.ms=1000", "group.consumer.heartbeat.interval.ms=1000")...)
	spec, descriptor := described(t, "splitter:Splitter")
	for left := *soakFor; left > 0; left -= longest {
		length := min(left, longest)
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, c, spec)
			w.spec = descriptor
			s := &soak{w: w, t: t, spec: spec, rng: rand.New(rand.NewPCG(seed, 0)), sick: map[string]bool{}, made: map[string]int{}}
			s.round(length)
		}) {
			t.Fatalf("the same troubles again: go test -tags e2e -count 1 -v -run TestSoak ./e2e -soak %v -soak.seed %d", length, seed)
		}
		seed++
	}
}

// quickToNotice has a cluster find out a dead broker after these, which are 9 s and 2 s by default.
var quickToNotice = []string{"broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=400",
	"controller.quorum.fetch.timeout.ms=1000", "controller.quorum.election.timeout.ms=500"}

// soak is a round.
type soak struct {
	w    *world
	t    *testing.T
	spec *flowv1.Spec
	rng  *rand.Rand

	pods    []*soakPod
	doubles []*testkit.Process // all that there were
	stop    func()             // the load
	piece   int
	began   time.Time
	story   []string
	made    map[string]int  // troubles, by name
	sick    map[string]bool // what is in trouble, and must not be given another
	heals   []heal
}

// heal is the end of a trouble.
type heal struct {
	at time.Time
	do func()
}

// soakPod is a place for a sidecar and its process, which is a Python one or a double.
type soakPod struct {
	name    string
	port    int
	env     []string
	python  *proc
	double  *testkit.Process
	sidecar *sidecar
}

func (s *soak) tell(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf("%6.1fs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

func (s *soak) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.rng.Int64N(int64(to-from)))
}

func (s *soak) round(length time.Duration) {
	s.began = time.Now()
	s.t.Cleanup(func() {
		for _, d := range s.w.cluster.doors {
			d.heal()
		}
		if s.t.Failed() {
			s.t.Logf("what happened:\n%s", strings.Join(s.story, "\n"))
		}
	})
	s.setUp()
	for time.Since(s.began) < length {
		s.heal(false)
		s.makeTrouble()
		pause := time.NewTimer(s.between(200*time.Millisecond, 2*time.Second))
		select {
		case <-pause.C:
		case <-s.t.Context().Done():
			s.t.Fatal("the test was ended")
		}
	}
	s.tell("all is made well")
	s.heal(true)
	for i, b := range s.w.cluster.brokers {
		testkit.Eventually(s.t, 5*time.Minute, fmt.Sprintf("broker %d serves", i+1), func() (bool, string) {
			if !b.running() { // one that cannot register for a minute ends by itself
				s.tell("broker %d is started once more", i+1)
				if err := b.launch(); err != nil {
					s.t.Fatal(err)
				}
			}
			return b.serves(0) == nil, b.tail(5)
		})
	}
	testkit.Eventually(s.t, 5*time.Minute, "what had to wait for the brokers is done", func() (bool, string) {
		s.heal(true)
		return len(s.heals) == 0, ""
	})
	s.judge()
}

// setUp starts a load and two pods of four.
func (s *soak) setUp() {
	w := s.w
	w.throughDoors(s.t)
	in := &w.deployment.Inlets[0]
	in.Consumer = [...]map[string]string{
		{"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"},
		{"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
		{"group.protocol": "consumer"},
	}[s.rng.IntN(3)]
	in.MaxRecords = 1 + s.rng.IntN(100)
	shortly := s.rng.IntN(4) > 0 // else as it is by default: half a minute for an answer, two for a write
	if shortly {
		in.Consumer["request.timeout.ms"] = "3000"
		for i := range w.deployment.Outlets {
			w.deployment.Outlets[i].Producer = map[string]string{"request.timeout.ms": "3000", "delivery.timeout.ms": "8000"}
		}
	}
	pods, withPython := s.rng.IntN(2) == 0, s.rng.IntN(2) == 0
	s.piece = 4 + s.rng.IntN(12)
	s.tell("the inlet has %v, batches of %d; in pods %v; a Python process %v; %d records each %v", in.Consumer, in.MaxRecords, pods, withPython, s.piece, testkit.Interval)
	partitions := int32(1 + s.rng.IntN(12))
	w.create(partitions, "in")
	w.create(6, "left")
	w.create(4, "right")
	for i := range 4 {
		pod := &soakPod{name: fmt.Sprint("pod-", i), port: freePort()}
		if pods {
			pod.env = []string{"FLOW_POD_NAME=" + pod.name, "FLOW_POD_NAMESPACE=e2e"}
		}
		s.pods = append(s.pods, pod)
		s.startProcess(pod, withPython && i == 0)
		if i < 2 {
			s.startSidecar(pod)
		}
	}
	s.startLoad(partitions)
}

func (s *soak) startLoad(partitions int32) {
	const atMost = 200_000
	s.stop = s.w.trickle(testkit.Load(s.w.topic("in"), partitions, atMost)[len(s.w.inputs):], s.piece)
}

func (s *soak) startSidecar(pod *soakPod) {
	pod.sidecar = s.w.sidecar(address(pod.port), append([]string{"FLOW_DISCOVERY_TIMEOUT=3s"}, pod.env...)...)
}

func (s *soak) startProcess(pod *soakPod, python bool) {
	s.t.Helper()
	if python {
		pod.python = s.w.python(pod.port, "splitter.py")
		return
	}
	l, err := net.Listen("tcp", address(pod.port))
	if err != nil {
		s.t.Fatal(err)
	}
	pod.double = testkit.NewProcess(l, s.spec, split.handle)
	s.t.Cleanup(pod.double.Close)
	pod.double.Inject(testkit.Fault{Delay: s.between(0, 30*time.Millisecond)})
	s.doubles = append(s.doubles, pod.double)
}

// heal ends the troubles whose time has come, or all.
func (s *soak) heal(all bool) {
	heals := s.heals
	s.heals = nil // one may have to be tried again later
	slices.SortStableFunc(heals, func(a, b heal) int { return a.at.Compare(b.at) })
	for _, h := range heals {
		if all || time.Now().After(h.at) {
			h.do()
		} else {
			s.heals = append(s.heals, h)
		}
	}
	for _, pod := range s.pods {
		if pod.sidecar != nil && !s.sick[pod.name] && !pod.sidecar.running() {
			s.t.Fatalf("the sidecar of %s has ended by itself: %v", pod.name, pod.sidecar.err)
		}
	}
}

// trouble makes one for a while; what is in trouble until then has no other.
func (s *soak) trouble(kind, whom string, atMost time.Duration, end func()) {
	lasts := s.between(50*time.Millisecond, atMost)
	s.tell("%s: %s, for %v", whom, kind, lasts.Round(time.Millisecond))
	s.made[kind]++
	s.sick[whom] = true
	s.heals = append(s.heals, heal{time.Now().Add(lasts), func() {
		s.tell("%s: over (%s)", whom, kind)
		delete(s.sick, whom)
		end()
	}})
}

func (s *soak) makeTrouble() {
	switch n := s.rng.IntN(100); {
	case n < 18:
		s.ofABroker()
	case n < 32:
		s.ofTheNetwork()
	case n < 40:
		s.movesLeaders()
	case n < 44:
		s.grows()
	case n < 70:
		s.ofASidecar()
	default:
		s.ofAProcess()
	}
}

func (s *soak) ofABroker() {
	i := s.rng.IntN(len(s.w.cluster.brokers))
	b, name := s.w.cluster.brokers[i], fmt.Sprint("broker ", i+1)
	if s.sick[name] {
		return
	}
	again := func() {
		b.kill() // if a stop has waited in vain for a controller
		if err := b.launch(); err != nil {
			s.t.Fatal(err)
		}
	}
	switch s.rng.IntN(3) {
	case 0:
		b.kill()
		s.trouble("the broker is killed", name, 5*time.Second, again)
	case 1:
		b.signal(syscall.SIGTERM)
		s.trouble("the broker is stopped", name, 8*time.Second, again)
	case 2:
		b.signal(syscall.SIGSTOP)
		s.trouble("the broker is frozen", name, 8*time.Second, func() { b.signal(syscall.SIGCONT) })
	}
}

func (s *soak) ofTheNetwork() {
	i := s.rng.IntN(len(s.w.cluster.doors))
	d, name := s.w.cluster.doors[i], fmt.Sprint("the way to broker ", i+1)
	if s.sick[name] {
		return
	}
	switch s.rng.IntN(4) {
	case 0:
		d.cut("")
		s.trouble("all connections cut", name, time.Second, func() {})
	case 1:
		cure := d.mute("")
		s.trouble("mute", name, 8*time.Second, cure)
	default:
		keys := []kmsg.Key{kmsg.Fetch, kmsg.Produce, kmsg.Produce, kmsg.OffsetCommit, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.JoinGroup, kmsg.SyncGroup,
			kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat, kmsg.FindCoordinator, kmsg.Metadata, kmsg.ListOffsets, kmsg.InitProducerID, kmsg.ApiVersions}
		key, what, times := keys[s.rng.IntN(len(keys))], misfortune(s.rng.IntN(len(misfortunes))), 1+s.rng.IntN(3)
		d.strike(what, key, "", times)
		s.trouble(fmt.Sprintf("%s of %s", misfortunes[what], key.Name()), name, 3*time.Second, d.heal)
	}
}

// movesLeaders gives every partition of a topic, or of the groups' coordinators, another leader.
func (s *soak) movesLeaders() {
	topics := []string{s.w.topic("in"), s.w.topic("left"), "__consumer_offsets"}
	topic := topics[s.rng.IntN(len(topics))]
	s.made["leaders moved"]++
	ctx, cancel := context.WithTimeout(s.w.ctx, 3*time.Second)
	defer cancel()
	s.tell("the leaders of %s are moved: %v", topic, s.w.moveLeaders(ctx, topic)) // which may fail, with brokers in trouble
}

// moveLeaders has the replica after the leader be the preferred one, and elects it.
func (w *world) moveLeaders(ctx context.Context, topic string) error {
	return w.cluster.Admin(func(admin *kadm.Client) error {
		topics, err := admin.ListTopicsWithInternal(ctx, topic)
		if err != nil {
			return err
		}
		var req kadm.AlterPartitionAssignmentsReq
		var all kadm.TopicsSet
		for _, p := range topics[topic].Partitions.Sorted() {
			all.Add(topic, p.Partition)
			if n := len(p.Replicas); n > 0 {
				at := max(0, slices.Index(p.Replicas, p.Leader))
				req.Assign(topic, p.Partition, slices.Concat(p.Replicas[(at+1)%n:], p.Replicas[:(at+1)%n]))
			}
		}
		if _, err := admin.AlterPartitionAssignments(ctx, req); err != nil {
			return err
		}
		_, err = admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all)
		return err
	})
}

// known says that every broker tells so many partitions of a topic.
func (s *soak) known(port string, partitions int32) bool {
	ctx, cancel := context.WithTimeout(s.w.ctx, time.Second)
	defer cancel()
	return s.w.cluster.KnownEverywhere(ctx, s.w.topic(port), partitions)
}

func (s *soak) grows() {
	const most = 16
	w, whom := s.w, "the inlet's topic"
	partitions := w.partitions["in"] + 1 + int32(s.rng.IntN(3))
	if s.sick[whom] || partitions > most {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	err := w.cluster.Admin(func(admin *kadm.Client) error {
		_, err := admin.UpdatePartitions(ctx, int(partitions), w.topic("in"))
		return err
	})
	if err != nil {
		s.tell("the inlet's topic was to have %d partitions: %v", partitions, err)
		return
	}
	// Every broker has to know them before they are written to, and to end a load waits for the brokers.
	var newLoad func()
	newLoad = func() {
		if slices.ContainsFunc(slices.Collect(maps.Keys(s.sick)), func(who string) bool { return strings.HasPrefix(who, "broker") }) || !s.known("in", partitions) {
			s.heals = append(s.heals, heal{time.Now().Add(time.Second), newLoad})
			return
		}
		delete(s.sick, whom)
		w.partitions["in"] = partitions
		s.stop()
		s.startLoad(partitions)
	}
	s.tell("%s: has %d partitions", whom, partitions)
	s.made["partitions added"]++
	s.sick[whom] = true
	s.heals = append(s.heals, heal{time.Now().Add(3 * time.Second), newLoad})
}

func (s *soak) ofASidecar() {
	pod := s.pods[s.rng.IntN(len(s.pods))]
	if s.sick[pod.name] {
		return
	}
	running := 0
	for _, other := range s.pods {
		if other.sidecar != nil {
			running++
		}
	}
	sidecar := pod.sidecar
	switch n := s.rng.IntN(8); {
	case sidecar != nil && sidecar.output() == "": // it has not begun
	case sidecar == nil:
		s.tell("%s: a sidecar is started", pod.name)
		s.made["a sidecar more"]++
		s.startSidecar(pod)
	case n < 3:
		sidecar.kill()
		s.trouble("the sidecar is killed", pod.name, 3*time.Second, func() { s.startSidecar(pod) })
	case n == 3: // for so long that the group may give its partitions to others, of which it does not hear
		sidecar.signal(syscall.SIGSTOP)
		s.trouble("the sidecar is frozen", pod.name, 12*time.Second, func() { sidecar.signal(syscall.SIGCONT) })
	default:
		kind, less := "the sidecar is stopped", running > 1 && s.rng.IntN(3) == 0
		both := pod.python != nil && pod.python.running() && s.rng.IntN(2) == 0
		if both { // as the containers of a pod are stopped
			pod.python.signal(syscall.SIGTERM)
			kind += " with its process"
		}
		sidecar.signal(syscall.SIGTERM)
		s.trouble(kind, pod.name, 3*time.Second, func() {
			if code := sidecar.exit(s.t, 30*time.Second); code != 0 {
				s.t.Fatalf("%s: its stopped sidecar ended with code %d", pod.name, code)
			}
			if both {
				pod.python.kill()
				s.startProcess(pod, true)
			}
			if pod.sidecar = nil; !less {
				s.startSidecar(pod)
			}
		})
	}
}

func (s *soak) ofAProcess() {
	pod := s.pods[s.rng.IntN(len(s.pods))]
	name := "the process of " + pod.name
	if s.sick[name] || s.sick[pod.name] || pod.sidecar == nil {
		return
	}
	if pod.python != nil {
		if s.rng.IntN(2) == 0 {
			pod.python.signal(syscall.SIGSTOP)
			s.trouble("the process is frozen", name, 5*time.Second, func() { pod.python.signal(syscall.SIGCONT) })
			return
		}
		pod.python.kill()
		s.trouble("the process is killed", name, 2*time.Second, func() { s.startProcess(pod, true) })
		return
	}
	if s.rng.IntN(4) == 0 {
		pod.double.Close()
		s.trouble("the process is killed", name, 2*time.Second, func() { s.startProcess(pod, false) })
		return
	}
	names := slices.Sorted(maps.Keys(misdeeds))
	what := names[s.rng.IntN(len(names))]
	switch misdeeds[what] {
	case testkit.EmitAfterAck: // its emits may come when the commit is out already, and be lost by its own fault
		return
	case testkit.CloseSide:
		if s.rng.IntN(2) == 0 {
			double := pod.double
			cure := double.InjectFirst(testkit.Fault{Do: testkit.Hang})
			s.trouble("the process hangs", name, 5*time.Second, func() {
				cure()
				double.DropConnections() // what hangs is never answered
			})
			return
		}
	}
	cure := pod.double.InjectFirst(testkit.Fault{Do: misdeeds[what], Times: 1 + s.rng.IntN(3)})
	s.trouble(what, name, 3*time.Second, cure)
}

func (s *soak) judge() {
	w := s.w
	if !slices.ContainsFunc(s.pods, func(pod *soakPod) bool { return pod.sidecar != nil }) {
		s.startSidecar(s.pods[0])
	}
	s.stop()
	began := time.Now()
	w.allCommitted(5 * time.Minute)
	caughtUp := time.Since(began)
	most, lines := 0, 0
	for _, pod := range s.pods {
		if pod.sidecar == nil {
			continue
		}
		pod.sidecar.ready(time.Minute)
		most = max(most, pod.sidecar.memory("VmHWM"))
		lines += strings.Count(pod.sidecar.output(), "\n")
		pod.sidecar.terminated(30 * time.Second)
	}
	report := w.judge(split.expect, func(h *testkit.History) {
		if s.pods[0].python == nil { // else nobody saw all
			h.Processes = s.doubles
		}
	})
	for i, p := range s.doubles {
		if problems := p.Problems(); len(problems) > 0 {
			s.t.Errorf("double %d: %q", i, problems)
		}
	}
	var made []string
	for kind, n := range s.made {
		made = append(made, fmt.Sprint(n, " ", kind))
	}
	slices.Sort(made)
	s.t.Logf("%d of %d emits came twice; all was caught up %v after the last trouble; at most %d MB resident; troubles: %s",
		report.Repeats, report.Expected, caughtUp.Round(100*time.Millisecond), most>>20, strings.Join(made, ", "))
	for _, topic := range []string{w.topic("in"), w.topic("left"), w.topic("right")} {
		if err := w.cluster.Admin(func(admin *kadm.Client) error { _, err := admin.DeleteTopic(w.ctx, topic); return err }); err != nil {
			s.t.Error(err)
		}
	}
}

// memory is a figure of the kernel's about the process, in bytes: VmRSS, what is resident, VmHWM, the most that ever was.
func (p *proc) memory(what string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kb int
		if _, err := fmt.Sscanf(line, what+": %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
