package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Connection is how a port reaches its brokers, whatever it then does there.
type Connection struct {
	// Options hold timeouts, backoffs and metadata ages; not the seeds, the client id, the dialer or the logger.
	Options []kgo.Opt
	// Secure turns a dialed connection to a host:port into a TLS one. It is nil for plain text. A store that has changed is
	// read again; warn is told when it cannot be.
	Secure func(ctx context.Context, conn net.Conn, address string, warn func(string)) (net.Conn, error)
	// Mechanism authenticates; what it has to ask elsewhere, it asks over the network. It is nil without SASL.
	Mechanism     func(network) sasl.Mechanism
	Protocol      string // security.protocol
	MechanismName string // empty without SASL
	// DialTimeout bounds one attempt to connect. It is for the dialer: kgo's own option has no effect beside one.
	DialTimeout time.Duration
	// Properties are those of the whole client, for a person to read.
	Properties []EffectiveProperty
	// CertificateExpires is when the client certificate in use expires; nil, or zero, without one. A scrape calls it.
	CertificateExpires func() time.Time
}

// OffsetReset is where reading starts when a partition has no committed offset.
type OffsetReset struct {
	Policy string        // "earliest", "latest", "none" or "by_duration"
	Ago    time.Duration // by_duration alone
}

// ConsumerSettings is what an inlet's Kafka properties mean.
type ConsumerSettings struct {
	Connection        Connection
	Options           []kgo.Opt // fetching and group membership; not the group's name, the topic, the instance id, where to start or callbacks
	ConsumerProtocol  bool      // group.protocol=consumer (KIP-848); false is classic
	InstanceID        string    // group.instance.id
	InstanceIDGiven   bool      // the user wrote one, also when it is empty: then the member is dynamic
	OffsetReset       OffsetReset
	FetchMaxBytes     int32 // bytes of one response
	MaxPartitionFetch int32 // bytes
	SessionTimeout    time.Duration
	RebalanceTimeout  time.Duration // max.poll.interval.ms
	DefaultAPITimeout time.Duration // bounds a commit with all its retries
}

// ProducerSettings is what an outlet's Kafka properties mean.
type ProducerSettings struct {
	Connection      Connection
	Options         []kgo.Opt     // batching, compression, acknowledgement; not ProducerBatchMaxBytes
	MaxRequestSize  int32         // bytes; 0 when the user gave none: then the topic's max.message.bytes alone counts
	DeliveryTimeout time.Duration // a write without an answer for so long fails the conversation
}

// property is one Java client property as it was written.
type property struct {
	name, value string
	place       place
	resolved    bool // the value is of a provider, and not shown
}

// consumerSettings says what an inlet's Kafka properties mean. A later layer's property counts before an earlier one's. Each
// problem and warning begins with the place of the property; settings with a problem are of no use.
func consumerSettings(inlet string, outside outside, layers ...[]property) (settings ConsumerSettings, warnings, problems []string) {
	d := portProperties{client: consumers, port: "inlet " + quote(inlet), outside: outside}
	d.read(layers)
	d.checkConsumer()
	settings = d.consumer()
	return settings, d.warnings, d.problems
}

// producerSettings is consumerSettings for an outlet.
func producerSettings(outlet string, outside outside, layers ...[]property) (settings ProducerSettings, warnings, problems []string) {
	d := portProperties{client: producers, port: "outlet " + quote(outlet), outside: outside}
	d.read(layers)
	d.checkProducer()
	settings = d.producer()
	return settings, d.warnings, d.problems
}

// clientKinds are the kinds of Kafka client that a property is for.
type clientKinds int

const (
	consumers clientKinds = 1 << iota
	producers
	bothClients = consumers | producers
)

// propertyEffect is what becomes of a property.
type propertyEffect int

const (
	mapped   propertyEffect = iota // it does here what it does in Java
	noEffect                       // it is legal and nothing here is like it
	owned                          // the sidecar decides it
	refused                        // it cannot be had, and going on without it would be wrong
)

// propertyRule is what the sidecar does with one Java client property: a row of the table.
type propertyRule struct {
	name    string // one that ends with a dot stands for all that begin so
	clients clientKinds
	effect  propertyEffect

	why   string                   // why it is not mapped: the end of a sentence
	same  []string                 // values that ask for what is done anyway, and so need no word
	legal func(value string) error // of one not mapped, what Java takes; the error ends "it must be". nil: anything

	// Of mapped ones, for the document.
	does         string // what it says, with its unit
	differs      string // why the default is not Java's
	shownDefault string // where byDefault is not it
	secret       bool   // the value must never be shown

	byDefault string // of mapped ones, in Java's syntax; empty when the zero value is the default
	// set reads a mapped one's value. It is called with the default, then with what the user gave. The error ends the sentence
	// "it must be".
	set func(d *portProperties, value string) error
}

// portProperties is a port's properties while they are read.
type portProperties struct {
	client             clientKinds
	port               string // for problems
	outside            outside
	names              []string // of those given, in their order
	given              map[string]property
	failed             map[string]bool   // properties whose values could not be read; they have their defaults
	instead            map[string]string // values that hold in the place of those given or by default
	warnings, problems []string

	propertyValues
}

// read finds the row of each property and follows it.
func (d *portProperties) read(layers [][]property) {
	d.given, d.failed, d.instead = map[string]property{}, map[string]bool{}, map[string]string{}
	for _, property := range slices.Concat(layers...) {
		if _, again := d.given[property.name]; !again {
			d.names = append(d.names, property.name)
		}
		d.given[property.name] = property
	}
	rules := propertyRules()
	for _, rule := range rules {
		if rule.byDefault != "" && rule.clients&d.client != 0 {
			if err := rule.set(d, rule.byDefault); err != nil {
				d.problem(property{name: rule.name}, "its default must be %v", err) // a mistake in the table, which every test would see
			}
		}
	}
	d.resolve()
	for _, name := range d.names {
		if d.failed[name] {
			continue
		}
		d.follow(rules, d.given[name])
	}
}

func (d *portProperties) follow(rules []propertyRule, given property) {
	rule := findRule(rules, given.name)
	value := strings.TrimSpace(given.value) // as Java does
	switch {
	case rule == nil:
		d.warn(given, "no Kafka client property has that name; it is ignored%s", suggest(given.name, ruleNames(rules, d.client)))
	case rule.clients&d.client == 0:
		d.warn(given, "it is a %s's property and has no effect on an %s", map[clientKinds]string{consumers: "consumer", producers: "producer"}[rule.clients], strings.Fields(d.port)[0])
	case rule.effect == mapped:
		if err := rule.set(d, value); err != nil {
			d.failed[given.name] = true
			d.problem(given, "it is %s, but must be %v", rule.shown(given), err)
		}
	case rule.legal != nil && rule.legal(value) != nil:
		d.problem(given, "it is %s, but must be %v", rule.shown(given), rule.legal(value))
	case slices.ContainsFunc(rule.same, func(same string) bool { return strings.EqualFold(same, value) }):
	case rule.effect == refused:
		d.problem(given, "%s", rule.why)
	case rule.effect == owned:
		d.warn(given, "it is ignored: %s", rule.why)
	default:
		d.warn(given, "it has no effect: %s", rule.why)
	}
}

func findRule(rules []propertyRule, name string) *propertyRule {
	for i := range rules {
		if prefix := rules[i].name; prefix == name || strings.HasSuffix(prefix, ".") && strings.HasPrefix(name, prefix) {
			return &rules[i]
		}
	}
	return nil
}

func ruleNames(rules []propertyRule, client clientKinds) []string {
	var names []string
	for _, rule := range rules {
		if rule.clients&client != 0 && !strings.HasSuffix(rule.name, ".") {
			names = append(names, rule.name)
		}
	}
	return names
}

func (d *portProperties) warn(at property, format string, values ...any) {
	d.warnings = append(d.warnings, d.tell(at, format, values))
}

func (d *portProperties) problem(at property, format string, values ...any) {
	d.problems = append(d.problems, d.tell(at, format, values))
}

func (d *portProperties) tell(at property, format string, values []any) string {
	text := d.port + ": " + quote(at.name) + ": " + fmt.Sprintf(format, values...)
	if at.place == (place{}) {
		return text
	}
	return at.place.String() + ": " + text
}

// either is the property of several that the user wrote, the first one when none is, for a problem of all of them.
func (d *portProperties) either(names ...string) property {
	for _, name := range names {
		if given, ok := d.given[name]; ok {
			return given
		}
	}
	return property{name: names[0]}
}

// sound says that the values of the properties could be read, so that they can be compared.
func (d *portProperties) sound(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return d.failed[name] })
}

// shown is a value of the property for a log.
func (r *propertyRule) shown(given property) string {
	if r.secret || given.resolved {
		return "a value not shown here"
	}
	return quote(given.value)
}

// shown is the value of a name that has no row, for a log.
func shown(given property) string {
	if secret(given.name) {
		return "a value not shown here"
	}
	return quote(given.value)
}

// secret says that a value must never be shown, by the name alone.
func secret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"password", "secret", "jaas", "key", "token", "credential"}, func(part string) bool { return strings.Contains(name, part) })
}

// revokeWork is how long giving up a partition may take.
const revokeWork = 3 * time.Second

// checkConsumer checks what several properties say together.
func (d *portProperties) checkConsumer() {
	if d.groupProtocol == "consumer" {
		for _, name := range brokersDecide {
			if given, ok := d.given[name]; ok { // the Java consumer refuses it too
				d.problem(given, "it cannot be set with group.protocol=consumer, where the broker decides it; remove one of the two")
			}
		}
	} else {
		if given, ok := d.given["group.remote.assignor"]; ok && d.sound("group.protocol") { // the Java consumer refuses it too
			d.problem(given, "it cannot be set with group.protocol=classic, where the members assign; remove it or set group.protocol=consumer")
		}
		d.checkHeartbeat()
	}
	if d.maxPollInterval <= revokeWork && d.sound("max.poll.interval.ms") {
		d.warn(d.either("max.poll.interval.ms"), "it is %d, no more than the %d ms that giving up a partition may take: a rebalance can cost the membership and repeat records",
			d.maxPollInterval.Milliseconds(), revokeWork.Milliseconds())
	}
}

func (d *portProperties) checkHeartbeat() {
	at := d.either("heartbeat.interval.ms", "session.timeout.ms")
	heartbeat, session := d.heartbeat.Milliseconds(), d.session.Milliseconds()
	switch {
	case !d.sound("heartbeat.interval.ms", "session.timeout.ms"):
	case heartbeat >= session: // the Java consumer refuses it too
		d.problem(at, "heartbeat.interval.ms (%d) must be less than session.timeout.ms (%d), and should be at most a third of it", heartbeat, session)
	case 3*heartbeat > session:
		d.warn(at, "heartbeat.interval.ms (%d) is more than a third of session.timeout.ms (%d): one heartbeat that is lost or late can cost the membership", heartbeat, session)
	}
}

// checkProducer checks what several properties say together.
func (d *portProperties) checkProducer() {
	if least := d.linger + d.requestTimeout; d.deliveryTimeout < least && d.sound("delivery.timeout.ms", "request.timeout.ms", "linger.ms") {
		sum := fmt.Sprintf("linger.ms (%d) + request.timeout.ms (%d)", d.linger.Milliseconds(), d.requestTimeout.Milliseconds())
		if given, ok := d.given["delivery.timeout.ms"]; ok { // the Java producer refuses it too
			d.problem(given, "delivery.timeout.ms (%d) must be at least %s", d.deliveryTimeout.Milliseconds(), sum)
		} else { // the Java producer raises it too
			d.warn(d.either("request.timeout.ms", "linger.ms"), "delivery.timeout.ms is raised from %d to %d, since it must be at least %s", d.deliveryTimeout.Milliseconds(), least.Milliseconds(), sum)
			d.deliveryTimeout = least
			d.instead["delivery.timeout.ms"] = strconv.FormatInt(least.Milliseconds(), 10)
		}
	}
	if given, ok := d.given["enable.idempotence"]; ok && strings.EqualFold(strings.TrimSpace(given.value), "true") { // the Java producer refuses these too
		if d.acks != "all" {
			d.problem(given, "enable.idempotence=true needs acks=all, but acks is %s", d.acks)
		}
		if d.retries == 0 {
			d.problem(given, "enable.idempotence=true needs retries of at least 1, but retries is 0")
		}
	}
	inFlight := d.given["max.in.flight.requests.per.connection"]
	if d.acks == "all" && d.maxInFlight > 5 { // the Java producer refuses it too
		d.problem(inFlight, "it is %d, but must be at most 5 with acks=all: more could not be kept in order", d.maxInFlight)
	}
	if d.acks != "all" {
		d.warn(d.either("acks"), "acks=%s BREAKS THE GUARANTEE that an inlet's offsets are committed only after everything emitted for them is written: "+
			"a broker that fails loses records for good; set acks=all", d.acks)
		if d.maxInFlight > 1 {
			d.warn(inFlight, "it is %d, but works as 1 with acks=%s: more could not be kept in order", d.maxInFlight, d.acks)
			d.instead["max.in.flight.requests.per.connection"] = "1"
		}
	}
}

// connection builds what both kinds of client have in common. requestOverhead is kgo's part of request.timeout.ms.
func (d *portProperties) connection(requestOverhead time.Duration) Connection {
	options := []kgo.Opt{
		kgo.RequestTimeoutOverhead(requestOverhead),
		kgo.ConnIdleTimeout(d.connectionIdle),
		kgo.RetryBackoffFn(retryBackoff(d.retryBackoff, d.retryBackoffMax)),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(d.metadataMaxAge),
	}
	connection := Connection{Options: options, DialTimeout: d.connectTimeout, Properties: d.effective()}
	d.secureConnection(&connection)
	return connection
}

func (d *portProperties) consumer() ConsumerSettings {
	if _, given := d.given["fetch.max.bytes"]; !given && d.maxPartitionFetch > d.fetchMaxBytes { // a partition may have what its own property asks for
		d.fetchMaxBytes = d.maxPartitionFetch
		d.instead["fetch.max.bytes"] = strconv.Itoa(int(d.fetchMaxBytes))
	}
	if d.maxPartitionFetch > d.fetchMaxBytes { // as kgo does
		d.maxPartitionFetch = d.fetchMaxBytes
		d.instead["max.partition.fetch.bytes"] = strconv.Itoa(int(d.maxPartitionFetch))
	}
	connection := d.connection(d.requestTimeout)
	connection.Options = append(connection.Options,
		kgo.RetryTimeoutFn(groupRetryTimeout(d.session, d.defaultAPITimeout)),
		kgo.RequestRetries(math.MaxInt32), // time bounds them, as in Java
	)
	options := []kgo.Opt{
		kgo.FetchMinBytes(d.fetchMinBytes),
		kgo.FetchMaxBytes(d.fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(d.maxPartitionFetch),
		kgo.FetchMaxWait(d.fetchMaxWait),
		kgo.FetchIsolationLevel(d.isolation),
		kgo.SessionTimeout(d.session),
		kgo.HeartbeatInterval(d.heartbeat),
		kgo.RebalanceTimeout(d.maxPollInterval),
		kgo.Balancers(d.assignors()...),
	}
	if d.fetchMaxBytes > brokerMaxBytes/2 { // kgo refuses an answer over this; a batch may be larger than asked for
		options = append(options, kgo.BrokerMaxReadBytes(int32(min(2*int64(d.fetchMaxBytes), kgoMaxBytes))))
	}
	if d.rack != "" {
		options = append(options, kgo.Rack(d.rack))
	}
	if !d.checkCRCs {
		options = append(options, kgo.DisableFetchCRCValidation())
	}
	if d.groupProtocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	instance, given := d.given["group.instance.id"]
	return ConsumerSettings{
		Connection:        connection,
		Options:           options,
		ConsumerProtocol:  d.groupProtocol == "consumer",
		InstanceID:        strings.TrimSpace(instance.value),
		InstanceIDGiven:   given,
		OffsetReset:       d.offsetReset,
		FetchMaxBytes:     d.fetchMaxBytes,
		MaxPartitionFetch: d.maxPartitionFetch,
		SessionTimeout:    d.session,
		RebalanceTimeout:  d.maxPollInterval,
		DefaultAPITimeout: d.defaultAPITimeout,
	}
}

func (d *portProperties) producer() ProducerSettings {
	// kgo waits for an answer as long as it tells the broker to wait for replicas and the overhead besides, where Java waits
	// request.timeout.ms in all.
	overhead := min(d.requestTimeout/2, 10*time.Second)
	options := []kgo.Opt{
		kgo.ProduceRequestTimeout(d.requestTimeout - overhead),
		kgo.ProducerLinger(d.linger),
		kgo.ProducerBatchCompression(d.codec()),
		// The sidecar bounds what it has produced and not confirmed itself; a Produce that waits for space would hold up every
		// partition.
		kgo.MaxBufferedRecords(math.MaxInt),
	}
	if d.acks != "all" {
		acks := kgo.LeaderAck()
		if d.acks == "0" {
			acks = kgo.NoAck()
		}
		options = append(options, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
	}
	if d.retries < unlimitedRetries {
		options = append(options, kgo.RecordRetries(d.retries))
	}
	if d.roundRobin {
		options = append(options, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	} else if d.ignoreKeys || !d.adaptivePartitioning {
		options = append(options, kgo.RecordPartitioner(kgo.UniformBytesPartitioner(stickyBytes, d.adaptivePartitioning, !d.ignoreKeys, nil)))
	}
	if d.maxRequestSize > brokerMaxBytes {
		options = append(options, kgo.BrokerMaxWriteBytes(d.maxRequestSize))
	}
	return ProducerSettings{
		Connection:      d.connection(overhead),
		Options:         options,
		MaxRequestSize:  d.maxRequestSize,
		DeliveryTimeout: d.deliveryTimeout,
	}
}
