//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka is a real broker with topics to measure on.
type kafka struct {
	*child
	server string
	client *kgo.Client
	admin  *kadm.Client
}

// boot starts Apache Kafka from the jars of a directory, one broker with its data in dir.
func boot(ctx context.Context, libs, dir string) (*kafka, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	controller, err := freePort()
	if err != nil {
		return nil, err
	}
	properties := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(properties, fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.segment.delete.delay.ms=1000
log.index.size.max.bytes=262144
`, port, controller, filepath.Join(dir, "data")), 0o644); err != nil {
		return nil, err
	}
	java := []string{"java", "-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(libs, "*")}
	format, err := launch(dir, "format", nil, append(java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties)...)
	if err != nil {
		return nil, err
	}
	<-format.done
	k := &kafka{server: fmt.Sprintf("127.0.0.1:%d", port)}
	if k.child, err = launch(dir, "kafka", nil, append(java, "kafka.Kafka", properties)...); err != nil {
		return nil, err
	}
	k.client, err = kgo.NewClient(kgo.SeedBrokers(k.server), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		k.kill()
		return nil, err
	}
	k.admin = kadm.NewClient(k.client)
	// The first question for a group makes the topic of committed offsets.
	err = until(ctx, "the broker has a coordinator", 200*time.Millisecond, func() (bool, error) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := k.admin.FetchOffsets(asking, "nobody")
		return err == nil, err
	})
	if err != nil {
		defer k.kill()
		return nil, fmt.Errorf("the broker does not start: %w\n%s", err, k.tail())
	}
	return k, nil
}

func (k *kafka) close() {
	k.client.Close()
	k.kill()
}

// create makes a topic and waits until each of its partitions is served, which takes the broker a while where they are many.
func (k *kafka) create(ctx context.Context, topic string, partitions int32) error {
	if _, err := k.admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return until(ctx, "topic "+topic+" is served", 20*time.Millisecond, func() (bool, error) {
		ends, err := k.admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		return err == nil && len(ends[topic]) == int(partitions), err
	})
}

// drop deletes topics, for the disk's sake.
func (k *kafka) drop(ctx context.Context, topics ...string) error {
	deleted, err := k.admin.DeleteTopics(ctx, topics...)
	if err != nil {
		return err
	}
	return deleted.Error()
}

// fill writes n records with keys and values of the given size, evenly over the partitions, in batches of the size that a Java
// producer makes by default, or of one record.
func (k *kafka) fill(ctx context.Context, topic string, partitions int32, n, size int) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(k.server), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(int32(max(16<<10, size+1<<10))),
		kgo.MaxBufferedRecords(100_000), kgo.MaxBufferedBytes(64<<20), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(100))
	if err != nil {
		return err
	}
	defer producer.Close()
	value := []byte(strings.Repeat("0123456789abcdef", size/16+1)[:size])
	var failed error
	for i := range n {
		record := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "key-%d", i%10_000), Value: value}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // promises are called one after another
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	return failed
}

// written is how many records a topic has.
func (k *kafka) written(ctx context.Context, topic string) (n int64, err error) {
	ends, err := k.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, ends.Error()
}
