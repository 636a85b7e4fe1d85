package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// files is the disk as the sidecar uses it.
type files interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, content []byte) error // also sets the modification time
	Remove(name string) error                    // no error when there is none
	MkdirAll(name string) error
}

// readiness keeps the ready file: there while a conversation runs, every inlet is joined, fed and its topic exists, and every
// outlet can be written
// (seeds: Probes).
type readiness struct {
	files files
	path  string
	log   *slog.Logger

	mu       sync.Mutex
	inlets   map[string]*inletReadiness
	outlets  map[string]bool // whether each can be written
	talking  bool            // a conversation runs
	stopping bool
	is       bool // the file is there
	failed   bool // the last change of the file did not succeed
	told     bool // what the log said last
	folded   bool // changes come and go with conversations that fail again and again
}

type inletReadiness struct{ joined, fed, topic bool }

func newReadiness(files files, dir string, inlets []InletConfig, outlets []OutletConfig, log *slog.Logger) *readiness {
	r := &readiness{files: files, path: filepath.Join(dir, "ready"), log: log, inlets: map[string]*inletReadiness{}, outlets: map[string]bool{}}
	for i := range inlets {
		r.inlets[inlets[i].Name] = &inletReadiness{}
	}
	for i := range outlets {
		r.outlets[outlets[i].Name] = false
	}
	return r
}

func (r *readiness) joined(inlet string, yes bool)    { r.set(func() { r.inlets[inlet].joined = yes }) }
func (r *readiness) fed(inlet string, yes bool)       { r.set(func() { r.inlets[inlet].fed = yes }) }
func (r *readiness) topic(inlet string, yes bool)     { r.set(func() { r.inlets[inlet].topic = yes }) }
func (r *readiness) writable(outlet string, yes bool) { r.set(func() { r.outlets[outlet] = yes }) }
func (r *readiness) conversation(yes bool)            { r.set(func() { r.talking = yes }) }
func (r *readiness) stop()                            { r.set(func() { r.stopping = true }) }

// set changes one condition and, when that changes the whole, the file.
func (r *readiness) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	ready := r.talking && !r.stopping
	for _, in := range r.inlets {
		ready = ready && in.joined && in.fed && in.topic
	}
	for _, writable := range r.outlets {
		ready = ready && writable
	}
	if ready == r.is && !r.failed {
		return
	}
	var err error
	if ready {
		err = r.files.WriteFile(r.path, nil)
	} else {
		err = r.files.Remove(r.path)
	}
	if err != nil {
		if !r.failed {
			r.log.Error("the ready file could not be changed", "path", r.path, "ready", ready, "cause", err)
		}
		r.failed = true
		return
	}
	changed := ready != r.is
	r.is, r.failed = ready, false
	if r.folded && changed {
		r.log.Debug("readiness", "ready", ready)
	}
	r.tell()
}

// fold keeps changes out of the log, except at debug, while it is on. What holds when it is turned off is told, if it is news.
func (r *readiness) fold(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.folded = yes
	r.tell()
}

// tell says what is ready now, if that is news. mu is held.
func (r *readiness) tell() {
	if !r.folded && r.told != r.is {
		r.told = r.is
		r.log.Info("readiness", "ready", r.is)
	}
}

// now says whether the file is there.
func (r *readiness) now() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.is
}

// keepAlive touches the alive file every second until ctx ends.
func keepAlive(ctx context.Context, files files, dir string, log *slog.Logger) {
	path := filepath.Join(dir, "alive")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	failed := false
	for {
		err := files.WriteFile(path, nil)
		if err != nil && !failed {
			log.Error("the alive file could not be touched", "path", path, "cause", err)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
