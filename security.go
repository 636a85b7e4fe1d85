package main

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// outside is what properties may look at beside themselves: files that they name, and the environment.
type outside struct {
	readFile  func(name string) ([]byte, error)
	lookupEnv func(name string) (string, bool)
}

// securityValues are what the rows of ssl.* and sasl.* set.
type securityValues struct {
	protocol     string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	mechanism    string
	jaas         *jaasEntry
	tlsVersions  []string // of ssl.enabled.protocols
	cipherSuites []string
}

func (v *securityValues) tls() bool  { return strings.HasSuffix(v.protocol, "SSL") }
func (v *securityValues) sasl() bool { return strings.HasPrefix(v.protocol, "SASL") }

// text is what the user gave for a property.
func (d *portProperties) text(name string) string { return strings.TrimSpace(d.given[name].value) }

func (d *portProperties) has(name string) bool {
	_, ok := d.given[name]
	return ok
}

// secureConnection says how the port's connections are secured, and every problem with that.
func (d *portProperties) secureConnection(c *Connection) {
	c.Protocol = d.security.protocol
	d.warnOfUnused("ssl.", d.security.tls())
	d.warnOfUnused("sasl.", d.security.sasl())
	if d.security.tls() {
		if client := d.tlsClient(); client != nil {
			c.Secure, c.CertificateExpires = client.secure, client.certificateExpires
		}
	}
	if d.security.sasl() && d.sound("sasl.mechanism", "sasl.jaas.config") {
		c.Mechanism, c.MechanismName = d.saslMechanism(), d.security.mechanism
	}
}

func (d *portProperties) warnOfUnused(prefix string, used bool) {
	if used || !d.sound("security.protocol") {
		return
	}
	for _, name := range d.names {
		if strings.HasPrefix(name, prefix) && d.sound(name) {
			d.warn(d.given[name], "it has no effect: security.protocol is %s", d.security.protocol)
		}
	}
}

// tlsClient builds what ssl.* asks for. It returns nil after a problem.
func (d *portProperties) tlsClient() *tlsClient {
	before := len(d.problems)
	client := &tlsClient{anyName: d.has("ssl.endpoint.identification.algorithm") && d.text("ssl.endpoint.identification.algorithm") == ""}
	d.tlsVersions(client)
	if trust := d.trustStore(); trust != nil {
		client.trustName = "ssl.truststore.certificates"
		if trust.location != "" {
			client.trustName = "the trust store " + quote(trust.location)
		}
		client.trust = &reloading[[]*x509.Certificate]{read: trust.content, parse: trust.trusted}
		if _, err := client.trust.get(nil); err != nil {
			d.problem(d.either("ssl.truststore.location", "ssl.truststore.certificates"), "%v", err)
		}
	}
	if key := d.keyStore(); key != nil {
		client.key = &reloading[*tls.Certificate]{read: key.content, parse: key.keyPair}
		if _, err := client.key.get(nil); err != nil {
			d.problem(d.either("ssl.keystore.location", "ssl.keystore.certificate.chain"), "%v", err)
		}
	}
	if len(d.problems) > before {
		return nil
	}
	return client
}

// trustStore is the one that ssl.truststore.* name, nil for none. The rules are Java's (DefaultSslEngineFactory), but for
// the type: one that is not given is found out by content, where Java takes JKS.
func (d *portProperties) trustStore() *store {
	s := d.storeOf("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password")
	switch certificates, password := d.given["ssl.truststore.certificates"], d.given["ssl.truststore.password"]; {
	case certificates.name != "" && s.location != "":
		d.problem(certificates, "it cannot be given together with ssl.truststore.location; remove one of the two")
	case certificates.name != "" && s.kind != "" && s.kind != "PEM":
		d.problem(certificates, "it is PEM, but ssl.truststore.type is %s; set that to PEM or remove it", s.kind)
	case s.hasPassword && (certificates.name != "" || s.kind == "PEM"):
		d.problem(password, "a PEM trust store has no password; remove it")
	case certificates.name != "":
		s.text, s.kind = d.text("ssl.truststore.certificates"), "PEM"
		return s
	case s.location != "":
		return s
	case s.hasPassword:
		d.problem(password, "there is no ssl.truststore.location that it could be for; give one or remove the password")
	}
	return nil
}

// keyStore is the one that ssl.keystore.* name, nil for none.
func (d *portProperties) keyStore() *store {
	s := d.storeOf("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password")
	s.keyPassword = d.text("ssl.key.password")
	key, chain, password := d.given["ssl.keystore.key"], d.given["ssl.keystore.certificate.chain"], d.given["ssl.keystore.password"]
	switch inline := key.name != "" || chain.name != ""; {
	case key.name != "" && chain.name == "":
		d.problem(key, "its certificates are missing; give them in ssl.keystore.certificate.chain")
	case chain.name != "" && key.name == "":
		d.problem(chain, "its private key is missing; give it in ssl.keystore.key")
	case inline && s.location != "":
		d.problem(key, "it cannot be given together with ssl.keystore.location; remove one of the two")
	case inline && s.kind != "" && s.kind != "PEM":
		d.problem(key, "it is PEM, but ssl.keystore.type is %s; set that to PEM or remove it", s.kind)
	case s.hasPassword && (inline || s.kind == "PEM"):
		d.problem(password, "a PEM key store has no password, its key may have one: ssl.key.password; remove it")
	case inline:
		s.text, s.kind = d.text("ssl.keystore.key")+"\n"+d.text("ssl.keystore.certificate.chain"), "PEM"
		return s
	case s.location != "":
		return s
	case s.hasPassword:
		d.problem(password, "there is no ssl.keystore.location that it could be for; give one or remove the password")
	}
	return nil
}

func (d *portProperties) storeOf(location, kind, password string) *store {
	return &store{
		location: d.text(location), kind: strings.ToUpper(d.text(kind)), password: d.text(password), hasPassword: d.has(password), readFile: d.outside.readFile,
	}
}

// tlsVersions sets protocols and cipher suites, of which Go lets TLS 1.2's alone be chosen.
func (d *portProperties) tlsVersions(client *tlsClient) {
	versions := []uint16{tls.VersionTLS12, tls.VersionTLS13}
	if len(d.security.tlsVersions) > 0 {
		versions = nil
		for _, name := range d.security.tlsVersions {
			versions = append(versions, javaProtocols[name])
		}
	}
	client.versions = [2]uint16{slices.Min(versions), slices.Max(versions)}
	if len(d.security.cipherSuites) == 0 {
		return
	}
	at := d.given["ssl.cipher.suites"]
	of12, has13, unknown := cipherSuites(d.security.cipherSuites)
	if len(unknown) > 0 {
		d.warn(at, "these suites cannot be had here and are left out: %s", strings.Join(unknown, ", "))
	}
	client.ciphers = of12
	switch oldOnly := client.versions[1] == tls.VersionTLS12; {
	case len(of12) == 0 && (!has13 || oldOnly):
		d.problem(at, "none of its suites can be had here with the protocols enabled; leave it out for the usual ones")
	case len(of12) == 0:
		client.versions[0] = tls.VersionTLS13
	case !has13 && !oldOnly && client.versions[0] == tls.VersionTLS12:
		client.versions[1] = tls.VersionTLS12
	}
}

const loginModules = "org.apache.kafka.common.security."

// saslMechanism builds what sasl.* asks for. It returns nil after a problem.
func (d *portProperties) saslMechanism() func(network) sasl.Mechanism {
	at := d.either("sasl.jaas.config", "sasl.mechanism", "security.protocol")
	switch d.security.mechanism {
	case "GSSAPI":
		if d.security.jaas == nil {
			d.problem(at, "security.protocol %s with sasl.mechanism GSSAPI, which is Java's default, needs sasl.jaas.config: %s required useKeyTab=true keyTab=\"…\" principal=\"…\"; or another sasl.mechanism: %s", d.security.protocol, krb5Module, oneOf(saslMechanisms[1:]))
			return nil
		}
		return d.kerberosMechanism(at)
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if d.security.jaas == nil {
			d.problem(at, "security.protocol %s with sasl.mechanism %s needs sasl.jaas.config: %s required username=\"…\" password=\"…\";", d.security.protocol, d.security.mechanism, loginModules+passwordModule(d.security.mechanism))
			return nil
		}
		return d.passwordMechanism(at)
	case "OAUTHBEARER":
		return d.oauthMechanism()
	case "AWS_MSK_IAM":
		return d.awsMechanism()
	}
	return nil
}

// passwordModule is the login module of a mechanism with a user's name and password.
func passwordModule(mechanism string) string {
	if mechanism == "PLAIN" {
		return "plain.PlainLoginModule"
	}
	return "scram.ScramLoginModule"
}

func (d *portProperties) passwordMechanism(at property) func(network) sasl.Mechanism {
	before := len(d.problems)
	options := d.security.jaas.options
	// Java takes either module for either mechanism: both hand over a name and a password.
	if !slices.Contains([]string{loginModules + "plain.PlainLoginModule", loginModules + "scram.ScramLoginModule"}, strings.TrimSpace(d.security.jaas.module)) {
		d.problem(at, "its login module must be %s for sasl.mechanism %s", loginModules+passwordModule(d.security.mechanism), d.security.mechanism)
	}
	for _, name := range []string{"username", "password"} {
		if options[name] == "" {
			d.problem(at, "its option %s is missing or empty", name)
		}
	}
	if len(d.problems) > before {
		return nil
	}
	var mechanism sasl.Mechanism
	switch auth := (scram.Auth{User: options["username"], Pass: options["password"], IsToken: strings.EqualFold(options["tokenauth"], "true")}); d.security.mechanism {
	case "PLAIN":
		mechanism = saslplain.Auth{User: auth.User, Pass: auth.Pass}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = auth.AsSha256Mechanism()
	default:
		mechanism = auth.AsSha512Mechanism()
	}
	return func(network) sasl.Mechanism { return mechanism }
}

func setSecurityProtocol(d *portProperties, value string) error {
	i := slices.IndexFunc(securityProtocols, func(p string) bool { return strings.EqualFold(p, value) })
	if i < 0 {
		return oneOfError(securityProtocols)
	}
	d.security.protocol = securityProtocols[i]
	return nil
}

var securityProtocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

var saslMechanisms = []string{"GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"}

func setSASLMechanism(d *portProperties, value string) error {
	if !slices.Contains(saslMechanisms, value) {
		return oneOfError(saslMechanisms)
	}
	d.security.mechanism = value
	return nil
}

func setJAAS(d *portProperties, value string) error {
	entry, err := parseJAAS(value)
	if err != nil {
		return &sentence{"<login module> required <option>=\"<value>\" …;: " + err.Error()}
	}
	d.security.jaas = &entry
	return nil
}

// sentence is an error that ends one.
type sentence struct{ words string }

func (s *sentence) Error() string { return s.words }

func oneOfError(words []string) error { return &sentence{oneOf(words)} }

// oldProtocols are those that Java still knows and neither Go nor a JDK of today speaks unless it is made to.
var oldProtocols = []string{"TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello"}

func setTLSVersions(d *portProperties, value string) error {
	var names, old []string
	for _, name := range splitList(value) {
		switch {
		case javaProtocols[name] != 0:
			names = append(names, name)
		case slices.Contains(oldProtocols, name):
			old = append(old, name)
		default:
			return &sentence{"a list of TLSv1.2 and TLSv1.3"}
		}
	}
	switch {
	case len(old) > 0 && len(names) == 0:
		return &sentence{"a list with TLSv1.2 or TLSv1.3 in it; older ones are not spoken here"}
	case len(old) > 0:
		d.warn(d.given["ssl.enabled.protocols"], "these are not spoken here and are left out: %s", strings.Join(old, ", "))
	}
	d.security.tlsVersions = names
	return nil
}

func setCipherSuites(d *portProperties, value string) error {
	d.security.cipherSuites = splitList(value)
	return nil
}

func setEndpointIdentification(_ *portProperties, value string) error {
	if value != "" && !strings.EqualFold(value, "https") {
		return &sentence{"https, or nothing so that the broker's name is not verified"}
	}
	return nil
}
