package main

import (
	"strconv"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// javaSeries are the Java client's, under the names that the JMX exporter gives them (seeds: Metrics). What this client
// cannot measure as Java does is not there: record_retry_total and buffer_available_bytes.
type javaSeries struct {
	lag, lagMax, lagAvg, lead, leadMin, leadAvg *series // per partition

	recordsConsumed, bytesConsumed *series // per topic
	fetchLatency                   *series // per client, this and the rest
	commitLatency                  *series
	assigned, rebalances, failed   *series
	heartbeat                      *series
	recordsSent, bytesSent, errors *series
	requestLatency                 *series
}

func newJavaSeries() javaSeries {
	const fetch, group, producer = "kafka_consumer_consumer_fetch_manager_metrics_", "kafka_consumer_consumer_coordinator_metrics_", "kafka_producer_producer_metrics_"
	return javaSeries{
		lag:     newSeries(fetch+"records_lag", "Records behind, per inlet partition: retained and not yet written and confirmed."),
		lagMax:  newSeries(fetch+"records_lag_max", "The maximum lag in the current window."),
		lagAvg:  newSeries(fetch+"records_lag_avg", "The average lag in the current window."),
		lead:    newSeries(fetch+"records_lead", "Records from the start of the log to the first that is not yet written and confirmed."),
		leadMin: newSeries(fetch+"records_lead_min", "The minimum lead in the current window."),
		leadAvg: newSeries(fetch+"records_lead_avg", "The average lead in the current window."),

		recordsConsumed: newSeries(fetch+"records_consumed_rate", "Records read per second."),
		bytesConsumed:   newSeries(fetch+"bytes_consumed_rate", "Bytes of keys, values and headers read per second."),
		fetchLatency:    newSeries(fetch+"fetch_latency_avg", "The average time of a fetch request in milliseconds."),

		commitLatency: newSeries(group+"commit_latency_avg", "The average time of a commit request in milliseconds."),
		assigned:      newSeries(group+"assigned_partitions", "Partitions that are held."),
		rebalances:    newSeries(group+"rebalance_total", "Rebalances that ended with an assignment."),
		failed:        newSeries(group+"failed_rebalance_total", "Group sessions that ended with an error, after which the group is joined again."),
		heartbeat:     newSeries(group+"last_heartbeat_seconds_ago", "Seconds since the last heartbeat was sent; -1 before the first."),

		recordsSent:    newSeries(producer+"record_send_rate", "Records written per second, per outlet."),
		bytesSent:      newSeries(producer+"byte_rate", "Bytes of compressed records written per second, per outlet."),
		errors:         newSeries(producer+"record_error_total", "Records that were not written, for good."),
		requestLatency: newSeries(producer+"request_latency_avg", "The average time of a produce request in milliseconds."),
	}
}

// inletPoints adds the series of an inlet. The inlet's mu is held.
func (s javaSeries) inletPoints(points []point, in *inlet, now time.Time) []point {
	j := in.java
	heartbeat := -1.0
	if sent := j.heartbeat.Load(); sent > 0 {
		heartbeat = now.Sub(time.Unix(0, sent)).Truncate(time.Second).Seconds()
	}
	return append(points,
		point{s.recordsConsumed, j.topic, j.records.rate(now)},
		point{s.bytesConsumed, j.topic, j.bytes.rate(now)},
		point{s.fetchLatency, j.client, j.requests.average(now)},
		point{s.commitLatency, j.client, j.commits.average(now)},
		point{s.assigned, j.client, float64(len(in.held))},
		point{s.rebalances, j.client, float64(j.rebalances.Load())},
		point{s.failed, j.client, float64(j.failures.Load())},
		point{s.heartbeat, j.client, heartbeat},
	)
}

// partitionPoints adds the series of a held partition. The inlet's mu is held.
func (s javaSeries) partitionPoints(points []point, a *assignment, now time.Time) []point {
	a.observeLag(now) // so that what is shown as the maximum is never below what is shown as the lag
	l := a.levels
	_, lagMax := l.lag.extremes(now)
	leadMin, _ := l.lead.extremes(now)
	return append(points,
		point{s.lag, l.java, float64(a.lag())},
		point{s.lagMax, l.java, lagMax},
		point{s.lagAvg, l.java, l.lag.average(now)},
		point{s.lead, l.java, float64(a.lead())},
		point{s.leadMin, l.java, leadMin},
		point{s.leadAvg, l.java, l.lead.average(now)},
	)
}

// outletPoints adds the series of an outlet.
func (s javaSeries) outletPoints(points []point, o *outlet, now time.Time) []point {
	j := o.java
	return append(points,
		point{s.recordsSent, j.topic, j.records.rate(now)},
		point{s.bytesSent, j.topic, j.bytes.rate(now)},
		point{s.errors, j.topic, float64(j.failures.Load())},
		point{s.requestLatency, j.client, j.requests.average(now)},
	)
}

// lead is how many retained records come before the first that is not yet written and confirmed. mu is held.
func (a *assignment) lead() int64 {
	if a.logStart < 0 || a.confirmed < 0 {
		return 0
	}
	return max(0, a.confirmed-a.logStart)
}

// levels are the lag and the lead of a partition over time. They begin and end with its assignment.
type levels struct {
	lag, lead window
	java, own []*dto.LabelPair
}

func newLevels(in *inlet, partition int32) *levels {
	number := strconv.Itoa(int(partition))
	return &levels{
		java: labels("client_id", in.cfg.ClientID, "partition", number, "topic", javaTopic(in.cfg.Topic)),
		own:  labels("inlet", in.cfg.Name, "partition", number),
	}
}

// observeLag keeps the present lag and lead for their extremes and averages. mu is held.
func (a *assignment) observeLag(now time.Time) {
	a.levels.lag.record(now, float64(a.lag()))
	a.levels.lead.record(now, float64(a.lead()))
}

// javaClient measures one port's Kafka client, whichever client it has at the moment. It is the client's hook; the hooks
// are called from the client's goroutines.
type javaClient struct {
	topic, client []*dto.LabelPair

	records, bytes window       // consumed, or written and confirmed
	requests       window       // milliseconds of fetch or produce requests
	commits        window       // milliseconds of commit requests
	heartbeat      atomic.Int64 // when the last was sent, in Unix nanoseconds; 0 before the first
	rebalances     atomic.Int64
	failures       atomic.Int64 // of group sessions, or of records
}

func newJavaClient(port *PortConfig) *javaClient {
	return &javaClient{topic: labels("client_id", port.ClientID, "topic", javaTopic(port.Topic)), client: labels("client_id", port.ClientID)}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (j *javaClient) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	now := time.Now()
	took := e2e.DurationE2E()
	switch kmsg.Key(key) {
	case kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat:
		if e2e.WriteErr == nil {
			j.heartbeat.Store(now.Add(-took).UnixNano())
		}
	case kmsg.Fetch, kmsg.Produce:
		if e2e.Err() == nil {
			j.requests.record(now, took.Seconds()*1000)
		}
	case kmsg.OffsetCommit:
		if e2e.Err() == nil {
			j.commits.record(now, took.Seconds()*1000)
		}
	}
}

// OnGroupManageError implements kgo.HookGroupManageError.
func (j *javaClient) OnGroupManageError(error) { j.failures.Add(1) }

// consumed counts records that were read. It is called once a partition and poll.
func (j *javaClient) consumed(now time.Time, records int, bytes int64) {
	j.records.record(now, float64(records))
	j.bytes.record(now, float64(bytes))
}

// producerHook is the hook of an outlet's producer.
type producerHook struct {
	*javaClient
	stats *outletStats
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (p *producerHook) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	now := time.Now()
	p.records.record(now, float64(m.NumRecords))
	p.bytes.record(now, float64(m.CompressedBytes))
	p.stats.records.Add(float64(m.NumRecords))
	p.stats.bytes.Add(float64(m.UncompressedBytes))
}
