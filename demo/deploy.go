package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/protobuf/encoding/protojson"
)

// deployment is what the sidecar is told by its two files: which streamlet, and which topics its ports are.
type deployment struct {
	spec      *flowv1.Spec
	streamlet string // its place in the pipeline, which is always cart
	config    string // HOCON
	servers   []string
	inlet     port
	outlets   []port
	group     string
}

// port is an inlet or outlet and its topic.
type port struct{ name, topic string }

const (
	pipeline  = "cart"
	threshold = 100
)

// deploy gives a streamlet the topics of the documentation. The suffix, where those are somebody else's, is for every name that is shared
// on a cluster.
func deploy(spec *flowv1.Spec, suffix string) deployment {
	d := deployment{spec: spec, streamlet: spec.GetStreamlet().GetName()}
	if isCartRouter(spec) {
		d.streamlet = "router"
		d.config = fmt.Sprintf(" review-threshold = %d ", threshold)
	}
	d.inlet = port{spec.GetStreamlet().GetInlets()[0].GetName(), "shop.cart-events.v1" + suffix}
	for _, outlet := range spec.GetStreamlet().GetOutlets() {
		d.outlets = append(d.outlets, port{outlet.GetName(), "cart." + outlet.GetName() + "-carts" + suffix})
	}
	d.group = strings.Join([]string{pipeline, d.streamlet, d.inlet.name}, ".") + suffix
	return d
}

// isCartRouter says that the demo knows what the streamlet does with a cart.
func isCartRouter(spec *flowv1.Spec) bool {
	outlets := map[string]bool{}
	for _, outlet := range spec.GetStreamlet().GetOutlets() {
		outlets[outlet.GetName()] = true
	}
	return spec.GetStreamlet().GetName() == "cart-router" && len(outlets) == 2 && outlets["valid"] && outlets["review"]
}

func (d deployment) topics() []string {
	topics := []string{d.inlet.topic}
	for _, outlet := range d.outlets {
		topics = append(topics, outlet.topic)
	}
	return topics
}

// write puts both files into the directory.
func (d deployment) write(dir string) error {
	descriptor, err := descriptorJSON(d.spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "descriptor.json"), descriptor, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "streamlet.conf"), []byte(d.conf()), 0o644)
}

// conf is streamlet.conf as one writes it by hand.
func (d deployment) conf() string {
	var b strings.Builder
	servers := strings.Join(d.servers, ",")
	fmt.Fprintf(&b, `flow {
  pipeline  = %s
  streamlet = %s
  config    = {%s}
  inlets {
    %s {
      topic             = %q
      group             = %q
      client-id         = %q
      bootstrap.servers = %q
      connection-config {}
      consumer-config { auto.offset.reset = earliest }
      batch { max-records = 100, max-bytes = 1 MiB }
    }
  }
  outlets {
`, pipeline, d.streamlet, d.config, d.inlet.name, d.inlet.topic, d.group, d.clientID(d.inlet), servers)
	for _, outlet := range d.outlets {
		fmt.Fprintf(&b, `    %s {
      topic             = %q
      client-id         = %q
      bootstrap.servers = %q
      connection-config {}
      producer-config {}
    }
`, outlet.name, outlet.topic, d.clientID(outlet), servers)
	}
	b.WriteString("  }\n}\n")
	return b.String()
}

func (d deployment) clientID(p port) string {
	return strings.Join([]string{pipeline, d.streamlet, p.name}, ".")
}

// descriptorJSON is descriptor.json with sorted keys.
func descriptorJSON(spec *flowv1.Spec) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(spec)
	if err != nil {
		return nil, err
	}
	// protojson varies its spaces on purpose; a map has its keys sorted.
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(fields)
	return b.Bytes(), err
}
