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
	sidecar  system = "sidecar"           // with an echo process in Go
	bare     system = "bare loop"         // with the same process
	python   system = "sidecar, Python"   // with an echo process on the published Python SDK
	userLoop system = "confluent-kafka"   // a loop in Python, without sidecar and protocol
	blocked  system = "sidecar, blocked"  // with a process that answers nothing
	direct   system = "producer to inlet" // nothing between: the inlet's topic is the outlet's
)

// running is a system at work.
type running struct {
	measured *child
	process  *child // nil when there is none
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

func (r *running) ready() bool {
	_, err := os.Stat(filepath.Join(r.state, "ready"))
	return err == nil
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
	address, err := b.startProcess(ctx, r, s, dir, "")
	if err != nil {
		r.stop()
		return nil, err
	}
	if s == bare {
		r.measured, err = launch(dir, "bare", nil, b.self, "bare", b.kafka.server, in, out, address, fmt.Sprint(batch))
	} else {
		err = b.startSidecar(r, dir, in, out, address, batch)
	}
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// startProcess starts a system's process, at an address that it had before or at a new one, and waits until it listens.
func (b *bench) startProcess(ctx context.Context, r *running, s system, dir, address string) (string, error) {
	if address == "" {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	var err error
	switch s {
	case python:
		port := address[len("127.0.0.1:"):]
		r.process, err = launch(dir, "process", []string{"FLOW_PROCESS_PORT=" + port}, b.python, filepath.Join(b.source, "python", "echo.py"))
	case blocked:
		r.process, err = launch(dir, "process", nil, b.self, "echo", address, "blocked")
	default:
		r.process, err = launch(dir, "process", nil, b.self, "echo", address)
	}
	if err != nil {
		return "", err
	}
	return address, until(ctx, "the process listens at "+address, time.Millisecond, func() (bool, error) { return listens(address) })
}

func (b *bench) startSidecar(r *running, dir, in, out, address string, batch int) error {
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
	r.measured, err = launch(dir, "sidecar", []string{"FLOW_CONFIG_DIR=" + dir, "FLOW_STATE_DIR=" + r.state, "FLOW_PROCESS_ADDRESS=" + address, fmt.Sprint("FLOW_METRICS_PORT=", r.metrics)}, b.sidecar)
	return err
}
