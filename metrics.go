package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// partitionMetrics reads the series of every held partition at each scrape, so that they come and go with it.
type partitionMetrics struct {
	inlets             []*inlet
	lag, busy, stalled *prometheus.Desc
}

func newPartitionMetrics(inlets []*inlet) *partitionMetrics {
	return &partitionMetrics{
		inlets: inlets,
		lag: prometheus.NewDesc("kafka_consumer_consumer_fetch_manager_metrics_records_lag",
			"Records behind, per inlet partition.", []string{"client_id", "topic", "partition"}, nil),
		busy: prometheus.NewDesc("ankka_flow_sidecar_in_flight",
			"1 while a batch of the partition is with the process.", []string{"inlet", "partition"}, nil),
		stalled: prometheus.NewDesc("ankka_flow_sidecar_stalled_seconds",
			"How long the partition has gone without committing; 0 when nothing is outstanding.", []string{"inlet", "partition"}, nil),
	}
}

func (m *partitionMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.lag
	ch <- m.busy
	ch <- m.stalled
}

func (m *partitionMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, in := range m.inlets {
		// Kafka's own metrics name topics with underscores for dots.
		topic := strings.ReplaceAll(in.cfg.Topic, ".", "_")
		in.mu.Lock()
		for p, a := range in.held {
			partition := strconv.Itoa(int(p))
			gauge(m.lag, float64(a.lag()), in.cfg.ClientID, topic, partition)
			busy := 0.0
			if a.withProcess != nil {
				busy = 1
			}
			gauge(m.busy, busy, in.cfg.Name, partition)
			stalled := 0.0
			if s := in.stalls[p]; s != nil {
				stalled = time.Since(s.since).Seconds()
			}
			gauge(m.stalled, stalled, in.cfg.Name, partition)
		}
		in.mu.Unlock()
	}
}

// serveMetrics answers scrapes on listener until ctx ends.
func serveMetrics(ctx context.Context, listener net.Listener, inlets []*inlet, log *slog.Logger) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newPartitionMetrics(inlets), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
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
