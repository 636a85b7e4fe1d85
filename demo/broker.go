package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	askTimeout = 10 * time.Second // of one question to the brokers
)

// brokers is the Kafka that the demo runs on: franz-go's fake of one in this process, or a real one.
type brokers struct {
	servers    []string
	fake       *kfake.Cluster // nil for a real one
	client     *kgo.Client
	admin      *kadm.Client
	advertised string   // what real ones want to be reached at
	created    []string // topics that are ours to delete
	group      string   // is ours to delete too
}

// connect starts a fake of Kafka when no servers are given, and else reaches the real ones.
func connect(ctx context.Context, servers []string) (*brokers, error) {
	b := &brokers{servers: servers}
	if len(servers) == 0 {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, fmt.Errorf("the in-process broker could not be started: %w", err)
		}
		b.fake, b.servers = fake, fake.ListenAddrs()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.servers...), kgo.ClientID("ankka-flow-sidecar-demo"), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(30*time.Second), kgo.MetadataMinAge(250*time.Millisecond), kgo.DialTimeout(5*time.Second))
	if err != nil {
		b.close()
		return nil, fmt.Errorf("-brokers: %w", err)
	}
	b.client, b.admin = client, kadm.NewClient(client)
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	metadata, err := b.admin.BrokerMetadata(asking)
	if err != nil {
		b.close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("no broker answers at %s: %s", strings.Join(b.servers, ", "), inWords(err))
	}
	var addresses []string
	for _, broker := range metadata.Brokers {
		addresses = append(addresses, net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port)))
	}
	b.advertised = strings.Join(addresses, ", ")
	return b, nil
}

// inWords is why brokers cannot be reached, for somebody who has not seen the error before.
func inWords(err error) string {
	var dns *net.DNSError
	switch text := err.Error(); {
	case strings.Contains(text, "connection refused"):
		return "nothing listens there (connection refused). Is Kafka running, and is that its plain-text listener?"
	case errors.As(err, &dns):
		return fmt.Sprintf("the host name %q does not resolve", dns.Name)
	case errors.Is(err, context.DeadlineExceeded) || strings.Contains(text, "i/o timeout"):
		return "no answer within " + askTimeout.String() + ". Is it reachable from here?"
	case strings.Contains(text, "EOF") || strings.Contains(text, "reset by peer"):
		return "the connection was closed. The demo speaks plain text without a login; is that a TLS or SASL listener?"
	default:
		return text
	}
}

// deploy decides on the names and creates the topics: those of the documentation, or, where any of them or their group is somebody's
// already, names of its own, so that the demo never reads, writes or deletes what is not its own.
func (b *brokers) deploy(ctx context.Context, named func(suffix string) deployment) (deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	var d deployment
	for attempt := 0; ; attempt++ {
		suffix := ""
		if attempt > 0 {
			suffix = fmt.Sprintf("-%04x", uint16(time.Now().UnixMicro()))
		}
		d = named(suffix)
		taken, err := b.taken(ctx, d)
		if err != nil {
			return d, err
		}
		if !taken {
			break
		}
	}
	d.servers = b.servers
	for _, topic := range d.topics() {
		// As many replicas as the brokers have by default.
		_, err := b.admin.CreateTopic(ctx, partitions, -1, nil, topic)
		if !refused(err) {
			b.created = append(b.created, topic) // an answer that got lost may have been a yes
		}
		if err != nil {
			return d, b.cannot("the topic "+topic+" could not be created", err)
		}
	}
	b.group = d.group
	return d, nil
}

// taken says whether a topic or the group of the deployment is there already.
func (b *brokers) taken(ctx context.Context, d deployment) (bool, error) {
	topics, err := b.admin.ListTopics(ctx, d.topics()...)
	if err != nil {
		return false, b.cannot("the topics could not be listed", err)
	}
	for _, topic := range topics {
		if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
			return true, nil
		}
	}
	groups, err := b.admin.ListGroups(ctx)
	if err != nil {
		return false, b.cannot("the consumer groups could not be listed", err)
	}
	_, taken := groups[d.group]
	return taken, nil
}

// refused says that the error is a broker's answer.
func refused(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer)
}

// cannot explains an error of a broker that had answered before.
func (b *brokers) cannot(what string, err error) error {
	if b.fake == nil && !refused(err) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %s (the brokers advertise %s: that must be reachable too)", what, inWords(err), b.advertised)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// committed are the offsets of our group, by partition of the inlet's topic.
func (b *brokers) committed(ctx context.Context, d deployment) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	offsets, err := b.admin.FetchOffsets(ctx, d.group)
	if err != nil {
		return nil, err
	}
	committed := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.Topic == d.inlet.topic && o.At >= 0 {
			committed[o.Partition] = o.At
		}
	})
	return committed, nil
}

// ends are the log ends of the topics.
func (b *brokers) ends(ctx context.Context, topics ...string) (map[string]map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	listed, err := b.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends := map[string]map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		err = errors.Join(err, o.Err)
		if ends[o.Topic] == nil {
			ends[o.Topic] = map[int32]int64{}
		}
		ends[o.Topic][o.Partition] = o.Offset
	})
	return ends, err
}

// forget lets the fake broker drop what it holds, all of it in memory, up to the ends given.
func (b *brokers) forget(ctx context.Context, ends map[string]map[int32]int64) {
	if b.fake == nil {
		return
	}
	offsets := kadm.Offsets{}
	for topic, of := range ends {
		for partition, end := range of {
			offsets.AddOffset(topic, partition, end, -1)
		}
	}
	_, _ = b.admin.DeleteRecords(ctx, offsets) // it saves memory, no more
}

// close deletes what was created and returns what could not be.
func (b *brokers) close() error {
	var err error
	if b.client != nil {
		if b.fake == nil && len(b.created) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout/2)
			deleted, failed := b.admin.DeleteTopics(ctx, b.created...)
			if failed == nil {
				failed = deleted.Error()
			}
			if failed != nil {
				err = fmt.Errorf("the topics %s could not be deleted and are left: %s", strings.Join(b.created, ", "), inWords(failed))
			}
			_, _ = b.admin.DeleteGroups(ctx, b.group) // with its topics gone it is empty, and the brokers remove it themselves later
			cancel()
		}
		b.client.Close()
	}
	if b.fake != nil {
		b.fake.Close()
	}
	return err
}
