package main

import (
	"errors"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// codec reads the process's answers without an object for each emit and each of its parts, which the generated code makes.
// It understands the same as that code (FuzzAnswers), which it leaves everything else to.
type codec struct {
	encoding.CodecV2
	buffers mem.BufferPool
}

func newCodec() codec {
	buffers, err := mem.NewBinaryTieredBufferPool(8, 10, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22) // to the largest message
	if err != nil {
		panic(err) // of the numbers above
	}
	return codec{encoding.GetCodecV2(proto.Name), buffers}
}

// Name is empty, so that the content type stays application/grpc.
func (codec) Name() string { return "" }

// Marshal implements encoding.CodecV2. gRPC's own takes a mebibyte for every message over 32 KiB, which a batch of each
// partition is with records of 1 KiB; here a buffer is at most twice its message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	buffer := c.buffers.Get(protobuf.Size(message))
	if _, err := (protobuf.MarshalOptions{UseCachedSize: true}).MarshalAppend((*buffer)[:0], message); err != nil {
		c.buffers.Put(buffer)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buffer, c.buffers)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*fromProcess)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	const kept = 64 << 10 // a larger buffer is for one message alone
	a.buffer = slices.Grow(a.buffer[:0], data.Len())[:data.Len()]
	data.CopyTo(a.buffer)
	err := a.parse(a.buffer)
	if a.alone = cap(a.buffer) > kept; a.alone {
		a.buffer = nil
	}
	return err
}

// The fields of a FromProcess: which message it is.
const (
	emitAnswer protowire.Number = 1
	ackAnswer  protowire.Number = 2
	failAnswer protowire.Number = 3
)

// fromProcess is a FromProcess, and the memory of the next: what it refers to is overwritten by that, unless it is alone in
// its memory.
type fromProcess struct {
	size    int // encoded
	alone   bool
	kind    protowire.Number // 0: none that is known
	batchID uint64
	reason  []byte // of a Fail

	outlet     []byte // this and all below is of an Emit
	hasRecord  bool
	key, value []byte // nil: none
	headers    []fromProcessHeader

	buffer []byte
}

type fromProcessHeader struct{ key, value []byte }

// parse reads a FromProcess as generated code does: of a field that comes twice the last counts, messages that come twice
// are one, and what is unknown is passed over.
func (a *fromProcess) parse(message []byte) error {
	*a = fromProcess{size: len(message), headers: a.headers[:0], buffer: a.buffer}
	return eachField(message, func(kind protowire.Number, _ uint64, body []byte) error {
		if body == nil || kind > failAnswer {
			return nil
		}
		if a.kind != kind {
			*a = fromProcess{size: a.size, kind: kind, headers: a.headers[:0], buffer: a.buffer}
		}
		return eachField(body, func(field protowire.Number, n uint64, v []byte) error {
			switch {
			case v == nil && field == 1:
				a.batchID = n
			case v == nil:
			case kind == emitAnswer && field == 2:
				a.outlet = v
				return checkUTF8(v)
			case kind == emitAnswer && field == 3:
				a.hasRecord = true
				return eachField(v, a.parseRecord)
			case kind == failAnswer && field == 2:
				return eachField(v, a.parseError)
			}
			return nil
		})
	})
}

func (a *fromProcess) parseRecord(field protowire.Number, _ uint64, v []byte) error {
	switch {
	case v == nil:
	case field == 1:
		a.key = v
	case field == 2:
		a.headers = append(a.headers, fromProcessHeader{})
		return eachField(v, a.headers[len(a.headers)-1].parse)
	case field == 3:
		a.value = v
	}
	return nil
}

func (h *fromProcessHeader) parse(field protowire.Number, _ uint64, v []byte) error {
	switch {
	case v == nil:
	case field == 1:
		h.key = v
		return checkUTF8(v)
	case field == 2:
		h.value = v
	}
	return nil
}

func (a *fromProcess) parseError(field protowire.Number, _ uint64, v []byte) error {
	if field != 1 || v == nil {
		return nil
	}
	a.reason = v
	return checkUTF8(v)
}

func checkUTF8(v []byte) error {
	if !utf8.Valid(v) {
		return errors.New("a string is not UTF-8")
	}
	return nil
}

// eachField calls do with each field of a message: with its bytes, which are not nil, or with its varint. Fields of other
// kinds, which these messages do not have, are passed over.
func eachField(message []byte, do func(field protowire.Number, n uint64, v []byte) error) error {
	for len(message) > 0 {
		field, kind, length := protowire.ConsumeTag(message)
		if length < 0 || !field.IsValid() {
			return errors.New("a field's tag is not one")
		}
		message = message[length:]
		var n uint64
		var v []byte
		known := true
		switch kind {
		case protowire.VarintType:
			n, length = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			v, length = protowire.ConsumeBytes(message)
		default:
			known = false
			length = protowire.ConsumeFieldValue(field, kind, message)
		}
		if length < 0 {
			return protowire.ParseError(length)
		}
		message = message[length:]
		if known {
			if err := do(field, n, v); err != nil {
				return err
			}
		}
	}
	return nil
}
