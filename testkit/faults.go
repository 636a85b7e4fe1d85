package testkit

import (
	"fmt"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// Misdeed is what the process does with a batch in place of answering it properly.
type Misdeed int

// The misdeeds.
const (
	Obey           Misdeed = iota // answers properly: for a Fault that only delays
	Hang                          // never answers this batch; the others go on
	FailBatch                     // emits, then Fail
	EmitToUnbound                 // an Emit to an outlet that Start did not bind, then the proper answer
	EmitAfterAck                  // the Ack first, then the emits; with nothing to emit, an Emit of its own to the first outlet
	AckTwice                      // the proper answer, then the Ack again
	AckUnknown                    // the Ack of a batch that was never sent, then the proper answer
	EmitOversized                 // an Emit over max_message_bytes, then the proper answer
	SayNothing                    // an empty message, then the proper answer
	CloseSide                     // completes its side of the conversation with the batch unanswered
	DropConnection                // cuts every connection with the batch unanswered
	SendGoAway                    // GOAWAY on every connection, then the proper answer
	AnswerPrevious                // answers the last batch of the previous conversation, then this one properly
	AckOnly                       // the Ack without the emits: a streamlet that decided to skip
	DieAfterEmits                 // the emits, and then the connection is cut before the Ack
	HangAfterEmits                // the emits, and never an answer
)

// Fault is a misdeed with its occasion.
type Fault struct {
	Do    Misdeed
	When  func(*flowv1.Batch) bool // nil: every batch
	Times int                      // how many batches; 0: as long as it is there
	Delay time.Duration            // before anything is answered
	Text  string                   // of a Fail

	done int // guarded by Process.mu
}

// Inject adds a fault. Of several whose occasion it is, the one that was injected first wins. remove takes it away again.
func (p *Process) Inject(f Fault) (remove func()) {
	return p.inject(f, func(faults []*Fault, f *Fault) []*Fault { return append(faults, f) })
}

// InjectFirst is Inject of a fault that wins over those that are there.
func (p *Process) InjectFirst(f Fault) (remove func()) {
	return p.inject(f, func(faults []*Fault, f *Fault) []*Fault { return append([]*Fault{f}, faults...) })
}

func (p *Process) inject(f Fault, into func([]*Fault, *Fault) []*Fault) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := &f
	p.faults = into(p.faults, fault)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, other := range p.faults {
			if other == fault {
				p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
				return
			}
		}
	}
}

func (p *Process) faultFor(batch *flowv1.Batch) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Times > 0 && f.done >= f.Times || f.When != nil && !f.When(batch) {
			continue
		}
		f.done++
		return *f
	}
	return Fault{}
}

// AtOffset is the occasion of a batch that holds one record.
func AtOffset(inlet string, partition int32, offset int64) func(*flowv1.Batch) bool {
	return func(b *flowv1.Batch) bool {
		if b.GetInlet() != inlet || b.GetPartition() != partition {
			return false
		}
		for _, r := range b.GetRecords() {
			if r.GetOffset() == offset {
				return true
			}
		}
		return false
	}
}

// OfPartition is the occasion of any batch of one partition.
func OfPartition(inlet string, partition int32) func(*flowv1.Batch) bool {
	return func(b *flowv1.Batch) bool { return b.GetInlet() == inlet && b.GetPartition() == partition }
}

func (c *conversation) misbehave(f Fault, batch *flowv1.Batch) {
	id := batch.GetBatchId()
	emits, err := c.emits(batch)
	if err != nil {
		emits = nil
	}
	before, after := []*flowv1.FromProcess(nil), []*flowv1.FromProcess(nil)
	switch f.Do {
	case Hang:
		<-c.ctx.Done()
		return
	case FailBatch:
		text := f.Text
		if text == "" {
			text = "the test said so"
		}
		c.send(emits...)
		c.p.answered(c.seen, id, "fail")
		c.send(failMessage(batch, text))
		return
	case CloseSide:
		c.end(errCompleted)
		return
	case DropConnection:
		c.p.DropConnections()
		return
	case HangAfterEmits:
		c.send(emits...)
		<-c.ctx.Done()
		return
	case DieAfterEmits:
		c.send(emits...)
		c.p.DropConnections()
		return
	case EmitAfterAck:
		if len(emits) == 0 {
			emits = []*flowv1.FromProcess{emitMessage(id, c.p.anOutlet(c.seen), []byte("after the ack"))}
		}
		emits, after = nil, emits
	case EmitToUnbound:
		before = append(before, emitMessage(id, "not-an-outlet", nil))
	case AckTwice:
		after = append(after, ackMessage(id))
	case AckUnknown:
		before = append(before, ackMessage(id+1_000_000))
	case EmitOversized:
		// As a whole message it is just over what Start allowed.
		before = append(before, emitMessage(id, c.p.anOutlet(c.seen), make([]byte, MaxMessageBytes)))
	case SayNothing:
		before = append(before, &flowv1.FromProcess{})
	case SendGoAway:
		c.p.GoAway()
	case AnswerPrevious:
		if previous, ok := c.p.previous(c.seen); ok {
			before = append(before, emitMessage(previous, c.p.anOutlet(c.seen), []byte("of the previous conversation")), ackMessage(previous))
		}
	case AckOnly:
		emits = nil
	default:
		panic(fmt.Sprintf("testkit: misdeed %d is not known", f.Do))
	}
	if !c.send(before...) || !c.send(emits...) {
		return
	}
	c.p.answered(c.seen, id, "ack")
	if c.send(ackMessage(id)) {
		c.send(after...)
	}
}

func emitMessage(id uint64, outlet string, value []byte) *flowv1.FromProcess {
	return &flowv1.FromProcess{Message: &flowv1.FromProcess_Emit{Emit: &flowv1.Emit{BatchId: id, Outlet: outlet, Record: &flowv1.Record{Value: value}}}}
}
