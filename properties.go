package main

import (
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Connection is how a port reaches its brokers, whatever it then does there.
type Connection struct {
	// Options hold SASL, timeouts, backoffs and metadata ages; not the seeds, the client id, the dialer or the logger.
	Options []kgo.Opt
	// Secure turns a dialed connection into a TLS one. It is nil for plain text.
	Secure func(ctx context.Context, conn net.Conn, host string) (net.Conn, error)
}

// OffsetReset is where reading starts when a partition has no committed offset.
type OffsetReset struct {
	Policy string        // "earliest", "latest", "none" or "by_duration"
	Ago    time.Duration // by_duration alone
}

// ConsumerSettings is what an inlet's Kafka properties mean.
type ConsumerSettings struct {
	Connection        Connection
	Options           []kgo.Opt // fetching and group membership; not the group's name, the topic, the instance id or callbacks
	ConsumerProtocol  bool      // group.protocol=consumer (KIP-848); false is classic
	InstanceID        string    // group.instance.id
	InstanceIDGiven   bool      // the user wrote one, also when it is empty: then the member is dynamic
	OffsetReset       OffsetReset
	MaxPollRecords    int
	MaxPartitionFetch int32 // bytes
	SessionTimeout    time.Duration
	RebalanceTimeout  time.Duration // max.poll.interval.ms
	DefaultAPITimeout time.Duration // bounds a commit with all its retries
}

// ProducerSettings is what an outlet's Kafka properties mean.
type ProducerSettings struct {
	Connection      Connection
	Options         []kgo.Opt     // batching, compression, acknowledgement; not ProducerBatchMaxBytes
	MaxRequestSize  int32         // bytes; 0 when the user gave none: then the topic's max.message.bytes alone counts
	DeliveryTimeout time.Duration // a write without an answer for so long fails the conversation
}
