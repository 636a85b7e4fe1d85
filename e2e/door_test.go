//go:build e2e

package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// door stands before a broker's own listener and passes Kafka's requests and answers one by one, so that a test can have a network
// that fails at a chosen one, for chosen clients. Brokers advertise their doors to whoever came through one.
type door struct {
	listener net.Listener
	broker   string

	mu      sync.Mutex
	strikes []*strike
	pairs   map[*pair]bool
	served  sync.WaitGroup
}

// misfortune is what happens to a request or to its answer.
type misfortune int

const (
	requestCut  misfortune = iota // the connection breaks, and the broker never had the request
	requestHeld                   // the broker never gets it; the connection stays, and is silent
	answerTorn                    // the broker did it; half of the answer comes, then the connection breaks
	answerCut                     // the broker did it; the connection breaks
	answerHeld                    // the broker did it; the connection stays, and is silent
)

var misfortunes = map[misfortune]string{requestCut: "request cut", requestHeld: "request held", answerTorn: "answer torn", answerCut: "answer cut", answerHeld: "answer held"}

// strike is a misfortune that waits for its occasion.
type strike struct {
	what    misfortune
	key     kmsg.Key // of the request; anyRequest: of all kinds
	clients string   // the beginning of the client ids
	left    int      // how many requests are still to be struck
}

const anyRequest kmsg.Key = -1

// pair is a client's connection with the one that the door made for it.
type pair struct {
	door           *door
	client, broker net.Conn

	mu       sync.Mutex
	expected []*strike // for each request that the broker was given, what is to happen to its answer; nil: nothing
	clientID string    // of the last request
	silent   bool      // nothing passes any more
}

// newDoor opens a door to where a broker is going to listen.
func newDoor(broker string) (*door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: listener, broker: broker, pairs: map[*pair]bool{}}
	d.served.Go(d.serve)
	return d, nil
}

func (d *door) port() int { return d.listener.Addr().(*net.TCPAddr).Port }

func (d *door) serve() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return // closed
		}
		d.served.Go(func() {
			broker, err := net.Dial("tcp", d.broker)
			if err != nil {
				client.Close() // as a host does where nobody listens
				return
			}
			p := &pair{door: d, client: client, broker: broker}
			d.mu.Lock()
			d.pairs[p] = true
			d.mu.Unlock()
			var both sync.WaitGroup
			both.Go(p.requests)
			both.Go(p.answers)
			both.Wait()
			d.mu.Lock()
			delete(d.pairs, p)
			d.mu.Unlock()
		})
	}
}

// close ends the door and waits for its goroutines.
func (d *door) close() {
	d.listener.Close()
	d.cut("")
	d.served.Wait()
}

// cut breaks every connection of the clients.
func (d *door) cut(clients string) {
	d.each(clients, (*pair).close)
}

func (d *door) each(clients string, do func(*pair)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.pairs {
		p.mu.Lock()
		of := strings.HasPrefix(p.clientID, clients)
		p.mu.Unlock()
		if of {
			do(p)
		}
	}
}

// strike has a misfortune happen to the next requests of a kind. left says how many it has still to come to.
func (d *door) strike(what misfortune, key kmsg.Key, clients string, times int) (left func() int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &strike{what, key, clients, times}
	d.strikes = append(d.strikes, s)
	return func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return s.left
	}
}

// mute makes the door take everything of the clients, connections too, and answer nothing, until the cure, which breaks what
// it held.
func (d *door) mute(clients string) (cure func()) {
	const forEver = 1 << 30
	s := &strike{requestHeld, anyRequest, clients, forEver}
	d.mu.Lock()
	d.strikes = append(d.strikes, s)
	d.mu.Unlock()
	d.each(clients, (*pair).hush)
	return func() {
		d.mu.Lock()
		s.left = 0
		d.mu.Unlock()
		d.release(clients)
	}
}

// heal forgets the strikes that did not come to anything, and breaks the connections that are silent.
func (d *door) heal() {
	d.mu.Lock()
	for _, s := range d.strikes {
		s.left = 0
	}
	d.strikes = nil
	d.mu.Unlock()
	d.release("")
}

func (d *door) release(clients string) {
	d.each(clients, func(p *pair) {
		if p.isSilent() {
			p.close()
		}
	})
}

// struck is the strike that hits a request, if one does.
func (d *door) struck(key kmsg.Key, client string) *strike {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.strikes {
		if s.left > 0 && (s.key == key || s.key == anyRequest) && strings.HasPrefix(client, s.clients) {
			s.left--
			return s
		}
	}
	return nil
}

func (p *pair) close() {
	p.client.Close()
	p.broker.Close()
}

// hush lets nothing through any more, to either side.
func (p *pair) hush() {
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
}

func (p *pair) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}

// requests passes what the client says until one of the connections ends.
func (p *pair) requests() {
	defer p.close()
	for {
		frame, err := readFrame(p.client)
		if err != nil {
			return
		}
		key, client := header(frame[4:])
		p.mu.Lock()
		p.clientID = client
		p.mu.Unlock()
		s := p.door.struck(key, client)
		if s != nil && s.what == requestCut {
			return
		}
		if s != nil && s.what == requestHeld {
			p.hush()
		}
		p.mu.Lock()
		silent := p.silent
		if !silent {
			p.expected = append(p.expected, s)
		}
		p.mu.Unlock()
		if silent {
			continue
		}
		if _, err := p.broker.Write(frame); err != nil {
			return
		}
	}
}

// answers passes what the broker says. Answers come in the order of the requests.
func (p *pair) answers() {
	defer func() {
		if !p.isSilent() { // else the client goes on waiting, until it ends the connection
			p.close()
		}
	}()
	for {
		frame, err := readFrame(p.broker)
		if err != nil {
			return
		}
		p.mu.Lock()
		var s *strike
		if len(p.expected) > 0 {
			s, p.expected = p.expected[0], p.expected[1:]
		}
		if s != nil && s.what == answerHeld {
			p.silent = true
		}
		silent := p.silent
		p.mu.Unlock()
		switch {
		case silent:
			continue
		case s != nil && s.what == answerCut:
			return
		case s != nil && s.what == answerTorn:
			_, _ = p.client.Write(frame[:len(frame)/2])
			return
		}
		if _, err := p.client.Write(frame); err != nil {
			return
		}
	}
}

// readFrame reads a request or an answer, with the four bytes before it that say how long it is.
func readFrame(r io.Reader) ([]byte, error) {
	const most = 64 << 20
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > most {
		return nil, fmt.Errorf("%d bytes are no message of Kafka's", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, length[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// header is what a request says first: its kind and, after its version and number, who asks.
func header(request []byte) (key kmsg.Key, client string) {
	if len(request) < 10 {
		return anyRequest, ""
	}
	key = kmsg.Key(binary.BigEndian.Uint16(request))
	if n := int16(binary.BigEndian.Uint16(request[8:])); n > 0 && len(request) >= 10+int(n) {
		client = string(request[10 : 10+n])
	}
	return key, client
}

// strike has a misfortune happen at every door of the cluster, to the clients of a world. left is how often it has still to happen.
func (w *world) strike(what misfortune, key kmsg.Key, times int) (left func() int) {
	var each []func() int
	for _, d := range w.cluster.doors {
		each = append(each, d.strike(what, key, w.deployment.Pipeline+".", times))
	}
	return func() (sum int) {
		for _, left := range each {
			sum += left()
		}
		return sum
	}
}

// throughDoors has the sidecars of a world reach the brokers through their doors.
func (w *world) throughDoors(t *testing.T) {
	t.Helper()
	if len(w.cluster.doors) == 0 {
		t.Fatal("the cluster has no doors")
	}
	w.deployment.Servers = w.cluster.doorServers()
}
