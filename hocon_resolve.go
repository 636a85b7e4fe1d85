package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	maxHOCONSteps = 1 << 20 // bytes and values that substitutions put in, and steps that they take
	maxHOCONChain = 1000    // substitutions that lead to one another
)

// hoconResolver replaces substitutions by values. It keeps none of these, as what a field comes to can depend on where it
// is looked at from; maxHOCONSteps bounds the work.
type hoconResolver struct {
	root      *hoconField
	lookupEnv func(string) (string, bool)
	problems  []error
	told      map[*hoconNode]bool // that have a problem, as a node can be resolved more than once
	steps     int
	chain     int
	cyclic    bool // the value at hand holds itself, so the nearest substitution around it has no value
}

// resolveHOCON returns the value of root. The error has a line for each substitution that has no value.
func resolveHOCON(root *hoconNode, lookupEnv func(string) (string, bool)) (*hoconValue, error) {
	r := hoconResolver{root: &hoconField{layers: []*hoconNode{root}}, lookupEnv: lookupEnv, told: map[*hoconNode]bool{}}
	v := r.eval(root)
	return v, errors.Join(r.problems...)
}

// problem returns a value to go on with.
func (r *hoconResolver) problem(n *hoconNode, problem string) *hoconValue {
	if !r.told[n] {
		r.told[n] = true
		r.problems = append(r.problems, fmt.Errorf("%v: %s", n.place, problem))
	}
	return &hoconValue{kind: hoconString, place: n.place}
}

// step counts work, and ends the reading when there is too much of it.
func (r *hoconResolver) step(at place, steps int) {
	if r.steps += steps; r.steps > maxHOCONSteps || r.chain > maxHOCONChain {
		panic(hoconFailure{fmt.Errorf("%v: the substitutions come to more than %d bytes and values, or more than %d lead to one another",
			at, maxHOCONSteps, maxHOCONChain)})
	}
}

// eval is the value of a node alone; nil if it comes to nothing.
func (r *hoconResolver) eval(n *hoconNode) *hoconValue {
	if r.chain > 0 {
		r.step(n.place, 1+len(n.text))
	}
	v := n.hoconValue
	switch n.kind {
	case hoconReference:
		r.chain++
		defer func() { r.chain-- }()
		return r.reference(n)
	case hoconConcatenation:
		return r.concatenation(n)
	case hoconArray:
		for _, part := range n.parts {
			if item := r.eval(part); item != nil {
				v.items = append(v.items, item)
			}
		}
	case hoconObject:
		v.keys, v.fields = nil, make(map[string]*hoconValue, len(n.keys))
		for _, key := range n.keys {
			f := n.members[key]
			r.cyclic = r.cyclic || f.visible() == 0
			if value := r.value(f, f.visible()); value != nil {
				v.keys = append(v.keys, key)
				v.fields[key] = value
			}
		}
	}
	return &v
}

// visible is how many layers can be looked up now.
func (f *hoconField) visible() int { return len(f.layers) - f.hidden }

// value is what the field's first layers come to; nil if that is nothing.
func (r *hoconResolver) value(f *hoconField, layers int) (v *hoconValue) {
	var newer []*hoconValue
	for hidden := f.hidden; layers > 0 && (v == nil || v.kind == hoconObject); layers-- {
		n := f.layers[layers-1]
		if n.kind != hoconObject { // an object can use its own fields
			f.hidden = len(f.layers) - layers + 1
		}
		if v = r.eval(n); v != nil {
			newer = append(newer, v)
		}
		f.hidden = hidden
	}
	if v != nil && v.kind > hoconObject && v.kind < hoconNull && layers > 0 && f.layers[layers-1].kind == hoconObject {
		v.replaced = &f.layers[layers-1].place
	}
	for v = nil; len(newer) > 0; newer = newer[:len(newer)-1] {
		v = r.merge(newer[len(newer)-1], v)
	}
	if v != nil {
		v.replaced = cmp.Or(v.replaced, f.replaced)
	}
	return v
}

// reference looks a path up in the file, then in the environment. As in the reference implementation, the environment is
// not asked for what the file has without a value.
func (r *hoconResolver) reference(n *hoconNode) *hoconValue {
	cyclic := r.cyclic
	r.cyclic = false
	v, found := r.find(r.root, slices.Concat(n.prefix, n.path))
	if !found {
		v, found = r.find(r.root, n.path)
	}
	if r.cyclic || v != nil && v.kind == hoconHidden {
		v = nil
	}
	r.cyclic = cyclic
	name := strings.Join(n.path, ".")
	if text, ok := r.lookupEnv(name); ok && !found {
		r.step(n.place, len(text))
		v = &hoconValue{kind: hoconString, text: text, place: n.place}
	}
	switch {
	case v != nil:
		v.order, v.replaced = n.order, nil
	case n.optional:
	case found:
		return r.problem(n, fmt.Sprintf("%.80q has no value here: it leads back to itself, or to a substitution that has none", name))
	default:
		return r.problem(n, fmt.Sprintf("%.80q is neither in the file nor in the environment (where it may be missing, write ${?...})", name))
	}
	return v
}

// find goes down a path, through objects without resolving them, so that their fields can use one another.
func (r *hoconResolver) find(f *hoconField, path []string) (v *hoconValue, found bool) {
	if len(path) == 0 {
		return r.value(f, f.visible()), true
	}
	for layers := f.visible(); layers > 0 && (v == nil || v.kind == hoconObject); layers-- {
		n := f.layers[layers-1]
		r.step(n.place, 1)
		if n.kind != hoconObject {
			older := r.value(f, layers)
			for _, key := range path {
				if older != nil && older.kind != hoconObject {
					older = &hoconValue{kind: hoconHidden}
					break
				}
				older = older.get(key)
			}
			return r.merge(v, older), found || older != nil && older.kind != hoconHidden
		}
		if member := n.members[path[0]]; member != nil {
			older, there := r.find(member, path[1:])
			v, found = r.merge(v, older), found || there
		}
	}
	return v, found
}

// merge lays the newer value over the older one.
func (r *hoconResolver) merge(newer, older *hoconValue) *hoconValue {
	switch {
	case newer == nil:
		return older
	case older == nil || newer.kind >= hoconNull || older.kind >= hoconNull || newer.kind != hoconObject && older.kind != hoconObject:
		return newer
	case newer.kind != hoconObject || older.kind != hoconObject:
		newer.replaced = &older.place
		return newer
	}
	r.step(newer.place, len(newer.keys))
	for _, key := range newer.keys {
		if older.fields[key] == nil {
			older.keys = append(older.keys, key)
		}
		older.fields[key] = r.merge(newer.fields[key], older.fields[key])
	}
	return older
}

// concatenation joins objects, or arrays, or else text with the white space between.
func (r *hoconResolver) concatenation(n *hoconNode) (whole *hoconValue) {
	var parts []*hoconValue
	var text strings.Builder
	structured, gaps := false, false
	for _, part := range n.parts {
		text.WriteString(part.gap)
		gaps = gaps || part.gap != ""
		if v := r.eval(part); v != nil {
			parts = append(parts, v)
			text.WriteString(v.text)
			if v.kind == hoconNull {
				text.WriteString("null")
			}
			structured = structured || v.kind < hoconString
		}
	}
	if !structured && (gaps || len(parts) > 1) {
		return &hoconValue{kind: hoconString, text: text.String(), place: n.place, order: n.order}
	}
	for _, v := range parts {
		switch {
		case whole == nil:
			whole = v
		case v.kind == hoconObject && whole.kind == hoconObject:
			whole = r.merge(v, whole)
		case v.kind == hoconArray && whole.kind == hoconArray:
			whole.items = append(whole.items, v.items...)
		case len(r.problems) == 0: // else it can be the part that is missing
			r.problem(n, "expected commas or new lines between its parts, as an object, an array and text cannot be one value")
		}
	}
	return whole
}
