package testkit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Port is a port of a descriptor with its contract, the fingerprint reckoned here, apart from the sidecar's own.
func Port(name, schema string) *flowv1.Port {
	sum := sha256.Sum256([]byte(schema))
	return &flowv1.Port{Name: name, Contract: &flowv1.Contract{
		Format: "json", SchemaName: schema, Fingerprint: base64.StdEncoding.EncodeToString(sum[:]),
	}}
}

// Ports are several ports whose schemas are named after them.
func Ports(names ...string) (ports []*flowv1.Port) {
	for _, name := range names {
		ports = append(ports, Port(name, name+".v1"))
	}
	return ports
}

// Spec is the descriptor of a streamlet that was made by nobody's SDK.
func Spec(name string, inlets, outlets []*flowv1.Port, parameters ...*flowv1.ConfigParameter) *flowv1.Spec {
	return &flowv1.Spec{
		ProtocolVersion: "1.0",
		Sdk:             &flowv1.SdkInfo{Name: "testkit", Version: "1"},
		Streamlet:       &flowv1.StreamletDescriptor{Name: name, Inlets: inlets, Outlets: outlets, ConfigParameters: parameters},
	}
}

// CartRouter is the streamlet of the documents.
func CartRouter() *flowv1.Spec {
	return Spec("cart-router",
		[]*flowv1.Port{Port("in", "cart-events.v1")},
		[]*flowv1.Port{Port("review", "cart-events.v1"), Port("valid", "cart-events.v1")},
		&flowv1.ConfigParameter{Key: "review-threshold", Type: flowv1.ConfigType_INTEGER, DefaultValue: "100"})
}

// DescriptorJSON is descriptor.json for spec. Readers take any JSON form of it, so this is not the canonical one.
func DescriptorJSON(spec *flowv1.Spec) []byte {
	text, err := protojson.MarshalOptions{UseProtoNames: true, Indent: "  "}.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

// Deployment is what streamlet.conf says.
type Deployment struct {
	Pipeline  string
	Streamlet string
	Servers   string            // bootstrap.servers of every port
	Config    map[string]string // parameters; the values are written as they are
	Inlets    []Inlet
	Outlets   []OutletPort
}

// Inlet is an inlet of a Deployment.
type Inlet struct {
	Name, Topic, Group string // Group may be empty
	MaxRecords         int    // 0: left out
	MaxBytes           string // empty: left out
	Consumer           map[string]string
	Reach
}

// Reach is how a port reaches its brokers.
type Reach struct {
	Servers    string // bootstrap.servers; empty: the Deployment's
	Connection map[string]string
}

func (r Reach) servers(d Deployment) string {
	if r.Servers == "" {
		return d.Servers
	}
	return r.Servers
}

// OutletPort is an outlet of a Deployment.
type OutletPort struct {
	Name, Topic string
	Producer    map[string]string
	Reach
}

// Conf is streamlet.conf as a person writes it: comments, unquoted keys and dotted paths. Operator is the other way to write it.
func (d Deployment) Conf() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# written for a test\nflow {\n  pipeline  = %s\n  streamlet = %s\n", quote(d.Pipeline), quote(d.Streamlet))
	b.WriteString("  config    = {")
	for i, key := range sortedKeys(d.Config) {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s = %s", key, d.Config[key])
	}
	b.WriteString(" }\n  inlets {\n")
	for _, in := range d.Inlets {
		fmt.Fprintf(&b, "    %s {\n      topic = %s\n", in.Name, quote(in.Topic))
		if in.Group != "" {
			fmt.Fprintf(&b, "      group = %s\n", quote(in.Group))
		}
		fmt.Fprintf(&b, "      bootstrap.servers = %s\n", quote(in.servers(d)))
		writeSection(&b, "connection-config", in.Connection)
		writeSection(&b, "consumer-config", in.Consumer)
		if in.MaxRecords > 0 {
			fmt.Fprintf(&b, "      batch.max-records = %d\n", in.MaxRecords)
		}
		if in.MaxBytes != "" {
			fmt.Fprintf(&b, "      batch.max-bytes = %s\n", in.MaxBytes)
		}
		b.WriteString("    }\n")
	}
	b.WriteString("  }\n  outlets {\n")
	for _, out := range d.Outlets {
		fmt.Fprintf(&b, "    %s {\n      topic = %s\n      bootstrap.servers = %s\n", out.Name, quote(out.Topic), quote(out.servers(d)))
		writeSection(&b, "connection-config", out.Connection)
		writeSection(&b, "producer-config", out.Producer)
		b.WriteString("    }\n")
	}
	b.WriteString("  }\n}\n")
	return []byte(b.String())
}

func writeSection(b *strings.Builder, name string, properties map[string]string) {
	fmt.Fprintf(b, "      %s {\n", name)
	for _, key := range sortedKeys(properties) {
		fmt.Fprintf(b, "        %s = %s\n", key, quote(properties[key]))
	}
	b.WriteString("      }\n")
}

// Operator is streamlet.conf as the operator renders it: every key and string quoted, each Kafka property one key.
func (d Deployment) Operator() []byte {
	flow := map[string]any{"pipeline": d.Pipeline, "streamlet": d.Streamlet}
	config := map[string]json.RawMessage{}
	for key, value := range d.Config {
		config[key] = json.RawMessage(value)
	}
	flow["config"] = config
	inlets, outlets := map[string]any{}, map[string]any{}
	for _, in := range d.Inlets {
		port := map[string]any{"topic": in.Topic, "bootstrap.servers": in.servers(d), "connection-config": orEmpty(in.Connection), "consumer-config": orEmpty(in.Consumer)}
		if in.Group != "" {
			port["group"] = in.Group
		}
		batch := map[string]any{}
		if in.MaxRecords > 0 {
			batch["max-records"] = in.MaxRecords
		}
		if in.MaxBytes != "" {
			batch["max-bytes"] = in.MaxBytes
		}
		port["batch"] = batch
		inlets[in.Name] = port
	}
	for _, out := range d.Outlets {
		outlets[out.Name] = map[string]any{"topic": out.Topic, "bootstrap.servers": out.servers(d), "connection-config": orEmpty(out.Connection), "producer-config": orEmpty(out.Producer)}
	}
	flow["inlets"], flow["outlets"] = inlets, outlets
	text, err := json.MarshalIndent(map[string]any{"flow": flow}, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}
