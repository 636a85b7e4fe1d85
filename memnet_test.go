package main

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// memnet is a network of one host in memory: listeners by address, connections by net.Pipe, which a synctest bubble can idle
// on.
type memnet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	ports     int
	conns     map[*pipeConn]struct{}
	frozen    map[string]chan struct{} // by listener's address or dialing host; closed at the thaw: until then nothing passes
	dead      map[string]bool          // hosts that can no longer dial
}

type memListener struct {
	net    *memnet
	addr   *net.TCPAddr
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newMemnet() *memnet {
	return &memnet{listeners: map[string]*memListener{}, conns: map[*pipeConn]struct{}{}, frozen: map[string]chan struct{}{}, dead: map[string]bool{}}
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

// pipeConn is an end of a net.Pipe with the TCP addresses that Kafka clients and brokers look at.
type pipeConn struct {
	net.Conn
	net           *memnet
	local, remote net.Addr
	keys          []string // the listener's address and the dialing host: what may be frozen
	swallow       bool     // written bytes vanish; guarded by the memnet's mu
	closed        chan struct{}
	once          sync.Once
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

func (c *pipeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c *pipeConn) Write(p []byte) (int, error) {
	if c.pass() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// pass waits while an end is frozen, and says whether what is written is swallowed.
func (c *pipeConn) pass() (swallow bool) {
	for _, key := range c.keys {
		c.net.mu.Lock()
		thaw := c.net.frozen[key]
		swallow = c.swallow
		c.net.mu.Unlock()
		if thaw != nil {
			select {
			case <-thaw:
			case <-c.closed:
			}
		}
	}
	return swallow
}

func (c *pipeConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.net.mu.Lock()
		delete(c.net.conns, c)
		c.net.mu.Unlock()
	})
	return c.Conn.Close()
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
	client := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	a, b := net.Pipe()
	here := &pipeConn{Conn: a, net: n, local: client, remote: l.addr, keys: []string{address, host}, closed: make(chan struct{})}
	there := &pipeConn{Conn: b, net: n, local: l.addr, remote: client, keys: here.keys, closed: make(chan struct{})}
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
		if n.frozen[key] == nil {
			n.frozen[key] = make(chan struct{})
		}
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
		if thaw := n.frozen[key]; thaw != nil {
			close(thaw)
			delete(n.frozen, key)
		}
	}
}

// cut closes every connection of a listener or host.
func (n *memnet) cut(key string) {
	for _, c := range n.of(key) {
		_ = c.Close()
	}
}

// swallow loses what the listener at address writes from now on, on its present connections, and cuts them after d: what
// was asked takes effect, and the answer never comes.
func (n *memnet) swallow(address string, d time.Duration) {
	conns := n.of(address)
	n.mu.Lock()
	for _, c := range conns {
		c.swallow = c.local.String() == address
	}
	n.mu.Unlock()
	time.Sleep(d)
	for _, c := range conns {
		_ = c.Close()
	}
}

func (n *memnet) of(key string) (conns []*pipeConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if slices.Contains(c.keys, key) {
			conns = append(conns, c)
		}
	}
	return conns
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
