package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	finishBound = time.Second      // after a failure: for writing and committing what is acknowledged
	stopBound   = 10 * time.Second // at a stop: for the process's answers, their writes and commits
)

// failure ends a conversation. With a batch it is attributed: that batch caused it, and would again (DESIGN: 6).
type failure struct {
	cause error
	kind  endCause
	batch *batch // nil when it is nobody's
	gone  bool   // the connection to the process was refused or lost
}

func (f *failure) Error() string { return f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// conversation is one Run stream with the process, from Start until it fails or is stopped.
type conversation struct {
	id         string
	cfg        *Config
	log        *slog.Logger
	inlets     map[string]*inlet
	outlets    map[string]*outlet
	producers  map[string]*producer
	stream     grpc.ClientStream
	maxBackoff time.Duration

	ready  mailbox[*assignment] // partitions whose next batch may go out
	writes mailbox[*batch]      // acknowledged batches whose turn it is
	ending atomic.Bool          // nothing new goes out
	end    context.CancelCauseFunc

	closing sync.Once // of the producers

	usualEmits int // of the last batch; the receiver's alone

	held  atomic.Int64  // bytes of emits that are held or not yet confirmed
	freed chan struct{} // capacity 1: held went down, or a batch was answered

	mu          sync.Mutex
	firstID     uint64 // the last batch of the conversation before: ids go on, so that an answer to it is told apart
	lastID      uint64
	withProcess map[uint64]*batch // sent and not answered, dropped ones too
	answered    []answeredBatch   // the last ones, for naming a violation's batch
}

// answeredBatch is what is remembered of a batch after its answer.
type answeredBatch struct {
	id    uint64
	batch *batch
}

// converse runs the conversation of that id over conn until it fails or stop ends, and returns why: nil for a stop. Everything that
// it started has ended when it returns, at most stopBound or finishBound and the closing of the producers later.
func (s *sidecar) converse(stop context.Context, id string, conn *grpc.ClientConn, wait time.Duration, restarted bool) error {
	// The stream and the writing outlive a stop, which first ends taking in.
	streamCtx, end := context.WithCancelCause(context.WithoutCancel(stop))
	defer end(nil)
	c := &conversation{
		id: id, cfg: s.cfg, inlets: s.inlets, outlets: s.outlets, producers: map[string]*producer{},
		maxBackoff: s.cfg.ReconnectMaxBackoff, end: end, freed: make(chan struct{}, 1), withProcess: map[uint64]*batch{},
		ready: newMailbox[*assignment](), writes: newMailbox[*batch](),
	}
	c.log = s.log.With("conversation", c.id)
	c.firstID, c.lastID = s.lastBatch, s.lastBatch
	defer func() { s.lastBatch = c.lastID }()
	writeCtx, endWriting := context.WithCancel(context.WithoutCancel(stop))
	defer endWriting()

	var background sync.WaitGroup
	defer background.Wait()
	defer c.closeProducers()
	defer endWriting()
	for name, o := range s.outlets {
		p, err := o.open(writeCtx, &background, c.writes)
		if err != nil {
			return err
		}
		c.producers[name] = p
	}

	// A connection that broke since discovery is made anew, and a process that takes it and says nothing would hold that up for
	// ever. What comes after does not wait for the process.
	opening := time.AfterFunc(s.cfg.DiscoveryTimeout, func() {
		end(fmt.Errorf("no answer within %gs", s.cfg.DiscoveryTimeout.Seconds()))
	})
	stopOpening := context.AfterFunc(stop, func() { end(errStopped) })
	stream, err := conn.NewStream(streamCtx, &flowv1.Streamlet_ServiceDesc.Streams[0], flowv1.Streamlet_Run_FullMethodName, grpc.ForceCodecV2(newCodec()))
	if inTime := opening.Stop(); !stopOpening() || !inTime {
		return &failure{cause: fmt.Errorf("the conversation could not be opened: %w", context.Cause(streamCtx))}
	}
	if err != nil {
		return &failure{kind: endProcessGone, cause: fmt.Errorf("the conversation could not be opened: %w", inWords(err)), gone: status.Code(err) == codes.Unavailable}
	}
	c.stream = stream
	if err := stream.SendMsg(&flowv1.ToProcess{Message: &flowv1.ToProcess_Start{Start: c.start()}}); err != nil {
		err = c.streamError(err)
		return &failure{kind: endProcessGone, cause: fmt.Errorf("the conversation broke off at its start: %w", inWords(err)), gone: status.Code(err) == codes.Unavailable}
	}
	s.metrics.conversations.Inc()
	c.log.Log(stop, s.streak.level(), "conversation started")
	defer s.streak.watch(c.log)()

	work, workCtx := errgroup.WithContext(streamCtx)
	sending, stopSending := context.WithCancel(workCtx)
	received := make(chan struct{})
	work.Go(func() error { defer close(received); return c.receiveLoop(streamCtx) })
	work.Go(func() error { return c.sendLoop(streamCtx, sending) })
	work.Go(func() error { return c.watchWrites(workCtx) })
	work.Go(func() error { return c.watchProgress(workCtx) })
	background.Go(func() { c.writeLoop(writeCtx) })
	for _, in := range s.inlets {
		in.attach(c, wait, restarted)
	}
	s.ready.conversation(true)

	stopped := false
	var deadline time.Time
	select {
	case <-workCtx.Done():
	case <-stop.Done():
		stopped = true
		s.ready.stop()
		c.ending.Store(true)
		stopSending() // sends Stop and half-closes
		deadline = time.Now().Add(stopBound)
		c.awaitAnswers(workCtx, deadline)
		select {
		case <-received: // the process has completed its side
		case <-time.After(time.Until(deadline)):
		}
	}
	c.ending.Store(true)
	s.ready.conversation(false)
	end(nil)
	stopSending()
	cause := work.Wait()
	if failed := context.Cause(streamCtx); failed != nil && !errors.Is(failed, context.Canceled) {
		cause = failed // the first failure, not what it brought about
	}
	for _, in := range s.inlets {
		in.noteFailure(cause)
		in.dropUnanswered()
	}
	if !stopped {
		deadline = time.Now().Add(finishBound)
	}
	if !c.awaitCommits(stop, deadline) && stop.Err() != nil {
		c.log.Warn("acknowledged records could not be written and committed before the stop; they come again")
	}
	endWriting()
	c.closeProducers()
	for _, in := range s.inlets {
		in.detach(c)
	}
	if stopped {
		return nil
	}
	return cause
}

// awaitAnswers waits until nothing is with the process any more, at most until deadline or until the stream ends.
func (c *conversation) awaitAnswers(stream context.Context, deadline time.Time) {
	ctx, cancel := context.WithDeadline(stream, deadline)
	defer cancel()
	for _, in := range c.inlets {
		in.await(ctx, func() bool {
			for _, a := range in.held {
				if a.withProcess != nil {
					return false
				}
			}
			return true
		})
	}
}

// awaitCommits waits until all that was acknowledged is written and committed, at most until deadline, and says whether it
// is. A stop that comes meanwhile gives the wait its own time: a pod's containers are stopped at the same moment, and the end
// of the process may be seen first.
func (c *conversation) awaitCommits(stop context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.AfterFunc(time.Until(deadline), cancel)
	defer timer.Stop()
	if stop.Err() == nil {
		defer context.AfterFunc(stop, func() { timer.Reset(stopBound) })()
	}
	settled := true
	for _, in := range c.inlets {
		settled = in.await(ctx, in.settled) && settled
	}
	return settled
}

// closeProducers closes them all at once. Their last confirmations have come when it returns.
func (c *conversation) closeProducers() {
	c.closing.Do(func() {
		var closing sync.WaitGroup
		for _, p := range c.producers {
			closing.Go(p.close)
		}
		closing.Wait()
	})
}

// start is the first message (PROTOCOL: The conversation, 1).
func (c *conversation) start() *flowv1.Start {
	start := &flowv1.Start{
		ConversationId: c.id, Pipeline: c.cfg.Pipeline, Streamlet: c.cfg.Streamlet, ConfigJson: c.cfg.ConfigJSON, MaxMessageBytes: maxMessageBytes,
	}
	for i := range c.cfg.Inlets {
		start.Inlets = append(start.Inlets, &flowv1.PortBinding{Port: c.cfg.Inlets[i].Name, Topic: c.cfg.Inlets[i].Topic})
	}
	for i := range c.cfg.Outlets {
		start.Outlets = append(start.Outlets, &flowv1.PortBinding{Port: c.cfg.Outlets[i].Name, Topic: c.cfg.Outlets[i].Topic})
	}
	return start
}

// fail ends the conversation; the first cause counts. An attributed one makes its partition suspect at once, before
// anything else can end the epoch of its batch.
func (c *conversation) fail(f *failure) {
	if b := f.batch; b != nil {
		b.assignment.inlet.suspectBatch(b, f.cause.Error())
	}
	c.ending.Store(true)
	c.end(f)
}

// failConversation fails the conversation that the inlet feeds, if there is one.
func (in *inlet) failConversation(f *failure) {
	in.mu.Lock()
	c := in.conversation
	in.mu.Unlock()
	if c != nil {
		c.fail(f)
	}
}

// suspectBatch has the batch's partition read one record at a time until the batch is passed.
func (in *inlet) suspectBatch(b *batch, cause string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := b.assignment
	if in.held[a.partition] != a {
		return
	}
	if a.suspect == nil {
		a.suspect = &suspicion{}
	}
	a.suspect.until = max(a.suspect.until, b.next-1)
	a.suspect.failures++
	a.suspect.failed = true
	a.suspect.exact = b.records == 1
	a.suspect.cause = cause
}

// noteFailure keeps the cause for the stall warning of every partition that has something outstanding.
func (in *inlet) noteFailure(cause error) {
	if cause == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var f *failure
	attributed := errors.As(cause, &f) && f.batch != nil
	for p, s := range in.stalls {
		if !attributed || f.batch.assignment == in.held[p] {
			s.cause = cause.Error()
		}
	}
}

// sendLoop sends batches, one partition after another as they become ready, until ctx ends; then Stop, and half-closes,
// unless the stream has ended before.
func (c *conversation) sendLoop(stream, ctx context.Context) error {
	encoder := newBatchEncoder()
	for {
		a, ok := c.ready.take(ctx)
		if ok && !c.ending.Load() {
			ok = c.awaitRoom(ctx)
		}
		if !ok || c.ending.Load() {
			if stream.Err() != nil {
				return nil // it failed: there is nobody to tell
			}
			// What fails here, the receiver tells with its cause.
			_ = c.stream.SendMsg(&flowv1.ToProcess{Message: &flowv1.ToProcess_Stop{Stop: &flowv1.Stop{Reason: "the sidecar is stopping"}}})
			_ = c.stream.CloseSend()
			return nil
		}
		message, err := c.nextMessage(a, encoder)
		if err != nil {
			c.fail(err)
			return err
		}
		if message == nil {
			continue
		}
		if err := c.stream.SendMsg(message); err != nil {
			if err == io.EOF {
				return nil // the receiver has the stream's error
			}
			return &failure{kind: endProcessGone, cause: fmt.Errorf("a batch could not be sent: %w", inWords(err))}
		}
	}
}

// awaitRoom waits until the emits that are held leave room for more; one batch may always be out.
func (c *conversation) awaitRoom(ctx context.Context) bool {
	for c.held.Load() > c.cfg.MaxEmitBytes {
		c.mu.Lock()
		out := len(c.withProcess)
		c.mu.Unlock()
		if out == 0 {
			return true
		}
		select {
		case <-c.freed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// nextMessage takes the partition's next batch and registers it as being with the process. A crash from here to its
// acknowledgement leaves nothing written: the records come again.
func (c *conversation) nextMessage(a *assignment, encoder *batchEncoder) (*flowv1.ToProcess, *failure) {
	in := a.inlet
	in.mu.Lock()
	defer in.mu.Unlock()
	a.inReady = false
	if in.conversation != c || in.held[a.partition] != a {
		return nil, nil
	}
	b, records, err := a.nextBatch(encoder.records)
	encoder.records = records
	if err != nil {
		in.beginStall(a)
		offset := a.queue[0].Offset
		b = &batch{assignment: a, first: offset, next: offset + 1, records: 1}
		return nil, &failure{kind: endUndeliverable, cause: err, batch: b}
	}
	if b == nil {
		return nil, nil
	}
	in.beginStall(a)
	in.moved()
	in.stats.batchRecords.Observe(float64(b.records))
	a.history.sent(b, records)
	c.mu.Lock()
	c.lastID++
	b.id, b.conversation = c.lastID, c
	c.withProcess[b.id] = b
	c.mu.Unlock()
	return encoder.encode(b), nil
}

// watchWrites fails the conversation when a write has had no answer for delivery.timeout.ms: the client itself would wait
// for ever.
func (c *conversation) watchWrites(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var bound time.Duration
	for _, o := range c.outlets {
		bound = max(bound, o.cfg.Producer.DeliveryTimeout)
	}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for _, in := range c.inlets {
			if b := in.oldestWrite(); b != nil && time.Since(b.writeBegun) > bound {
				f := &failure{kind: endWriteTimeout, cause: fmt.Errorf("a write of %s has had no answer for %s (delivery.timeout.ms)", b, bound)}
				c.fail(f)
				return f
			}
		}
	}
}

// oldestWrite is the batch that has been waiting longest for confirmation, nil when none is.
func (in *inlet) oldestWrite() *batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	var oldest *batch
	for _, a := range in.held {
		if b := a.writing; b != nil && (oldest == nil || b.writeBegun.Before(oldest.writeBegun)) {
			oldest = b
		}
	}
	return oldest
}
