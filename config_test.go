package main

import (
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// setting is what a sidecar is started with. Files are by their name in the configuration directory.
type setting struct {
	args  []string
	env   map[string]string
	files map[string]string
}

const routerConf = `
# The sidecar's configuration on a laptop.
flow {
  pipeline  = cart
  streamlet = router
  config    = { review-threshold = 250 }
  inlets {
    in {
      topic             = "shop.cart-events.v1"
      bootstrap.servers = "kafka:9092"
      connection-config {}
      consumer-config { fetch.min.bytes = 7 }
      batch { max-records = 50, max-bytes = 512k }
    }
  }
  outlets {
    valid  { topic = "cart.valid-carts", client-id = "me", bootstrap.servers = "kafka:9092, [::1]:9093", connection-config {}, producer-config { retries = 3 } }
    review { topic = "cart.review-carts", bootstrap.servers = ["kafka:9092", "kafka2:9092"] }
  }
}
`

// withConf is the setting of a router with a streamlet.conf.
func withConf(conf string) setting {
	return setting{files: map[string]string{"descriptor.json": string(writeSpec(routerSpec())), "streamlet.conf": conf}}
}

// readSetting reads a setting as the sidecar does at its start.
func readSetting(s setting) (cfg *Config, warnings, problems []string) {
	dir := "/etc/flow/config"
	if other, ok := s.env["FLOW_CONFIG_DIR"]; ok && other != "" {
		dir = other
	}
	return readConfig(s.args,
		func(name string) (string, bool) { value, ok := s.env[name]; return value, ok },
		func(path string) ([]byte, error) {
			if text, ok := s.files[strings.TrimPrefix(path, dir+"/")]; ok {
				return []byte(text), nil
			}
			if path == dir && s.files != nil {
				return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrInvalid} // a directory
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		})
}

// good reads a setting that has to be without problems and warnings.
func good(t *testing.T, s setting) *Config {
	t.Helper()
	cfg, warnings, problems := readSetting(s)
	if len(problems) > 0 {
		t.Fatalf("problems:\n%s", strings.Join(problems, "\n"))
	}
	if len(warnings) > 0 {
		t.Errorf("warnings:\n%s", strings.Join(warnings, "\n"))
	}
	return cfg
}

func TestFileAsPeopleWriteItIsReadWithItsDefaults(t *testing.T) {
	cfg := good(t, withConf(routerConf))
	if differences := compareSpecs(routerSpec(), cfg.Spec); len(differences) > 0 {
		t.Error(differences)
	}
	in := cfg.Inlets[0]
	wantOption(t, client(t, in.Consumer.Connection, in.Consumer.Options), "FetchMinBytes", int32(7))
	in.Consumer = ConsumerSettings{}
	outlets := slices.Clone(cfg.Outlets)
	wantOption(t, client(t, outlets[1].Producer.Connection, outlets[1].Producer.Options), "RecordRetries", int64(3))
	for i := range outlets {
		outlets[i].Producer = ProducerSettings{}
	}
	if want := (InletConfig{
		PortConfig: PortConfig{Name: "in", Topic: "shop.cart-events.v1", ClientID: "cart.router.in", BootstrapServers: []string{"kafka:9092"}},
		Group:      "cart.router.in", BatchMaxRecords: 50, BatchMaxBytes: 512 << 10,
	}); !reflect.DeepEqual(in, want) {
		t.Errorf("inlet %+v", in)
	}
	if want := []OutletConfig{
		{PortConfig: PortConfig{Name: "review", Topic: "cart.review-carts", ClientID: "cart.router.review", BootstrapServers: []string{"kafka:9092", "kafka2:9092"}}},
		{PortConfig: PortConfig{Name: "valid", Topic: "cart.valid-carts", ClientID: "me", BootstrapServers: []string{"kafka:9092", "[::1]:9093"}}},
	}; !reflect.DeepEqual(outlets, want) {
		t.Errorf("outlets %+v", outlets)
	}
	rest := *cfg
	rest.Spec, rest.Inlets, rest.Outlets, rest.Variables = nil, nil, nil, nil
	if want := (Config{
		ProcessAddress: "127.0.0.1:9010", ConfigDir: "/etc/flow/config", StateDir: "/tmp/flow", MetricsPort: 2050, DiscoveryTimeout: time.Minute, StallWarningAfter: 5 * time.Minute,
		ReconnectMaxBackoff: 30 * time.Second, MaxEmitBytes: 64 << 20, LogFormat: "text", LogLevel: slog.LevelInfo,
		Pipeline: "cart", Streamlet: "router", ConfigJSON: `{"review-threshold":250}`,
	}); !reflect.DeepEqual(rest, want) {
		t.Errorf("config %+v", rest)
	}
}

func TestFileAsAnOperatorRendersItMeansTheSame(t *testing.T) {
	byHand := good(t, withConf(`flow { pipeline = cart, streamlet = router
		inlets { in { topic = a, bootstrap.servers = "kafka:9092", connection-config { security.protocol = PLAINTEXT, client.rack = r }
			consumer-config { auto.offset.reset = latest, max.partition.fetch.bytes = 9 }, batch { max-records = 5, max-bytes = 1k } } }
		outlets { valid { topic = b, bootstrap.servers = "kafka:9092", producer-config { linger.ms = 4 } }, review { topic = c, bootstrap { servers = "kafka:9092" } } } }`))
	rendered := good(t, withConf(`"flow": { "pipeline": "cart", "streamlet": "router", "config": {},
		"inlets": { "in": { "topic": "a", "bootstrap.servers": "kafka:9092", "connection-config": { "security.protocol": "PLAINTEXT", "client.rack": "r" },
			"consumer-config": { "auto.offset.reset": "latest", "max.partition.fetch.bytes": "9" }, "batch": { "max-records": "5", "max-bytes": "1024" } } },
		"outlets": { "valid": { "topic": "b", "bootstrap.servers": "kafka:9092", "producer-config": { "linger.ms": "4" } }, "review": { "topic": "c", "bootstrap.servers": "kafka:9092" } } }`))
	in, same := byHand.Inlets[0], rendered.Inlets[0]
	if in.Consumer.OffsetReset.Policy != "latest" || in.Consumer.MaxPartitionFetch != 9 || in.BatchMaxBytes != 1024 || in.BatchMaxRecords != 5 {
		t.Errorf("inlet %+v", in)
	}
	for option, want := range map[string]any{"Rack": "r"} {
		wantOption(t, client(t, in.Consumer.Connection, in.Consumer.Options), option, want)
		wantOption(t, client(t, same.Consumer.Connection, same.Consumer.Options), option, want)
	}
	for _, outlet := range []OutletConfig{byHand.Outlets[1], rendered.Outlets[1]} {
		wantOption(t, client(t, outlet.Producer.Connection, outlet.Producer.Options), "ProducerLinger", 4*time.Millisecond)
	}
	for _, cfg := range []*Config{byHand, rendered} { // options are functions, which no two are equal of, and places differ
		cfg.Inlets[0].Consumer.Options, cfg.Inlets[0].Consumer.Connection.Options, cfg.Inlets[0].Consumer.Connection.Properties = nil, nil, nil
		for i := range cfg.Outlets {
			cfg.Outlets[i].Producer.Options, cfg.Outlets[i].Producer.Connection.Options, cfg.Outlets[i].Producer.Connection.Properties = nil, nil, nil
		}
	}
	if !reflect.DeepEqual(byHand.Inlets, rendered.Inlets) || !reflect.DeepEqual(byHand.Outlets, rendered.Outlets) {
		t.Errorf("by hand %+v\nrendered %+v", byHand, rendered)
	}
}

func TestConfigJSONHasEveryParameterTypedTheGivenValueBeforeTheDefault(t *testing.T) {
	parameter := func(key string, kind flowv1.ConfigType, byDefault string) *flowv1.ConfigParameter {
		return &flowv1.ConfigParameter{Key: key, Type: kind, DefaultValue: byDefault}
	}
	spec := &flowv1.Spec{ProtocolVersion: "1.0", Streamlet: &flowv1.StreamletDescriptor{Name: "s", ConfigParameters: []*flowv1.ConfigParameter{
		parameter("text", flowv1.ConfigType_STRING, `a "default"`), parameter("count", flowv1.ConfigType_INTEGER, "1"), parameter("ratio", flowv1.ConfigType_DOUBLE, "0.50"),
		parameter("on", flowv1.ConfigType_BOOLEAN, "true"), parameter("wait", flowv1.ConfigType_DURATION, "300000 ms"), parameter("size", flowv1.ConfigType_MEMORY_SIZE, "1 MiB"),
		parameter("unset", flowv1.ConfigType_INTEGER, ""), parameter("unset-text", flowv1.ConfigType_STRING, ""),
	}}}
	for _, test := range []struct{ config, want string }{
		{"", `{"count":1,"on":true,"ratio":0.5,"size":"1 MiB","text":"a \"default\"","wait":"300000 ms"}`},
		{"{ text = 1.50, count = 9223372036854775807, ratio = 1e300, on = off, wait = 1.5 s, size = 512k, unset = -0 }",
			`{"count":9223372036854775807,"on":false,"ratio":1e+300,"size":"512k","text":"1.50","unset":0,"wait":"1.5 s"}`},
		{`{ "text": "1 \u2028", "count": "-5", "ratio": ".5", "on": "yes", "wait": 500, "size": 1024, unset = 1e3 }`,
			`{"count":-5,"on":true,"ratio":0.5,"size":"1024","text":"1 ` + "\u2028" + `","unset":1000,"wait":"500"}`},
		{"{ count = null, unset = 2.0, text = ${?SECRET} }", `{"count":1,"on":true,"ratio":0.5,"size":"1 MiB","text":"from the environment","unset":2,"wait":"300000 ms"}`},
	} {
		conf := "flow { pipeline = p, streamlet = s, config = " + test.config + " }"
		if test.config == "" {
			conf = "flow { pipeline = p, streamlet = s }"
		}
		cfg := good(t, setting{files: map[string]string{"descriptor.json": string(writeSpec(spec)), "streamlet.conf": conf}, env: map[string]string{"SECRET": "from the environment"}})
		if cfg.ConfigJSON != test.want {
			t.Errorf("%s\n gives %s\n want  %s", test.config, cfg.ConfigJSON, test.want)
		}
	}
	_, _, problems := readSetting(setting{files: map[string]string{"descriptor.json": string(writeSpec(spec)), "streamlet.conf": `flow { pipeline = p, streamlet = s
config {
count = 9223372036854775808
ratio = NaN
on = maybe
wait = soon
size = "2 minutes"
unset = 0x10p0
text { a = 1 }
cuont = 1
colour.of = blue
} }`}})
	wantPrefixes(t, problems, []string{
		"streamlet.conf:10:9: flow.config has 'cuont', which is no parameter of the streamlet; did you mean 'count'?", "streamlet.conf:11:1: flow.config has 'colour', which is no parameter",
		"streamlet.conf:3:9: flow.config.count is '9223372036854775808', but must be an INTEGER", "streamlet.conf:5:6: flow.config.on is 'maybe', but must be a BOOLEAN",
		"streamlet.conf:4:9: flow.config.ratio is 'NaN', but must be a DOUBLE", "streamlet.conf:7:8: flow.config.size is '2 minutes', but must be a MEMORY_SIZE",
		"streamlet.conf:9:6: flow.config.text is an object, but must be a text", "streamlet.conf:8:9: flow.config.unset is '0x10p0', but must be an INTEGER",
		"streamlet.conf:6:8: flow.config.wait is 'soon', but must be a DURATION",
	})
}

func TestWholeNumbersAreExact(t *testing.T) {
	for text, want := range map[string]int64{"9223372036854775807": 1<<63 - 1, " -5 ": -5, "1e3": 1000, "2.0": 2, "9007199254740992.0": 1 << 53} {
		if n, ok := wholeNumber(text); !ok || n != want {
			t.Errorf("%q is %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"9223372036854775808", "9007199254740994.0", "1e300", "1.5", "0x10p0", "Inf", "NaN", "", "five"} {
		if n, ok := wholeNumber(text); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestEachFileIsReadOnce(t *testing.T) {
	s := withConf(routerConf)
	reads := map[string]int{}
	_, _, problems := readConfig(nil, func(string) (string, bool) { return "", false }, func(path string) ([]byte, error) {
		name := strings.TrimPrefix(path, "/etc/flow/config/")
		reads[name]++
		return []byte(s.files[name]), nil
	})
	if len(problems) > 0 || reads["descriptor.json"] != 1 || reads["streamlet.conf"] != 1 {
		t.Errorf("read %v, %q", reads, problems)
	}
}

func TestDescriptorOfThePythonSDKIsRead(t *testing.T) {
	descriptor, err := os.ReadFile("testdata/descriptor-python-cart-router.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg := good(t, setting{files: map[string]string{"descriptor.json": string(descriptor), "streamlet.conf": strings.Replace(routerConf, "review-threshold = 250", "", 1)}})
	if cfg.ConfigJSON != `{"review-threshold":100}` {
		t.Errorf("ConfigJSON is %s", cfg.ConfigJSON)
	}
}
