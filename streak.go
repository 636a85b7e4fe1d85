package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lastingMargin is over the longest that a conversation takes to find out that it fails.
const lastingMargin = 10 * time.Second

// streak is what the log tells of conversations that fail one after another. The first failure of a cause is told with all
// that comes with it. Its repeats are told in one line each, with the backoff, and what comes and goes with their
// conversations is told at debug alone. A conversation that lasts ends the streak.
type streak struct {
	lasting time.Duration // of a conversation that ends the streak
	log     *slog.Logger
	ready   *readiness

	mu       sync.Mutex
	causes   map[string]*trouble // bounded by the kinds of failures and the partitions
	began    time.Time           // the first failure
	failures int                 // all of them
	folded   bool                // the last one was a repeat
}

// maxRepeatPause is between two lines of one cause. The backoff is about as long, unless FLOW_RECONNECT_MAX_BACKOFF is short.
const maxRepeatPause = 20 * time.Second

func newStreak(cfg *Config, ready *readiness, log *slog.Logger) *streak {
	lasting := 2 * cfg.ReconnectMaxBackoff // a partition that is held back is tried again by then (holdSuspects)
	for i := range cfg.Inlets {
		lasting = max(lasting, cfg.Inlets[i].Consumer.DefaultAPITimeout) // of commits
	}
	for i := range cfg.Outlets {
		lasting = max(lasting, cfg.Outlets[i].Producer.DeliveryTimeout)
	}
	return &streak{lasting: lasting + lastingMargin, log: log, ready: ready, causes: map[string]*trouble{}}
}

// level is that of the lines that come with every conversation.
func (s *streak) level() slog.Level {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folded {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// failed tells that a conversation failed after it had lasted for so long, and what is waited for now.
func (s *streak) failed(conversation string, err error, lasted, backoff time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lasted > s.lasting {
		s.end()
	}
	now := time.Now()
	if s.failures == 0 {
		s.began = now
	}
	s.failures++
	key := failureKey(err)
	known := s.causes[key]
	if known == nil {
		known = newTrouble(now, firstBackoff)
		s.causes[key] = known
	}
	level := slog.LevelDebug
	if known.due(now, maxRepeatPause) {
		level = slog.LevelWarn
	}
	s.folded = known.times > 1
	s.ready.fold(s.folded)
	attrs := append([]any{"conversation", conversation}, failureAttrs(err)...)
	if known.times == 1 {
		s.log.Warn("the conversation failed; everything resumes from the last commits", attrs...)
		s.log.Info("reconnecting", "backoff", backoff)
		return
	}
	s.log.Log(context.Background(), level, "the conversation failed again, reconnecting; everything resumes from the last commits",
		append(attrs, "failures", known.times, "since", utc(known.since), "lasted", lasted.Round(time.Millisecond), "backoff", backoff)...)
}

// watch ends the streak once a conversation has lasted, unless stop is called before.
func (s *streak) watch(conversation *slog.Logger) (stop func() bool) {
	return time.AfterFunc(s.lasting, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failures > 1 {
			conversation.Info("the conversation lasts: its failures are over", "failures", s.failures, "after", time.Since(s.began).Round(time.Second))
		}
		s.end()
	}).Stop
}

// end begins anew. mu is held.
func (s *streak) end() {
	clear(s.causes)
	s.failures, s.folded = 0, false
	s.ready.fold(false)
}

// failureKey is the same for failures that are told as one: of a kind, and of a partition where a batch caused them.
func failureKey(err error) string {
	var f *failure
	if !errors.As(err, &f) {
		return string(endOther)
	}
	if f.batch == nil {
		return string(f.kind)
	}
	return fmt.Sprintf("%s %s %d", f.kind, f.batch.assignment.inlet.cfg.Name, f.batch.assignment.partition)
}

// failureAttrs names what a conversation's end is about.
func failureAttrs(err error) []any {
	attrs := []any{"cause", err}
	var f *failure
	if errors.As(err, &f) && f.batch != nil {
		b := f.batch
		attrs = append(attrs, "inlet", b.assignment.inlet.cfg.Name, "topic", b.assignment.inlet.cfg.Topic, "partition", b.assignment.partition, "offset", b.first)
	}
	return attrs
}

// utc is a time as every line of the log writes it.
func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
