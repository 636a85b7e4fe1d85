package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
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
	name, help string
	kind       dto.MetricType
}

func newSeries(name, help string) *series {
	if strings.HasSuffix(name, "_total") {
		return &series{name, help, dto.MetricType_COUNTER}
	}
	return &series{name, help, dto.MetricType_GAUGE}
}

// inFamilies brings the points of each series together.
func inFamilies(points []point) []*dto.MetricFamily {
	var families []*dto.MetricFamily
	of := map[*series]*dto.MetricFamily{}
	all := make([]dto.Metric, len(points))
	for i := range points {
		p, m := &points[i], &all[i]
		family := of[p.series]
		if family == nil {
			family = &dto.MetricFamily{Name: &p.series.name, Help: &p.series.help, Type: &p.series.kind}
			of[p.series] = family
			families = append(families, family)
		}
		m.Label = p.labels
		if p.series.kind == dto.MetricType_COUNTER {
			m.Counter = &dto.Counter{Value: &p.value}
		} else {
			m.Gauge = &dto.Gauge{Value: &p.value}
		}
		family.Metric = append(family.Metric, m)
	}
	return families
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

// gatherer reads what belongs to inlets, their held partitions and outlets at each scrape, so that the series come and go
// with the partition, and adds what is counted elsewhere. It is a prometheus.Gatherer in the registry's place, which would
// sort and compare ten thousand points each time.
type gatherer struct {
	counted *prometheus.Registry
	inlets  []*inlet
	outlets []*outlet
	java    javaSeries
	own     ownSeries
}

// Gather returns every series of the sidecar, in the order of their names.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	now := time.Now()
	var points []point
	for _, in := range g.inlets {
		points = g.inletPoints(points, in, now)
		points = g.own.portPoints(points, &in.cfg.PortConfig, &in.cfg.Consumer.Connection)
	}
	for _, o := range g.outlets {
		points = g.java.outletPoints(points, o, now)
		points = g.own.portPoints(points, &o.cfg.PortConfig, &o.cfg.Producer.Connection)
	}
	families, err := g.counted.Gather()
	families = append(families, inFamilies(points)...)
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, err
}

func (g *gatherer) inletPoints(points []point, in *inlet, now time.Time) []point {
	in.mu.Lock()
	defer in.mu.Unlock()
	points = g.java.inletPoints(points, in, now)
	points = g.own.inletPoints(points, in, now)
	for _, p := range slices.Sorted(maps.Keys(in.held)) {
		a := in.held[p]
		points = g.java.partitionPoints(points, a, now)
		points = g.own.partitionPoints(points, a, now)
	}
	return points
}

func newGatherer(m *metrics, inlets []*inlet, outlets []*outlet) *gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &gatherer{counted: registry, inlets: inlets, outlets: outlets, java: newJavaSeries(), own: newOwnSeries()}
}

// metricsHandler answers a scrape, as OpenMetrics when that is asked for; there are no exemplars.
func metricsHandler(series prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(series, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// serveMetrics answers scrapes on listener until ctx ends.
func serveMetrics(ctx context.Context, listener net.Listener, series prometheus.Gatherer, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metricsHandler(series))
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
