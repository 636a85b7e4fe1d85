package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gurkankaymak/hocon"
)

// hoconCase is one of testdata/hocon/cases.json: what Typesafe Config 1.4 makes of some files.
type hoconCase struct {
	Name        string
	Files       map[string]json.RawMessage
	Value       any
	Error       bool
	DurationsNS map[string]int64 `json:"durations_ns"`
	SizesBytes  map[string]int64 `json:"sizes_bytes"`
}

func hoconCases(t testing.TB) []hoconCase {
	t.Helper()
	text, err := os.ReadFile("testdata/hocon/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []hoconCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// texts are the case's files by name.
func (c hoconCase) texts(t testing.TB) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for name, raw := range c.Files {
		var text string
		var bytes struct{ Latin1 string }
		if json.Unmarshal(raw, &text) != nil {
			if err := json.Unmarshal(raw, &bytes); err != nil {
				t.Fatal(err)
			}
			for _, r := range bytes.Latin1 {
				text += string([]byte{byte(r)})
			}
		}
		texts[name] = text
	}
	return texts
}

// caseEnvironment is the environment that the cases were recorded in.
var caseEnvironment = map[string]string{"HOCON_EVAL_X": "envval", "HOCON_EVAL_EMPTY": "", "HOCON_EVAL_DUR": "5m", "HOCON_EVAL_NUM": "7"}

func lookupIn(environment map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}
}

// readTexts reads streamlet.conf of the files, which lie in the directory conf, in the environment of the cases.
func readTexts(texts map[string]string) (*hoconValue, error) {
	read := func(path string) ([]byte, error) {
		text, ok := texts[strings.TrimPrefix(path, "conf/")]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	}
	return readHOCON("conf/streamlet.conf", read, lookupIn(caseEnvironment))
}

func readText(text string) (*hoconValue, error) {
	return readTexts(map[string]string{"streamlet.conf": text})
}

func mustReadText(t testing.TB, text string) *hoconValue {
	t.Helper()
	v, err := readText(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// plain is the value as encoding/json reads it from JSON.
func plain(v *hoconValue) any {
	switch v.kind {
	case hoconObject:
		object := map[string]any{}
		for _, key := range v.keys {
			object[key] = plain(v.fields[key])
		}
		return object
	case hoconArray:
		array := []any{}
		for _, item := range v.items {
			array = append(array, plain(item))
		}
		return array
	case hoconNumber:
		var number float64
		if _, err := fmt.Sscanf(v.text, "%g", &number); err != nil {
			return err
		}
		return number
	case hoconBoolean:
		return v.text == "true"
	case hoconNull:
		return nil
	}
	return v.text
}

func TestHOCONReadsEveryCaseAsTheReferenceImplementationDoes(t *testing.T) {
	for _, c := range hoconCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.texts(t) {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			v, err := readHOCON(filepath.Join(dir, "streamlet.conf"), os.ReadFile, lookupIn(caseEnvironment))
			if c.Error {
				if err == nil {
					t.Fatalf("read as %v, want an error", plain(v))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := plain(v); !reflect.DeepEqual(got, c.Value) {
				t.Errorf("got  %#v\nwant %#v", got, c.Value)
			}
			for key, want := range c.DurationsNS {
				if got, err := parseDuration(v.get(key).text); err != nil || int64(got) != want {
					t.Errorf("duration %s: got %d, %v, want %d", key, got, err, want)
				}
			}
			for key, want := range c.SizesBytes {
				if got, err := parseByteSize(v.get(key).text); err != nil || got != want {
					t.Errorf("size %s: got %d, %v, want %d", key, got, err, want)
				}
			}
		})
	}
}

// Each file in testdata/hocon/realistic has beside it the environment and the properties that its flow comes to.
func TestHOCONGivesThePropertiesOfRealisticFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/hocon/realistic/*.conf")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(strings.TrimSuffix(path, ".conf") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want struct{ Environment, Properties map[string]string }
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			v, err := readHOCON(path, os.ReadFile, lookupIn(want.Environment))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, property := range v.get("flow").flatten() {
				got[property.name] = property.value.text
				if property.replaced != nil {
					t.Errorf("%s replaced what was at %v", property.name, property.replaced)
				}
			}
			if !reflect.DeepEqual(got, want.Properties) {
				t.Errorf("got  %q\nwant %q", got, want.Properties)
			}
		})
	}
}

func TestHOCONErrorsTellThePlaceTheFaultAndWhatIsExpected(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a = 1\nb {\n  c = x*y\n}", `streamlet.conf:3:8: "*": expected a comma or a new line (text with this character must be in double quotes)`},
		{"topic = orders\ngroup", `streamlet.conf:2:6: expected one of = : += { after the key before the line ends`},
		{"a = 1\n  b = kafka:9092", `streamlet.conf:2:12: ":": expected a comma or a new line (text with this character must be in double quotes)`},
		{"a = \nb = 1", `streamlet.conf:2:3: "=": expected a comma or a new line (text with this character must be in double quotes)`},
		{"a =", `streamlet.conf:1:4: expected a value before the line ends`},
		{"é = \"ü\" # ö\nü = ]", `streamlet.conf:2:5: "]": expected a value (text with this character must be in double quotes)`},
		{"a {\n b = [1,\n", `streamlet.conf:2:6: what is opened here is never closed: ] is missing`},
		{"a = 1\n}", `streamlet.conf:2:1: "}": expected a key (text with this character must be in double quotes)`},
		{"{ a = 1 }\nb = 2", `streamlet.conf:2:1: "b": expected the end of the file after its last }`},
		{"a.b..c = 1", `streamlet.conf:1:1: a path has no empty key before or after a dot (one is written ""), and at most 100 keys`},
		{"a = \"x\nb = 1", `streamlet.conf:1:5: "\"": this string is never closed (one of several lines begins and ends with """)`},
		{"a = \"\"\"x\"\"\nb = 1", `streamlet.conf:1:5: "\"": this string is never closed (one of several lines begins and ends with """)`},
		{`a = "x\q"`, `streamlet.conf:1:8: this cannot be in a quoted string: control characters are written as escapes, and all escapes are \" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`},
		{"a = ${b.c\n", `streamlet.conf:1:10: expected } at the end of the substitution before the line ends`},
		{"a = ${}", `streamlet.conf:1:7: "}": expected a path in the configuration or the name of an environment variable (text with this character must be in double quotes)`},
		{"a = 1\nb = [1] ${a}", `streamlet.conf:2:5: expected commas or new lines between its parts, as an object, an array and text cannot be one value`},
		{"a = ${\"b\\nc\"}", `streamlet.conf:1:5: "b\nc" is neither in the file nor in the environment (where it may be missing, write ${?...})`},
		{"include x", `streamlet.conf:1:9: "x": expected a file name in double quotes, or file("name"), or either in required(...)`},
		{`include file("x"`, `streamlet.conf:1:17: expected a ) after the file name before the line ends`},
		{"x = " + strings.Repeat("long", 20) + " = 1", `streamlet.conf:1:86: "=": expected a comma or a new line (text with this character must be in double quotes)`},
		{"x = 1\n" + strings.Repeat("long", 20), `streamlet.conf:2:81: expected one of = : += { after the key before the line ends`},
		{"x = [1]\n" + strings.Repeat("é", 40) + "]", `streamlet.conf:2:41: "]": expected one of = : += { after the key (text with this character must be in double quotes)`},
		{"{} " + strings.Repeat("é", 40), `streamlet.conf:1:4: "` + strings.Repeat("é", 30) + `": expected the end of the file after its last }`},
	} {
		if _, err := readText(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestHOCONTellsEverySubstitutionWithoutAValue(t *testing.T) {
	_, err := readText("a = ${NO_SUCH}\nb { c = x${b.d}y, e = [${?f}, ${g}] }\nh = ${a} ${?A}\ni = ${i}\nj = ${k}\nk = ${j}\nl = ${?b.nope}")
	want := `streamlet.conf:1:5: "NO_SUCH" is neither in the file nor in the environment (where it may be missing, write ${?...})
streamlet.conf:2:10: "b.d" is neither in the file nor in the environment (where it may be missing, write ${?...})
streamlet.conf:2:31: "g" is neither in the file nor in the environment (where it may be missing, write ${?...})
streamlet.conf:4:5: "i" has no value here: it leads back to itself, or to a substitution that has none
streamlet.conf:6:5: "j" has no value here: it leads back to itself, or to a substitution that has none
streamlet.conf:5:5: "k" has no value here: it leads back to itself, or to a substitution that has none`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestHOCONErrorsNeverShowASecret(t *testing.T) {
	for _, text := range []string{
		"password = hunter2:hunter2", "password = hunter2*", "password = *hunter2", "a.ssl.key.password = hunter2 = hunter2",
		"password = hunter2{hunter2", "password = hunter2,hunter2", "password = hunter2\nhunter2", "password = hunter2\nhunter2 hunter2\nx = 1",
		"password = \"hunter2", "password = \"hunter2\\q\"", "password = \"hunter2\"hunter2\"", "password = \"\"\"hunter2", "password = [hunter2",
		"password = [hunter2] hunter2", "password { a = hunter2 ] }", "password { hunter2 }", "password = ${hunter2", "password = ${?hunter2*}",
		"password = {hunter2} x", "sasl.jaas.config = x password='hunter2=hunter2'", "connection-config { a { b = hunter2=hunter2 } }",
		"ssl.keystore.key = -----BEGIN PRIVATE KEY-----\nhunter2/hunter2\n-----END PRIVATE KEY-----",
		"\"sasl.jaas.config\" = hunter2?", "a = [1]\na = \"hunter2\" ${a}", "a = [1]\na = ${a} \"hunter2\"", "secret += hunter2:hunter2",
		"a.token = hunter2:hunter2", "basic.auth.user.info = hunter2:hunter2", "api-key = hunter2:hunter2", "passwd = hunter2&hunter2",
	} {
		for _, texts := range []map[string]string{
			{"streamlet.conf": text},
			{"streamlet.conf": `include "other.conf"`, "other.conf": text},
			{"streamlet.conf": `connection-config { include "other.conf" }`, "other.conf": "hunter2"},
			{"streamlet.conf": `include "password.conf"`, "password.conf": "hunter2"},
		} {
			if _, err := readTexts(texts); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: %v", texts, err)
			}
		}
	}
}

func TestHOCONValuesKeepTheirPlaces(t *testing.T) {
	v, err := readTexts(map[string]string{
		"streamlet.conf": "# c\na = 1, b = \"é\" , c = [ x,\n  {d = y} ]\ne.f = ${b}\ng = ${HOCON_EVAL_X}\nh {\n  include \"sub/more\"\n}\ne.i = 3\nj = x${b}\n",
		"sub/more.conf":  "\n  k = v\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, v := range map[string]*hoconValue{
		"streamlet.conf:2:5": v.get("a"), "streamlet.conf:2:12": v.get("b"), "streamlet.conf:2:22": v.get("c"), "streamlet.conf:2:24": v.get("c").items[0],
		"streamlet.conf:3:8": v.get("c").items[1].get("d"), "streamlet.conf:4:1": v.get("e"), "streamlet.conf:5:5": v.get("g"),
		"streamlet.conf:6:3": v.get("h"), "sub/more.conf:2:7": v.get("h", "k"), "streamlet.conf:9:7": v.get("e", "i"), "streamlet.conf:10:5": v.get("j"),
	} {
		if got := v.place.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := v.get("e", "f").place; got != v.get("b").place {
		t.Errorf("a substituted value is at %v, want %v, where it is written", got, v.get("b").place)
	}
	if v.get("e", "f", "x") != nil || v.get("no", "such") != nil || v.get() != v {
		t.Error("get finds what is not there, or not what is")
	}
	if got, want := v.keys, []string{"a", "b", "c", "e", "g", "h", "j"}; !reflect.DeepEqual(got, want) {
		t.Errorf("keys are %q, want %q", got, want)
	}
}

func TestHOCONIncludesStayInTheDirectoryAndAreFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`include "../etc/passwd"`, `streamlet.conf:1:1: "../etc/passwd": only files in the directory of the configuration can be included`},
		{"a {\n include required(file(\"/etc/passwd\")) }", `streamlet.conf:2:2: "/etc/passwd": only files in the directory of the configuration can be included`},
		{`include "sub/../../x.conf"`, `streamlet.conf:1:1: "sub/../../x.conf": only files in the directory of the configuration can be included`},
		{`include file("/etc/x.conf")`, `streamlet.conf:1:1: "/etc/x.conf": only files in the directory of the configuration can be included`},
		{`include url("http://x.invalid/")`, `streamlet.conf:1:1: "url(": only files can be included, nothing from the network or a class path`},
		{`include required(url("http://x.invalid/"))`, `streamlet.conf:1:1: "url(": only files can be included, nothing from the network or a class path`},
		{`include classpath("x.conf")`, `streamlet.conf:1:1: "classpath(": only files can be included, nothing from the network or a class path`},
		{`include required("nope")`, `streamlet.conf:1:1: "nope": this file is required, and it is not there`},
		{`include required(file("nope.conf"))`, `streamlet.conf:1:1: "nope.conf": this file is required, and it is not there`},
		{`include "bad.conf"`, `bad.conf:2:4: expected a value before the line ends`},
		{`include "sub/up.conf"`, `sub/up.conf:1:1: "../streamlet.conf": this file includes itself`},
		{`include "again"`, `again.conf:1:1: "again.conf": this file includes itself`},
		{`include "unreadable.conf"`, `streamlet.conf:1:1: "unreadable.conf": this file cannot be read: permission denied`},
		{`a = [ { include "with.conf" } ]`, `with.conf:1:5: inside an array there can be no +=, and no ${...} in a file that is included there`},
		{`include "array.conf"`, `array.conf:1:1: "[": expected a key (text with this character must be in double quotes)`},
		{`include "1.conf"`, `20.conf:1:1: "21.conf": there are more than 1000 includes, or more than 20 inside one another`},
		{strings.Repeat("include \"nope\"\n", 1001), `streamlet.conf:1001:1: "nope": there are more than 1000 includes, or more than 20 inside one another`},
	} {
		texts := map[string]string{"streamlet.conf": c.text, "bad.conf": "\na =", "sub/up.conf": `include "../streamlet.conf"`, "again.conf": `include "again.conf"`,
			"with.conf": "b = ${a}", "array.conf": "[1]"}
		for i := range 25 {
			texts[fmt.Sprintf("%d.conf", i)] = fmt.Sprintf("include %q", fmt.Sprintf("%d.conf", i+1))
		}
		read := func(path string) ([]byte, error) {
			if path == "conf/unreadable.conf" {
				return nil, fs.ErrPermission
			}
			text, ok := texts[strings.TrimPrefix(path, "conf/")]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		}
		_, err := readHOCON("conf/streamlet.conf", read, lookupIn(nil))
		if want := strings.Replace(c.want, "permission denied", fs.ErrPermission.Error(), 1); err == nil || err.Error() != want {
			t.Errorf("%.60s:\ngot  %v\nwant %s", c.text, err, want)
		}
	}
	v, err := readTexts(map[string]string{"streamlet.conf": `a { include required( file( "sub/x" ) ) }, include "/nope", b = 1`, "sub/x.conf": `include "y", l += 1`, "sub/x.json": `{"l": [0], "j": true}`, "sub/y.conf": "p = ${q}, q = 2"})
	if err == nil || !strings.Contains(err.Error(), `"/nope"`) {
		t.Error("an absolute path outside of the directory is taken:", v, err)
	}
	v, err = readTexts(map[string]string{"streamlet.conf": `a { include required( file( "sub/x" ) ) }, include "nope", b = 1`, "sub/x.conf": `include "y", l += 1`, "sub/x.json": `{"l": [0], "j": true}`, "sub/y.conf": "p = ${q}, q = 2"})
	want := map[string]any{"a": map[string]any{"p": 2.0, "q": 2.0, "l": []any{0.0, 1.0}, "j": true}, "b": 1.0}
	if err != nil || !reflect.DeepEqual(plain(v), want) {
		t.Errorf("got %v, %v, want %v", plain(v), err, want)
	}
}

func TestHOCONTellsThatTheFileCannotBeRead(t *testing.T) {
	_, err := readHOCON("/etc/flow/config/streamlet.conf", func(string) ([]byte, error) { return nil, fs.ErrPermission }, lookupIn(nil))
	if !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), "streamlet.conf: the file cannot be read: ") {
		t.Error(err)
	}
}

func TestHOCONFlattensAsJavaPropertiesAreNamed(t *testing.T) {
	v := mustReadText(t, `
		ssl.truststore { type = JKS, "location" = /a }
		"ssl.truststore.type" = PEM
		"sasl"."login.class" = x
		list = [ a, 2, null, "b c" ], empty = [], nothing = null
		deep = [ [1], {b = 2} ]
		"late.one" = 1, late.one = 2
		"key.serializer" = s, "key.serializer.encoding" = utf8
	`)
	want := map[string]string{"ssl.truststore.type": "PEM", "ssl.truststore.location": "/a", "sasl.login.class": "x", "list": "a,2,b c", "empty": "", "deep": "",
		"late.one": "2", "key.serializer": "s", "key.serializer.encoding": "utf8"}
	got := map[string]string{}
	last := ""
	for _, property := range v.flatten() {
		got[property.name] = property.value.text
		if property.name <= last {
			t.Errorf("%s after %s", property.name, last)
		}
		last = property.name
		if (property.value.kind == hoconArray) != (property.name == "deep") || property.replaced != nil {
			t.Errorf("%+v", property)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestHOCONFlatteningTellsWhatAPropertyReplaced(t *testing.T) {
	for text, want := range map[string]string{
		"a.b = 1\na.b.c = 2":               "a.b.c replaced streamlet.conf:1:7",
		"a.b.c = 1\na.b = 2":               "a.b replaced streamlet.conf:1:1",
		"a.b.c = 1\na { b = 2, d = 3 }":    "a.b replaced streamlet.conf:1:1; a.d",
		"a.b = 1\na.b = null\na.b.c = 2":   "a.b.c",
		"a.b = 1\na.b.c = 2\na.b = 3":      "a.b replaced streamlet.conf:2:1",
		"a.b = 1\na.b = 2":                 "a.b",
		"\"a.b\" = 1\na.b.c = 2":           "a.b; a.b.c",
		"a.b.c = 1\na.b = ${d.x}\nd.x = 2": "a.b replaced streamlet.conf:1:1; d.x",
		"a.b.c = 1\na.b = 2\nx = ${a.b}":   "a.b replaced streamlet.conf:1:1; x",
		"a = ${?b}\na.c = 1\nb = 2":        "a.c replaced streamlet.conf:3:5",
	} {
		var got []string
		for _, property := range mustReadText(t, text).flatten() {
			if property.name == "b" {
				continue
			}
			got = append(got, property.name)
			if property.replaced != nil {
				got[len(got)-1] += " replaced " + property.replaced.String()
			}
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestHOCONLooksBackInAFieldThatRefersToItself(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1, a = ${a}2, a = ${a}3":                                                `{"a":"123"}`,
		"a {b = 1}, a = {b = ${a.b}2}, a { b = ${a.b}3 }":                            `{"a":{"b":"123"}}`,
		"a {l = [1]}, a {l += 2}, a = {l += 3}":                                      `{"a":{"l":[1,2,3]}}`,
		"b {x = 1}, a = ${b}, a.x = ${a.x}2":                                         `{"a":{"x":"12"},"b":{"x":1}}`,
		"a = {x = 1, x = ${?a}}":                                                     `{"a":{"x":{"x":1}}}`,
		"a = {x = ${?a}}":                                                            `{"a":{}}`,
		"foo {a {c = 1}}, foo = ${foo.a}, foo {a = 2}":                               `{"foo":{"a":2,"c":1}}`,
		"bar {a = ${foo.d}, b = 1}, bar.b = 3, foo {c = ${bar.b}, d = 2}, foo.d = 4": `{"bar":{"a":4,"b":3},"foo":{"c":3,"d":4}}`,
		"HOCON_EVAL_X = ${?HOCON_EVAL_X}":                                            `{}`,
		"a = {b = 1} {c = ${a.b}}":                                                   `{"a":{"b":1,"c":1}}`,
		"b = {c {d = 1}}, a {b {c = 7}}, a = ${?b}, e = ${?a.c.x}":                   `{"a":{"b":{"c":7},"c":{"d":1}},"b":{"c":{"d":1}}}`,
		"a {b {c = 1}}, a {b = 7}, d = ${?a.b.c}":                                    `{"a":{"b":7}}`,
	} {
		got, err := json.Marshal(plain(mustReadText(t, text)))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestHOCONDoesNotDropTextThatStandsBesideAnArray(t *testing.T) {
	// The reference implementation reads this as [1].
	if v, err := readText("a = [1] x"); err == nil {
		t.Error(plain(v))
	}
}

func TestHOCONBooleansAreTheWordsOfTheFormat(t *testing.T) {
	for text, want := range map[string]string{"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", `"off"`: "false",
		"True": "error", "1": "error", "null": "error", "[]": "error", `""`: "error"} {
		v := mustReadText(t, "\n\n  a = "+text).get("a")
		b, err := v.boolean()
		got := fmt.Sprint(b)
		if err != nil {
			got = "error"
			if !strings.HasPrefix(err.Error(), "streamlet.conf:3:7: ") {
				t.Error(err)
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestDurationsAreNumbersWithAUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500": 500 * time.Millisecond, "500ms": 500 * time.Millisecond, " 30 s ": 30 * time.Second, "5m": 5 * time.Minute, "5 minutes": 5 * time.Minute, "1h": time.Hour,
		"2 days": 48 * time.Hour, "1.5 hours": 90 * time.Minute, ".5s": 500 * time.Millisecond, "5.s": 5 * time.Second, "10us": 10 * time.Microsecond,
		"7 nanos": 7, "1 milli": time.Millisecond, "-1s": -time.Second, "+1s": time.Second, "1e3 ms": time.Second, "0": 0, "1.9ns": 1, "-1.9ns": -1,
		"1000000000000 d": math.MaxInt64, "-1000000000000 d": -math.MaxInt64, "9223372036854775807ns": math.MaxInt64,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "5 x", "5S", "5 secs", "1,5s", "--1s", "1 2s", "0x10", "1_000", "inf", "NaN", "1e999s", "1e-999", strings.Repeat("9", 99), "5m5s", "5mss", "五"} {
		got, err := parseDuration(text)
		if err == nil {
			t.Errorf("%q is read as %v", text, got)
		} else if !strings.Contains(err.Error(), "500ms") || len(err.Error()) > 200 {
			t.Error(err)
		}
	}
}

func TestByteSizesAreNumbersWithAUnit(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1B": 1, "10 bytes": 10, "1 byte": 1, "1k": 1 << 10, "1K": 1 << 10, "1Ki": 1 << 10, "1KiB": 1 << 10, "1 kibibyte": 1 << 10, "1kB": 1000, "2 kilobytes": 2000,
		"1 MiB": 1 << 20, "1M": 1 << 20, "1m": 1 << 20, "1MB": 1e6, "1.5GiB": 3 << 29, "1g": 1 << 30, "1T": 1 << 40, "1PB": 1e15, "7E": 7 << 60, "1.001kB": 1001,
		"0.5b": 0, "8388607.999999TiB": 9223372036853676296, "9223372036854775807": math.MaxInt64, " 64k ": 64 << 10, "1e3": 1000,
	} {
		if got, err := parseByteSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "-1", "-1k", "8E", "9223372036854775808", "1KB", "1 mib", "1kib", "1 XB", "1e999", "1,000", "1 MiB x"} {
		got, err := parseByteSize(text)
		if err == nil {
			t.Errorf("%q is read as %d", text, got)
		} else if !strings.Contains(err.Error(), "1 MiB") || len(err.Error()) > 200 {
			t.Error(err)
		}
	}
}

// hostile are texts of the largest size, made to be slow, deep or large.
func hostile() map[string]string {
	const size = maxHOCONBytes - 1000
	fill := func(text string) string { return strings.Repeat(text, size/len(text)) }
	count := func(format string, size int) string {
		var text strings.Builder
		for i := 0; text.Len() < size; i++ {
			fmt.Fprintf(&text, format, i, i+1)
		}
		return text.String()
	}
	numbers := func(format string) string { return count(format+"%[2]*.0d", size) }
	return map[string]string{
		// many values, fields and parts
		"elements": "a=[" + fill("1,") + "]", "fields": numbers("a%[1]d=1\n"), "assignments": fill("a=1\n"), "words": "a=" + fill("x "), "strings": "a=" + fill(`"" `),
		"most elements": "a=[" + strings.Repeat("1,", maxHOCONNodes/2-10) + "]", "most fields": count("a%[1]d={b=%[2]d}\n", 3.5e5), "merges": fill("a{b{c{d=1}}}\n"), "objects": "a=" + fill("{b=1}"),
		// long ones
		"large": `a="` + fill("é") + `"`, "escapes": `a="` + fill(`\u0001`) + `"`, "unclosed": `a="` + fill("x"), "unclosed triple": `a="""` + fill(`""x`), "quotes": "a=" + fill(`"`),
		"digits": fill("1") + "=1e+1", "key words": fill("x ") + "=1", "comments": fill("#\n"), "spaces": "a=x" + fill("\u00a0") + "x", "invalid": fill("\xff"), "bad": "a=" + fill("x") + "*",
		"too large": fill("#") + strings.Repeat("#", 1001),
		// deep ones
		"dots": fill("a.") + "a=1", "reference dots": "b=${" + fill("a.") + "a}", "deep keys": fill(strings.Repeat("a.", 99) + "a=1\n"), "deep": "a=" + fill("["), "deep objects": fill("a{"),
		// substitutions
		"appends": fill("a+=1\n"), "self": "a=x\n" + fill("a=${a}x\n"), "self twice": "a=\"\"\n" + strings.Repeat("a=${a}${a}\n", 400), "self object": "a={}\n" + strings.Repeat("a=${a}{x=1}\n", 60),
		"unresolved": numbers("a%[1]d=${x}\n"), "alternating": numbers("a{k%[1]d=1}\na=${?u}\n"), "doubling": "a0=x\n" + count("a%[2]d=[${a%[1]d},${a%[1]d}]\n", 2000),
		"lookups": count("a.x%[1]d=1\na=${?u%[2]d}\n", 4e5) + count("b%[1]d=${?a.x%[2]d}\n", 4e5), "object lookups": count("a{x%[1]d=%[2]d}\n", 3e5) + count("b%[1]d=${a.x%[2]d}\n", 3e5),
		"chain": count("a%[1]d=${a%[2]d}\n", size), "short chain": count("a%[1]d=${a%[2]d}\n", 15000), "references": "u={a=1,b=2}\n" + numbers("b%[1]d=${u}{c=1}\n"),
		"large references": `u="` + strings.Repeat("x", 6e5) + "\"\na=${u}${u}${u}", "self fields": "a={" + count("x%[1]d=${?a}%[2]d\n", 1e6) + "}",
		"cycles":   strings.Repeat("a0=${?a1}${?a2}${?a3}\na1=${?a0}${?a2}${?a3}\na2=${?a0}${?a1}${?a3}\na3=${?a0}${?a1}${?a2}\n", 1000),
		"includes": fill("include \"x\"\n"),
	}
}

// processorTime is what this process has used of the processors, whatever else the machine does.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// raceFactor is how much longer everything may take with the race detector.
func raceFactor() time.Duration {
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 20
	}
	return 1
}

func TestHOCONAnswersAnyInputWithinASecond(t *testing.T) {
	limit := raceFactor() * time.Second
	for name, text := range hostile() {
		start := processorTime() // the processor's time, as the machine may be busy with other things
		_, err := readText(text)
		if took := processorTime() - start; took > limit {
			t.Errorf("%s: %v", name, took)
		}
		if err != nil && !hoconErrorForm.MatchString(err.Error()) {
			t.Errorf("%s: %.200s", name, err.Error())
		}
	}
}

func TestHOCONTellsItsLimits(t *testing.T) {
	texts := hostile()
	for name, want := range map[string]string{
		"too large": "more than 1048576 bytes", "deep": "nested more than 100 deep", "deep objects": "nested more than 100 deep", "chain": "too many values",
		"doubling": "come to more than 1048576 bytes", "large references": "come to more than 1048576 bytes", "elements": "too many values",
		"dots": "at most 100 keys", "reference dots": "at most 100 keys", "short chain": "more than 1000 lead to one another", "includes": "more than 1000 includes",
	} {
		if _, err := readText(texts[name]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	nested := "a1={x={}}\n"
	for i := range 60 {
		nested += fmt.Sprintf("a%d={x={y=${a%d}}}\n", i+2, i+1)
	}
	if _, err := readText(nested); err == nil || !strings.Contains(err.Error(), "nested more than 100 deep") {
		t.Error(err)
	}
	if _, err := readText(strings.Repeat("a {", 100) + strings.Repeat("}", 100)); err != nil {
		t.Error(err)
	}
}

var hoconErrorForm = regexp.MustCompile(`^(?:[^\n]+\.[a-z]+:[0-9]+:[0-9]+: [^\n]+(?:\n|$))+$`)

// checkHOCON reads a text and fails if the answer breaks a rule that holds for any text.
func checkHOCON(t *testing.T, texts map[string]string) {
	v, err := readTexts(texts)
	if err != nil {
		if v != nil || !hoconErrorForm.MatchString(err.Error()) || strings.Contains(err.Error(), "library") {
			t.Fatalf("%q: %v", texts, err)
		}
		return
	}
	checkValue(t, v)
	v.flatten()
	again, err := readText(rendered(v))
	if err != nil || !reflect.DeepEqual(plain(again), plain(v)) {
		t.Fatalf("%q is read as %v, and that as %v, %v", texts, plain(v), plain(again), err)
	}
}

func checkValue(t *testing.T, v *hoconValue) {
	if v.place.Line < 1 || v.place.Column < 1 || v.place.File == "" || v.kind > hoconNull || v.kind < hoconObject {
		t.Fatalf("%+v", v)
	}
	if len(v.keys) != len(v.fields) || v.kind != hoconObject && v.keys != nil || v.kind != hoconArray && v.items != nil || v.kind < hoconString && v.text != "" {
		t.Fatalf("%+v", v)
	}
	for _, key := range v.keys {
		checkValue(t, v.fields[key])
	}
	for _, item := range v.items {
		checkValue(t, item)
	}
}

// rendered writes a value as HOCON that has quotes only where they are needed for its kind.
func rendered(v *hoconValue) string {
	quote := func(text string) string {
		quoted, _ := json.Marshal(text)
		return string(quoted)
	}
	switch v.kind {
	case hoconObject:
		var fields []string
		for _, key := range v.keys {
			fields = append(fields, quote(key)+":"+rendered(v.fields[key]))
		}
		return "{" + strings.Join(fields, ",") + "}"
	case hoconArray:
		var items []string
		for _, item := range v.items {
			items = append(items, rendered(item))
		}
		return "[" + strings.Join(items, "\n") + "]"
	case hoconString:
		return quote(v.text)
	case hoconNull:
		return "null"
	}
	return v.text
}

// FuzzHOCON reads streamlet.conf and a file that it may include.
func FuzzHOCON(f *testing.F) {
	for _, c := range hoconCases(f) {
		texts := c.texts(f)
		f.Add(texts["streamlet.conf"], texts["other.conf"])
	}
	paths, err := filepath.Glob("testdata/hocon/realistic/*.conf")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "a = 1\nb = ${?a}")
	}
	f.Fuzz(func(t *testing.T, text, other string) {
		checkHOCON(t, map[string]string{"streamlet.conf": text, "other.conf": other})
	})
}

// randomValue makes a tree of the characters that the library misreads in other places.
func randomValue(random *rand.Rand, depth int) *hoconValue {
	text := func() string {
		var text string
		for range random.Intn(4) {
			parts := []string{"\"", "\\", "$", "{", "}", ".", " ", "\n", "#", "//", "+", "`", "a", "é", "\U0001f600", "'", ",", "=", ":", "[", "]", "\x00", "include", "null", "\u2028"}
			text += parts[random.Intn(len(parts))]
		}
		return text
	}
	v := &hoconValue{kind: hoconKind(random.Intn(int(hoconNull) + 1)), place: place{"random", 1, 1}}
	if depth == 0 {
		v.kind = hoconString
	}
	switch v.kind {
	case hoconObject:
		v.fields = map[string]*hoconValue{}
		for range random.Intn(5) {
			key := text()
			if v.fields[key] == nil {
				v.keys = append(v.keys, key)
			}
			v.fields[key] = randomValue(random, depth-1)
		}
	case hoconArray:
		for range random.Intn(5) {
			v.items = append(v.items, randomValue(random, depth-1))
		}
	default:
		v.text = text()
	}
	return v
}

// FuzzHOCONLibraryReadsCanonicalTextExactly checks what the front end relies on.
func FuzzHOCONLibraryReadsCanonicalTextExactly(f *testing.F) {
	for seed := range int64(20) {
		f.Add(seed, 5)
	}
	f.Fuzz(func(t *testing.T, seed int64, depth int) {
		v := &hoconValue{kind: hoconObject, keys: []string{"root"}, fields: map[string]*hoconValue{"root": randomValue(rand.New(rand.NewSource(seed)), min(max(depth, 0), 8))}}
		meant := v.canonical(0)
		text, err := json.Marshal(meant)
		if err != nil {
			t.Fatal(err)
		}
		read, err := hocon.ParseString(string(text))
		if err != nil || !reflect.DeepEqual(read.GetRoot(), meant) {
			t.Fatalf("%s is read as %v, %v", text, read, err)
		}
	})
}

func BenchmarkHOCONReadsTheDocumentedExample(b *testing.B) {
	text, err := os.ReadFile("testdata/hocon/realistic/01-docs-example.conf")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := readText(string(text)); err != nil {
			b.Fatal(err)
		}
	}
}
