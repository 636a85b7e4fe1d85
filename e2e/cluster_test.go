//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// cluster is a real Kafka: one or more brokers, each a process that is broker and controller in one.
type cluster struct {
	*testkit.Kafka
	brokers []*broker
	doors   []*door // one before each broker, when it was booted with them
}

type broker struct {
	*proc
	dir   string
	port  int
	lives int
	jvm   []string
}

// newCluster boots a cluster that ends with the test.
func newCluster(t *testing.T, n int, properties ...string) *cluster {
	t.Helper()
	c, err := boot(t.TempDir(), n, beside{doors: n > 1}, properties...)
	t.Cleanup(func() {
		for i, b := range c.brokers {
			if t.Failed() && b.proc != nil {
				t.Logf("broker %d, the end of its log:\n%s", i+1, b.tail(20))
			}
		}
		c.kill()
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listener is one that brokers have beside the plaintext one, on the host name localhost.
type listener struct {
	name, protocol string
	port           int
}

// beside is what a cluster may have besides.
type beside struct {
	listeners []listener // of a cluster of one broker
	jvm       []string   // options of Java
	doors     bool       // a door before each broker, which it advertises to whoever came through one
}

// boot formats and starts n brokers with everything in dir. The cluster has to be killed also when this fails.
func boot(dir string, n int, more beside, properties ...string) (*cluster, error) {
	var names, protocols string
	for _, l := range more.listeners {
		names += fmt.Sprintf(",%s://localhost:%d", l.name, l.port)
		protocols += fmt.Sprintf(",%s:%s", l.name, l.protocol)
	}
	c := &cluster{Kafka: &testkit.Kafka{}}
	var voters []string
	controllers := make([]int, n)
	for i := range n {
		b := &broker{dir: filepath.Join(dir, fmt.Sprintf("broker%d", i+1)), port: freePort(), jvm: more.jvm}
		c.brokers = append(c.brokers, b)
		controllers[i] = freePort()
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, controllers[i]))
		c.Seeds = append(c.Seeds, fmt.Sprintf("127.0.0.1:%d", b.port))
	}
	for i, b := range c.brokers {
		listens, advertises := names, names
		if more.doors {
			inside := fmt.Sprintf("127.0.0.1:%d", freePort())
			d, err := newDoor(inside)
			if err != nil {
				return c, err
			}
			c.doors = append(c.doors, d)
			listens += ",DOOR://" + inside
			advertises += fmt.Sprintf(",DOOR://127.0.0.1:%d", d.port())
		}
		if err := b.format(append([]string{
			"process.roles=broker,controller",
			fmt.Sprintf("node.id=%d", i+1),
			"controller.quorum.voters=" + strings.Join(voters, ","),
			fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d%s", b.port, controllers[i], listens),
			fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d%s", b.port, advertises),
			"controller.listener.names=CONTROLLER",
			"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,DOOR:PLAINTEXT" + protocols,
			"log.dirs=" + filepath.Join(b.dir, "data"),
			fmt.Sprintf("offsets.topic.replication.factor=%d", n),
			"offsets.topic.num.partitions=4",
			fmt.Sprintf("transaction.state.log.replication.factor=%d", n),
			"transaction.state.log.min.isr=1",
			fmt.Sprintf("share.coordinator.state.topic.replication.factor=%d", n),
			"share.coordinator.state.topic.min.isr=1",
			"group.initial.rebalance.delay.ms=0",
			"auto.create.topics.enable=false",
		}, properties...)); err != nil {
			return c, err
		}
		if err := b.launch(); err != nil {
			return c, err
		}
	}
	for _, b := range c.brokers {
		if err := b.serves(time.Minute); err != nil {
			return c, err
		}
	}
	// The first question for a group makes the topic of committed offsets, which takes a while.
	return c, testkit.Poll(time.Minute, "there is a group coordinator", func() (bool, string) {
		_, err := c.Committed(context.Background(), "nobody")
		return err == nil, fmt.Sprint(err)
	})
}

func (c *cluster) kill() {
	for _, b := range c.brokers {
		if b.proc != nil {
			b.proc.kill()
		}
	}
	for _, d := range c.doors {
		d.close()
	}
}

func (c *cluster) servers() string { return strings.Join(c.Seeds, ",") }

func (c *cluster) doorServers() string {
	var servers []string
	for _, d := range c.doors {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", d.port()))
	}
	return strings.Join(servers, ",")
}

func (b *broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *broker) format(lines []string) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.properties(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	tool, err := start(b.dir, "format", nil, "", java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", b.properties())...)
	if err != nil {
		return err
	}
	if <-tool.done; tool.err != nil {
		return fmt.Errorf("format: %w\n%s", tool.err, tool.tail(20))
	}
	return nil
}

// launch starts the broker with the data that it has.
func (b *broker) launch() (err error) {
	b.lives++
	b.proc, err = start(b.dir, fmt.Sprintf("life%d", b.lives), nil, "", slices.Insert(java("kafka.Kafka", b.properties()), 1, b.jvm...)...)
	return err
}

// serves waits until the broker does.
func (b *broker) serves(within time.Duration) error {
	return testkit.Poll(within, "the broker starts", func() (bool, string) {
		return strings.Contains(b.output(), "Kafka Server started"), b.tail(5)
	})
}

// again starts a broker that was stopped or killed, and waits until it serves.
func (b *broker) again(t *testing.T) {
	t.Helper()
	if err := b.launch(); err != nil {
		t.Fatal(err)
	}
	if err := b.serves(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// stop stops the broker as an operator does, and waits until it is gone.
func (b *broker) stop(t *testing.T) {
	t.Helper()
	b.signal(syscall.SIGTERM)
	testkit.Eventually(t, time.Minute, "the broker stops", func() (bool, string) { return !b.running(), b.tail(5) })
}

// java is the command line of one of Kafka's own classes. The options are for a short life on few cores.
func java(class string, args ...string) []string {
	return append([]string{"java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", kafkaLibs + "/*", class}, args...)
}
