package main

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// assignment is one partition of an inlet from assigned to revoked or lost: an epoch. What is known of the partition's
// reading belongs to it and dies with it, and a commit goes out only for the assignment that the inlet still holds
// (DESIGN: promise 5). Every field is guarded by the inlet's mu.
type assignment struct {
	inlet     *inlet
	partition int32

	base        int64 // the committed offset, or where reading began; -1 until known
	confirmed   int64 // every record below it is written and confirmed; never below base
	commitLimit int64 // commits stay at or below it: a batch that begins here was answered against the rules
	leaderEpoch int32 // of the last confirmed record
	commitBase  bool  // base was resolved, not committed: it is committed before the first batch goes out

	started    bool  // where reading begins was asked for, and answered as well as it can be
	position   int64 // the next offset to come from the broker; -1 until known
	dataEnd    int64 // after the last record that came: from there to position are only transactions' markers
	resumeAt   int64 // after a rewind: the offset that comes first, as it came before; -1 when it is not known
	queue      []*kgo.Record
	queueBytes int64
	paused     bool
	givenBack  bool // the queue was dropped for want of memory: paused, to be read again from position
	logStart   int64
	logEnd     int64 // -1 until known

	withProcess  *batch // sent, not answered
	acknowledged *batch // answered, waiting for the batch before it to be confirmed
	writing      *batch // its emits are being sent or confirmed
	committing   bool   // a commit request that names the partition is out
	leaving      bool   // being revoked: nothing new goes out
	inReady      bool   // in the conversation's ready list

	suspect   *suspicion
	heldUntil time.Time // the partition is held back so that the others work; zero when it is not
	holdTimer *time.Timer

	levels  *levels
	history *history
	newest  time.Time // the timestamp of the last confirmed record
	carried time.Time // newest, of the commit that is out
}

const noCommitLimit = math.MaxInt64

// suspicion is what an attributed failure leaves behind: the partition is read one record at a time until the record at
// fault is found or passed (DESIGN: 6).
type suspicion struct {
	until    int64     // the last offset of the failed batch
	failures int       // attributed ones, one after another, without a way past them
	failed   bool      // since the last conversation began
	exact    bool      // the failed batch was one record: it is the one at fault
	tried    time.Time // when it was last given a conversation without the others that fail
	hold     time.Duration
	cause    string
}

func newAssignment(in *inlet, partition int32) *assignment {
	return &assignment{
		inlet: in, partition: partition,
		base: -1, confirmed: -1, commitLimit: noCommitLimit, leaderEpoch: -1,
		position: -1, resumeAt: -1, logStart: -1, logEnd: -1,
		levels: newLevels(in, partition), history: in.historyOf(partition),
	}
}

// beginAt records where reading begins. Nothing was delivered yet.
func (a *assignment) beginAt(offset int64) {
	a.base, a.confirmed, a.position, a.dataEnd = offset, offset, offset, offset
}

// commitTarget is the offset that may be committed now, and whether it has to be.
func (a *assignment) commitTarget() (offset int64, due bool) {
	offset = min(a.confirmed, a.commitLimit)
	return offset, offset > a.base || a.commitBase
}

// settled says that nothing acknowledged is left to be written or committed.
func (a *assignment) settled() bool {
	_, due := a.commitTarget()
	return a.acknowledged == nil && a.writing == nil && !due && !a.committing
}

// outstanding says that a record was sent to the process and its offset is not committed.
func (a *assignment) outstanding() bool {
	return a.withProcess != nil || a.acknowledged != nil || a.writing != nil || a.confirmed > a.base
}

// sendable says that the partition's next batch may go to the process.
func (a *assignment) sendable() bool {
	if a.single() && (a.writing != nil || a.confirmed != a.base) {
		return false // the record before is to be committed: then a failure names this one
	}
	return len(a.queue) > 0 && a.free()
}

// free says that nothing but its queue keeps the partition's next batch from the process.
func (a *assignment) free() bool {
	switch {
	case a.leaving, a.commitBase, !a.heldUntil.IsZero():
		return false
	case a.withProcess != nil, a.acknowledged != nil:
		return false // one with the process, one acknowledged and waiting: no more
	case a.inlet.dropped[a.partition] != nil:
		return false // the process still has a batch of the partition from before it was revoked
	}
	return true
}

// single says that the partition's next record goes out alone.
func (a *assignment) single() bool {
	return a.suspect != nil && len(a.queue) > 0 && a.queue[0].Offset <= a.suspect.until
}

// dropQueue forgets what was fetched; the partition is read again from wherever it is set to.
func (a *assignment) dropQueue() {
	a.inlet.budget.add(-a.queueBytes)
	clear(a.queue)
	a.queue, a.queueBytes = nil, 0
}

// abandon forgets every batch of the partition. Nothing of them will be committed; their emits may still land.
func (a *assignment) abandon() {
	a.dropUnanswered()
	if b := a.writing; b != nil {
		b.abandoned.Store(true) // the writer gives the room of its emits back
	}
	if b := a.acknowledged; b != nil {
		b.abandoned.Store(true)
		b.conversation.releaseEmits(b)
	}
	a.acknowledged, a.writing = nil, nil
}

// dropUnanswered forgets the batch that is with the process: its answers are dropped without a word.
func (a *assignment) dropUnanswered() {
	if b := a.withProcess; b != nil {
		b.abandoned.Store(true)
		a.withProcess = nil
		a.inlet.dropped[a.partition] = b
	}
}

// firstUncommitted is the offset of the first record that comes again after a rewind to base, -1 when it is not known:
// a compacted log may have none at base itself.
func (a *assignment) firstUncommitted() int64 {
	if a.confirmed != a.base {
		return -1
	}
	for _, b := range []*batch{a.writing, a.acknowledged, a.withProcess} {
		if b != nil {
			return b.first
		}
	}
	if a.resumeAt < 0 && len(a.queue) > 0 {
		return a.queue[0].Offset
	}
	return a.resumeAt
}

// endEpoch takes the partition's state away with its assignment.
func (a *assignment) endEpoch() {
	a.abandon()
	a.dropQueue()
	a.release()
	a.leaving = true
}

// hold keeps the partition back for d, so that the others work meanwhile.
func (a *assignment) hold(d time.Duration) {
	a.release()
	a.heldUntil = time.Now().Add(d)
	a.holdTimer = time.AfterFunc(d, func() {
		a.inlet.mu.Lock()
		defer a.inlet.mu.Unlock()
		if !a.heldUntil.IsZero() && !time.Now().Before(a.heldUntil) {
			a.heldUntil = time.Time{}
			a.inlet.wake(a)
		}
	})
}

// release ends a hold.
func (a *assignment) release() {
	if a.holdTimer != nil {
		a.holdTimer.Stop()
	}
	a.heldUntil, a.holdTimer = time.Time{}, nil
}
