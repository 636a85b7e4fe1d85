package main

import (
	"cmp"
	"slices"
	"strings"
)

const (
	maxClientIDBytes = 256     // kgo's limit
	maxGroupBytes    = 1 << 15 // that of a string in Kafka's protocol
)

// The names of what may be in a port, and of its sections of Kafka properties.
func inletValues() []string {
	return []string{"topic", "group", "client-id", "bootstrap.servers", "batch.max-records", "batch.max-bytes"}
}
func inletSections() []string  { return []string{"connection-config", "consumer-config"} }
func outletValues() []string   { return []string{"topic", "client-id", "bootstrap.servers"} }
func outletSections() []string { return []string{"connection-config", "producer-config"} }

// portReader reads one port of streamlet.conf.
type portReader struct {
	*streamletReader
	name   string
	path   string // flow.inlets.in.
	object *hoconValue
	leaves map[string]hoconProperty // what stands in the port, by its name behind the path
}

// openPort checks that a port's names are known and its sections objects. values and sections are the names of what may be
// in it. It returns nil, and a problem, if the port is no object.
func (r *streamletReader) openPort(path, name string, object *hoconValue, values, sections []string) *portReader {
	if object.kind != hoconObject {
		r.problem("%v: %s%s must be an object", object.place, path, name)
		return nil
	}
	p := &portReader{r, name, path + name + ".", object, map[string]hoconProperty{}}
	r.unknownKeys(p.path, object, values, sections)
	for _, section := range sections {
		if v := object.get(section); !isUnset(v) && v.kind != hoconObject {
			r.problem("%v: %s%s must be an object of Kafka properties", v.place, p.path, section)
		}
	}
	for _, leaf := range object.flatten() {
		p.leaves[leaf.name] = leaf
	}
	return p
}

func (r *streamletReader) readInlet(name string, object *hoconValue) {
	p := r.openPort("flow.inlets.", name, object, inletValues(), inletSections())
	if p == nil {
		return
	}
	inlet := InletConfig{PortConfig: p.common(), Group: p.clientName("group", maxGroupBytes), BatchMaxRecords: p.maxRecords(), BatchMaxBytes: p.maxBytes()}
	settings, warnings, problems := consumerSettings(name, p.outside, p.kafkaProperties("connection-config."), p.kafkaProperties("consumer-config."))
	inlet.Consumer = settings
	r.warnings, r.problems = append(r.warnings, warnings...), append(r.problems, problems...)
	r.cfg.Inlets = append(r.cfg.Inlets, inlet)
}

func (r *streamletReader) readOutlet(name string, object *hoconValue) {
	p := r.openPort("flow.outlets.", name, object, outletValues(), outletSections())
	if p == nil {
		return
	}
	outlet := OutletConfig{PortConfig: p.common()}
	settings, warnings, problems := producerSettings(name, p.outside, p.kafkaProperties("connection-config."), p.kafkaProperties("producer-config."))
	outlet.Producer = settings
	r.warnings, r.problems = append(r.warnings, warnings...), append(r.problems, problems...)
	r.cfg.Outlets = append(r.cfg.Outlets, outlet)
}

func (p *portReader) common() PortConfig {
	return PortConfig{Name: p.name, Topic: p.topic(), ClientID: p.clientName("client-id", maxClientIDBytes), BootstrapServers: p.bootstrapServers()}
}

// value is the value of a name, if one is written: the one under the name as keys or as one quoted key, whichever is later.
func (p *portReader) value(name string) *hoconValue {
	if leaf, ok := p.leaves[name]; ok {
		return leaf.value
	}
	return cmp.Or(p.object.get(name), p.object.get(strings.Split(name, ".")...)) // an object, or nothing
}

func (p *portReader) topic() string {
	v := p.value("topic")
	topic := p.required(p.object, p.path+"topic", v, "the name of the Kafka topic")
	if strings.TrimSpace(topic) != "" && !isKafkaName(topic) {
		p.problem("%v: %stopic is %s, but must be 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither . nor ..", v.place, p.path, quote(topic))
	}
	return topic
}

// clientName is a group or a client id, by default <pipeline>.<streamlet>.<port>.
func (p *portReader) clientName(name string, most int) string {
	v := p.value(name)
	text, given := p.text(p.path+name, v)
	if isUnset(v) {
		text, v = p.cfg.Pipeline+"."+p.cfg.Streamlet+"."+p.name, p.object
	} else if given && strings.TrimSpace(text) == "" {
		p.problem("%v: %s%s is empty; leave it out for <pipeline>.<streamlet>.<port>", v.place, p.path, name)
	}
	if len(text) > most {
		p.problem("%v: %s%s is %s, which has %d bytes; it may have %d", v.place, p.path, name, quote(text), len(text), most)
	}
	return text
}

func (p *portReader) bootstrapServers() []string {
	v := p.value("bootstrap.servers")
	text := p.required(p.object, p.path+"bootstrap.servers", v, "the brokers, as host:port or several with commas between them")
	var servers []string
	for _, server := range splitList(text) {
		if _, address, found := strings.Cut(server, "://"); found { // Java takes PLAINTEXT://host:port, and no notice of what is in front
			server = address
		}
		if !isHostPort(server) {
			p.problem("%v: %sbootstrap.servers has %s, which is not host:port (an IPv6 address stands in brackets: [::1]:9092)", v.place, p.path, quote(server))
		} else if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	if len(servers) == 0 && strings.TrimSpace(text) != "" && len(splitList(text)) == 0 {
		p.problem("%v: %sbootstrap.servers names no broker", v.place, p.path)
	}
	return servers
}

func (p *portReader) maxRecords() int {
	const most = 1_000_000
	v := p.value("batch.max-records")
	text, ok := p.text(p.path+"batch.max-records", v)
	if !ok {
		return 100
	}
	n, whole := wholeNumber(text)
	if !whole || n < 1 || n > most {
		p.problem("%v: %sbatch.max-records is %s, but must be a whole number from 1 to %d", v.place, p.path, quote(text), most)
	}
	return int(n)
}

func (p *portReader) maxBytes() int64 {
	const most = 1 << 30
	v := p.value("batch.max-bytes")
	text, ok := p.text(p.path+"batch.max-bytes", v)
	if !ok {
		return 1 << 20
	}
	n, err := parseByteSize(text)
	if err != nil || n < 1 || n > most {
		p.problem("%v: %sbatch.max-bytes is %s, but must be a size from 1 byte to 1 GiB, such as 512k or 1 MiB", v.place, p.path, quote(text))
	}
	return n
}

// kafkaProperties are the properties of a section, whose name ends with a dot, in the order in which they are written.
func (p *portReader) kafkaProperties(section string) []property {
	var leaves []hoconProperty
	for name, leaf := range p.leaves {
		if strings.HasPrefix(name, section) {
			leaves = append(leaves, leaf)
		}
	}
	slices.SortFunc(leaves, func(a, b hoconProperty) int {
		return cmp.Or(cmp.Compare(a.value.order, b.value.order), cmp.Compare(a.name, b.name))
	})
	var properties []property
	for _, leaf := range leaves {
		name := strings.TrimPrefix(leaf.name, section)
		if leaf.replaced != nil {
			p.warn("%v: %s takes the place of what is written at %v, which is gone; write both names in double quotes to keep both", leaf.value.place, quote(p.path+leaf.name), *leaf.replaced)
		}
		if text, ok := p.text(p.path+leaf.name, leaf.value); ok {
			properties = append(properties, property{name: name, value: text, place: leaf.value.place})
		}
	}
	return properties
}
