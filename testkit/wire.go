package testkit

import (
	"encoding/binary"
	"net"
	"sync"
)

// gate is the process's listener. It outlives the gRPC servers behind it, knows the connections, so that they can be cut, and counts
// the pings on them.
type gate struct {
	net.Listener
	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once

	mu      sync.Mutex
	conns   map[*watchedConn]bool
	counted int // keepalive pings
}

func newGate(l net.Listener) *gate {
	g := &gate{Listener: l, accepted: make(chan net.Conn), done: make(chan struct{}), conns: map[*watchedConn]bool{}}
	go g.accept()
	return g
}

func (g *gate) accept() {
	for {
		conn, err := g.Accept()
		if err != nil {
			g.Close()
			return
		}
		watched := &watchedConn{Conn: conn, gate: g, frame: frames{skip: len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}}
		g.mu.Lock()
		g.conns[watched] = true
		g.mu.Unlock()
		select {
		case g.accepted <- watched:
		case <-g.done:
			watched.Close()
		}
	}
}

func (g *gate) Close() error {
	err := error(nil)
	g.once.Do(func() {
		close(g.done)
		err = g.Listener.Close()
	})
	return err
}

func (g *gate) drop() {
	g.mu.Lock()
	var conns []*watchedConn
	for conn := range g.conns {
		conns = append(conns, conn)
	}
	g.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
}

func (g *gate) pings() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counted
}

// view is the gate as one gRPC server sees it: closing it leaves the gate open for the next server.
func (g *gate) view() net.Listener { return &view{gate: g, done: make(chan struct{})} }

type view struct {
	*gate
	done chan struct{}
	once sync.Once
}

func (v *view) Accept() (net.Conn, error) {
	select {
	case <-v.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-v.accepted:
		return conn, nil
	case <-v.done:
	case <-v.gate.done:
	}
	return nil, net.ErrClosed
}

func (v *view) Close() error {
	v.once.Do(func() { close(v.done) })
	return nil
}

type watchedConn struct {
	net.Conn
	gate  *gate
	frame frames // of the reader alone
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if pings := c.frame.read(b[:n]); pings > 0 {
		c.gate.mu.Lock()
		c.gate.counted += pings
		c.gate.mu.Unlock()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// frames follows the HTTP/2 frames of a connection through reads of any size, and counts keepalive pings. grpc gives its own handler
// no sight of pings, and its enforcement tells of them only after three.
type frames struct {
	skip   int    // bytes to come that are no frame header
	header []byte // of the frame that begins
	ping   []byte // payload so far of a ping that is no answer
	isPing bool
}

// bandwidth is the payload of the pings by which grpc-go estimates bandwidth. They follow data, and servers allow them.
const bandwidth = "\x02\x04\x10\x10\x09\x0e\x07\x07"

func (f *frames) read(b []byte) (keepalives int) {
	const (
		headerBytes = 9
		typePing    = 6
		flagAck     = 1
	)
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			if f.isPing {
				f.ping = append(f.ping, b[:n]...)
			}
			f.skip -= n
			b = b[n:]
			if f.skip == 0 && f.isPing {
				if string(f.ping) != bandwidth {
					keepalives++
				}
				f.isPing, f.ping = false, nil
			}
			continue
		}
		n := min(headerBytes-len(f.header), len(b))
		f.header = append(f.header, b[:n]...)
		b = b[n:]
		if len(f.header) < headerBytes {
			return keepalives
		}
		f.skip = int(binary.BigEndian.Uint32(append([]byte{0}, f.header[:3]...)))
		f.isPing = f.header[3] == typePing && f.header[4]&flagAck == 0
		f.header = f.header[:0]
	}
	return keepalives
}
