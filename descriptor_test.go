package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// routerSpec is a valid Spec, new at each call.
func routerSpec() *flowv1.Spec {
	carts := func() *flowv1.Contract {
		return &flowv1.Contract{Format: "json", SchemaName: "cart-events.v1", Fingerprint: fingerprint("cart-events.v1")}
	}
	return &flowv1.Spec{
		ProtocolVersion: "1.0",
		Sdk:             &flowv1.SdkInfo{Name: "test", Version: "1"},
		Streamlet: &flowv1.StreamletDescriptor{
			Name:    "cart-router",
			Inlets:  []*flowv1.Port{{Name: "in", Contract: carts()}},
			Outlets: []*flowv1.Port{{Name: "valid", Contract: carts()}, {Name: "review", Contract: carts()}},
			ConfigParameters: []*flowv1.ConfigParameter{
				{Key: "review-threshold", Type: flowv1.ConfigType_INTEGER, DefaultValue: "100"},
				{Key: "window", Type: flowv1.ConfigType_DURATION},
			},
		},
	}
}

func TestFingerprintIsTheProtocolsCheckValue(t *testing.T) {
	if got, want := fingerprint("cart-events.v1"), "nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM="; got != want {
		t.Errorf("fingerprint = %s, want %s", got, want)
	}
}

func TestDescriptorsOfThePythonSDKAreValidAndWrittenBackByteForByte(t *testing.T) {
	files, err := filepath.Glob("testdata/descriptor-python-*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			spec, problems := readSpec(file, text)
			if spec == nil || len(problems) > 0 {
				t.Fatal(problems)
			}
			if problems := validateSpec(spec); len(problems) > 0 {
				t.Error(problems)
			}
			if got := writeSpec(spec); !bytes.Equal(got, text) {
				t.Errorf("written back:\n%s", got)
			}
			if streamlet := spec.Streamlet; streamlet != nil {
				slices.Reverse(streamlet.Inlets)
				slices.Reverse(streamlet.Outlets)
				slices.Reverse(streamlet.ConfigParameters)
			}
			if got := writeSpec(spec); !bytes.Equal(got, text) {
				t.Errorf("written back from another order:\n%s", got)
			}
		})
	}
}

func TestDescriptorIsReadAsAnyProtoJSON(t *testing.T) {
	text := `{"streamlet":{"outlets":[], "inlets":null,"configParameters":[{"defaultValue":"5", "key":"n", "type":1},{"key":"text"}],
		"name":"cart-router"},"sdk":null,"protocolVersion":"1.0"}`
	spec, problems := readSpec("descriptor.json", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := &flowv1.Spec{ProtocolVersion: "1.0", Streamlet: &flowv1.StreamletDescriptor{Name: "cart-router", ConfigParameters: []*flowv1.ConfigParameter{
		{Key: "n", Type: flowv1.ConfigType_INTEGER, DefaultValue: "5"}, {Key: "text"}}}}
	if !proto.Equal(spec, want) {
		t.Errorf("read %v", spec)
	}
}

func TestUnreadableDescriptorIsAProblemWithItsPlace(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []string // the beginning of each problem, in order
		readable   bool
	}{
		{"every unknown field with its line and path", "{\n  \"protocolVersion\": \"1.0\",\n  \"sdks\": {\"a\": [1, {\"b\": 2}]},\n  \"streamlet\": {\n    \"inlets\": [\n      {\"name\": \"in\"},\n      {\"nam\": \"in2\", \"contract\": {\"schema\": \"x\"}}\n    ]\n  }\n}\n",
			[]string{"d.json:3:3: 'sdks' is not a field of a descriptor; did you mean 'sdk'?", "d.json:7:8: 'streamlet.inlets[1].nam' is not", "d.json:7:35: 'streamlet.inlets[1].contract.schema' is not"}, true},
		{"an unknown field behind null", `{"sdk": null, "streamlet": {"inlets": null, "x": 1}}`, []string{"d.json:1:45: 'streamlet.x' is not"}, true},
		{"an unknown field and a value of another type", "{\"a\": 1,\n \"sdk\": {\"name\": 5}}", []string{"d.json:1:2: 'a' is not", "d.json:2:18: invalid value for string field name: 5"}, false},
		{"a list where an object belongs", `{"streamlet": [1]}`, []string{"d.json:1:15: unexpected token ["}, false},
		{"an object where a list belongs", `{"streamlet": {"inlets": {"name": "in"}}}`, []string{"d.json:1:26: unexpected token {"}, false},
		{"a list at the top", `[]`, []string{"d.json:1:1: unexpected token ["}, false},
		{"an unknown type of parameter", `{"streamlet": {"config_parameters": [{"key": "k", "type": "INT"}]}}`, []string{"d.json:1:59: 'streamlet.config_parameters[0].type' is 'INT', but must be one of STRING, INTEGER,"}, true},
		{"a field given twice", `{"protocol_version": "1.0", "protocolVersion": "1.0"}`, []string{`d.json:1:29: duplicate field "protocolVersion"`}, false},
		{"text behind the object", "{}\nx", []string{"d.json:2:1: invalid value x"}, false},
		{"a file cut off", "{\"streamlet\": {\n", []string{"d.json: unexpected EOF"}, false},
		{"no JSON", "streamlet = router", []string{"d.json:1:1: invalid value streamlet"}, false},
		{"bytes that are no UTF-8", "{\"sdk\": {\"name\": \"\xff\"}}", []string{"d.json:1:18: invalid UTF-8 in string"}, false},
		{"an empty file", " \n", []string{"d.json: the file is empty"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec, problems := readSpec("d.json", []byte(test.text))
			if (spec != nil) != test.readable {
				t.Errorf("spec %v", spec)
			}
			wantPrefixes(t, problems, test.want)
		})
	}
}

// wantPrefixes checks that there are as many problems as beginnings, each with its own, in order.
func wantPrefixes(t *testing.T, problems, want []string) {
	t.Helper()
	if len(problems) != len(want) {
		t.Fatalf("%d problems, want %d:\n%s", len(problems), len(want), strings.Join(problems, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(problems[i], want[i]) {
			t.Errorf("problem %q\n want %q…", problems[i], want[i])
		}
	}
}

func TestEachRuleOfADescriptorIsAProblemOfItsOwn(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct {
		name   string
		change func(spec *flowv1.Spec)
		want   []string
	}{
		{"a valid one", func(*flowv1.Spec) {}, nil},
		{"no streamlet", func(s *flowv1.Spec) { s.Streamlet = nil }, []string{"streamlet is missing"}},
		{"no version", func(s *flowv1.Spec) { s.ProtocolVersion = "" }, []string{"protocol_version '' is not MAJOR.MINOR"}},
		{"a version of one part", func(s *flowv1.Spec) { s.ProtocolVersion = "1" }, []string{"protocol_version '1' is not"}},
		{"a version of three parts", func(s *flowv1.Spec) { s.ProtocolVersion = "1.0.0" }, []string{"protocol_version '1.0.0' is not"}},
		{"a signed version", func(s *flowv1.Spec) { s.ProtocolVersion = "1.-1" }, []string{"protocol_version '1.-1' is not"}},
		{"any version", func(s *flowv1.Spec) { s.ProtocolVersion = "7.12" }, nil},
		{"the longest streamlet name", func(s *flowv1.Spec) { s.Streamlet.Name = long }, nil},
		{"a streamlet name that begins with a digit", func(s *flowv1.Spec) { s.Streamlet.Name = "1a" }, nil},
		{"a streamlet name too long", func(s *flowv1.Spec) { s.Streamlet.Name = long + "a" }, []string{"streamlet name 'aaa"}},
		{"an empty streamlet name", func(s *flowv1.Spec) { s.Streamlet.Name = "" }, []string{"streamlet name ''"}},
		{"a streamlet name that begins with -", func(s *flowv1.Spec) { s.Streamlet.Name = "-a" }, []string{"streamlet name '-a'"}},
		{"a streamlet name that ends with -", func(s *flowv1.Spec) { s.Streamlet.Name = "a-" }, []string{"streamlet name 'a-'"}},
		{"a streamlet name with a capital", func(s *flowv1.Spec) { s.Streamlet.Name = "Router" }, []string{"streamlet name 'Router'"}},
		{"a streamlet name with a line's end", func(s *flowv1.Spec) { s.Streamlet.Name = "a\n" }, []string{`streamlet name 'a\n'`}},
		{"the longest port name", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Name = long }, nil},
		{"a port name that ends with -", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Name = "in-" }, nil},
		{"a port name too long", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Name = long + "a" }, []string{"inlet name 'aaa"}},
		{"a port name that begins with a digit", func(s *flowv1.Spec) { s.Streamlet.Outlets[0].Name = "1" }, []string{"outlet name '1'"}},
		{"a port name with a dot", func(s *flowv1.Spec) { s.Streamlet.Outlets[0].Name = "a.b" }, []string{"outlet name 'a.b'"}},
		{"an inlet and an outlet of one name", func(s *flowv1.Spec) { s.Streamlet.Outlets[0].Name = "in" }, []string{"port 'in' is declared 2 times (inlet, outlet)"}},
		{"no contract", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Contract = nil }, []string{"inlet 'in': it has no contract"}},
		{"another format", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Contract.Format = "avro" }, []string{"inlet 'in': contract format 'avro' is not supported"}},
		{"no schema name", func(s *flowv1.Spec) { s.Streamlet.Inlets[0].Contract.SchemaName = "" }, []string{"inlet 'in': the contract's schema_name is empty"}},
		{"a fingerprint of another schema", func(s *flowv1.Spec) { s.Streamlet.Outlets[0].Contract.Fingerprint = fingerprint("x") },
			[]string{"outlet 'valid': fingerprint 'LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=' does not belong"}},
		{"a parameter key with a capital", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].Key = "Max" }, []string{"parameter key 'Max'"}},
		{"a parameter key with a dot", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].Key = "a.b" }, []string{"parameter key 'a.b'"}},
		{"a parameter key that begins with a digit", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].Key = "1st" }, []string{"parameter key '1st'"}},
		{"a parameter key that begins with -", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].Key = "-a" }, []string{"parameter key '-a'"}},
		{"a parameter key of one letter and of many", func(s *flowv1.Spec) {
			s.Streamlet.ConfigParameters[0].Key, s.Streamlet.ConfigParameters[1].Key = "a", long+long
		}, nil},
		{"a parameter twice", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[1].Key = "review-threshold" }, []string{"parameter 'review-threshold' is declared more than once"}},
		{"a type that nobody knows", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].Type = 6 }, []string{"parameter 'review-threshold' has the unknown type 6"}},
		{"a default of another type", func(s *flowv1.Spec) { s.Streamlet.ConfigParameters[0].DefaultValue = "many" }, []string{"parameter 'review-threshold': the default 'many' is not an INTEGER"}},
		{"everything at once", func(s *flowv1.Spec) {
			*s = flowv1.Spec{ProtocolVersion: "x", Streamlet: &flowv1.StreamletDescriptor{
				Name: "", Inlets: []*flowv1.Port{{Name: "A"}, {Name: "A"}},
				ConfigParameters: []*flowv1.ConfigParameter{{Key: "B", Type: flowv1.ConfigType_BOOLEAN, DefaultValue: "yes"}}}}
		}, []string{"protocol_version 'x'", "streamlet name ''", "inlet name 'A'", "inlet 'A': it has no", "inlet name 'A'", "inlet 'A': it has no",
			"port 'A' is declared 2 times", "parameter key 'B'", "parameter 'B': the default 'yes' is not a BOOLEAN"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := routerSpec()
			test.change(spec)
			wantPrefixes(t, validateSpec(spec), test.want)
		})
	}
}

func TestParameterValuesAreTypedJSON(t *testing.T) {
	for _, test := range []struct {
		kind flowv1.ConfigType
		text string
		want string // empty for a value that is refused
	}{
		{flowv1.ConfigType_STRING, `a "b" ` + "\u2028", `"a \"b\" ` + "\u2028" + `"`},
		{flowv1.ConfigType_STRING, " 7 ", `" 7 "`},
		{flowv1.ConfigType_INTEGER, "9223372036854775807", "9223372036854775807"},
		{flowv1.ConfigType_INTEGER, "-9223372036854775808", "-9223372036854775808"},
		{flowv1.ConfigType_INTEGER, "9223372036854775808", ""},
		{flowv1.ConfigType_INTEGER, "+007", "7"},
		{flowv1.ConfigType_INTEGER, " 5 ", "5"},
		{flowv1.ConfigType_INTEGER, "1.5", ""},
		{flowv1.ConfigType_INTEGER, "0x10", ""},
		{flowv1.ConfigType_INTEGER, "1_000", ""},
		{flowv1.ConfigType_DOUBLE, "100", "100"},
		{flowv1.ConfigType_DOUBLE, ".5", "0.5"},
		{flowv1.ConfigType_DOUBLE, "+1.", "1"},
		{flowv1.ConfigType_DOUBLE, "1e-07", "1e-7"},
		{flowv1.ConfigType_DOUBLE, "1e300", "1e+300"},
		{flowv1.ConfigType_DOUBLE, "1e400", ""},
		{flowv1.ConfigType_DOUBLE, "NaN", ""},
		{flowv1.ConfigType_DOUBLE, "Infinity", ""},
		{flowv1.ConfigType_DOUBLE, "-inf", ""},
		{flowv1.ConfigType_DOUBLE, "0x1p-2", ""},
		{flowv1.ConfigType_BOOLEAN, "true", "true"},
		{flowv1.ConfigType_BOOLEAN, "false", "false"},
		{flowv1.ConfigType_BOOLEAN, "True", ""},
		{flowv1.ConfigType_BOOLEAN, "1", ""},
		{flowv1.ConfigType_DURATION, "1.5 s", `"1.5 s"`},
		{flowv1.ConfigType_DURATION, "300000 ms", `"300000 ms"`},
		{flowv1.ConfigType_DURATION, "soon", ""},
		{flowv1.ConfigType_MEMORY_SIZE, "1 MiB", `"1 MiB"`},
		{flowv1.ConfigType_MEMORY_SIZE, "512k", `"512k"`},
		{flowv1.ConfigType_MEMORY_SIZE, "1 minute", ""},
	} {
		got, err := parameterJSON(test.kind, test.text)
		if string(got) != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%v %q = %s, %v, want %s", test.kind, test.text, got, err, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.kind.String()) {
			t.Errorf("%v %q is refused with %q", test.kind, test.text, err)
		}
		if err == nil && !json.Valid(got) {
			t.Errorf("%v %q = %s, which is no JSON", test.kind, test.text, got)
		}
	}
}

func TestEachDifferenceIsOneProblemInWordsThatNameBothSides(t *testing.T) {
	port := func(name, schema string) *flowv1.Port {
		return &flowv1.Port{Name: name, Contract: &flowv1.Contract{Format: "json", SchemaName: schema, Fingerprint: fingerprint(schema)}}
	}
	for _, test := range []struct {
		name   string
		change func(streamlet *flowv1.StreamletDescriptor)
		want   []string
	}{
		{"equal", func(*flowv1.StreamletDescriptor) {}, nil},
		{"order and descriptions", func(s *flowv1.StreamletDescriptor) {
			s.Description = "new"
			s.ConfigParameters[0].Description = "new"
			slices.Reverse(s.Outlets)
			slices.Reverse(s.ConfigParameters)
		}, nil},
		{"name", func(s *flowv1.StreamletDescriptor) { s.Name = "other" }, []string{"the streamlet's name differs: deployed is 'cart-router', the process has 'other'"}},
		{"an inlet gone", func(s *flowv1.StreamletDescriptor) { s.Inlets = nil }, []string{"inlet 'in' is deployed, but the process has no such port"}},
		{"an outlet more", func(s *flowv1.StreamletDescriptor) { s.Outlets = append(s.Outlets, port("late", "x")) }, []string{"outlet 'late' is in the process, but not deployed"}},
		{"an outlet that became an inlet", func(s *flowv1.StreamletDescriptor) {
			s.Inlets, s.Outlets = append(s.Inlets, s.Outlets[0]), s.Outlets[1:]
		},
			[]string{"port 'valid' is deployed as an outlet, but is an inlet in the process"}},
		{"schema", func(s *flowv1.StreamletDescriptor) { s.Inlets[0] = port("in", "cart-events.v2") },
			[]string{"inlet 'in': the contract's schema_name differs: deployed is 'cart-events.v1', the process has 'cart-events.v2'"}},
		{"format", func(s *flowv1.StreamletDescriptor) { s.Outlets[0].Contract.Format = "avro" },
			[]string{"outlet 'valid': the contract's format differs: deployed is 'json', the process has 'avro'"}},
		{"fingerprint alone", func(s *flowv1.StreamletDescriptor) { s.Outlets[0].Contract.Fingerprint = "" },
			[]string{"outlet 'valid': the contract's fingerprint differs: deployed is 'nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM=', the process has none"}},
		{"a parameter gone and one more", func(s *flowv1.StreamletDescriptor) { s.ConfigParameters[1].Key = "a" },
			[]string{"parameter 'a' is in the process, but not deployed", "parameter 'window' is deployed, but the process has no such parameter"}},
		{"a parameter's type and default", func(s *flowv1.StreamletDescriptor) {
			s.ConfigParameters[0].Type = flowv1.ConfigType_STRING
			s.ConfigParameters[0].DefaultValue = ""
		}, []string{"parameter 'review-threshold': the type differs: deployed is 'INTEGER', the process has 'STRING'",
			"parameter 'review-threshold': the default differs: deployed is '100', the process has none"}},
		{"everything", func(s *flowv1.StreamletDescriptor) { *s = flowv1.StreamletDescriptor{} }, []string{
			"the streamlet's name differs: deployed is 'cart-router', the process has none", "inlet 'in' is deployed", "outlet 'review' is deployed", "outlet 'valid' is deployed",
			"parameter 'review-threshold' is deployed", "parameter 'window' is deployed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			answered := routerSpec()
			answered.Sdk = &flowv1.SdkInfo{Name: "another"}
			test.change(answered.Streamlet)
			wantPrefixes(t, compareSpecs(routerSpec(), answered), test.want)
		})
	}
}

func TestNamesFromOutsideStayOnOneLineAndShort(t *testing.T) {
	for name, want := range map[string]string{
		"in":                      "'in'",
		"a\nb\x1b[31m":            `'a\nb\x1b[31m'`,
		`say "x"`:                 `'say "x"'`,
		strings.Repeat("ü", 1000): "'" + strings.Repeat("ü", 60) + "…'",
	} {
		if got := quote(name); got != want {
			t.Errorf("quote(%q) = %s", name, got)
		}
	}
}

func TestSuggestionIsTheNearestKnownNameOrNone(t *testing.T) {
	known := []string{"bootstrap.servers", "topic", "group", "client-id"}
	for name, want := range map[string]string{
		"botstrap.servers": "; did you mean 'bootstrap.servers'?",
		"tpoic":            "; did you mean 'topic'?",
		"Topic":            "; did you mean 'topic'?",
		"clientid":         "; did you mean 'client-id'?",
		"colour":           "",
		"":                 "",
	} {
		if got := suggest(name, known); got != want {
			t.Errorf("suggest(%q) = %q, want %q", name, got, want)
		}
	}
}
