//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// checked is what the program's check wrote, and its exit code.
type checked struct {
	t    *testing.T
	code int
	text string
}

// check runs the program's check for the world as it is deployed, with a process at the address.
func (w *world) check(address string, options ...string) checked {
	w.t.Helper()
	cmd := exec.Command(sidecarBinary, append([]string{"check", "-Dflow.process.address=" + address, "-Dflow.config.dir=" + w.configDir("check"),
		"-Dflow.state.dir=" + filepath.Join(w.dir, "check-state")}, options...)...)
	cmd.Env = append(cmd.Environ(), w.env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(string(out), secret) {
			w.t.Errorf("it shows a password")
		}
	}
	return checked{w.t, cmd.ProcessState.ExitCode(), string(out)}
}

// says looks for a line with all of the words.
func (c checked) says(words ...string) {
	c.t.Helper()
	if !c.has(words...) {
		c.t.Errorf("no line has %q; it said\n%s", words, c.text)
	}
}

func (c checked) has(words ...string) bool {
	for line := range strings.Lines(c.text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

func (c checked) exits(code int) {
	c.t.Helper()
	if c.code != code {
		c.t.Errorf("exit %d, want %d; it said\n%s", c.code, code, c.text)
	}
}

// asUser goes in as a user who may do what ACLs allow.
func asUser(t *testing.T, user string) func(l *lock) way {
	return func(l *lock) way {
		return l.ways(t)["SCRAM-SHA-256"].with("sasl.jaas.config", jaas("scram.ScramLoginModule", user, alicePassword))
	}
}

func TestCheckTellsARunningStreamletsStateAndWhatIsLeftOfItWhenItHasStopped(t *testing.T) {
	w := secured(t, asUser(t, "alice"), asUser(t, "alice"))
	p := w.double(throughSpec, to("out").handle)
	w.produce(testkit.Load(w.topic("in"), 1, 10))
	c := w.check(p.Addr(), "-kafka", "-process")
	c.exits(0)
	c.says("ok", "nothing is committed: reading would start at 0 (auto.offset.reset=earliest)")
	c.says("ok", "answers as streamlet 'through'", "it is what is deployed")
	s := w.sidecar(p.Addr())
	w.allCommitted(20 * time.Second)
	c = w.check(p.Addr(), "-kafka", "-process")
	c.exits(0)
	c.says("ok", "group '"+w.groups()[0]+"' has 1 member, all of them this inlet's")
	c.says("ok", "partition 0 retains 0 to 10, 10 is committed: 0 to read")
	c.says("ok", "the brokers' group.min.session.timeout.ms (6000) <= session.timeout.ms (45000) <= group.max.session.timeout.ms (1800000)")
	s.terminated(15 * time.Second)
	c = w.check(p.Addr(), "-kafka")
	c.exits(0)
	c.says("ok", "has no members, but has committed a record of the last 84h0m0s: the brokers keep its commits for offsets.retention.minutes (168h0m0s)")
	w.judge(to("out").expect, nil)
}

func TestCheckNamesEachRightThatIsMissing(t *testing.T) {
	w := secured(t, asUser(t, "bob"), asUser(t, "bob"))
	l, _ := locked()
	in, out := w.topic("in"), w.topic("out")
	group := w.groups()[0]
	topicACL := func(topic string) func(*kadm.ACLBuilder) *kadm.ACLBuilder {
		return func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Topics(topic) }
	}
	groupACL := func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Groups(group) }
	// An ACL that allows something else takes away what everybody may without one.
	l.allow(t, topicACL(in), kadm.OpAlterConfigs)
	l.allow(t, topicACL(out), kadm.OpDescribe)
	l.allow(t, groupACL, kadm.OpDelete)
	c := w.check("127.0.0.1:1", "-kafka")
	c.exits(1)
	c.says("problem", "does not authorize DESCRIBE and READ on topic '"+in+"' for this client; add an ACL for its principal", "without it nothing tells whether the topic exists")
	c.says("problem", "does not authorize WRITE on topic '"+out+"'")
	l.allow(t, groupACL, kadm.OpDescribe)
	l.allow(t, topicACL(in), kadm.OpDescribe)
	c = w.check("127.0.0.1:1", "-kafka")
	c.exits(1)
	c.says("problem", "does not authorize READ on topic '"+in+"'")
	c.says("problem", "does not authorize READ on group '"+group+"'")
	c.says("ok", "the topic's properties are not known", "DESCRIBE_CONFIGS on topic '"+out+"'")
	l.allow(t, groupACL, kadm.OpRead)
	l.allow(t, topicACL(in), kadm.OpRead)
	l.allow(t, topicACL(out), kadm.OpWrite)
	c = w.check("127.0.0.1:1", "-kafka")
	c.exits(0)
	c.says("ok", "reading would start at 0")
}

func TestCheckTellsAMissingTopicAndTheOneThatWasMeant(t *testing.T) {
	w := secured(t, asUser(t, "alice"), asUser(t, "alice"))
	w.deployment.Inlets[0].Topic, w.deployment.Outlets[0].Topic = w.topic("in")+"s", strings.Replace(w.topic("out"), "out", "otu", 1)
	c := w.check("127.0.0.1:1", "-kafka")
	c.exits(1)
	c.says("problem", "does not exist; create it, or correct the name in streamlet.conf; did you mean '"+w.topic("in")+"'?")
	c.says("problem", "does not exist; create it, or correct the name in streamlet.conf; did you mean '"+w.topic("out")+"'?")
	var made []string
	if err := w.cluster.Admin(func(admin *kadm.Client) error {
		topics, err := admin.ListTopics(w.ctx)
		made = topics.Names()
		return err
	}); err != nil || slices.Contains(made, w.topic("in")+"s") {
		t.Errorf("topics %v, %v", made, err)
	}
}

func TestCheckTellsATopicThatIsTooSmallForWhatMayBeEmitted(t *testing.T) {
	w := secured(t, asUser(t, "alice"), asUser(t, "alice"))
	if err := w.cluster.Configure(w.ctx, w.topic("out"), "max.message.bytes", "5000"); err != nil {
		t.Fatal(err)
	}
	c := w.check("127.0.0.1:1", "-kafka")
	c.exits(0)
	c.says("warning", "max.message.bytes is 5000", "raise max.message.bytes to 4194432")
	if err := w.cluster.Configure(w.ctx, w.topic("out"), "max.message.bytes", "4194432"); err != nil {
		t.Fatal(err)
	}
	c = w.check("127.0.0.1:1", "-kafka")
	c.says("ok", "max.message.bytes is 4194432")
}

func TestCheckTellsForeignMembersOfEitherGroupProtocol(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"classic": {kgo.Balancers(kgo.RangeBalancer())}, "consumer": {kgo.ServerSideBalancer()}} {
		t.Run(name, func(t *testing.T) {
			w := secured(t, asUser(t, "alice"), asUser(t, "alice"))
			other, err := w.cluster.Client(append(opts, kgo.ConsumerGroup(w.groups()[0]), kgo.ConsumeTopics(w.topic("in")), kgo.ClientID("billing"))...)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			testkit.Eventually(t, 30*time.Second, "check tells of the member", func() (bool, string) {
				c := w.check("127.0.0.1:1", "-kafka")
				return c.code == 1 && c.has("problem", "group '"+w.groups()[0]+"' has members that are not this inlet's: client-id 'billing' on", "which reads '"+w.topic("in")+"'", "give the inlet a group of its own"), c.text
			})
			if name == "classic" {
				w.check("127.0.0.1:1", "-kafka").says("warning", "works with the assignor 'range' now, and this inlet with cooperative-sticky")
			}
		})
	}
}

func TestCheckTellsAWrongPasswordInTheWordsOfStartUp(t *testing.T) {
	wrong := func(l *lock) way {
		return l.ways(t)["SCRAM-SHA-256"].with("sasl.jaas.config", jaas("scram.ScramLoginModule", "alice", wrongPassword))
	}
	w := secured(t, wrong, wrong)
	c := w.check("127.0.0.1:1", "-kafka")
	c.exits(1)
	c.says("problem", "bootstrap.servers: broker localhost:", "it does not accept the credentials of sasl.mechanism SCRAM-SHA-256")
	l, _ := locked()
	w.deployment.Inlets[0].Servers = l.server(way{listener: "TOKEN"})
	c = w.check("127.0.0.1:1", "-kafka")
	c.exits(1)
	c.says("problem", "sasl.mechanism SCRAM-SHA-256 is not enabled on this listener; enabled are: OAUTHBEARER")
}

func TestCheckTellsWhatRetentionWillRemoveAndCommitsThatMayExpire(t *testing.T) {
	w := secured(t, asUser(t, "alice"), asUser(t, "alice"))
	records := testkit.Load(w.topic("in"), 1, 10)
	for _, r := range records {
		r.Timestamp = time.Now().Add(-5 * 24 * time.Hour)
	}
	w.produce(records)
	c := w.check("127.0.0.1:1", "-kafka")
	c.exits(0)
	c.says("warning", "retention.ms is 168h0m0s", "of partitions 0 records that are not read yet are older than half of it: they will be removed within 84h0m0s")
	p := w.double(throughSpec, to("out").handle)
	s := w.sidecar(p.Addr())
	w.allCommitted(20 * time.Second)
	s.terminated(15 * time.Second)
	c = w.check("127.0.0.1:1", "-kafka")
	c.exits(0)
	c.says("ok", "retention.ms is 168h0m0s: nothing that is not read yet is older than half of it")
	c.says("warning", "the group has no members, and no record that it has committed is younger than 84h0m0s: its commits expire 168h0m0s after the last member left (offsets.retention.minutes)")
	w.deployment.Inlets[0].Consumer = map[string]string{"auto.offset.reset": "latest"}
	w.check("127.0.0.1:1", "-kafka").says("warning", "a sidecar that was stopped for longer starts by auto.offset.reset=latest")
}
