// Package k8s judges the sidecar's Events by Kubernetes' own code.
package k8s

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/events/install"

	eventsv1 "k8s.io/api/events/v1"
)

// problems is what an API server says of the body of a post: it decodes strictly, and validates what it would store.
func problems(t *testing.T, body []byte) string {
	t.Helper()
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	object, err := runtime.Decode(codecs.UniversalDecoder(), body)
	if err != nil {
		return err.Error()
	}
	event, ok := object.(*core.Event)
	if !ok {
		t.Fatalf("the body is a %T", object)
	}
	if errs := validation.ValidateEventCreate(event, eventsv1.SchemeGroupVersion); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// TestKubernetesTakesEveryEventThatTheSidecarWrites reads what the sidecar's own test writes down.
func TestKubernetesTakesEveryEventThatTheSidecarWrites(t *testing.T) {
	for name, body := range events(t) {
		if said := problems(t, body); said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// TestKubernetesRefusesWhatTheSidecarMustNotWrite shows that the judge judges.
func TestKubernetesRefusesWhatTheSidecarMustNotWrite(t *testing.T) {
	body := events(t)["a stall"]
	for name, change := range map[string]func(event map[string]any){
		"a time of three digits":    func(e map[string]any) { e["eventTime"] = "2026-01-02T03:04:05.123Z" },
		"no reason":                 func(e map[string]any) { e["reason"] = "" },
		"no action":                 func(e map[string]any) { delete(e, "action") },
		"no reporting controller":   func(e map[string]any) { delete(e, "reportingController") },
		"no reporting instance":     func(e map[string]any) { delete(e, "reportingInstance") },
		"a long reporting instance": func(e map[string]any) { e["reportingInstance"] = strings.Repeat("p", 129) },
		"a long note":               func(e map[string]any) { e["note"] = strings.Repeat("ö", 600) },
		"another type":              func(e map[string]any) { e["type"] = "Error" },
		"a name with an underscore": func(e map[string]any) { e["metadata"].(map[string]any)["name"] = "cart_0" },
		"a key that nobody knows":   func(e map[string]any) { e["message"] = "x" },
		"a pod without a namespace": func(e map[string]any) { e["regarding"].(map[string]any)["namespace"] = "" },
	} {
		var event map[string]any
		if err := json.Unmarshal(body, &event); err != nil {
			t.Fatal(err)
		}
		change(event)
		changed, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		if problems(t, changed) == "" {
			t.Errorf("an Event with %s is taken", name)
		}
	}
}

func events(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile("testdata/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var events map[string]json.RawMessage
	if err := json.Unmarshal(text, &events); err != nil || len(events) == 0 {
		t.Fatalf("%d Events, %v", len(events), err)
	}
	return events
}
