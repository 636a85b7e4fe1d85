package main

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const namespace = "ankka_flow_sidecar"

// metrics are the sidecar's own that are counted where something happens. Each port has its handles resolved at start, so
// that nothing is looked up where records flow. It is a prometheus.Collector.
type metrics struct {
	build, ready, budget, used prometheus.Collector

	conversations prometheus.Counter
	ends          *prometheus.CounterVec // by cause
	discoveries   *prometheus.CounterVec // by result
	backoff       prometheus.Gauge       // seconds; 0 while nothing is waited for

	recordsIn, bytesIn, recordsOut, bytesOut *prometheus.CounterVec
	assignments, revocations, losses         *prometheus.CounterVec
	commitFailures                           *prometheus.CounterVec // by inlet and cause
	batchRecords                             *prometheus.HistogramVec
	process, write, commit, age              *prometheus.HistogramVec
}

// The results of a discovery attempt.
const (
	discoveryAnswered = "answered"
	discoveryRefused  = "refused"
	discoveryNoAnswer = "no_answer"
)

func newMetrics(ready *readiness, budget *memoryBudget) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, read)
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, []string{"inlet"})
	}
	latency := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &metrics{
		build: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "1, with what the sidecar was built as.",
			ConstLabels: prometheus.Labels{"version": sidecarVersion(), "protocol": protocolVersion, "go_version": runtime.Version()},
		}, func() float64 { return 1 }),
		ready: gauge("ready", "1 while the ready file is there.", func() float64 {
			if ready.now() {
				return 1
			}
			return 0
		}),
		budget: gauge("memory_budget_bytes", "What fetched records may take of memory, all inlets together.", func() float64 { return float64(budget.limit) }),
		used:   gauge("memory_used_bytes", "What fetched records that are not yet with the process take of memory.", func() float64 { return float64(budget.used.Load()) }),

		conversations: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "conversations_total", Help: "Conversations with the process that were started."}),
		ends:          counter("conversation_ends_total", "Conversations that ended, by cause.", "cause"),
		discoveries:   counter("discovery_attempts_total", "Discovery attempts, by result.", "result"),
		backoff: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "reconnect_backoff_seconds",
			Help: "How long the wait after a failure is that runs now; 0 when none runs."}),

		recordsIn:      counter("records_in_total", "Records read from the inlet's topic.", "inlet"),
		bytesIn:        counter("bytes_in_total", "Bytes of their keys, values and headers.", "inlet"),
		recordsOut:     counter("records_out_total", "Records written to the outlet's topic and confirmed.", "outlet"),
		bytesOut:       counter("bytes_out_total", "Bytes of them, before compression.", "outlet"),
		assignments:    counter("partitions_assigned_total", "Partitions that were assigned.", "inlet"),
		revocations:    counter("partitions_revoked_total", "Partitions that were given up in order.", "inlet"),
		losses:         counter("partitions_lost_total", "Partitions that were lost with the group's membership.", "inlet"),
		commitFailures: counter("commit_failures_total", "Commits that were refused or not answered, by cause. They are tried again.", "inlet", "cause"),

		batchRecords: histogram("batch_records", "Records in a batch for the process.", 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
		process:      histogram("process_seconds", "From a batch sent to its Ack.", latency...),
		write:        histogram("write_seconds", "From a batch's first write to the confirmation of its last.", latency...),
		commit:       histogram("commit_seconds", "From a commit sent to its answer.", latency...),
		age: histogram("commit_record_age_seconds", "From the timestamp of the last record that a commit carries to the commit's answer.",
			.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400, 604800),
	}
	for _, cause := range endCauses {
		m.ends.WithLabelValues(string(cause))
	}
	for _, result := range []string{discoveryAnswered, discoveryRefused, discoveryNoAnswer} {
		m.discoveries.WithLabelValues(result)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.build, m.ready, m.budget, m.used, m.conversations, m.ends, m.discoveries, m.backoff, m.recordsIn, m.bytesIn, m.recordsOut, m.bytesOut,
		m.assignments, m.revocations, m.losses, m.commitFailures, m.batchRecords, m.process, m.write, m.commit, m.age,
	}
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// inletStats are an inlet's handles.
type inletStats struct {
	recordsIn, bytesIn                        prometheus.Counter
	assignments, revocations, losses          prometheus.Counter
	batchRecords, process, write, commit, age prometheus.Observer
	commitFailures                            *prometheus.CounterVec // by cause
}

func (m *metrics) inlet(name string) *inletStats {
	return &inletStats{
		recordsIn: m.recordsIn.WithLabelValues(name), bytesIn: m.bytesIn.WithLabelValues(name),
		assignments: m.assignments.WithLabelValues(name), revocations: m.revocations.WithLabelValues(name), losses: m.losses.WithLabelValues(name),
		batchRecords: m.batchRecords.WithLabelValues(name), process: m.process.WithLabelValues(name), write: m.write.WithLabelValues(name),
		commit: m.commit.WithLabelValues(name), age: m.age.WithLabelValues(name),
		commitFailures: m.commitFailures.MustCurryWith(prometheus.Labels{"inlet": name}),
	}
}

// outletStats are an outlet's handles.
type outletStats struct{ records, bytes prometheus.Counter }

func (m *metrics) outlet(name string) *outletStats {
	return &outletStats{records: m.recordsOut.WithLabelValues(name), bytes: m.bytesOut.WithLabelValues(name)}
}

// ownSeries are the sidecar's own that are read from the inlets and their held partitions.
type ownSeries struct {
	inFlight, stalled                   *series // per partition
	stuck, headroom, logStart           *series
	redelivered, repeats, lostRetention *series
	held, oldest                        *series // per inlet
	certificate                         *series // per port with a client certificate
}

func newOwnSeries() ownSeries {
	own := func(name, help string) *series { return newSeries(namespace+"_"+name, help) }
	return ownSeries{
		inFlight: own("in_flight", "1 while a batch of the partition is with the process."),
		stalled:  own("stalled_seconds", "How long the partition has gone without committing; 0 when nothing is outstanding."),
		stuck: own("stalled_offset",
			"The first offset that is not committed, of a partition whose stall was warned of or that is read record by record after a failure; else absent."),
		headroom:      own("retention_headroom_records", "The committed offset minus the start of the log; below 0 records are gone that were not read."),
		logStart:      own("log_start_offset", "Where the partition's log begins."),
		redelivered:   own("redelivered_records_total", "Records sent to the process that this sidecar had sent it before."),
		repeats:       own("repeats_written_total", "Records written for batches whose writes had been begun before: at most so many are twice in the outlets' topics."),
		lostRetention: own("retention_lost_records_total", "Offsets that were removed from the log before they were read."),
		held:          own("held_partitions", "Partitions that are held back after repeated failures, so that the others work."),
		oldest:        own("oldest_uncommitted_seconds", "The age of the oldest uncommitted batch of the inlet; 0 when there is none."),
		certificate: own("client_certificate_expiry_timestamp_seconds",
			"When the client certificate of the port's Kafka connection expires, in Unix time; absent without one."),
	}
}

// portPoints adds the series of a port's connection.
func (s ownSeries) portPoints(points []point, port *PortConfig, connection *Connection) []point {
	if connection.CertificateExpires == nil {
		return points
	}
	if at := connection.CertificateExpires(); !at.IsZero() {
		points = append(points, point{s.certificate, labels("port", port.Name), float64(at.Unix())})
	}
	return points
}

// inletPoints adds the series of an inlet. The inlet's mu is held.
func (s ownSeries) inletPoints(points []point, in *inlet, now time.Time) []point {
	held, oldest := 0, time.Duration(0)
	for p, a := range in.held {
		if !a.heldUntil.IsZero() {
			held++
		}
		if stall := in.stalls[p]; stall != nil {
			oldest = max(oldest, now.Sub(stall.since))
		}
	}
	return append(points, point{s.held, in.label, float64(held)}, point{s.oldest, in.label, oldest.Seconds()})
}

// partitionPoints adds the series of a held partition. The inlet's mu is held.
func (s ownSeries) partitionPoints(points []point, a *assignment, now time.Time) []point {
	own, h := a.levels.own, a.history
	inFlight, stalled := 0.0, 0.0
	if a.withProcess != nil {
		inFlight = 1
	}
	stall := a.inlet.stalls[a.partition]
	if stall != nil {
		stalled = now.Sub(stall.since).Seconds()
	}
	points = append(points,
		point{s.inFlight, own, inFlight},
		point{s.stalled, own, stalled},
		point{s.redelivered, own, float64(h.redelivered)},
		point{s.repeats, own, float64(h.repeats)},
		point{s.lostRetention, own, float64(h.removed)},
	)
	if stall != nil && stall.warned || a.suspect != nil {
		points = append(points, point{s.stuck, own, float64(a.base)})
	}
	if a.logStart >= 0 {
		points = append(points, point{s.logStart, own, float64(a.logStart)})
		if a.base >= 0 {
			points = append(points, point{s.headroom, own, float64(a.base - a.logStart)})
		}
	}
	return points
}

// history is what was done with a partition's records while this sidecar has run. It outlives the assignment, so that
// records that come again after a rebalance are known again. The inlet's mu guards it.
type history struct {
	sentTo, writtenTo             int64 // every record below it was sent to the process, its writes were begun, once
	redelivered, repeats, removed int64
	committed                     int64 // the last commit that was seen, 0 before the first
}

// historyOf is the partition's. mu is held.
func (in *inlet) historyOf(partition int32) *history {
	h := in.histories[partition]
	if h == nil {
		h = &history{}
		in.histories[partition] = h
	}
	return h
}

// sent counts a batch that goes to the process. mu is held.
func (h *history) sent(b *batch, records []*kgo.Record) {
	if b.first < h.sentTo {
		for _, r := range records {
			if r.Offset < h.sentTo {
				h.redelivered++
			}
		}
	}
	h.sentTo = max(h.sentTo, b.next)
}

// writing notes whether a batch's records may be in the outlets' topics already. mu is held.
func (h *history) writing(b *batch) {
	b.repeats = 0
	if len(b.emits) > 0 {
		if b.first < h.writtenTo {
			b.repeats = len(b.emits)
		}
		h.writtenTo = max(h.writtenTo, b.next)
	}
}

// endCause is why a conversation ended.
type endCause string

const (
	endStopped       endCause = "stopped"
	endFailedBatch   endCause = "batch_failed"
	endProtocol      endCause = "protocol_broken"
	endProcessGone   endCause = "process_gone"
	endUndeliverable endCause = "record_undeliverable"
	endEmits         endCause = "emits_over_limit"
	endWriteRefused  endCause = "write_refused"
	endWriteTimeout  endCause = "write_timeout"
	endCommit        endCause = "commit_failed"
	endOther         endCause = "other"
)

var endCauses = []endCause{
	endStopped, endFailedBatch, endProtocol, endProcessGone, endUndeliverable, endEmits, endWriteRefused, endWriteTimeout, endCommit, endOther,
}

// discovered counts a discovery attempt.
func (m *metrics) discovered(result string) { m.discoveries.WithLabelValues(result).Inc() }

// ended counts the end of a conversation; err is nil for a stop.
func (m *metrics) ended(err error) {
	cause := endOther
	var f *failure
	switch {
	case err == nil:
		cause = endStopped
	case errors.As(err, &f) && f.kind != "":
		cause = f.kind
	}
	m.ends.WithLabelValues(string(cause)).Inc()
}

// commitCause is a commit's failure in one of a few words: Kafka's own name for it, or what happened to the request.
func commitCause(err error) string {
	var refused *kerr.Error
	var timeout net.Error
	switch {
	case errors.As(err, &refused):
		return strings.ToLower(refused.Message)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &timeout):
		return "connection"
	}
	return "not_answered"
}

// certificateExpires is a Connection's CertificateExpires. It takes what the last connection used and reads no file.
func (c *tlsClient) certificateExpires() time.Time {
	if c.key == nil {
		return time.Time{}
	}
	c.key.mu.Lock()
	defer c.key.mu.Unlock()
	if pair := c.key.value; c.key.known && pair != nil && pair.Leaf != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}
