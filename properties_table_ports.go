package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumerRules are the rows of consumers alone.
func consumerRules() []propertyRule {
	return []propertyRule{
		ignoredProperty("group.id", consumers, owned, "set the inlet's group instead").takes(notEmpty),
		mappedProperty("group.instance.id", consumers, "", setGroupInstanceID).meaning("the name of a static member; empty for a dynamic one").
			otherwise("in a pod, <pod>.<inlet> with the classic protocol: a container that starts again comes back to its partitions at once"),
		anyCaseProperty("group.protocol", consumers, "classic", []string{"classic", "consumer"}, func(d *portProperties, v string) { d.groupProtocol = v }).meaning("how the group works; consumer is KIP-848"),
		choiceProperty("group.remote.assignor", consumers, "", []string{"uniform", "range"}, func(d *portProperties, v string) { d.remoteAssignor = v }).meaning("the broker's assignor with group.protocol=consumer; the broker chooses when none is given"),
		mappedProperty("partition.assignment.strategy", consumers, assignorPackage+"CooperativeStickyAssignor", setAssignors).
			meaning("the assignors, in the order of preference: " + assignorPackage + "RangeAssignor, …RoundRobinAssignor, …StickyAssignor, …CooperativeStickyAssignor").
			otherwise("Java's list begins with range, with which every member gives all partitions up at each rebalance; it joins groups of Java's default all the same"),
		millisProperty("session.timeout.ms", consumers, "45000", 1, intMax, possibleRange{100, intMax},
			func(d *portProperties, v time.Duration) { d.session = v }).meaning("how long a member may be silent before the group gives its partitions away"),
		millisProperty("heartbeat.interval.ms", consumers, "3000", 0, intMax, possibleRange{10, intMax},
			func(d *portProperties, v time.Duration) { d.heartbeat = v }).meaning("between heartbeats"),
		millisProperty("max.poll.interval.ms", consumers, "300000", 1, intMax, possibleRange{100, intMax},
			func(d *portProperties, v time.Duration) { d.maxPollInterval = v }).meaning("the group's rebalance timeout; how long the process may work on a batch has no limit"),
		ignoredProperty("max.poll.records", consumers, noEffect, "all that came is taken at once; what the process is given at once is batch.max-records", "500").takes(whole(1, intMax)),
		millisProperty("default.api.timeout.ms", consumers, "60000", 0, intMax, possibleRange{1000, intMax},
			func(d *portProperties, v time.Duration) { d.defaultAPITimeout = v }).meaning("how long a commit may take with all its retries"),
		mappedProperty("auto.offset.reset", consumers, "earliest", setOffsetReset).meaning("where reading starts when the group has no commit: earliest, latest, none or by_duration:<ISO 8601>").
			otherwise("Java's is latest; a new pipeline reads its inputs from the start"),
		ignoredProperty("enable.auto.commit", consumers, owned, "offsets are committed after the write, and only then", "false").takes(trueOrFalse),
		ignoredProperty("auto.commit.interval.ms", consumers, noEffect, "nothing is committed by the clock").takes(whole(0, intMax)),
		ignoredProperty("allow.auto.create.topics", consumers, owned, "reading a topic never creates it", "false").takes(trueOrFalse),
		numberProperty("fetch.min.bytes", consumers, "1", 0, intMax, possibleRange{1, intMax},
			func(d *portProperties, v int64) { d.fetchMinBytes = int32(v) }).meaning("bytes that the broker waits for before it answers"),
		numberProperty("fetch.max.bytes", consumers, "4194304", 0, intMax, possibleRange{1, kgoMaxBytes},
			func(d *portProperties, v int64) { d.fetchMaxBytes = int32(v) }).meaning("bytes of one answer").
			otherwise("Java's is 50 MiB, which each broker may then send at once, and all of it has to fit into memory"),
		numberProperty("max.partition.fetch.bytes", consumers, "1048576", 0, intMax, possibleRange{1, kgoMaxBytes},
			func(d *portProperties, v int64) { d.maxPartitionFetch = int32(v) }).meaning("bytes of one answer for one partition"),
		millisProperty("fetch.max.wait.ms", consumers, "500", 0, intMax, possibleRange{10, intMax},
			func(d *portProperties, v time.Duration) { d.fetchMaxWait = v }).meaning("how long the broker waits for fetch.min.bytes"),
		choiceProperty("isolation.level", consumers, "read_uncommitted", []string{"read_uncommitted", "read_committed"}, func(d *portProperties, v string) {
			d.isolation = kgo.ReadUncommitted()
			if v == "read_committed" {
				d.isolation = kgo.ReadCommitted()
			}
		}).meaning("whether records of open and aborted transactions are read"),
		mappedProperty("client.rack", consumers, "", setRack).meaning("where the sidecar is, so that the nearest replica is read"),
		booleanProperty("check.crcs", consumers, "true", func(d *portProperties, v bool) { d.checkCRCs = v }).meaning("whether checksums are verified"),
		ignoredProperty("exclude.internal.topics", consumers, noEffect, "an inlet reads one topic by its name").takes(trueOrFalse),
		ignoredProperty("key.deserializer", consumers, noEffect, "records pass as bytes", byteArrays+"Deserializer"),
		ignoredProperty("value.deserializer", consumers, noEffect, "records pass as bytes", byteArrays+"Deserializer"),
		ignoredProperty("share.acknowledgement.mode", consumers, noEffect, "an inlet is in a consumer group, not in a share group").takes(oneOfThese("implicit", "explicit")),
		ignoredProperty("share.acquire.mode", consumers, noEffect, "an inlet is in a consumer group, not in a share group").takes(oneOfThese("batch_optimized", "record_limit")),
	}
}

// producerRules are the rows of producers alone.
func producerRules() []propertyRule {
	return []propertyRule{
		choiceProperty("acks", producers, "all", []string{"all", "-1", "0", "1"}, func(d *portProperties, v string) {
			d.acks = v
			if v == "-1" {
				d.acks = "all"
			}
		}).meaning("which replicas confirm a write; 0 and 1 break the guarantee, and a warning says so"),
		ignoredProperty("enable.idempotence", producers, owned, "it is on unless acks is 0 or 1, so that a retry writes nothing twice", "true").takes(trueOrFalse),
		ignoredProperty("transactional.id", producers, owned, "writes are confirmed before the commit, without transactions").takes(notEmpty),
		ignoredProperty("transaction.timeout.ms", producers, noEffect, "there are no transactions").takes(whole(intMin, intMax)),
		ignoredProperty("transaction.two.phase.commit.enable", producers, noEffect, "there are no transactions", "false").takes(trueOrFalse),
		millisProperty("linger.ms", producers, "0", 0, longMax, possibleRange{0, minuteMillis},
			func(d *portProperties, v time.Duration) { d.linger = v }).meaning("how long a record waits for others").
			otherwise("Java's is 5 ms; a batch waits for its writes, and more records never come by waiting"),
		millisProperty("delivery.timeout.ms", producers, "120000", 0, intMax, possibleRange{0, intMax},
			func(d *portProperties, v time.Duration) { d.deliveryTimeout = v }).meaning("how long a write may go without an answer before the conversation fails"),
		numberProperty("retries", producers, "2147483647", 0, intMax, possibleRange{0, intMax}, func(d *portProperties, v int64) { d.retries = int(v) }).meaning("how often a write is tried again"),
		// kgo has up to five in flight, and keeps their order, as long as the producer is idempotent.
		numberProperty("max.in.flight.requests.per.connection", producers, "", 1, intMax, possibleRange{1, intMax},
			func(d *portProperties, v int64) { d.maxInFlight = int(v) }).meaning("accepted up to 5, as in Java; there are up to 5, and their order is kept"),
		numberProperty("max.request.size", producers, "", 0, intMax, possibleRange{512, kgoMaxBytes},
			func(d *portProperties, v int64) { d.maxRequestSize = int32(v) }).meaning("bytes of one batch of records").otherwise("Java's is 1 MiB; here the topic's own max.message.bytes counts"),
		ignoredProperty("buffer.memory", producers, noEffect, "FLOW_MAX_EMIT_BYTES bounds what is held").takes(whole(0, longMax)),
		ignoredProperty("max.block.ms", producers, noEffect, "producing never waits for space; delivery.timeout.ms bounds a write").takes(whole(0, longMax)),
		ignoredProperty("batch.size", producers, noEffect, "a batch is what there is to send, up to the topic's max.message.bytes").takes(whole(0, intMax)),
		ignoredProperty("metadata.max.idle.ms", producers, noEffect, "an outlet writes one topic").takes(whole(5000, longMax)),
		choiceProperty("compression.type", producers, "none", []string{"none", "gzip", "snappy", "lz4", "zstd"}, func(d *portProperties, v string) { d.compression = v }).meaning("the codec of batches"),
		mappedProperty("compression.gzip.level", producers, "", setGzipLevel).meaning("-1 or 1 to 9"),
		numberProperty("compression.lz4.level", producers, "", 1, 17, possibleRange{1, 17}, func(d *portProperties, v int64) { d.lz4Level = int(v) }).meaning("above 9 it works as 9"),
		numberProperty("compression.zstd.level", producers, "", -131072, 22, possibleRange{-131072, 22}, func(d *portProperties, v int64) { d.zstdLevel = int(v) }).meaning("brought to one of four levels"),
		mappedProperty("partitioner.class", producers, "", setPartitioner).meaning("nothing, or " + partitionerPackage + "RoundRobinPartitioner; records with a key go where Java's default puts them"),
		booleanProperty("partitioner.ignore.keys", producers, "false", func(d *portProperties, v bool) { d.ignoreKeys = v }).meaning("whether keys have no say in the partition"),
		booleanProperty("partitioner.adaptive.partitioning.enable", producers, "true", func(d *portProperties, v bool) { d.adaptivePartitioning = v }).meaning("whether slower brokers get fewer of the records without a key"),
		ignoredProperty("partitioner.availability.timeout.ms", producers, noEffect, "partitions are chosen by what waits for each", "0").takes(whole(0, longMax)),
		ignoredProperty("key.serializer", producers, noEffect, "records pass as bytes", byteArrays+"Serializer"),
		ignoredProperty("value.serializer", producers, noEffect, "records pass as bytes", byteArrays+"Serializer"),
	}
}
