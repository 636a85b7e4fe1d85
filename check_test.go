package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// withCommits makes kfake show that it keeps commits, as Kafka does once a group has asked for its coordinator.
var withCommits = kfake.SeedTopics(1, "__consumer_offsets")

// examined is what a run of check wrote and how it ended.
type examined struct {
	t    *testing.T
	code int
	text string
}

// examine runs check beside the bed's cluster and process, with the files and variables of the bed's sidecars. change may
// change the files first.
func (b *bed) examine(args []string, change ...func(*memFiles)) examined {
	b.t.Helper()
	files := newMemFiles()
	files.write("/etc/flow/config/descriptor.json", testkit.DescriptorJSON(b.spec))
	files.write("/etc/flow/config/streamlet.conf", b.deployment.Conf())
	for _, f := range change {
		f(files)
	}
	return b.examineWith(files, args...)
}

func (b *bed) examineWith(files files, args ...string) examined {
	b.t.Helper()
	out := &lockedBuffer{}
	code := run(b.t.Context(), world{
		args: append([]string{"check", "-Dflow.process.address=" + b.address}, args...), lookupEnv: func(string) (string, bool) { return "", false },
		stdout: out, files: files, network: network{listen: b.net.listen, dial: b.net.dial},
	})
	return examined{b.t, code, out.String()}
}

// want compares the exit code and looks for a line with all of the words.
func (e examined) want(code int, words ...string) {
	e.t.Helper()
	if e.code != code {
		e.t.Errorf("exit %d, want %d; it said\n%s", e.code, code, e.text)
	}
	e.says(words...)
}

func (e examined) says(words ...string) {
	e.t.Helper()
	for line := range strings.Lines(e.text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return
		}
	}
	e.t.Errorf("no line has %q; it said\n%s", words, e.text)
}

func TestCheckOfWhatIsWellFindsNoProblem(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(10)
		e := b.examine([]string{"-kafka", "-process"})
		e.want(0, "0 problems")
		e.says("ok", "topic 'in' exists: 2 partitions")
		e.says("ok", "topic 'out' exists: 2 partitions")
		e.says("ok", "partition 0 retains 0 to", "nothing is committed: reading would start at 0 (auto.offset.reset=earliest)")
		e.says("ok", "group 'pipe.echo.in' has no members now")
		e.says("ok", "0 of 2 partitions are committed, 10 offsets to read in all")
		e.says("ok", b.address, "answers as streamlet 'echo'", "it is what is deployed")
		e.says("ok", "1 of 1 brokers answer: "+b.deployment.Servers)
		e.says("ok", "time bound: 3 × heartbeat.interval.ms (3000) <= session.timeout.ms (45000)")
		e.says("ok", "time bound: request.timeout.ms (30000) + linger.ms (0) <= delivery.timeout.ms (120000)")
		e.says("warning", "max.message.bytes is 1048588", "records of up to 4194304 bytes (4 MiB)", "raise max.message.bytes to 4194432")
	}, withCommits)
}

func TestCheckTellsWhatWouldRunAndWhereItComesFrom(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Consumer = map[string]string{"fetch.max.wait.ms": "1", "max.partition.fetch.bytes": "8388608"}
		b.deployment.Inlets[0].Connection = map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
			"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";`}
		e := b.examine([]string{"-Dflow.pod.name=pod-1"})
		e.want(0)
		e.says("FLOW_PROCESS_ADDRESS", b.address, "(argument)")
		e.says("FLOW_METRICS_PORT", "2050", "(default)")
		e.says("reads topic 'in' as group 'pipe.echo.in' (static member 'pod-1.in')", "100 records")
		e.says("writes topic 'out'")
		e.says("sasl.jaas.config = (not shown) (streamlet.conf:")
		e.says("fetch.max.wait.ms = 10 (streamlet.conf:")                                // what it works as
		e.says("fetch.max.bytes = 8388608 (default here, not Java's)")                   // raised to what a partition may have
		e.says("auto.offset.reset = earliest (default here, not Java's)")                // the document's default
		e.says("defaults as in Java:", "acks=all")                                       // of the outlet
		e.says("warning", "'fetch.max.wait.ms': it is 1, but works as 10", "inlet 'in'") // start-up's own words
		if strings.Contains(e.text, "hunter2") {
			t.Error("it shows the password")
		}
		if strings.Contains(e.text, "\x1b[") {
			t.Error("it writes colours where no terminal is")
		}
	})
}

func TestCheckWritesOneJSONDocumentThatHasAllThatItSays(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.deployment.Inlets[0].Topic = "inn"
		e := b.examine([]string{"-json", "-kafka", "--process"})
		var report checkReport
		decoder := json.NewDecoder(strings.NewReader(e.text))
		if err := decoder.Decode(&report); err != nil || decoder.More() {
			t.Fatalf("%v in %s", err, e.text)
		}
		if report.Exit != 1 || e.code != 1 {
			t.Errorf("exit %d, in the document %d", e.code, report.Exit)
		}
		if want := (finding{forbidden, "inlet 'in'", "topic 'inn' does not exist; create it, or correct the name in streamlet.conf; did you mean 'in'?"}); !slices.Contains(report.Findings, want) {
			t.Errorf("findings %v", report.Findings)
		}
		if s := report.Summary; s.Pipeline != "pipe" || s.Inlets[0].Topic != "inn" || len(s.Outlets[0].Properties) == 0 || len(s.Variables) == 0 {
			t.Errorf("summary %+v", s)
		}
	}, withCommits)
}

func TestCheckFindsEachProblemOfTheConfigurationAndAsksNobodyThen(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		change func(*memFiles)
		words  []string
	}{
		"wrong HOCON": {nil, func(f *memFiles) {
			f.write("/etc/flow/config/streamlet.conf", []byte("flow {\n  pipeline = \"cart\n}"))
		},
			[]string{"problem", "streamlet.conf:2:"}},
		"a wrong variable":         {[]string{"-Dflow.metrics.port=http"}, nil, []string{"problem", "-Dflow.metrics.port is 'http', but must be a port from 1 to 65535"}},
		"an unknown argument":      {[]string{"-kafak"}, nil, []string{"problem", "argument '-kafak' is unknown", "did you mean '-kafka'?"}},
		"no directory":             {[]string{"-Dflow.config.dir=/nowhere"}, nil, []string{"problem", "FLOW_CONFIG_DIR: the directory '/nowhere' does not exist; mount the configuration there, or set FLOW_CONFIG_DIR to where it is"}},
		"a wrong descriptor":       {nil, func(f *memFiles) { f.write("/etc/flow/config/descriptor.json", []byte(`{"streamlett": {}}`)) }, []string{"problem", "descriptor.json:1:", "did you mean 'streamlet'?"}},
		"a wrong property value":   {nil, conf(`inlets.in { topic = in, bootstrap.servers = "k:1", consumer-config { auto.offset.reset = first } }`), []string{"problem", "streamlet.conf:1:", "'auto.offset.reset': it is 'first', but must be earliest, latest, none or"}},
		"a broken time bound":      {nil, conf(`inlets.in { topic = in, bootstrap.servers = "k:1", consumer-config { heartbeat.interval.ms = 50000 } }`), []string{"problem", "heartbeat.interval.ms (50000) must be less than session.timeout.ms (45000)"}},
		"a port that is not there": {nil, conf(`inlets.inn { topic = in, bootstrap.servers = "k:1" }`), []string{"problem", "inlet 'in' of descriptor.json is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				b.net.dead[b.deployment.Servers] = true // whoever asks there hears that nobody listens
				args := append([]string{"-kafka", "-process"}, c.args...)
				e := b.examine(args, func(f *memFiles) {
					if c.change != nil {
						c.change(f)
					}
				})
				e.want(2, c.words...)
				e.says("neither Kafka nor the process is asked until these problems are mended")
				if strings.Contains(e.text, "refuses the connection") {
					t.Errorf("it asked Kafka:\n%s", e.text)
				}
			})
		})
	}
}

// conf writes a streamlet.conf with an inlet, on one line.
func conf(inlet string) func(*memFiles) {
	return func(f *memFiles) {
		f.write("/etc/flow/config/streamlet.conf", []byte(`flow { pipeline = pipe, streamlet = echo, `+inlet+`, outlets.out { topic = out, bootstrap.servers = "k:1" } }`))
	}
}

func TestCheckFindsWhatIsWrongOnKafka(t *testing.T) {
	commit := func(b *bed, offset int64) {
		if err := b.kafka.Admin(func(admin *kadm.Client) error {
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: "in", Partition: 0, At: offset, LeaderEpoch: -1})
			return admin.CommitAllOffsets(context.Background(), "pipe.echo.in", offsets)
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	configure := func(b *bed, topic, key, value string) {
		if err := b.kafka.Configure(context.Background(), topic, key, value); err != nil {
			b.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(b *bed)
		code    int
		words   []string
	}{
		"an inlet's topic with a typing error": {func(b *bed) { b.deployment.Inlets[0].Topic = "im" }, 1,
			[]string{"problem", "topic 'im' does not exist; create it, or correct the name in streamlet.conf; did you mean 'in'?"}},
		"an outlet's topic that is not there": {func(b *bed) { b.deployment.Outlets[0].Topic = "elsewhere-entirely" }, 1,
			[]string{"problem", "topic 'elsewhere-entirely' does not exist; create it"}},
		"no broker where one should be": {func(b *bed) { b.deployment.Inlets[0].Servers = "127.0.0.1:1" }, 1,
			[]string{"problem", "bootstrap.servers: broker 127.0.0.1:1: unreachable: the host refuses the connection"}},
		"one of two bootstrap servers away": {func(b *bed) { b.deployment.Inlets[0].Servers = "127.0.0.1:1," + b.deployment.Servers }, 0,
			[]string{"warning", "bootstrap.servers: broker 127.0.0.1:1: unreachable", "others answer"}},
		"a broker that hangs": {func(b *bed) { b.net.freeze(b.deployment.Servers) }, 1,
			[]string{"problem", "bootstrap.servers: broker 127.0.0.1:", "no answer within"}},
		"a commit that retention has passed": {func(b *bed) {
			b.produce(20)
			commit(b, 3)
			b.deleteRecords(8)
		}, 1, []string{"problem", "partition 0 retains 8 to 20, but 3 is committed: retention removed 5 offsets before they were read; reading would go on at 8"}},
		"a commit past the end": {func(b *bed) {
			b.produce(5)
			commit(b, 9)
		}, 1, []string{"problem", "partition 0 retains 0 to 5, but 9 is committed: the topic was truncated or created anew; reading would start at 0"}},
		"a commit to go on from": {func(b *bed) {
			b.produce(5)
			commit(b, 4)
		}, 0, []string{"ok", "partition 0 retains 0 to 5, 4 is committed: 1 to read"}},
		"no commit and reading from the end": {func(b *bed) {
			b.produce(5)
			b.deployment.Inlets[0].Consumer = map[string]string{"auto.offset.reset": "latest"}
		}, 0, []string{"ok", "nothing is committed: reading would start at 5 (auto.offset.reset=latest)"}},
		"no commit and no policy": {func(b *bed) { b.deployment.Inlets[0].Consumer = map[string]string{"auto.offset.reset": "none"} }, 1,
			[]string{"problem", "partition 0 has no committed offset and auto.offset.reset is none: commit one, or choose earliest or latest"}},
		"an outlet's topic for small records": {func(b *bed) { configure(b, "out", "max.message.bytes", "5000") }, 0,
			[]string{"warning", "max.message.bytes is 5000", "4194304 bytes (4 MiB)", "raise max.message.bytes to 4194432"}},
		"an outlet's topic for every record": {func(b *bed) { configure(b, "out", "max.message.bytes", "4194432") }, 0,
			[]string{"ok", "max.message.bytes is 4194432"}},
		"a producer for small records": {func(b *bed) {
			configure(b, "out", "max.message.bytes", "4194432")
			b.deployment.Outlets[0].Producer = map[string]string{"max.request.size": "1000000"}
		}, 0, []string{"warning", "max.request.size is 1000000", "raise max.request.size"}},
		"an inlet's topic with records too large": {func(b *bed) { configure(b, "in", "max.message.bytes", "8000000") }, 0,
			[]string{"warning", "max.message.bytes is 8000000, but a record of more than 4128768 bytes cannot be delivered"}},
		"too few replicas in sync": {func(b *bed) { configure(b, "out", "min.insync.replicas", "2") }, 1,
			[]string{"problem", "1 partition has fewer replicas in sync than min.insync.replicas (2): writes there are refused"}},
		"unread records that retention reaches": {func(b *bed) {
			configure(b, "in", "retention.ms", "3600000")
			b.produce(5)
			time.Sleep(45 * time.Minute)
		}, 0, []string{"warning", "retention.ms is 1h0m0s", "of partitions 0 records that are not read yet are older than half of it: they will be removed within 30m0s"}},
		"unread records that are young": {func(b *bed) {
			configure(b, "in", "retention.ms", "3600000")
			b.produce(5)
			time.Sleep(15 * time.Minute)
		}, 0, []string{"ok", "retention.ms is 1h0m0s: nothing that is not read yet is older than half of it"}},
		"read records that are old": {func(b *bed) {
			configure(b, "in", "retention.ms", "3600000")
			b.produce(5)
			commit(b, 5)
			time.Sleep(45 * time.Minute)
		}, 0, []string{"ok", "retention.ms is 1h0m0s: nothing that is not read yet is older than half of it"}},
		"a session that the brokers do not allow": {func(b *bed) { b.deployment.Inlets[0].Consumer = map[string]string{"session.timeout.ms": "3600000"} }, 1,
			[]string{"problem", "session.timeout.ms (3600000) is more than the brokers' group.max.session.timeout.ms (300000)", "lower it"}},
		"a group of nobody who consumes": {func(b *bed) { b.joinAs("connect", "worker") }, 1,
			[]string{"problem", "group 'pipe.echo.in' is one of protocol type 'connect', which no consumer can join: give the inlet a group of its own"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				c.prepare(b)
				b.examine([]string{"-kafka"}).want(c.code, c.words...)
			}, withCommits, kfake.BrokerConfigs(map[string]string{"group.max.session.timeout.ms": "300000", "group.min.session.timeout.ms": "6000"}))
		})
	}
}

// deleteRecords removes what is below the offset, as retention does.
func (b *bed) deleteRecords(before int64) {
	b.t.Helper()
	if err := b.kafka.Admin(func(admin *kadm.Client) error {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "in", Partition: 0, At: before})
		_, err := admin.DeleteRecords(context.Background(), offsets)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
}

// joinAs puts a member of a protocol type into the inlet's group.
func (b *bed) joinAs(protocolType, protocol string) {
	b.t.Helper()
	client, err := b.kafka.Client()
	if err != nil {
		b.t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "pipe.echo.in", protocolType, 60000, 60000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: protocol}}
	for range 2 { // the first time the broker names the member
		resp, err := req.RequestWith(context.Background(), client)
		if err != nil {
			b.t.Fatal(err)
		}
		req.MemberID = resp.MemberID
	}
}

func TestCheckTellsMembersOfOthersInTheGroupFromItsOwn(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.start().awaitReady()
		b.examine([]string{"-kafka"}).want(0, "ok", "group 'pipe.echo.in' has 1 member, all of them this inlet's")
		other, err := b.kafka.Client(kgo.ConsumerGroup("pipe.echo.in"), kgo.ConsumeTopics("in"), kgo.ClientID("billing"), kgo.Balancers(kgo.CooperativeStickyBalancer()))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		var e examined
		testkit.Eventually(t, time.Minute, "both are members", func() (bool, string) {
			e = b.examine([]string{"-kafka"})
			return strings.Contains(e.text, "client-id 'billing' on 127.0.0.1:1, which reads 'in'"), e.text
		})
		e.want(1, "problem", "group 'pipe.echo.in' has members that are not this inlet's: client-id 'billing' on", "give the inlet a group of its own (flow.inlets.in.group)")
		if strings.Contains(e.text, "client-id 'pipe.echo.in' on") {
			t.Errorf("it takes its own member for another's:\n%s", e.text)
		}
	}, withCommits)
}

func TestCheckChangesNothingOnTheClusterAndBesideARunningSidecar(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, b *bed) {
		b.produce(10)
		s := b.start()
		s.awaitReady()
		b.awaitCaughtUp(time.Minute)
		s.stop()
		_, before := b.offsets()

		reading := documentedRequests(t)
		var mu sync.Mutex
		asked := map[string]int{}
		b.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			mu.Lock()
			defer mu.Unlock()
			asked[kmsg.NameForKey(req.Key())]++
			if name := kmsg.NameForKey(req.Key()); !slices.Contains(reading, name) {
				t.Errorf("it makes a request of %s, and docs/check.md names %v alone", name, reading)
			}
			if heartbeat, ok := req.(*kmsg.HeartbeatRequest); ok && heartbeat.MemberID != "nobody" {
				t.Errorf("it makes a heartbeat of member %q", heartbeat.MemberID)
			}
			if metadata, ok := req.(*kmsg.MetadataRequest); ok && metadata.AllowAutoTopicCreation {
				t.Error("it lets topics be made")
			}
			return nil, nil, false
		})
		files := s.files
		files.write("/tmp/flow/ready", []byte("kept"))
		files.write("/tmp/flow/alive", []byte("kept"))
		e := b.examineWith(files, "-kafka", "-process")
		e.want(0)
		mu.Lock()
		if asked["OffsetFetch"] == 0 || asked["DescribeConfigs"] == 0 || asked["Heartbeat"] == 0 {
			t.Errorf("it asked %v", asked)
		}
		mu.Unlock()
		for _, name := range []string{"ready", "alive"} {
			if content, err := files.ReadFile("/tmp/flow/" + name); err != nil || string(content) != "kept" {
				t.Errorf("%s is %q, %v", name, content, err)
			}
		}
		if files.has("/tmp/flow/.check") {
			t.Error("it left a file")
		}
		if len(b.process.Reported()) > 0 {
			t.Errorf("the process was told %v", b.process.Reported())
		}
		if _, after := b.offsets(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("committed %v before, %v after", before, after)
		}
	}, withCommits)
}

// documentedRequests are those that docs/check.md says check makes. Each of them reads, or is a heartbeat.
func documentedRequests(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "and no others:")
	list, _, _ = strings.Cut(list, ".\n")
	var names []string
	for _, name := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		names = append(names, name[1])
	}
	want := []string{"ApiVersions", "ConsumerGroupDescribe", "DescribeConfigs", "DescribeGroups", "FindCoordinator", "Heartbeat", "ListOffsets", "Metadata", "OffsetFetch"}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Fatalf("docs/check.md names %v; those that change nothing are %v", names, want)
	}
	return names
}

func TestCheckDoesNotAskForAGroupWhereThatWouldMakeTheTopicOfCommits(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bed) {
		b.cluster.ControlKey(int16(kmsg.FindCoordinator), func(kmsg.Request) (kmsg.Response, error, bool) {
			t.Error("it asks for a coordinator")
			return nil, nil, false
		})
		e := b.examine([]string{"-kafka"})
		e.want(0, "ok", "no group has ever committed on this cluster")
		e.says("ok", "partition 0 retains 0 to 0, nothing is committed: reading would start at 0 (auto.offset.reset=earliest)")
	})
}

func TestCheckToldOfMissingRights(t *testing.T) {
	acl := func(resource kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true}
	}
	const topic, group = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	for name, c := range map[string]struct {
		acls  []kfake.ACL
		words []string
	}{
		"none at all":       {nil, []string{"problem", "does not authorize DESCRIBE and READ on topic 'in' for this client; add an ACL for its principal"}},
		"no READ of topic":  {[]kfake.ACL{acl(topic, "in", kmsg.ACLOperationDescribe)}, []string{"problem", "does not authorize READ on topic 'in'"}},
		"no WRITE of topic": {[]kfake.ACL{acl(topic, "out", kmsg.ACLOperationRead)}, []string{"problem", "does not authorize WRITE on topic 'out'"}},
		"no group":          {[]kfake.ACL{acl(topic, "in", kmsg.ACLOperationRead)}, []string{"problem", "does not authorize DESCRIBE and READ on group 'pipe.echo.in'"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				way := map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="b";`}
				b.deployment.Inlets[0].Connection, b.deployment.Outlets[0].Connection = way, way
				b.examine([]string{"-kafka"}).want(1, c.words...)
			}, withCommits, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "bob", "b", c.acls...))
		})
	}
}

func TestCheckOfTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(b *bed)
		words   []string
	}{
		"not running": {func(b *bed) { b.process.Close() }, []string{"problem", "connection refused: is the process listening on", "start the process, or set FLOW_PROCESS_ADDRESS to where it listens"}},
		"on another port": {func(b *bed) {
			b.process.Close()
			b.listenAt(50051)
		}, []string{"problem", "connection refused", "the process of streamlet 'echo' answers on 127.0.0.1:50051: set FLOW_PROCESS_ADDRESS=127.0.0.1:50051, or let it listen on port"}},
		"another one": {func(b *bed) {
			b.process.SetSpec(testkit.Spec("other", testkit.Ports("in"), testkit.Ports("out", "extra")))
		},
			[]string{"problem", "outlet 'extra' is in the process, but not deployed; deploy the process and descriptor.json of one build"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, b *bed) {
				c.prepare(b)
				b.examine([]string{"-process"}).want(1, c.words...)
			})
		})
	}
}

// listenAt starts a process on a port of 127.0.0.1.
func (b *bed) listenAt(port int) {
	b.t.Helper()
	b.newProcess(net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
}

func TestCheckShowsColoursOnATerminalAlone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	none := func(string) (string, bool) { return "", false }
	if showsColours(world{stdout: write, lookupEnv: none}) {
		t.Error("colours on a pipe")
	}
	out := &lockedBuffer{}
	text := &checkText{w: out, colours: true}
	text.finding(finding{forbidden, "process", "gone"})
	if want := "  \x1b[31;1mproblem\x1b[0m gone\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
