//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// system is something that brings records from topic to topic: the sidecar, or what it is measured against.
type system string

const (
	sidecar    system = "sidecar"             // with an echo process in Go
	bare       system = "bare loop"           // with the same process
	alone      system = "consume and produce" // the same without a process
	python     system = "sidecar, Python"     // with an echo process on the published Python SDK
	barePython system = "bare loop, Python"   // with that process too
	userLoop   system = "confluent-kafka"     // a loop in Python, without sidecar and protocol
	blocked    system = "sidecar, blocked"    // with a process that answers nothing
	direct     system = "producer to inlet"   // nothing between: the inlet's topic is the outlet's
	earlier    system = "sidecar before"      // the change that is measured
)

// running is a system at work.
type running struct {
	measured *child
	process  *child // nil when there is none
	address  string // of the process
	state    string // the sidecar's FLOW_STATE_DIR
	metrics  int    // the sidecar's port
	began    time.Time
}

func (r *running) stop() {
	if r.measured != nil {
		r.measured.stop()
	}
	if r.process != nil {
		r.process.kill()
	}
}

// awaitReady waits until the sidecar says that it is.
func (r *running) awaitReady(ctx context.Context) error {
	err := until(ctx, "the sidecar is ready", time.Millisecond, func() (bool, error) {
		_, err := os.Stat(filepath.Join(r.state, "ready"))
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, r.measured.tail())
	}
	return nil
}

// run starts a system between two topics, its process first, with batches of so many records at most.
func (b *bench) run(ctx context.Context, s system, in, out string, batch int) (*running, error) {
	dir, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		return nil, err
	}
	r := &running{}
	if s == userLoop {
		r.measured, err = launch(dir, "loop", nil, b.python, filepath.Join(b.source, "python", "loop.py"), b.kafka.server, in, out, fmt.Sprint(batch))
		return r, err
	}
	if s == alone {
		r.measured, err = launch(dir, "alone", nil, b.self, "bare", b.kafka.server, in, out, "", fmt.Sprint(batch))
		return r, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r.address = fmt.Sprintf("127.0.0.1:%d", port)
	if err := b.startProcess(ctx, r, s, dir); err != nil {
		r.stop()
		return nil, err
	}
	if s == bare || s == barePython {
		r.measured, err = launch(dir, "bare", nil, b.self, "bare", b.kafka.server, in, out, r.address, fmt.Sprint(batch))
	} else {
		program := b.sidecar
		if s == earlier {
			program = b.earlier
		}
		err = b.startSidecar(r, program, dir, in, out, batch)
	}
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// startProcess starts a system's process at its address and waits until it listens.
func (b *bench) startProcess(ctx context.Context, r *running, s system, dir string) (err error) {
	switch s {
	case python, barePython:
		port := r.address[len("127.0.0.1:"):]
		r.process, err = launch(dir, "process", []string{"FLOW_PROCESS_PORT=" + port}, b.python, filepath.Join(b.source, "python", "echo.py"))
	case blocked:
		r.process, err = launch(dir, "process", nil, b.self, "echo", r.address, "blocked")
	default:
		r.process, err = launch(dir, "process", nil, b.self, "echo", r.address)
	}
	if err != nil {
		return err
	}
	return until(ctx, "the process listens at "+r.address, time.Millisecond, func() (bool, error) { return listens(r.address) })
}

func (b *bench) startSidecar(r *running, program, dir, in, out string, batch int) error {
	deployment := testkit.Deployment{
		Pipeline: "bench-" + out, Streamlet: "echo", Servers: b.kafka.server,
		Inlets:  []testkit.Inlet{{Name: "in", Topic: in, MaxRecords: batch}},
		Outlets: []testkit.OutletPort{{Name: "out", Topic: out}},
	}
	for name, text := range map[string][]byte{"streamlet.conf": deployment.Conf(), "descriptor.json": testkit.DescriptorJSON(spec)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	var err error
	if r.metrics, err = freePort(); err != nil {
		return err
	}
	r.state, r.began = filepath.Join(dir, "state"), time.Now()
	r.measured, err = launch(dir, "sidecar", []string{"FLOW_CONFIG_DIR=" + dir, "FLOW_STATE_DIR=" + r.state, "FLOW_PROCESS_ADDRESS=" + r.address, fmt.Sprint("FLOW_METRICS_PORT=", r.metrics)}, program)
	return err
}
