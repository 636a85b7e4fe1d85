package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestAlertsAndDashboardReadOnlyDocumentedSeriesAndEachAlertHasItsRunbook(t *testing.T) {
	known := documentedMetrics(t)
	alerts, err := os.ReadFile("deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := os.ReadFile("deploy/grafana/ankka-flow-sidecar.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(dashboard) {
		t.Error("the dashboard is no JSON")
	}
	used := regexp.MustCompile(`\b(?:ankka_flow_sidecar|kafka_consumer|kafka_producer)_[a-z_]+`).FindAllString(string(alerts)+string(dashboard), -1)
	if len(used) < 40 {
		t.Errorf("only %d series are used", len(used))
	}
	for _, name := range used {
		base := name
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, part); ok && known[cut].kind == "histogram" {
				base = cut
			}
		}
		if _, ok := known[base]; !ok {
			t.Errorf("%s is used and not in docs/metrics.md", name)
		}
	}
	runbook, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		if !strings.Contains(string(runbook), "\n### "+m[1]+"\n") || !strings.Contains(string(alerts), "docs/operations.md#"+strings.ToLower(m[1])+"\n") {
			t.Errorf("alert %s has no section in docs/operations.md, or does not name it", m[1])
		}
	}
}
