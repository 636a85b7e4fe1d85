package main

import (
	"errors"
	"fmt"
	"strings"
)

// jaasEntry is what a sasl.jaas.config says: a login module and its options.
type jaasEntry struct {
	module  string // a Java class name
	options map[string]string
}

// parseJAAS reads sasl.jaas.config as Java's client does (org.apache.kafka.common.security.JaasContext.loadClientContext on a
// java.io.StreamTokenizer; testdata/jaas.tsv holds its answers): exactly one "module flag name=value … ;". No error holds
// anything of the text, which is a secret as a whole.
func parseJAAS(text string) (jaasEntry, error) {
	tokens := jaasTokens{rest: []rune(text)}
	var entries []jaasEntry
	for {
		token := tokens.next()
		if token.kind == jaasEnd {
			break
		}
		entry, err := tokens.entry(token)
		if err != nil {
			return jaasEntry{}, err
		}
		entries = append(entries, entry)
	}
	switch {
	case len(entries) == 0:
		return jaasEntry{}, errors.New("no login module is in it")
	case len(entries) > 1:
		return jaasEntry{}, fmt.Errorf("%d login modules are in it, where one must be", len(entries))
	case forbiddenLoginModule(entries[0].module):
		return jaasEntry{}, errors.New("its login module is one that Kafka forbids")
	}
	return entries[0], nil
}

// forbiddenLoginModule names those that load what a server elsewhere says (org.apache.kafka.disallowed.login.modules).
func forbiddenLoginModule(class string) bool {
	class = strings.TrimSpace(class)
	return class == "com.sun.security.auth.module.JndiLoginModule" || class == "com.sun.security.auth.module.LdapLoginModule"
}

// entry reads an entry whose first token is given.
func (t *jaasTokens) entry(module jaasToken) (jaasEntry, error) {
	e := jaasEntry{module: module.text, options: map[string]string{}}
	flag := t.next()
	switch strings.ToUpper(flag.text) {
	case "REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL":
	default:
		return e, errors.New("the login module is not followed by required, requisite, sufficient or optional")
	}
	for n := 1; ; n++ {
		name := t.next()
		switch {
		case name.kind == jaasEnd:
			return e, errors.New("no ; ends it")
		case name.kind == ';':
			if !module.hasText || e.module == "" {
				return e, errors.New("it does not begin with the name of a login module")
			}
			return e, nil
		}
		if t.next().kind != '=' {
			return e, fmt.Errorf("option %d has no '=' behind its name, or an option before it holds a character that needs double quotes around the value", n)
		}
		value := t.next()
		if !value.hasText {
			return e, fmt.Errorf("option %d has no value, or one that begins with a digit or holds a character that needs double quotes around it", n)
		}
		if name.hasText {
			e.options[name.text] = value.text
		}
	}
}

// jaasEnd is the kind of the token behind the last one. The others are jaasText and, of a single character, the character.
const (
	jaasEnd  rune = -1
	jaasText rune = -2
)

type jaasToken struct {
	kind    rune
	text    string
	hasText bool // it is a word or quoted
}

// jaasTokens splits a text as a java.io.StreamTokenizer does with the settings of Kafka's JaasConfig: words of letters, digits,
// '.', '-', '_', '$' and all from U+00A0 on, which begin with no digit, '.' or '-'; text in double or single quotes, to the
// end of the line at most, with C's escapes; numbers, which have no text; comments.
type jaasTokens struct{ rest []rune }

// peek returns the next character, or jaasEnd.
func (t *jaasTokens) peek() rune {
	if len(t.rest) == 0 {
		return jaasEnd
	}
	return t.rest[0]
}

// take returns the next character, or jaasEnd, and moves past it.
func (t *jaasTokens) take() rune {
	c := t.peek()
	if c != jaasEnd {
		t.rest = t.rest[1:]
	}
	return c
}

func isNumeric(c rune) bool { return '0' <= c && c <= '9' || c == '.' }

func isWordly(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '$' || c >= 128+32 || isNumeric(c)
}

func isLineEnd(c rune) bool { return c == '\n' || c == '\r' || c == jaasEnd }

func (t *jaasTokens) next() jaasToken {
	for {
		switch c := t.peek(); {
		case c == jaasEnd:
			return jaasToken{kind: jaasEnd}
		case c <= ' ':
			t.take()
		case isNumeric(c):
			return t.number()
		case c == '-':
			t.take()
			if isNumeric(t.peek()) {
				return t.number()
			}
			return jaasToken{kind: '-'}
		case isWordly(c):
			return t.word()
		case c == '"' || c == '\'':
			return t.quoted()
		case c == '/':
			if !t.comment() {
				return jaasToken{kind: jaasEnd}
			}
		default:
			return jaasToken{kind: t.take()}
		}
	}
}

// number moves past a number: digits with one dot at most.
func (t *jaasTokens) number() jaasToken {
	for dots := 0; isNumeric(t.peek()); t.take() {
		if t.peek() == '.' {
			if dots++; dots > 1 {
				break
			}
		}
	}
	return jaasToken{kind: '0'}
}

func (t *jaasTokens) word() jaasToken {
	var word strings.Builder
	for isWordly(t.peek()) {
		word.WriteRune(t.take())
	}
	return jaasToken{jaasText, word.String(), true}
}

func (t *jaasTokens) quoted() jaasToken {
	var text strings.Builder
	quote := t.take()
	for t.peek() != quote && !isLineEnd(t.peek()) {
		c := t.take()
		if c == '\\' {
			c = t.escaped()
		}
		text.WriteRune(c)
	}
	if t.peek() == quote {
		t.take()
	}
	return jaasToken{jaasText, text.String(), true}
}

// escaped returns what a backslash and what follows stand for: a letter as in C, up to three octal digits to \377, or the
// character itself.
func (t *jaasTokens) escaped() rune {
	c := t.take()
	if i := strings.IndexRune("abfnrtv", c); i >= 0 {
		return rune("\a\b\f\n\r\t\v"[i])
	}
	if c == jaasEnd {
		return '\uffff' // a Java char of -1
	}
	if c < '0' || c > '7' {
		return c
	}
	most := 2
	if c <= '3' {
		most = 3
	}
	value := c - '0'
	for n := 1; n < most && '0' <= t.peek() && t.peek() <= '7'; n++ {
		value = value<<3 + t.take() - '0'
	}
	return value
}

// comment moves past a comment: after //, and after a single / too, to the end of the line; from /* to */. It returns false
// when the text ends before it does.
func (t *jaasTokens) comment() bool {
	t.take()
	if t.peek() != '*' {
		for !isLineEnd(t.peek()) {
			t.take()
		}
		return true
	}
	t.take()
	for before := rune(0); ; {
		c := t.take()
		// A line's end takes the character behind it along.
		if c == '\r' {
			if c = t.take(); c == '\n' {
				c = t.take()
			}
		} else if c == '\n' {
			c = t.take()
		} else if c == '/' && before == '*' {
			return true
		}
		if c == jaasEnd {
			return false
		}
		before = c
	}
}
