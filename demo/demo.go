package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// demo is one run: what it has started, and its story so far.
type demo struct {
	opts     options
	screen   *screen
	insisted context.Context // ends when nobody wants to wait for an orderly end

	dir     string // of everything that the demo writes
	brokers *brokers
	deployment
	address string // of the process
	process *child // nil when it is the user's
	sidecar *child // nil when it is not running
	metrics int    // the port
	traffic *traffic
	verdict *verdict

	watching    sync.WaitGroup
	endWatching context.CancelFunc
	story
}

// run is the demo from start to end. asked ends when somebody wants it to end, insisted when that is to be at once. It returns the exit code.
func run(asked, insisted context.Context, opts options, s *screen, stderr io.Writer) int {
	d := &demo{opts: opts, screen: s, insisted: insisted, endWatching: func() {}}
	findings, err := d.run(asked)
	s.end()
	left := d.close()
	interrupted := asked.Err() != nil && errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		fmt.Fprintln(stderr, "\ndemo:", err)
	}
	if left != nil {
		fmt.Fprintln(stderr, "\ndemo:", left)
	}
	switch {
	case interrupted && left == nil:
		s.print(line{}, line{{"  Interrupted: nothing was checked. All that was started is gone again.", warn}})
		return exitInterrupted
	case interrupted:
		return exitInterrupted
	case err != nil:
		return exitNoDemo
	}
	s.print(summary(findings)...)
	if failed(findings) {
		s.print(line{}, line{{"  NOT AS PROMISED: see ✗.", bad}})
		return exitNotAsItMust
	}
	s.print(line{}, line{{"  All as promised. ", good}, {"Next: -keep, -brokers host:port, -process host:port.", dim}})
	return exitFine
}

// run starts everything, shows it, and returns what the check found.
func (d *demo) run(asked context.Context) ([]finding, error) {
	if err := d.setUp(asked); err != nil {
		return nil, err
	}
	if err := d.show(asked); err != nil {
		return nil, err
	}
	return append(d.verdict.findings(), d.story.findings()...), nil
}

// setUp starts everything, each thing with a line about it, until the sidecar is ready.
func (d *demo) setUp(ctx context.Context) (err error) {
	d.screen.print(line{{"  Carts in a Kafka topic, a streamlet that routes them, the sidecar in between.", dim}})
	if d.dir, err = os.MkdirTemp("", "ankka-flow-demo-"); err != nil {
		return fmt.Errorf("there is no directory to work in: %w", err)
	}
	binary := d.opts.sidecar
	if binary == "" {
		began := time.Now()
		done := d.screen.step("build", "the sidecar …")
		if binary, err = buildSidecar(ctx, d.dir); err != nil {
			done("failed")
			return err
		}
		done(fmt.Sprintf("the sidecar, in %.1f s", time.Since(began).Seconds()))
	}
	if err := d.reachBrokers(ctx); err != nil {
		return err
	}
	if err := d.deployment.write(d.dir); err != nil {
		return fmt.Errorf("the sidecar's configuration could not be written: %w", err)
	}
	if d.opts.process == "" {
		if err := d.startProcess(); err != nil {
			return err
		}
		d.say("process", fmt.Sprintf("%s, pid %d, at %s", d.spec.GetStreamlet().GetName(), d.process.pid(), d.address))
	}
	if d.metrics = d.opts.metricsPort; d.metrics == 0 {
		if d.metrics, err = freePort(); err != nil {
			return err
		}
	}
	env := environment("FLOW_CONFIG_DIR="+d.dir, "FLOW_STATE_DIR="+filepath.Join(d.dir, "state"),
		"FLOW_PROCESS_ADDRESS="+d.address, fmt.Sprint("FLOW_METRICS_PORT=", d.metrics))
	if d.sidecar, err = start("the sidecar", env, binary); err != nil {
		return err
	}
	d.say("sidecar", fmt.Sprintf("pid %d, metrics at http://127.0.0.1:%d/metrics", d.sidecar.pid(), d.metrics))
	d.say("files", d.dir)
	return d.awaitReady(ctx)
}

// reachBrokers finds out which streamlet it is about, starts or reaches Kafka, and creates the topics.
func (d *demo) reachBrokers(ctx context.Context) error {
	spec := cartSpec()
	if d.address = d.opts.process; d.address != "" {
		var err error
		if spec, err = askProcess(ctx, d.address); err != nil {
			return err
		}
		d.say("process", fmt.Sprintf("%s, yours, at %s", spec.GetStreamlet().GetName(), d.address))
	}
	var err error
	if d.brokers, err = connect(ctx, d.opts.brokers); err != nil {
		return err
	}
	d.deployment, err = d.brokers.deploy(ctx, func(suffix string) deployment { return deploy(spec, suffix) })
	if err != nil {
		return err
	}
	d.traffic, d.verdict = newTraffic(d.brokers, d.deployment), newVerdict(d.deployment)
	if d.brokers.fake != nil {
		d.say("kafka", "franz-go's kfake, in this process, at "+strings.Join(d.servers, ", "))
		return nil
	}
	d.say("kafka", "yours, at "+strings.Join(d.servers, ", "))
	d.say("topics", strings.Join(d.topics(), ", "))
	why := "created for this run, deleted at its end"
	if !strings.HasSuffix(d.group, d.inlet.name) {
		why += "; the names without a suffix are taken"
	}
	d.say("", why)
	return nil
}

// startProcess starts the demo's own process, the first time on a port that is free.
func (d *demo) startProcess() error {
	if d.address == "" {
		port, err := freePort()
		if err != nil {
			return err
		}
		d.address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the demo cannot start itself as the streamlet's process: %w", err)
	}
	_, port, _ := net.SplitHostPort(d.address)
	d.process, err = start("the cart process", environment("FLOW_PROCESS_PORT="+port), self, cartRole)
	return err
}

// say tells of something that was started.
func (d *demo) say(what, text string) { d.screen.print(step(what, text)) }

// close ends and removes everything that was started or created, in the order in which nobody misses anything.
func (d *demo) close() error {
	var left []error
	if d.sidecar != nil {
		d.sidecar.stop(5*time.Second, d.insisted.Done())
	}
	if d.process != nil {
		d.process.kill()
	}
	d.endWatching()
	d.watching.Wait()
	if d.brokers != nil {
		left = append(left, d.brokers.close())
	}
	if d.dir != "" {
		left = append(left, os.RemoveAll(d.dir))
	}
	return errors.Join(left...)
}

// askProcess asks a process what it is.
func askProcess(ctx context.Context, address string) (*flowv1.Spec, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("-process: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	spec, err := flowv1.NewDiscoveryClient(conn).Discover(ctx, &flowv1.SidecarInfo{ProtocolVersion: "1.0", SidecarVersion: "demo"})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("-process: what listens at %s is not a streamlet process", address)
	case strings.Contains(status.Convert(err).Message(), "connection refused"):
		return nil, fmt.Errorf("-process: nothing listens at %s (connection refused). Is the process running?", address)
	case err != nil:
		return nil, fmt.Errorf("-process: no streamlet process answers at %s: %s", address, status.Convert(err).Message())
	case len(spec.GetStreamlet().GetInlets()) != 1:
		return nil, fmt.Errorf("-process: the demo feeds a streamlet with one inlet, and %s has %d", spec.GetStreamlet().GetName(), len(spec.GetStreamlet().GetInlets()))
	}
	return spec, nil
}

// freePort is a port that nobody listens on. Somebody may take it before it is used; then whoever gets it says so.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no port is free: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
