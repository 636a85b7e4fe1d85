package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	rate      = 1000 // carts a second
	customers = 40
)

// traffic is what goes into the inlet's topic and what comes out of the outlets' topics, as the brokers confirm and return it.
type traffic struct {
	brokers *brokers
	deployment

	mu      sync.Mutex
	sent    []*kgo.Record              // confirmed, since the last check; each partition's in order
	inEnds  map[int32]int64            // where the inlet's partitions end, by the confirmations
	written []*kgo.Record              // read from the outlets' topics since the last check
	readTo  map[string]map[int32]int64 // how far that is
	total   int64                      // confirmed in all
	byTopic map[string]int64           // read in all
	commits commits
	failed  error
}

// commits is how far the group has committed, and how much was in by the time that the brokers were asked for it.
type commits struct {
	in, total, lag int64
	of             []partition // by number
}

// partition is one of the inlet's.
type partition struct{ end, committed int64 }

func newTraffic(b *brokers, d deployment) *traffic {
	t := &traffic{brokers: b, deployment: d, inEnds: map[int32]int64{}, readTo: map[string]map[int32]int64{}, byTopic: map[string]int64{}}
	for _, outlet := range d.outlets {
		t.readTo[outlet.topic] = map[int32]int64{}
	}
	t.commits.of = make([]partition, partitions)
	return t
}

// produce writes carts until ctx ends, and returns when the brokers have confirmed the last of them, or when life ends. It waits for a
// streamlet that is slower.
func (t *traffic) produce(ctx, life context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began, last := time.Now(), time.Now()
	for n, due := 0, 0.0; ; {
		select {
		case <-ctx.Done():
			_ = t.brokers.client.Flush(life)
			return
		case <-tick.C:
		}
		now := time.Now()
		due = min(due+now.Sub(last).Seconds()*rate, rate/20) // not all at once after a pause
		last = now
		for ; due >= 1 && t.numbers().commits.lag < 3*rate; due-- {
			n++
			event := fmt.Sprintf("%d-%d", began.UnixMilli(), n) // another one in each round
			t.brokers.client.Produce(life, newCart(t.inlet.topic, event), t.confirmed)
		}
	}
}

// newCart is a cart of some customer; one in five is over the threshold.
func newCart(topic, event string) *kgo.Record {
	c := cart{Event: event, Customer: fmt.Sprintf("customer-%d", 1+rand.IntN(customers)), Total: 1 + rand.IntN(threshold*5/4)}
	value, err := json.Marshal(c)
	if err != nil {
		panic(err) // text and numbers only
	}
	return &kgo.Record{Topic: topic, Key: []byte(c.Customer), Value: value}
}

func (t *traffic) confirmed(r *kgo.Record, err error) {
	if errors.Is(err, context.Canceled) {
		return // the demo is ending
	}
	if err != nil {
		t.fail(t.brokers.cannot("a cart could not be written to "+t.inlet.topic, err))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, r)
	t.inEnds[r.Partition] = r.Offset + 1
	t.total++
}

func (t *traffic) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
}

// watch reads the outlets' topics and the group's commits until ctx ends.
func (t *traffic) watch(ctx context.Context) {
	from := map[string]map[int32]kgo.Offset{}
	for _, outlet := range t.outlets {
		from[outlet.topic] = map[int32]kgo.Offset{}
		for p := range int32(partitions) {
			from[outlet.topic][p] = kgo.NewOffset().AtStart()
		}
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(t.servers...), kgo.ClientID("ankka-flow-sidecar-demo"), kgo.ConsumePartitions(from),
		kgo.FetchMaxWait(250*time.Millisecond), kgo.MetadataMinAge(250*time.Millisecond))
	if err != nil {
		return
	}
	defer reader.Close()
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { t.watchCommits(ctx) })
	for {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			t.written = append(t.written, r)
			t.readTo[r.Topic][r.Partition] = r.Offset + 1
			t.byTopic[r.Topic]++
		})
		t.mu.Unlock()
	}
}

func (t *traffic) watchCommits(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for answered := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		ends := maps.Clone(t.inEnds)
		t.mu.Unlock()
		committed, err := t.brokers.committed(ctx, t.deployment)
		if silent := time.Since(answered); err != nil && ctx.Err() == nil && silent > silentTime {
			t.fail(fmt.Errorf("the brokers at %s have not answered for %.0f s", strings.Join(t.servers, ", "), silent.Seconds()))
		}
		if err != nil {
			continue
		}
		answered = time.Now()
		now := commits{of: make([]partition, partitions)}
		for p := range int32(partitions) {
			now.of[p] = partition{max(ends[p], committed[p]), committed[p]}
			now.in += now.of[p].end
			now.total += now.of[p].committed
		}
		now.lag = now.in - now.total
		t.mu.Lock()
		t.commits = now
		t.mu.Unlock()
	}
}

// numbers are those to show.
type numbers struct {
	in      int64
	out     []int64 // by outlet
	commits commits
	failed  error
}

func (t *traffic) numbers() numbers {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := numbers{in: t.total, commits: t.commits, failed: t.failed}
	if n.commits.in == 0 { // nobody has asked yet
		n.commits.in, n.commits.lag = n.in, n.in
	}
	for _, outlet := range t.outlets {
		n.out = append(n.out, t.byTopic[outlet.topic])
	}
	return n
}

// readAll says whether everything up to the ends was read.
func (t *traffic) readAll(ends map[string]map[int32]int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, outlet := range t.outlets {
		for p, end := range ends[outlet.topic] {
			if t.readTo[outlet.topic][p] < end {
				return false
			}
		}
	}
	return true
}

// take hands over what went in and came out since the last time.
func (t *traffic) take() (sent, written []*kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sent, written = t.sent, t.written
	t.sent, t.written = nil, nil
	return sent, written
}
