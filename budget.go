package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// memoryBudget is what all inlets together may hold of fetched records. Every held partition has an equal share: over it
// the partition is not fetched, so one that does not move can never take the turn of another. But Kafka sends a producer's
// batch whole, however far over the share it is, and a thousand partitions may have one of a megabyte each. So there is a
// bound on all of them together too.
type memoryBudget struct {
	limit      int64 // bytes
	used       atomic.Int64
	partitions atomic.Int64

	mu   sync.Mutex
	room chan struct{} // closed when used comes down to most; nil when nobody waits for that
}

// share is a partition's high mark, in bytes.
func (m *memoryBudget) share() int64 { return m.limit / max(1, m.partitions.Load()) }

// most is what is held before nothing more is fetched, in bytes: above the sum of the shares, so that it is met only where
// what a fetch brings of a partition is over its share, as with many partitions or large batches.
func (m *memoryBudget) most() int64 { return m.limit + m.limit/2 }

// add is told of bytes that are held, or no longer.
func (m *memoryBudget) add(bytes int64) {
	used := m.used.Add(bytes)
	if used > m.most() || used-bytes <= m.most() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.room != nil {
		close(m.room)
		m.room = nil
	}
}

// full returns what is held when that is more than most, and then a channel that is closed when it no longer is.
func (m *memoryBudget) full() (used int64, room <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used = m.used.Load()
	if used <= m.most() {
		return used, nil
	}
	if m.room == nil {
		m.room = make(chan struct{})
	}
	return used, m.room
}

const (
	// patience is how long a process is waited for, and leastProgress the part of the limit that one takes meanwhile for
	// which more is waited: 128 KiB in a quarter of a second. A slower one would keep partitions waiting for longer than
	// reading again costs.
	patience      = 250 * time.Millisecond
	leastProgress = 256
)

const (
	// enough is what an inlet has queued for a process that takes it, in bytes: a tenth of a second of the fastest. What is
	// fetched beyond is memory for nothing.
	enough = 6 << 20
	// oneAnswer is what an answer to a fetch may become of it. Smaller ones cost more: with half, a tenth of the throughput.
	oneAnswer = 2 << 20
	// The next answer waits for no longer than hastePauses times hastePause: it may be of a partition that has nothing queued.
	hastePause, hastePauses = 10 * time.Millisecond, 10
	// standing is how long the process has a batch before what is queued behind it counts as no supply for it any more.
	standing = 5 * time.Second
)

// awaitNeed waits a little while the process has enough to come, and says whether ctx still runs.
func (m *membership) awaitNeed(ctx context.Context) bool {
	for range hastePauses {
		if m.inlet.supply() <= enough {
			return true
		}
		if !wait(ctx, hastePause) {
			return false
		}
	}
	return true
}

// supply is what is queued of the partitions that move, in bytes.
func (in *inlet) supply() (bytes int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	since := time.Now().Add(-standing)
	for _, a := range in.held {
		if a.heldUntil.IsZero() && (a.withProcess == nil || a.withProcess.sent.After(since)) {
			bytes += a.queueBytes
		}
	}
	return bytes
}

// awaitRoom waits until there is room for another fetch, and says whether there is: ctx ends the wait. A process that
// works makes room. Of one that does not, what it cannot be sent now is given back, to be read again when it can: so what
// has nothing queued gets its turn. An inlet gives back of its own queues alone: what the others hold was within the bound
// when they last fetched.
func (m *membership) awaitRoom(ctx context.Context) bool {
	budget := m.inlet.budget
	for {
		used, room := budget.full()
		if room == nil {
			return true
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		case <-time.After(patience):
			if used-budget.used.Load() < budget.limit/leastProgress {
				m.giveBack()
			}
		}
	}
}

// giveBack drops queues that cannot be sent of, the largest first, until no more than the limit is held.
func (m *membership) giveBack() {
	in := m.inlet
	in.mu.Lock()
	defer in.mu.Unlock()
	var stuck []*assignment
	for _, a := range in.held {
		if len(a.queue) > 0 && !a.leaving && !a.sendable() {
			stuck = append(stuck, a)
		}
	}
	slices.SortFunc(stuck, func(a, b *assignment) int { return cmp.Compare(b.queueBytes, a.queueBytes) })
	var pause []int32
	for _, a := range stuck {
		if in.budget.used.Load() <= in.budget.limit {
			break
		}
		first := a.queue[0].Offset
		a.position, a.dataEnd, a.resumeAt = first, first, first
		a.dropQueue()
		a.givenBack, a.paused = true, true
		pause = append(pause, a.partition)
	}
	m.client.PauseFetchPartitions(map[string][]int32{in.cfg.Topic: pause})
}

// readAgain rewinds the partitions whose queue was given back and of which a batch can be sent now. It runs between a poll
// and AllowRebalance.
func (m *membership) readAgain() {
	in := m.inlet
	in.mu.Lock()
	if !m.givenBack || in.conversation == nil {
		in.mu.Unlock()
		return
	}
	m.givenBack = false
	var partitions []int32
	targets := map[int32]kgo.EpochOffset{}
	for p, a := range in.held {
		if a.givenBack && a.free() {
			a.givenBack, a.paused = false, false
			partitions = append(partitions, p)
			targets[p] = kgo.EpochOffset{Epoch: -1, Offset: a.position}
		}
	}
	m.client.ResumeFetchPartitions(map[string][]int32{in.cfg.Topic: partitions})
	in.mu.Unlock()
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{in.cfg.Topic: targets})
}
