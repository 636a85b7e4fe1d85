//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is what goes through a system as fast as it can.
type load struct {
	partitions int32
	size       int // bytes of a value
	batch      int // records
	records    int
}

func (l load) String() string {
	return fmt.Sprintf("%d partitions, %s, batches of %d", l.partitions, bytesOf(l.size), l.batch)
}

func bytesOf(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// speed is what a system did with a load.
type speed struct {
	PerSecond  float64 // records
	CPU        float64 // seconds per million records
	Peak       float64 // resident, MB
	ProcessCPU float64 // of the process, in cores
}

// speed has a system bring the records of a filled topic to a new one. The first tenth is left out: connections are made,
// the group is joined, memory grows.
func (b *bench) speed(ctx context.Context, s system, in string, l load) (speed, error) {
	out := b.name("out")
	if err := b.kafka.create(ctx, out, l.partitions); err != nil {
		return speed{}, err
	}
	defer b.forget(out)
	r, err := b.run(ctx, s, in, out, l.batch)
	if err != nil {
		return speed{}, err
	}
	defer r.stop()
	// Asking is work for the broker, for each partition: often enough, and not more.
	every := max(often, time.Duration(l.partitions)*time.Millisecond)
	begin, err := b.reach(ctx, r, out, int64(l.records/10), every)
	if err != nil {
		return speed{}, err
	}
	end, err := b.reach(ctx, r, out, int64(l.records), every)
	if err != nil {
		return speed{}, err
	}
	peak, err := r.measured.peak()
	if err != nil {
		return speed{}, err
	}
	n, took := float64(end.written-begin.written), end.at.Sub(begin.at).Seconds()
	return speed{n / took, (end.cpu - begin.cpu).Seconds() / n * 1e6, float64(peak) / 1e6, (end.processCPU - begin.processCPU).Seconds() / took}, nil
}

// moment is how far a system is.
type moment struct {
	at              time.Time
	written         int64
	cpu, processCPU time.Duration
}

const often = 20 * time.Millisecond

// reach waits until so many records are in a system's outlet.
func (b *bench) reach(ctx context.Context, r *running, out string, n int64, every time.Duration) (m moment, err error) {
	err = until(ctx, fmt.Sprintf("%d records are written", n), every, func() (bool, error) {
		var err error
		if m.written, err = b.kafka.written(ctx, out); err != nil || m.written < n {
			return false, fmt.Errorf("%d are; %v", m.written, err)
		}
		return true, nil
	})
	if err != nil {
		return m, fmt.Errorf("%w\n%s", err, r.measured.tail())
	}
	m.at = time.Now()
	if m.cpu, err = r.measured.cpu(); err == nil && r.process != nil {
		m.processCPU, err = r.process.cpu()
	}
	return m, err
}

// latency is how long records are on their way, at 200 a second: p50, p90 and p99.
func (b *bench) latency(ctx context.Context, s system, lasting time.Duration) (p [3]time.Duration, err error) {
	const partitions, perSecond = 12, 200
	in, out, forget, err := b.topics(ctx, partitions)
	if err != nil {
		return p, err
	}
	defer forget()
	if s == direct {
		out = in
	} else {
		r, err := b.run(ctx, s, in, out, 100)
		if err != nil {
			return p, err
		}
		defer r.stop()
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.server), kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return p, err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.server), kgo.DefaultProduceTopic(in), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return p, err
	}
	defer producer.Close()
	stamped := func(i int) *kgo.Record {
		value := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		return &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: append(value, make([]byte, 92)...)}
	}
	receiving, cancel := context.WithTimeout(ctx, 3*lasting+time.Minute)
	defer cancel()
	var took []time.Duration
	receive := func(n int) error {
		for len(took) < n {
			fetches := consumer.PollFetches(receiving)
			if receiving.Err() != nil {
				return fmt.Errorf("%s: %d of %d records came", s, len(took), n)
			}
			now := time.Now()
			fetches.EachRecord(func(r *kgo.Record) {
				took = append(took, now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(r.Value)))))
			})
		}
		return nil
	}
	// What a start takes is not on the way of a record.
	if err := producer.ProduceSync(ctx, stamped(0)).FirstErr(); err != nil {
		return p, err
	}
	if err := receive(1); err != nil {
		return p, err
	}
	took = nil
	const warmUp = 2 * perSecond
	n := warmUp + int(lasting.Seconds()*perSecond)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		ticker := time.NewTicker(time.Second / perSecond)
		defer ticker.Stop()
		for i := range n {
			select {
			case <-ticker.C:
			case <-sending.Done():
				return
			}
			producer.Produce(sending, stamped(i), nil)
		}
	}()
	defer func() { <-sent }()
	defer stop()
	if err := receive(n); err != nil {
		return p, err
	}
	took = took[warmUp:]
	slices.Sort(took)
	for i, q := range []int{50, 90, 99} {
		p[i] = took[len(took)*q/100]
	}
	return p, nil
}

// idle is what a sidecar takes when nothing comes: its share of a core, the largest resident size in MB, and how long a
// scrape of its metrics takes.
func (b *bench) idle(ctx context.Context, partitions int32, lasting time.Duration) (core, peak float64, scrape time.Duration, err error) {
	in, out, forget, err := b.topics(ctx, partitions)
	if err != nil {
		return 0, 0, 0, err
	}
	defer forget()
	r, err := b.run(ctx, sidecar, in, out, 100)
	if err != nil {
		return 0, 0, 0, err
	}
	defer r.stop()
	if err := r.awaitReady(ctx); err != nil {
		return 0, 0, 0, err
	}
	time.Sleep(3 * time.Second) // what follows a start is over
	before, err := r.measured.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	time.Sleep(lasting)
	after, err := r.measured.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	core = (after - before).Seconds() / time.Since(began).Seconds()
	var scrapes []time.Duration
	for range 5 {
		began := time.Now()
		if err := scrapeOnce(r.metrics); err != nil {
			return 0, 0, 0, err
		}
		scrapes = append(scrapes, time.Since(began))
	}
	size, err := r.measured.peak()
	return core, float64(size) / 1e6, median(scrapes), err
}

func scrapeOnce(port int) error {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// starts are how long a sidecar takes from exec to ready, and from its process's return to the first record of the outlet.
// The process is away for half a second, so that the wait between attempts is the first.
func (b *bench) starts(ctx context.Context) (ready, recovered time.Duration, err error) {
	in, out, forget, err := b.topics(ctx, 12)
	if err != nil {
		return 0, 0, err
	}
	defer forget()
	r, err := b.run(ctx, sidecar, in, out, 100)
	if err != nil {
		return 0, 0, err
	}
	defer r.stop()
	if err := r.awaitReady(ctx); err != nil {
		return 0, 0, err
	}
	ready = time.Since(r.began)
	r.process.kill()
	time.Sleep(500 * time.Millisecond)
	if err := b.kafka.fill(ctx, in, 12, 12, 100); err != nil {
		return 0, 0, err
	}
	if err := b.startProcess(ctx, r, sidecar, b.dir); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	_, err = b.reach(ctx, r, out, 1, often)
	return ready, time.Since(began), err
}

// takeOver is how long partitions stand still when one of two sidecars is stopped: from SIGTERM to the first record of
// each of its partitions from the other.
func (b *bench) takeOver(ctx context.Context) (time.Duration, error) {
	in, out, forget, err := b.topics(ctx, 12)
	if err != nil {
		return 0, err
	}
	defer forget()
	var pods []*running
	for range 2 {
		r, err := b.run(ctx, sidecar, in, out, 100)
		if err != nil {
			return 0, err
		}
		defer r.stop()
		if err := r.awaitReady(ctx); err != nil {
			return 0, err
		}
		pods = append(pods, r)
	}
	group := "bench-" + out + ".echo.in"
	if err := until(ctx, "both are members", 50*time.Millisecond, func() (bool, error) {
		groups, err := b.kafka.admin.DescribeGroups(ctx, group)
		return err == nil && groups[group].State == "Stable" && len(groups[group].Members) == 2, err
	}); err != nil {
		return 0, err
	}
	began := time.Now()
	pods[0].measured.stop()
	if err := b.kafka.fill(ctx, in, 12, 12, 100); err != nil {
		return 0, err
	}
	_, err = b.reach(ctx, pods[1], out, 12, often)
	return time.Since(began), err
}

// backlog is the largest resident size, in MB, of a sidecar whose process answers nothing in front of so many bytes.
func (b *bench) backlog(ctx context.Context, partitions int32, bytes int) (float64, error) {
	in, out, forget, err := b.topics(ctx, partitions)
	if err != nil {
		return 0, err
	}
	defer forget()
	if err := b.kafka.fill(ctx, in, partitions, bytes>>10, 1<<10); err != nil {
		return 0, err
	}
	r, err := b.run(ctx, blocked, in, out, 100)
	if err != nil {
		return 0, err
	}
	defer r.stop()
	if err := r.awaitReady(ctx); err != nil {
		return 0, err
	}
	time.Sleep(15 * time.Second)
	size, err := r.measured.peak()
	return float64(size) / 1e6, err
}

func listens(address string) (bool, error) {
	connection, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false, err
	}
	return true, connection.Close()
}

// topics makes an inlet's and an outlet's; forget deletes them.
func (b *bench) topics(ctx context.Context, partitions int32) (in, out string, forget func(), err error) {
	in, out = b.name("in"), b.name("out")
	for _, topic := range []string{in, out} {
		if err := b.kafka.create(ctx, topic, partitions); err != nil {
			return "", "", nil, err
		}
	}
	return in, out, func() { b.forget(in, out) }, nil
}

// name is a new one for a topic.
func (b *bench) name(role string) string { return fmt.Sprintf("%s-%08x", role, rand.Uint32()) }

// forget deletes topics; one that is left only takes disk until the end.
func (b *bench) forget(topics ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.kafka.drop(ctx, topics...); err != nil {
		fmt.Fprintln(os.Stderr, "not deleted:", err)
	}
}

// median of an odd number of values is one of them.
func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
