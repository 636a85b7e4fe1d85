package main

import (
	"math"
	"sync"
	"time"
)

// The Java client's metrics.sample.window.ms and metrics.num.samples.
const (
	sampleWindow  = 30 * time.Second
	sampleWindows = 2
)

// window keeps what was measured lately as the Java client's SampledStat does, so that a dashboard made for that client
// shows the same curve: the sample that is being filled, for 30 s, and the one before it. It may be used by several
// goroutines.
type window struct {
	mu      sync.Mutex
	samples [sampleWindows]sample
	current int
}

// sample is one of a window's. A zero begin means that it was never used.
type sample struct {
	begin         time.Time
	count         int64
	sum, max, min float64
}

func (s *sample) reset(now time.Time) {
	*s = sample{begin: now, max: math.Inf(-1), min: math.Inf(1)}
}

// record adds a value that was measured now.
func (w *window) record(now time.Time, value float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.samples[w.current]
	switch {
	case s.begin.IsZero():
		s.reset(now)
	case now.Sub(s.begin) >= sampleWindow:
		w.current = (w.current + 1) % sampleWindows
		s = &w.samples[w.current]
		s.reset(now)
	}
	s.count++
	s.sum += value
	s.max = max(s.max, value)
	s.min = min(s.min, value)
}

// read drops what is too old and adds up the rest. since is where the oldest sample began. mu is held.
func (w *window) read(now time.Time) (all sample, since time.Time) {
	if w.samples[w.current].begin.IsZero() {
		w.samples[w.current].reset(now)
	}
	all.reset(now)
	since = now
	for i := range w.samples {
		s := &w.samples[i]
		if s.begin.IsZero() {
			continue
		}
		if now.Sub(s.begin) >= sampleWindows*sampleWindow {
			s.reset(now)
		}
		if s.begin.Before(since) {
			since = s.begin
		}
		all.count += s.count
		all.sum += s.sum
		all.max = max(all.max, s.max)
		all.min = min(all.min, s.min)
	}
	return all, since
}

// rate is the sum of the values per second. As in Java, the window always counts as one whole sample and what there is of
// another, so that the first values do not make a peak.
func (w *window) rate(now time.Time) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, since := w.read(now)
	elapsed := now.Sub(since)
	if elapsed < sampleWindow {
		elapsed += sampleWindow
	}
	return all.sum / elapsed.Seconds()
}

// average is NaN when nothing was measured lately, as in Java.
func (w *window) average(now time.Time) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, _ := w.read(now)
	return all.sum / float64(all.count)
}

// extremes are the least and the greatest value, +Inf and -Inf when nothing was measured lately.
func (w *window) extremes(now time.Time) (least, greatest float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, _ := w.read(now)
	return all.min, all.max
}
