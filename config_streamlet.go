package main

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// The names of what may be in flow.
func flowValues() []string   { return []string{"pipeline", "streamlet"} }
func flowSections() []string { return []string{"config", "inlets", "outlets"} }

// streamletReader reads streamlet.conf into a Config (seeds: streamlet.conf).
type streamletReader struct {
	*configReader
}

// read reads the whole file. The descriptor, if it could be read, is in the Config already.
func (r *streamletReader) read(root *hoconValue) {
	r.unknownKeys("", root, nil, []string{"flow"})
	flow := root.get("flow")
	if flow == nil || flow.kind != hoconObject {
		r.problem("%s: it has no object flow { … }, in which the pipeline, the streamlet and its ports stand", streamletFile)
		return
	}
	r.unknownKeys("flow.", flow, flowValues(), flowSections())
	r.cfg.Pipeline = r.required(flow, "flow.pipeline", flow.get("pipeline"), "the pipeline's id")
	r.cfg.Streamlet = r.required(flow, "flow.streamlet", flow.get("streamlet"), "the streamlet's name in the pipeline")
	r.readParameters(flow.get("config"))

	descriptor := r.cfg.Spec.GetStreamlet()
	for _, name := range r.ports("inlet", flow, descriptor.GetInlets(), descriptor.GetOutlets()) {
		r.readInlet(name, flow.get("inlets", name))
	}
	for _, name := range r.ports("outlet", flow, descriptor.GetOutlets(), descriptor.GetInlets()) {
		r.readOutlet(name, flow.get("outlets", name))
	}
}

// unknownKeys warns of each key in v that nothing reads. values are the names of values, and sections those of objects, that
// are read elsewhere, as they are below v. A name with dots may be written as one quoted key, too. path is v's own name.
func (r *streamletReader) unknownKeys(path string, v *hoconValue, values, sections []string) {
	r.unknownBelow(path, "", v, values, sections)
}

func (r *streamletReader) unknownBelow(path, prefix string, v *hoconValue, values, sections []string) {
	for _, key := range v.keys {
		name, value := prefix+key, v.fields[key]
		switch {
		case slices.Contains(values, name), slices.Contains(sections, name):
		case slices.ContainsFunc(sections, func(section string) bool { return strings.HasPrefix(name, section+".") }):
		case value.kind == hoconObject && slices.ContainsFunc(values, func(known string) bool { return strings.HasPrefix(known, name+".") }):
			r.unknownBelow(path, name+".", value, values, sections)
		default:
			if value.kind == hoconObject {
				if leaves := value.flatten(); len(leaves) == 1 {
					name += "." + leaves[0].name
				}
			}
			r.warn("%v: nothing reads %s%s", value.place, quote(path+name), suggest(name, slices.Concat(values, sections)))
		}
	}
}

// isUnset says that a value is not there. null takes back what was written before.
func isUnset(v *hoconValue) bool {
	return v == nil || v.kind == hoconNull
}

// text returns a value's text. ok is false when there is none; an object or array in its place is a problem.
func (r *streamletReader) text(name string, v *hoconValue) (text string, ok bool) {
	if isUnset(v) {
		return "", false
	}
	if v.kind == hoconObject || v.kind == hoconArray {
		r.problem("%v: %s is %s, but must be a text", v.place, name, map[hoconKind]string{hoconObject: "an object", hoconArray: "an array"}[v.kind])
		return "", false
	}
	return v.text, true
}

// required is text for a value that must be there; in is the object where it belongs.
func (r *streamletReader) required(in *hoconValue, name string, v *hoconValue, meaning string) string {
	text, ok := r.text(name, v)
	switch {
	case isUnset(v):
		r.problem("%v: %s is missing; it is %s", in.place, name, meaning)
	case ok && strings.TrimSpace(text) == "":
		r.problem("%v: %s is empty; it is %s", v.place, name, meaning)
	}
	return text
}

// readParameters reads flow.config into Start.config_json: every declared parameter that has a value, the one given here
// before the default (protocol: "The conversation", 1).
func (r *streamletReader) readParameters(config *hoconValue) {
	if isUnset(config) {
		config = &hoconValue{kind: hoconObject}
	}
	if config.kind != hoconObject {
		r.problem("%v: flow.config must be an object of parameters", config.place)
		return
	}
	if r.cfg.Spec == nil {
		return
	}
	declared := map[string]*flowv1.ConfigParameter{}
	for _, parameter := range r.cfg.Spec.GetStreamlet().GetConfigParameters() {
		declared[parameter.GetKey()] = parameter
	}
	keys := slices.Sorted(maps.Keys(declared))
	for _, key := range config.keys {
		if declared[key] == nil {
			r.problem("%v: flow.config has %s, which is no parameter of the streamlet%s", config.fields[key].place, quote(key), suggest(key, keys))
		}
	}
	var members []string
	for _, key := range keys {
		if value, ok := r.parameter(declared[key], config.get(key)); ok {
			members = append(members, string(appendJSONString(nil, key))+":"+string(value))
		}
	}
	r.cfg.ConfigJSON = "{" + strings.Join(members, ",") + "}"
}

// parameter returns one parameter's value as JSON; ok is false when it has none.
func (r *streamletReader) parameter(declared *flowv1.ConfigParameter, given *hoconValue) (value json.RawMessage, ok bool) {
	if isUnset(given) {
		if declared.GetDefaultValue() == "" {
			return nil, false
		}
		value, err := parameterJSON(declared.GetType(), declared.GetDefaultValue())
		return value, err == nil // a default that is wrong is the descriptor's problem, and told there
	}
	name := "flow.config." + declared.GetKey()
	text, ok := r.text(name, given)
	if !ok {
		return nil, false
	}
	switch declared.GetType() {
	case flowv1.ConfigType_INTEGER:
		if n, ok := wholeNumber(text); ok { // HOCON knows one kind of number: 1e3 is an integer
			text = strconv.FormatInt(n, 10)
		}
	case flowv1.ConfigType_BOOLEAN:
		if b, err := given.boolean(); err == nil {
			text = strconv.FormatBool(b)
		}
	}
	value, err := parameterJSON(declared.GetType(), text)
	if err != nil {
		r.problem("%v: %s is %s, but must be %v", given.place, name, shown(property{name: declared.GetKey(), value: text}), err)
	}
	return value, err == nil
}

// wholeNumber reads a number without a fraction as exactly as it is written.
func wholeNumber(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err == nil {
		return n, true
	}
	const exact = 1 << 53 // up to here a float64 holds every whole number
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > exact || strings.ContainsAny(text, "xX") {
		return 0, false
	}
	return int64(f), true
}

// ports returns the names of the ports of a kind in the file, sorted. Those that the descriptor has and the file has not,
// and the other way around, are problems.
func (r *streamletReader) ports(kind string, flow *hoconValue, declared, others []*flowv1.Port) []string {
	section := kind + "s"
	ports := flow.get(section)
	if isUnset(ports) {
		ports = &hoconValue{kind: hoconObject, place: flow.place}
	}
	if ports.kind != hoconObject {
		r.problem("%v: flow.%s must be an object with one object for each %s", ports.place, section, kind)
		return nil
	}
	written := slices.Sorted(slices.Values(ports.keys))
	written = slices.DeleteFunc(written, func(name string) bool { return ports.fields[name].kind == hoconNull })
	if r.cfg.Spec == nil {
		return written
	}
	names := portNames(declared)
	for _, name := range names {
		if !slices.Contains(written, name) {
			r.problem("%v: %s %s of %s is missing; write flow.%s.%s { topic = …, bootstrap.servers = … }", ports.place, kind, quote(name), descriptorFile, section, name)
		}
	}
	for _, name := range written {
		switch {
		case slices.Contains(names, name):
		case slices.Contains(portNames(others), name):
			r.problem("%v: flow.%s.%s is no %s in %s; move it to the others of its kind", ports.fields[name].place, section, name, kind, descriptorFile)
		default:
			r.problem("%v: %s has no %s %s; remove flow.%s.%s%s", ports.fields[name].place, descriptorFile, kind, quote(name), section, shorten(name), suggest(name, names))
		}
	}
	return written
}

func portNames(ports []*flowv1.Port) []string {
	var names []string
	for _, port := range ports {
		names = append(names, port.GetName())
	}
	slices.Sort(names)
	return slices.Compact(names) // a name that is there twice is the descriptor's problem, and told there
}
