// Package testkit is what every suite of the sidecar stands on: a streamlet's process that a test can make misbehave, a way to write
// and read topics that uses nothing of the sidecar, and the one checker of its promises.
//
// It takes its network from the caller, never touches the disk, and knows the time only through package time, so that it also runs
// inside a testing/synctest bubble.
package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Handler is what the streamlet does with a batch: its emits in order (their batch_id is filled in here), or an error, which becomes
// a Fail. It is called concurrently for different partitions, as an SDK does it.
type Handler func(batch *flowv1.Batch) ([]*flowv1.Emit, error)

// Process is the process of a streamlet: the gRPC server of Discovery and Streamlet. It has grpc-go's defaults throughout, its
// keepalive enforcement and its receive limit of 4 MiB too, since those are what a process that somebody else wrote has.
type Process struct {
	gate    *gate
	handler Handler

	mu        sync.Mutex
	server    *grpc.Server
	spec      *flowv1.Spec
	discovery Discovery
	faults    []*Fault
	ignored   bool // Stop and half-close are not answered
	refused   bool // Run is refused
	seen      record
}

// Discovery is how the process answers Discover.
type Discovery int

// The ways to answer Discover.
const (
	DiscoverAnswers Discovery = iota
	DiscoverHangs             // never answers
	DiscoverRefuses           // answers UNAVAILABLE, as a process that is starting does
)

// NewProcess serves spec on l until Close. A nil handler acknowledges every batch and emits nothing.
func NewProcess(l net.Listener, spec *flowv1.Spec, handler Handler) *Process {
	p := &Process{gate: newGate(l), spec: spec, handler: handler}
	p.serve()
	return p
}

// serve starts a gRPC server on the gate. Only one at a time takes connections from it; GoAway changes it.
func (p *Process) serve() {
	server := grpc.NewServer()
	flowv1.RegisterDiscoveryServer(server, discoveryService{p: p})
	flowv1.RegisterStreamletServer(server, streamletService{p: p})
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	view := p.gate.view()
	go func() { _ = server.Serve(view) }()
}

// Addr is where the process listens.
func (p *Process) Addr() string { return p.gate.Addr().String() }

// Close kills the process: it no longer listens, and its connections are gone.
func (p *Process) Close() {
	p.gate.Close()
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	p.gate.drop()
	server.Stop()
}

// DropConnections cuts every connection and goes on listening.
func (p *Process) DropConnections() { p.gate.drop() }

// GoAway sends GOAWAY on every connection. The conversations on them may go on, new calls need a new connection.
func (p *Process) GoAway() {
	p.mu.Lock()
	old := p.server
	p.mu.Unlock()
	p.serve()
	go old.GracefulStop()
}

// SetSpec changes what Discover answers.
func (p *Process) SetSpec(spec *flowv1.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spec = spec
}

// SetDiscovery changes how Discover is answered.
func (p *Process) SetDiscovery(d Discovery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discovery = d
}

// IgnoreStop makes the process keep its side open after Stop and half-close.
func (p *Process) IgnoreStop(ignore bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignored = ignore
}

// RefuseRun makes the process answer Run with UNAVAILABLE.
func (p *Process) RefuseRun(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = refuse
}

type discoveryService struct {
	flowv1.UnimplementedDiscoveryServer
	p *Process
}

func (s discoveryService) Discover(ctx context.Context, info *flowv1.SidecarInfo) (*flowv1.Spec, error) {
	s.p.mu.Lock()
	s.p.seen.discoveries = append(s.p.seen.discoveries, info)
	how, spec := s.p.discovery, s.p.spec
	s.p.mu.Unlock()
	switch how {
	case DiscoverHangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case DiscoverRefuses:
		return nil, status.Error(codes.Unavailable, "the process refuses Discover, as it was told to")
	}
	return spec, nil
}

func (s discoveryService) ReportError(_ context.Context, problems *flowv1.Problems) (*flowv1.Empty, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	var texts []string
	for _, problem := range problems.GetProblems() {
		texts = append(texts, problem.GetMessage())
	}
	s.p.seen.reported = append(s.p.seen.reported, texts)
	return &flowv1.Empty{}, nil
}

type streamletService struct {
	flowv1.UnimplementedStreamletServer
	p *Process
}

// conversation is one Run stream. Answers to different batches are made concurrently and go out through one writer, since a stream
// takes one sender; a channel and not a mutex, so that a blocked write lets a synctest bubble go on.
type conversation struct {
	p      *Process
	seen   *Conversation // guarded by p.mu
	ctx    context.Context
	end    context.CancelCauseFunc
	out    chan *flowv1.FromProcess
	answer sync.WaitGroup
}

// errCompleted ends a conversation as a process does that closes its side without being asked.
var errCompleted = errors.New("the process closed its side")

func (s streamletService) Run(stream grpc.BidiStreamingServer[flowv1.ToProcess, flowv1.FromProcess]) error {
	s.p.mu.Lock()
	refused := s.p.refused
	s.p.mu.Unlock()
	if refused {
		return status.Error(codes.Unavailable, "the process refuses Run, as it was told to")
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	c := &conversation{p: s.p, seen: s.p.open(), ctx: ctx, end: end, out: make(chan *flowv1.FromProcess)}
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write(stream)
	}()
	go c.read(stream)
	<-written
	err := context.Cause(ctx)
	if errors.Is(err, errCompleted) {
		err = nil
	}
	s.p.closed(c.seen, err)
	return err
}

// write sends what the answers hand over until the conversation ends. It returns before Run does: a stream must not be used after.
func (c *conversation) write(stream grpc.BidiStreamingServer[flowv1.ToProcess, flowv1.FromProcess]) {
	for {
		select {
		case <-c.ctx.Done():
			return
		case m, open := <-c.out:
			if !open {
				return
			}
			if err := stream.Send(m); err != nil {
				c.end(fmt.Errorf("send: %w", err))
				return
			}
		}
	}
}

func (c *conversation) read(stream grpc.BidiStreamingServer[flowv1.ToProcess, flowv1.FromProcess]) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if c.p.halfClosed(c.seen) {
				return // Stop is ignored: the sidecar has to give up by itself
			}
			c.answer.Wait() // what it holds is finished, then its side
			close(c.out)
			return
		}
		if err != nil {
			c.end(fmt.Errorf("receive: %w", err))
			return
		}
		if batch := c.p.received(c.seen, m); batch != nil {
			c.answer.Go(func() { c.answerBatch(batch) })
		}
	}
}

// send hands messages to the writer, in order; it is false when the conversation ended first.
func (c *conversation) send(ms ...*flowv1.FromProcess) bool {
	for _, m := range ms {
		select {
		case c.out <- m:
		case <-c.ctx.Done():
			return false
		}
	}
	return true
}

// wait is false when the conversation ended before d had passed.
func (c *conversation) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *conversation) answerBatch(batch *flowv1.Batch) {
	fault := c.p.faultFor(batch)
	if !c.wait(fault.Delay) {
		return
	}
	if fault.Do != Obey {
		c.misbehave(fault, batch)
		return
	}
	emits, err := c.emits(batch)
	if err != nil {
		c.p.answered(c.seen, batch.GetBatchId(), "fail")
		c.send(failMessage(batch, err.Error()))
		return
	}
	if !c.send(emits...) {
		return
	}
	// Noted before it is sent: from the moment the sidecar has it, the next batch of the partition may come.
	c.p.answered(c.seen, batch.GetBatchId(), "ack")
	c.send(ackMessage(batch.GetBatchId()))
}

// emits is what the handler makes of the batch, as messages.
func (c *conversation) emits(batch *flowv1.Batch) ([]*flowv1.FromProcess, error) {
	if c.p.handler == nil {
		return nil, nil
	}
	emits, err := c.p.handler(batch)
	if err != nil {
		return nil, err
	}
	var ms []*flowv1.FromProcess
	for _, e := range emits {
		e = proto.CloneOf(e) // a handler may give the same emit twice
		e.BatchId = batch.GetBatchId()
		ms = append(ms, &flowv1.FromProcess{Message: &flowv1.FromProcess_Emit{Emit: e}})
	}
	return ms, nil
}

func ackMessage(id uint64) *flowv1.FromProcess {
	return &flowv1.FromProcess{Message: &flowv1.FromProcess_Ack{Ack: &flowv1.Ack{BatchId: id}}}
}

func failMessage(batch *flowv1.Batch, text string) *flowv1.FromProcess {
	return &flowv1.FromProcess{Message: &flowv1.FromProcess_Fail{Fail: &flowv1.Fail{BatchId: batch.GetBatchId(), Error: &flowv1.Error{Message: text}}}}
}
