package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	firstCommitPause = 90 * time.Second // between two lines about commits that fail

	commitDelay   = 20 * time.Millisecond  // a commit carries what is confirmed within it
	commitRetry   = 250 * time.Millisecond // after a commit that was refused or not answered
	commitRetries = time.Second            // how long the client tries the same request again
)

var errNothingHeld = errors.New("no partition of the commit is held any more")

// requestCommit asks for a commit of what is confirmed.
func (m *membership) requestCommit() {
	select {
	case m.commitDue <- struct{}{}:
	default:
	}
}

// commitLoop commits the confirmed frontier of every partition, one request at a time, until ctx ends. Confirmations that
// come while a request is out go with the next one.
func (m *membership) commitLoop(ctx context.Context) {
	var failing time.Time // since when commits fail
	for {
		select {
		case <-m.commitDue:
		case <-ctx.Done():
			return
		}
		if !m.inlet.hurried() && !wait(ctx, commitDelay) {
			return
		}
		began := time.Now()
		err := m.commit(ctx)
		if err == nil || errors.Is(err, errNothingHeld) {
			failing = time.Time{}
			continue
		}
		cause, now := commitCause(err), time.Now()
		m.inlet.stats.commitFailures.WithLabelValues(cause).Inc()
		if failing.IsZero() {
			failing = began
		}
		known := m.inlet.commitTroubles[cause]
		if known == nil {
			known = newTrouble(began, firstCommitPause)
			m.inlet.commitTroubles[cause] = known
		}
		if !errors.Is(err, kerr.RebalanceInProgress) && ctx.Err() == nil && known.due(now, maxTroublePause) {
			m.inlet.log.Warn("offsets could not be committed; trying again", "cause", err, "failures", known.times, "since", utc(known.since))
		}
		if bound := m.inlet.cfg.Consumer.DefaultAPITimeout; time.Since(failing) >= bound {
			m.inlet.failConversation(&failure{kind: endCommit, cause: fmt.Errorf("inlet '%s': offsets could not be committed for %s (default.api.timeout.ms): %w", m.inlet.cfg.Name, bound, err)})
			failing = time.Now()
		}
		if !wait(ctx, commitRetry) {
			return
		}
		m.requestCommit()
	}
}

// hurried says that somebody waits for a commit: a partition is given up or a conversation ends. Else the delay also lets
// a violation, such as an Emit after its Ack, come in time to keep its batch from being committed.
func (in *inlet) hurried() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conversation == nil || in.conversation.ending.Load() {
		return true
	}
	for _, a := range in.held {
		if a.leaving {
			return true
		}
	}
	return false
}

// commit sends one request with what is due and waits for its answer. A crash before it is sent, or after it is sent and
// before the broker has taken it, leaves confirmed records uncommitted: they come again. An error is a refusal, or an
// answer that did not come: then the commit may stand, and is sent again, since it is idempotent.
func (m *membership) commit(ctx context.Context) error {
	in := m.inlet
	due := map[int32]*assignment{}
	offsets := map[int32]kgo.EpochOffset{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in.mu.Lock()
	if m.rebalancing {
		in.mu.Unlock()
		return nil // asked for again by the assignment that follows
	}
	for p, a := range in.held {
		if offset, ok := a.commitTarget(); ok {
			due[p], offsets[p] = a, kgo.EpochOffset{Epoch: a.leaderEpoch, Offset: offset}
			a.committing = true
			a.carried = a.newest
		}
	}
	if len(due) > 0 {
		m.cancelCommit = cancel
	}
	in.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	var result error
	began := time.Now()
	fenced := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error { return in.fence(req, due) })
	m.client.CommitOffsetsSync(fenced, map[string]map[int32]kgo.EpochOffset{in.cfg.Topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			result = in.committed(due, offsets, resp, err)
			if result == nil {
				in.stats.commit.Observe(time.Since(began).Seconds())
			}
		})
	in.mu.Lock()
	m.cancelCommit = nil
	in.notify()
	in.mu.Unlock()
	if result == nil {
		clear(in.commitTroubles)
	}
	return result
}

// fence takes every partition out of the request whose assignment is no longer held, at the last moment before it is
// sent: Kafka checks the group's generation, not who owns a partition, and would rewind the new owner (promise 5).
func (in *inlet) fence(req *kmsg.OffsetCommitRequest, due map[int32]*assignment) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	topics := req.Topics[:0]
	for _, t := range req.Topics {
		kept := t.Partitions[:0]
		for _, p := range t.Partitions {
			// The limit may have come down since the request was made.
			if a := due[p.Partition]; a != nil && in.held[p.Partition] == a && (p.Offset <= a.commitLimit) {
				kept = append(kept, p)
			}
		}
		if t.Partitions = kept; len(kept) > 0 {
			topics = append(topics, t)
		}
	}
	if req.Topics = topics; len(topics) == 0 {
		return errNothingHeld
	}
	return nil
}

// committed takes the answer to a commit. It moves the base of each partition whose commit stands, which is where the
// partition resumes after a failure.
func (in *inlet) committed(due map[int32]*assignment, offsets map[int32]kgo.EpochOffset, resp *kmsg.OffsetCommitResponse, err error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	answers := map[int32]int16{}
	if resp != nil && err == nil {
		for _, t := range resp.Topics { // the inlet's only topic, by name or by id
			for _, p := range t.Partitions {
				answers[p.Partition] = p.ErrorCode
			}
		}
	}
	result := err
	for _, p := range slices.Sorted(maps.Keys(due)) { // in order, so that the same trouble has the same words
		a := due[p]
		a.committing = false
		code, answered := answers[p]
		switch {
		case in.held[p] != a:
		case !answered:
			if result == nil {
				result = fmt.Errorf("partition %d: the commit was not answered", p)
			}
		case code != 0 && result != nil:
		case code != 0:
			result = fmt.Errorf("partition %d: %w", p, kerr.ErrorForCode(code))
		default:
			a.base = max(a.base, offsets[p].Offset)
			a.commitBase = false
			in.moved()
			a.history.committed = a.base
			if !a.carried.IsZero() {
				in.stats.age.Observe(max(0, time.Since(a.carried).Seconds()))
			}
			in.restartStall(a)
			in.wake(a)
		}
	}
	in.notify()
	return result
}
