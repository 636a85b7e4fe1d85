package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	checkKafkaWithin = time.Minute      // all questions of a port
	checkAskWithin   = 15 * time.Second // one question
)

// portCheck asks the brokers of one port, over connections as the port's own.
type portCheck struct {
	*findings
	port     *PortConfig
	client   *kgo.Client
	admin    *kadm.Client
	troubles *overheard
}

// askKafka makes a client as start-up does, looks whether the brokers answer, and if they do calls ask. options are the
// port's own beside its connection's.
func askKafka(ctx context.Context, port *PortConfig, connection Connection, options []kgo.Opt, network network, f *findings, ask func(context.Context, *portCheck)) {
	ctx, cancel := context.WithTimeout(ctx, checkKafkaWithin)
	defer cancel()
	heard := &overheard{}
	log := slog.New(heard)
	conns := newConnections(network, connection, newTroubles(connection, port.Topic, log))
	all := append(clientOptions(port, connection, conns), options...)
	// Start-up tries again for ever; a person waits for an answer.
	all = append(all, kgo.RequestRetries(2), kgo.RetryTimeout(checkAskWithin))
	client, err := kgo.NewClient(all...)
	if err != nil {
		f.problem("no Kafka client can be made of the properties: %v", err)
		return
	}
	defer conns.closeClient(client.Close, closeBound)
	c := &portCheck{f, port, client, kadm.NewClient(client), heard}
	if c.brokers(ctx) {
		ask(ctx, c)
	}
}

// overheard keeps what a port's troubles say, which is what start-up would log.
type overheard struct {
	mu   sync.Mutex
	said []string
}

func (*overheard) Enabled(context.Context, slog.Level) bool { return true }
func (o *overheard) WithAttrs([]slog.Attr) slog.Handler     { return o }
func (o *overheard) WithGroup(string) slog.Handler          { return o }

func (o *overheard) Handle(_ context.Context, r slog.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Level >= slog.LevelWarn && !slices.Contains(o.said, r.Message) {
		o.said = append(o.said, r.Message)
	}
	return nil
}

// about are the sentences that name an address.
func (o *overheard) about(address string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.said), func(said string) bool {
		return !strings.Contains(said+" ", "broker "+address+":") && !strings.Contains(said, "broker "+address+" ")
	})
}

// brokers asks each broker that bootstrap.servers names, and each that the cluster has, and says whether there is one that
// answers.
func (c *portCheck) brokers(ctx context.Context) bool {
	seeds := c.client.SeedBrokers()
	answers := make([]*kmsg.MetadataResponse, len(seeds))
	failures := make([]string, len(seeds))
	var asking sync.WaitGroup
	for i, server := range c.port.BootstrapServers {
		asking.Go(func() { answers[i], failures[i] = c.askBroker(ctx, seeds[i], server) })
	}
	asking.Wait()
	first := slices.IndexFunc(answers, func(a *kmsg.MetadataResponse) bool { return a != nil })
	for i, failure := range failures {
		switch {
		case failure == "":
		case first < 0:
			c.problem("bootstrap.servers: %s", failure)
		default:
			c.warn("bootstrap.servers: %s; others answer, but at a start without them this one is needed", failures[i])
		}
	}
	if first < 0 {
		return false
	}
	if err := c.client.Ping(ctx); err != nil { // tells the client who the brokers are
		c.problem("the brokers no longer answer: %v", err)
		return false
	}
	members := answers[first].Brokers
	slices.SortFunc(members, func(a, b kmsg.MetadataResponseBroker) int { return cmp.Compare(a.NodeID, b.NodeID) })
	failures = make([]string, len(members))
	for i, member := range members {
		address := addressOf(kgo.BrokerMetadata{Host: member.Host, Port: member.Port})
		asking.Go(func() { _, failures[i] = c.askBroker(ctx, c.client.Broker(int(member.NodeID)), address) })
	}
	asking.Wait()
	var answering []string
	for i, member := range members {
		address := addressOf(kgo.BrokerMetadata{Host: member.Host, Port: member.Port})
		if failures[i] == "" {
			answering = append(answering, address)
			continue
		}
		c.problem("%s; broker %d of the cluster is advertised there: let it run, or mend advertised.listeners so that the sidecar reaches it", failures[i], member.NodeID)
	}
	if len(answering) > 0 {
		c.ok("%d of %d brokers answer: %s", len(answering), len(members), strings.Join(answering, ", "))
	}
	return len(answering) > 0
}

// askBroker makes a request of one broker, which takes a connection, TLS and SASL. It returns its answer, or in words why
// there is none.
func (c *portCheck) askBroker(ctx context.Context, broker *kgo.Broker, address string) (*kmsg.MetadataResponse, string) {
	ctx, cancel := context.WithTimeout(ctx, checkAskWithin)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none: brokers alone
	resp, err := broker.Request(ctx, req)
	if err == nil {
		return resp.(*kmsg.MetadataResponse), ""
	}
	// What the connection says of it is better, and may come a little later.
	for range 20 {
		if said := c.troubles.about(address); len(said) > 0 {
			return nil, said[0]
		}
		if errors.Is(err, context.DeadlineExceeded) || !wait(ctx, 100*time.Millisecond) {
			break
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Sprintf("broker %s: connected, and no answer within %v; look whether the broker hangs, or another service has that address", address, checkAskWithin)
	}
	return nil, "broker " + address + ": " + err.Error()
}

// topic describes the port's topic and tells what is wrong with it. operation is what the port does with it. The topic is
// nil when nothing more can be found out.
func (c *portCheck) topic(ctx context.Context, operation kadm.ACLOperation) *kadm.TopicDetail {
	detail, err := describeTopic(ctx, c.admin, c.port.Topic)
	name, verb := topicName(c.port.Topic), strings.ToUpper(operation.String())
	switch {
	case err != nil:
		c.problem("%s cannot be described: %v", name, err)
	case isUnauthorized(detail.Err):
		c.problem("%s; without it nothing tells whether the topic exists", unauthorized("DESCRIBE and "+verb, name))
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		c.problem("%s does not exist; create it, or correct the name in %s%s", name, streamletFile, suggest(c.port.Topic, topicNames(ctx, c.admin)))
	case detail.Err != nil:
		c.problem("%s: %v", name, detail.Err)
	case mayNot(detail, operation):
		c.problem("%s", unauthorized(verb, name))
		return &detail
	default:
		c.ok("%s exists: %s, replication factor %d", name, counted(len(detail.Partitions), "partition"), detail.Partitions.NumReplicas())
		for _, p := range detail.Partitions.Sorted() {
			if p.Err != nil || p.Leader < 0 {
				c.problem("partition %d of %s has no leader (%v): start the brokers of its replicas %v", p.Partition, name, cmp.Or(p.Err, error(kerr.LeaderNotAvailable)), p.Replicas)
			}
		}
		return &detail
	}
	return nil
}

// topicConfigs are the topic's properties; nil, with a word, when they may not be read.
func (c *portCheck) topicConfigs(ctx context.Context) map[string]string {
	described, err := c.admin.DescribeTopicConfigs(ctx, c.port.Topic)
	if err == nil {
		var resource kadm.ResourceConfig
		resource, err = described.On(c.port.Topic, nil)
		err = cmp.Or(err, resource.Err)
		if err == nil {
			return configValues(resource)
		}
	}
	if isUnauthorized(err) {
		c.ok("the topic's properties are not known: %s", unauthorized("DESCRIBE_CONFIGS", topicName(c.port.Topic)))
	} else {
		c.warn("the topic's properties cannot be read: %v", err)
	}
	return nil
}

// brokerConfigs are a broker's properties; nil, with a word, when they may not be read.
func (c *portCheck) brokerConfigs(ctx context.Context, id int32) map[string]string {
	described, err := c.admin.DescribeBrokerConfigs(ctx, id)
	if err == nil {
		var resource kadm.ResourceConfig
		resource, err = described.On(strconv.Itoa(int(id)), nil)
		err = cmp.Or(err, resource.Err)
		if err == nil {
			return configValues(resource)
		}
	}
	if isUnauthorized(err) {
		c.ok("the brokers' properties are not known, so neither offsets.retention.minutes nor what session.timeout.ms may be: %s", unauthorized("DESCRIBE_CONFIGS", "the cluster"))
	} else {
		c.warn("the brokers' properties cannot be read: %v", err)
	}
	return nil
}

func configValues(resource kadm.ResourceConfig) map[string]string {
	values := map[string]string{}
	for _, config := range resource.Configs {
		if config.Value != nil {
			values[config.Key] = *config.Value
		}
	}
	return values
}

// configNumber is a property that is a whole number.
func configNumber(values map[string]string, name string) (int64, bool) {
	n, err := strconv.ParseInt(values[name], 10, 64)
	return n, err == nil
}
