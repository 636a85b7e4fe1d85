package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// tap stands between one sidecar and everything that it dials. It takes what passes apart into Kafka's requests and answers
// and the messages of the protocol with the process, and asks judge about each, on the goroutine of its connection.
type tap struct {
	process string // its address; everything else is a broker
	judge   func(message) verdict
	code    int16 // of refusals

	mu   sync.Mutex
	hung []*line // those that carry nothing any more
}

// message is one that passes.
type message struct {
	call   string       // Kafka's name of the request; Discover, Start, Batch, Stop, Emit, Ack or Fail
	answer bool         // to a call; Emit, Ack and Fail are calls of the process
	body   kmsg.Request // of a call to Kafka
}

// verdict is what becomes of a message.
type verdict int

const (
	passes      verdict = iota
	fails               // the connection is lost in its place
	refuses             // Kafka's alone: an error is answered in the broker's place
	hangs               // it is lost, and all that follows on its connection, which stays
	takesEffect         // it passes, and the connection is lost in place of what it brings about
	resets              // the process's alone: RST_STREAM comes in its place
)

// line is one connection through the tap. Two pumps own its two sides, and end with either.
type line struct {
	tap         *tap
	near, far   net.Conn // to the sidecar, to what it dialed
	calls, back wire

	mu     sync.Mutex
	silent bool
	cutAt  int32            // the correlation id of the answer in whose place the line is cut; -1: none
	asked  map[int32]string // Kafka's calls without an answer, by correlation id
}

// wire takes what passes one way apart: the first whole frame of b, what it is, and its correlation id or its stream.
type wire interface {
	next(b []byte) (frame []byte, m message, id int32)
}

func (t *tap) wrap(conn net.Conn, address string) net.Conn {
	outer, near := net.Pipe()
	l := &line{tap: t, near: near, far: conn, cutAt: -1, asked: map[int32]string{}}
	if address == t.process {
		paths := &sync.Map{}
		l.calls, l.back = newHTTP2Wire(paths, true), newHTTP2Wire(paths, false)
	} else {
		l.calls, l.back = kafkaCalls{l}, kafkaAnswers{l}
	}
	go l.pump(l.near, l.far, l.calls)
	go l.pump(l.far, l.near, l.back)
	return &addressedConn{Conn: outer, local: conn.LocalAddr(), remote: conn.RemoteAddr()}
}

// addressedConn has the addresses of another.
type addressedConn struct {
	net.Conn
	local, remote net.Addr
}

func (c *addressedConn) LocalAddr() net.Addr  { return c.local }
func (c *addressedConn) RemoteAddr() net.Addr { return c.remote }

func (l *line) cut() {
	_ = l.near.Close()
	_ = l.far.Close()
}

// cutHung ends the connections that hang, as the end of what hangs does.
func (t *tap) cutHung() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.hung {
		l.cut()
	}
}

func (l *line) pump(from, to net.Conn, w wire) {
	defer l.cut()
	var pending []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		pending = append(pending, buffer[:n]...)
		for {
			frame, m, id := w.next(pending)
			if frame == nil {
				break
			}
			pending = pending[len(frame):]
			if !l.pass(to, frame, m, id) {
				return
			}
		}
	}
}

// pass does with a frame what is judged, and says whether the line is still there.
func (l *line) pass(to net.Conn, frame []byte, m message, id int32) bool {
	l.mu.Lock()
	silent, cut := l.silent, m.answer && id == l.cutAt
	l.mu.Unlock()
	if silent || cut {
		return !cut
	}
	verdict := passes
	if m.call != "" {
		verdict = l.tap.judge(m)
	}
	switch verdict {
	case fails:
		return false
	case refuses:
		_, err := l.near.Write(refusalBytes(m.body, l.tap.code, id))
		return err == nil
	case resets:
		_, err := l.near.Write(resetFrame(id))
		return err == nil
	case hangs:
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
		l.tap.mu.Lock()
		defer l.tap.mu.Unlock()
		l.tap.hung = append(l.tap.hung, l)
		return true
	case takesEffect:
		l.mu.Lock()
		l.cutAt = id
		l.mu.Unlock()
	}
	if _, err := to.Write(frame); err != nil {
		return false
	}
	if verdict == takesEffect && m.body == nil { // in a bubble the other side has done by then what it does
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
		time.AfterFunc(time.Millisecond, l.cut)
	}
	return true
}

// kafkaCalls are a Kafka connection's requests.
type kafkaCalls struct{ *line }

func (w kafkaCalls) next(b []byte) ([]byte, message, int32) {
	frame := kafkaFrame(b)
	if frame == nil {
		return nil, message{}, 0
	}
	r := kbin.Reader{Src: frame[4:]}
	key, version, id := r.Int16(), r.Int16(), r.Int32()
	r.NullableString() // the client's id
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := req.ReadFrom(r.Src); err != nil {
		panic(err)
	}
	w.mu.Lock()
	w.asked[id] = kmsg.NameForKey(key)
	w.mu.Unlock()
	return frame, message{call: kmsg.NameForKey(key), body: req}, id
}

// kafkaAnswers are a Kafka connection's responses.
type kafkaAnswers struct{ *line }

func (w kafkaAnswers) next(b []byte) ([]byte, message, int32) {
	frame := kafkaFrame(b)
	if frame == nil {
		return nil, message{}, 0
	}
	id := int32(binary.BigEndian.Uint32(frame[4:]))
	w.mu.Lock()
	defer w.mu.Unlock()
	m := message{call: w.asked[id], answer: true}
	delete(w.asked, id)
	return frame, m, id
}

func kafkaFrame(b []byte) []byte {
	if len(b) < 4 {
		return nil
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	if len(b) < end {
		return nil
	}
	return b[:end]
}

// refusalBytes is a broker's answer with an error, as bytes.
func refusalBytes(req kmsg.Request, code int16, id int32) []byte {
	resp := refusedResponse(req, code)
	resp.SetVersion(req.GetVersion())
	b := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(id))
	if resp.IsFlexible() {
		b = append(b, 0) // no tags
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// http2Wire is one way of a gRPC connection. Streams are known by the path that they were opened with.
type http2Wire struct {
	paths   *sync.Map // by stream
	client  bool
	headers *hpack.Decoder
	started bool           // the client's preface has passed
	left    map[uint32]int // bytes still to come of the stream's message
}

func newHTTP2Wire(paths *sync.Map, client bool) *http2Wire {
	return &http2Wire{paths: paths, client: client, headers: hpack.NewDecoder(4096, nil), left: map[uint32]int{}}
}

func (w *http2Wire) next(b []byte) ([]byte, message, int32) {
	if w.client && !w.started {
		if len(b) < len(http2.ClientPreface) {
			return nil, message{}, 0
		}
		w.started = true
		return b[:len(http2.ClientPreface)], message{}, 0
	}
	const headerBytes = 9
	header, err := http2.ReadFrameHeader(bytes.NewReader(b))
	if err != nil || len(b) < headerBytes+int(header.Length) {
		return nil, message{}, 0
	}
	frame := b[:headerBytes+int(header.Length)]
	payload := frame[headerBytes:]
	switch header.Type {
	case http2.FrameHeaders:
		fields, err := w.headers.DecodeFull(payload)
		if err != nil {
			panic(err)
		}
		for _, f := range fields {
			if f.Name == ":path" {
				w.paths.Store(header.StreamID, f.Value)
			}
		}
	case http2.FrameData:
		return frame, w.message(header.StreamID, payload), int32(header.StreamID)
	}
	return frame, message{}, 0
}

// resetFrame is RST_STREAM for a stream.
func resetFrame(stream int32) []byte {
	var b bytes.Buffer
	if err := http2.NewFramer(&b, nil).WriteRSTStream(uint32(stream), http2.ErrCodeInternal); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// message says what begins with a DATA frame: gRPC's five bytes, then a oneof, whose first byte tells which it is.
func (w *http2Wire) message(stream uint32, payload []byte) message {
	const prefix = 5
	if left := w.left[stream]; left > 0 || len(payload) < prefix {
		w.left[stream] = left - len(payload)
		return message{}
	}
	w.left[stream] = prefix + int(binary.BigEndian.Uint32(payload[1:])) - len(payload)
	path, _ := w.paths.Load(stream)
	switch {
	case path == "/ankka.flow.v1.Discovery/Discover":
		return message{call: "Discover", answer: !w.client}
	case path != "/ankka.flow.v1.Streamlet/Run" || len(payload) == prefix:
		return message{}
	}
	names := map[byte]string{1: "Emit", 2: "Ack", 3: "Fail"}
	if w.client {
		names = map[byte]string{1: "Start", 2: "Batch", 3: "Stop"}
	}
	return message{call: names[payload[prefix]>>3]}
}

// refusedResponse is a broker's answer with an error: the request's topics, partitions, groups or resources come back, each
// with the code.
func refusedResponse(req kmsg.Request, code int16) kmsg.Response {
	resp := req.ResponseKind()
	if find, ok := req.(*kmsg.FindCoordinatorRequest); ok {
		for _, key := range find.CoordinatorKeys {
			coordinator := kmsg.NewFindCoordinatorResponseCoordinator()
			coordinator.Key, coordinator.ErrorCode = key, code
			found := resp.(*kmsg.FindCoordinatorResponse)
			found.Coordinators = append(found.Coordinators, coordinator)
		}
	}
	mirror(reflect.ValueOf(req).Elem(), reflect.ValueOf(resp).Elem(), code)
	return resp
}

// mirror copies what a request and its response have in common, and sets the error code of what holds nothing in turn.
func mirror(from, to reflect.Value, code int16) {
	leaf := true
	for i := range to.NumField() {
		name, field := to.Type().Field(i).Name, to.Field(i)
		asked := from.FieldByName(name)
		switch {
		case !asked.IsValid() || name == "Version" || name == "ThrottleMillis":
		case asked.Kind() == reflect.Slice && asked.Type().Elem().Kind() == reflect.Struct && field.Type().Elem().Kind() == reflect.Struct:
			for j := range asked.Len() {
				element := reflect.New(field.Type().Elem())
				element.MethodByName("Default").Call(nil)
				mirror(asked.Index(j), element.Elem(), code)
				field.Set(reflect.Append(field, element.Elem()))
				leaf = false
			}
		case asked.Type() == field.Type() && field.CanSet():
			field.Set(asked)
		}
	}
	if field := to.FieldByName("ErrorCode"); field.IsValid() && leaf {
		field.SetInt(int64(code))
	}
}
