package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// receiveLoop takes the process's answers until the stream, or ctx with it, ends. It never blocks on anything but the stream.
func (c *conversation) receiveLoop(ctx context.Context) error {
	for {
		message, err := c.stream.Recv()
		if err != nil {
			return c.streamEnded(ctx, err)
		}
		var f *failure
		switch m := message.Message.(type) {
		case *flowv1.FromProcess_Emit:
			f = c.onEmit(message, m.Emit)
		case *flowv1.FromProcess_Ack:
			f = c.onAck(m.Ack)
		case *flowv1.FromProcess_Fail:
			f = c.onFail(m.Fail)
		default:
			f = &failure{kind: endProtocol, cause: errors.New("the process broke the protocol: a message that is none of Emit, Ack and Fail")}
		}
		if f != nil {
			c.fail(f)
			return f
		}
	}
}

// streamEnded says why there is nothing more to receive.
func (c *conversation) streamEnded(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause != nil:
		return cause
	case c.ending.Load() && err == io.EOF:
		return errStopped // asked to, the process has completed its side
	case err == io.EOF:
		return &failure{kind: endProcessGone, cause: errors.New("the process closed its side of the conversation")}
	}
	return &failure{kind: endProcessGone, cause: fmt.Errorf("the conversation broke off: %w", inWords(err)), gone: status.Code(err) == codes.Unavailable}
}

var errStopped = errors.New("stopped")

// streamError prefers the stream's own status to the EOF that a failed Send returns.
func (c *conversation) streamError(err error) error {
	if err == io.EOF {
		if _, received := c.stream.Recv(); received != nil {
			return received
		}
	}
	return err
}

// find returns the batch that an answer names. Where there is none it returns the violation; a nil batch without one
// means that its partition was taken away meanwhile, and the answer is dropped without a word.
func (c *conversation) find(id uint64, what string) (*batch, *failure) {
	c.mu.Lock()
	b := c.withProcess[id]
	c.mu.Unlock()
	if b != nil {
		return b, nil
	}
	return nil, c.violation(id, what)
}

// violation is an answer to a batch that is not with the process. When the batch was answered before, it can no longer be
// trusted: it and all after it on its partition are kept out of the last commit.
func (c *conversation) violation(id uint64, what string) *failure {
	c.mu.Lock()
	var known *batch
	for _, a := range c.answered {
		if a.id == id {
			known = a.batch
		}
	}
	last := c.lastID
	c.mu.Unlock()
	switch {
	case known != nil:
		known.assignment.inlet.distrust(known, c.log)
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: %s for %s, which it has answered already", what, known), batch: known}
	case id > last || id <= c.firstID:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: %s for batch %d, which was never sent in this conversation", what, id)}
	}
	return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: %s for batch %d, which it has answered already", what, id)}
}

// distrust keeps a batch, and all after it on its partition, from being committed.
func (in *inlet) distrust(b *batch, log *slog.Logger) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := b.assignment
	if in.held[a.partition] != a {
		return
	}
	a.commitLimit = min(a.commitLimit, max(b.first, a.base))
	if a.base >= b.next || a.committing {
		log.Error("a batch was committed, or is just being, before the process answered it a second time: what that answer meant is lost",
			"inlet", in.cfg.Name, "topic", in.cfg.Topic, "partition", a.partition, "offset", b.first, "last_offset", b.next-1)
	}
	in.notify()
}

// onEmit holds a record until its batch's Ack.
func (c *conversation) onEmit(message *flowv1.FromProcess, e *flowv1.Emit) *failure {
	b, violated := c.find(e.BatchId, "an Emit")
	if violated != nil || b.abandoned.Load() {
		return violated
	}
	o := c.outlets[e.Outlet]
	switch {
	case o == nil:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit to outlet '%s', which Start did not bind, for %s", e.Outlet, b), batch: b}
	case e.Record == nil:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit without a record for %s", b), batch: b}
	}
	size := emitSize(e)
	if size > maxMessageBytes/2 { // near the limit the exact size counts
		if exact := proto.Size(message); exact > maxMessageBytes {
			return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit of %d bytes to outlet '%s', the limit is %d, for %s", exact, e.Outlet, maxMessageBytes, b), batch: b}
		}
	}
	b.emits = append(b.emits, emit{outlet: o, record: e.Record})
	b.emitBytes += size
	total := c.held.Add(size)
	if b.emitBytes > c.cfg.MaxEmitBytes {
		return &failure{kind: endEmits, cause: fmt.Errorf("the emits of %s are %d bytes, more than FLOW_MAX_EMIT_BYTES (%d) before its Ack", b, b.emitBytes, c.cfg.MaxEmitBytes), batch: b}
	}
	if total > 2*c.cfg.MaxEmitBytes {
		largest := c.largest()
		return &failure{kind: endEmits, cause: fmt.Errorf("the emits of all batches are %d bytes, more than twice FLOW_MAX_EMIT_BYTES (%d); the largest share, %d bytes, is of %s", total, c.cfg.MaxEmitBytes, largest.emitBytes, largest), batch: largest}
	}
	return nil
}

// largest is the batch with the process that holds the most. The receiver alone calls it.
func (c *conversation) largest() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	var largest *batch
	for _, b := range c.withProcess {
		if largest == nil || b.emitBytes > largest.emitBytes {
			largest = b
		}
	}
	return largest
}

// emitSize is what an emit takes in memory, nearly.
func emitSize(e *flowv1.Emit) int64 {
	const structs, headerStruct = 256, 88
	n := int64(structs + len(e.Record.Key) + len(e.Record.Value))
	for _, h := range e.Record.Headers {
		n += int64(headerStruct + len(h.Key) + len(h.Value))
	}
	return n
}

// onAck lets the batch be written. A crash from here to the last confirmation leaves some of its emits written and
// nothing committed: the records come again.
func (c *conversation) onAck(ack *flowv1.Ack) *failure {
	b, violated := c.answer(ack.BatchId, "an Ack")
	if violated != nil {
		return violated
	}
	in, a := b.assignment.inlet, b.assignment
	in.mu.Lock()
	defer in.mu.Unlock()
	if b.abandoned.Load() || a.withProcess != b {
		c.releaseEmits(b)
		in.forgetDropped(b)
		return nil
	}
	a.withProcess, a.acknowledged = nil, b
	in.moved()
	in.stats.process.Observe(time.Since(b.sent).Seconds())
	a.writeNext(c)
	in.wake(a)
	in.notify()
	return nil
}

// forgetDropped is told that the process has answered a batch that was dropped: its partition, if it came back meanwhile,
// may send again. mu is held.
func (in *inlet) forgetDropped(b *batch) {
	p := b.assignment.partition
	if in.dropped[p] != b {
		return
	}
	delete(in.dropped, p)
	if a := in.held[p]; a != nil {
		in.wake(a)
	}
}

// onFail takes the process's refusal of a batch.
func (c *conversation) onFail(fail *flowv1.Fail) *failure {
	b, violated := c.answer(fail.BatchId, "a Fail")
	if violated != nil {
		return violated
	}
	if in := b.assignment.inlet; b.abandoned.Load() {
		c.releaseEmits(b)
		in.mu.Lock()
		defer in.mu.Unlock()
		in.forgetDropped(b)
		return nil
	}
	message := fail.GetError().GetMessage()
	if message == "" {
		message = "no reason given"
	}
	return &failure{kind: endFailedBatch, cause: fmt.Errorf("the process failed %s: %s", b, message), batch: b}
}

// answer takes the batch out of those that are with the process.
func (c *conversation) answer(id uint64, what string) (*batch, *failure) {
	b, violated := c.find(id, what)
	if violated != nil {
		return nil, violated
	}
	const remembered = 1024
	c.mu.Lock()
	delete(c.withProcess, id)
	if len(c.answered) == remembered {
		c.answered = append(c.answered[:0], c.answered[remembered/2:]...)
	}
	c.answered = append(c.answered, answeredBatch{id, b})
	c.mu.Unlock()
	select {
	case c.freed <- struct{}{}:
	default:
	}
	return b, nil
}

// releaseEmits gives the room of a batch's emits back.
func (c *conversation) releaseEmits(b *batch) {
	c.held.Add(-b.emitBytes)
	b.emits, b.emitBytes = nil, 0
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// inWords turns a gRPC status into what a person needs.
func inWords(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		return fmt.Errorf("the process went away (%s)", s.Message())
	case codes.ResourceExhausted:
		return fmt.Errorf("a message over a size limit (%s)", s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("the process does not serve ankka.flow.v1.Streamlet (%s)", s.Message())
	}
	return fmt.Errorf("%s (%s)", s.Message(), s.Code())
}
