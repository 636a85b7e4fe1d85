package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// largestWrite is the largest emit with what Kafka puts around a record.
const largestWrite = maxMessageBytes + 128

// checkOutlet asks the outlet's brokers whether what is emitted can be written.
func checkOutlet(ctx context.Context, cfg *OutletConfig, network network, f *findings) {
	askKafka(ctx, &cfg.PortConfig, cfg.Producer.Connection, cfg.Producer.Options, network, f, func(ctx context.Context, c *portCheck) {
		topic := c.topic(ctx, kadm.OpWrite)
		if topic == nil {
			return
		}
		configs := c.topicConfigs(ctx)
		if limit, ok := configNumber(configs, "max.message.bytes"); ok {
			c.recordLimit(limit, int64(cfg.Producer.MaxRequestSize))
		}
		if least, ok := configNumber(configs, "min.insync.replicas"); ok {
			c.replicas(topic, least)
		}
	})
}

// recordLimit compares what the topic takes with what the protocol lets a process emit.
func (c *portCheck) recordLimit(limit, own int64) {
	name := "max.message.bytes"
	if own > 0 && own < limit {
		name, limit = "max.request.size", own
	}
	if limit < largestWrite {
		c.warn("%s is %d, but the process may emit records of up to %d bytes (4 MiB): one that the topic does not take fails every time, and its partition stands still; "+
			"raise %s to %d, or be sure that the process emits less", name, limit, maxMessageBytes, name, largestWrite)
		return
	}
	c.ok("%s is %d: every record that the process may emit (4 MiB) can be written", name, limit)
}

// replicas looks whether writes are accepted now, and would be after the loss of a broker.
func (c *portCheck) replicas(topic *kadm.TopicDetail, least int64) {
	factor := topic.Partitions.NumReplicas()
	short := 0
	for _, p := range topic.Partitions.Sorted() {
		if int64(len(p.ISR)) < least {
			short++
		}
	}
	switch {
	case short > 0:
		c.problem("%s fewer replicas in sync than min.insync.replicas (%d): writes there are refused; bring their brokers back", counted(short, "partition")+map[bool]string{true: " has", false: " have"}[short == 1], least)
	case factor > 1 && least >= int64(factor):
		c.warn("min.insync.replicas (%d) is the replication factor: while any broker is away, writes are refused and nothing is committed; set it to %d", least, factor-1)
	case factor > 1 && least == 1:
		c.warn("min.insync.replicas is 1: a write may be confirmed that one broker alone has, and be lost with it; set it to 2")
	default:
		c.ok("min.insync.replicas is %d of %d", least, factor)
	}
}
