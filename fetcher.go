package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// inlet is one input of the streamlet for the life of the sidecar. Its consumer comes and goes below it (membership), and
// so do the partitions (assignment) and the conversations that it feeds.
type inlet struct {
	cfg      *InletConfig
	identity string // group.instance.id; empty for a dynamic member
	network  network
	budget   *memoryBudget
	ready    *readiness
	log      *slog.Logger
	stats    *inletStats
	java     *javaClient
	label    []*dto.LabelPair // inlet
	troubles *troubles

	commitTroubles map[string]*trouble // why commits fail since the last that stands; the commit loop's of the membership

	mu           sync.Mutex // guards all below and every assignment: the lock of promise 5
	held         map[int32]*assignment
	dropped      map[int32]*batch // revoked while they were with the process, which has not answered them yet
	conversation *conversation    // the one that is fed; nil between its end and the rewind for the next
	waiting      *conversation    // attached, to be fed once the partitions are rewound
	attached     time.Time        // when waiting was set
	detached     time.Time        // when the last conversation ended; zero while one runs
	membership   *membership      // nil while the inlet is no member
	arrival      chan struct{}    // closed when a conversation attaches
	changed      chan struct{}    // closed at the next change of state that somebody waits for; nil when nobody does
	topicID      kadm.TopicID     // as last seen; zero before, and where brokers tell none
	denied       time.Time        // when the brokers last refused to let the topic be read
	dynamic      bool             // somebody else has the static identity
	stalls       map[int32]*stall
	progressed   time.Time // when a batch last went out, was answered, confirmed or committed
	endsRead     time.Time // when the brokers last told how long the logs are
	histories    map[int32]*history
}

func newInlet(cfg *InletConfig, pod string, network network, budget *memoryBudget, ready *readiness, stats *inletStats, log *slog.Logger) *inlet {
	return &inlet{
		cfg: cfg, identity: staticIdentity(cfg, pod), network: network, budget: budget, ready: ready, log: log.With("inlet", cfg.Name, "topic", cfg.Topic), troubles: newTroubles(cfg.Consumer.Connection, cfg.Topic, log.With("inlet", cfg.Name)),
		held: map[int32]*assignment{}, dropped: map[int32]*batch{}, arrival: make(chan struct{}), stalls: map[int32]*stall{},
		stats: stats, java: newJavaClient(&cfg.PortConfig), label: labels("inlet", cfg.Name), histories: map[int32]*history{}, commitTroubles: map[string]*trouble{},
	}
}

// staticIdentity is the group.instance.id that the user gave. Without one, a pod's member of a classic group has the pod's
// name: a container that is killed and restarted in its pod comes back to its partitions at once, where a dynamic member
// would freeze the whole group for a session timeout. A broker of the consumer protocol moves only the partitions of a
// vanished member, and would keep the name from its successor (DESIGN: 5).
func staticIdentity(cfg *InletConfig, pod string) string {
	switch {
	case cfg.Consumer.InstanceIDGiven:
		return cfg.Consumer.InstanceID
	case pod == "" || cfg.Consumer.ConsumerProtocol:
		return ""
	}
	return pod + "." + cfg.Name
}

// run keeps the inlet a member of its group for as long as conversations run, until ctx ends. It leaves when no
// conversation has run for a session timeout, and begins anew with a new client when the old one cannot go on.
func (in *inlet) run(ctx context.Context) {
	const firstPause, maxPause, lasting = 500 * time.Millisecond, 30 * time.Second, 30 * time.Second
	pause := firstPause
	for {
		in.mu.Lock()
		arrival := in.arrival
		if in.waiting != nil {
			arrival = nil
		}
		in.mu.Unlock()
		if arrival != nil {
			select {
			case <-arrival:
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		m, err := in.join(ctx)
		if err == nil {
			err = m.poll(ctx)
			m.leave()
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lasting {
			pause = firstPause
		}
		in.log.Warn("the consumer was closed and is made anew when it is needed", "cause", err)
		if !wait(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// attach gives the inlet to a conversation. Each partition is rewound to its last committed offset before the first
// record goes out. wait is the backoff that came before, restarted says that the process was away meanwhile.
func (in *inlet) attach(c *conversation, wait time.Duration, restarted bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waiting, in.attached, in.detached = c, time.Now(), time.Time{}
	close(in.arrival)
	in.arrival = make(chan struct{})
	in.holdSuspects(wait, restarted, c.maxBackoff)
	if in.membership != nil {
		in.membership.wake()
	}
}

// holdSuspects keeps partitions that failed again and again from taking the others' time: each attempt of theirs costs
// everyone a backoff, so they are held for eight times as long. The first retry comes at once, as does every one of a
// partition that has no others to protect; a process that was restarted may bring the fix (DESIGN: 6).
func (in *inlet) holdSuspects(wait time.Duration, restarted bool, maxBackoff time.Duration) {
	alone := in.budget.partitions.Load() <= 1
	var failed, cutOff, waiting []*assignment
	for _, a := range in.held {
		s := a.suspect
		switch {
		case s == nil:
		case restarted:
			s.failures, s.hold = 0, 0
			a.release()
		case alone || s.failures < 2:
			a.release()
		case !a.heldUntil.IsZero():
			waiting = append(waiting, a)
		case s.failed:
			failed = append(failed, a)
		default:
			cutOff = append(cutOff, a)
		}
		if s != nil {
			s.failed = false
		}
	}
	// Where another's failure cut an attempt off, it is due. One after a long conversation costs little if it fails; more
	// wait for the others', with which they can be tried at the price of one.
	if len(failed) > 0 {
		slices.SortFunc(cutOff, func(a, b *assignment) int { return a.suspect.tried.Compare(b.suspect.tried) })
		if len(cutOff) > 0 && wait <= firstBackoff {
			cutOff[0].suspect.tried = time.Now()
			cutOff = cutOff[1:]
		}
		failed = append(failed, cutOff...)
	}
	var longest time.Duration
	for _, a := range failed {
		s := a.suspect
		level := slog.LevelInfo
		if s.hold > 0 {
			level = slog.LevelDebug // it was told, and goes on
		}
		// Over twice the maximum backoff the wait itself begins anew at 500 ms.
		s.hold = max(s.hold, min(8*wait, 2*maxBackoff+time.Second))
		a.hold(s.hold)
		in.log.Log(context.Background(), level, "partition held back after repeated failures", "partition", a.partition, "offset", a.base, "hold", s.hold, "cause", s.cause)
		longest = max(longest, s.hold)
	}
	// All are tried again together: one after another they would keep the conversations short and the backoffs long.
	for _, a := range waiting {
		if longest > 0 {
			a.hold(longest)
		}
	}
}

// dropUnanswered forgets the batches that are with the process of a conversation that has ended. What is acknowledged
// goes on to be written and committed.
func (in *inlet) dropUnanswered() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.held {
		if b := a.withProcess; b != nil {
			a.resumeAt = b.first
			a.dropUnanswered()
		}
	}
	in.notify()
}

// detach ends a conversation for the inlet: its batches and queues are dropped and the partitions paused. The consumer
// stays in its group, so that a failure moves nobody (DESIGN: 5).
func (in *inlet) detach(c *conversation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.waiting == c {
		in.waiting = nil
	}
	if in.conversation == c {
		in.conversation = nil
		in.ready.fed(in.cfg.Name, false)
	}
	in.detached = time.Now()
	pause := make([]int32, 0, len(in.held))
	for p, a := range in.held {
		a.resumeAt = a.firstUncommitted()
		a.abandon()
		a.dropQueue()
		a.inReady, a.paused = false, true
		pause = append(pause, p)
	}
	clear(in.dropped)
	if m := in.membership; m != nil {
		m.client.PauseFetchPartitions(map[string][]int32{in.cfg.Topic: pause})
		m.armGiveUp()
	}
	in.notify()
}

// wake puts a partition on the conversation's ready list when its next batch may go, or has it read again. mu is held.
func (in *inlet) wake(a *assignment) {
	switch {
	case in.conversation == nil || a.inReady:
	case a.sendable():
		a.inReady = true
		in.conversation.ready.put(a)
	case a.givenBack && a.free():
		in.membership.givenBack = true
		in.membership.wake()
	}
}

// notify tells whoever waits in await that something changed. mu is held.
func (in *inlet) notify() {
	if in.changed != nil {
		close(in.changed)
		in.changed = nil
	}
}

// await waits until condition holds or ctx ends, and says whether it held. condition runs under mu.
func (in *inlet) await(ctx context.Context, condition func() bool) bool {
	for {
		in.mu.Lock()
		if condition() {
			in.mu.Unlock()
			return true
		}
		if in.changed == nil {
			in.changed = make(chan struct{})
		}
		changed := in.changed
		in.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// settled says that of every partition all that was acknowledged is committed. mu is held.
func (in *inlet) settled() bool {
	for _, a := range in.held {
		if !a.settled() {
			return false
		}
	}
	return true
}

// take queues what a poll returned. It runs on the poll goroutine, with rebalances blocked, so every record belongs to an
// assignment that is held. An error means that the client has to be made anew.
func (in *inlet) take(fetches kgo.Fetches) error {
	var broken []error
	var pause []int32
	in.mu.Lock()
	defer in.mu.Unlock()
	share, now := in.budget.share(), time.Now()
	readableEnd := func(p kgo.FetchTopicPartition) int64 { return p.HighWatermark }
	if in.membership.readsCommitted {
		readableEnd = func(p kgo.FetchTopicPartition) int64 { return p.LastStableOffset }
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if p.Partition < 0 || p.Topic != in.cfg.Topic {
			return
		}
		a := in.held[p.Partition]
		if a == nil || a.leaving {
			return
		}
		if p.Err != nil {
			if err := in.fetchError(a, p.Err); err != nil {
				broken = append(broken, err)
			}
			return
		}
		if end := readableEnd(p); end > 0 {
			a.logEnd = max(a.logEnd, end)
			a.logStart = max(a.logStart, p.LogStartOffset)
		}
		if len(p.Records) > 0 && a.base < 0 {
			a.beginAt(p.Records[0].Offset) // also when they are not taken: it is what the partition goes back to
		}
		if len(p.Records) == 0 || a.givenBack || in.conversation == nil || in.conversation.ending.Load() {
			return // without a conversation that takes more, the partition is read again from its committed offset
		}
		if err := a.checkPosition(p); err != nil {
			broken = append(broken, err)
			return
		}
		records := withoutMarkers(p.Records)
		if len(records) == 0 {
			in.passMarkers(a)
			return
		}
		a.dataEnd = records[len(records)-1].Offset + 1
		var bytes, held int64
		for _, r := range records {
			size := recordBytes(r)
			bytes += size
			held += size + heldOverhead(r)
		}
		if a.queue == nil {
			a.queue = records
		} else {
			a.queue = append(a.queue, records...)
		}
		a.queueBytes += held
		in.budget.add(held)
		in.stats.recordsIn.Add(float64(len(records)))
		in.stats.bytesIn.Add(float64(bytes))
		in.java.consumed(now, len(records), bytes)
		a.observeLag(now)
		if !a.paused && a.queueBytes > share {
			a.paused = true
			pause = append(pause, p.Partition)
		}
		in.wake(a)
	})
	in.membership.followExpansion()
	if len(pause) > 0 {
		in.membership.client.PauseFetchPartitions(map[string][]int32{in.cfg.Topic: pause})
	}
	return errors.Join(broken...)
}

// withoutMarkers leaves out the control records of transactions, in the same memory.
func withoutMarkers(records []*kgo.Record) []*kgo.Record {
	return slices.DeleteFunc(records, func(r *kgo.Record) bool { return r.Attrs.IsControl() })
}

// passMarkers moves the frontier past the markers behind the last record, once that is confirmed: as a Java consumer does,
// so that the group's lag on a log that ends in a marker is 0. It depends on nothing but offsets: what is not confirmed,
// wherever it is, keeps the frontier below dataEnd. mu is held.
func (in *inlet) passMarkers(a *assignment) {
	if a.confirmed == a.dataEnd && a.position > a.confirmed {
		a.confirmed = a.position
		a.dataEnd = a.position
		in.membership.requestCommit()
	}
}

// checkPosition compares the first record that came with the one that was due, and moves the position past the last.
func (a *assignment) checkPosition(p kgo.FetchTopicPartition) error {
	first := p.Records[0].Offset
	switch {
	case first < a.position:
		return fmt.Errorf("partition %d: offset %d was read where %d was due", a.partition, first, a.position)
	case p.LogStartOffset > a.position:
		// Retention was faster than reading. Kafka says nothing of it: the next fetch begins at the log's start.
		a.tellRemoved(a.inlet.log, a.position, first, min(first, p.LogStartOffset)-a.position)
	case a.resumeAt >= 0 && first > a.resumeAt:
		return fmt.Errorf("partition %d: after a rewind to %d reading went on at %d, before it had at %d", a.partition, a.base, first, a.resumeAt)
	}
	a.resumeAt = -1
	a.position = p.Records[len(p.Records)-1].Offset + 1
	return nil
}

// tellRemoved counts and tells the records that are gone: removed of them from offset on; reading goes on at resumedAt.
func (a *assignment) tellRemoved(log *slog.Logger, offset, resumedAt, removed int64) {
	a.history.removed += removed
	log.Error("records were removed by retention before they were read", "partition", a.partition,
		"offset", offset, "resumed_at", resumedAt, "removed", removed)
}

// resumeBelowLowMark fetches a paused partition again once half of its share is free. mu is held.
func (in *inlet) resumeBelowLowMark(a *assignment) {
	if a.paused && !a.leaving && in.membership != nil && a.queueBytes <= in.budget.share()/2 {
		a.paused = false
		in.membership.client.ResumeFetchPartitions(map[string][]int32{in.cfg.Topic: {a.partition}})
	}
}

// fetchError tells of a partition that could not be fetched. What kgo does not retry by itself needs a new client, or the
// partition would stand still in silence.
func (in *inlet) fetchError(a *assignment, err error) error {
	var loss *kgo.ErrDataLoss
	if errors.As(err, &loss) {
		in.log.Error("the log was truncated: records that were read are gone from the broker", "partition", a.partition, "cause", err)
		return nil // kgo has reset the position by itself
	}
	if in.troubles.refused(err, "READ", topicName(in.cfg.Topic)) {
		in.denied = time.Now() // the client goes on asking, so that it heals by itself when the right is given back
		in.ready.topic(in.cfg.Name, false)
		return nil
	}
	return fmt.Errorf("partition %d cannot be fetched: %w", a.partition, err)
}

// wait sleeps for d and says whether it passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// partitionList writes partitions as people do: 0-3,7.
func partitionList(partitions []int32) string {
	sorted := slices.Sorted(slices.Values(partitions))
	var list []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if i == j {
			list = append(list, strconv.Itoa(int(sorted[i])))
		} else {
			list = append(list, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(list, ",")
}
