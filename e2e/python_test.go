//go:build e2e

package e2e

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protojson"
)

// cartRouter is the example in Python, from the directory of the suites' own streamlets.
const cartRouter = "../../examples/python/cart_router.py"

// conformance is the SDK's own reference streamlet. Its entry point would want the suite of another repository.
const conformance = "from ankka_flow import serve; from ankka_flow._conformance import Conformance; serve(Conformance())"

// described is the descriptor of a Python streamlet as the SDK's own command writes it.
func described(t *testing.T, streamlet string) (*flowv1.Spec, []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "descriptor.json")
	tool := run(t, t.TempDir(), "descriptor", []string{"FLOW_STREAMLET=" + streamlet, "PYTHONPATH=python:../examples/python", "PYTHONDONTWRITEBYTECODE=1"}, "",
		filepath.Join(filepath.Dir(python), "descriptor"), "--out", file)
	if code := tool.exit(t, time.Minute); code != 0 {
		t.Fatal("descriptor ended with code ", code)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	spec := &flowv1.Spec{}
	if err := protojson.Unmarshal(text, spec); err != nil {
		t.Fatal(err)
	}
	return spec, text
}

// withPython is a world whose streamlet is written in Python, deployed with the descriptor that the SDK wrote.
func withPython(t *testing.T, c *cluster, streamlet string) *world {
	t.Helper()
	spec, text := described(t, streamlet)
	w := newWorld(t, c, spec)
	w.spec = text
	return w
}

func pythonOnShared(t *testing.T, streamlet string) *world {
	t.Helper()
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return withPython(t, c, streamlet)
}

// python starts a streamlet's process on a port: a file of this directory, or code when it is none.
func (w *world) python(port int, code string, env ...string) *proc {
	w.t.Helper()
	w.pythons++
	argv := []string{python, "-c", code}
	if strings.HasSuffix(code, ".py") {
		argv = []string{python, filepath.Join("python", code)}
	}
	return run(w.t, w.dir, fmt.Sprint("python", w.pythons), append([]string{fmt.Sprint("FLOW_PROCESS_PORT=", port), "PYTHONUNBUFFERED=1"}, env...), "", argv...)
}

func address(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// split is what splitter.py does.
var split route = func(_ string, value []byte) []string {
	place := crc32.ChecksumIEEE(value) % 8
	var outlets []string
	if place < 5 {
		outlets = append(outlets, "left")
	}
	if place > 3 {
		outlets = append(outlets, "right")
	}
	return outlets
}

func TestAHundredThousandRecordsPassThroughPythonOnceEach(t *testing.T) {
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	w := withPython(t, c, "splitter:Splitter")
	w.create(12, "in", "left")
	w.create(5, "right")
	w.produce(testkit.Load(w.topic("in"), 12, 100_000))
	port := freePort()
	w.python(port, "splitter.py")
	began := time.Now()
	s := w.sidecar(address(port))
	w.allCommitted(3 * time.Minute)
	t.Logf("100,000 records took %v, both starts among it", time.Since(began).Round(time.Millisecond))
	s.terminated(15 * time.Second)
	var outputs []*kgo.Record
	w.judge(split.expect, func(h *testkit.History) {
		h.NoRepeats = true
		outputs = h.Outputs
	})
	w.javaPlacesAlike(outputs)
}

// javaPlacesAlike has a Java producer send a record for every key of the outlets, and compares where it puts them.
func (w *world) javaPlacesAlike(outputs []*kgo.Record) {
	w.t.Helper()
	for _, out := range w.deployment.Outlets {
		keys := map[string]int32{}
		for _, r := range outputs {
			if r.Topic == out.Topic && r.Key != nil {
				keys[string(r.Key)] = r.Partition
			}
		}
		var lines strings.Builder
		for key := range keys {
			lines.WriteString(hex.EncodeToString([]byte(key)) + "\n")
		}
		topic := out.Name + "-by-java"
		w.create(w.partitions[out.Name], topic)
		producer := run(w.t, w.dir, topic, nil, lines.String(), "java", "-cp", kafkaLibs+"/*", filepath.Join("java", "JavaProducer.java"), w.deployment.Servers, w.topic(topic))
		if code := producer.exit(w.t, time.Minute); code != 0 {
			w.t.Fatal("the Java producer ended with code ", code)
		}
		placed, err := w.cluster.Read(w.ctx, w.topic(topic))
		if err != nil {
			w.t.Fatal(err)
		}
		if len(placed) != len(keys) || len(keys) == 0 {
			w.t.Fatalf("outlet %s has %d keys, the Java producer wrote %d records", out.Name, len(keys), len(placed))
		}
		for _, r := range placed {
			if keys[string(r.Key)] != r.Partition {
				w.t.Errorf("outlet %s: key %q is on partition %d, Java puts it on %d", out.Name, r.Key, keys[string(r.Key)], r.Partition)
			}
		}
		w.t.Logf("outlet %s: a Java producer puts all %d keys where they are", out.Name, len(keys))
	}
}

func TestWhateverIsKilledNothingIsLost(t *testing.T) {
	t.Parallel()
	const all = 100_000
	w := withPython(t, newCluster(t, 1), "splitter:Splitter")
	w.create(12, "in", "left")
	w.create(5, "right")
	port, otherPort := freePort(), freePort()
	pod := func(name string, port int) *sidecar {
		return w.sidecar(address(port), "FLOW_POD_NAME="+name, "FLOW_POD_NAMESPACE=e2e", "FLOW_RECONNECT_MAX_BACKOFF=1s")
	}
	process, s := w.python(port, "splitter.py"), pod("pod-0", port)
	var second *sidecar
	killProcess := func() {
		process.kill()
		process = w.python(port, "splitter.py")
	}
	killSidecar := func() {
		s.kill()
		s = pod("pod-0", port)
	}
	troubles := []func(){
		killProcess, killSidecar, killProcess,
		func() {
			w.cluster.brokers[0].stop(t)
			w.cluster.brokers[0].again(t)
		},
		killProcess, killSidecar,
		func() {
			w.python(otherPort, "splitter.py")
			second = pod("pod-1", otherPort)
			second.ready(time.Minute)
		},
		killProcess,
		func() { second.terminated(15 * time.Second) },
		killSidecar, killProcess,
	}
	// Each trouble comes while its part of the load is being worked off.
	load := testkit.Load(w.topic("in"), 12, all)
	part := len(load) / len(troubles)
	began := time.Now()
	for i, trouble := range troubles {
		last := (i + 1) * part
		if i == len(troubles)-1 {
			last = len(load)
		}
		w.produce(load[i*part : last])
		w.sum(time.Minute, int64(i*part)+1)
		t.Logf("trouble %d after %v", i+1, time.Since(began).Round(time.Millisecond))
		trouble()
	}
	t.Logf("the last was over after %v", time.Since(began).Round(time.Millisecond))
	w.allCommitted(2 * time.Minute)
	report := w.judge(split.expect, nil)
	t.Logf("the process was killed 5 times, the sidecar 3 times, the broker stopped once, a second sidecar came and went: %d of %d emits came twice", report.Repeats, report.Expected)
	s.terminated(15 * time.Second)
}

// expectConformance is what the reference streamlet does by each record's key, with factor 3.
func expectConformance(in *kgo.Record) []testkit.Emit {
	out := testkit.Unchanged("out", in)
	switch string(in.Key) {
	case "fan":
		return []testkit.Emit{out, testkit.Unchanged("other", in)}
	case "skip":
		return nil
	case "multiply":
		var emits []testkit.Emit
		for i := range 3 {
			e := out
			e.Headers = append(slices.Clone(in.Headers), kgo.RecordHeader{Key: "n", Value: fmt.Append(nil, i+1)})
			emits = append(emits, e)
		}
		return emits
	case "unkeyed":
		out.Key = nil
	case "header-echo":
		out.Headers = slices.Clone(in.Headers)
		slices.Reverse(out.Headers)
	}
	return []testkit.Emit{out}
}

// byKeys are n records for each key, and as many without one, over the partitions of a topic.
func byKeys(topic string, partitions int32, n int, keys ...string) (records []*kgo.Record) {
	for i := range n * (len(keys) + 1) {
		r := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Value: fmt.Appendf(nil, "%s#%d;", topic, i),
			Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte("2")}}}
		if k := i % (len(keys) + 1); k < len(keys) {
			r.Key = []byte(keys[k])
			r.Partition = testkit.JavaPartition(r.Key, partitions)
		}
		records = append(records, r)
	}
	return records
}

func TestTheReferenceStreamletIsServedByEachOfItsKeys(t *testing.T) {
	w := pythonOnShared(t, "ankka_flow._conformance:Conformance")
	w.deployment.Config = map[string]string{"factor": "3"}
	w.create(4, "in", "side", "out", "other")
	for _, inlet := range []string{"in", "side"} {
		w.produce(byKeys(w.topic(inlet), 4, 20, "echo", "fan", "skip", "late", "multiply", "unkeyed", "header-echo", "something else"))
	}
	port := freePort()
	w.python(port, conformance)
	s := w.sidecar(address(port))
	w.allCommitted(time.Minute)
	s.terminated(15 * time.Second)
	w.judge(expectConformance, func(h *testkit.History) { h.NoRepeats = true })
}

func TestARecordThatTheReferenceStreamletFailsHoldsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	for key, says := range map[string]string{"fail": "the record said fail", "rogue-outlet": "nope"} {
		t.Run(key, func(t *testing.T) {
			w := pythonOnShared(t, "ankka_flow._conformance:Conformance")
			w.deployment.Config = map[string]string{"factor": "3"}
			w.create(3, "in", "side", "out", "other")
			load := byKeys(w.topic("in"), 3, 50, "echo", "fan", "x")
			poison := &kgo.Record{Topic: w.topic("in"), Partition: 1, Key: []byte(key), Value: []byte("poison;")}
			w.produce(slices.Insert(load, 100, poison))
			port := freePort()
			w.python(port, conformance)
			s := w.sidecar(address(port))
			s.logs(time.Minute, says)
			held := testkit.TopicPartition{Topic: w.topic("in"), Partition: 1}
			testkit.Eventually(t, time.Minute, "all is committed but what is at and after the poisoned record", func() (bool, string) {
				committed, err := w.committed()
				ends, _ := w.kept.Ends(w.ctx, w.topic("in"))
				done := committed[held] == poison.Offset
				for tp, end := range ends {
					done = done && (tp == held || committed[tp] == end)
				}
				return done, fmt.Sprintf("%v of %v, poisoned is %d (%v)", committed, ends, poison.Offset, err)
			})
			w.judge(expectConformance, func(h *testkit.History) {
				h.Bound = map[testkit.TopicPartition]int64{held: poison.Offset}
			})
		})
	}
}
