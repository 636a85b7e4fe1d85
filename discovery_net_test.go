package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// fakeProcess is a streamlet's process of which discovery alone is there.
type fakeProcess struct {
	flowv1.UnimplementedDiscoveryServer
	discover    func(context.Context, *flowv1.SidecarInfo) (*flowv1.Spec, error)
	reportError func(context.Context, *flowv1.Problems) (*flowv1.Empty, error)
}

func (p *fakeProcess) Discover(ctx context.Context, info *flowv1.SidecarInfo) (*flowv1.Spec, error) {
	return p.discover(ctx, info)
}

func (p *fakeProcess) ReportError(ctx context.Context, problems *flowv1.Problems) (*flowv1.Empty, error) {
	return p.reportError(ctx, problems)
}

// answering is a process that answers with spec and refuses to be told a problem.
func answering(spec *flowv1.Spec) *fakeProcess {
	return &fakeProcess{
		discover: func(context.Context, *flowv1.SidecarInfo) (*flowv1.Spec, error) { return spec, nil },
		reportError: func(context.Context, *flowv1.Problems) (*flowv1.Empty, error) {
			return nil, status.Error(codes.Internal, "not expected")
		},
	}
}

// pipeNet is the network between discovery and a process. Each dial is answered by the next of dials, the last one again
// and again.
type pipeNet struct {
	start time.Time
	dials []func(ctx context.Context) (net.Conn, error)

	mu       sync.Mutex
	times    []time.Duration // since start, of each dial
	networks []string
	open     int // connections that the dialing side has not closed
}

func (n *pipeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.times = append(n.times, time.Since(n.start))
	n.networks = append(n.networks, network+" "+address)
	answer := n.dials[min(len(n.times), len(n.dials))-1]
	n.mu.Unlock()
	conn, err := answer(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open++
	return &countedConn{Conn: conn, net: n}, nil
}

func (n *pipeNet) dialed() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.times)
}

type countedConn struct {
	net.Conn
	net  *pipeNet
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.net.mu.Lock()
		c.net.open--
		c.net.mu.Unlock()
	})
	return c.Conn.Close()
}

func refuse(context.Context) (net.Conn, error) {
	return nil, errors.New("dial tcp 127.0.0.1:9010: connect: connection refused")
}

// unreachable is a host that answers nothing to a dial.
func unreachable(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// frozen is a process that is stopped: the kernel accepts for it.
func frozen(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		buffer := make([]byte, 1024)
		for {
			if _, err := there.Read(buffer); err != nil {
				return
			}
		}
	}()
	return here, nil
}

// closing accepts and closes, as a port forwarder without a process behind it does.
func closing(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	return here, there.Close()
}

// saying is something that is no gRPC server.
func saying(text string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		here, err := frozen(ctx)
		front, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(text))
			buffer := make([]byte, 1024)
			for {
				if _, err := there.Read(buffer); err != nil {
					here.Close()
					return
				}
			}
		}()
		return front, err
	}
}

// listening is a gRPC server. It ends with the test.
func listening(t *testing.T, register func(*grpc.Server)) func(context.Context) (net.Conn, error) {
	server := grpc.NewServer()
	register(server)
	listener := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return func(ctx context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case listener.conns <- there:
			return here, nil
		case <-listener.done:
			return refuse(ctx)
		}
	}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9010} }

func process(t *testing.T, p *fakeProcess) func(context.Context) (net.Conn, error) {
	return listening(t, func(server *grpc.Server) { flowv1.RegisterDiscoveryServer(server, p) })
}
