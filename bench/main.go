//go:build linux

// Command bench measures the sidecar on a real Kafka, in turns with what it is compared with. README.md tells what the
// figures mean and what they were.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// bench is one run of the command.
type bench struct {
	kafka   *kafka
	dir     string // of everything that it writes
	source  string // of this package
	self    string // this program, which is the echo process and the bare loop too
	sidecar string // the program that is measured
	earlier string // the program that it is compared with in place of the bare loop; empty: none
	python  string // with the SDK and confluent-kafka; empty: no Python is measured
	pairs   int
	short   bool
	warm    bool // something has run on the broker
	only    *regexp.Regexp
	report  *report
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command plays one of the roles that this program has for itself, or measures.
func command(ctx context.Context, args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "echo":
		return serveEcho(args[1], len(args) > 2)
	case len(args) == 6 && args[0] == "bare":
		batch, err := strconv.Atoi(args[5])
		if err != nil {
			return err
		}
		return runBare(ctx, args[1], args[2], args[3], args[4], batch)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	libs := flags.String("kafka", cmp.Or(os.Getenv("KAFKA_LIBS"), filepath.Join(os.Getenv("HOME"), ".cache", "kafka-4.3.1")), "the jars of Apache Kafka, as e2e/setup.sh fetches them")
	pythonPath := flags.String("python", "", "a Python with ankka-flow and confluent-kafka, as e2e/setup.sh makes it; empty: Python is left out")
	pairs := flags.Int("pairs", 3, "how often each two are measured in turns")
	short := flags.Bool("short", false, "the main figures in a few minutes; fails when a ratio is worse than half of its goal")
	only := flags.String("run", "", "measure what matches this regular expression alone")
	program := flags.String("sidecar", "", "the program to measure; empty: it is built")
	before := flags.String("before", "", "compare with this program, the sidecar as it was before a change, in place of the bare loop")
	jsonFile := flags.String("json", "", "write a JSON line for each measurement to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	matching, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "ankka-flow-sidecar-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, python: *pythonPath, pairs: *pairs, short: *short, only: matching, sidecar: *program, earlier: *before, report: &report{}}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.source, err = b.packageDir(ctx); err != nil {
		return err
	}
	if b.sidecar == "" {
		b.sidecar = filepath.Join(dir, "sidecar")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.sidecar, "..")
		build.Dir, build.Env = b.source, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	if *jsonFile != "" {
		f, err := os.Create(*jsonFile)
		if err != nil {
			return err
		}
		defer f.Close()
		b.report.lines = json.NewEncoder(f)
	}
	if b.kafka, err = boot(ctx, *libs, dir); err != nil {
		return err
	}
	defer b.kafka.close()
	err = errors.Join(b.all(ctx), ctx.Err())
	b.report.print(os.Stdout)
	if err == nil && b.short {
		err = b.report.gross()
	}
	return err
}

func (b *bench) packageDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/thinkmorestupidless/ankka-flow-sidecar/bench").Output()
	if err != nil {
		return "", fmt.Errorf("go list, to be run in the repository: %w", err)
	}
	return string(out[:len(out)-1]), nil
}

// all measures everything, the cheap first.
func (b *bench) all(ctx context.Context) error {
	info, err := os.Stat(b.sidecar)
	if err != nil {
		return err
	}
	b.report.add("binary, stripped", "MB", float64(info.Size())/1e6, atMost(25))
	lasting := 20 * time.Second
	loads := []load{
		{1, 100, 100, 600_000}, {3, 100, 100, 1_000_000}, {12, 100, 100, 2_000_000}, {12, 100, 1000, 2_000_000}, {12, 1 << 10, 100, 600_000},
		{12, 100 << 10, 100, 10_000}, {100, 100, 100, 1_500_000}, {1000, 100, 100, 1_000_000},
	}
	idles, backlogs := []int32{12, 1000}, []int32{12, 1000}
	if b.short {
		lasting, idles, backlogs = 5*time.Second, []int32{12}, nil
		loads = []load{{1, 100, 100, 200_000}, {12, 100, 100, 500_000}, {12, 1 << 10, 100, 200_000}}
	}
	steps := []func() error{
		func() error { return b.measureStarts(ctx) },
	}
	// A broker deletes topics a minute late, and is busy with those of many partitions then: they come last.
	var last []func() error
	add := func(partitions int32, step func() error) {
		if partitions < 100 {
			steps = append(steps, step)
		} else {
			last = append(last, step)
		}
	}
	for _, partitions := range idles {
		add(partitions, func() error { return b.measureIdle(ctx, partitions, lasting) })
	}
	for i, l := range loads {
		add(l.partitions, func() error { return b.compare(ctx, l, sidecar, b.baseline()) })
		if i == 0 {
			steps = append(steps, func() error { return b.measureLatency(ctx, lasting) }) // of a broker that has warmed up
		}
	}
	if b.python != "" {
		steps = append(steps, func() error { return b.comparePython(ctx) })
	}
	for _, partitions := range backlogs {
		add(partitions, func() error { return b.measureBacklog(ctx, partitions) })
	}
	steps = append(steps, last...)
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// baseline is what the sidecar is compared with.
func (b *bench) baseline() system {
	if b.earlier != "" {
		return earlier
	}
	return bare
}

// wanted says whether something is to be measured, and tells that it is.
func (b *bench) wanted(what string) bool {
	if !b.only.MatchString(what) {
		return false
	}
	fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), what)
	return true
}

// compare measures two systems with one load in turns.
func (b *bench) compare(ctx context.Context, l load, ours, theirs system) error {
	if !b.wanted(l.String()) {
		return nil
	}
	systems := []system{ours, theirs}
	if !b.short && b.earlier == "" {
		systems = append(systems, alone)
	}
	speeds, err := b.inTurns(ctx, l.String(), l, systems...)
	if err != nil {
		return err
	}
	least := 1.0
	if l.partitions == 12 && l.size == 100 && l.batch == 100 {
		least = 1.2
	}
	a, z := speeds[ours], speeds[theirs]
	perSecond, cpu := func(s speed) float64 { return s.PerSecond }, func(s speed) float64 { return s.CPU }
	b.report.ratio(l.String(), "records/s", of(a, perSecond), of(z, perSecond), atLeast(least))
	b.report.ratio(l.String(), "CPU s per million", of(a, cpu), of(z, cpu), atMost(1.1))
	if len(speeds[alone]) > 0 {
		b.report.ratio(l.String()+", against consuming and producing alone", "records/s", of(a, perSecond), of(speeds[alone], perSecond), nil)
	}
	var most goal // of the loads that the goals name
	switch {
	case l.partitions == 12 && l.size == 1<<10:
		most = atMost(60)
	case l.partitions >= 1000:
		most = atMost(150)
	}
	b.report.add(l.String()+": resident", "MB", median(of(a, func(s speed) float64 { return s.Peak })), most)
	return nil
}

// inTurns measures systems with one load, as often as pairs says, one after another.
func (b *bench) inTurns(ctx context.Context, what string, l load, systems ...system) (map[system][]speed, error) {
	in := b.name("in")
	if err := b.kafka.create(ctx, in, l.partitions); err != nil {
		return nil, err
	}
	defer b.forget(in)
	if err := b.kafka.fill(ctx, in, l.partitions, l.records, l.size); err != nil {
		return nil, err
	}
	if !b.warm {
		// The first run on a broker that was just booted is a quarter slower: its code is not compiled yet.
		if _, err := b.speed(ctx, systems[0], in, l); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", systems[0], l, err)
		}
		b.warm = true
	}
	speeds := map[system][]speed{}
	for range b.pairs {
		slices.Reverse(systems) // none is always the first
		for _, s := range systems {
			measured, err := b.speed(ctx, s, in, l)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s, l, err)
			}
			speeds[s] = append(speeds[s], measured)
			b.report.line(what, s, measured)
		}
	}
	return speeds, nil
}

func of(speeds []speed, figure func(speed) float64) (figures []float64) {
	for _, s := range speeds {
		figures = append(figures, figure(s))
	}
	return figures
}

// comparePython measures the sidecar with the published SDK against a loop in Python that does without both.
func (b *bench) comparePython(ctx context.Context) error {
	l := load{12, 100, 100, 100_000}
	if !b.wanted("Python") {
		return nil
	}
	speeds, err := b.inTurns(ctx, "Python", l, python, barePython, userLoop)
	if err != nil {
		return err
	}
	perSecond := func(s speed) float64 { return s.PerSecond }
	b.report.ratio("Python process with the sidecar against with the bare loop", "records/s", of(speeds[python], perSecond), of(speeds[barePython], perSecond), atLeast(1))
	b.report.ratio("Python process against confluent-kafka in Python", "records/s", of(speeds[python], perSecond), of(speeds[userLoop], perSecond), nil)
	b.report.add("Python process flat out: its CPU", "cores", median(of(speeds[python], func(s speed) float64 { return s.ProcessCPU })), atLeast(0.9))
	b.report.add("Python process flat out: the sidecar's CPU", "s per million", median(of(speeds[python], func(s speed) float64 { return s.CPU })), nil)
	return nil
}

func (b *bench) measureStarts(ctx context.Context) error {
	if !b.wanted("starts") {
		return nil
	}
	var readies, recoveries, takeOvers []float64
	for range b.pairs {
		ready, recovered, err := b.starts(ctx)
		if err != nil {
			return err
		}
		taken, err := b.takeOver(ctx)
		if err != nil {
			return err
		}
		readies, recoveries, takeOvers = append(readies, ready.Seconds()), append(recoveries, recovered.Seconds()), append(takeOvers, taken.Seconds())
	}
	b.report.add("exec to ready", "s", median(readies), atMost(0.3))
	b.report.add("process back to first record", "s", median(recoveries), atMost(0.55))
	b.report.add("SIGTERM to the other pod's first records", "s", median(takeOvers), nil)
	return nil
}

func (b *bench) measureLatency(ctx context.Context, lasting time.Duration) error {
	if !b.wanted("latency") {
		return nil
	}
	names := []string{"p50", "p90", "p99"}
	figures := map[system][3][]float64{}
	for range b.pairs {
		for _, s := range []system{direct, sidecar, b.baseline()} {
			p, err := b.latency(ctx, s, lasting)
			if err != nil {
				return err
			}
			all := figures[s]
			for i := range p {
				all[i] = append(all[i], p[i].Seconds()*1e3)
			}
			figures[s] = all
			b.report.line("latency", s, p)
		}
	}
	goals := []goal{atMost(0.8), nil, atMost(3)}
	for i, name := range names {
		added := func(s system) float64 {
			var ms []float64
			for round, base := range figures[direct][i] { // what the machine does meanwhile is in both
				ms = append(ms, figures[s][i][round]-base)
			}
			return median(ms)
		}
		ours, theirs := added(sidecar), added(b.baseline())
		b.report.add("latency added at 200/s, "+name, "ms", ours, goals[i])
		b.report.add(fmt.Sprintf("latency added at 200/s, %s, against the %s", name, b.baseline()), "times", ours/theirs, atMost(1.1))
	}
	return nil
}

func (b *bench) measureIdle(ctx context.Context, partitions int32, lasting time.Duration) error {
	what := fmt.Sprintf("idle, %d partitions", partitions)
	if !b.wanted(what) {
		return nil
	}
	core, peak, scrape, err := b.idle(ctx, partitions, lasting)
	if err != nil {
		return err
	}
	many := partitions >= 1000
	b.report.add(what+": CPU", "% of a core", 100*core, atMost(map[bool]float64{false: 0.5, true: 3}[many]))
	b.report.add(what+": resident", "MB", peak, atMost(map[bool]float64{false: 30, true: 150}[many]))
	b.report.add(what+": scrape", "ms", scrape.Seconds()*1e3, atMost(50))
	return nil
}

func (b *bench) measureBacklog(ctx context.Context, partitions int32) error {
	what := fmt.Sprintf("2 GB behind a blocked process, %d partitions: resident", partitions)
	if !b.wanted(what) {
		return nil
	}
	peak, err := b.backlog(ctx, partitions, 2e9)
	if err != nil {
		return err
	}
	b.report.add(what, "MB", peak, atMost(map[bool]float64{false: 150, true: 300}[partitions >= 1000]))
	return nil
}
