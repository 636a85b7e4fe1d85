package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	closeBound             = time.Second // for closing a producer in peace; then its connections are cut
	defaultMaxMessageBytes = 1048588     // of a topic, Kafka's default
)

// emit is a record for an outlet, held until its batch is acknowledged.
type emit struct {
	outlet *outlet
	record kgo.Record
}

// outlet is one output of the streamlet for the life of the sidecar; its producers come and go with the conversations.
type outlet struct {
	cfg      *OutletConfig
	network  network
	ready    *readiness
	log      *slog.Logger
	troubles *troubles
	stats    *outletStats
	java     *javaClient
	refused  atomic.Bool // a batch was too large, and what the topic allows may not be read
}

// producer writes to an outlet's topic for one conversation. A confirmation that hangs cannot be cancelled, only closed
// away with its client; what was sent may still land, which repeats a record and never loses one.
type producer struct {
	outlet   *outlet
	client   *kgo.Client
	conns    *connections
	maxBatch atomic.Int32 // bytes
	known    atomic.Bool  // maxBatch is what the topic allows
	careful  bool         // maxBatch is the largest record so far; the writer alone touches it

	mu     sync.Mutex
	isOpen bool
	parked []*batch // to be written once it is open
}

// open makes a producer. It is open, and what is parked goes on to writes, once its producer id and the topic's limit are
// known; ctx ends the asking.
func (o *outlet) open(ctx context.Context, background *sync.WaitGroup, writes mailbox[*batch]) (*producer, error) {
	p := &producer{outlet: o}
	p.maxBatch.Store(cmp.Or(o.cfg.Producer.MaxRequestSize, defaultMaxMessageBytes))
	p.conns = newConnections(o.network, o.cfg.Producer.Connection, o.troubles)
	opts := append(clientOptions(&o.cfg.PortConfig, o.cfg.Producer.Connection, p.conns), o.cfg.Producer.Options...)
	opts = append(opts, kgo.DefaultProduceTopic(o.cfg.Topic), kgo.AllowIdempotentProduceCancellation(), kgo.WithHooks(&producerHook{o.java, o.stats}), kgo.ProducerBatchMaxBytesFn(func(string) int32 { return p.maxBatch.Load() }))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("outlet '%s': %w", o.cfg.Name, err)
	}
	p.client = client
	background.Go(func() { o.watch(ctx, client) })
	background.Go(func() {
		p.readLimit(ctx)
		// Asked for here, since inside the client every broker's writes would wait for it under one lock. What is wrong
		// with it, the first write tells.
		_, _, _ = client.ProducerID(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.isOpen = true
		for _, b := range p.parked {
			writes.put(b)
		}
	})
	return p, nil
}

// park keeps the batch until the producer is open, and says whether it has to.
func (p *producer) park(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isOpen {
		p.parked = append(p.parked, b)
	}
	return !p.isOpen
}

// readLimit caps the producer's batches at the topic's max.message.bytes, else small records that share a batch would be
// refused together.
func (p *producer) readLimit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	topic := p.outlet.cfg.Topic
	configs, err := kadm.NewClient(p.client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return
	}
	described, err := configs.On(topic, nil)
	if err != nil || described.Err != nil {
		return
	}
	for _, c := range described.Configs {
		if c.Key != "max.message.bytes" || c.Value == nil {
			continue
		}
		limit, err := strconv.ParseInt(*c.Value, 10, 32)
		if err != nil {
			return
		}
		if own := p.outlet.cfg.Producer.MaxRequestSize; own > 0 {
			limit = min(limit, int64(own))
		}
		p.maxBatch.Store(int32(limit))
		p.known.Store(true)
	}
}

// send hands one record to the client without waiting. confirm is called once, when the broker has confirmed or refused
// the record, on a goroutine of the client that it must not block.
func (p *producer) send(ctx context.Context, r *kgo.Record, confirm func(*kgo.Record, error)) {
	if p.outlet.refused.Load() && !p.known.Load() {
		// Records share a batch up to the size of the largest one so far: what the topic allows for that is enough for them.
		size := int32(min(producedBytes(r), math.MaxInt32))
		if p.careful {
			size = max(size, p.maxBatch.Load())
		}
		p.careful = true
		p.maxBatch.Store(size)
	}
	p.client.Produce(ctx, r, confirm)
}

// producedBytes bounds what a record takes as a batch of its own.
func producedBytes(r *kgo.Record) int64 {
	const batch, header = 128, 10
	return recordBytes(r) + batch + header*int64(len(r.Headers))
}

// close ends the client within closeBound and a little.
func (p *producer) close() { p.conns.closeClient(p.client.Close, closeBound) }

// writeLoop writes acknowledged batches in the order in which they become due, until ctx ends. It is the only one that
// hands records to the producers.
func (c *conversation) writeLoop(ctx context.Context) {
	for {
		b, ok := c.writes.take(ctx)
		if !ok {
			return
		}
		c.write(ctx, b)
	}
}

// write issues the sends of a batch in the order of its emits, without awaiting any. A crash after some of them leaves
// emits whose offsets are not committed: the batch comes again and its emits are written again.
func (c *conversation) write(ctx context.Context, b *batch) {
	if b.abandoned.Load() {
		c.releaseEmits(b)
		return // its partition is somebody else's by now, who reads it again
	}
	emits := b.emits // b forgets them when the last is confirmed
	var o *outlet
	for i := range emits {
		if emits[i].outlet != o {
			if o = emits[i].outlet; c.producers[o.cfg.Name].park(b) {
				return // other partitions, whose outlets are open, do not wait for this one
			}
		}
	}
	b.unconfirmed.Store(int64(len(emits)) + 1) // one for the loop below, so that an early confirmation cannot end it
	var to *producer
	var confirm func(*kgo.Record, error)
	for i := range emits {
		e := &emits[i]
		if b.failed.Load() != nil {
			b.unconfirmed.Add(int64(i - len(emits))) // nothing more of the partition is sent
			break
		}
		if to == nil || e.outlet != to.outlet {
			to = c.producers[e.outlet.cfg.Name]
			confirm = c.confirmer(b, to)
		}
		to.send(ctx, &e.record, confirm)
	}
	c.countDown(b)
}

// confirmer takes the broker's answers to the records of b that go through p.
func (c *conversation) confirmer(b *batch, p *producer) func(*kgo.Record, error) {
	return func(r *kgo.Record, err error) {
		if err != nil {
			p.outlet.java.failures.Add(1)
			p.outlet.troubles.refused(err, "WRITE", topicName(r.Topic))
			if errors.Is(err, kerr.MessageTooLarge) && !p.known.Load() {
				p.outlet.refused.Store(true)
			}
			err = fmt.Errorf("write to topic '%s' refused for %s: %w", r.Topic, b, err)
			b.failed.CompareAndSwap(nil, &err)
		}
		c.countDown(b)
	}
}

func (c *conversation) countDown(b *batch) {
	if b.unconfirmed.Add(-1) == 0 {
		c.written(b)
	}
}

// written ends a batch's writing: every record was answered. A crash here leaves confirmed emits without a commit; the
// batch comes again. It runs on a client's goroutine and does not block.
func (c *conversation) written(b *batch) {
	c.releaseEmits(b)
	if refused := b.failed.Load(); refused != nil {
		if b.abandoned.Load() {
			return
		}
		f := &failure{kind: endWriteRefused, cause: *refused}
		if becauseOfTheRecord(*refused) {
			f.batch = b
		}
		c.fail(f)
		b.assignment.inlet.writeFailed(b)
		return
	}
	b.assignment.inlet.confirmed(c, b)
}

// becauseOfTheRecord says that a write was refused for what the record is, and would be again.
func becauseOfTheRecord(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.InvalidRecord) || errors.Is(err, kerr.InvalidTimestamp)
}

// confirmed moves the partition's frontier past a batch whose every write is confirmed, and begins to write the next.
func (in *inlet) confirmed(c *conversation, b *batch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := b.assignment
	if b.abandoned.Load() || a.writing != b {
		return
	}
	a.writing = nil
	in.moved()
	a.confirmed, a.leaderEpoch, a.newest = b.next, b.leaderEpoch, b.newest
	a.history.repeats += int64(b.repeats)
	if !b.writeBegun.IsZero() {
		in.stats.write.Observe(time.Since(b.writeBegun).Seconds())
	}
	if m := in.membership; m != nil {
		m.requestCommit()
		if !a.leaving {
			in.passMarkers(a)
		}
	}
	a.writeNext(c)
	in.wake(a)
	in.notify()
}

// writeFailed forgets a refused batch and what waits behind it: nothing more of the partition is sent.
func (in *inlet) writeFailed(b *batch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := b.assignment
	if a.writing != b {
		return
	}
	a.resumeAt = b.first
	a.abandon()
	in.notify()
}

// writeNext begins to write the acknowledged batch, if the one before it is confirmed. The inlet's mu is held.
func (a *assignment) writeNext(c *conversation) {
	if a.writing == nil && a.acknowledged != nil {
		a.writing, a.acknowledged = a.acknowledged, nil
		a.writing.writeBegun = time.Now()
		a.history.writing(a.writing)
		c.writes.put(a.writing)
	}
}
