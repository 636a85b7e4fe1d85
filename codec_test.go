package main

import (
	"bytes"
	"testing"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// FuzzAnswers compares what the codec reads with what the generated code does, of any bytes.
func FuzzAnswers(f *testing.F) {
	record := &flowv1.Record{Key: []byte("key"), Value: []byte("value"), Headers: []*flowv1.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {}}}
	emit := func(e *flowv1.Emit) *flowv1.FromProcess {
		return &flowv1.FromProcess{Message: &flowv1.FromProcess_Emit{Emit: e}}
	}
	ack := &flowv1.FromProcess{Message: &flowv1.FromProcess_Ack{Ack: &flowv1.Ack{BatchId: 1 << 63}}}
	fail := &flowv1.FromProcess{Message: &flowv1.FromProcess_Fail{Fail: &flowv1.Fail{BatchId: 3, Error: &flowv1.Error{Message: "no"}}}}
	var all []byte
	for _, message := range []*flowv1.FromProcess{
		emit(&flowv1.Emit{BatchId: 7, Outlet: "out", Record: record}), emit(&flowv1.Emit{Record: &flowv1.Record{Key: []byte{}}}), emit(&flowv1.Emit{}),
		ack, fail, {}, emit(&flowv1.Emit{Outlet: "outlet", Record: &flowv1.Record{Value: bytes.Repeat([]byte("v"), 300)}}),
	} {
		encoded, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, encoded...) // one after another they are one message, of which some fields come again
		f.Add(encoded)
		f.Add(bytes.Clone(all))
	}
	f.Add([]byte("\x0a\x03\x12\x01\xff"))         // an outlet that is not UTF-8
	f.Add([]byte("\x1a\x05\x12\x03\x0a\x01\xff")) // a reason that is not
	f.Add([]byte("\x0a\x02\x0b\x0c"))             // a group that is not known
	f.Add([]byte("\x0d\x01\x02\x03\x04\x0a\x00")) // a field of another kind
	f.Add([]byte("\x80\x80\x80\x80\x30\x30"))     // a field's number that is too large
	reused, codec := &fromProcess{}, newCodec()
	f.Fuzz(func(t *testing.T, message []byte) {
		var generated flowv1.FromProcess
		expected := proto.Unmarshal(message, &generated)
		half := len(message) / 2 // the frames of a connection end anywhere
		err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message[:half]), mem.SliceBuffer(message[half:])}, reused)
		if (err == nil) != (expected == nil) {
			t.Fatalf("%x: %v, the generated code says %v", message, err, expected)
		}
		if err != nil {
			return
		}
		if reused.size != len(message) {
			t.Errorf("%x: its size is told as %d", message, reused.size)
		}
		read := &flowv1.FromProcess{}
		switch reused.kind {
		case emitAnswer:
			e := &flowv1.Emit{BatchId: reused.batchID, Outlet: string(reused.outlet)}
			if reused.hasRecord {
				e.Record = &flowv1.Record{Key: reused.key, Value: reused.value}
				for _, h := range reused.headers {
					e.Record.Headers = append(e.Record.Headers, &flowv1.Header{Key: string(h.key), Value: h.value})
				}
			}
			read.Message = &flowv1.FromProcess_Emit{Emit: e}
		case ackAnswer:
			read.Message = &flowv1.FromProcess_Ack{Ack: &flowv1.Ack{BatchId: reused.batchID}}
		case failAnswer:
			fail := &flowv1.Fail{BatchId: reused.batchID, Error: &flowv1.Error{Message: string(reused.reason)}}
			if generated.GetFail().GetError() == nil { // a Fail without a reason is one with an empty reason
				fail.Error = nil
			}
			read.Message = &flowv1.FromProcess_Fail{Fail: fail}
		}
		forgetUnknown(&generated)
		if !proto.Equal(read, &generated) {
			t.Errorf("%x:\nread      %v\ngenerated %v", message, read, &generated)
		}
	})
}

// forgetUnknown takes the fields out that are not of the protocol.
func forgetUnknown(m *flowv1.FromProcess) {
	messages := []proto.Message{m, m.GetEmit(), m.GetEmit().GetRecord(), m.GetAck(), m.GetFail(), m.GetFail().GetError()}
	for _, h := range m.GetEmit().GetRecord().GetHeaders() {
		messages = append(messages, h)
	}
	for _, message := range messages {
		if reflected := message.ProtoReflect(); reflected.IsValid() {
			reflected.SetUnknown(nil)
		}
	}
}

func TestAnEmitIsKeptWhenTheNextMessageIsRead(t *testing.T) {
	b := &batch{records: 3}
	var message fromProcess
	sizes := []struct{ key, value int }{
		{0, 0}, {1, 1}, {100, 100}, {1023, 1023}, {1024, 1024}, {8 << 10, 8 << 10}, {8<<10 + 1, 8<<10 + 1}, {70 << 10, 70 << 10},
		{5, 63 << 10}, {6, 64 << 10}, {7, 70 << 10}, {8, 1 << 20}, {70 << 10, 9}, {5, 5},
	}
	bytesOf := func(i, size int) []byte { return bytes.Repeat([]byte{byte(i)}, size) }
	for i, size := range sizes {
		encoded, err := proto.Marshal(&flowv1.FromProcess{Message: &flowv1.FromProcess_Emit{Emit: &flowv1.Emit{Record: &flowv1.Record{
			Key: bytesOf(i, size.key), Value: bytesOf(i, size.value), Headers: []*flowv1.Header{{Key: "h", Value: bytesOf(i, size.key)}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, &message); err != nil {
			t.Fatal(err)
		}
		if counted := b.hold(nil, &message); counted < int64(2*size.key+size.value) {
			t.Errorf("%d bytes are counted for two of %d and one of %d", counted, size.key, size.value)
		}
	}
	for i, size := range sizes {
		r := b.emits[i].record
		for what, v := range map[string][]byte{"key": r.Key, "header": r.Headers[0].Value} {
			if v == nil || !bytes.Equal(v, bytesOf(i, size.key)) {
				t.Errorf("the %s of %d bytes has become %.20x (%d bytes)", what, size.key, v, len(v))
			}
		}
		if r.Value == nil || !bytes.Equal(r.Value, bytesOf(i, size.value)) {
			t.Errorf("the value of %d bytes has become %.20x (%d bytes)", size.value, r.Value, len(r.Value))
		}
	}
}

func TestAnEmitWithoutAKeyHasNone(t *testing.T) {
	b := &batch{}
	b.hold(nil, &fromProcess{hasRecord: true})
	if r := b.emits[0].record; r.Key != nil || r.Value == nil || r.Headers != nil {
		t.Errorf("key %v, value %v, headers %v", r.Key, r.Value, []kgo.RecordHeader(r.Headers))
	}
}

func TestAMessagesBufferIsAtMostTwiceItsSize(t *testing.T) {
	for _, size := range []int{1, 1000, 33 << 10, 108 << 10, 2 << 20, maxRecordBytes} {
		message := &flowv1.ToProcess{Message: &flowv1.ToProcess_Batch{Batch: &flowv1.Batch{
			BatchId: 7, Inlet: "in", Records: []*flowv1.InputRecord{{Record: &flowv1.Record{Value: make([]byte, size)}}},
		}}}
		encoded, err := newCodec().Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		bytes := encoded.Materialize()
		if held := cap(encoded[0].ReadOnlyData()); len(encoded) != 1 || held > max(256, 2*len(bytes)) {
			t.Errorf("a message of %d bytes takes %d", len(bytes), held)
		}
		var decoded flowv1.ToProcess
		if err := proto.Unmarshal(bytes, &decoded); err != nil || !proto.Equal(&decoded, message) {
			t.Errorf("a message of %d bytes is another after it was encoded (%v)", len(bytes), err)
		}
		encoded.Free()
	}
}
