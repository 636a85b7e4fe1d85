package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

func TestProblemsOfAllSourcesAreToldAtOnce(t *testing.T) {
	spec := routerSpec()
	spec.ProtocolVersion = "one"
	spec.Streamlet.Inlets[0].Contract.Fingerprint = "x"
	_, _, problems := readSetting(setting{
		args: []string{"--fast"},
		env:  map[string]string{"FLOW_METRICS_PORT": "x"},
		files: map[string]string{
			"descriptor.json": strings.Replace(string(writeSpec(spec)), `"sdk"`, `"sdks"`, 1),
			"streamlet.conf": `flow {
  streamlet = router
  config { review-threshold = many }
  inlets { in { topic = "a b", consumer-config { fetch.min.bytes = x, "sasl.mechanism" = PLAIN } } }
  outlets { valid { topic = b, bootstrap.servers = ",", batch.max-records = 1 }, rewiev { topic = c, bootstrap.servers = "kafka:9092" } }
}`,
		},
	})
	wantPrefixes(t, problems, []string{
		"argument '--fast' is unknown",
		"FLOW_METRICS_PORT is 'x', but must be a port",
		"descriptor.json:3:3: 'sdks' is not a field of a descriptor; did you mean 'sdk'?",
		"descriptor.json: protocol_version 'one' is not MAJOR.MINOR",
		"descriptor.json: inlet 'in': fingerprint 'x' does not belong to schema_name 'cart-events.v1'",
		"streamlet.conf:1:6: flow.pipeline is missing; it is the pipeline's id",
		"streamlet.conf:3:31: flow.config.review-threshold is 'many', but must be an INTEGER",
		"streamlet.conf:4:25: flow.inlets.in.topic is 'a b', but must be 1 to 249 of",
		"streamlet.conf:4:15: flow.inlets.in.bootstrap.servers is missing; it is the brokers",
		"streamlet.conf:4:68: inlet 'in': 'fetch.min.bytes': it is 'x', but must be",
		"streamlet.conf:5:11: outlet 'review' of descriptor.json is missing; write flow.outlets.review { topic = …, bootstrap.servers = … }",
		"streamlet.conf:5:89: descriptor.json has no outlet 'rewiev'; remove flow.outlets.rewiev; did you mean 'review'?",
		"streamlet.conf:5:52: flow.outlets.valid.bootstrap.servers names no broker",
	})
}

func TestFilesThatAreNotThere(t *testing.T) {
	descriptor := string(writeSpec(routerSpec()))
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"no directory", nil, []string{"FLOW_CONFIG_DIR: the directory '/etc/flow/config' does not exist; mount the configuration there, or set FLOW_CONFIG_DIR to where it is"}},
		{"an empty directory", map[string]string{}, []string{"FLOW_CONFIG_DIR: the directory '/etc/flow/config' is empty, or what is in it is not meant for the sidecar: it has neither descriptor.json nor streamlet.conf; mount"}},
		{"no descriptor", map[string]string{"streamlet.conf": routerConf}, []string{"descriptor.json: there is no such file in '/etc/flow/config'; write it with the SDK's descriptor command"}},
		{"no streamlet.conf", map[string]string{"descriptor.json": descriptor}, []string{"streamlet.conf: there is no such file in '/etc/flow/config'; it names the pipeline"}},
		{"empty files", map[string]string{"descriptor.json": "", "streamlet.conf": ""}, []string{"descriptor.json: the file is empty", "streamlet.conf: it has no object flow { … }"}},
		{"flow is a text", map[string]string{"descriptor.json": descriptor, "streamlet.conf": "flow = x"}, []string{"streamlet.conf: it has no object flow { … }"}},
		{"no HOCON", map[string]string{"descriptor.json": descriptor, "streamlet.conf": "flow {\n  pipeline = \"cart\n}"}, []string{"streamlet.conf:2:"}},
		{"flow.config is a text", map[string]string{"descriptor.json": string(writeSpec(&flowv1.Spec{ProtocolVersion: "1.0", Streamlet: &flowv1.StreamletDescriptor{Name: "s"}})),
			"streamlet.conf": "flow { pipeline = p, streamlet = s, config = x }"}, []string{"streamlet.conf:1:46: flow.config must be an object of parameters"}},
		{"a port that the descriptor has twice", map[string]string{"descriptor.json": `{"protocol_version": "1.0", "streamlet": {"name": "s", "inlets": [
			{"name": "in", "contract": {"format": "json", "schema_name": "cart-events.v1", "fingerprint": "nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM="}},
			{"name": "in", "contract": {"format": "json", "schema_name": "cart-events.v1", "fingerprint": "nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM="}}]}}`,
			"streamlet.conf": "flow { pipeline = p, streamlet = s }"},
			[]string{"descriptor.json: port 'in' is declared 2 times (inlet, inlet)", "streamlet.conf:1:6: inlet 'in' of descriptor.json is missing"}},
		{"substitutions of nothing", map[string]string{"descriptor.json": descriptor, "streamlet.conf": "flow {\n  pipeline = ${A}\n  streamlet = ${B}\n}"}, []string{"streamlet.conf:2:14:", "streamlet.conf:3:15:"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, problems := readSetting(setting{files: test.files})
			wantPrefixes(t, problems, test.want)
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}:        "the file in '/c' may not be read; make it readable for the user that the sidecar runs as",
		&fs.PathError{Op: "read", Path: "x", Err: errors.New("I/O error")}: "the file in '/c' cannot be read: read x: I/O error",
	} {
		_, _, problems := readConfig([]string{"-Dflow.config.dir=/c"}, func(string) (string, bool) { return "", false }, func(string) ([]byte, error) { return nil, err })
		wantPrefixes(t, problems, []string{"descriptor.json: " + want, "streamlet.conf: " + want})
	}
}

// inletConf is a streamlet.conf of one inlet, whose body begins on line 3.
func inletConf(body string) setting {
	spec := routerSpec()
	spec.Streamlet.Outlets, spec.Streamlet.ConfigParameters = nil, nil
	return setting{files: map[string]string{"descriptor.json": string(writeSpec(spec)), "streamlet.conf": "flow { pipeline = p, streamlet = s\ninlets { in {\n" + body + "\n} } }"}}
}

func TestWhatAPortMayNotHave(t *testing.T) {
	const kafka = "\nbootstrap.servers = \"k:1\""
	for _, test := range []struct{ name, body, want string }{
		{"no topic", kafka, "streamlet.conf:2:13: flow.inlets.in.topic is missing; it is the name of the Kafka topic"},
		{"a topic taken back", "topic = a\ntopic = null" + kafka, "streamlet.conf:2:13: flow.inlets.in.topic is missing"},
		{"an empty topic", `topic = ""` + kafka, "streamlet.conf:3:9: flow.inlets.in.topic is empty"},
		{"a topic that is an object", "topic { name = a }" + kafka, "streamlet.conf:3:7: flow.inlets.in.topic is an object, but must be a text"},
		{"two topics", "topic = [a, b]" + kafka, "streamlet.conf:3:9: flow.inlets.in.topic is 'a,b', but must be"},
		{"a topic of dots", "topic = \"..\"" + kafka, "streamlet.conf:3:9: flow.inlets.in.topic is '..', but must be"},
		{"a topic too long", "topic = " + strings.Repeat("a", 250) + kafka, "streamlet.conf:3:9: flow.inlets.in.topic is 'aaa"},
		{"a server without a port", "topic = a\nbootstrap.servers = \"k:1, kafka\"", "streamlet.conf:4:21: flow.inlets.in.bootstrap.servers has 'kafka', which is not host:port"},
		{"a server without brackets", "topic = a\nbootstrap.servers = [\"::1:9092\"]", "streamlet.conf:4:21: flow.inlets.in.bootstrap.servers has '::1:9092', which is not host:port"},
		{"servers of objects", "topic = a\nbootstrap.servers = [{ host = k }]", "streamlet.conf:4:21: flow.inlets.in.bootstrap.servers is an array, but must be a text"},
		{"an empty group", "topic = a\ngroup = \"\"" + kafka, "streamlet.conf:4:9: flow.inlets.in.group is empty; leave it out for <pipeline>.<streamlet>.<port>"},
		{"a client-id too long", "topic = a\nclient-id = " + strings.Repeat("c", 257) + kafka, "streamlet.conf:4:13: flow.inlets.in.client-id is 'ccc"},
		{"no records", "topic = a\nbatch.max-records = 0" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-records is '0', but must be a whole number from 1 to 1000000"},
		{"too many records", "topic = a\nbatch.max-records = 1000001" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-records is '1000001', but must be"},
		{"half a record", "topic = a\nbatch.max-records = 1.5" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-records is '1.5', but must be"},
		{"no bytes", "topic = a\nbatch { max-bytes = 0 }" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-bytes is '0', but must be a size from 1 byte to 1 GiB"},
		{"too many bytes", "topic = a\nbatch { max-bytes = 2 GiB }" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-bytes is '2 GiB', but must be"},
		{"bytes of no unit", "topic = a\nbatch { max-bytes = 5 apples }" + kafka, "streamlet.conf:4:21: flow.inlets.in.batch.max-bytes is '5 apples', but must be"},
		{"properties that are a text", "topic = a\nconsumer-config = x" + kafka, "streamlet.conf:4:19: flow.inlets.in.consumer-config must be an object of Kafka properties"},
		{"a property of objects", "topic = a\nconsumer-config { a = [{}] }" + kafka, "streamlet.conf:4:23: flow.inlets.in.consumer-config.a is an array, but must be a text"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, problems := readSetting(inletConf(test.body))
			wantPrefixes(t, problems, []string{test.want})
		})
	}
}

func TestWhatAPortMayHave(t *testing.T) {
	for _, test := range []struct {
		name, body string
		ok         func(in InletConfig) bool
	}{
		{"the longest topic", "bootstrap.servers = \"k:1\", topic = " + strings.Repeat("a", 249), func(in InletConfig) bool { return len(in.Topic) == 249 }},
		{"any group", "bootstrap.servers = \"k:1\", topic = t, group = \"my group\"", func(in InletConfig) bool { return in.Group == "my group" }},
		{"servers as Java takes them", "topic = t, bootstrap.servers = \" k:1,,PLAINTEXT://l:2 , k:1,\"", func(in InletConfig) bool { return strings.Join(in.BootstrapServers, " ") == "k:1 l:2" }},
		{"the smallest batches", "topic = t, bootstrap.servers = \"k:1\", batch { max-records = 1, max-bytes = 1 }", func(in InletConfig) bool { return in.BatchMaxRecords == 1 && in.BatchMaxBytes == 1 }},
		{"the largest batches", "topic = t, bootstrap.servers = \"k:1\", batch { max-records = 1e6, max-bytes = 1 GiB }", func(in InletConfig) bool { return in.BatchMaxRecords == 1e6 && in.BatchMaxBytes == 1<<30 }},
		{"batches not given", "topic = t, bootstrap.servers = \"k:1\", batch {}", func(in InletConfig) bool { return in.BatchMaxRecords == 100 && in.BatchMaxBytes == 1<<20 }},
		{"a number for a name", "topic = 1.50, bootstrap.servers = \"k:1\"", func(in InletConfig) bool { return in.Topic == "1.50" }},
		{"quoted keys", `"topic" = t, "bootstrap.servers" = "k:1", "batch.max-records" = 2, "consumer-config.max.partition.fetch.bytes" = 3`,
			func(in InletConfig) bool { return in.BatchMaxRecords == 2 && in.Consumer.MaxPartitionFetch == 3 }},
		{"the later of two spellings", `topic = t, "bootstrap.servers" = "k:1", bootstrap.servers = "l:2"`, func(in InletConfig) bool { return in.BootstrapServers[0] == "l:2" }},
		{"consumer-config over connection-config", "topic = t, bootstrap.servers = \"k:1\", consumer-config { max.partition.fetch.bytes = 1 }, connection-config { max.partition.fetch.bytes = 2, metadata.max.age.ms = 9000 }",
			func(in InletConfig) bool { return in.Consumer.MaxPartitionFetch == 1 }},
		{"a list as an array", "topic = t, bootstrap.servers = \"k:1\", consumer-config { partition.assignment.strategy = [org.apache.kafka.clients.consumer.RangeAssignor] }",
			func(in InletConfig) bool { return true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if in := good(t, inletConf(test.body)).Inlets[0]; !test.ok(in) {
				t.Errorf("inlet %+v", in)
			}
		})
	}
}

func TestAKeyThatNothingReadsIsAWarningWithTheNearestOne(t *testing.T) {
	s := withConf(`
flwo.pipeline = x
flow {
  pipeline = cart, streamlet = router, pipelines = 2
  config {}
  inlets { in { topic = a, bootstrap.servers = "k:1"
    botstrap.servers = "k:2"
    batch { max-record = 5 }
    producer-config { linger.ms = 5 }
    colour { red = 1, green = 2 }
    consumer-config { fetch.max.wait.m = 1 }
    batch.max-records.x = 1
  } }
  outlets { valid { topic = b, bootstrap.servers = "k:1", group = g, bootstrap.port = 1, batch = 1 }, review { topic = c, bootstrap.servers = "k:1", connection-config { foo.bar = 1 } } }
}`)
	_, warnings, problems := readSetting(s)
	wantPrefixes(t, problems, []string{"streamlet.conf:12:5: flow.inlets.in.batch.max-records is an object, but must be a text"})
	wantPrefixes(t, warnings, []string{
		"streamlet.conf:2:1: nothing reads 'flwo.pipeline'", "streamlet.conf:4:52: nothing reads 'flow.pipelines'; did you mean 'pipeline'?",
		"streamlet.conf:7:5: nothing reads 'flow.inlets.in.botstrap.servers'; did you mean 'bootstrap.servers'?",
		"streamlet.conf:8:26: nothing reads 'flow.inlets.in.batch.max-record'; did you mean 'batch.max-records'?",
		"streamlet.conf:9:21: nothing reads 'flow.inlets.in.producer-config.linger.ms'", "streamlet.conf:10:12: nothing reads 'flow.inlets.in.colour'",
		"streamlet.conf:11:42: inlet 'in': 'fetch.max.wait.m': no Kafka client property has that name; it is ignored; did you mean 'fetch.max.wait.ms'?",
		"streamlet.conf:14:180: outlet 'review': 'foo.bar': no Kafka client property has that name",
		"streamlet.conf:14:87: nothing reads 'flow.outlets.valid.bootstrap.port'", "streamlet.conf:14:67: nothing reads 'flow.outlets.valid.group'",
		"streamlet.conf:14:98: nothing reads 'flow.outlets.valid.batch'",
	})
}

func TestPropertiesAreToldInTheOrderOfTheFile(t *testing.T) {
	_, _, problems := readSetting(inletConf("topic = t, bootstrap.servers = \"k:1\"\nconsumer-config {\nmax.poll.records = x\nfetch.min.bytes = x\n\"check.crcs\" = x\n}"))
	wantPrefixes(t, problems, []string{"streamlet.conf:5:20: inlet 'in': 'max.poll.records'", "streamlet.conf:6:19: inlet 'in': 'fetch.min.bytes'", "streamlet.conf:7:16: inlet 'in': 'check.crcs'"})
}

func TestAPropertyThatAnotherTookThePlaceOfIsAWarning(t *testing.T) {
	_, warnings, _ := readSetting(inletConf("topic = t, bootstrap.servers = \"k:1\"\nconsumer-config {\nfetch.max = 1\nfetch.max.bytes = 5\n}"))
	wantPrefixes(t, warnings, []string{"streamlet.conf:6:19: 'flow.inlets.in.consumer-config.fetch.max.bytes' takes the place of what is written at streamlet.conf:5:13, which is gone; write both names in double quotes"})
}

func TestPortsMustBeExactlyTheDescriptors(t *testing.T) {
	port := func(topic string) string { return "{ topic = " + topic + ", bootstrap.servers = \"k:1\" }" }
	for _, test := range []struct {
		name, conf string
		want       []string
	}{
		{"all missing", "", []string{"streamlet.conf:1:6: inlet 'in' of descriptor.json is missing", "streamlet.conf:1:6: outlet 'review' of", "streamlet.conf:1:6: outlet 'valid' of"}},
		{"on the wrong side", "inlets { in " + port("a") + ", valid " + port("b") + " }\noutlets { review " + port("c") + " }",
			[]string{"streamlet.conf:2:61: flow.inlets.valid is no inlet in descriptor.json; move it to the others of its kind", "streamlet.conf:3:9: outlet 'valid' of descriptor.json is missing"}},
		{"taken back", "inlets { in " + port("a") + " }\noutlets { review " + port("c") + ", valid " + port("b") + " }\noutlets.valid = null", []string{"streamlet.conf:3:9: outlet 'valid' of descriptor.json is missing"}},
		{"a text", "inlets { in = x }\noutlets = y", []string{"streamlet.conf:2:15: flow.inlets.in must be an object", "streamlet.conf:3:11: flow.outlets must be an object with one object for each outlet"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, problems := readSetting(withConf("flow { pipeline = p, streamlet = s\n" + test.conf + "\n}"))
			wantPrefixes(t, problems, test.want)
		})
	}
}

func TestPortsThatGetInEachOthersWay(t *testing.T) {
	spec := routerSpec()
	spec.Streamlet.Inlets = append(spec.Streamlet.Inlets, &flowv1.Port{Name: "in2", Contract: spec.Streamlet.Inlets[0].Contract})
	read := func(in, in2, valid, review string) (warnings, problems []string) {
		_, warnings, problems = readSetting(setting{files: map[string]string{"descriptor.json": string(writeSpec(spec)),
			"streamlet.conf": "flow { pipeline = p, streamlet = s, inlets { in { " + in + " }, in2 { " + in2 + " } }, outlets { valid { " + valid + " }, review { " + review + " } } }"}})
		return warnings, problems
	}
	const valid, review = `topic = v, bootstrap.servers = "k:1"`, `topic = r, bootstrap.servers = "k:1"`
	for _, test := range []struct {
		name, in, in2      string
		warnings, problems []string
	}{
		{"one topic in two groups", `topic = t, bootstrap.servers = "k:1"`, `topic = t, bootstrap.servers = "k:1"`, nil, nil},
		{"one topic in one group", `topic = t, group = g, bootstrap.servers = "k:1,l:1"`, `topic = t, group = g, bootstrap.servers = "l:1"`, nil,
			[]string{"streamlet.conf: inlets 'in' and 'in2' both read topic 't' as group 'g': each would get a part of it; give one of them another group"}},
		{"one topic in one group of two clusters", `topic = t, group = g, bootstrap.servers = "k:1"`, `topic = t, group = g, bootstrap.servers = "l:1"`, nil, nil},
		{"two topics in one group", `topic = t, group = g, bootstrap.servers = "k:1"`, `topic = u, group = g, bootstrap.servers = "k:1"`, nil, nil},
		{"one client-id", `topic = t, client-id = c, bootstrap.servers = "k:1"`, `topic = u, client-id = c, bootstrap.servers = "k:1"`,
			[]string{"streamlet.conf: inlets 'in' and 'in2' have one client-id, 'c': metrics tell ports apart by it"}, nil},
		{"a loop", `topic = v, bootstrap.servers = "k:1"`, `topic = v, bootstrap.servers = "l:1"`,
			[]string{"streamlet.conf: inlet 'in' reads topic 'v', which outlet 'valid' writes: what is emitted comes back"}, nil},
		{"a session shorter than the backoff", `topic = t, bootstrap.servers = "k:1", consumer-config { session.timeout.ms = 29999 }`, `topic = u, bootstrap.servers = "k:1", consumer-config { session.timeout.ms = 30000 }`,
			[]string{"FLOW_RECONNECT_MAX_BACKOFF (30s) is longer than session.timeout.ms (29999) of inlet 'in': in a wait that long the sidecar leaves its consumer group"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			warnings, problems := read(test.in, test.in2, valid, review)
			wantPrefixes(t, warnings, test.warnings)
			wantPrefixes(t, problems, test.problems)
		})
	}
	warnings, _ := read(`topic = t, bootstrap.servers = "k:1"`, `topic = u, bootstrap.servers = "k:1"`, valid+", client-id = c", review+", client-id = c")
	wantPrefixes(t, warnings, []string{"streamlet.conf: outlets 'review' and 'valid' have one client-id, 'c'"})
}

func TestNoSecretOfAFileIsShown(t *testing.T) {
	const word = "hunter2"
	spec := routerSpec()
	spec.Streamlet.ConfigParameters = []*flowv1.ConfigParameter{{Key: "api-token", Type: flowv1.ConfigType_INTEGER}}
	conf := strings.Replace(routerConf, "review-threshold = 250", "api-token = "+word, 1)
	conf = strings.ReplaceAll(conf, "connection-config {}", `connection-config { sasl.jaas.config = "`+word+`", "ssl.key.password" = `+word+`, ssl.keystore.password = [{ a = `+word+` }], my.secret = `+word+` }`)
	_, warnings, problems := readSetting(setting{files: map[string]string{"descriptor.json": string(writeSpec(spec)), "streamlet.conf": conf}})
	told := strings.Join(append(warnings, problems...), "\n")
	if strings.Contains(told, word) {
		t.Errorf("told:\n%s", told)
	}
	for _, want := range []string{"flow.config.api-token is a value not shown here", "'ssl.key.password'", "ssl.keystore.password is an array", "'my.secret'"} {
		if !strings.Contains(told, want) {
			t.Errorf("not told: %s\n%s", want, told)
		}
	}
}
