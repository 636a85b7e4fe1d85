package main

import (
	"context"
	"log/slog"
	"time"
)

// stall is the clock of a partition that does not commit: it outlives the assignment's batches, the conversation and the
// backoff, and ends with a commit or with the assignment.
type stall struct {
	since  time.Time // when the oldest uncommitted record was first sent, or found undeliverable
	warned bool
	cause  string // the last error of the partition or of the conversation that held it
}

// beginStall starts the partition's clock unless it runs. The inlet's mu is held.
func (in *inlet) beginStall(a *assignment) {
	if in.stalls[a.partition] == nil {
		in.stalls[a.partition] = &stall{since: time.Now()}
	}
}

// restartStall is told of a commit: the clock starts anew for what is still outstanding, else it ends. mu is held.
func (in *inlet) restartStall(a *assignment) {
	delete(in.stalls, a.partition)
	if a.outstanding() {
		in.beginStall(a)
	}
}

// stalled tells every partition whose clock passes limit, once a stall.
func (in *inlet) stalled(limit time.Duration, tell func(stallWarning)) {
	in.mu.Lock()
	var warnings []stallWarning
	for p, s := range in.stalls {
		age := time.Since(s.since)
		a := in.held[p]
		if s.warned || age < limit || a == nil {
			continue
		}
		s.warned = true
		warnings = append(warnings, stallWarning{
			inlet: in.cfg.Name, topic: in.cfg.Topic, partition: p, offset: a.base, exact: a.suspect != nil && a.suspect.exact, age: age, cause: s.cause,
		})
	}
	in.mu.Unlock()
	for _, w := range warnings {
		tell(w)
	}
}

// stallWarning is one partition that has not committed for too long.
type stallWarning struct {
	inlet, topic string
	partition    int32
	offset       int64 // the first offset that is not committed
	exact        bool  // the record at offset is the one that fails
	age          time.Duration
	cause        string
}

// watchStalls warns of stalls until ctx ends (seeds: Stall warnings).
func watchStalls(ctx context.Context, log *slog.Logger, cfg *Config, inlets []*inlet) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, in := range inlets {
			in.stalled(cfg.StallWarningAfter, func(w stallWarning) {
				cause := w.cause
				if cause == "" {
					cause = "the process has not answered"
				}
				log.Warn("PartitionStalled: nothing of the partition was committed for too long", "pipeline", cfg.Pipeline, "streamlet", cfg.Streamlet,
					"inlet", w.inlet, "topic", w.topic, "partition", w.partition, "offset", w.offset, "offset_exact", w.exact, "stalled", w.age.Round(time.Second), "cause", cause)
			})
		}
	}
}
