//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"google.golang.org/protobuf/proto"
)

func TestAnAnswerToDiscoverThatDoesNotFitEndsWithCodeOneAndAReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*flowv1.Spec)
		words  [][]string // each the words of one problem
	}{
		"a later major":  {func(s *flowv1.Spec) { s.ProtocolVersion = "2.0" }, [][]string{{"2.0", "1.0"}}},
		"a later minor":  {func(s *flowv1.Spec) { s.ProtocolVersion = "1.1" }, [][]string{{"1.1", "1.0"}}},
		"no version":     {func(s *flowv1.Spec) { s.ProtocolVersion = "one" }, [][]string{{"one", "1.0"}}},
		"another name":   {func(s *flowv1.Spec) { s.Streamlet.Name = "other" }, [][]string{{"other", "cart-router"}}},
		"an inlet more":  {func(s *flowv1.Spec) { s.Streamlet.Inlets = append(s.Streamlet.Inlets, testkit.Port("more", "m.v1")) }, [][]string{{"more"}}},
		"an outlet less": {func(s *flowv1.Spec) { s.Streamlet.Outlets = s.Streamlet.Outlets[:1] }, [][]string{{"valid"}}},
		"three at once": {func(s *flowv1.Spec) {
			s.Streamlet.Outlets[0] = testkit.Port("review", "other.v1")
			s.Streamlet.ConfigParameters[0].Type = flowv1.ConfigType_DOUBLE
			s.Streamlet.ConfigParameters = append(s.Streamlet.ConfigParameters, &flowv1.ConfigParameter{Key: "extra"})
		}, [][]string{{"review", "other.v1"}, {"review-threshold", "DOUBLE", "INTEGER"}, {"extra"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := onShared(t, testkit.CartRouter())
			answer := proto.CloneOf(testkit.CartRouter())
			c.change(answer)
			p := w.double(answer, nil)
			s := w.sidecar(p.Addr())
			if code := s.exit(t, 20*time.Second); code != 1 {
				t.Errorf("it ended with code %d, not 1", code)
			}
			reported := p.Reported()
			if len(reported) != 1 {
				t.Fatalf("ReportError came %d times: %q", len(reported), reported)
			}
			for _, words := range c.words {
				if !slices.ContainsFunc(reported[0], func(problem string) bool { return containsAll(problem, words) }) {
					t.Errorf("no problem with %q was reported: %q", words, reported[0])
				}
				if s.lines(words...) == 0 {
					t.Errorf("no line with %q is in the log", words)
				}
			}
			if len(p.Conversations()) > 0 {
				t.Error("a conversation began")
			}
			if s.isReady() {
				t.Error("it was ready")
			}
		})
	}
}

func TestDiscoverIsTriedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]testkit.Discovery{"it refuses": testkit.DiscoverRefuses, "it hangs": testkit.DiscoverHangs} {
		t.Run(name, func(t *testing.T) {
			spec := testkit.Spec("late", nil, nil)
			w := onShared(t, spec)
			p := w.double(spec, nil)
			p.SetDiscovery(how)
			s := w.sidecar(p.Addr(), "FLOW_DISCOVERY_TIMEOUT=300ms")
			testkit.Eventually(t, 20*time.Second, "Discover is called again", func() (bool, string) { return len(p.Discoveries()) >= 3, "" })
			if s.isReady() {
				t.Error("ready without a conversation")
			}
			p.SetDiscovery(testkit.DiscoverAnswers)
			s.ready(20 * time.Second)
			if info := p.Discoveries()[0]; info.GetProtocolVersion() != "1.0" || info.GetSidecarVersion() == "" {
				t.Errorf("it said of itself %v", info)
			}
			s.terminated(15 * time.Second)
		})
	}
}

func TestEveryConfigurationProblemIsToldAtOnceAndEndsWithCodeTwo(t *testing.T) {
	w := onShared(t, testkit.CartRouter())
	taken := w.double(testkit.CartRouter(), nil) // whose port cannot be the metrics port
	_, port, _ := strings.Cut(taken.Addr(), ":")
	dir := filepath.Join(w.dir, "broken")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	descriptor := strings.ReplaceAll(string(w.spec), "cart-router", "-cart-router-")
	descriptor = strings.Replace(descriptor, `"json"`, `"avro"`, 1)
	conf := `flow {
  pipeline = cart
  config { no-such-parameter = 1, review-threshold = many }
  inlets {
    in { bootstrap.servers = "127.0.0.1:1", batch.max-records = 0 }
    no-such-inlet { topic = t, bootstrap.servers = "127.0.0.1:1" }
  }
  outlets { valid { topic = t } }
}
`
	for file, text := range map[string]string{"descriptor.json": descriptor, "streamlet.conf": conf} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := w.sidecar(taken.Addr(), "FLOW_CONFIG_DIR="+dir, "FLOW_DISCOVERY_TIMEOUT=banana", "FLOW_STALL_WARNING_AFTER=-1s", "FLOW_METRICS_PORT="+port)
	if code := s.exit(t, 20*time.Second); code != 2 {
		t.Errorf("it ended with code %d, not 2", code)
	}
	for _, words := range [][]string{
		{"FLOW_DISCOVERY_TIMEOUT", "banana"},
		{"FLOW_STALL_WARNING_AFTER", "-1s"},
		{"FLOW_METRICS_PORT", port},
		{"descriptor.json", "-cart-router-"},
		{"descriptor.json", "avro"},
		{"streamlet.conf", "flow.streamlet"},
		{"streamlet.conf", "no-such-parameter"},
		{"streamlet.conf", "review-threshold", "many"},
		{"streamlet.conf", "in", "topic"},
		{"streamlet.conf", "max-records"},
		{"streamlet.conf", "no-such-inlet"},
		{"streamlet.conf", "valid", "bootstrap.servers"},
		{"review"},
	} {
		if s.lines(words...) == 0 {
			t.Errorf("no line with %q is in its log", words)
		}
	}
	if len(taken.Discoveries()) > 0 {
		t.Error("it called Discover with a configuration that it refuses")
	}
	if t.Failed() {
		t.Log("\n" + s.output())
	}
}

func TestAMissingFileEndsWithCodeTwo(t *testing.T) {
	for _, missing := range []string{"descriptor.json", "streamlet.conf"} {
		t.Run(missing, func(t *testing.T) {
			w := onShared(t, testkit.CartRouter())
			dir := w.configDir("incomplete")
			if err := os.Remove(filepath.Join(dir, missing)); err != nil {
				t.Fatal(err)
			}
			s := w.sidecar("127.0.0.1:1", "FLOW_CONFIG_DIR="+dir)
			if code := s.exit(t, 20*time.Second); code != 2 {
				t.Errorf("it ended with code %d, not 2", code)
			}
			if s.lines("level=ERROR", missing, filepath.Base(dir)) == 0 {
				t.Error("that it is missing is not said")
			}
		})
	}
}
