package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// exitFound is check's code for a problem with Kafka or the process.
const exitFound = 1

type findingLevel string

const (
	fine      findingLevel = "ok"
	doubtful  findingLevel = "warning"
	forbidden findingLevel = "problem" // it does not work like that
)

// finding is one thing that check saw, in words that name the place and, unless it is fine, what to do.
type finding struct {
	Level findingLevel `json:"level"`
	About string       `json:"about"` // configuration, inlet 'in', outlet 'out' or process
	Text  string       `json:"text"`
}

// findings are those about one thing. Its owner alone adds to them.
type findings struct {
	about string
	list  []finding
}

func (f *findings) ok(format string, values ...any)      { f.add(fine, format, values...) }
func (f *findings) warn(format string, values ...any)    { f.add(doubtful, format, values...) }
func (f *findings) problem(format string, values ...any) { f.add(forbidden, format, values...) }

func (f *findings) add(level findingLevel, format string, values ...any) {
	f.list = append(f.list, finding{level, f.about, fmt.Sprintf(format, values...)})
}

// checkReport is all that check has to say.
type checkReport struct {
	Exit     int           `json:"exit"`
	Version  string        `json:"version"`
	Summary  *checkSummary `json:"would_run"` // nil when the configuration has problems
	Findings []finding     `json:"findings"`
}

// checkSummary is what would run.
type checkSummary struct {
	Variables  []VariableValue   `json:"variables"`
	Pipeline   string            `json:"pipeline"`
	Streamlet  string            `json:"streamlet"`
	Descriptor string            `json:"descriptor"` // its streamlet's name
	Parameters map[string]string `json:"parameters"` // as JSON; not a secret's
	Inlets     []portSummary     `json:"inlets"`
	Outlets    []portSummary     `json:"outlets"`
}

// portSummary is what a port would do.
type portSummary struct {
	Name       string              `json:"name"`
	Topic      string              `json:"topic"`
	Servers    []string            `json:"bootstrap_servers"`
	ClientID   string              `json:"client_id"`
	Group      string              `json:"group,omitempty"`
	InstanceID string              `json:"group_instance_id,omitempty"` // empty for a dynamic member
	MaxRecords int                 `json:"batch_max_records,omitempty"`
	MaxBytes   int64               `json:"batch_max_bytes,omitempty"`
	Properties []EffectiveProperty `json:"properties"`
}

// checkOptions are check's own arguments.
type checkOptions struct{ kafka, process, json bool }

// parse takes the options out of the arguments and returns the others.
func (o *checkOptions) parse(args []string) (rest []string) {
	for _, arg := range args {
		switch strings.Replace(arg, "--", "-", 1) {
		case "-kafka":
			o.kafka = true
		case "-process":
			o.process = true
		case "-json":
			o.json = true
		default:
			rest = append(rest, arg)
		}
	}
	return rest
}

// check reads what start-up reads, by the same code, and says all that is wrong with it and what would run. It starts
// nothing, and what it asks of Kafka and the process changes nothing there. It returns the exit code.
func check(ctx context.Context, w world) int {
	var options checkOptions
	args := options.parse(w.args)
	cfg, warnings, problems := readConfig(args, w.lookupEnv, w.files.ReadFile)
	configuration := &findings{about: "configuration"}
	for _, text := range warnings {
		configuration.warn("%s", text)
	}
	for _, text := range problems {
		configuration.problem("%s", text)
	}
	checkClaims(cfg, w, configuration)

	report := &checkReport{Version: sidecarVersion(), Findings: configuration.list}
	switch {
	case report.has(forbidden):
		report.Exit = exitConfiguration
		if options.kafka || options.process {
			configuration.warn("neither Kafka nor the process is asked until these problems are mended")
			report.Findings = configuration.list
		}
	default:
		report.Summary = summarize(cfg)
		report.Findings = append(report.Findings, checkBounds(cfg)...)
		report.Findings = append(report.Findings, checkOutside(ctx, cfg, w, options)...)
		if report.has(forbidden) {
			report.Exit = exitFound
		}
	}
	report.write(w, options)
	return report.Exit
}

func (r *checkReport) has(level findingLevel) bool { return r.count(level) > 0 }

func (r *checkReport) count(level findingLevel) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// checkOutside asks Kafka and the process, all at once, and returns what was found in the order of the summary.
func checkOutside(ctx context.Context, cfg *Config, w world, options checkOptions) []finding {
	var asked []*findings
	var asking sync.WaitGroup
	ask := func(about string, question func(*findings)) {
		f := &findings{about: about}
		asked = append(asked, f)
		asking.Go(func() { question(f) })
	}
	if options.kafka {
		for i := range cfg.Inlets {
			ask("inlet "+quote(cfg.Inlets[i].Name), func(f *findings) { checkInlet(ctx, &cfg.Inlets[i], w.network, f) })
		}
		for i := range cfg.Outlets {
			ask("outlet "+quote(cfg.Outlets[i].Name), func(f *findings) { checkOutlet(ctx, &cfg.Outlets[i], w.network, f) })
		}
	}
	if options.process {
		ask("process", func(f *findings) { checkProcess(ctx, cfg, w, f) })
	}
	asking.Wait()
	var all []finding
	for _, f := range asked {
		all = append(all, f.list...)
	}
	return all
}

// checkClaims looks whether start-up could take the metrics port and the state directory, and leaves both as they are: a
// sidecar may run here already.
func checkClaims(cfg *Config, w world, f *findings) {
	if cfg.MetricsPort > 0 {
		listener, err := w.network.listen("tcp", net.JoinHostPort("", strconv.Itoa(cfg.MetricsPort)))
		switch {
		case err == nil:
			_ = listener.Close()
		case servesMetrics(w.network, cfg.MetricsPort):
			f.warn("%s", portProblem(cfg.MetricsPort, err, true))
		default:
			f.problem("%s", portProblem(cfg.MetricsPort, err, false))
		}
	}
	_, err := w.files.ReadFile(cfg.StateDir)
	missing := errors.Is(err, fs.ErrNotExist)
	probe := filepath.Join(cfg.StateDir, ".check")
	err = w.files.MkdirAll(cfg.StateDir)
	if err == nil {
		err = w.files.WriteFile(probe, nil)
	}
	if err != nil {
		f.problem("%s", stateDirProblem(cfg.StateDir, err))
		return
	}
	_ = w.files.Remove(probe)
	if missing {
		_ = w.files.Remove(cfg.StateDir) // start-up makes it, as the user that it runs as
	}
}

func summarize(cfg *Config) *checkSummary {
	s := &checkSummary{
		Variables: cfg.Variables, Pipeline: cfg.Pipeline, Streamlet: cfg.Streamlet, Descriptor: cfg.Spec.GetStreamlet().GetName(), Parameters: map[string]string{},
		Inlets: []portSummary{}, Outlets: []portSummary{},
	}
	var parameters map[string]json.RawMessage
	_ = json.Unmarshal([]byte(cfg.ConfigJSON), &parameters) // it was written by readConfig
	for key, value := range parameters {
		s.Parameters[key] = shorten(string(value))
		if secret(key) {
			s.Parameters[key] = "(not shown)"
		}
	}
	port := func(p *PortConfig, c Connection) portSummary {
		return portSummary{Name: p.Name, Topic: p.Topic, Servers: p.BootstrapServers, ClientID: p.ClientID, Properties: c.Properties}
	}
	for i := range cfg.Inlets {
		in := &cfg.Inlets[i]
		p := port(&in.PortConfig, in.Consumer.Connection)
		p.Group, p.InstanceID, p.MaxRecords, p.MaxBytes = in.Group, staticIdentity(in, cfg.PodName), in.BatchMaxRecords, in.BatchMaxBytes
		s.Inlets = append(s.Inlets, p)
	}
	for i := range cfg.Outlets {
		s.Outlets = append(s.Outlets, port(&cfg.Outlets[i].PortConfig, cfg.Outlets[i].Producer.Connection))
	}
	return s
}

// checkBounds lists the time bounds that hold between the effective properties. Those that do not, readConfig has told.
func checkBounds(cfg *Config) []finding {
	var all []finding
	bound := func(f *findings, holds bool, format string, values ...any) {
		if holds {
			f.ok("time bound: "+format, values...)
		}
	}
	for i := range cfg.Inlets {
		in := &cfg.Inlets[i]
		f := &findings{about: "inlet " + quote(in.Name)}
		rebalance := in.Consumer.RebalanceTimeout
		if heartbeat, session, ok := in.Consumer.Connection.millis("heartbeat.interval.ms", "session.timeout.ms"); ok {
			bound(f, 3*heartbeat <= session, "3 × heartbeat.interval.ms (%d) <= session.timeout.ms (%d)", heartbeat, session)
			bound(f, cfg.ReconnectMaxBackoff.Milliseconds() <= session, "FLOW_RECONNECT_MAX_BACKOFF (%v) <= session.timeout.ms (%d)", cfg.ReconnectMaxBackoff, session)
		}
		bound(f, revokeWork < rebalance, "giving up a partition (%v) < max.poll.interval.ms (%d)", revokeWork, rebalance.Milliseconds())
		all = append(all, f.list...)
	}
	for i := range cfg.Outlets {
		f := &findings{about: "outlet " + quote(cfg.Outlets[i].Name)}
		delivery := cfg.Outlets[i].Producer.DeliveryTimeout.Milliseconds()
		if request, linger, ok := cfg.Outlets[i].Producer.Connection.millis("request.timeout.ms", "linger.ms"); ok {
			bound(f, request+linger <= delivery, "request.timeout.ms (%d) + linger.ms (%d) <= delivery.timeout.ms (%d)", request, linger, delivery)
		}
		all = append(all, f.list...)
	}
	return all
}

// millis are the values of two properties that are numbers of milliseconds, unless one is not in use.
func (c Connection) millis(a, b string) (av, bv int64, ok bool) {
	number := func(name string) (int64, bool) {
		i := slices.IndexFunc(c.Properties, func(p EffectiveProperty) bool { return p.Name == name })
		if i < 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(c.Properties[i].Value, 10, 64)
		return n, err == nil
	}
	av, aok := number(a)
	bv, bok := number(b)
	return av, bv, aok && bok
}
