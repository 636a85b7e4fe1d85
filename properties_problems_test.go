package main

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAPropertyOutOfRangeIsAProblemWithPlaceNameValueAndWhatIsAllowed(t *testing.T) {
	for _, test := range []struct {
		client clientKinds
		line   string
		want   string // after the place and the port
	}{
		{consumers, "fetch.min.bytes=-1", "'fetch.min.bytes': it is '-1', but must be a whole number from 0 to 2147483647"},
		{consumers, "fetch.max.bytes=2147483648", "'fetch.max.bytes': it is '2147483648', but must be a whole number from 0 to 2147483647"},
		{consumers, "max.partition.fetch.bytes=1 MiB", "'max.partition.fetch.bytes': it is '1 MiB', but must be"},
		{consumers, "fetch.max.wait.ms=500ms", "'fetch.max.wait.ms': it is '500ms', but must be a whole number from 0 to 2147483647"},
		{consumers, "max.poll.records=0", "'max.poll.records': it is '0', but must be a whole number from 1 to 2147483647"},
		{consumers, "max.poll.interval.ms=0", "'max.poll.interval.ms': it is '0', but must be"},
		{consumers, "session.timeout.ms=1.5", "'session.timeout.ms': it is '1.5', but must be"},
		{consumers, "heartbeat.interval.ms=", "'heartbeat.interval.ms': it is '', but must be"},
		{consumers, "default.api.timeout.ms=-1", "'default.api.timeout.ms': it is '-1', but must be"},
		{consumers, "request.timeout.ms=-1", "'request.timeout.ms': it is '-1', but must be"},
		{consumers, "metadata.max.age.ms=never", "'metadata.max.age.ms': it is 'never', but must be a whole number from 0 to 9223372036854775807"},
		{consumers, "connections.max.idle.ms=9m", "'connections.max.idle.ms': it is '9m', but must be a whole number of milliseconds, -1 for never"},
		{consumers, "retry.backoff.ms=-1", "'retry.backoff.ms': it is '-1', but must be"},
		{consumers, "retry.backoff.max.ms=-1", "'retry.backoff.max.ms': it is '-1', but must be"},
		{consumers, "isolation.level=serializable", "'isolation.level': it is 'serializable', but must be read_uncommitted or read_committed"},
		{consumers, "check.crcs=yes", "'check.crcs': it is 'yes', but must be true or false"},
		{consumers, "group.protocol=next", "'group.protocol': it is 'next', but must be classic or consumer"},
		{consumers, "group.instance.id=a b", "'group.instance.id': it is 'a b', but must be 1 to 249 of"},
		{consumers, "group.instance.id=" + strings.Repeat("a", 250), "'group.instance.id': it is 'aaa"},
		{consumers, "group.instance.id=..", "'group.instance.id': it is '..', but must be"},
		{consumers, "client.rack=" + strings.Repeat("r", 513), "'client.rack': it is 'rrr"},
		{consumers, "partition.assignment.strategy=RangeAssignor", "'partition.assignment.strategy': it is 'RangeAssignor', but must be"},
		{consumers, "partition.assignment.strategy=range", "'partition.assignment.strategy': it is 'range', but must be a list of org.apache.kafka.clients.consumer.RangeAssignor"},
		{consumers, "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,com.example.Mine", "'partition.assignment.strategy': it is"},
		{consumers, "partition.assignment.strategy=", "'partition.assignment.strategy': it is ''"},
		{consumers, "security.protocol=SASL_SSL", "'security.protocol': security.protocol SASL_SSL with sasl.mechanism GSSAPI, which is Java's default, needs sasl.jaas.config"},
		{producers, "security.protocol=TLS", "'security.protocol': it is 'TLS', but must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"},
		{producers, "acks=2", "'acks': it is '2', but must be all, -1, 0 or 1"},
		{producers, "linger.ms=-1", "'linger.ms': it is '-1', but must be"},
		{producers, "retries=-1", "'retries': it is '-1', but must be"},
		{producers, "max.request.size=big", "'max.request.size': it is 'big', but must be"},
		{producers, "delivery.timeout.ms=2147483648", "'delivery.timeout.ms': it is '2147483648', but must be"},
		{producers, "max.in.flight.requests.per.connection=0", "'max.in.flight.requests.per.connection': it is '0', but must be"},
		{producers, "compression.type=brotli", "'compression.type': it is 'brotli', but must be none, gzip, snappy, lz4 or zstd"},
		{producers, "compression.gzip.level=0", "'compression.gzip.level': it is '0', but must be -1 or a whole number from 1 to 9"},
		{producers, "compression.lz4.level=18", "'compression.lz4.level': it is '18', but must be a whole number from 1 to 17"},
		{producers, "compression.zstd.level=23", "'compression.zstd.level': it is '23', but must be a whole number from -131072 to 22"},
		{producers, "partitioner.class=com.example.Mine", "'partitioner.class': it is 'com.example.Mine', but must be org.apache.kafka.clients.producer.RoundRobinPartitioner"},
		{producers, "partitioner.ignore.keys=1", "'partitioner.ignore.keys': it is '1', but must be true or false"},
	} {
		warnings, problems := judge(test.client, test.line)
		if len(warnings) > 0 {
			t.Errorf("%q: warnings %q", test.line, warnings)
		}
		wantPrefixes(t, problems, []string{place1(test.client) + test.want})
	}
}

// judge is what a person is told about the properties of a port.
func judge(client clientKinds, lines ...string) (warnings, problems []string) {
	if client == producers {
		_, warnings, problems = producerSettings("out", noFiles, layer(lines...))
	} else {
		_, warnings, problems = consumerSettings("in", noFiles, layer(lines...))
	}
	return warnings, problems
}

// place1 is the beginning of what is said about the first line.
func place1(client clientKinds) string {
	if client == producers {
		return "streamlet.conf:1:1: outlet 'out': "
	}
	return "streamlet.conf:1:1: inlet 'in': "
}

func TestAPropertyThatIsNotObeyedIsOneWarningThatSaysWhy(t *testing.T) {
	for _, test := range []struct {
		client clientKinds
		line   string
		want   string // empty for no warning
	}{
		{consumers, "bootstrap.servers=a:1", "'bootstrap.servers': it is ignored: the port's own bootstrap.servers counts"},
		{consumers, "group.id=g", "'group.id': it is ignored: set the inlet's group instead"},
		{consumers, "client.id=c", "'client.id': it is ignored: set the port's client-id instead"},
		{consumers, "enable.auto.commit=true", "'enable.auto.commit': it is ignored: offsets are committed after the write, and only then"},
		{consumers, "enable.auto.commit=False", ""},
		{consumers, "allow.auto.create.topics=true", "'allow.auto.create.topics': it is ignored: reading a topic never creates it"},
		{consumers, "allow.auto.create.topics=false", ""},
		{consumers, "auto.commit.interval.ms=1", "'auto.commit.interval.ms': it has no effect: "},
		{consumers, "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer", "'key.deserializer': it has no effect: records pass as bytes"},
		{consumers, "value.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer", ""},
		{consumers, "interceptor.classes=com.example.Mine", "'interceptor.classes': it has no effect: no Java code runs here"},
		{consumers, "reconnect.backoff.ms=50", "'reconnect.backoff.ms': it has no effect: "},
		{consumers, "metrics.num.samples=2", "'metrics.num.samples': it has no effect: "},
		{consumers, "ssl.truststore.location=/x", "'ssl.truststore.location': it has no effect: security.protocol is PLAINTEXT"},
		{consumers, "linger.ms=5", "'linger.ms': it is a producer's property and has no effect on an inlet"},
		{producers, "auto.offset.reset=earliest", "'auto.offset.reset': it is a consumer's property and has no effect on an outlet"},
		{producers, "enable.idempotence=false", "'enable.idempotence': it is ignored: it is on unless acks is 0 or 1"},
		{producers, "enable.idempotence=true", ""},
		{producers, "transactional.id=x", "'transactional.id': it is ignored: writes are confirmed before the commit, without transactions"},
		{producers, "buffer.memory=1", "'buffer.memory': it has no effect: FLOW_MAX_EMIT_BYTES bounds what is held"},
		{producers, "batch.size=16384", "'batch.size': it has no effect: "},
		{producers, "max.block.ms=1", "'max.block.ms': it has no effect: "},
		{producers, "value.serializer=x", "'value.serializer': it has no effect: records pass as bytes"},
		{producers, "max.in.flight.requests.per.connection=5", ""},
		{consumers, "fetch.max.wait.m=5", "'fetch.max.wait.m': no Kafka client property has that name; it is ignored; did you mean 'fetch.max.wait.ms'?"},
		{producers, "compresion.type=lz4", "'compresion.type': no Kafka client property has that name; it is ignored; did you mean 'compression.type'?"},
		{producers, "colour=blue", "'colour': no Kafka client property has that name; it is ignored"},
		// What is possible here is less than what Java takes.
		{consumers, "fetch.min.bytes=0", "'fetch.min.bytes': it is 0, but works as 1, which is the limit here"},
		{consumers, "fetch.max.bytes=0", "'fetch.max.bytes': it is 0, but works as 1,"},
		{consumers, "fetch.max.bytes=2147483647", "'fetch.max.bytes': it is 2147483647, but works as 1073741824,"},
		{consumers, "max.partition.fetch.bytes=0", "'max.partition.fetch.bytes': it is 0, but works as 1,"},
		{consumers, "fetch.max.wait.ms=0", "'fetch.max.wait.ms': it is 0, but works as 10,"},
		{consumers, "metadata.max.age.ms=0", "'metadata.max.age.ms': it is 0, but works as 250,"},
		{consumers, "metadata.max.age.ms=9223372036854775807", "'metadata.max.age.ms': it is 9223372036854775807, but works as 3600000,"},
		{consumers, "connections.max.idle.ms=-1", "'connections.max.idle.ms': it is -1, but works as 900000,"},
		{consumers, "connections.max.idle.ms=0", "'connections.max.idle.ms': it is 0, but works as 100,"},
		{consumers, "request.timeout.ms=0", "'request.timeout.ms': it is 0, but works as 200,"},
		{consumers, "default.api.timeout.ms=0", "'default.api.timeout.ms': it is 0, but works as 1000,"},
		{consumers, "retry.backoff.ms=0", "'retry.backoff.ms': it is 0, but works as 10,"},
		{consumers, "socket.connection.setup.timeout.ms=0", "'socket.connection.setup.timeout.ms': it is 0, but works as 1,"},
		{producers, "max.request.size=0", "'max.request.size': it is 0, but works as 512,"},
	} {
		warnings, problems := judge(test.client, test.line)
		if len(problems) > 0 {
			t.Errorf("%q: problems %q", test.line, problems)
		}
		var want []string
		if test.want != "" {
			want = []string{place1(test.client) + test.want}
		}
		wantPrefixes(t, warnings, want)
	}
}

func TestEveryOddButLegalValueIsTakenByKgo(t *testing.T) {
	for _, lines := range [][]string{
		{"fetch.max.bytes=0", "max.partition.fetch.bytes=2147483647"}, {"fetch.max.bytes=2147483647"}, {"max.partition.fetch.bytes=2147483647"}, {"fetch.max.wait.ms=0"},
		{"session.timeout.ms=1", "heartbeat.interval.ms=1"}, {"session.timeout.ms=2147483647"}, {"max.poll.interval.ms=1"}, {"max.poll.interval.ms=2147483647"},
		{"metadata.max.age.ms=0"}, {"metadata.max.age.ms=9223372036854775807"}, {"connections.max.idle.ms=-9223372036854775808"}, {"request.timeout.ms=0"}, {"request.timeout.ms=2147483647"},
		{"default.api.timeout.ms=2147483647"}, {"retry.backoff.ms=9223372036854775807", "retry.backoff.max.ms=0"}, {"group.protocol=consumer", "group.remote.assignor=range"},
		{"socket.connection.setup.timeout.ms=9223372036854775807"}, {"client.rack=" + strings.Repeat("r", 512)},
	} {
		settings, _, problems := consumerSettings("in", noFiles, layer(lines...))
		if len(problems) > 0 {
			t.Errorf("%q: %q", lines, problems)
		}
		client(t, settings.Connection, settings.Options)
	}
	for _, lines := range [][]string{
		{"acks=0"}, {"acks=1", "retries=0", "enable.idempotence=false"}, {"linger.ms=9223372036854775807"}, {"request.timeout.ms=0", "delivery.timeout.ms=2147483647"},
		{"request.timeout.ms=2147483647"}, {"max.request.size=0"}, {"max.request.size=2147483647"}, {"retries=0"}, {"acks=0", "max.in.flight.requests.per.connection=2147483647"},
		{"compression.type=gzip", "compression.gzip.level=-1"},
	} {
		settings, _, problems := producerSettings("out", noFiles, layer(lines...))
		if len(problems) > 0 {
			t.Errorf("%q: %q", lines, problems)
		}
		client(t, settings.Connection, settings.Options)
	}
}

func TestPropertiesThatContradictEachOtherAreToldTogether(t *testing.T) {
	for _, test := range []struct {
		name               string
		client             clientKinds
		lines              []string
		warnings, problems []string
	}{
		{"a third is enough", consumers, []string{"heartbeat.interval.ms=15000"}, nil, nil},
		{"heartbeat over a third", consumers, []string{"heartbeat.interval.ms=15001"},
			[]string{"streamlet.conf:1:1: inlet 'in': 'heartbeat.interval.ms': heartbeat.interval.ms (15001) is more than a third of session.timeout.ms (45000)"}, nil},
		{"session too short", consumers, []string{"session.timeout.ms=8000"},
			[]string{"streamlet.conf:1:1: inlet 'in': 'session.timeout.ms': heartbeat.interval.ms (3000) is more than a third of session.timeout.ms (8000)"}, nil},
		{"heartbeat as long as the session", consumers, []string{"heartbeat.interval.ms=45000"}, nil,
			[]string{"streamlet.conf:1:1: inlet 'in': 'heartbeat.interval.ms': heartbeat.interval.ms (45000) must be less than session.timeout.ms (45000)"}},
		{"what cannot be read is not compared", consumers, []string{"heartbeat.interval.ms=50000", "session.timeout.ms=90s"}, nil,
			[]string{"streamlet.conf:2:1: inlet 'in': 'session.timeout.ms': it is '90s'"}},
		{"a rebalance shorter than giving up", consumers, []string{"max.poll.interval.ms=3000"},
			[]string{"streamlet.conf:1:1: inlet 'in': 'max.poll.interval.ms': it is 3000, no more than the 3000 ms"}, nil},
		{"a rebalance longer than giving up", consumers, []string{"max.poll.interval.ms=3001"}, nil, nil},
		{"the new protocol with the members' own times", consumers, []string{"group.protocol=consumer", "session.timeout.ms=10000", "heartbeat.interval.ms=20000",
			"partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor"}, nil,
			[]string{"streamlet.conf:2:1: inlet 'in': 'session.timeout.ms': it cannot be set with group.protocol=consumer", "streamlet.conf:3:1: inlet 'in': 'heartbeat.interval.ms': it cannot",
				"streamlet.conf:4:1: inlet 'in': 'partition.assignment.strategy': it cannot"}},
		{"the old protocol with the broker's assignor", consumers, []string{"group.remote.assignor=range"}, nil,
			[]string{"streamlet.conf:1:1: inlet 'in': 'group.remote.assignor': it cannot be set with group.protocol=classic"}},
		{"delivery as long as its parts", producers, []string{"delivery.timeout.ms=30005", "linger.ms=5"}, nil, nil},
		{"delivery shorter than its parts", producers, []string{"delivery.timeout.ms=30004", "linger.ms=5"}, nil,
			[]string{"streamlet.conf:1:1: outlet 'out': 'delivery.timeout.ms': delivery.timeout.ms (30004) must be at least linger.ms (5) + request.timeout.ms (30000)"}},
		{"parts longer than the default delivery", producers, []string{"request.timeout.ms=120000", "linger.ms=5"},
			[]string{"streamlet.conf:1:1: outlet 'out': 'request.timeout.ms': delivery.timeout.ms is raised from 120000 to 120005, since it must be at least linger.ms (5) + request.timeout.ms (120000)"}, nil},
		{"idempotence asked for and made impossible", producers, []string{"enable.idempotence=true", "acks=1", "retries=0"},
			[]string{"streamlet.conf:2:1: outlet 'out': 'acks': acks=1 BREAKS THE GUARANTEE"},
			[]string{"streamlet.conf:1:1: outlet 'out': 'enable.idempotence': enable.idempotence=true needs acks=all, but acks is 1",
				"streamlet.conf:1:1: outlet 'out': 'enable.idempotence': enable.idempotence=true needs retries of at least 1"}},
		{"more in flight than can be kept in order", producers, []string{"max.in.flight.requests.per.connection=6"}, nil,
			[]string{"streamlet.conf:1:1: outlet 'out': 'max.in.flight.requests.per.connection': it is 6, but must be at most 5"}},
		{"weak acks", producers, []string{"acks=0", "max.in.flight.requests.per.connection=6"},
			[]string{"streamlet.conf:1:1: outlet 'out': 'acks': acks=0 BREAKS THE GUARANTEE", "streamlet.conf:2:1: outlet 'out': 'max.in.flight.requests.per.connection': it is 6, but works as 1 with acks=0"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			warnings, problems := judge(test.client, test.lines...)
			wantPrefixes(t, warnings, test.warnings)
			wantPrefixes(t, problems, test.problems)
		})
	}
}

func TestRaisedDeliveryTimeoutCounts(t *testing.T) {
	settings, _, _ := producerSettings("out", noFiles, layer("request.timeout.ms=180000"))
	if settings.DeliveryTimeout != 3*time.Minute {
		t.Errorf("DeliveryTimeout is %v", settings.DeliveryTimeout)
	}
}

func TestWeakAcksTurnIdempotenceOffAndNothingElseDoes(t *testing.T) {
	for _, test := range []struct {
		lines    []string
		acks     kgo.Acks
		disabled bool
	}{
		{nil, kgo.AllISRAcks(), false}, {[]string{"acks=all"}, kgo.AllISRAcks(), false}, {[]string{"enable.idempotence=false"}, kgo.AllISRAcks(), false},
		{[]string{"retries=3"}, kgo.AllISRAcks(), false}, {[]string{"acks=1"}, kgo.LeaderAck(), true}, {[]string{"acks=0"}, kgo.NoAck(), true},
	} {
		settings, _, _ := producerSettings("out", noFiles, layer(test.lines...))
		wantOption(t, client(t, settings.Connection, settings.Options), "DisableIdempotentWrite", test.disabled)
		wantOption(t, client(t, settings.Connection, settings.Options), "RequiredAcks", test.acks)
		wantOption(t, client(t, settings.Connection, settings.Options), "MaxProduceRequestsInflightPerBroker", 1)
	}
}

func TestALaterLayersPropertyCounts(t *testing.T) {
	settings, warnings, problems := consumerSettings("in", noFiles, layer("fetch.min.bytes=nonsense", "max.partition.fetch.bytes=1"), layer("fetch.min.bytes=2"))
	if len(warnings)+len(problems) > 0 || settings.MaxPartitionFetch != 1 {
		t.Errorf("%+v, %q, %q", settings, warnings, problems)
	}
	wantOption(t, client(t, settings.Connection, settings.Options), "FetchMinBytes", int32(2))
}

func TestEveryProblemOfAPortIsToldAtOnceInTheOrderOfTheFile(t *testing.T) {
	_, problems := judge(consumers, "max.poll.records=0", "auto.offset.reset=middle", "fetch.max.wait.ms=x")
	wantPrefixes(t, problems, []string{"streamlet.conf:1:1: inlet 'in': 'max.poll.records'", "streamlet.conf:2:1: inlet 'in': 'auto.offset.reset'", "streamlet.conf:3:1: inlet 'in': 'fetch.max.wait.ms'"})
}

func TestNoSecretIsShown(t *testing.T) {
	const word = "hunter2"
	for _, name := range []string{"sasl.jaas.config", "ssl.truststore.password", "ssl.key.password", "ssl.keystore.key", "sasl.oauthbearer.client.credentials.client.secret", "sasl.login.token",
		"my.pass.credential", "passwords", "sasl.jaas.confg", "SSL.KEY"} {
		for _, client := range []clientKinds{consumers, producers} {
			warnings, problems := judge(client, name+"="+word)
			if told := strings.Join(append(warnings, problems...), "\n"); told == "" || strings.Contains(told, word) {
				t.Errorf("%s: told %q", name, told)
			}
		}
	}
	if got := shown(property{name: "Ssl.Key.Password", value: word}); strings.Contains(got, word) {
		t.Errorf("shown is %s", got)
	}
	if _, problems := judge(consumers, "partitioner.ignore.keys="+word); len(problems) > 0 {
		t.Errorf("told %q", problems)
	}
}
