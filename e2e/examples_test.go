//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protojson"
)

// TestEachExampleRoutesCartsUnderTheDescriptorOfTheComposeFile runs every process of examples/ as the documents say.
func TestEachExampleRoutesCartsUnderTheDescriptorOfTheComposeFile(t *testing.T) {
	t.Parallel()
	for language, command := range map[string]func(dir string) []string{
		"python": func(string) []string { return []string{python, "../examples/python/cart_router.py"} },
		"node":   func(string) []string { return []string{"node", "../examples/node/cart_router.js"} },
		"go": func(dir string) []string {
			binary := filepath.Join(dir, "cart-router")
			if out, err := exec.Command("go", "build", "-o", binary, "../examples/go").CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
			return []string{binary}
		},
	} {
		t.Run(language, func(t *testing.T) {
			text, err := os.ReadFile("../deploy/compose/flow/descriptor.json")
			if err != nil {
				t.Fatal(err)
			}
			spec := &flowv1.Spec{}
			if err := protojson.Unmarshal(text, spec); err != nil {
				t.Fatal(err)
			}
			w := onShared(t, spec)
			w.spec = text
			w.create(3, "in", "valid", "review")
			var records []*kgo.Record
			for i := range 600 {
				value := fmt.Appendf(nil, `{"customer":"c%d","total":%d}`, i%50, i%200)
				if i%100 == 99 {
					value = fmt.Appendf(nil, "no cart, but %d", i)
				}
				r := &kgo.Record{Topic: w.topic("in"), Key: fmt.Append(nil, "c", i%50), Value: value,
					Headers: []kgo.RecordHeader{{Key: testkit.IDHeader, Value: fmt.Append(nil, i)}, {Key: "empty"}}}
				if i%50 == 7 {
					r.Key = nil
				}
				r.Partition = int32(i % 3)
				if r.Key != nil {
					r.Partition = testkit.JavaPartition(r.Key, 3)
				}
				records = append(records, r)
			}
			w.produce(records)
			port := freePort()
			process := run(t, w.dir, language, []string{fmt.Sprint("FLOW_PROCESS_PORT=", port)}, "", command(w.dir)...)
			s := w.sidecar(address(port))
			w.allCommitted(time.Minute)
			w.judge(expectCarts, func(h *testkit.History) { h.NoRepeats = true })

			// What comes while the process is away is worked off when it is back.
			process.kill()
			w.produce(again(records))
			run(t, w.dir, language+"-again", []string{fmt.Sprint("FLOW_PROCESS_PORT=", port)}, "", command(w.dir)...)
			w.allCommitted(time.Minute)
			s.terminated(15 * time.Second)
			w.judge(expectCarts, nil)
		})
	}
}

// expectCarts is what an example does with the threshold's default.
func expectCarts(in *kgo.Record) []testkit.Emit {
	var total int
	if n, _ := fmt.Sscanf(string(in.Value), `{"customer":"c%d","total":%d}`, new(int), &total); n < 2 {
		return nil // skipped
	}
	if total > 100 {
		return []testkit.Emit{testkit.Unchanged("review", in)}
	}
	return []testkit.Emit{testkit.Unchanged("valid", in)}
}

// again are the same records under other identities.
func again(records []*kgo.Record) (more []*kgo.Record) {
	for i, r := range records {
		more = append(more, &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value,
			Headers: []kgo.RecordHeader{{Key: testkit.IDHeader, Value: fmt.Append(nil, len(records)+i)}}})
	}
	return more
}
