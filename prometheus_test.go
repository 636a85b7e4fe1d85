package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

var pictureFile = flag.String("picture", "", "draw the dashboard of the night into this SVG file")

// scraped is one value of a scrape.
type scraped struct {
	series string // with its labels, and the instance that Prometheus adds
	value  string
}

const nightInstance = "cart-router-0"

var sampleLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)

func (s timedScrape) samples() []scraped {
	var samples []scraped
	for _, m := range sampleLine.FindAllSubmatch(s.text, -1) {
		instance := `instance="` + nightInstance + `"`
		if len(m[2]) > 0 {
			instance = string(m[2]) + "," + instance
		}
		samples = append(samples, scraped{string(m[1]) + "{" + instance + "}", string(m[3])})
	}
	return samples
}

// expectedAlert is what must be so of an alert in the night: silent until the chapter, firing within a time of its beginning, and
// silent again within a time of its end.
type expectedAlert struct {
	alert, chapter string
	fires, clears  time.Duration
}

var nightAlerts = []expectedAlert{
	{"FlowOldestUncommittedBatch", poisonedRecord, 3 * time.Minute, time.Minute},
	{"FlowPartitionStalled", poisonedRecord, 6 * time.Minute, time.Minute},
	{"FlowUnstable", poisonedRecord, 4 * time.Minute, 16 * time.Minute},
	{"FlowNotReady", processAway, 3 * time.Minute, time.Minute},
	{"FlowNotReady", brokerDown, 3 * time.Minute, time.Minute},
	{"FlowRecordsLost", recordsLost, 2 * time.Minute, 61 * time.Minute},
	{"FlowLagGrowing", slowProcess, 10 * time.Minute, 10 * time.Minute},
	{"FlowCommitFailures", commitsRefused, time.Minute, 11 * time.Minute},
	{"FlowUnstable", crashLoop, 4 * time.Minute, 16 * time.Minute},
	{"FlowRedelivery", crashLoop, 7 * time.Minute, 11 * time.Minute},
	{"FlowRetentionHeadroom", shortRetention, 8 * time.Minute, 28 * time.Minute},
}

// alertsFireAndClear gives what was scraped to Prometheus' own rule engine.
func (n *night) alertsFireAndClear(t *testing.T) {
	rules, err := filepath.Abs("deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`\b(ankka_flow_sidecar|kafka_consumer|kafka_producer)_\w+`).FindAllString(string(text), -1) {
		used[name] = true
	}
	var test strings.Builder
	fmt.Fprintf(&test, "rule_files: [%s]\nevaluation_interval: %s\ntests:\n- interval: %s\n  input_series:\n", rules, scrapeInterval, scrapeInterval)
	series := n.onGrid(func(name string) bool { return used[name] })
	for _, name := range slices.Sorted(maps.Keys(series)) {
		fmt.Fprintf(&test, "  - {series: '%s', values: '%s'}\n", name, strings.Join(series[name], " "))
	}
	fmt.Fprint(&test, "  promql_expr_test:\n")
	expect := func(at time.Duration, expr, want string) {
		fmt.Fprintf(&test, "  - {expr: '%s', eval_time: %s, exp_samples: [%s]}\n", expr, at.Truncate(scrapeInterval), want)
	}
	firing := func(alert string) string {
		return fmt.Sprintf(`group by (alertname) (ALERTS{alertname="%s",alertstate="firing"})`, alert)
	}
	for _, e := range nightAlerts {
		i := slices.IndexFunc(n.chapters, func(c chapter) bool { return c.name == e.chapter })
		begin, end := n.chapters[i].begin, n.chapters[i].end
		yes := fmt.Sprintf(`{labels: '{alertname="%s"}', value: 1}`, e.alert)
		if e.alert == "FlowPartitionStalled" || e.alert == "FlowOldestUncommittedBatch" || e.alert == "FlowNotReady" || e.alert == "FlowUnstable" {
			expect(begin, firing(e.alert), "")
		}
		expect(begin+e.fires, firing(e.alert), yes)
		expect(end+e.clears+scrapeInterval, firing(e.alert), "")
	}
	last := n.scrapes[len(n.scrapes)-1].at
	expect(n.chapters[0].begin, `group by (alertname) (ALERTS{alertstate="firing"})`, "")
	expect(last, `group by (alertname) (ALERTS{alertstate="firing"})`, "")
	file := filepath.Join(t.TempDir(), "night.yml")
	if err := os.WriteFile(file, []byte(test.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// onGrid are the series with one value each scrape interval, as promtool wants them.
func (n *night) onGrid(wanted func(name string) bool) map[string][]string {
	series := map[string][]string{}
	next := 0
	for step := 0; next < len(n.scrapes); step++ {
		at := time.Duration(step) * scrapeInterval
		fresh := map[string]string{}
		for next < len(n.scrapes) && n.scrapes[next].at < at+scrapeInterval {
			clear(fresh)
			for _, s := range n.scrapes[next].samples() {
				if name, _, _ := strings.Cut(s.series, "{"); wanted(name) {
					fresh[s.series] = s.value
				}
			}
			next++
		}
		for name, value := range fresh {
			for len(series[name]) < step {
				series[name] = append(series[name], "_")
			}
			series[name] = append(series[name], value)
		}
		for name, values := range series {
			if len(values) == step { // Prometheus notes at once that a series is gone
				gone := "_"
				if last := values[step-1]; last != "_" && last != "stale" {
					gone = "stale"
				}
				series[name] = append(values, gone)
			}
		}
	}
	return series
}

func (n *night) scrapesAreClean(t *testing.T) {
	for _, at := range []int{0, len(n.scrapes) / 2, len(n.scrapes) - 1} {
		check := exec.Command("promtool", "check", "metrics")
		check.Stdin = bytes.NewReader(n.scrapes[at].text)
		if output, err := check.CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("promtool check metrics: %v\n%s", err, output)
		}
	}
}

// panel is one of the dashboard's.
type panel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
}

func dashboardPanels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile("deploy/grafana/ankka-flow-sidecar.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// curve is a series over the night.
type curve struct {
	legend string
	points []linePoint
}

type linePoint struct{ at, value float64 } // seconds since the beginning of the night

// without are panels that a night in a bed without TLS has nothing for.
var without = []string{"Client certificates expire in"}

// dashboardHasAnswers runs every query of the dashboard over the night, in a Prometheus that has its scrapes.
func (n *night) dashboardHasAnswers(t *testing.T) {
	api := n.startPrometheus(t)
	panels := dashboardPanels(t)
	if len(panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(panels))
	}
	lines := make([][]curve, len(panels))
	for i, p := range panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m").Replace(target.Expr)
			answer := n.queryRange(t, api, expr, target.LegendFormat)
			if len(answer) == 0 && !slices.Contains(without, p.Title) {
				t.Errorf("panel %q: nothing for %s", p.Title, expr)
			}
			lines[i] = append(lines[i], answer...)
		}
	}
	if *pictureFile != "" {
		if err := os.WriteFile(*pictureFile, drawDashboard(n, panels, lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// startPrometheus gives the night's scrapes to a Prometheus and returns its address.
func (n *night) startPrometheus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var text bytes.Buffer
	for _, s := range n.scrapes {
		for _, sample := range s.samples() {
			fmt.Fprintf(&text, "%s %s %.3f\n", sample.series, sample.value, float64(n.began.Add(s.at).UnixMilli())/1000)
		}
	}
	fmt.Fprint(&text, "# EOF\n")
	scrapes, data, config := filepath.Join(dir, "scrapes.om"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	if err := cmp.Or(os.WriteFile(scrapes, text.Bytes(), 0o600), os.WriteFile(config, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", scrapes, data).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", &log)
		}
	})
	testkit.Eventually(t, time.Minute, "Prometheus is ready", func() (bool, string) {
		response, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	return "http://" + address
}

// queryRange asks for an expression over the night, a point each minute.
func (n *night) queryRange(t *testing.T, api, expr, legend string) []curve {
	t.Helper()
	end := n.began.Add(n.scrapes[len(n.scrapes)-1].at)
	unix := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	response, err := http.PostForm(api+"/api/v1/query_range", url.Values{"query": {expr}, "start": {unix(n.began)}, "end": {unix(end)}, "step": {"60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v, %s", expr, response.Status, err, body)
		return nil
	}
	var lines []curve
	for _, r := range answer.Data.Result {
		l := curve{legend: regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`).ReplaceAllStringFunc(legend, func(m string) string { return r.Metric[strings.Trim(m, "{} ")] })}
		for _, v := range r.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				l.points = append(l.points, linePoint{v[0].(float64) - float64(n.began.Unix()), value})
			}
		}
		if len(l.points) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}
