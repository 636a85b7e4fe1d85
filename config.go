package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// Config is everything the sidecar was told, checked as a whole and never changed afterwards.
type Config struct {
	ProcessAddress      string // host:port of the streamlet's process
	ConfigDir           string
	StateDir            string
	MetricsPort         int
	DiscoveryTimeout    time.Duration // of one call
	StallWarningAfter   time.Duration
	ReconnectMaxBackoff time.Duration
	MaxEmitBytes        int64  // held emits of one batch
	PodName             string // empty outside Kubernetes
	PodNamespace        string
	KubernetesHost      string // empty outside Kubernetes
	KubernetesPort      string
	LogFormat           string // "text" or "json"
	LogLevel            slog.Level
	Variables           []VariableValue // what all of the above was read from

	Pipeline   string
	Streamlet  string         // its place in the pipeline, as streamlet.conf names it
	ConfigJSON string         // Start.config_json
	Spec       *flowv1.Spec   // as deployed
	Inlets     []InletConfig  // sorted by name
	Outlets    []OutletConfig // sorted by name
}

// PortConfig is what an inlet and an outlet have in common.
type PortConfig struct {
	Name             string
	Topic            string
	ClientID         string
	BootstrapServers []string // host:port each
}

// InletConfig is one inlet's topic, group and consumer.
type InletConfig struct {
	PortConfig
	Group           string
	BatchMaxRecords int
	BatchMaxBytes   int64 // key + value + headers
	Consumer        ConsumerSettings
}

// OutletConfig is one outlet's topic and producer.
type OutletConfig struct {
	PortConfig
	Producer ProducerSettings
}

// readConfig reads arguments, environment, descriptor.json and streamlet.conf, and checks them together. Every problem of
// all of them is returned at once, for a person to mend; with one the Config is of no use but for its log settings, which
// are always set. lookupEnv also answers the substitutions of streamlet.conf. readFile answers as os.ReadFile does; the
// files that Kafka properties name are read by it later too, for new connections.
func readConfig(args []string, lookupEnv func(string) (string, bool), readFile func(string) ([]byte, error)) (cfg *Config, warnings, problems []string) {
	r := configReader{cfg: &Config{}, outside: outside{readFile, lookupEnv}}
	r.readVariables(args, lookupEnv)
	r.readFiles(lookupEnv, readFile)
	r.checkTogether()
	return r.cfg, r.warnings, r.problems
}

// configReader collects what is read and what is wrong with it.
type configReader struct {
	cfg                *Config
	outside            outside
	warnings, problems []string
}

func (r *configReader) problem(format string, values ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, values...))
}

func (r *configReader) warn(format string, values ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, values...))
}

const (
	descriptorFile = "descriptor.json"
	streamletFile  = "streamlet.conf"
)

// readFiles reads the two files of the configuration directory.
func (r *configReader) readFiles(lookupEnv func(string) (string, bool), readFile func(string) ([]byte, error)) {
	dir := r.cfg.ConfigDir
	descriptor, descriptorErr := readFile(filepath.Join(dir, descriptorFile))
	conf, confErr := readFile(filepath.Join(dir, streamletFile))
	if errors.Is(descriptorErr, fs.ErrNotExist) && errors.Is(confErr, fs.ErrNotExist) {
		what := "is empty, or what is in it is not meant for the sidecar: it has neither descriptor.json nor streamlet.conf"
		if _, err := readFile(dir); errors.Is(err, fs.ErrNotExist) {
			what = "does not exist"
		}
		r.problem("FLOW_CONFIG_DIR: the directory %s %s; mount the configuration there, or set FLOW_CONFIG_DIR to where it is", quote(dir), what)
		return
	}

	if descriptorErr != nil {
		r.unreadable(descriptorFile, "write it with the SDK's descriptor command", descriptorErr)
	} else {
		spec, problems := readSpec(descriptorFile, descriptor)
		if spec != nil {
			for _, problem := range validateSpec(spec) {
				problems = append(problems, descriptorFile+": "+problem)
			}
		}
		r.cfg.Spec, r.problems = spec, append(r.problems, problems...)
	}

	if confErr != nil {
		r.unreadable(streamletFile, "it names the pipeline, the streamlet and each port's topic", confErr)
		return
	}
	path := filepath.Join(dir, streamletFile)
	root, err := readHOCON(path, func(name string) ([]byte, error) {
		if name == path {
			return conf, nil
		}
		return readFile(name)
	}, lookupEnv)
	if err != nil {
		for _, problem := range joinedErrors(err) {
			r.problem("%v", problem)
		}
		return
	}
	(&streamletReader{configReader: r}).read(root)
}

func (r *configReader) unreadable(file, what string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.problem("%s: there is no such file in %s; %s", file, quote(r.cfg.ConfigDir), what)
	case errors.Is(err, fs.ErrPermission):
		r.problem("%s: the file in %s may not be read; make it readable for the user that the sidecar runs as", file, quote(r.cfg.ConfigDir))
	default:
		r.problem("%s: the file in %s cannot be read: %v", file, quote(r.cfg.ConfigDir), err)
	}
}

// joinedErrors takes apart what errors.Join put together.
func joinedErrors(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// checkTogether checks what the ports, and the ports and the environment, say together.
func (r *configReader) checkTogether() {
	for i, inlet := range r.cfg.Inlets {
		if session := inlet.Consumer.SessionTimeout; session > 0 && r.cfg.ReconnectMaxBackoff > session {
			r.warn("FLOW_RECONNECT_MAX_BACKOFF (%v) is longer than session.timeout.ms (%d) of inlet %s: in a wait that long the sidecar leaves its consumer group, and other pods take its partitions",
				r.cfg.ReconnectMaxBackoff, session.Milliseconds(), quote(inlet.Name))
		}
		for _, other := range r.cfg.Inlets[i+1:] {
			if inlet.Topic != "" && inlet.Topic == other.Topic && inlet.Group == other.Group && sameCluster(inlet.PortConfig, other.PortConfig) {
				r.problem("%s: inlets %s and %s both read topic %s as group %s: each would get a part of it; give one of them another group",
					streamletFile, quote(inlet.Name), quote(other.Name), quote(inlet.Topic), quote(inlet.Group))
			}
			if inlet.ClientID == other.ClientID {
				r.warn("%s: inlets %s and %s have one client-id, %s: metrics tell ports apart by it", streamletFile, quote(inlet.Name), quote(other.Name), quote(inlet.ClientID))
			}
		}
		for _, outlet := range r.cfg.Outlets {
			if inlet.Topic != "" && inlet.Topic == outlet.Topic && sameCluster(inlet.PortConfig, outlet.PortConfig) {
				r.warn("%s: inlet %s reads topic %s, which outlet %s writes: what is emitted comes back", streamletFile, quote(inlet.Name), quote(inlet.Topic), quote(outlet.Name))
			}
		}
	}
	for i, outlet := range r.cfg.Outlets {
		for _, other := range r.cfg.Outlets[i+1:] {
			if outlet.ClientID == other.ClientID {
				r.warn("%s: outlets %s and %s have one client-id, %s: metrics tell ports apart by it", streamletFile, quote(outlet.Name), quote(other.Name), quote(outlet.ClientID))
			}
		}
	}
}

// sameCluster says that two ports have a broker in common.
func sameCluster(a, b PortConfig) bool {
	return slices.ContainsFunc(a.BootstrapServers, func(server string) bool { return slices.Contains(b.BootstrapServers, server) })
}
