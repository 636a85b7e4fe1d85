package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// readSpec reads descriptor.json: a Spec as proto JSON, so that order and white space are free and camelCase is accepted.
// A field or a type that no Spec has is a problem, each one with its line and its JSON path. file is what problems call
// the file.
// The Spec is nil only when the text could not be read as one; it is not validated.
func readSpec(file string, text []byte) (*flowv1.Spec, []string) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, []string{file + ": the file is empty; write it with the SDK's descriptor command"}
	}
	spec := &flowv1.Spec{}
	walk := unknownNameWalk{file: file, text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	// An error here is about text that is no JSON or a value of another type, which protojson tells better.
	_ = walk.object(spec.ProtoReflect().Descriptor(), "")
	// protojson stops at the first unknown name. When they are all told already, it goes on for what else is wrong.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: len(walk.problems) > 0}).Unmarshal(text, spec); err != nil {
		return nil, append(walk.problems, file+describeProtoJSON(err))
	}
	return spec, walk.problems
}

var protoJSONPlace = regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error )?\(line (\d+):(\d+)\): `)

// describeProtoJSON moves the place in protojson's words to where an editor looks for it, right behind the file's name.
func describeProtoJSON(err error) string {
	text := err.Error()
	if found := protoJSONPlace.FindStringSubmatch(text); found != nil {
		return ":" + found[1] + ":" + found[2] + ": " + text[len(found[0]):]
	}
	return ": " + strings.TrimSpace(strings.TrimPrefix(text, "proto:")) // TrimSpace knows U+00A0, which protojson puts in at random
}

// unknownNameWalk goes through a JSON text along a message's fields and notes every key that the message does not have,
// and every name that an enum does not have.
type unknownNameWalk struct {
	file     string
	text     []byte
	decoder  *json.Decoder
	problems []string
}

var errOtherShape = errors.New("not of the message's shape")

func (w *unknownNameWalk) object(message protoreflect.MessageDescriptor, path string) error {
	token, err := w.decoder.Token()
	if err != nil || token == nil {
		return err // null stands for an absent message
	}
	if token != json.Delim('{') {
		return errOtherShape
	}
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		key := token.(string) // a decoder gives no other token for a key
		end := w.decoder.InputOffset()
		field := cmp.Or(message.Fields().ByJSONName(key), message.Fields().ByName(protoreflect.Name(key)))
		keyPath := strings.TrimPrefix(path+"."+key, ".")
		if field == nil {
			w.problem(end, key, "%s is not a field of a descriptor%s; remove it", quote(keyPath), suggest(key, fieldNames(message)))
		}
		if err := w.value(field, keyPath); err != nil {
			return err
		}
	}
	_, err = w.decoder.Token()
	return err
}

func (w *unknownNameWalk) value(field protoreflect.FieldDescriptor, path string) error {
	if field != nil && field.Kind() == protoreflect.EnumKind {
		return w.enum(field.Enum().Values(), path)
	}
	if field == nil || field.Kind() != protoreflect.MessageKind {
		return w.decoder.Decode(new(json.RawMessage))
	}
	if !field.IsList() {
		return w.object(field.Message(), path)
	}
	token, err := w.decoder.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('[') {
		return errOtherShape
	}
	for i := 0; w.decoder.More(); i++ {
		if err := w.object(field.Message(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	_, err = w.decoder.Token()
	return err
}

func (w *unknownNameWalk) enum(values protoreflect.EnumValueDescriptors, path string) error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	if _, bracket := token.(json.Delim); bracket {
		return errOtherShape
	}
	if name, ok := token.(string); ok && values.ByName(protoreflect.Name(name)) == nil {
		var known []string
		for i := range values.Len() {
			known = append(known, string(values.Get(i).Name()))
		}
		w.problem(w.decoder.InputOffset(), name, "%s is %s, but must be one of %s", quote(path), quote(name), strings.Join(known, ", "))
	}
	return nil
}

// problem notes one about the string that ends at an offset.
func (w *unknownNameWalk) problem(end int64, text, format string, values ...any) {
	line, column := lineAndColumn(w.text, int(end)-len(text)-2)
	w.problems = append(w.problems, fmt.Sprintf("%s:%d:%d: "+format, append([]any{w.file, line, column}, values...)...))
}

func fieldNames(message protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range message.Fields().Len() {
		names = append(names, message.Fields().Get(i).TextName())
	}
	return names
}

// lineAndColumn counts both from one, the column in bytes.
func lineAndColumn(text []byte, offset int) (line, column int) {
	before := text[:max(0, min(offset, len(text)))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// writeSpec is spec as every SDK writes descriptor.json, byte for byte: proto field names, keys and ports and parameters
// sorted, what is at its default left out, two spaces, LF. It changes nothing in spec.
func writeSpec(spec *flowv1.Spec) []byte {
	sorted := proto.CloneOf(spec)
	if streamlet := sorted.GetStreamlet(); streamlet != nil {
		byName := func(a, b *flowv1.Port) int { return cmp.Compare(a.GetName(), b.GetName()) }
		slices.SortStableFunc(streamlet.Inlets, byName)
		slices.SortStableFunc(streamlet.Outlets, byName)
		slices.SortStableFunc(streamlet.ConfigParameters, func(a, b *flowv1.ConfigParameter) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
	}
	return append(appendMessage(nil, sorted.ProtoReflect(), "\n"), '\n')
}

// appendMessage appends message as JSON; newline is a line's end and the indentation of the next.
func appendMessage(text []byte, message protoreflect.Message, newline string) []byte {
	var fields []protoreflect.FieldDescriptor
	message.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, field)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Name(), b.Name()) })
	return appendBetween(text, "{}", newline, len(fields), func(text []byte, i int, newline string) []byte {
		text = append(appendJSONString(text, string(fields[i].Name())), ": "...)
		value := message.Get(fields[i])
		if !fields[i].IsList() {
			return appendScalar(text, fields[i], value, newline)
		}
		list := value.List()
		return appendBetween(text, "[]", newline, list.Len(), func(text []byte, i int, newline string) []byte {
			return appendMessage(text, list.Get(i).Message(), newline)
		})
	})
}

func appendScalar(text []byte, field protoreflect.FieldDescriptor, value protoreflect.Value, newline string) []byte {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(text, value.Message(), newline)
	case protoreflect.EnumKind:
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			return appendJSONString(text, string(known.Name()))
		}
		return strconv.AppendInt(text, int64(value.Enum()), 10)
	default: // a Spec has no other scalars than strings
		return appendJSONString(text, value.String())
	}
}

// appendBetween appends count elements between a pair of brackets, each on its own line, one level deeper.
func appendBetween(text []byte, brackets, newline string, count int, element func(text []byte, i int, newline string) []byte) []byte {
	if count == 0 {
		return append(text, brackets...)
	}
	text = append(text, brackets[0])
	for i := range count {
		if i > 0 {
			text = append(text, ',')
		}
		text = element(append(text, newline+"  "...), i, newline+"  ")
	}
	return append(append(text, newline...), brackets[1])
}

// appendJSONString escapes what JSON demands and no more: encoding/json would escape U+2028 and U+2029 too, and the SDKs
// do not.
func appendJSONString(text []byte, s string) []byte {
	text = append(text, '"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			text = append(text, '\\', byte(r))
		case '\n':
			text = append(text, `\n`...)
		case '\r':
			text = append(text, `\r`...)
		case '\t':
			text = append(text, `\t`...)
		case '\b':
			text = append(text, `\b`...)
		case '\f':
			text = append(text, `\f`...)
		default:
			if r < ' ' {
				text = fmt.Appendf(text, `\u%04x`, r)
			} else {
				text = append(text, string(r)...)
			}
		}
	}
	return append(text, '"')
}
