package main

import (
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	intMax  = math.MaxInt32 // the largest int in Java
	intMin  = math.MinInt32
	longMax = math.MaxInt64 // the largest long
	longMin = math.MinInt64

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
	security                                       securityValues

	// of a consumer
	groupProtocol                                          string // "classic" or "consumer"
	remoteAssignor                                         string // "uniform" or "range"; empty is the broker's choice
	balancers                                              []kgo.GroupBalancer
	offsetReset                                            OffsetReset
	session, heartbeat, maxPollInterval, defaultAPITimeout time.Duration
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

// propertyRules is the table of all properties, of which docs/kafka-properties.md is made: names, ranges and defaults are the
// Java clients' (4.3) unless a row says otherwise. A limit is what is possible here; a value beyond it is brought to it, with
// a warning.
func propertyRules() []propertyRule {
	return slices.Concat(commonRules(), securityRules(), oauthRules(), consumerRules(), producerRules())
}

// commonRules are the rows of both kinds of client.
func commonRules() []propertyRule {
	const onMetricsPort = "the metrics are on the metrics port"
	return []propertyRule{
		ignoredProperty("bootstrap.servers", bothClients, owned, "the port's own bootstrap.servers counts"),
		ignoredProperty("client.id", bothClients, owned, "set the port's client-id instead"),
		millisProperty("request.timeout.ms", bothClients, "30000", 0, intMax, possibleRange{200, 15 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.requestTimeout = v }).meaning("how long the answer to a request may take"),
		mappedProperty("connections.max.idle.ms", bothClients, "540000", setConnectionIdle).meaning("how long a connection may be idle before it is closed, in milliseconds; negative for never"),
		millisProperty("socket.connection.setup.timeout.ms", bothClients, "10000", longMin, longMax, possibleRange{1, 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.connectTimeout = v }).meaning("how long connecting may take, TLS included"),
		ignoredProperty("socket.connection.setup.timeout.max.ms", bothClients, noEffect, "every attempt to connect has socket.connection.setup.timeout.ms").takes(whole(longMin, longMax)),
		millisProperty("retry.backoff.ms", bothClients, "100", 0, longMax, possibleRange{10, 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.retryBackoff = v }).meaning("the wait before a request is tried again, and before connecting is; it doubles, give or take a fifth"),
		millisProperty("retry.backoff.max.ms", bothClients, "1000", 0, longMax, possibleRange{10, 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.retryBackoffMax = v }).meaning("the longest of these waits"),
		ignoredProperty("reconnect.backoff.ms", bothClients, noEffect, "connecting is tried again after retry.backoff.ms").takes(whole(0, longMax)),
		ignoredProperty("reconnect.backoff.max.ms", bothClients, noEffect, "connecting is tried again after at most retry.backoff.max.ms").takes(whole(0, longMax)),
		millisProperty("metadata.max.age.ms", bothClients, "5000", 0, longMax, possibleRange{metadataMinAge.Milliseconds(), 60 * minuteMillis},
			func(d *portProperties, v time.Duration) { d.metadataMaxAge = v }).meaning("how old what is known of topics and leaders may be").otherwise("an added partition and a moved leader are seen within ten seconds"),
		ignoredProperty("metadata.recovery.strategy", bothClients, noEffect, "a client that has lost all brokers begins with bootstrap.servers again", "rebootstrap").takes(oneOfAnyCase("rebootstrap", "none")),
		ignoredProperty("metadata.recovery.rebootstrap.trigger.ms", bothClients, noEffect, "a client that has lost all brokers begins with bootstrap.servers again").takes(whole(0, longMax)),
		ignoredProperty("client.dns.lookup", bothClients, noEffect, "every address of a broker's name is tried", "use_all_dns_ips").takes(oneOfThese("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
		ignoredProperty("send.buffer.bytes", bothClients, noEffect, "the operating system sizes the buffers", "-1").takes(whole(-1, intMax)),
		ignoredProperty("receive.buffer.bytes", bothClients, noEffect, "the operating system sizes the buffers", "-1").takes(whole(-1, intMax)),
		ignoredProperty("interceptor.classes", bothClients, noEffect, noJava, ""),
		ignoredProperty("metric.reporters", bothClients, noEffect, onMetricsPort, ""),
		ignoredProperty("metrics.num.samples", bothClients, noEffect, onMetricsPort).takes(whole(1, intMax)),
		ignoredProperty("metrics.recording.level", bothClients, noEffect, onMetricsPort).takes(oneOfThese("INFO", "DEBUG", "TRACE")),
		ignoredProperty("metrics.sample.window.ms", bothClients, noEffect, onMetricsPort).takes(whole(0, longMax)),
		ignoredProperty("auto.include.jmx.reporter", bothClients, noEffect, onMetricsPort),
		ignoredProperty("enable.metrics.push", bothClients, noEffect, "metrics are there for Prometheus to scrape, and none are pushed to brokers", "false").takes(trueOrFalse),
		ignoredProperty("security.providers", bothClients, noEffect, noJava, ""),
		givenProperty("config.providers", anything).meaning("the names of providers of values, such as ${file:/mnt/secret.properties:password}: Java's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider. A key that is not there is refused, where Java takes the reference itself as the value"),
		givenProperty("config.providers.", anything).meaning("`config.providers.<name>.class` and `.param.allowed.paths` or `.param.allowlist.pattern` of each provider"),
	}
}
