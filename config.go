package main

import (
	"log/slog"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

// Config is everything the sidecar was told, checked as a whole and never changed afterwards.
type Config struct {
	ProcessAddress      string // host:port of the streamlet's process
	ConfigDir           string
	StateDir            string
	MetricsPort         int
	DiscoveryTimeout    time.Duration // of one call
	StallWarningAfter   time.Duration
	ReconnectMaxBackoff time.Duration
	MaxEmitBytes        int64  // held emits of one batch
	PodName             string // empty outside Kubernetes
	PodNamespace        string
	KubernetesHost      string // empty outside Kubernetes
	KubernetesPort      string
	LogFormat           string // "text" or "json"
	LogLevel            slog.Level

	Pipeline   string
	Streamlet  string         // its place in the pipeline, as streamlet.conf names it
	ConfigJSON string         // Start.config_json
	Spec       *flowv1.Spec   // as deployed
	Inlets     []InletConfig  // sorted by name
	Outlets    []OutletConfig // sorted by name
}

// PortConfig is what an inlet and an outlet have in common.
type PortConfig struct {
	Name             string
	Topic            string
	ClientID         string
	BootstrapServers []string // host:port each
}

// InletConfig is one inlet's topic, group and consumer.
type InletConfig struct {
	PortConfig
	Group           string
	BatchMaxRecords int
	BatchMaxBytes   int64 // key + value + headers
	Consumer        ConsumerSettings
}

// OutletConfig is one outlet's topic and producer.
type OutletConfig struct {
	PortConfig
	Producer ProducerSettings
}
