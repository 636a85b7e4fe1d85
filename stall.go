package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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
			inlet: in.cfg.Name, topic: in.cfg.Topic, partition: p, offset: a.base, exact: a.suspect != nil && a.suspect.exact, since: s.since, age: age, cause: s.cause,
		})
	}
	in.mu.Unlock()
	for _, w := range warnings {
		tell(w)
	}
}

// stallWarning is one partition that has not committed for too long.
type stallWarning struct {
	pipeline, streamlet string
	inlet, topic        string
	partition           int32
	offset              int64 // the first offset that is not committed
	exact               bool  // the record at offset is the one that fails
	since               time.Time
	age                 time.Duration
	cause               string // the last error
}

// String is the warning in words, the last error last, since it may be long.
func (w stallWarning) String() string {
	where := fmt.Sprintf("from offset %d on nothing is committed", w.offset)
	if w.exact {
		where = fmt.Sprintf("the record at offset %d fails", w.offset)
	}
	return fmt.Sprintf("Pipeline '%s', streamlet '%s', inlet '%s', partition %d of topic '%s' has not committed for %s: %s. Last error: %s",
		w.pipeline, w.streamlet, w.inlet, w.partition, w.topic, w.age.Round(time.Second), where, w.cause)
}

// watchStalls warns of stalls until ctx ends (seeds: Stall warnings): as an Event where events is not nil and takes it, else
// as a log line. An API server in trouble holds up neither the clock nor the other warnings for longer than its bounds.
func watchStalls(ctx context.Context, log *slog.Logger, cfg *Config, inlets []*inlet, events *recorder) {
	var posting sync.WaitGroup
	defer posting.Wait()
	turns := make(chan struct{}, eventsAtOnce)
	warn := func(w stallWarning, more ...any) {
		log.Warn("PartitionStalled: nothing of the partition was committed for too long", append([]any{"pipeline", w.pipeline, "streamlet", w.streamlet,
			"inlet", w.inlet, "topic", w.topic, "partition", w.partition, "offset", w.offset, "offset_exact", w.exact, "stalled", w.age.Round(time.Second), "cause", w.cause}, more...)...)
	}
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
				w.pipeline, w.streamlet = cfg.Pipeline, cfg.Streamlet
				if w.cause == "" {
					w.cause = "none: the process has not answered"
				}
				if events == nil {
					warn(w)
					return
				}
				posting.Go(func() {
					turns <- struct{}{}
					defer func() { <-turns }()
					if err := events.record(ctx, w); err != nil {
						warn(w, "no_event", err)
					}
				})
			})
		}
	}
}
