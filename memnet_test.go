package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// memnet is a network of one host in memory, which a synctest bubble can idle on.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	ports     int
	conns     map[*memConn]struct{}
	frozen    map[string]bool          // by listener's address or dialing host: nothing that was written is read
	dead      map[string]bool          // hosts that can no longer dial
	slow      map[string]time.Duration // by listener's address: how long each read waits first
}

type memListener struct {
	net    *memnet
	addr   *net.TCPAddr
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newMemnet() *memnet {
	return &memnet{listeners: map[string]*memListener{}, conns: map[*memConn]struct{}{}, frozen: map[string]bool{}, slow: map[string]time.Duration{}, dead: map[string]bool{}}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.addr.String()] == l {
			delete(l.net.listeners, l.addr.String())
		}
		l.net.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return l.addr }

// memConn is an end of a connection. What one end writes waits, as in a socket's buffers, until the other reads it, so that
// a write does not wait for a peer that hangs: kgo writes under locks, and a goroutine that waits for a lock stops a
// bubble's clock. All is guarded by the memnet's mu.
type memConn struct {
	net           *memnet
	peer          *memConn
	local, remote *net.TCPAddr
	keys          []string   // the listener's address and the dialing host: what may be frozen
	changed       *sync.Cond // anything below, of this end or of the peer's
	inbox         []byte     // from the peer, to be read
	swallow       bool       // written bytes vanish
	closed        bool
	readDeadline  time.Time
	writeDeadline time.Time
	lastRead      time.Time
	reads         int // at the moment of lastRead
}

// socketBuffer is how much of a write waits for its reader, in bytes. What is longer waits with it.
const socketBuffer = 64 << 10

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) Read(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	pause := c.net.slow[c.keys[0]]
	if c.takesNoTime() {
		pause += 10 * time.Millisecond
	}
	for until := time.Now().Add(pause); !isPast(until) && !c.closed; {
		c.wait(until)
	}
	for {
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case isPast(c.readDeadline):
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case c.isFrozen():
		case len(c.inbox) > 0:
			n := copy(p, c.inbox)
			if len(c.inbox) == socketBuffer {
				c.peer.changed.Broadcast() // there is room again
			}
			c.inbox = append(c.inbox[:0], c.inbox[n:]...)
			return n, nil
		case c.peer.closed:
			return 0, io.EOF
		}
		c.wait(c.readDeadline)
	}
}

// takesNoTime says that many reads came at one moment of a bubble's clock, which stands until everybody waits. kgo goes
// back and forth between brokers that disagree about a leader until its next look at the metadata, which would never come.
func (c *memConn) takesNoTime() bool {
	if now := time.Now(); !now.Equal(c.lastRead) {
		c.lastRead, c.reads = now, 0
	}
	c.reads++
	return c.reads%300 == 0
}

func (c *memConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for written := 0; ; c.wait(c.writeDeadline) {
		switch {
		case c.closed:
			return written, c.failed("write", net.ErrClosed)
		case isPast(c.writeDeadline):
			return written, c.failed("write", os.ErrDeadlineExceeded)
		case c.swallow:
			return len(p), nil
		case c.peer.closed:
			return written, c.failed("write", syscall.EPIPE)
		}
		// Nobody is woken for nothing: the writers of two full ends would wake each other without end, and no time would pass.
		if n := min(len(p)-written, socketBuffer-len(c.peer.inbox)); n > 0 {
			c.peer.inbox = append(c.peer.inbox, p[written:written+n]...)
			written += n
			c.peer.changed.Broadcast()
		}
		if written == len(p) {
			return written, nil
		}
	}
}

func (c *memConn) isFrozen() bool {
	return slices.ContainsFunc(c.keys, func(key string) bool { return c.net.frozen[key] })
}

// wait sleeps until something has changed or the deadline passed.
func (c *memConn) wait(deadline time.Time) {
	if !deadline.IsZero() {
		defer time.AfterFunc(time.Until(deadline), func() {
			c.net.mu.Lock()
			defer c.net.mu.Unlock()
			c.changed.Broadcast()
		}).Stop()
	}
	c.changed.Wait()
}

func isPast(deadline time.Time) bool { return !deadline.IsZero() && time.Until(deadline) <= 0 }

func (c *memConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c *memConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.close()
	return nil
}

// close ends it; the peer can read what is on its way. mu is held.
func (c *memConn) close() {
	c.closed, c.inbox = true, nil
	delete(c.net.conns, c)
	c.changed.Broadcast()
	c.peer.changed.Broadcast()
}

func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *memConn) SetReadDeadline(t time.Time) error  { return c.setDeadline(&c.readDeadline, t) }
func (c *memConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeDeadline, t) }

func (c *memConn) setDeadline(deadline *time.Time, t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	*deadline = t
	c.changed.Broadcast() // for who waits by the deadline before
	return nil
}

// listen takes a port of its own unless the address names one that a listener had before.
func (n *memnet) listen(_, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || addr.Port < 20000 {
		n.ports++
		addr = &net.TCPAddr{Port: 20000 + n.ports}
	}
	addr.IP = net.IPv4(127, 0, 0, 1)
	if n.listeners[addr.String()] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &memListener{net: n, addr: addr, accept: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[addr.String()] = l
	return l, nil
}

func (n *memnet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dialFrom(ctx, "", network, address)
}

// dialFrom dials as a host of the given name.
func (n *memnet) dialFrom(ctx context.Context, host, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	if n.dead[host] || n.dead[address] {
		l = nil
	}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	here := &memConn{net: n, local: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, remote: l.addr, keys: []string{address, host}, changed: sync.NewCond(&n.mu)}
	there := &memConn{net: n, local: here.remote, remote: here.local, keys: here.keys, changed: sync.NewCond(&n.mu)}
	here.peer, there.peer = there, here
	select {
	case l.accept <- there:
		n.mu.Lock()
		n.conns[here], n.conns[there] = struct{}{}, struct{}{}
		n.mu.Unlock()
		return here, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// freeze stops everything to and from listeners or hosts, as one that hangs does, until thaw.
func (n *memnet) freeze(keys ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range keys {
		n.frozen[key] = true
	}
}

// thaw ends a freeze; without keys, every one.
func (n *memnet) thaw(keys ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(keys) == 0 {
		keys = slices.Collect(maps.Keys(n.frozen))
	}
	for _, key := range keys {
		delete(n.frozen, key)
		for c := range n.of(key) {
			c.changed.Broadcast()
		}
	}
}

// slowDown lets each read of the listener's connections, at either end, wait for that long; 0 ends it.
func (n *memnet) slowDown(address string, pause time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[address] = pause
}

// cut closes every connection of a listener or host, with what is on its way.
func (n *memnet) cut(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.of(key) {
		c.close()
	}
}

// swallow loses what the listener at address writes from now on, on its present connections, and cuts them after d: what
// was asked takes effect, and the answer never comes.
func (n *memnet) swallow(address string, d time.Duration) {
	n.mu.Lock()
	conns := slices.Collect(n.of(address))
	for _, c := range conns {
		c.swallow = c.local.String() == address
	}
	n.mu.Unlock()
	time.Sleep(d)
	for _, c := range conns {
		_ = c.Close()
	}
}

// of is the connections of a listener or host. mu is held.
func (n *memnet) of(key string) iter.Seq[*memConn] {
	return func(yield func(*memConn) bool) {
		for c := range n.conns {
			if slices.Contains(c.keys, key) && !yield(c) {
				return
			}
		}
	}
}

// kill takes a host or a listener away: its connections are gone and there can be no others until it is back.
func (n *memnet) kill(host string) {
	n.mu.Lock()
	n.dead[host] = true
	n.mu.Unlock()
	n.cut(host)
}

// revive brings back what kill took away.
func (n *memnet) revive(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dead, host)
}

// TestAHungHostTakesWhatFitsAndAWriteOfMoreEndsAtItsDeadline is about the network of the tests itself: kgo counts on its deadlines.
func TestAHungHostTakesWhatFitsAndAWriteOfMoreEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet()
		l, err := n.listen("tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		accepted := make(chan net.Conn, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- conn
		}()
		here, err := n.dialFrom(t.Context(), "host", "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there := <-accepted
		n.freeze("host")
		began := time.Now()
		if err := errors.Join(here.SetWriteDeadline(began.Add(time.Second)), there.SetReadDeadline(began.Add(3*time.Second))); err != nil {
			t.Fatal(err)
		}
		if written, err := here.Write(make([]byte, socketBuffer+1)); written != socketBuffer || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("written are %d bytes after %s: %v", written, time.Since(began), err)
		}
		if read, err := there.Read(make([]byte, 1)); read != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("a frozen connection gives %d bytes after %s: %v", read, time.Since(began), err)
		}
		time.AfterFunc(time.Second, func() { n.thaw("host") })
		if err := errors.Join(there.SetReadDeadline(time.Time{}), here.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(there); len(got) != socketBuffer || err != nil || time.Since(began) != 4*time.Second {
			t.Errorf("read are %d bytes after %s: %v", len(got), time.Since(began), err)
		}
		n.cut("host")
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a connection that was cut: %v", err)
		}
	})
}
