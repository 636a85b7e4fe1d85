package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka writes and reads topics for a test, each call with a client of its own, so that nothing is kept over what a test does to the
// brokers in between.
type Kafka struct {
	Seeds []string
	Dial  func(ctx context.Context, network, host string) (net.Conn, error) // nil: the real network

	kept *kgo.Client // of Keep
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

// Client is a client of the cluster with further options.
func (k *Kafka) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{kgo.SeedBrokers(k.Seeds...)}, opts...)
	if k.Dial != nil {
		opts = append(opts, kgo.Dialer(k.Dial))
	}
	return kgo.NewClient(opts...)
}

// Keep is the same cluster with one client for every admin call, for a test that looks at offsets many times a second.
func (k *Kafka) Keep() (kept *Kafka, end func(), err error) {
	client, err := k.Client(kgo.MetadataMinAge(minAge), kgo.MetadataMaxAge(10*minAge))
	if err != nil {
		return nil, nil, err
	}
	return &Kafka{Seeds: k.Seeds, Dial: k.Dial, kept: client}, client.Close, nil
}

// Admin calls f with an admin client.
func (k *Kafka) Admin(f func(*kadm.Client) error) error {
	if k.kept != nil {
		return f(kadm.NewClient(k.kept))
	}
	client, err := k.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	return f(kadm.NewClient(client))
}

// Create makes a topic. config may be nil.
func (k *Kafka) Create(ctx context.Context, topic string, partitions int32, replicas int16, config map[string]string) error {
	values := map[string]*string{}
	for key, value := range config {
		values[key] = &value
	}
	return k.Admin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, partitions, replicas, values, topic)
		return err
	})
}

// KnownEverywhere says that each broker tells so many partitions of a topic: one that was away may tell fewer for a while,
// and a client that believes it refuses to write to the others.
func (k *Kafka) KnownEverywhere(ctx context.Context, topic string, partitions int32) bool {
	client, err := k.Client()
	if err != nil {
		return false
	}
	defer client.Close()
	for _, broker := range client.SeedBrokers() {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = kmsg.StringPtr(topic)
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = append(req.Topics, asked)
		answer, err := req.RequestWith(ctx, broker)
		if err != nil || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) < int(partitions) {
			return false
		}
	}
	return true
}

// Configure sets one property of a topic.
func (k *Kafka) Configure(ctx context.Context, topic, key, value string) error {
	return k.Admin(func(admin *kadm.Client) error {
		changed, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
		if err != nil {
			return err
		}
		_, err = changed.On(topic, nil)
		return err
	})
}

// Produce writes the records to the partitions that they name, in the order given, and sets their offsets.
func (k *Kafka) Produce(ctx context.Context, records []*kgo.Record) error {
	produce, end, err := k.Producer()
	if err != nil {
		return err
	}
	defer end()
	return produce(ctx, records)
}

// Producer is Produce for a test that does it many times a second, with one client.
func (k *Kafka) Producer() (produce func(context.Context, []*kgo.Record) error, end func(), err error) {
	client, err := k.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(50_000),
		kgo.ProducerBatchMaxBytes(16<<20), kgo.MetadataMinAge(minAge), kgo.UnknownTopicRetries(100)) // a topic that was made just now is not known everywhere yet
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, records []*kgo.Record) error {
		failed := make(chan error, 1)
		for _, r := range records {
			client.Produce(ctx, r, func(r *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- fmt.Errorf("produce to %s/%d: %w", r.Topic, r.Partition, err):
					default: // the first is enough
					}
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			return err
		}
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}, client.Close, nil
}

// Ends are the log ends of every partition of the topics.
func (k *Kafka) Ends(ctx context.Context, topics ...string) (map[TopicPartition]int64, error) {
	return k.listed(ctx, (*kadm.Client).ListEndOffsets, topics...)
}

func (k *Kafka) listed(ctx context.Context, list func(*kadm.Client, context.Context, ...string) (kadm.ListedOffsets, error), topics ...string) (map[TopicPartition]int64, error) {
	offsets := map[TopicPartition]int64{}
	err := k.Admin(func(admin *kadm.Client) error {
		listed, err := list(admin, ctx, topics...)
		if err != nil {
			return err
		}
		listed.Each(func(o kadm.ListedOffset) {
			err = errors.Join(err, o.Err)
			offsets[TopicPartition{o.Topic, o.Partition}] = o.Offset
		})
		return err
	})
	return offsets, err
}

// Committed are the committed offsets of a group. What has none is not there.
func (k *Kafka) Committed(ctx context.Context, group string) (map[TopicPartition]int64, error) {
	committed := map[TopicPartition]int64{}
	err := k.Admin(func(admin *kadm.Client) error {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		offsets.Each(func(o kadm.OffsetResponse) {
			err = errors.Join(err, o.Err)
			if o.At >= 0 {
				committed[TopicPartition{o.Topic, o.Partition}] = o.At
			}
		})
		return err
	})
	return committed, err
}

// Read reads the topics from their starts to the ends that they have at the call. Records of one partition are in their order.
func (k *Kafka) Read(ctx context.Context, topics ...string) ([]*kgo.Record, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	ends, err := k.Ends(ctx, topics...)
	if err != nil {
		return nil, err
	}
	starts, err := k.listed(ctx, (*kadm.Client).ListStartOffsets, topics...)
	if err != nil {
		return nil, err
	}
	from, left := map[string]map[int32]kgo.Offset{}, map[TopicPartition]int64{}
	for tp, end := range ends {
		if end == starts[tp] {
			continue
		}
		if from[tp.Topic] == nil {
			from[tp.Topic] = map[int32]kgo.Offset{}
		}
		from[tp.Topic][tp.Partition] = kgo.NewOffset().AtStart()
		left[tp] = end
	}
	if len(left) == 0 {
		return nil, nil
	}
	client, err := k.Client(kgo.ConsumePartitions(from), kgo.FetchMaxWait(minAge), kgo.MetadataMinAge(minAge), kgo.FetchMaxPartitionBytes(16<<20))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %v, still to come %v: %w", topics, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := TopicPartition{r.Topic, r.Partition}
			if end, reading := left[tp]; reading && r.Offset < end {
				records = append(records, r)
				if r.Offset == end-1 {
					delete(left, tp)
				}
			}
		})
	}
	return records, nil
}
