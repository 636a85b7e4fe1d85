package main

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fieldOf returns a field of a Config by its name.
func fieldOf(cfg *Config, name string) any {
	return reflect.ValueOf(*cfg).FieldByName(name).Interface()
}

func TestEachVariableIsReadFromTheEnvironmentAndFromAnArgumentWhichCounts(t *testing.T) {
	for _, test := range []struct {
		name, field, value string
		want               any
		argument           string // another value
		wantFromArgument   any
		byDefault          any
	}{
		{"FLOW_PROCESS_ADDRESS", "ProcessAddress", "host.docker.internal:9010", "host.docker.internal:9010", "[::1]:1", "[::1]:1", "127.0.0.1:9010"},
		{"FLOW_STATE_DIR", "StateDir", "/run/flow", "/run/flow", "state", "state", "/tmp/flow"},
		{"FLOW_METRICS_PORT", "MetricsPort", "65535", 65535, "1", 1, 2050},
		{"FLOW_DISCOVERY_TIMEOUT", "DiscoveryTimeout", "500ms", 500 * time.Millisecond, "1.5 m", 90 * time.Second, time.Minute},
		{"FLOW_STALL_WARNING_AFTER", "StallWarningAfter", "1 hour", time.Hour, "250", 250 * time.Millisecond, 5 * time.Minute},
		{"FLOW_RECONNECT_MAX_BACKOFF", "ReconnectMaxBackoff", "500ms", 500 * time.Millisecond, "45s", 45 * time.Second, 30 * time.Second},
		{"FLOW_POD_NAME", "PodName", "router-0", "router-0", "router-1", "router-1", ""},
		{"FLOW_POD_NAMESPACE", "PodNamespace", "shop", "shop", "other", "other", ""},
		{"KUBERNETES_SERVICE_HOST", "KubernetesHost", "10.0.0.1", "10.0.0.1", "fd00::1", "fd00::1", ""},
		{"KUBERNETES_SERVICE_PORT", "KubernetesPort", "443", "443", "6443", "6443", ""},
		{"FLOW_MAX_EMIT_BYTES", "MaxEmitBytes", "8M", int64(8 << 20), "1 GiB", int64(1 << 30), int64(64 << 20)},
		{"FLOW_LOG_FORMAT", "LogFormat", "JSON", "json", "text", "text", "text"},
		{"FLOW_LOG_LEVEL", "LogLevel", "Debug", slog.LevelDebug, "error", slog.LevelError, slog.LevelInfo},
		{"FLOW_CONFIG_DIR", "ConfigDir", "/config", "/config", "/config", "/config", "/etc/flow/config"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := withConf(routerConf)
			if got := fieldOf(good(t, s), test.field); got != test.byDefault {
				t.Errorf("default is %v", got)
			}
			s.env = map[string]string{test.name: " " + test.value + " "}
			if test.field == "ConfigDir" {
				s.env[test.name] = test.value
			}
			if got := fieldOf(good(t, s), test.field); got != test.want {
				t.Errorf("from the environment %v, want %v", got, test.want)
			}
			argument := "-D" + strings.ToLower(strings.ReplaceAll(test.name, "_", "."))
			s.args = []string{argument + "=ignored", argument + "=" + test.argument}
			if got := fieldOf(good(t, s), test.field); got != test.wantFromArgument {
				t.Errorf("from the argument %v, want %v", got, test.wantFromArgument)
			}
			s.args = []string{argument + "="}
			if got := fieldOf(good(t, s), test.field); got != test.want {
				t.Errorf("with an empty argument %v, want %v", got, test.want)
			}
			if test.field != "ConfigDir" {
				s.env[test.name] = ""
				if got := fieldOf(good(t, s), test.field); got != test.byDefault {
					t.Errorf("with an empty variable %v, want %v", got, test.byDefault)
				}
			}
			if !strings.Contains(usage(), test.name) {
				t.Error("usage does not name it")
			}
		})
	}
}

func TestAVariableOutOfRangeIsAProblemThatNamesItAndWhatIsAllowed(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"FLOW_PROCESS_ADDRESS", "localhost", "must be host:port, such as 127.0.0.1:9010 or [::1]:9010"},
		{"FLOW_PROCESS_ADDRESS", ":9010", "must be host:port"},
		{"FLOW_PROCESS_ADDRESS", "::1:9010", "must be host:port"},
		{"FLOW_PROCESS_ADDRESS", "http://localhost:9010", "must be host:port"},
		{"FLOW_PROCESS_ADDRESS", "my host:9010", "must be host:port"},
		{"FLOW_PROCESS_ADDRESS", "//localhost:9010", "must be host:port"},
		{"FLOW_PROCESS_ADDRESS", "localhost:0", "must be host:port"},
		{"FLOW_METRICS_PORT", "0", "must be a port from 1 to 65535"},
		{"FLOW_METRICS_PORT", "65536", "must be a port from 1 to 65535"},
		{"FLOW_METRICS_PORT", "http", "must be a port from 1 to 65535"},
		{"KUBERNETES_SERVICE_PORT", "https", "must be a port from 1 to 65535"},
		{"FLOW_DISCOVERY_TIMEOUT", "0", "must be a duration from 1ms to 24h, such as 500ms, 30s or 5m"},
		{"FLOW_DISCOVERY_TIMEOUT", "25h", "must be a duration from 1ms to 24h"},
		{"FLOW_STALL_WARNING_AFTER", "-5m", "must be a duration from 1ms to 8760h"},
		{"FLOW_STALL_WARNING_AFTER", "366d", "must be a duration from 1ms to 8760h"},
		{"FLOW_RECONNECT_MAX_BACKOFF", "499ms", "must be a duration from 500ms to 24h"},
		{"FLOW_RECONNECT_MAX_BACKOFF", "thirty", "must be a duration from 500ms to 24h"},
		{"FLOW_MAX_EMIT_BYTES", "0", "must be a size from 1 byte to 1 TiB, such as 64 MiB"},
		{"FLOW_MAX_EMIT_BYTES", "2 TiB", "must be a size from 1 byte to 1 TiB"},
		{"FLOW_MAX_EMIT_BYTES", "64 miles", "must be a size from 1 byte to 1 TiB"},
		{"FLOW_LOG_FORMAT", "xml", "must be text or json"},
		{"FLOW_LOG_LEVEL", "loud", "must be debug, info, warn or error"},
	} {
		s := withConf(routerConf)
		s.env = map[string]string{test.name: test.value}
		_, _, problems := readSetting(s)
		wantPrefixes(t, problems, []string{test.name + " is " + quote(test.value) + ", but " + test.want})
		argument := "-D" + strings.ToLower(strings.ReplaceAll(test.name, "_", "."))
		s.env, s.args = nil, []string{argument + "=" + test.value}
		_, _, problems = readSetting(s)
		wantPrefixes(t, problems, []string{argument + " is " + quote(test.value) + ", but " + test.want})
	}
}

func TestArgumentsThatNobodyKnows(t *testing.T) {
	s := withConf(routerConf)
	s.args = []string{"-Dflow.proces.address=a:1", "-Xmx512m", "check", "--verbose=hunter2", "-Dflow.metrics.port", "-Dfile.encoding=UTF-8", "-DFLOW_METRICS_PORT=2051", "-Dflow.colour=blue"}
	cfg, warnings, problems := readSetting(s)
	wantPrefixes(t, problems, []string{
		"argument '-Dflow.proces.address' is unknown; did you mean 'flow.process.address'?", "argument '-Xmx512m' is unknown; there are -Dname=value, --help, --version and the command check with -kafka, -process and -json",
		"argument 'check' is unknown", "argument '--verbose' is unknown", "argument '-Dflow.metrics.port' has no value; write -Dflow.metrics.port=value", "argument '-Dflow.colour' is unknown"})
	wantPrefixes(t, warnings, []string{"argument '-Dfile.encoding' has no effect: nothing reads it", "argument '-DFLOW_METRICS_PORT' has no effect: nothing reads it"})
	if cfg.MetricsPort != 2050 {
		t.Errorf("MetricsPort is %d", cfg.MetricsPort)
	}
}

func TestSmallBudgetOfEmitsIsAWarning(t *testing.T) {
	for value, want := range map[string][]string{"4 MiB": nil, "4194303": {"FLOW_MAX_EMIT_BYTES is 4194303 bytes, less than the 4194304 that one emit may have"}} {
		s := withConf(routerConf)
		s.env = map[string]string{"FLOW_MAX_EMIT_BYTES": value}
		_, warnings, problems := readSetting(s)
		wantPrefixes(t, problems, nil)
		wantPrefixes(t, warnings, want)
	}
}

func TestLogSettingsAreKnownWhateverElseIsWrong(t *testing.T) {
	cfg, _, problems := readSetting(setting{args: []string{"-Dflow.log.format=json", "nonsense"}, env: map[string]string{"FLOW_LOG_LEVEL": "warn", "FLOW_METRICS_PORT": "x"}})
	if len(problems) == 0 || cfg.LogFormat != "json" || cfg.LogLevel != slog.LevelWarn {
		t.Errorf("%+v, %q", cfg, problems)
	}
	cfg, _, problems = readSetting(setting{env: map[string]string{"FLOW_LOG_LEVEL": "x", "FLOW_LOG_FORMAT": "x"}})
	if len(problems) == 0 || cfg.LogFormat != "text" || cfg.LogLevel != slog.LevelInfo {
		t.Errorf("%+v, %q", cfg, problems)
	}
}

func TestUsageNamesDefaultsAndMeanings(t *testing.T) {
	for _, want := range []string{"FLOW_PROCESS_ADDRESS        host:port of the streamlet's process (default 127.0.0.1:9010)\n", "(default 64 MiB)", "-Dflow.process.address=host:port", "FLOW_POD_NAME "} {
		if !strings.Contains(usage(), want) {
			t.Errorf("usage has no %q:\n%s", want, usage())
		}
	}
}
