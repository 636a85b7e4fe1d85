package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// network is the sidecar's way to everything outside; run is given it.
type network struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	listen func(network, address string) (net.Listener, error)
}

// connections dials for one Kafka client and can cut off the client: one whose broker hangs would otherwise go on trying,
// and not close, for minutes.
type connections struct {
	alive context.Context // the client's; only cut ends it
	kill  context.CancelFunc

	network  network
	port     Connection
	troubles *troubles

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	done   bool
	asking sync.WaitGroup // questions of ask; none begins after done
}

func newConnections(network network, port Connection, troubles *troubles) *connections {
	alive, kill := context.WithCancel(context.Background())
	return &connections{alive: alive, kill: kill, network: network, port: port, troubles: troubles, open: map[*trackedConn]struct{}{}}
}

// trackedConn leaves its set when it is closed.
type trackedConn struct {
	net.Conn
	set *connections
}

func (c *trackedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.open, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

// connect dials a broker; it is the client's Dialer.
func (c *connections) connect(ctx context.Context, network, host string) (net.Conn, error) {
	if d := c.port.DialTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	conn, err := c.network.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, set: c}
	c.mu.Lock()
	done := c.done
	c.open[tracked] = struct{}{}
	c.mu.Unlock()
	if done {
		_ = tracked.Close()
		return nil, net.ErrClosed
	}
	if c.port.Secure == nil {
		return tracked, nil
	}
	secured, err := c.port.Secure(ctx, tracked, host, func(text string) { c.troubles.tell("a store", text) })
	if err != nil {
		_ = tracked.Close()
		return nil, err
	}
	return secured, nil
}

// cut fails every request of the client and closes every connection, later ones at once.
func (c *connections) cut() {
	c.kill()
	c.mu.Lock()
	c.done = true
	open := make([]*trackedConn, 0, len(c.open))
	for conn := range c.open {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close() // the client learns of it by its read
	}
}

// ask asks a broker in the background, for a hook that must not wait. It does nothing once the client is cut off; closeClient
// waits for question, which has to end when alive does.
func (c *connections) ask(question func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.asking.Go(question)
	}
}

// clientOptions is what every Kafka client of a port has.
func clientOptions(port *PortConfig, connection Connection, conns *connections) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(port.BootstrapServers...), kgo.ClientID(port.ClientID), kgo.Dialer(conns.connect), kgo.WithContext(conns.alive),
		kgo.SoftwareNameAndVersion("ankka-flow-sidecar", clientVersion(sidecarVersion())), kgo.DisableClientMetrics(),
		kgo.WithHooks(&clientTroubles{conns.troubles, conns}),
		kgo.WithLogger(&conns.troubles.client),
	}
	if connection.Mechanism != nil {
		opts = append(opts, kgo.SASL(knownMechanism{connection.Mechanism(conns.network)}))
	}
	return append(opts, connection.Options...)
}

// clientLog passes on what a port's Kafka clients warn of, which come and go with conversations: each thing at once and then
// ever less often, and all together no more than a few lines a minute. Another port's clients have another.
type clientLog struct {
	log   *slog.Logger // with the port's name and topic
	topic string

	mu     sync.Mutex
	told   map[string]*trouble // by message, broker and error
	minute time.Time           // the beginning of the one that lines are counted in
	lines  int
	untold int // since the last line
}

const (
	firstClientPause   = time.Minute
	maxClientPause     = 10 * time.Minute
	clientLinesAMinute = 4
	maxClientTroubles  = 100 // remembered
)

func (*clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level > kgo.LogLevelWarn || toldAsTrouble(msg) {
		return
	}
	key, attrs := msg, make([]any, 0, len(keyvals)+2)
	for i := 0; i+1 < len(keyvals); i += 2 {
		name, value := fmt.Sprint(keyvals[i]), keyvals[i+1]
		if failed, ok := value.(error); ok {
			value = failed.Error()
		} else if text, ok := value.(fmt.Stringer); ok {
			value = text.String()
		}
		switch name {
		case "err", "error":
			name = "cause"
			key += fmt.Sprint(" ", value)
		case "broker":
			key += fmt.Sprint(" ", value)
		case "topic":
			if value == l.topic {
				continue // the line has it
			}
			name = "other_topic"
		}
		attrs = append(attrs, name, value)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.lines = now, 0
	}
	known := l.told[key]
	if known == nil {
		if l.told == nil || len(l.told) >= maxClientTroubles {
			l.told = map[string]*trouble{}
		}
		known = newTrouble(now, firstClientPause)
		l.told[key] = known
	}
	if l.lines >= clientLinesAMinute || !known.due(now, maxClientPause) {
		l.untold++
		return
	}
	if l.untold > 0 {
		attrs = append(attrs, "untold", l.untold)
	}
	l.lines, l.untold = l.lines+1, 0
	l.log.Warn("kafka client: "+msg, attrs...)
}

// toldAsTrouble says that troubles, or the commit loop, tells in words what the message is about.
func toldAsTrouble(msg string) bool {
	return slices.ContainsFunc([]string{"unable to commit offset for topic partition", "unable to open connection to broker", "unable to request api versions", "unable to initialize sasl", "read from broker received EOF during api versions", "read from broker errored, killing connection after 0"},
		func(beginning string) bool { return strings.HasPrefix(msg, beginning) })
}

// closeClient closes a client in peace if that is done within bound, else with its connections cut.
func (c *connections) closeClient(closing func(), bound time.Duration) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing()
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	c.cut()
	<-closed
	c.asking.Wait()
}
