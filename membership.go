package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	revokeBound = 3 * time.Second // for finishing what is acknowledged before a partition is given up
	leaveBound  = 3 * time.Second // for leaving the group and closing the client
	rewindBound = 3 * time.Second // for the answer to a commit that stands before a rewind
)

// membership is an inlet's place in its consumer group: one client, kept through failures of the process and of its
// conversations. Its goroutine alone polls, rewinds and allows rebalances.
type membership struct {
	inlet  *inlet
	client *kgo.Client
	conns  *connections
	static string // group.instance.id, empty for a dynamic member

	readsCommitted bool // of transactions, only those that are committed

	commitDue  chan struct{} // capacity 1
	background sync.WaitGroup
	end        context.CancelFunc // of the background goroutines

	// Guarded by the inlet's mu. kgo lets a join wait for a commit that is out, and a commit for a join and sync that run:
	// neither must happen for longer than revokeBound, so none goes out between a revoke and the next assignment.
	rebalancing  bool
	unstarted    bool               // the last assignment ended before it was known where reading begins
	cancelCommit context.CancelFunc // of the commit that is out; nil when none is
	factor       float64            // bytes held per byte fetched
	limitedFor   float64            // the factor that the client's limits were made for
	givenBack    bool               // of a partition whose queue was given back, a batch can be sent again

	expansion expansion

	mu        sync.Mutex
	interrupt context.CancelFunc // of the running poll
	broken    error              // why the client has to be made anew
	giveUp    *time.Timer
}

// join makes the client and begins to consume. It returns before the group is joined.
func (in *inlet) join(ctx context.Context) (*membership, error) {
	m := &membership{inlet: in, commitDue: make(chan struct{}, 1), interrupt: func() {}, factor: unknownExpansion}
	cfg := in.cfg
	m.conns = newConnections(in.network, cfg.Consumer.Connection, in.troubles)
	opts := append(clientOptions(&cfg.PortConfig, cfg.Consumer.Connection, m.conns), cfg.Consumer.Options...)
	opts = append(opts,
		kgo.ConsumerGroup(cfg.Group), kgo.ConsumeTopics(cfg.Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// A log may end in a transaction's marker. Only who sees it knows that there is nothing more to read.
		kgo.KeepControlRecords(),
		// The start is resolved in startOffsets, where -2 means that the group has no commit.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost),
		kgo.AdjustFetchOffsetsFn(m.startOffsets), kgo.WithHooks(in.java, &m.expansion),
	)
	if id := in.identity; id != "" && !in.isDynamic() {
		m.static = id
		opts = append(opts, kgo.InstanceID(id))
	}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	m.end = end
	in.mu.Lock() // the callbacks, which take it first, must find the client
	client, err := kgo.NewClient(opts...)
	if err != nil {
		in.mu.Unlock()
		end()
		return nil, err
	}
	m.client, m.readsCommitted = client, readsCommitted(client)
	in.membership = m
	if !in.detached.IsZero() {
		m.armGiveUp()
	}
	in.mu.Unlock()
	m.background.Go(func() { m.commitLoop(background) })
	m.background.Go(func() { m.watchTopic(background) })
	return m, nil
}

// poll fetches until ctx ends, the membership is given up, or the client has to be made anew; it returns why.
func (m *membership) poll(ctx context.Context) error {
	in := m.inlet
	for {
		pollCtx, cancel := context.WithCancel(ctx)
		m.mu.Lock()
		m.interrupt = cancel
		broken := m.broken
		m.mu.Unlock()
		if broken == nil && ctx.Err() == nil {
			broken = m.rewind()
		}
		if broken == nil && in.unused() {
			broken = fmt.Errorf("no conversation ran for %s (session.timeout.ms), so that healthy members take the partitions", in.cfg.Consumer.SessionTimeout)
		}
		if broken != nil || ctx.Err() != nil {
			cancel()
			return errors.Join(broken, ctx.Err())
		}
		m.readAgain()
		m.client.AllowRebalance()
		records := 0 // all that have come
		if !m.awaitNeed(pollCtx) || !m.awaitRoom(pollCtx) {
			records = 1 // woken for something else: next to nothing more is taken
		}
		fetches := m.client.PollRecords(pollCtx, records)
		err := in.take(fetches)
		m.groupErrors(fetches)
		if len(fetches.Errors()) > 0 && fetches.NumRecords() == 0 {
			wait(pollCtx, 100*time.Millisecond) // an error that stays is returned hundreds of times a second
		}
		cancel()
		if err != nil {
			m.breakOff(err)
		}
	}
}

// wake makes the poll goroutine look at what it has to do.
func (m *membership) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interrupt()
}

// breakOff makes the poll goroutine close the client, for the reason given; a new one follows.
func (m *membership) breakOff(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		m.broken = why
	}
	m.interrupt()
}

// armGiveUp wakes the poll goroutine when the session timeout has passed without a conversation. The inlet's mu is held.
func (m *membership) armGiveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.giveUp != nil {
		m.giveUp.Stop()
	}
	m.giveUp = time.AfterFunc(m.inlet.cfg.Consumer.SessionTimeout, m.wake)
}

// unused says that no conversation has run for a session timeout.
func (in *inlet) unused() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !in.detached.IsZero() && time.Since(in.detached) >= in.cfg.Consumer.SessionTimeout
}

// groupErrors reads what poll says of the group itself.
func (m *membership) groupErrors(fetches kgo.Fetches) {
	for _, e := range fetches.Errors() {
		var session *kgo.ErrGroupSession
		if !errors.As(e.Err, &session) {
			continue
		}
		m.inlet.ready.joined(m.inlet.cfg.Name, false)
		if m.inlet.troubles.refused(session.Err, "READ", groupName(m.inlet.cfg.Group)) {
			continue
		}
		if m.static != "" && (errors.Is(session.Err, kerr.FencedInstanceID) || errors.Is(session.Err, kerr.UnreleasedInstanceID)) {
			m.inlet.mu.Lock()
			m.inlet.dynamic = true
			m.inlet.mu.Unlock()
			m.inlet.log.Warn("another member has this group.instance.id: going on without one; give each pod its own", "instance_id", m.static, "cause", session.Err)
			m.breakOff(session.Err)
		}
	}
}

func groupName(group string) string { return "group " + quote(group) }

func topicName(topic string) string { return "topic " + quote(topic) }

// rewind starts feeding the attached conversation: every partition is set to its last committed offset and resumed. It
// runs between a poll and AllowRebalance. While the answer to a commit is due it does nothing: the offset to go back to
// is not known yet, and an answer that never comes asks for a new client, which asks the coordinator.
func (m *membership) rewind() error {
	in := m.inlet
	in.mu.Lock()
	c := in.waiting
	if c == nil {
		in.mu.Unlock()
		return nil
	}
	targets := make(map[int32]kgo.EpochOffset, len(in.held))
	partitions := make([]int32, 0, len(in.held))
	for p, a := range in.held {
		if a.leaving {
			continue
		}
		if _, due := a.commitTarget(); a.committing || (due && !a.commitBase) {
			late := !m.rebalancing && time.Since(in.attached) > rewindBound
			in.mu.Unlock()
			if late {
				return fmt.Errorf("partition %d: a commit has had no answer for %s, so the offset to resume at is asked of the coordinator", p, rewindBound)
			}
			time.AfterFunc(50*time.Millisecond, m.wake)
			return nil
		}
		partitions = append(partitions, p)
		if a.base >= 0 {
			targets[p] = kgo.EpochOffset{Epoch: -1, Offset: a.base}
		}
	}
	in.mu.Unlock()

	// Resume first: a partition that is set while it is paused waits out a fetch of the others.
	m.client.ResumeFetchPartitions(map[string][]int32{in.cfg.Topic: partitions})
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{in.cfg.Topic: targets})

	in.mu.Lock()
	defer in.mu.Unlock()
	if in.waiting != c {
		return nil // it ended meanwhile, and paused everything
	}
	for _, p := range partitions {
		if a := in.held[p]; a != nil {
			a.position, a.dataEnd, a.confirmed, a.paused, a.givenBack = a.base, a.base, a.base, false, false
			a.commitLimit = noCommitLimit
		}
	}
	// Before the first poll an assignment can come in between. It was paused for want of a conversation.
	var late []int32
	for p, a := range in.held {
		if a.paused {
			a.paused = false
			late = append(late, p)
		}
	}
	m.client.ResumeFetchPartitions(map[string][]int32{in.cfg.Topic: late})
	in.waiting, in.conversation = nil, c
	in.moved()
	in.ready.fed(in.cfg.Name, true)
	return nil
}

// assigned begins an epoch for each partition. It runs on kgo's group goroutine, before their offsets are fetched.
func (m *membership) assigned(_ context.Context, client *kgo.Client, assigned map[string][]int32) {
	in := m.inlet
	in.mu.Lock()
	defer in.mu.Unlock()
	partitions := assigned[in.cfg.Topic]
	for _, p := range partitions {
		if old := in.held[p]; old != nil {
			in.forget(old)
		}
		a := newAssignment(in, p)
		a.paused = in.conversation == nil
		in.held[p] = a
	}
	in.budget.partitions.Add(int64(len(partitions)))
	in.stats.assignments.Add(float64(len(partitions)))
	in.java.rebalances.Add(1)
	m.limitFetches()
	if in.conversation == nil && len(partitions) > 0 {
		client.PauseFetchPartitions(map[string][]int32{in.cfg.Topic: partitions})
	}
	m.rebalancing = false
	m.requestCommit()
	m.joined()
}

// joined says that the inlet is a member that reads: it is known where each of its partitions begins. The inlet's mu is held.
func (m *membership) joined() {
	for _, a := range m.inlet.held {
		if !a.started {
			return // startOffsets comes to it
		}
	}
	m.inlet.ready.joined(m.inlet.cfg.Name, true)
	m.inlet.troubles.over(groupName(m.inlet.cfg.Group))
}

// revoked gives partitions up: what has no answer is dropped at once, what is acknowledged is written and committed first,
// for as long as revokeBound. Only then do the partitions leave the map that commits are checked against.
func (m *membership) revoked(_ context.Context, client *kgo.Client, revoked map[string][]int32) {
	in := m.inlet
	partitions := revoked[in.cfg.Topic]
	in.mu.Lock()
	leaving := make([]*assignment, 0, len(partitions))
	for _, p := range partitions {
		a := in.held[p]
		if a == nil {
			continue
		}
		a.leaving = true
		a.dropUnanswered()
		a.dropQueue()
		leaving = append(leaving, a)
	}
	if len(leaving) > 0 {
		// A cooperative revoke comes after the join, behind one of nothing that stopped the commits.
		m.rebalancing = false
	}
	m.requestCommit()
	in.mu.Unlock()

	ctx, cancel := context.WithTimeout(m.conns.alive, revokeBound)
	defer cancel()
	finished := in.await(ctx, func() bool {
		for _, a := range leaving {
			if !a.settled() {
				return false
			}
		}
		return true
	})
	m.stopCommits(ctx)
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range leaving {
		in.forget(a)
	}
	client.ResumeFetchPartitions(revoked) // a pause outlives the assignment
	m.limitFetches()
	if len(partitions) == 0 {
		return
	}
	in.stats.revocations.Add(float64(len(leaving)))
	in.log.Info("partitions revoked", "partitions", partitionList(partitions), "finished", finished)
}

// stopCommits lets no commit go out until the next assignment. One that is out is waited for until ctx ends, then cut off:
// whether it stands is found out by the next one.
func (m *membership) stopCommits(ctx context.Context) {
	in := m.inlet
	stopped := func() bool {
		m.rebalancing = m.rebalancing || m.cancelCommit == nil
		return m.rebalancing
	}
	if in.await(ctx, stopped) {
		return
	}
	in.mu.Lock()
	if m.cancelCommit != nil {
		m.cancelCommit()
	}
	in.mu.Unlock()
	in.await(context.Background(), stopped)
}

// lost drops partitions that somebody else may have already: nothing of them may be committed any more.
func (m *membership) lost(_ context.Context, client *kgo.Client, lost map[string][]int32) {
	in := m.inlet
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ready.joined(in.cfg.Name, false)
	partitions, unstarted := lost[in.cfg.Topic], m.unstarted
	for _, p := range partitions {
		if a := in.held[p]; a != nil {
			unstarted = unstarted || !a.started
			in.forget(a)
			in.stats.losses.Inc()
		}
	}
	if m.cancelCommit != nil {
		m.cancelCommit()
	}
	// Each attempt to join, or to find out where to begin, that fails is told as a loss.
	again := m.unstarted || m.rebalancing && len(partitions) == 0
	m.rebalancing, m.unstarted = true, unstarted
	client.ResumeFetchPartitions(lost)
	m.limitFetches()
	if again {
		return
	}
	in.log.Warn("partitions lost: the membership of the group ended, joining again", "partitions", partitionList(partitions))
}

// forget ends an assignment's epoch. mu is held.
func (in *inlet) forget(a *assignment) {
	a.endEpoch()
	delete(in.held, a.partition)
	delete(in.stalls, a.partition)
	in.budget.partitions.Add(-1)
	in.notify()
}
