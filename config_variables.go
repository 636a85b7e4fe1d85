package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// variable is one environment variable, which may also be given as an argument.
type variable struct {
	name, byDefault, meaning string
	set                      func(cfg *Config, text string) error // the error ends the sentence "it must be"
}

// VariableValue is a variable's value, for a person to read.
type VariableValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // default, environment or argument
}

// argument is what v is called behind -D.
func (v variable) argument() string {
	return strings.ToLower(strings.ReplaceAll(v.name, "_", "."))
}

// variables are all of them (seeds: Environment; the last three are this sidecar's own).
func variables() []variable {
	return []variable{
		{"FLOW_PROCESS_ADDRESS", "127.0.0.1:9010", "host:port of the streamlet's process", setHostPort(func(cfg *Config) *string { return &cfg.ProcessAddress })},
		{"FLOW_CONFIG_DIR", "/etc/flow/config", "the directory of descriptor.json and streamlet.conf", setText(func(cfg *Config) *string { return &cfg.ConfigDir })},
		{"FLOW_STATE_DIR", "/tmp/flow", "the directory where the files ready and alive are written", setText(func(cfg *Config) *string { return &cfg.StateDir })},
		{"FLOW_METRICS_PORT", "2050", "the port of the Prometheus metrics", setMetricsPort},
		{"FLOW_DISCOVERY_TIMEOUT", "60s", "the deadline of one discovery call; attempts go on for ever",
			setDuration(time.Millisecond, 24*time.Hour, func(cfg *Config) *time.Duration { return &cfg.DiscoveryTimeout })},
		{"FLOW_STALL_WARNING_AFTER", "5m", "how long a partition may go without a commit before a stall warning",
			setDuration(time.Millisecond, 365*24*time.Hour, func(cfg *Config) *time.Duration { return &cfg.StallWarningAfter })},
		{"FLOW_RECONNECT_MAX_BACKOFF", "30s", "the longest wait between conversations after failures",
			setDuration(500*time.Millisecond, 24*time.Hour, func(cfg *Config) *time.Duration { return &cfg.ReconnectMaxBackoff })},
		{"FLOW_POD_NAME", "", "the pod that stall warnings are recorded on; set by the operator", setText(func(cfg *Config) *string { return &cfg.PodName })},
		{"FLOW_POD_NAMESPACE", "", "the pod's namespace; set by the operator", setText(func(cfg *Config) *string { return &cfg.PodNamespace })},
		{"KUBERNETES_SERVICE_HOST", "", "the host of the API server that takes the warnings; set by Kubernetes", setText(func(cfg *Config) *string { return &cfg.KubernetesHost })},
		{"KUBERNETES_SERVICE_PORT", "", "its port; set by Kubernetes", setKubernetesPort},
		{"FLOW_MAX_EMIT_BYTES", "64 MiB", "how much one batch may emit before its acknowledgement", setMaxEmitBytes},
		{"FLOW_LOG_FORMAT", "text", "text or json", setLogFormat},
		{"FLOW_LOG_LEVEL", "info", "debug, info, warn or error", setLogLevel},
	}
}

// usage explains the program: every variable with its default and what it means.
func usage() string {
	var text strings.Builder
	text.WriteString(`usage: ankka-flow-sidecar [-Dname=value ...]
       ankka-flow-sidecar check [-kafka] [-process] [-json] [-Dname=value ...]
       ankka-flow-sidecar --version | --help

Runs beside a streamlet's process and owns everything Kafka for it.

check reads what start-up reads, tells every problem and what would run, and starts nothing. With -kafka it also asks
the brokers, and changes nothing there; with -process it asks the process what it is. -json writes one JSON document.
It exits with 0, with 1 for a problem with Kafka or the process, or with 2 for one of the configuration.

Each environment variable below can also be given as an argument, which then counts: FLOW_PROCESS_ADDRESS as
-Dflow.process.address=host:port. An empty one counts as not set. Durations and sizes are HOCON's: 500ms, 30s, 5m, 64 MiB.

`)
	for _, v := range variables() {
		byDefault := ""
		if v.byDefault != "" {
			byDefault = " (default " + v.byDefault + ")"
		}
		fmt.Fprintf(&text, "  %-27s %s%s\n", v.name, v.meaning, byDefault)
	}
	return text.String()
}

// readVariables sets what arguments, the environment and the defaults say, in this order. What is wrong is a problem, and
// has its default.
func (r *configReader) readVariables(args []string, lookupEnv func(string) (string, bool)) {
	known := variables()
	given := r.readArguments(args, known)
	for _, v := range known {
		if v.byDefault != "" {
			if err := v.set(r.cfg, v.byDefault); err != nil {
				r.problem("%s: its default must be %v", v.name, err) // a mistake in the table, which every test would see
			}
		}
		name, text, from := "-D"+v.argument(), strings.TrimSpace(given[v.argument()]), "argument"
		if text == "" {
			fromEnv, _ := lookupEnv(v.name)
			name, text, from = v.name, strings.TrimSpace(fromEnv), "environment"
		}
		if text == "" {
			from = "default"
		}
		r.cfg.Variables = append(r.cfg.Variables, VariableValue{v.name, cmp.Or(text, v.byDefault), from})
		if text != "" {
			if err := v.set(r.cfg, text); err != nil {
				r.problem("%s is %s, but must be %v", name, quote(text), err)
			}
		}
	}
	if r.cfg.MaxEmitBytes < maxMessageBytes {
		r.warn("FLOW_MAX_EMIT_BYTES is %d bytes, less than the %d that one emit may have: a batch with a larger one always fails", r.cfg.MaxEmitBytes, maxMessageBytes)
	}
}

// readArguments returns the values by name, in lower case with dots.
func (r *configReader) readArguments(args []string, known []variable) map[string]string {
	var names []string
	for _, v := range known {
		names = append(names, v.argument())
	}
	given := map[string]string{}
	for _, arg := range args {
		name, value, hasValue := strings.Cut(arg, "=")
		property, isProperty := strings.CutPrefix(name, "-D")
		switch {
		case !isProperty:
			r.problem("argument %s is unknown; there are -Dname=value, --help, --version and the command check with -kafka, -process and -json%s", quote(name), suggest(name, []string{"check", "-kafka", "-process", "-json"}))
		case !slices.Contains(names, property) && strings.HasPrefix(property, "flow."):
			r.problem("argument %s is unknown%s", quote(name), suggest(property, names))
		case !slices.Contains(names, property):
			r.warn("argument %s has no effect: nothing reads it", quote(name))
		case !hasValue:
			r.problem("argument %s has no value; write %s=value", quote(name), name)
		default:
			given[property] = value
		}
	}
	return given
}

func setText(field func(*Config) *string) func(*Config, string) error {
	return func(cfg *Config, text string) error {
		*field(cfg) = text
		return nil
	}
}

func setHostPort(field func(*Config) *string) func(*Config, string) error {
	return func(cfg *Config, text string) error {
		if !isHostPort(text) {
			return errors.New("host:port, such as 127.0.0.1:9010 or [::1]:9010")
		}
		*field(cfg) = text
		return nil
	}
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && !strings.ContainsAny(host, " \t/") && isPort(port)
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

func setMetricsPort(cfg *Config, text string) error {
	if !isPort(text) {
		return errors.New("a port from 1 to 65535")
	}
	cfg.MetricsPort, _ = strconv.Atoi(text) // isPort says that it is a number
	return nil
}

func setKubernetesPort(cfg *Config, text string) error {
	if !isPort(text) {
		return errors.New("a port from 1 to 65535")
	}
	cfg.KubernetesPort = text
	return nil
}

func setDuration(least, most time.Duration, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(cfg *Config, text string) error {
		d, err := parseDuration(text)
		if err != nil || d < least || d > most {
			return fmt.Errorf("a duration from %v to %gh, such as 500ms, 30s or 5m", least, most.Hours())
		}
		*field(cfg) = d
		return nil
	}
}

func setMaxEmitBytes(cfg *Config, text string) error {
	const most = 1 << 40
	size, err := parseByteSize(text)
	if err != nil || size < 1 || size > most {
		return errors.New("a size from 1 byte to 1 TiB, such as 64 MiB")
	}
	cfg.MaxEmitBytes = size
	return nil
}

func setLogFormat(cfg *Config, text string) error {
	format := strings.ToLower(text)
	if format != "text" && format != "json" {
		return errors.New("text or json")
	}
	cfg.LogFormat = format
	return nil
}

func setLogLevel(cfg *Config, text string) error {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[strings.ToLower(text)]
	if !ok {
		return errors.New("debug, info, warn or error")
	}
	cfg.LogLevel = level
	return nil
}
