package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// receiveLoop takes the process's answers until the stream, or ctx with it, ends. It never blocks on anything but the stream.
func (c *conversation) receiveLoop(ctx context.Context) error {
	var message fromProcess
	for {
		if err := c.stream.RecvMsg(&message); err != nil {
			return c.streamEnded(ctx, err)
		}
		var f *failure
		switch message.kind {
		case emitAnswer:
			f = c.onEmit(&message)
		case ackAnswer:
			f = c.onAck(&message)
		case failAnswer:
			f = c.onFail(&message)
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
		if received := c.stream.RecvMsg(new(fromProcess)); received != nil {
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
func (c *conversation) onEmit(e *fromProcess) *failure {
	b, violated := c.find(e.batchID, "an Emit")
	if violated != nil || b.abandoned.Load() {
		return violated
	}
	o := c.outlets[string(e.outlet)]
	switch {
	case o == nil:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit to outlet '%s', which Start did not bind, for %s", e.outlet, b), batch: b}
	case !e.hasRecord:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit without a record for %s", b), batch: b}
	case e.size > maxMessageBytes:
		return &failure{kind: endProtocol, cause: fmt.Errorf("the process broke the protocol: an Emit of %d bytes to outlet '%s', the limit is %d, for %s", e.size, e.outlet, maxMessageBytes, b), batch: b}
	}
	if b.emits == nil {
		b.emits = make([]emit, 0, c.usualEmits)
	}
	size := b.hold(o, e)
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

// hold copies an emit into the batch, and returns what it takes in memory, nearly.
func (b *batch) hold(o *outlet, e *fromProcess) int64 {
	const outletAndPromise = 40 // bytes beside the record
	b.emits = append(b.emits, emit{outlet: o})
	r := &b.emits[len(b.emits)-1].record
	if e.key != nil {
		r.Key = b.keep(e.key)
	}
	if e.alone && 2*len(e.value) > e.size {
		r.Value = e.value
	} else {
		r.Value = b.keep(e.value) // nil would be a tombstone, and the protocol has none
	}
	if len(e.headers) > 0 {
		r.Headers = make([]kgo.RecordHeader, len(e.headers))
		for i, h := range e.headers {
			r.Headers[i] = kgo.RecordHeader{Key: string(h.key), Value: b.keep(h.value)}
		}
	}
	return outletAndPromise + heldBytes(r)
}

// onAck lets the batch be written. A crash from here to the last confirmation leaves some of its emits written and
// nothing committed: the records come again.
func (c *conversation) onAck(ack *fromProcess) *failure {
	b, violated := c.answer(ack.batchID, "an Ack")
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
	const most = 256 // room for more is made when they come
	c.usualEmits = min(most, len(b.emits))
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
func (c *conversation) onFail(fail *fromProcess) *failure {
	b, violated := c.answer(fail.batchID, "a Fail")
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
	message := cmp.Or(string(fail.reason), "no reason given")
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
	b.emits, b.emitBytes, b.chunk = nil, 0, nil
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
