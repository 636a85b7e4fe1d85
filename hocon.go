package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gurkankaymak/hocon"
)

// place is where a value was written. File is the base name of the file that was asked for, or an included file as the
// include names it; lines and columns, which are characters, count from 1.
type place struct {
	File         string
	Line, Column int
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

type hoconKind int

const (
	hoconObject hoconKind = iota
	hoconArray
	hoconString // quoted text, and unquoted text of no other kind
	hoconNumber
	hoconBoolean // true or false
	hoconNull
	hoconConcatenation // the last three are for the parser and the resolver
	hoconReference
	hoconHidden // nothing, because a value on the path to it is no object
)

// hoconValue is one resolved value. It is never changed after readHOCON has returned it, and may be shared.
type hoconValue struct {
	kind     hoconKind
	text     string                 // scalars: as written and joined; "" for null
	keys     []string               // objects: in order of first appearance
	fields   map[string]*hoconValue // objects
	items    []*hoconValue          // arrays
	place    place                  // where it was written; of an object merged from several, the first
	order    int                    // higher in what was written later, over all files
	replaced *place                 // see hoconProperty
}

// readHOCON reads the HOCON file at path and all that it includes, and resolves it as the format's reference implementation,
// Typesafe Config 1.4, does. readFile answers a file that is not there with fs.ErrNotExist; lookupEnv answers the
// substitutions that the files do not. The error joins one problem or more, each beginning with its place.
//
// The library github.com/gurkankaymak/hocon confirms the result. It misreads comments, unquoted text, escapes, substitutions
// and includes, but nests quoted keys and plain quoted strings reliably. So it gets the resolved tree written out in those
// alone, and when it does not read that very tree, nothing is returned.
func readHOCON(path string, readFile func(string) ([]byte, error), lookupEnv func(string) (string, bool)) (tree *hoconValue, err error) {
	name := filepath.Base(path)
	defer func() {
		if failure := recover(); failure != nil {
			tree, err = nil, failure.(hoconFailure).error
		}
	}()
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: the file cannot be read: %w", name, err)
	}
	p := hoconParser{readFile: readFile, files: []string{path}}
	root := p.node(hoconObject, place{name, 1, 1})
	p.parse(text, name, root)
	if tree, err = resolveHOCON(root, lookupEnv); err != nil {
		return nil, err
	}
	meant := tree.canonical(0)
	canonical, err := json.Marshal(meant)
	if err != nil {
		return nil, err
	}
	read, err := hocon.ParseString(string(canonical))
	if err != nil || !reflect.DeepEqual(read.GetRoot(), meant) {
		return nil, fmt.Errorf("%v: the HOCON library reads this file differently (%v)", root.place, err)
	}
	return tree, nil
}

// canonical is v as the library is to read it: quoted keys and strings of plain characters, and nothing empty but objects.
func (v *hoconValue) canonical(depth int) hocon.Value {
	if depth > maxHOCONNesting {
		panic(hoconFailure{fmt.Errorf("%v: objects and arrays are nested more than %d deep", v.place, maxHOCONNesting)})
	}
	switch v.kind {
	case hoconObject:
		object := hocon.Object{}
		for key, field := range v.fields {
			object["k"+url.QueryEscape(key)] = field.canonical(depth + 1)
		}
		return object
	case hoconArray:
		array := hocon.Array{hocon.String("array")}
		for _, item := range v.items {
			array = append(array, item.canonical(depth+1))
		}
		return array
	}
	return hocon.String(strconv.Itoa(int(v.kind)) + url.QueryEscape(v.text))
}

// get returns the value under the keys, each one key whatever dots are in it; nil if there is none.
func (v *hoconValue) get(path ...string) *hoconValue {
	for _, key := range path {
		if v == nil {
			return nil
		}
		v = v.fields[key]
	}
	return v
}

// hoconProperty is an entry of a Java property tree. Its name is the keys joined by dots.
//
// In HOCON a key has a text or an object, never both, so key.deserializer and key.deserializer.encoding, two properties in
// Java, are not both there unless they are written as quoted keys. What is there then has the place of what it replaced.
type hoconProperty struct {
	name     string
	value    *hoconValue
	replaced *place // nil if nothing was
}

// flatten lists the scalars in an object by name, without the nulls. An array of scalars counts as one, joined by commas;
// any other array is left as it is. Of "a.b" and a.b, which are one property, the one written later counts.
func (v *hoconValue) flatten() []hoconProperty {
	var found []hoconProperty
	v.flattenInto(&found, "", nil)
	slices.SortStableFunc(found, func(a, b hoconProperty) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(b.value.order, a.value.order))
	})
	return slices.CompactFunc(found, func(a, b hoconProperty) bool { return a.name == b.name })
}

func (v *hoconValue) flattenInto(found *[]hoconProperty, prefix string, replaced *place) {
	for _, key := range v.keys {
		value := v.fields[key]
		property := hoconProperty{prefix + key, value, cmp.Or(value.replaced, replaced)}
		if value.kind == hoconObject {
			value.flattenInto(found, property.name+".", property.replaced)
			continue
		}
		structured := func(item *hoconValue) bool { return item.kind < hoconString }
		if value.kind == hoconArray && !slices.ContainsFunc(value.items, structured) {
			var texts []string
			for _, item := range value.items {
				if item.kind != hoconNull {
					texts = append(texts, item.text)
				}
			}
			property.value = &hoconValue{kind: hoconString, text: strings.Join(texts, ","), place: value.place, order: value.order}
		}
		if value.kind != hoconNull {
			*found = append(*found, property)
		}
	}
}

// boolean reads true, yes, on, false, no or off.
func (v *hoconValue) boolean() (bool, error) {
	switch v.text {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%v: expected true or false (yes, on, no and off mean the same)", v.place)
}
