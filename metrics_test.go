package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scrape is what the sidecar's metrics port answered.
type scrape map[string]*dto.MetricFamily

// scrape asks the metrics port of s.
func (s *instance) scrape() scrape {
	s.bed.t.Helper()
	text := s.scrapeText()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		s.bed.t.Fatal(err)
	}
	for name, family := range families {
		seen := map[string]bool{}
		for _, m := range family.Metric {
			labels := fmt.Sprint(m.Label)
			if seen[labels] {
				s.bed.t.Errorf("%s is there twice with the labels %s", name, labels)
			}
			seen[labels] = true
		}
	}
	return families
}

func (s *instance) scrapeText() []byte {
	s.bed.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return s.bed.net.dial(ctx, network, s.metrics())
	}}}
	response, err := client.Get("http://sidecar/metrics")
	if err != nil {
		s.bed.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.bed.t.Fatal(err)
	}
	return text
}

// value is the value of the one series of that name whose labels have the given values, in any order; NaN when there is none.
func (s scrape) value(name string, values ...string) float64 {
	family := s[name]
	for _, m := range family.GetMetric() {
		var have []string
		for _, l := range m.Label {
			have = append(have, l.GetValue())
		}
		if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(have, v) }) {
			switch {
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			case m.Counter != nil:
				return m.Counter.GetValue()
			}
			return m.Gauge.GetValue()
		}
	}
	return math.NaN()
}

// expect compares values.
func (s scrape) expect(t *testing.T, name string, want float64, values ...string) {
	t.Helper()
	if got := s.value(name, values...); math.Abs(got-want) > 1e-9 || math.IsNaN(got) != math.IsNaN(want) {
		t.Errorf("%s%v is %v, not %v", name, values, got, want)
	}
}

// documented is a row of docs/metrics.md.
type documented struct{ kind, labels string }

func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]documented{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\| ([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		table[m[1]] = documented{kind: m[2], labels: strings.TrimSpace(strings.ReplaceAll(m[3], "`", ""))}
	}
	return table
}

// compareWithDocuments checks names, types and labels. The metrics of the Go runtime and the process are not the sidecar's.
func compareWithDocuments(t *testing.T, seen ...scrape) {
	t.Helper()
	have := map[string]documented{}
	for _, s := range seen {
		for name, family := range s {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			var names []string
			for _, l := range family.Metric[0].Label {
				names = append(names, l.GetName())
			}
			have[name] = documented{kind: strings.ToLower(family.GetType().String()), labels: strings.Join(names, ", ")}
		}
	}
	want := documentedMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			t.Errorf("docs/metrics.md says of %s %+v, there is %+v", name, want[name], have[name])
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("%s is not in docs/metrics.md", name)
	}
}

const (
	javaFetch    = "kafka_consumer_consumer_fetch_manager_metrics_"
	javaGroup    = "kafka_consumer_consumer_coordinator_metrics_"
	javaProducer = "kafka_producer_producer_metrics_"
	ours         = "ankka_flow_sidecar_"
)

// TestEverySeriesIsAsDocumented drives each series at least once and compares its values with what was done.
func TestEverySeriesIsAsDocumented(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Consumer = map[string]string{"heartbeat.interval.ms": "1000"}
		b.process.SetDiscovery(testkit.DiscoverRefuses)
		s := b.start()
		time.Sleep(time.Second)
		before := s.scrape()
		before.expect(t, ours+"ready", 0)
		before.expect(t, ours+"discovery_attempts_total", 2, "no_answer")
		before.expect(t, ours+"conversations_total", 0)
		b.process.SetDiscovery(testkit.DiscoverAnswers)
		s.awaitReady()
		time.Sleep(10 * time.Second)

		idle := s.scrape()
		for _, name := range []string{"records_lag", "records_lag_max", "records_lag_avg", "records_lead", "records_lead_min", "records_lead_avg"} {
			for p := range 3 {
				idle.expect(t, javaFetch+name, 0, "pipe.echo.in", "in", strconv.Itoa(p))
			}
		}
		idle.expect(t, ours+"ready", 1)
		idle.expect(t, ours+"discovery_attempts_total", 1, "answered")
		idle.expect(t, javaGroup+"assigned_partitions", 3, "pipe.echo.in")
		idle.expect(t, javaGroup+"rebalance_total", 1)
		idle.expect(t, javaGroup+"failed_rebalance_total", 0)
		idle.expect(t, ours+"partitions_assigned_total", 3, "in")
		idle.expect(t, ours+"stalled_offset", math.NaN())
		if ago := idle.value(javaGroup + "last_heartbeat_seconds_ago"); ago != 0 && ago != 1 {
			t.Errorf("the last heartbeat was %v s ago, with one a second", ago)
		}
		idle.expect(t, ours+"memory_budget_bytes", fetchedAtMost)

		// A poisoned record at offset 57 of partition 1, and a commit that is refused once.
		remove := b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57)})
		b.refuseCommits(1, kerr.RequestTimedOut)
		b.produce(600)
		time.Sleep(6 * time.Minute)
		stuck := s.scrape()
		ends, _ := b.offsets()
		behind := float64(ends[testkit.TopicPartition{Topic: "in", Partition: 1}] - 57)
		stuck.expect(t, javaFetch+"records_lag", behind, "1")
		stuck.expect(t, javaFetch+"records_lag_max", behind, "1")
		stuck.expect(t, javaFetch+"records_lead", 57, "1")
		stuck.expect(t, javaFetch+"records_lag", 0, "0")
		stuck.expect(t, ours+"stalled_offset", 57, "1")
		stuck.expect(t, ours+"held_partitions", 1, "in")
		stuck.expect(t, ours+"in_flight", 0, "1")
		if age := stuck.value(ours+"stalled_seconds", "1"); age < 350 || age > 361 || age != stuck.value(ours+"oldest_uncommitted_seconds") {
			t.Errorf("stalled for %v s, the oldest of the inlet for %v s, after 6 minutes", age, stuck.value(ours+"oldest_uncommitted_seconds"))
		}
		if n := stuck.value(ours+"conversation_ends_total", "batch_failed"); n < 5 {
			t.Errorf("%v conversations ended with a failed batch", n)
		}
		if n := stuck.value(ours+"redelivered_records_total", "1"); n < 5 {
			t.Errorf("%v records delivered again", n)
		}
		stuck.expect(t, ours+"commit_failures_total", 1, "request_timed_out", "in")
		remove()
		b.awaitCaughtUp(5 * time.Minute)
		time.Sleep(5 * time.Second)
		done := s.scrape()
		done.expect(t, javaFetch+"records_lag", 0, "1")
		done.expect(t, ours+"stalled_seconds", 0, "1")
		done.expect(t, ours+"stalled_offset", math.NaN(), "1")
		done.expect(t, ours+"held_partitions", 0)
		done.expect(t, ours+"records_out_total", 600, "out")
		done.expect(t, ours+"retention_headroom_records", float64(ends[testkit.TopicPartition{Topic: "in"}]), "0")

		// Rates over the Java client's window: 300 records within it.
		time.Sleep(2 * time.Minute)
		begin := s.scrape()
		begin.expect(t, javaFetch+"records_consumed_rate", 0, "in")
		b.produce(300)
		time.Sleep(20 * time.Second)
		flowing := s.scrape()
		for _, name := range []string{javaFetch + "records_consumed_rate", javaProducer + "record_send_rate"} {
			if rate := flowing.value(name); rate < 300.0/60 || rate > 300.0/30 {
				t.Errorf("%s is %v", name, rate)
			}
		}
		if rate := flowing.value(javaFetch + "bytes_consumed_rate"); rate < 10 {
			t.Errorf("bytes_consumed_rate is %v", rate)
		}
		if rate := flowing.value(javaProducer + "byte_rate"); rate < 10 {
			t.Errorf("byte_rate is %v", rate)
		}
		flowing.expect(t, javaFetch+"records_lag", 0, "1")
		if peak := flowing.value(javaFetch+"records_lag_max", "1"); peak < 10 {
			t.Errorf("the maximum lag in the window is %v, when about 100 records came in a few pieces", peak)
		}
		for _, name := range []string{javaFetch + "fetch_latency_avg", javaGroup + "commit_latency_avg", javaProducer + "request_latency_avg"} {
			if ms := flowing.value(name); math.IsNaN(ms) || ms < 0 || ms > 1000 {
				t.Errorf("%s is %v", name, ms)
			}
		}
		for _, name := range []string{"batch_records", "process_seconds", "write_seconds", "commit_seconds", "commit_record_age_seconds"} {
			if n := flowing.value(ours+name, "in"); !(n > 0) {
				t.Errorf("%s has %v observations", name, n)
			}
		}

		// A slow process, lag while nothing moves, and the process away: a stall of another kind.
		caughtUp, _ := b.offsets()
		third := testkit.TopicPartition{Topic: "in", Partition: 2}
		b.process.Inject(testkit.Fault{Do: testkit.Hang, Times: 3})
		b.produce(300)
		time.Sleep(time.Second)
		ends, _ = b.offsets()
		hung := s.scrape()
		hung.expect(t, ours+"in_flight", 1, "2")
		hung.expect(t, javaFetch+"records_lag", float64(ends[third]-caughtUp[third]), "2")
		b.process.Close()
		time.Sleep(time.Second)
		b.produce(300)
		time.Sleep(5 * time.Second)
		ends, _ = b.offsets()
		away := s.scrape()
		away.expect(t, javaFetch+"records_lag", float64(ends[third]-caughtUp[third]), "2")
		away.expect(t, ours+"ready", 0)
		away.expect(t, ours+"conversation_ends_total", 1, "process_gone")
		b.startProcess()
		b.awaitCaughtUp(time.Minute)

		// A write that is refused when a part of the batch was written: what is then written again may be there twice.
		b.refuseWrites(1, kerr.TopicAuthorizationFailed)
		b.produce(300)
		b.awaitCaughtUp(time.Minute)
		refused := s.scrape()
		if n := refused.value(javaProducer+"record_error_total", "out"); !(n >= 1) {
			t.Errorf("%v records in error", n)
		}
		refused.expect(t, ours+"conversation_ends_total", 1, "write_refused")
		var repeats float64
		for p := range 3 {
			repeats += refused.value(ours+"repeats_written_total", strconv.Itoa(p))
		}
		if repeats < 1 {
			t.Errorf("%v repeats written", repeats)
		}

		// The backoff, while it runs, after a conversation that lasted.
		time.Sleep(2 * time.Minute)
		b.process.Inject(testkit.Fault{Do: testkit.CloseSide, Times: 1})
		b.produce(30)
		time.Sleep(100 * time.Millisecond)
		s.scrape().expect(t, ours+"reconnect_backoff_seconds", 0.5)
		b.awaitCaughtUp(time.Minute)

		// A partition goes to another pod, with its series.
		other := b.startPod()
		other.awaitReady()
		time.Sleep(10 * time.Second)
		shared := s.scrape()
		held := shared.value(javaGroup + "assigned_partitions")
		if n := len(shared[javaFetch+"records_lag"].Metric); float64(n) != held || n == 3 || n == 0 {
			t.Errorf("%d lags of %v partitions", n, held)
		}
		shared.expect(t, ours+"partitions_revoked_total", 3-held)
		compareWithDocuments(t, stuck, shared, withCertificate())
	})
}

// withCertificate is the scrape of a port with a client certificate, which the bed's plain text has not.
func withCertificate() scrape {
	expires := time.Unix(1893456000, 0)
	client := &tlsClient{key: &reloading[*tls.Certificate]{known: true, value: &tls.Certificate{Leaf: &x509.Certificate{NotAfter: expires}}}}
	points := newOwnSeries().portPoints(nil, &PortConfig{Name: "in"}, &Connection{CertificateExpires: client.certificateExpires})
	if points[0].value != 1893456000 || len(newOwnSeries().portPoints(nil, &PortConfig{}, &Connection{CertificateExpires: (&tlsClient{}).certificateExpires})) > 0 {
		panic("the expiry is not the certificate's, or is there without one")
	}
	family := inFamilies(points)[0]
	return scrape{family.GetName(): family}
}

func TestRecordsLostToRetentionAreCountedAndTold(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		s := b.start()
		s.awaitReady()
		b.produce(100)
		b.awaitCaughtUp(time.Minute)
		s.stop()
		b.produce(200)
		b.deleteBefore(0, 250)
		s = b.start()
		s.awaitReady()
		b.awaitCaughtUp(time.Minute)
		now := s.scrape()
		now.expect(t, ours+"retention_lost_records_total", 150, "0")
		now.expect(t, ours+"log_start_offset", 250, "0")
		now.expect(t, ours+"retention_headroom_records", 50, "0")
		if log := s.log.String(); strings.Count(log, "removed=150") != 1 || !strings.Contains(log, "level=ERROR") {
			t.Errorf("the log:\n%s", log)
		}
	})
}

func TestAScrapeOfAThousandPartitionsIsShort(t *testing.T) {
	cfg := &InletConfig{PortConfig: PortConfig{Name: "in", Topic: "shop.cart-events.v1", ClientID: "cart.router.in"}}
	budget := &memoryBudget{limit: fetchedAtMost}
	ready := newReadiness(newMemFiles(), "/", nil, nil, nil)
	m := newMetrics(ready, budget)
	in := newInlet(cfg, "", network{}, budget, ready, m.inlet("in"), newLog(io.Discard, "text", 0))
	for p := range int32(1000) {
		in.held[p] = newAssignment(in, p)
		in.held[p].logStart, in.held[p].base = 0, 0
	}
	series := newGatherer(m, []*inlet{in}, nil)
	server := metricsHandler(series)
	first := &answer{header: http.Header{}}
	server.ServeHTTP(first, &http.Request{Header: http.Header{}})
	if text := first.body.String(); !strings.Contains(text, `records_lag_max{client_id="cart.router.in",partition="7",topic="shop_cart-events_v1"} 0`) {
		t.Error("a partition that was just assigned has no maximum lag of 0 under its Kafka name")
	}
	best := time.Hour
	var n int
	for range 20 {
		w := &answer{header: http.Header{}}
		began := processorTime() // the others on this machine have no say in it
		server.ServeHTTP(w, &http.Request{Header: http.Header{}})
		best, n = min(best, processorTime()-began), bytes.Count(w.body.Bytes(), []byte("\n"))
	}
	t.Logf("%d lines in %s", n, best)
	if n < 13000 || best > raceFactor()*50*time.Millisecond {
		t.Errorf("%d lines in %s", n, best)
	}
}

// metrics is the address of the sidecar's metrics port: the first listener that it made.
func (s *instance) metrics() string {
	s.bed.net.mu.Lock()
	defer s.bed.net.mu.Unlock()
	return s.metricsAddress
}

// deleteBefore is what retention does.
func (b *bed) deleteBefore(partition int32, offset int64) {
	b.t.Helper()
	if err := b.kafka.Admin(func(admin *kadm.Client) error {
		var offsets kadm.Offsets
		offsets.AddOffset("in", partition, offset, -1)
		_, err := admin.DeleteRecords(context.Background(), offsets)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	b.inputs = slices.DeleteFunc(b.inputs, func(r *kgo.Record) bool { return r.Partition == partition && r.Offset < offset })
}

// refuseCommits refuses the next n commits.
func (b *bed) refuseCommits(n int, why *kerr.Error) {
	var left atomic.Int64
	left.Store(int64(n))
	b.refuseCommitsWhile(&left, why)
}

// refuseCommitsWhile refuses each commit and counts down, as long as there is something left.
func (b *bed) refuseCommitsWhile(left *atomic.Int64, why *kerr.Error) {
	b.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		if left.Add(-1) < 0 {
			return nil, nil, false
		}
		commit := req.(*kmsg.OffsetCommitRequest)
		resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range commit.Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewOffsetCommitResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, why.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

// refuseWrites refuses the next n writes to topic out.
func (b *bed) refuseWrites(n int, why *kerr.Error) {
	out := b.cluster.TopicInfo("out").TopicID
	b.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		b.cluster.KeepControl()
		if n == 0 || len(produce.Topics) == 0 || produce.Topics[0].TopicID != out {
			return nil, nil, false
		}
		n--
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range produce.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, why.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}
