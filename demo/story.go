package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// phase is what the demo itself is doing.
type phase int

const (
	flowing phase = iota
	draining
	stopping
	checking
	finished
)

// story is what is told of a run.
type story struct {
	opts    options
	began   time.Time
	phase   phase
	events  []happening
	ready   bool
	numbers // the latest
	crash   crash
	trouble string // what the sidecar said last while it was not ready
	ended   finding

	samples  []sample // one for each bar
	interval time.Duration
}

// sample is how things were at one moment.
type sample struct {
	at      time.Duration
	in      int64
	out     []int64
	highest int64 // lag since the last sample
}

// crash is the one time that the process is killed.
type crash struct {
	at        time.Duration
	happened  bool
	began     time.Duration
	noticed   bool  // by the sidecar, which is not ready then
	back      bool  // the sidecar is ready again
	committed int64 // by then
	took      time.Duration
}

// stopped is the state of a sidecar that was asked to.
const stopped = "stopped"

func newStory(opts options) story {
	s := story{opts: opts, began: time.Now(), crash: crash{at: opts.duration * 2 / 5}, interval: max(opts.duration/bars, 250*time.Millisecond)}
	if opts.process != "" {
		s.crash = crash{}
	}
	return s
}

func (s *story) clock() time.Duration { return time.Since(s.began) }

func (s *story) tell(t tone, format string, args ...any) {
	s.events = append(s.events, happening{s.clock(), fmt.Sprintf(format, args...), t})
}

// sidecarSays turns a line of the sidecar's log into what it means here, if it means anything.
func (s *story) sidecarSays(logged string) {
	fields := logFields(logged)
	switch message := fields["msg"]; {
	case strings.HasPrefix(message, "the conversation failed"):
		cause, _, _ := strings.Cut(strings.TrimPrefix(fields["cause"], "the conversation broke off: "), " (")
		s.tell(warn, "the sidecar notices: %s", cause)
		s.crash.noticed = s.crash.happened
	case message == "reconnecting":
		s.trouble = "the sidecar reconnects in " + fields["backoff"]
		s.tell(plain, "%s", s.trouble)
	case strings.HasPrefix(message, "discovery: no answer"):
		s.trouble = "the sidecar asks the process again in " + fields["next_in"] + ": " + fields["cause"]
	case strings.HasPrefix(message, "kafka client: "):
		s.trouble = message // too fine for the story
	case fields["level"] == "WARN" || fields["level"] == "ERROR":
		s.trouble = message
		said := "the sidecar says: " + message
		if !slices.ContainsFunc(s.events, func(h happening) bool { return h.text == said }) {
			s.tell(warn, "%s", said)
		}
	}
}

// crashProcess kills the process as a kernel does that is out of memory, and starts it again, as whoever runs it would.
func (d *demo) crashProcess() error {
	pid := d.process.pid()
	d.process.kill()
	d.crash.happened, d.crash.began = true, d.clock()
	d.tell(bad, "the process is killed: SIGKILL to pid %d", pid)
	if err := d.startProcess(); err != nil {
		return err
	}
	d.tell(plain, "the process is started again, pid %d", d.process.pid())
	return nil
}

// due says that it is time for the crash, if there is to be one.
func (c *crash) due(now time.Duration) bool { return c.at > 0 && !c.happened && now >= c.at }

// open says that a crash is not over.
func (c *crash) open() bool { return c.happened && c.took == 0 }

// followCrash follows the sidecar from the crash until commits move again.
func (s *story) followCrash() {
	c := &s.crash
	if !c.open() {
		return
	}
	switch {
	case !s.ready:
		c.noticed = true
	case c.noticed && !c.back && s.commits.lag > 0:
		c.back, c.committed = true, s.commits.total
	case c.noticed && (s.commits.lag == 0 || s.commits.total > c.committed):
		c.took = s.clock() - c.began
		s.tell(good, "recovered after %.1f s: it goes on from the last commits", c.took.Seconds())
	}
}

// stopped tells how the sidecar ended.
func (s *story) stopped(byItself bool, how string, took time.Duration) {
	s.ended = finding{ok: byItself && how == "exit 0", what: stopped, detail: fmt.Sprintf("%s, %.1f s after SIGTERM", how, took.Seconds())}
	if !byItself {
		s.ended.detail = fmt.Sprintf("killed %.0f s after SIGTERM, which it did not follow", took.Seconds())
	}
	s.tell(plain, "the sidecar has stopped: %s", s.ended.detail)
}

// findings are what the story adds to the verdict.
func (s *story) findings() []finding {
	var findings []finding
	if s.crash.at > 0 {
		f := finding{ok: s.crash.took > 0, what: "recovered", detail: "no: the process was killed, and the sidecar has not committed since"}
		if f.ok {
			f.detail = fmt.Sprintf("%.1f s after the process was killed", s.crash.took.Seconds())
		}
		if !s.crash.happened {
			f = finding{ok: true, what: "recovered", detail: "the process had not been killed yet"}
		}
		findings = append(findings, f)
	}
	return append(findings, s.ended)
}

// sample keeps the numbers for the bars.
func (s *story) sample() {
	now := s.clock()
	if len(s.samples) == 0 {
		s.samples = []sample{{out: make([]int64, len(s.out))}}
	}
	last := &s.samples[len(s.samples)-1]
	last.highest = max(last.highest, s.commits.lag)
	if now < last.at+s.interval {
		return
	}
	s.samples = append(s.samples, sample{at: now, in: s.in, out: s.out})
	s.samples = s.samples[max(0, len(s.samples)-bars-2):]
}

// view is the story at this moment.
func (d *demo) view() view {
	v := view{deployment: d.deployment, elapsed: d.clock(), until: fmt.Sprintf("of %g s", d.opts.duration.Seconds()), partitions: d.commits.of, events: d.events}
	if d.opts.keep {
		v.until = "· Ctrl-C ends"
	}
	switch {
	case d.sidecar == nil:
		v.state, v.stateTone = stopped, dim
	case d.ready:
		v.state, v.stateTone = "ready", good
	default:
		v.state, v.stateTone = "not ready", warn
	}
	in, lag := series{label: "in", value: d.commits.in, bars: calm}, series{label: "lag", value: d.commits.lag, perSec: -1, least: rate / 2, bars: warn}
	out := make([]series, len(d.outlets))
	for i, outlet := range d.outlets {
		out[i] = series{label: outlet.name, value: d.out[i], bars: calm}
	}
	for i, at := range d.samples {
		lag.history = append(lag.history, at.highest)
		if i == 0 {
			continue
		}
		before := d.samples[i-1]
		in.add(at.in-before.in, at.at-before.at)
		for o := range out {
			out[o].add(at.out[o]-before.out[o], at.at-before.at)
		}
	}
	v.series = append(append([]series{in}, out...), series{label: "committed", value: d.commits.total, perSec: -1}, lag)
	v.now, v.nowTone = d.now()
	return v
}

// add appends what a number has grown by.
func (s *series) add(n int64, in time.Duration) {
	s.history = append(s.history, n)
	s.perSec = int64(float64(n) / in.Seconds())
}

// now is the line about what is happening.
func (s *story) now() (string, tone) {
	switch {
	case s.phase == finished:
		return "", plain
	case s.phase == stopping:
		return "the sidecar is asked to stop (SIGTERM)", plain
	case s.phase == checking:
		return "what came out is compared with what went in", plain
	case !s.ready && s.trouble != "":
		return s.trouble, warn
	case !s.ready:
		return "the sidecar is not ready", warn
	case s.phase == draining:
		return "nothing more is produced; the last carts are on their way", plain
	case s.commits.lag > rate/4:
		return fmt.Sprintf("catching up: %s carts behind", thousands(s.commits.lag)), warn
	}
	return "carts flow", good
}

// logFields are the fields of a line of the sidecar's log: key=value, quoted where there is a space.
func logFields(logged string) map[string]string {
	fields := map[string]string{}
	for logged = strings.TrimSpace(logged); logged != ""; logged = strings.TrimLeft(logged, " ") {
		key, rest, found := strings.Cut(logged, "=")
		if !found {
			break
		}
		value, after, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(quoted)
			after = rest[len(quoted):]
		}
		fields[key], logged = value, after
	}
	return fields
}

// withLog is an error with the last lines that a child wrote.
func withLog(text string, c *child) error {
	lines := c.lastLines()
	if len(lines) == 0 {
		return fmt.Errorf("%s. It said nothing", text)
	}
	quiet := func(logged string) bool { return logFields(logged)["level"] == "INFO" }
	if loud := slices.DeleteFunc(slices.Clone(lines), quiet); len(loud) > 0 {
		lines = loud
	}
	for i, logged := range lines {
		fields := logFields(logged)
		if fields["msg"] == "" {
			continue
		}
		lines[i] = fields["msg"]
		if cause := fields["cause"]; cause != "" {
			lines[i] += ": " + cause
		}
	}
	return fmt.Errorf("%s. What it said last:\n  %s", text, strings.Join(lines, "\n  "))
}
