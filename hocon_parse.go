package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxHOCONBytes    = 1 << 20 // of a file with all that it includes
	maxHOCONNodes    = 100_000 // about two for each value
	maxHOCONNesting  = 100     // objects and arrays inside one another, and keys in a path
	maxHOCONIncludes = 1000    // in all
	maxHOCONInside   = 20      // includes inside one another
)

// hoconLexer cuts words, marks and white space off a file.
type hoconLexer struct {
	rest   string   // what is not read yet
	at     place    // where it begins
	around []string // the path of the value that is being read, or else of the last one
}

// hoconFailure is the panic that ends a reading; readHOCON recovers it.
type hoconFailure struct{ error }

var secretKey = regexp.MustCompile(`(?i)pass|secret|jaas|token|credential|key|user\.info|connection`)

// fail ends the reading. It shows the text at fault unless that can be part of a secret: what is wrong is often a password
// that should have been quoted.
func (l *hoconLexer) fail(at place, fault, problem string) {
	if fault != "" && !secretKey.MatchString(strings.Join(l.around, ".")) {
		problem = fmt.Sprintf("%.30q: %s", fault, problem)
	}
	panic(hoconFailure{fmt.Errorf("%v: %s", at, problem)})
}

const hoconReserved = "$\"{}[]:=,+#`^?!@*&\\"

// expect fails with what is expected in place of what is here.
func (l *hoconLexer) expect(expected string) {
	here := l.rest[:max(l.unquoted(), min(1, len(l.rest)))]
	if here == "" || here == "\n" {
		here, expected = "", expected+" before the line ends"
	} else if strings.Contains(hoconReserved, here) {
		expected += " (text with this character must be in double quotes)"
	}
	l.fail(l.at, here, "expected "+expected)
}

// take consumes n bytes. A column is a character, however many bytes it has.
func (l *hoconLexer) take(n int) string {
	taken, line := l.rest[:n], l.rest[:n]
	l.rest = l.rest[n:]
	if newline := strings.LastIndexByte(taken, '\n'); newline >= 0 {
		l.at.Line += strings.Count(taken, "\n")
		l.at.Column, line = 0, taken[newline:]
	}
	l.at.Column += utf8.RuneCountInString(line)
	return taken
}

func (l *hoconLexer) here(mark string) bool { return strings.HasPrefix(l.rest, mark) }

func (l *hoconLexer) accept(mark string) bool {
	found := l.here(mark)
	if found {
		l.take(len(mark))
	}
	return found
}

// space consumes white space and a comment in this line, and returns the white space.
func (l *hoconLexer) space() string {
	space := l.take(len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)))
	if l.here("#") || l.here("//") {
		comment, _, _ := strings.Cut(l.rest, "\n")
		l.take(len(comment))
	}
	return space
}

// lines is space over any number of lines. It reports whether a line ended.
func (l *hoconLexer) lines() (ended bool) {
	for l.space(); l.accept("\n"); l.space() {
		ended = true
	}
	return ended
}

// isSpace follows the specification: Unicode's separators, the byte order mark, and Java's white space but the line feed.
func isSpace(r rune) bool {
	return r != '\n' && (r >= '\t' && r <= '\r' || r >= 0x1c && r <= ' ' || r == '\ufeff' || r > '~' && unicode.In(r, unicode.Z))
}

var (
	singleQuoted = regexp.MustCompile(`^"(?:[^"\\\n]|\\[^\n])*"`)
	tripleQuoted = regexp.MustCompile(`^(?s)""".*?"""+`)
	number       = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?$`)
	exponentPlus = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]*)?[eE]\+[0-9]$`)
)

// quoted consumes the string at the quote here. In single quotes it is JSON's; in triple quotes nothing is special, and of
// more than three quotes at the end the last three close it.
func (l *hoconLexer) quoted() (text string) {
	raw := tripleQuoted.FindString(l.rest)
	if raw != "" {
		return l.take(len(raw))[3 : len(raw)-3]
	}
	raw = singleQuoted.FindString(l.rest)
	if raw == "" || l.here(`"""`) {
		l.fail(l.at, `"`, `this string is never closed (one of several lines begins and ends with """)`)
	}
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal([]byte(raw), &text), &syntax) {
		l.take(int(syntax.Offset) - 1)
		l.fail(l.at, "", `this cannot be in a quoted string: control characters are written as escapes, and all escapes are `+
			`\" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`)
	}
	l.take(len(raw))
	return text
}

// unquoted is the length of the unquoted text here, up to white space, a comment or a reserved character. A plus can only be
// in the exponent of a number.
func (l *hoconLexer) unquoted() int {
	end := 0
	for end < len(l.rest) && !strings.HasPrefix(l.rest[end:], "//") {
		r, width := utf8.DecodeRuneInString(l.rest[end:])
		exponent := r == '+' && exponentPlus.MatchString(l.rest[:min(end+2, len(l.rest))])
		if r == '\n' || isSpace(r) || strings.ContainsRune(hoconReserved, r) && !exponent {
			break
		}
		end += width
	}
	return end
}

// scalarKind tells what unquoted text is. Whole numbers have 64 bits; 017 and 5. are numbers, .5 is a string.
func scalarKind(text string) hoconKind {
	_, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "null":
		return hoconNull
	case text == "true" || text == "false":
		return hoconBoolean
	case number.MatchString(text) && (err == nil || strings.ContainsAny(text, ".eE")):
		return hoconNumber
	}
	return hoconString
}

// hoconNode is a value as it was parsed. Its kind can be one that no value has.
type hoconNode struct {
	hoconValue
	members      map[string]*hoconField // of objects, beside keys
	parts        []*hoconNode           // of arrays and concatenations
	gap          string                 // in a concatenation, the white space before it
	path, prefix []string               // of references: what to look up, under the prefix first
	optional     bool
}

// hoconField is all that was assigned to a name, oldest first, but for what a later scalar or array makes pointless.
type hoconField struct {
	layers   []*hoconNode
	replaced *place // see hoconProperty
	hidden   int    // the newest layers, while one is resolved: it looks back on those before it, as in a = ${a}x
}

// hoconParser makes nodes of files, one inside the other.
type hoconParser struct {
	hoconLexer
	readFile               func(string) ([]byte, error)
	files                  []string // paths, from the first file to the one that is being read
	prefix                 []string // where this one is included
	path                   []string // of what is being read, with inArray for each array
	bytes, nodes, includes int      // of all files so far
}

const inArray = "\xff" // no key, as keys are UTF-8

// parse reads a file's fields into the object root.
func (p *hoconParser) parse(file []byte, name string, root *hoconNode) {
	p.hoconLexer = hoconLexer{rest: string([]rune(string(file))), at: place{name, 1, 1}, around: append(slices.Clone(p.path), name)}
	if p.bytes += len(file); p.bytes > maxHOCONBytes {
		p.fail(p.at, "", fmt.Sprintf("the file and what it includes have more than %d bytes", maxHOCONBytes))
	}
	p.lines()
	open, closing := p.at, ""
	if p.accept("{") {
		closing = "}"
	}
	p.items(open, closing, func() { p.field(root) })
	if p.lines(); p.rest != "" {
		p.expect("the end of the file after its last }")
	}
}

// items reads up to the closing mark, or the end of the file. A comma or the end of its line parts an item from the next.
func (p *hoconParser) items(open place, closing string, item func()) {
	if len(p.path) > maxHOCONNesting {
		p.fail(open, "", fmt.Sprintf("objects and arrays are nested more than %d deep", maxHOCONNesting))
	}
	more := func() bool { return p.rest != "" && (closing == "" || !p.here(closing)) }
	for p.lines(); more(); {
		item()
		parted := p.lines()
		if p.accept(",") {
			parted = true
			p.lines()
		}
		if !parted && more() {
			p.expect("a comma or a new line")
		}
	}
	if !p.accept(closing) {
		p.fail(open, "", "what is opened here is never closed: "+closing+" is missing")
	}
}

// field reads one field of the object, or an include in its place.
func (p *hoconParser) field(object *hoconNode) {
	if p.rest[:p.unquoted()] == "include" {
		p.include(object)
		return
	}
	at, outer := p.at, len(p.path)
	keys := p.keys("a key")
	p.lines()
	appends := p.accept("+=")
	if !appends && !p.accept("=") && !p.accept(":") && !p.here("{") {
		p.expect("one of = : += { after the key")
	}
	p.path = append(p.path, keys...)
	p.around = p.path
	p.lines()
	value := p.value()
	if appends { // a += b is a = ${?a} [b]
		previous := p.reference(at, slices.Clone(p.path[len(p.prefix):]), true)
		value = p.node(hoconConcatenation, at, previous, p.node(hoconArray, value.place, value))
	}
	p.path = p.path[:outer]
	f := object.member(keys[0])
	for _, key := range keys[1:] {
		last := len(f.layers) - 1
		if last < 0 || f.layers[last].kind != hoconObject {
			f.add(p.node(hoconObject, at))
			last = len(f.layers) - 1
		}
		f = f.layers[last].member(key)
	}
	layers := []*hoconNode{value}
	if value.kind == hoconConcatenation && !slices.ContainsFunc(value.parts, func(n *hoconNode) bool { return n.kind != hoconObject }) {
		layers = value.parts // so that the fields of these objects can use one another
	}
	for _, layer := range layers {
		f.add(layer)
	}
}

// keys reads a path: dots outside quotes divide it, and white space inside it counts.
func (p *hoconParser) keys(expected string) []string {
	const dot, quote = "\xff", "\xfe" // not in the text, as that is UTF-8
	at, all := p.at, strings.Builder{}
	for gap := ""; ; gap = p.space() {
		if length := p.unquoted(); length > 0 {
			all.WriteString(gap + strings.ReplaceAll(p.take(length), ".", dot))
		} else if p.here(`"`) {
			all.WriteString(gap + quote + p.quoted())
		} else {
			break
		}
	}
	if all.Len() == 0 {
		p.expect(expected)
	}
	path := strings.Split(all.String(), dot)
	for i, key := range path {
		if key == "" || len(path) > maxHOCONNesting {
			p.fail(at, "", fmt.Sprintf(`a path has no empty key before or after a dot (one is written ""), and at most %d keys`, maxHOCONNesting))
		}
		path[i] = strings.ReplaceAll(key, quote, "")
	}
	return path
}

// value reads the parts that stand side by side.
func (p *hoconParser) value() *hoconNode {
	at, gap := p.at, ""
	var parts []*hoconNode
	for part := p.part(); part != nil; part = p.part() {
		part.gap = gap
		parts = append(parts, part)
		gap = p.space()
	}
	switch len(parts) {
	case 0:
		p.expect("a value")
	case 1:
		return parts[0]
	}
	return p.node(hoconConcatenation, at, parts...)
}

// part reads one part of a value; nil if none begins here.
func (p *hoconParser) part() *hoconNode {
	n := p.node(hoconString, p.at)
	switch {
	case p.accept("{"):
		n.kind = hoconObject
		p.items(n.place, "}", func() { p.field(n) })
	case p.accept("["):
		n.kind = hoconArray
		p.path = append(p.path, inArray)
		p.items(n.place, "]", func() { n.parts = append(n.parts, p.value()) })
		p.path = p.path[:len(p.path)-1]
	case p.accept("${"):
		optional := p.accept("?")
		p.space()
		n = p.reference(n.place, p.keys("a path in the configuration or the name of an environment variable"), optional)
		if !p.accept("}") {
			p.expect("} at the end of the substitution")
		}
	case p.here(`"`):
		n.text = p.quoted()
	default:
		if n.text = p.take(p.unquoted()); n.text == "" {
			return nil
		}
		if n.kind = scalarKind(n.text); n.kind == hoconNull {
			n.text = ""
		}
	}
	return n
}

func (p *hoconParser) node(kind hoconKind, at place, parts ...*hoconNode) *hoconNode {
	if p.nodes++; p.nodes > maxHOCONNodes {
		p.fail(at, "", "the file and what it includes have too many values")
	}
	return &hoconNode{hoconValue: hoconValue{kind: kind, place: at, order: p.nodes}, parts: parts}
}

// reference is ${path}. What is in an array has no path.
func (p *hoconParser) reference(at place, path []string, optional bool) *hoconNode {
	if slices.Contains(p.prefix, inArray) || slices.Contains(path, inArray) {
		p.fail(at, "", "inside an array there can be no +=, and no ${...} in a file that is included there")
	}
	n := p.node(hoconReference, at)
	n.path, n.prefix, n.optional = path, p.prefix, optional
	return n
}

// member returns the object's field of that name, made if need be.
func (n *hoconNode) member(key string) *hoconField {
	if n.members == nil {
		n.members = map[string]*hoconField{}
	}
	if n.members[key] == nil {
		n.members[key] = &hoconField{}
		n.keys = append(n.keys, key)
	}
	return n.members[key]
}

// add assigns a value over what the field has.
func (f *hoconField) add(n *hoconNode) {
	if n.kind >= hoconArray && n.kind <= hoconNull {
		f.replaced = nil
		if last := len(f.layers) - 1; last >= 0 && f.layers[last].kind == hoconObject && n.kind != hoconNull {
			f.replaced = &f.layers[last].place
		}
		f.layers = nil
	}
	f.layers = append(f.layers, n)
}

var includeForm = regexp.MustCompile(`^include[ \t]*(required\([ \t]*)?(file\([ \t]*|url\(|classpath\()?`)

// include reads include "x" or include file("x"), where the name may also be in required(...), into the object.
func (p *hoconParser) include(object *hoconNode) {
	at, form := p.at, includeForm.FindStringSubmatch(p.rest)
	p.take(len(form[0]))
	if form[2] == "url(" || form[2] == "classpath(" {
		p.fail(at, form[2], "only files can be included, nothing from the network or a class path")
	}
	if !p.here(`"`) {
		p.expect(`a file name in double quotes, or file("name"), or either in required(...)`)
	}
	name := p.quoted()
	for range strings.Count(form[0], "(") {
		if p.space(); !p.accept(")") {
			p.expect("a ) after the file name")
		}
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(p.files[len(p.files)-1]), path)
	}
	inside, err := filepath.Rel(filepath.Dir(p.files[0]), path)
	p.includes++
	switch {
	case form[1] == "" && form[2] != "" && !filepath.IsAbs(name):
		return // the reference implementation looks in the working directory, where there is nothing for the sidecar
	case err != nil || !filepath.IsLocal(inside):
		// As written: who can put a link into the directory can put the file itself there.
		p.fail(at, name, "only files in the directory of the configuration can be included")
	case p.includes > maxHOCONIncludes || len(p.files) > maxHOCONInside:
		p.fail(at, name, fmt.Sprintf("there are more than %d includes, or more than %d inside one another", maxHOCONIncludes, maxHOCONInside))
	}
	endings := []string{".properties", ".json", ".conf"}
	if slices.Contains(endings, filepath.Ext(path)) {
		endings = []string{""}
	}
	missing := form[1] != ""
	for _, ending := range endings {
		file, err := p.readFile(path + ending)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			p.fail(at, name, "this file cannot be read: "+err.Error())
		case slices.Contains(p.files, path+ending):
			p.fail(at, name, "this file includes itself")
		}
		missing = false
		outer := *p
		p.files, p.prefix = append(slices.Clone(p.files), path+ending), slices.Clone(p.path)
		p.parse(file, name+ending, object)
		p.hoconLexer, p.files, p.prefix = outer.hoconLexer, outer.files, outer.prefix
	}
	if missing {
		p.fail(at, name, "this file is required, and it is not there")
	}
}
