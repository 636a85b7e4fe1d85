package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// layer makes properties of "name=value" lines, the nth of them on line n.
func layer(lines ...string) []property {
	var properties []property
	for i, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		properties = append(properties, property{name: name, value: value, place: place{File: "streamlet.conf", Line: i + 1, Column: 1}})
	}
	return properties
}

// noFiles is an outside in which there is nothing.
var noFiles = outside{
	readFile: func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	},
	lookupEnv: func(string) (string, bool) { return "", false },
}

// client makes one of the options, which kgo must accept together, and that never reaches a network.
func client(t *testing.T, connection Connection, options []kgo.Opt) *kgo.Client {
	t.Helper()
	all := append(slices.Concat(connection.Options, options), kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}))
	if err := kgo.ValidateOpts(append(slices.Clone(all), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())...); err != nil {
		t.Fatalf("kgo refuses the options: %v", err)
	}
	client, err := kgo.NewClient(all...)
	if err != nil {
		t.Fatalf("kgo refuses the options: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// wantOption checks what a client was given.
func wantOption(t *testing.T, client *kgo.Client, name string, want any) {
	t.Helper()
	if got := client.OptValue(name); !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %v (%T), want %v", name, got, got, want)
	}
}

func consumerOf(t *testing.T, lines ...string) (ConsumerSettings, *kgo.Client) {
	t.Helper()
	settings, warnings, problems := consumerSettings("in", noFiles, layer(lines...))
	if len(problems) > 0 || len(warnings) > 0 {
		t.Errorf("%q: problems %q, warnings %q", lines, problems, warnings)
	}
	return settings, client(t, settings.Connection, settings.Options)
}

func producerOf(t *testing.T, lines ...string) (ProducerSettings, *kgo.Client) {
	t.Helper()
	settings, warnings, problems := producerSettings("out", noFiles, layer(lines...))
	if len(problems) > 0 || len(warnings) > 0 {
		t.Errorf("%q: problems %q, warnings %q", lines, problems, warnings)
	}
	return settings, client(t, settings.Connection, settings.Options)
}

func balancerNames(client *kgo.Client) []string {
	var names []string
	for _, balancer := range client.OptValue("Balancers").([]kgo.GroupBalancer) {
		names = append(names, balancer.ProtocolName())
	}
	return names
}

func TestConsumerWithoutPropertiesHasJavasDefaultsButForTheDocumentedOnes(t *testing.T) {
	settings, client := consumerOf(t)
	for name, want := range map[string]any{
		"FetchMinBytes": int32(1), "FetchMaxBytes": int32(4 << 20), "FetchMaxPartitionBytes": int32(1 << 20), "FetchMaxWait": 500 * time.Millisecond,
		"SessionTimeout": 45 * time.Second, "HeartbeatInterval": 3 * time.Second, "RebalanceTimeout": 5 * time.Minute,
		"RequestTimeoutOverhead": 30 * time.Second, "ConnIdleTimeout": 9 * time.Minute,
		"MetadataMinAge": 250 * time.Millisecond, "MetadataMaxAge": 5 * time.Second,
		"DisableFetchCRCValidation": false, "ServerSideBalancer": false, "AllowAutoTopicCreation": false,
		// One broker that hangs, or has nothing to send, must not keep the others waiting.
		"MaxConcurrentFetches": -1,
		"RequestRetries":       int64(math.MaxInt32),
	} {
		wantOption(t, client, name, want)
	}
	if got := balancerNames(client); !slices.Equal(got, []string{"cooperative-sticky"}) {
		t.Errorf("balancers %v", got)
	}
	retry := client.OptValue("RetryTimeoutFn").(func(int16) time.Duration)
	if join, commit := retry((*kmsg.JoinGroupRequest)(nil).Key()), retry((*kmsg.OffsetCommitRequest)(nil).Key()); join != 45*time.Second || commit != commitRetries {
		t.Errorf("retries go on for %v and %v", join, commit)
	}
	settings.Connection.Options, settings.Connection.Properties, settings.Options = nil, nil, nil
	want := ConsumerSettings{
		Connection: Connection{Protocol: "PLAINTEXT", DialTimeout: 10 * time.Second}, OffsetReset: OffsetReset{Policy: "earliest"}, FetchMaxBytes: 4 << 20, MaxPartitionFetch: 1 << 20,
		SessionTimeout: 45 * time.Second, RebalanceTimeout: 5 * time.Minute, DefaultAPITimeout: time.Minute,
	}
	if !reflect.DeepEqual(settings, want) {
		t.Errorf("settings %+v", settings)
	}
}

func TestProducerWithoutPropertiesHasJavasDefaultsButForTheDocumentedOnes(t *testing.T) {
	settings, client := producerOf(t)
	for name, want := range map[string]any{
		"RequiredAcks": kgo.AllISRAcks(), "DisableIdempotentWrite": false, "ProducerLinger": time.Duration(0), "ProducerBatchCompression": []kgo.CompressionCodec{kgo.NoCompression()},
		"MaxBufferedRecords": int64(math.MaxInt), "MaxBufferedBytes": int64(0), "RecordRetries": int64(math.MaxInt64), "RecordDeliveryTimeout": time.Duration(0),
		"MetadataMinAge": 250 * time.Millisecond, "MetadataMaxAge": 5 * time.Second, "ConnIdleTimeout": 9 * time.Minute,
	} {
		wantOption(t, client, name, want)
	}
	// kgo waits for both together.
	if wait := client.OptValue("RequestTimeoutOverhead").(time.Duration) + client.OptValue("ProduceRequestTimeout").(time.Duration); wait != 30*time.Second {
		t.Errorf("a request has %v", wait)
	}
	settings.Connection.Options, settings.Connection.Properties, settings.Options = nil, nil, nil
	if want := (ProducerSettings{Connection: Connection{Protocol: "PLAINTEXT", DialTimeout: 10 * time.Second}, DeliveryTimeout: 2 * time.Minute}); !reflect.DeepEqual(settings, want) {
		t.Errorf("settings %+v", settings)
	}
}

func TestEachConsumerPropertyDoesWhatItDoesInJava(t *testing.T) {
	for _, test := range []struct {
		line, option string
		want         any
	}{
		{"fetch.min.bytes=2147483647", "FetchMinBytes", int32(math.MaxInt32)},
		{"fetch.max.bytes=1", "FetchMaxBytes", int32(1)},
		{"fetch.max.bytes=1073741824", "FetchMaxBytes", int32(1 << 30)},
		{"fetch.max.bytes=1073741824", "BrokerMaxReadBytes", int32(1 << 30)},
		{"fetch.max.bytes=83886080", "BrokerMaxReadBytes", int32(160 << 20)},
		{"fetch.max.bytes=52428800", "BrokerMaxReadBytes", int32(100 << 20)},
		{"fetch.max.bytes=1000", "FetchMaxPartitionBytes", int32(1000)},
		{"max.partition.fetch.bytes=8388608", "FetchMaxPartitionBytes", int32(8 << 20)},
		{"max.partition.fetch.bytes=8388608", "FetchMaxBytes", int32(8 << 20)},
		{"fetch.max.wait.ms=2147483647", "FetchMaxWait", math.MaxInt32 * time.Millisecond},
		{"session.timeout.ms= 60000 ", "SessionTimeout", time.Minute},
		{"heartbeat.interval.ms=+15000", "HeartbeatInterval", 15 * time.Second},
		{"max.poll.interval.ms=600000", "RebalanceTimeout", 10 * time.Minute},
		{"isolation.level=read_committed", "FetchIsolationLevel", int8(1)},
		{"isolation.level=read_uncommitted", "FetchIsolationLevel", int8(0)},
		{"client.rack=eu-1a", "Rack", "eu-1a"},
		{"check.crcs=FALSE", "DisableFetchCRCValidation", true},
		{"check.crcs=true", "DisableFetchCRCValidation", false},
		{"group.protocol=consumer", "ServerSideBalancer", true},
		{"group.protocol=CLASSIC", "ServerSideBalancer", false},
		{"request.timeout.ms=900000", "RequestTimeoutOverhead", 15 * time.Minute},
		{"connections.max.idle.ms=60000", "ConnIdleTimeout", time.Minute},
		{"metadata.max.age.ms=250", "MetadataMaxAge", 250 * time.Millisecond},
		{"metadata.max.age.ms=300000", "MetadataMaxAge", 5 * time.Minute},
	} {
		_, client := consumerOf(t, test.line)
		wantOption(t, client, test.option, test.want)
	}
}

func TestEachProducerPropertyDoesWhatItDoesInJava(t *testing.T) {
	for _, test := range []struct {
		line, option string
		want         any
	}{
		{"acks=-1", "RequiredAcks", kgo.AllISRAcks()},
		{"linger.ms=60000", "ProducerLinger", time.Minute},
		{"retries=7", "RecordRetries", int64(7)},
		{"retries=2147483647", "RecordRetries", int64(math.MaxInt64)},
		{"max.request.size=209715200", "BrokerMaxWriteBytes", int32(200 << 20)},
		{"max.request.size=1048576", "BrokerMaxWriteBytes", int32(100 << 20)},
		{"request.timeout.ms=5000", "ProduceRequestTimeout", 2500 * time.Millisecond},
		{"request.timeout.ms=5000", "RequestTimeoutOverhead", 2500 * time.Millisecond},
		{"compression.type=none", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.NoCompression()}},
		{"compression.type=gzip", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.GzipCompression().WithLevel(0)}},
		{"compression.type=snappy", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.SnappyCompression()}},
		{"compression.type=lz4", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.Lz4Compression()}},
		{"compression.type=zstd", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.ZstdCompression().WithLevel(0)}},
		{"compression.type=gzip compression.gzip.level=9", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.GzipCompression().WithLevel(9)}},
		{"compression.type=lz4 compression.lz4.level=17", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.Lz4Compression().WithLevel(1 << 17)}},
		{"compression.type=zstd compression.zstd.level=-5", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.ZstdCompression().WithLevel(1)}},
		{"compression.type=zstd compression.zstd.level=2", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.ZstdCompression().WithLevel(1)}},
		{"compression.type=zstd compression.zstd.level=3", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.ZstdCompression().WithLevel(2)}},
		{"compression.type=zstd compression.zstd.level=22", "ProducerBatchCompression", []kgo.CompressionCodec{kgo.ZstdCompression().WithLevel(4)}},
	} {
		_, client := producerOf(t, strings.Fields(test.line)...)
		wantOption(t, client, test.option, test.want)
	}
}

func TestSettingsThatAreNoOptionsOfKgo(t *testing.T) {
	consumer, _ := consumerOf(t, "group.instance.id=pod-1.in", "max.partition.fetch.bytes=7", "default.api.timeout.ms=5000", "socket.connection.setup.timeout.ms=200", "group.protocol=consumer")
	if consumer.InstanceID != "pod-1.in" || !consumer.InstanceIDGiven || consumer.MaxPartitionFetch != 7 || consumer.DefaultAPITimeout != 5*time.Second ||
		consumer.Connection.DialTimeout != 200*time.Millisecond || !consumer.ConsumerProtocol {
		t.Errorf("settings %+v", consumer)
	}
	if dynamic, _ := consumerOf(t, "group.instance.id="); dynamic.InstanceID != "" || !dynamic.InstanceIDGiven {
		t.Errorf("an empty group.instance.id is %+v", dynamic)
	}
	if small, _ := consumerOf(t, "fetch.max.bytes=1000"); small.MaxPartitionFetch != 1000 || small.FetchMaxBytes != 1000 {
		t.Errorf("a fetch of at most 1000 bytes has %d, and %d bytes of a partition", small.FetchMaxBytes, small.MaxPartitionFetch)
	}
	producer, _ := producerOf(t, "max.request.size=512", "delivery.timeout.ms=31000", "socket.connection.setup.timeout.ms=200")
	if producer.MaxRequestSize != 512 || producer.DeliveryTimeout != 31*time.Second || producer.Connection.DialTimeout != 200*time.Millisecond {
		t.Errorf("settings %+v", producer)
	}
}

func TestOffsetReset(t *testing.T) {
	for value, want := range map[string]OffsetReset{
		"earliest":                           {Policy: "earliest"},
		"latest":                             {Policy: "latest"},
		"none":                               {Policy: "none"},
		"by_duration:P7D":                    {"by_duration", 7 * 24 * time.Hour},
		"by_duration:PT1H30M":                {"by_duration", 90 * time.Minute},
		"by_duration:pt0.25s":                {"by_duration", 250 * time.Millisecond},
		"by_duration:P1DT2H3M4.5S":           {"by_duration", 26*time.Hour + 3*time.Minute + 4500*time.Millisecond},
		"by_duration:PT-0.5S":                {},
		"by_duration:-PT1S":                  {},
		"by_duration:PT1H-90M":               {},
		"by_duration:PT0S":                   {"by_duration", 0},
		"by_duration:PT36H-12H":              {},
		"by_duration:P1DT-23H":               {"by_duration", time.Hour},
		"by_duration:PT0.000000001S":         {"by_duration", 1},
		"by_duration:PT1.0000000001S":        {},
		"by_duration:P":                      {},
		"by_duration:PT":                     {},
		"by_duration:P1DT":                   {},
		"by_duration:P1W":                    {},
		"by_duration:7d":                     {},
		"by_duration:P300000D":               {},
		"by_duration:P99999999999999999999D": {},
		"by_duration":                        {},
		"earliest:P1D":                       {},
		"smallest":                           {},
		"":                                   {},
	} {
		settings, _, problems := consumerSettings("in", noFiles, layer("auto.offset.reset="+value))
		if want == (OffsetReset{}) {
			wantPrefixes(t, problems, []string{"streamlet.conf:1:1: inlet 'in': 'auto.offset.reset': it is " + quote(value) + ", but must be earliest, latest, none or by_duration:"})
		} else if len(problems) > 0 || settings.OffsetReset != want {
			t.Errorf("%s is %+v, %q", value, settings.OffsetReset, problems)
		}
	}
}

func TestAssignors(t *testing.T) {
	const prefix = "org.apache.kafka.clients.consumer."
	for _, test := range []struct {
		lines []string
		want  []string
	}{
		{[]string{"partition.assignment.strategy=" + prefix + "RangeAssignor"}, []string{"range"}},
		{[]string{"partition.assignment.strategy=" + prefix + "RangeAssignor , " + prefix + "CooperativeStickyAssignor,"}, []string{"range", "cooperative-sticky"}},
		{[]string{"partition.assignment.strategy=" + prefix + "RoundRobinAssignor," + prefix + "StickyAssignor"}, []string{"roundrobin", "sticky"}},
		// kgo speaks the new protocol only when its first balancer is a sticky or a range one.
		{[]string{"group.protocol=consumer"}, []string{"cooperative-sticky"}},
		{[]string{"group.protocol=consumer", "group.remote.assignor=uniform"}, []string{"cooperative-sticky"}},
		{[]string{"group.protocol=consumer", "group.remote.assignor=range"}, []string{"range"}},
	} {
		_, client := consumerOf(t, test.lines...)
		if got := balancerNames(client); !slices.Equal(got, test.want) {
			t.Errorf("%q: balancers %v", test.lines, got)
		}
	}
}

func TestPartitioners(t *testing.T) {
	for _, test := range []struct {
		lines    []string
		keyed    bool // records of one key go to one partition
		adaptive bool // brokers that are slow get less
	}{
		{[]string{"partitioner.ignore.keys=false", "partitioner.adaptive.partitioning.enable=true"}, true, true},
		{[]string{"partitioner.adaptive.partitioning.enable=false"}, true, false},
		{[]string{"partitioner.ignore.keys=true"}, false, true},
		{[]string{"partitioner.class=org.apache.kafka.clients.producer.UniformStickyPartitioner"}, false, true},
		{[]string{"partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"}, false, false},
	} {
		_, client := producerOf(t, test.lines...)
		partitioner := client.OptValue("RecordPartitioner").(kgo.Partitioner)
		if got := partitioner.ForTopic("t").RequiresConsistency(&kgo.Record{Key: []byte("k")}); got != test.keyed {
			t.Errorf("%q: keyed is %v", test.lines, got)
		}
		// kgo shows it in no other way.
		if field := reflect.ValueOf(partitioner).Elem().FieldByName("adaptive"); field.IsValid() && field.Bool() != test.adaptive {
			t.Errorf("%q: adaptive is %v", test.lines, field.Bool())
		}
	}
}

func TestRetriesWaitLongerAndLongerAsInJava(t *testing.T) {
	for _, test := range []struct {
		lines []string
		fails int
		least time.Duration
		most  time.Duration
	}{
		{nil, 1, 80 * time.Millisecond, 120 * time.Millisecond},
		{nil, 2, 160 * time.Millisecond, 240 * time.Millisecond},
		{nil, 10, 999 * time.Millisecond, time.Second},
		{nil, 1 << 30, 999 * time.Millisecond, time.Second},
		{[]string{"retry.backoff.ms=2000", "retry.backoff.max.ms=5000"}, 1, 1600 * time.Millisecond, 2400 * time.Millisecond},
		{[]string{"retry.backoff.ms=2000"}, 1, 999 * time.Millisecond, time.Second},
	} {
		_, client := consumerOf(t, test.lines...)
		backoff := client.OptValue("RetryBackoffFn").(func(int) time.Duration)
		for range 100 {
			if wait := backoff(test.fails); wait < test.least || wait > test.most {
				t.Fatalf("%q: after %d failures %v", test.lines, test.fails, wait)
			}
		}
	}
}
