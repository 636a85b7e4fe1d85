//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// world is one deployed streamlet of a test: its topics, its files, its sidecars and processes, all under names of their own, so that
// tests that only wait can wait together on one broker.
type world struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster
	kept    *testkit.Kafka // for looking at offsets often
	dir     string

	spec       []byte // descriptor.json
	deployment testkit.Deployment
	operator   bool // streamlet.conf as the operator renders it
	partitions map[string]int32
	sidecars   int
	pythons    int
	inputs     []*kgo.Record
	env        []string // of its sidecars, besides
}

var worlds atomic.Int32

// notFromTheCache looks at every file that goes into what is tested. The test cache sees only what a test looks at by itself, and not
// that it builds a program; without this it would answer for a sidecar that was changed since.
var notFromTheCache = sync.OnceValue(func() error {
	_ = os.Getenv("ANKKA_FLOW_SIDECAR")
	return filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch filepath.Ext(path) {
		case ".go", ".mod", ".sum", ".py", ".java", ".sh":
			if err == nil {
				_, err = os.Stat(path)
			}
		}
		return err
	})
})

// onShared is a world on the broker that all share.
func onShared(t *testing.T, spec *flowv1.Spec) *world {
	t.Helper()
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, c, spec)
}

// newWorld is a world whose ports' topics have the port's name after a prefix of the test.
func newWorld(t *testing.T, c *cluster, spec *flowv1.Spec) *world {
	t.Helper()
	if err := notFromTheCache(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), cluster: c, dir: t.TempDir(), spec: testkit.DescriptorJSON(spec), partitions: map[string]int32{}}
	kept, end, err := c.Keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	w.kept = kept
	w.deployment = testkit.Deployment{Pipeline: fmt.Sprintf("p%d", worlds.Add(1)), Streamlet: "it", Servers: c.servers()}
	for _, port := range spec.GetStreamlet().GetInlets() {
		w.deployment.Inlets = append(w.deployment.Inlets, testkit.Inlet{Name: port.GetName(), Topic: w.topic(port.GetName())})
	}
	for _, port := range spec.GetStreamlet().GetOutlets() {
		w.deployment.Outlets = append(w.deployment.Outlets, testkit.OutletPort{Name: port.GetName(), Topic: w.topic(port.GetName())})
	}
	return w
}

func (w *world) topic(port string) string { return w.deployment.Pipeline + "." + port }

// create makes the topics of ports.
func (w *world) create(partitions int32, ports ...string) {
	w.t.Helper()
	for _, port := range ports {
		w.createWith(port, partitions, nil)
	}
}

func (w *world) createWith(port string, partitions int32, config map[string]string) {
	w.t.Helper()
	replicas := int16(len(w.cluster.brokers))
	if err := w.cluster.Create(w.ctx, w.topic(port), partitions, replicas, config); err != nil {
		w.t.Fatal(err)
	}
	w.partitions[port] = partitions
	w.known(port, partitions)
}

// known waits until a broker knows the partitions of a port's topic, which it does a little after they were made.
func (w *world) known(port string, partitions int32) {
	w.t.Helper()
	testkit.Eventually(w.t, time.Minute, fmt.Sprintf("%s has %d partitions", w.topic(port), partitions), func() (bool, string) {
		ends, err := w.cluster.Ends(w.ctx, w.topic(port))
		return err == nil && len(ends) == int(partitions), fmt.Sprint(ends, err)
	})
}

// produce writes records to inlets' topics and keeps them as this world's inputs.
func (w *world) produce(records []*kgo.Record) {
	w.t.Helper()
	if err := w.cluster.Produce(w.ctx, records); err != nil {
		w.t.Fatal(err)
	}
	w.inputs = append(w.inputs, records...)
}

// double is a process double on a port of its own.
func (w *world) double(spec *flowv1.Spec, handler testkit.Handler) *testkit.Process {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	p := testkit.NewProcess(l, spec, handler)
	w.t.Cleanup(p.Close)
	return p
}

// groups are the consumer groups of the inlets: the given ones, or those that the reference says are the default.
func (w *world) groups() []string {
	var groups []string
	for _, in := range w.deployment.Inlets {
		group := in.Group
		if group == "" {
			group = fmt.Sprintf("%s.%s.%s", w.deployment.Pipeline, w.deployment.Streamlet, in.Name)
		}
		groups = append(groups, group)
	}
	return groups
}

func (w *world) inletTopics() (topics []string) {
	for _, in := range w.deployment.Inlets {
		topics = append(topics, in.Topic)
	}
	return topics
}

func (w *world) committed() (map[testkit.TopicPartition]int64, error) {
	all := map[testkit.TopicPartition]int64{}
	for _, group := range w.groups() {
		committed, err := w.kept.Committed(w.ctx, group)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, committed)
	}
	return all, nil
}

// allCommitted waits until every inlet partition is committed to its end.
func (w *world) allCommitted(within time.Duration) {
	w.t.Helper()
	testkit.Eventually(w.t, within, "all is committed", func() (bool, string) {
		ends, err := w.kept.Ends(w.ctx, w.inletTopics()...)
		if err != nil {
			return false, err.Error()
		}
		committed, err := w.committed()
		if err != nil {
			return false, err.Error()
		}
		var short []string
		for tp, end := range ends {
			if committed[tp] != end {
				short = append(short, fmt.Sprintf("%s %d of %d", tp, committed[tp], end))
			}
		}
		return len(short) == 0, "committed are " + strings.Join(short, ", ")
	})
}

// sum waits until as many records are committed in all.
func (w *world) sum(within time.Duration, atLeast int64) {
	w.t.Helper()
	testkit.Eventually(w.t, within, fmt.Sprint(atLeast, " records are committed"), func() (bool, string) {
		committed, err := w.committed()
		sum := int64(0)
		for _, offset := range committed {
			sum += offset
		}
		return sum >= atLeast, fmt.Sprint(sum, " ", err)
	})
}

// judge reads everything back, gives it to the checker, fails the test on a problem and prints what came twice. Histories are complete
// unless change says otherwise. What is committed is read first: what is committed by then has to be in the outlets.
func (w *world) judge(expect func(*kgo.Record) []testkit.Emit, change func(*testkit.History)) *testkit.Report {
	w.t.Helper()
	report := w.report(expect, change)
	if err := report.Err(); err != nil {
		w.t.Error(err)
	}
	w.t.Log(strings.SplitN(report.String(), "\n", 2)[0])
	return report
}

func (w *world) report(expect func(*kgo.Record) []testkit.Emit, change func(*testkit.History)) *testkit.Report {
	w.t.Helper()
	h := testkit.History{Inputs: w.inputs, Expect: expect, Outlets: map[string]testkit.Outlet{}, Complete: true}
	var err error
	if h.Committed, err = w.committed(); err != nil {
		w.t.Fatal(err)
	}
	if h.Ends, err = w.cluster.Ends(w.ctx, w.inletTopics()...); err != nil {
		w.t.Fatal(err)
	}
	var topics []string
	for _, out := range w.deployment.Outlets {
		h.Outlets[out.Name] = testkit.Outlet{Topic: out.Topic, Partitions: w.partitions[out.Name]}
		topics = append(topics, out.Topic)
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if h.Outputs, err = w.cluster.Read(ctx, topics...); err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(&h)
	}
	return testkit.Check(h)
}

// configDir writes descriptor.json and streamlet.conf.
func (w *world) configDir(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	conf := w.deployment.Conf()
	if w.operator {
		conf = w.deployment.Operator()
	}
	for file, text := range map[string][]byte{"descriptor.json": w.spec, "streamlet.conf": conf} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	return dir
}
