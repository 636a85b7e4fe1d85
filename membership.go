package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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

	commitDue  chan struct{} // capacity 1
	background sync.WaitGroup
	end        context.CancelFunc // of the background goroutines

	// Guarded by the inlet's mu. kgo lets a join wait for a commit that is out, and a commit for a join and sync that run:
	// neither must happen for longer than revokeBound, so none goes out between a revoke and the next assignment.
	rebalancing  bool
	cancelCommit context.CancelFunc // of the commit that is out; nil when none is

	mu        sync.Mutex
	interrupt context.CancelFunc // of the running poll
	broken    error              // why the client has to be made anew
	giveUp    *time.Timer
}

// join makes the client and begins to consume. It returns before the group is joined.
func (in *inlet) join(ctx context.Context) (*membership, error) {
	m := &membership{inlet: in, commitDue: make(chan struct{}, 1), interrupt: func() {}}
	cfg := in.cfg
	m.conns = newConnections(in.network, cfg.Consumer.Connection, in.troubles)
	opts := append(clientOptions(&cfg.PortConfig, cfg.Consumer.Connection, m.conns, in.log), cfg.Consumer.Options...)
	opts = append(opts,
		kgo.ConsumerGroup(cfg.Group), kgo.ConsumeTopics(cfg.Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// The start is resolved in startOffsets, where -2 means that the group has no commit.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost),
		kgo.AdjustFetchOffsetsFn(m.startOffsets),
	)
	in.mu.Lock()
	dynamic := in.dynamic
	in.mu.Unlock()
	if id := in.identity; id != "" && !dynamic {
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
	m.client = client
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
		m.client.AllowRebalance()
		fetches := m.client.PollRecords(pollCtx, 0)
		cancel()
		err := in.take(fetches)
		m.groupErrors(fetches)
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
			a.position, a.confirmed, a.paused = a.base, a.base, false
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
	m.limitFetches()
	if in.conversation == nil && len(partitions) > 0 {
		client.PauseFetchPartitions(map[string][]int32{in.cfg.Topic: partitions})
	}
	m.rebalancing = false
	m.requestCommit()
	in.ready.joined(in.cfg.Name, true)
	in.troubles.over(groupName(in.cfg.Group))
	if len(partitions) > 0 {
		in.log.Info("partitions assigned", "partitions", partitionList(partitions))
	}
}

// limitFetches keeps what one response may bring of a partition within half of its share. The inlet's mu is held.
func (m *membership) limitFetches() {
	const least = 16 << 10
	cfg := m.inlet.cfg.Consumer
	perPartition := max(least, min(int64(cfg.MaxPartitionFetch), m.inlet.budget.share()/2))
	m.client.UpdateFetchMaxBytes(cfg.FetchMaxBytes, int32(perPartition))
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
	partitions := lost[in.cfg.Topic]
	for _, p := range partitions {
		if a := in.held[p]; a != nil {
			in.forget(a)
		}
	}
	if m.cancelCommit != nil {
		m.cancelCommit()
	}
	again := m.rebalancing // each attempt to join that fails is told as a loss
	m.rebalancing = true
	client.ResumeFetchPartitions(lost)
	m.limitFetches()
	if again && len(partitions) == 0 {
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

// startOffsets resolves where each newly assigned partition begins, and returns it. offsets hold the group's commits, or
// -2 where it has none. kgo calls it with a context that ends with the group session.
func (m *membership) startOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	in := m.inlet
	topic := in.cfg.Topic
	in.mu.Lock()
	client := m.client
	in.mu.Unlock()
	admin := kadm.NewClient(client)
	starts, startErr := admin.ListStartOffsets(ctx, topic)
	ends, endErr := admin.ListEndOffsets(ctx, topic)
	resolved := starts
	var err error
	switch reset := in.cfg.Consumer.OffsetReset; reset.Policy {
	case "latest":
		resolved, err = ends, endErr
	case "by_duration":
		resolved, err = admin.ListOffsetsAfterMilli(ctx, time.Now().Add(-reset.Ago).UnixMilli(), topic)
	default:
		err = startErr
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for p, offset := range offsets[topic] {
		a := in.held[p]
		if a == nil {
			continue
		}
		if start, ok := starts.Lookup(topic, p); ok && start.Err == nil {
			a.logStart = start.Offset
		}
		if end, ok := ends.Lookup(topic, p); ok && end.Err == nil {
			a.logEnd = end.Offset
		}
		committed := offset.EpochOffset().Offset
		if committed >= 0 {
			m.beginAtCommit(a, committed)
			offsets[topic][p] = kgo.NewOffset().At(a.position)
			continue
		}
		policy := in.cfg.Consumer.OffsetReset.Policy
		start, ok := resolved.Lookup(topic, p)
		switch {
		case policy == "none":
			return nil, fmt.Errorf("partition %d has no committed offset and auto.offset.reset is none: commit one, or choose earliest or latest", p)
		case ok && start.Err == nil && start.Offset >= 0:
			a.beginAt(start.Offset)
			// A crash before the first commit would resolve another start and skip what was read meanwhile.
			a.commitBase = policy != "earliest"
			offsets[topic][p] = kgo.NewOffset().At(start.Offset)
			in.log.Info("partition starts", "partition", p, "offset", start.Offset, "from", "auto.offset.reset="+policy)
		case policy != "earliest":
			return nil, fmt.Errorf("partition %d: the offset to start at (%s) could not be read: %w", p, policy, errors.Join(err, start.Err))
		default:
			in.log.Info("partition starts", "partition", p, "from", "the earliest record, auto.offset.reset=earliest")
		}
	}
	m.requestCommit()
	return offsets, nil
}

// beginAtCommit begins at the group's commit, and says loudly when what it points at is gone. The inlet's mu is held.
func (m *membership) beginAtCommit(a *assignment, committed int64) {
	log := m.inlet.log.With("partition", a.partition, "committed", committed)
	switch {
	case a.logStart > committed:
		log.Error("records were removed by retention before they were read", "offset", committed, "resumed_at", a.logStart, "removed", a.logStart-committed)
		a.beginAt(a.logStart)
	case a.logEnd >= 0 && a.logEnd < committed:
		log.Error("the committed offset is past the log's end: the topic was truncated or created anew; reading starts as for a new topic", "offset", max(0, a.logStart), "log_end", a.logEnd)
		a.beginAt(max(0, a.logStart))
		a.commitBase = true // the old commit is above everything that will be read
	default:
		log.Info("partition starts", "offset", committed, "from", "the committed offset")
		a.beginAt(committed)
	}
}

// leave finishes the membership: partitions are revoked with their work finished, the group is left, the client closed.
// It returns within leaveBound and a little, whatever the brokers do.
func (m *membership) leave() {
	in := m.inlet
	deadline := time.Now().Add(leaveBound)
	m.conns.closeClient(m.client.CloseAllowingRebalance, leaveBound)
	m.end()
	m.background.Wait()
	m.mu.Lock()
	if m.giveUp != nil {
		m.giveUp.Stop()
	}
	m.mu.Unlock()
	if m.static != "" && !in.isDynamic() {
		m.leaveStatic(time.Until(deadline))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.held {
		in.forget(a)
	}
	in.membership = nil
	if in.conversation != nil { // the next client feeds it
		in.waiting, in.conversation, in.attached = in.conversation, nil, time.Now()
	}
	in.ready.fed(in.cfg.Name, false)
	in.ready.joined(in.cfg.Name, false)
}

// leaveStatic removes a static member, which closing the client does not: its partitions would wait for the session
// timeout. It is best effort within bound.
func (m *membership) leaveStatic(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), max(bound, 500*time.Millisecond))
	defer cancel()
	memberID, _ := m.client.GroupMetadata()
	cfg := m.inlet.cfg
	conns := newConnections(m.inlet.network, cfg.Consumer.Connection, m.inlet.troubles)
	client, err := kgo.NewClient(clientOptions(&cfg.PortConfig, cfg.Consumer.Connection, conns, m.inlet.log)...)
	if err != nil {
		m.inlet.log.Warn("the group could not be left", "cause", err)
		return
	}
	defer conns.closeClient(client.Close, closeBound)
	if cfg.Consumer.ConsumerProtocol {
		const leaveForGood = -1 // -2 would keep the name for a member that is back soon
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = cfg.Group, memberID, leaveForGood, &m.static
		var resp *kmsg.ConsumerGroupHeartbeatResponse
		if resp, err = req.RequestWith(ctx, client); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
	} else {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = cfg.Group
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID, member.InstanceID = memberID, &m.static
		req.Members = append(req.Members, member)
		var resp *kmsg.LeaveGroupResponse
		if resp, err = req.RequestWith(ctx, client); err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
	}
	if err != nil {
		m.inlet.log.Warn("the group could not be left: the partitions wait for the session timeout", "instance_id", m.static, "cause", err)
	}
}

func (in *inlet) isDynamic() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.dynamic
}
