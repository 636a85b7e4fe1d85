package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// docs/metrics.md has every series; a test compares it with what is served.

// point is one value of one series at a scrape. Its labels are shared by the series of a port or partition and belong to
// it: a thousand partitions have ten thousand points, whose labels are not made anew each time.
type point struct {
	series *series
	labels []*dto.LabelPair // sorted by name
	value  float64
}

// series is a name, its meaning and its type.
type series struct {
	desc    *prometheus.Desc
	counter bool
}

func newSeries(name, help string, labels ...string) *series {
	return &series{desc: prometheus.NewDesc(name, help, labels, nil), counter: strings.HasSuffix(name, "_total")}
}

func (p point) Desc() *prometheus.Desc { return p.series.desc }

func (p point) Write(m *dto.Metric) error {
	m.Label = p.labels
	if p.series.counter {
		m.Counter = &dto.Counter{Value: &p.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &p.value}
	}
	return nil
}

// labels makes label pairs of names and values in turn, which are given sorted by name.
func labels(namesAndValues ...string) []*dto.LabelPair {
	pairs := make([]*dto.LabelPair, 0, len(namesAndValues)/2)
	for i := 0; i < len(namesAndValues); i += 2 {
		pairs = append(pairs, &dto.LabelPair{Name: &namesAndValues[i], Value: &namesAndValues[i+1]})
	}
	return pairs
}

// javaTopic is how Kafka's own metrics write a topic's name.
func javaTopic(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

// portCollector reads what belongs to inlets, their held partitions and outlets at each scrape, so that the series come
// and go with the partition.
type portCollector struct {
	inlets  []*inlet
	outlets []*outlet
	java    javaSeries
	own     ownSeries
}

// Describe says nothing: the registry would compare each point with its description at each scrape, which takes longer than
// all the rest. The tests do that once.
func (c *portCollector) Describe(chan<- *prometheus.Desc) {}

func (c *portCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	var points []point
	for _, in := range c.inlets {
		points = c.inletPoints(points, in, now)
		points = c.own.portPoints(points, &in.cfg.PortConfig, &in.cfg.Consumer.Connection)
	}
	for _, o := range c.outlets {
		points = c.java.outletPoints(points, o, now)
		points = c.own.portPoints(points, &o.cfg.PortConfig, &o.cfg.Producer.Connection)
	}
	for i := range points {
		ch <- &points[i]
	}
}

func (c *portCollector) inletPoints(points []point, in *inlet, now time.Time) []point {
	in.mu.Lock()
	defer in.mu.Unlock()
	points = c.java.inletPoints(points, in, now)
	points = c.own.inletPoints(points, in, now)
	for _, a := range in.held {
		points = c.java.partitionPoints(points, a, now)
		points = c.own.partitionPoints(points, a, now)
	}
	return points
}

// newRegistry holds every series of the sidecar.
func newRegistry(m *metrics, inlets []*inlet, outlets []*outlet) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		&portCollector{inlets: inlets, outlets: outlets, java: newJavaSeries(), own: newOwnSeries()}, m,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// metricsHandler answers a scrape, as OpenMetrics when that is asked for; there are no exemplars.
func metricsHandler(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// serveMetrics answers scrapes on listener until ctx ends.
func serveMetrics(ctx context.Context, listener net.Listener, registry *prometheus.Registry, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metricsHandler(registry))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		_ = server.Close() // a scrape that is cut off is tried again by its scraper
	}()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		log.Error("metrics are no longer served", "cause", err)
	}
	<-stopped
}
