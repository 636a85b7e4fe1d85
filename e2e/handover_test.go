//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// Each row goes through every hand-over that people plan, one after another and under load: scale-out from one pod to three, a rolling
// restart in which each pod is stopped in another way, a member that is a Java consumer with Java's defaults, scale-in to one, a roll
// from the last of ours to Java, and back.
func TestPlannedHandOversUnderLoadRepeatNothing(t *testing.T) {
	t.Parallel()
	eager := map[string]string{"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"}
	for name, row := range map[string]handOver{
		"cooperative":                           {},
		"cooperative, in pods, with Python":     {inPods: true, python: true},
		"eager, in pods":                        {consumer: eager, inPods: true},
		"the consumer protocol":                 {consumer: map[string]string{"group.protocol": "consumer"}},
		"the consumer protocol, static members": {consumer: map[string]string{"group.protocol": "consumer"}, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec, descriptor := described(t, "slow:Slow")
			row.world, row.spec = onShared(t, spec), spec
			row.world.spec = descriptor
			row.run(t)
		})
	}
}

// handOver is a row, and what it works with.
type handOver struct {
	consumer map[string]string
	inPods   bool // so that members of a classic group are static
	named    bool // the user gives each pod a group.instance.id
	python   bool // the processes are Python's; else doubles, whose SIGTERM is a death with everything that they hold

	world   *world
	spec    *flowv1.Spec
	doubles []*testkit.Process
}

// handOverPod is a sidecar with its process.
type handOverPod struct {
	*sidecar
	terminate func() // the process is sent SIGTERM
}

func (h *handOver) run(t *testing.T) {
	w := h.world
	w.deployment.Inlets[0].MaxRecords = 20
	w.create(12, "in", "out")
	stop := w.trickle(testkit.Load(w.topic("in"), 12, 200_000), 20)
	pods := make([]*handOverPod, 3)
	for i := range pods {
		pods[i] = h.pod(t, i)
	}
	for _, pod := range pods {
		pod.works()
	}
	for i, way := range []string{"the sidecar alone", "its process first", "both at once"} {
		pods[i].stopped(way)
		pods[i] = h.pod(t, i)
		pods[i].works()
	}
	java := w.java(t, 0)
	java.works(t)
	if h.consumer["group.protocol"] == "consumer" {
		// Java's default is a member of a classic group. When the last member of the consumer protocol leaves it alone, the broker
		// makes the group a classic one again, and expels it with what it had not committed. So the roll is to one of the same protocol.
		java.stopped(t)
		java = w.java(t, 1, "group.protocol=consumer")
		java.works(t)
	}
	pods[2].stopped("both at once")
	pods[1].stopped("the sidecar alone")
	pods[0].works()
	pods[0].stopped("the sidecar alone")
	java.works(t)
	last := h.pod(t, 0)
	last.works()
	java.works(t)
	java.stopped(t)
	last.works()
	stop()
	w.allCommitted(time.Minute)
	last.stopped("the sidecar alone")
	w.judge(to("out").expect, func(history *testkit.History) { history.NoRepeats = true })
	for i, p := range h.doubles {
		if problems := p.Problems(); len(problems) > 0 {
			t.Errorf("double %d: %q", i+1, problems)
		}
		if n := len(p.Conversations()); n != 1 {
			t.Errorf("the sidecar of double %d had %d conversations", i+1, n)
		}
	}
}

func (h *handOver) pod(t *testing.T, i int) *handOverPod {
	t.Helper()
	w, pod := h.world, &handOverPod{}
	var env []string
	if h.inPods {
		env = []string{fmt.Sprint("FLOW_POD_NAME=pod-", i), "FLOW_POD_NAMESPACE=e2e"}
	}
	w.deployment.Inlets[0].Consumer = map[string]string{}
	for key, value := range h.consumer {
		w.deployment.Inlets[0].Consumer[key] = value
	}
	if h.named {
		w.deployment.Inlets[0].Consumer["group.instance.id"] = fmt.Sprint("pod-", i)
	}
	port := freePort()
	if h.python {
		process := w.python(port, "slow.py")
		pod.terminate = func() { process.signal(syscall.SIGTERM) }
	} else {
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			t.Fatal(err)
		}
		double := testkit.NewProcess(l, h.spec, to("out").handle)
		double.Inject(testkit.Fault{Delay: 30 * time.Millisecond})
		h.doubles = append(h.doubles, double)
		t.Cleanup(double.Close)
		pod.terminate = double.Close
	}
	pod.sidecar = w.sidecar(address(port), env...)
	return pod
}

// works waits until the pod is ready and more records went through it.
func (p *handOverPod) works() {
	p.t.Helper()
	p.ready(time.Minute)
	before := p.value("ankka_flow_sidecar_records_out_total")
	testkit.Eventually(p.t, time.Minute, p.name+" writes records", func() (bool, string) {
		now := p.value("ankka_flow_sidecar_records_out_total")
		return now > before+100, fmt.Sprint(now-before, " records")
	})
}

func (p *handOverPod) stopped(way string) {
	p.t.Helper()
	switch way {
	case "its process first":
		p.terminate()
		p.unready(15 * time.Second)
	case "both at once":
		p.terminate()
	}
	p.sidecar.terminated(15 * time.Second)
	p.terminate()
}

// javaMember is JavaMember.java.
type javaMember struct{ *proc }

func (w *world) java(t *testing.T, n int, properties ...string) javaMember {
	return javaMember{run(t, w.dir, fmt.Sprint("java-member", n), nil, "", append([]string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafkaLibs + "/*",
		filepath.Join("java", "JavaMember.java"), w.deployment.Servers, w.groups()[0], w.topic("in"), w.topic("out")}, properties...)...)}
}

// passed is how many records it has passed on.
func (j javaMember) passed() (sum int) {
	for line := range strings.Lines(j.output()) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err == nil { // else it is a line of its log
			sum += n
		}
	}
	return sum
}

func (j javaMember) works(t *testing.T) {
	t.Helper()
	before := j.passed()
	testkit.Eventually(t, time.Minute, "the Java member passes records on", func() (bool, string) {
		if !j.running() {
			t.Fatal("the Java member has ended: ", j.err)
		}
		return j.passed() > before+100, fmt.Sprint(j.passed()-before, " records")
	})
}

func (j javaMember) stopped(t *testing.T) {
	t.Helper()
	j.signal(syscall.SIGTERM)
	select {
	case <-j.done: // by the signal, as Java ends after its hooks
	case <-time.After(30 * time.Second):
		t.Fatal("the Java member does not stop")
	}
}
