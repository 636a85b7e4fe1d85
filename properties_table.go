package main

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	intMax  = math.MaxInt32 // the largest int in Java
	longMax = math.MaxInt64 // the largest long

	brokerMaxBytes   = 100 << 20 // what kgo reads and writes at once unless told otherwise
	kgoMaxBytes      = 1 << 30   // what it may be told
	metadataMinAge   = 250 * time.Millisecond
	unlimitedRetries = intMax
	minuteMillis     = 60000 // in milliseconds
)

// propertyValues are what mapped properties set.
type propertyValues struct {
	requestTimeout, connectionIdle, connectTimeout time.Duration
	retryBackoff, retryBackoffMax, metadataMaxAge  time.Duration
	pushMetrics                                    bool // to brokers that ask for them (KIP-714)
	security                                       securityValues

	// of a consumer
	groupProtocol                                          string // "classic" or "consumer"
	remoteAssignor                                         string // "uniform" or "range"; empty is the broker's choice
	balancers                                              []kgo.GroupBalancer
	offsetReset                                            OffsetReset
	session, heartbeat, maxPollInterval, defaultAPITimeout time.Duration
	maxPollRecords                                         int
	fetchMinBytes, fetchMaxBytes, maxPartitionFetch        int32
	fetchMaxWait                                           time.Duration
	isolation                                              kgo.IsolationLevel
	rack                                                   string
	checkCRCs                                              bool

	// of a producer
	acks                             string // "0", "1" or "all"
	linger, deliveryTimeout          time.Duration
	compression                      string
	gzipLevel, lz4Level, zstdLevel   int   // as Java counts; 0 when not given
	maxRequestSize                   int32 // 0 when not given
	retries                          int
	maxInFlight                      int // 0 when not given
	roundRobin                       bool
	ignoreKeys, adaptivePartitioning bool
}

// propertyRules is the table of all properties: names, ranges and defaults are the Java clients' (4.x) unless a row says
// otherwise. A limit is what is possible here; a value beyond it is brought to it, with a warning.
func propertyRules() []propertyRule {
	return append(securityRules(), []propertyRule{
		// ---- Both kinds of client.
		ignoredProperty("bootstrap.servers", bothClients, owned, "the port's own bootstrap.servers counts"),
		ignoredProperty("client.id", bothClients, owned, "set the port's client-id instead"),
		mappedProperty("security.protocol", bothClients, "PLAINTEXT", setSecurityProtocol),
		millisProperty("request.timeout.ms", bothClients, "30000", 0, intMax, possibleRange{200, 15 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.requestTimeout = v }),
		mappedProperty("connections.max.idle.ms", bothClients, "540000", setConnectionIdle),
		millisProperty("socket.connection.setup.timeout.ms", bothClients, "10000", 0, longMax, possibleRange{1, 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.connectTimeout = v }),
		ignoredProperty("socket.connection.setup.timeout.max.ms", bothClients, noEffect, "every attempt to connect has socket.connection.setup.timeout.ms"),
		millisProperty("retry.backoff.ms", bothClients, "100", 0, longMax, possibleRange{10, 60 * minuteMillis}, func(d *portProperties, v time.Duration) { d.retryBackoff = v }),
		millisProperty("retry.backoff.max.ms", bothClients, "1000", 0, longMax, possibleRange{10, 60 * minuteMillis}, func(d *portProperties, v time.Duration) { d.retryBackoffMax = v }),
		ignoredProperty("reconnect.backoff.ms", bothClients, noEffect, "connecting is tried again after retry.backoff.ms"),
		ignoredProperty("reconnect.backoff.max.ms", bothClients, noEffect, "connecting is tried again after at most retry.backoff.max.ms"),
		// Java's default is five minutes; with five seconds an added partition and a moved leader are seen within ten.
		millisProperty("metadata.max.age.ms", bothClients, "5000", 0, longMax, possibleRange{metadataMinAge.Milliseconds(), 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.metadataMaxAge = v }),
		ignoredProperty("metadata.recovery.", bothClients, noEffect, "a client that has lost all brokers is started anew from bootstrap.servers", "rebootstrap"),
		ignoredProperty("client.dns.lookup", bothClients, noEffect, "every address of a broker's name is tried", "use_all_dns_ips"),
		ignoredProperty("send.buffer.bytes", bothClients, noEffect, "the operating system sizes the buffers", "-1"),
		ignoredProperty("receive.buffer.bytes", bothClients, noEffect, "the operating system sizes the buffers", "-1"),
		ignoredProperty("interceptor.classes", bothClients, noEffect, "no Java code runs here", ""),
		ignoredProperty("metric.reporters", bothClients, noEffect, "the metrics are on the metrics port", ""),
		ignoredProperty("metrics.", bothClients, noEffect, "the metrics are on the metrics port"),
		ignoredProperty("auto.include.jmx.reporter", bothClients, noEffect, "the metrics are on the metrics port"),
		booleanProperty("enable.metrics.push", bothClients, "true", func(d *portProperties, v bool) { d.pushMetrics = v }),
		ignoredProperty("security.providers", bothClients, noEffect, "no Java code runs here", ""),
		ignoredProperty("config.providers", bothClients, noEffect, "no Java code runs here; use HOCON's ${NAME} for an environment variable", ""),

		// ---- Consumers.
		ignoredProperty("group.id", consumers, owned, "set the inlet's group instead"),
		mappedProperty("group.instance.id", consumers, "", setGroupInstanceID),
		choiceProperty("group.protocol", consumers, "classic", []string{"classic", "consumer"}, func(d *portProperties, v string) { d.groupProtocol = v }),
		choiceProperty("group.remote.assignor", consumers, "", []string{"uniform", "range"}, func(d *portProperties, v string) { d.remoteAssignor = v }),
		// Java's default list begins with range, which gives all partitions up at every rebalance.
		mappedProperty("partition.assignment.strategy", consumers, assignorPackage+"CooperativeStickyAssignor", setAssignors),
		millisProperty("session.timeout.ms", consumers, "45000", 1, intMax, possibleRange{100, intMax},
			func(d *portProperties, v time.Duration) { d.session = v }),
		millisProperty("heartbeat.interval.ms", consumers, "3000", 1, intMax, possibleRange{10, intMax},
			func(d *portProperties, v time.Duration) { d.heartbeat = v }),
		millisProperty("max.poll.interval.ms", consumers, "300000", 1, intMax, possibleRange{100, intMax},
			func(d *portProperties, v time.Duration) { d.maxPollInterval = v }),
		numberProperty("max.poll.records", consumers, "500", 1, intMax, possibleRange{1, intMax}, func(d *portProperties, v int64) { d.maxPollRecords = int(v) }),
		millisProperty("default.api.timeout.ms", consumers, "60000", 0, intMax, possibleRange{1000, intMax},
			func(d *portProperties, v time.Duration) { d.defaultAPITimeout = v }),
		// Java's default is latest; a new pipeline reads its inputs from the start (seeds: streamlet.conf).
		mappedProperty("auto.offset.reset", consumers, "earliest", setOffsetReset),
		ignoredProperty("enable.auto.commit", consumers, owned, "offsets are committed after the write, and only then", "false"),
		ignoredProperty("auto.commit.interval.ms", consumers, noEffect, "nothing is committed by the clock"),
		ignoredProperty("allow.auto.create.topics", consumers, owned, "reading a topic never creates it", "false"),
		numberProperty("fetch.min.bytes", consumers, "1", 0, intMax, possibleRange{1, intMax}, func(d *portProperties, v int64) { d.fetchMinBytes = int32(v) }),
		// Java's default is 50 MiB, which each broker may then send at once. What is fetched has to fit into memory.
		numberProperty("fetch.max.bytes", consumers, "4194304", 0, intMax, possibleRange{1, kgoMaxBytes}, func(d *portProperties, v int64) { d.fetchMaxBytes = int32(v) }),
		numberProperty("max.partition.fetch.bytes", consumers, "1048576", 0, intMax, possibleRange{1, kgoMaxBytes}, func(d *portProperties, v int64) { d.maxPartitionFetch = int32(v) }),
		millisProperty("fetch.max.wait.ms", consumers, "500", 0, intMax, possibleRange{10, intMax},
			func(d *portProperties, v time.Duration) { d.fetchMaxWait = v }),
		choiceProperty("isolation.level", consumers, "read_uncommitted", []string{"read_uncommitted", "read_committed"}, func(d *portProperties, v string) {
			d.isolation = kgo.ReadUncommitted()
			if v == "read_committed" {
				d.isolation = kgo.ReadCommitted()
			}
		}),
		mappedProperty("client.rack", consumers, "", setRack),
		booleanProperty("check.crcs", consumers, "true", func(d *portProperties, v bool) { d.checkCRCs = v }),
		ignoredProperty("exclude.internal.topics", consumers, noEffect, "an inlet reads one topic by its name"),
		ignoredProperty("key.deserializer", consumers, noEffect, "records pass as bytes", byteArrays+"Deserializer"),
		ignoredProperty("value.deserializer", consumers, noEffect, "records pass as bytes", byteArrays+"Deserializer"),

		// ---- Producers.
		choiceProperty("acks", producers, "all", []string{"all", "-1", "0", "1"}, func(d *portProperties, v string) {
			d.acks = v
			if v == "-1" {
				d.acks = "all"
			}
		}),
		ignoredProperty("enable.idempotence", producers, owned, "it is on unless acks is 0 or 1, so that a retry writes nothing twice", "true"),
		ignoredProperty("transactional.id", producers, owned, "writes are confirmed before the commit, without transactions", ""),
		ignoredProperty("transaction.timeout.ms", producers, noEffect, "there are no transactions"),
		ignoredProperty("transaction.two.phase.commit.enable", producers, noEffect, "there are no transactions", "false"),
		// Java's default is 5 ms; a batch waits for its writes, and more records never come by waiting.
		millisProperty("linger.ms", producers, "0", 0, longMax, possibleRange{0, minuteMillis}, func(d *portProperties, v time.Duration) { d.linger = v }),
		millisProperty("delivery.timeout.ms", producers, "120000", 0, intMax, possibleRange{0, intMax}, func(d *portProperties, v time.Duration) { d.deliveryTimeout = v }),
		numberProperty("retries", producers, "2147483647", 0, intMax, possibleRange{0, intMax}, func(d *portProperties, v int64) { d.retries = int(v) }),
		// kgo has up to five in flight, and keeps their order, as long as the producer is idempotent.
		numberProperty("max.in.flight.requests.per.connection", producers, "", 1, intMax, possibleRange{1, intMax}, func(d *portProperties, v int64) { d.maxInFlight = int(v) }),
		// Java's default is 1 MiB. Here the topic's own max.message.bytes counts unless the user gives one.
		numberProperty("max.request.size", producers, "", 0, intMax, possibleRange{512, kgoMaxBytes}, func(d *portProperties, v int64) { d.maxRequestSize = int32(v) }),
		ignoredProperty("buffer.memory", producers, noEffect, "FLOW_MAX_EMIT_BYTES bounds what is held"),
		ignoredProperty("max.block.ms", producers, noEffect, "producing never waits for space; delivery.timeout.ms bounds a write"),
		ignoredProperty("batch.size", producers, noEffect, "a batch is what there is to send, up to the topic's max.message.bytes"),
		ignoredProperty("metadata.max.idle.ms", producers, noEffect, "an outlet writes one topic"),
		choiceProperty("compression.type", producers, "none", []string{"none", "gzip", "snappy", "lz4", "zstd"}, func(d *portProperties, v string) { d.compression = v }),
		mappedProperty("compression.gzip.level", producers, "", setGzipLevel),
		numberProperty("compression.lz4.level", producers, "", 1, 17, possibleRange{1, 17}, func(d *portProperties, v int64) { d.lz4Level = int(v) }),
		numberProperty("compression.zstd.level", producers, "", -131072, 22, possibleRange{-131072, 22}, func(d *portProperties, v int64) { d.zstdLevel = int(v) }),
		mappedProperty("partitioner.class", producers, "", setPartitioner),
		booleanProperty("partitioner.ignore.keys", producers, "false", func(d *portProperties, v bool) { d.ignoreKeys = v }),
		booleanProperty("partitioner.adaptive.partitioning.enable", producers, "true", func(d *portProperties, v bool) { d.adaptivePartitioning = v }),
		ignoredProperty("partitioner.availability.timeout.ms", producers, noEffect, "partitions are chosen by what waits for each", "0"),
		ignoredProperty("key.serializer", producers, noEffect, "records pass as bytes", byteArrays+"Serializer"),
		ignoredProperty("value.serializer", producers, noEffect, "records pass as bytes", byteArrays+"Serializer"),
	}...)
}
