package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var writeEvents = flag.Bool("write-events", false, "write the Events for the module that judges them by Kubernetes' code")

// TestTheEventsThatKubernetesJudgesAreTheSidecars keeps e2e/k8s, a module of its own that cannot import this one, up to date.
func TestTheEventsThatKubernetesJudgesAreTheSidecars(t *testing.T) {
	const file = "e2e/k8s/testdata/events.json"
	long := strings.Repeat("ö", 600)
	r := &recorder{pod: "cart-0", namespace: "shop"}
	longest := &recorder{pod: strings.Repeat("p", 180) + "." + strings.Repeat("q", 72), namespace: "shop"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	events := map[string]event{
		"a stall":                    r.event(stallInTests, at, testPodUID),
		"a token without a pod":      r.event(stallInTests, at, ""),
		"a long cause":               r.event(stallWarning{cause: long}, at, testPodUID),
		"a cause that is not UTF-8":  r.event(stallWarning{cause: "a\xff\xfe" + long}, at, testPodUID),
		"long names":                 longest.event(stallWarning{pipeline: long, streamlet: long, inlet: long, topic: long}, at, testPodUID),
		"a cause of several lines":   r.event(stallWarning{cause: "Traceback:\n\tcart\r\n\x00"}, at, testPodUID),
		"microseconds in the time":   r.event(stallInTests, at.Add(123456789), testPodUID),
		"nothing but a partition":    r.event(stallWarning{}, at, testPodUID),
		"a pod whose name has a dot": (&recorder{pod: "cart.router-0", namespace: "shop"}).event(stallInTests, at, testPodUID),
	}
	text, err := json.MarshalIndent(events, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *writeEvents {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, text) {
		t.Errorf("%s is not what the sidecar posts: go test -run %s . -write-events", file, t.Name())
	}
}
