// Command ankka-flow-sidecar runs beside a streamlet's process and owns everything Kafka for it: it reads the inlets'
// topics, hands batches to the process, writes what the process emits, and commits what is written.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
)

// Exit codes (seeds: Start-up and exit codes).
const (
	exitStopped       = 0
	exitRefused       = 1 // the process is not the deployed one
	exitConfiguration = 2
)

const (
	firstBackoff  = 500 * time.Millisecond
	fetchedAtMost = 32 << 20 // bytes of fetched records, all inlets together
)

// world is everything outside the program: run touches nothing else but the clock of package time.
type world struct {
	args      []string // without the program's name
	lookupEnv func(string) (string, bool)
	stdout    io.Writer
	network   network
	files     files
}

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, restore) // a second signal ends the program at once
	limitMemory(disk{}, os.LookupEnv)
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	os.Exit(run(ctx, world{
		args: os.Args[1:], lookupEnv: os.LookupEnv, stdout: os.Stdout, files: disk{},
		network: network{dial: dialer.DialContext, listen: net.Listen},
	}))
}

// sidecar is what lives from start-up to the end.
type sidecar struct {
	cfg     *Config
	log     *slog.Logger
	network network
	ready   *readiness
	inlets  map[string]*inlet
	outlets map[string]*outlet
	metrics *metrics
	streak  *streak

	lastBatch uint64 // the last conversation's last batch id
}

// run is the life of the sidecar: configuration, then conversations one after another until ctx ends or the process is
// refused. It returns the exit code.
func run(ctx context.Context, w world) int {
	if slices.Contains(w.args, "--help") || slices.Contains(w.args, "-h") {
		fmt.Fprint(w.stdout, usage())
		return exitStopped
	}
	if slices.Contains(w.args, "--version") {
		fmt.Fprintf(w.stdout, "ankka-flow-sidecar %s, commit %s, protocol %s, %s\n", sidecarVersion(), sidecarCommit(), protocolVersion, runtime.Version())
		return exitStopped
	}
	if i := slices.Index(w.args, "check"); i >= 0 {
		w.args = slices.Delete(slices.Clone(w.args), i, i+1)
		return check(ctx, w)
	}
	cfg, warnings, problems := readConfig(w.args, w.lookupEnv, w.files.ReadFile)
	log := newLog(w.stdout, cfg.LogFormat, cfg.LogLevel)
	listener, more := claim(cfg, w)
	problems = append(problems, more...)
	for _, warning := range warnings {
		log.Warn(warning)
	}
	if len(problems) > 0 {
		for _, problem := range problems {
			log.Error(problem)
		}
		log.Error("the configuration has problems, see above: not started", "problems", len(problems))
		if listener != nil {
			_ = listener.Close()
		}
		return exitConfiguration
	}
	return serve(ctx, cfg, w, listener, log)
}

// serve lives with a checked configuration until ctx ends or the process is refused. It owns the listener of the metrics
// port and returns the exit code.
func serve(ctx context.Context, cfg *Config, w world, listener net.Listener, log *slog.Logger) int {
	log.Info("starting", "pipeline", cfg.Pipeline, "streamlet", cfg.Streamlet, "process", cfg.ProcessAddress, "version", sidecarVersion())

	s := &sidecar{
		cfg: cfg, log: log, network: w.network, inlets: map[string]*inlet{}, outlets: map[string]*outlet{},
		ready: newReadiness(w.files, cfg.StateDir, cfg.Inlets, cfg.Outlets, log),
	}
	s.streak = newStreak(cfg, s.ready, log)
	budget := &memoryBudget{limit: fetchedAtMost}
	s.metrics = newMetrics(s.ready, budget)
	var inlets []*inlet
	var outlets []*outlet
	for i := range cfg.Inlets {
		in := newInlet(&cfg.Inlets[i], cfg.PodName, w.network, budget, s.ready, s.metrics.inlet(cfg.Inlets[i].Name), log)
		s.inlets[in.cfg.Name] = in
		inlets = append(inlets, in)
	}
	for i := range cfg.Outlets {
		o := &cfg.Outlets[i]
		out := &outlet{
			cfg: o, network: w.network, ready: s.ready, log: log.With("outlet", o.Name, "topic", o.Topic),
			troubles: newTroubles(o.Producer.Connection, o.Topic, log.With("outlet", o.Name)), stats: s.metrics.outlet(o.Name), java: newJavaClient(&o.PortConfig),
		}
		s.outlets[o.Name] = out
		outlets = append(outlets, out)
	}

	// Memberships end after the last conversation, the rest after them.
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	members, leave := context.WithCancel(life)
	var living, joined sync.WaitGroup
	living.Go(func() { keepAlive(life, w.files, cfg.StateDir, log) })
	living.Go(func() { serveMetrics(life, listener, newGatherer(s.metrics, inlets, outlets), log) })
	living.Go(func() { watchStalls(life, log, cfg, inlets, newRecorder(cfg, w.files, w.network)) })
	living.Go(func() { reportProgress(life, inlets) })
	for _, in := range inlets {
		joined.Go(func() { in.run(members) })
	}
	code := s.converseUntilStopped(ctx)
	s.ready.stop()
	leave()
	joined.Wait()
	endLife()
	living.Wait()
	log.Info("stopped", "exit", code)
	return code
}

// converseUntilStopped is the outer loop: discovery, conversation, backoff. It returns the exit code.
func (s *sidecar) converseUntilStopped(ctx context.Context) int {
	backoff, waited := firstBackoff, time.Duration(0)
	restarted := false
	elsewhere := usualPorts // until it has answered where it was to
	for {
		conn, away, err := discover(ctx, s.log, s.cfg, elsewhere, func(_ context.Context, address string) (*grpc.ClientConn, error) {
			return dialProcess(address, s.network.dial)
		}, s.metrics.discovered)
		var refused *refusal
		switch {
		case errors.As(err, &refused):
			for _, problem := range refused.problems {
				s.log.Error("the process is refused: " + problem)
			}
			return exitRefused
		case err != nil:
			return exitStopped
		}
		elsewhere = nil
		began := time.Now()
		id := uuid.NewString()
		err = s.converse(ctx, id, conn, waited, restarted || away)
		_ = conn.Close()
		s.metrics.ended(err)
		if ctx.Err() != nil {
			return exitStopped
		}
		// What a conversation has survived for so long is not what the wait was for (seeds: When something fails).
		if time.Since(began) > 2*s.cfg.ReconnectMaxBackoff {
			backoff = firstBackoff
		}
		s.streak.failed(id, err, time.Since(began), backoff)
		s.metrics.backoff.Set(backoff.Seconds())
		waitedOut := wait(ctx, backoff)
		s.metrics.backoff.Set(0)
		if !waitedOut {
			return exitStopped
		}
		waited, backoff = backoff, min(2*backoff, s.cfg.ReconnectMaxBackoff)
		var f *failure
		restarted = errors.As(err, &f) && f.gone
	}
}

// claim takes what the sidecar needs for itself: the metrics port and the state directory. An earlier run's ready file
// goes. It returns the port's listener and every problem.
func claim(cfg *Config, w world) (net.Listener, []string) {
	var problems []string
	listener, err := w.network.listen("tcp", net.JoinHostPort("", strconv.Itoa(cfg.MetricsPort)))
	if err != nil {
		problems = append(problems, portProblem(cfg.MetricsPort, err, servesMetrics(w.network, cfg.MetricsPort)))
	}
	if err := cmp.Or(w.files.MkdirAll(cfg.StateDir), w.files.Remove(filepath.Join(cfg.StateDir, "ready")), w.files.WriteFile(filepath.Join(cfg.StateDir, "alive"), nil)); err != nil {
		problems = append(problems, stateDirProblem(cfg.StateDir, err))
	}
	return listener, problems
}

// portProblem says why the metrics port cannot be had, and what to do. ours says that a sidecar has it.
func portProblem(port int, err error, ours bool) string {
	if ours {
		return fmt.Sprintf("FLOW_METRICS_PORT: port %d is taken by another ankka-flow-sidecar, which runs here already; end it, or give one of them another port", port)
	}
	return fmt.Sprintf("FLOW_METRICS_PORT: port %d cannot be served: %v; choose another or end who has it", port, err)
}

func stateDirProblem(dir string, err error) string {
	return fmt.Sprintf("FLOW_STATE_DIR: %s cannot be written: %v; it must be a directory that this user may write", dir, err)
}

// servesMetrics says that a sidecar answers on a port of this host.
func servesMetrics(network network, port int) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}
	answer, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/metrics")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	const enough = 1 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, enough))
	return err == nil && bytes.Contains(text, []byte("ankka_flow_sidecar_"))
}

func newLog(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// disk is the real one.
type disk struct{}

func (disk) ReadFile(name string) ([]byte, error)        { return os.ReadFile(name) }
func (disk) WriteFile(name string, content []byte) error { return os.WriteFile(name, content, 0o644) }
func (disk) MkdirAll(name string) error                  { return os.MkdirAll(name, 0o755) }
func (disk) Remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
