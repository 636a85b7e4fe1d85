//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
)

func TestEachWrongWayInIsToldInWordsAndNeverEndsTheSidecar(t *testing.T) {
	l, err := locked()
	if err != nil {
		t.Fatal(err)
	}
	ways := l.ways(t)
	at := func(w way, listener string) way { return way{listener, w.config} }
	tls, mutual, plain, scram, token, kerberos := ways["SSL, PEM"], ways["mTLS, PEM with an encrypted key"], ways["PLAIN"], ways["SCRAM-SHA-256"], ways["OAUTHBEARER by properties"], ways["GSSAPI"]
	noTLS := way{"TLS", map[string]string{}}
	for name, c := range map[string]struct {
		way    way
		server string // another than the listener
		words  []string
	}{
		"PLAIN, wrong password":           {plain.with("sasl.jaas.config", jaas("plain.PlainLoginModule", "alice", wrongPassword)), "", []string{"broker localhost:", "does not accept the credentials of sasl.mechanism PLAIN"}},
		"SCRAM, wrong password":           {scram.with("sasl.jaas.config", jaas("scram.ScramLoginModule", "alice", wrongPassword)), "", []string{"broker localhost:", "does not accept the credentials of sasl.mechanism SCRAM-SHA-256"}},
		"SCRAM, unknown user":             {scram.with("sasl.jaas.config", jaas("scram.ScramLoginModule", "mallory", wrongPassword)), "", []string{"does not accept the credentials"}},
		"OAUTHBEARER, wrong secret":       {token.with("sasl.oauthbearer.client.credentials.client.secret", wrongPassword), "", []string{"no token could be had of", "401", "invalid_client"}},
		"OAUTHBEARER, no endpoint":        {token.with("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/"), "", []string{"broker localhost:", "not logged in by sasl.mechanism OAUTHBEARER: no token could be had of 'http://127.0.0.1:1/'", "connection refused"}},
		"GSSAPI, a key that has changed":  {kerberos.with("sasl.jaas.config", krb5JAAS(l.path("changed.keytab"), "changed")), "", []string{"broker localhost:", "the KDC does not accept the key of 'changed@SUITES.EXAMPLE' in the keytab"}},
		"GSSAPI, another service name":    {kerberos.with("sasl.kerberos.service.name", "other"), "", []string{"the KDC knows no principal 'other/localhost' of the broker"}},
		"another authority":               {tls.with("ssl.truststore.location", l.path("otherca.pem")), "", []string{"broker localhost:", "CN=broker", "issuer 'CN=ca of the suites'", "is not trusted by the trust store", "CN=otherca of the suites"}},
		"the system's authorities":        {way{"TLS", map[string]string{"security.protocol": "SSL"}}, "", []string{"CN=broker", "is not trusted by the system's root certificates"}},
		"another name":                    {at(tls, "OTHERNAME"), "", []string{"CN=elsewhere.example", "is for elsewhere.example, not for the host 'localhost'"}},
		"a mechanism that is not there":   {at(plain, "TOKEN"), "", []string{"sasl.mechanism PLAIN is not enabled on this listener; enabled are: OAUTHBEARER"}},
		"plaintext on a TLS port":         {noTLS, "", []string{"the listener speaks TLS, it seems, and security.protocol is PLAINTEXT"}},
		"TLS on a plaintext port":         {tls, l.servers(), []string{"is this the address of a plaintext listener?"}},
		"no SASL on a SASL port":          {at(noTLS, "OPEN"), "", []string{"the listener asks for SASL, it seems, and security.protocol is PLAINTEXT"}},
		"SASL on a port without":          {plain, l.servers(), []string{"the listener does not use SASL, and security.protocol is SASL_PLAINTEXT"}},
		"no certificate where one is due": {at(tls, "MUTUAL"), "", []string{"it ended the TLS connection", "ssl.keystore.* gives none"}},
		"a stranger's certificate":        {mutual.with("ssl.keystore.location", l.path("stranger.plain.pem")), "", []string{"it ended the TLS connection", "does not accept the client's certificate"}},
		"a port where nobody listens":     {noTLS, "127.0.0.1:1", []string{"broker 127.0.0.1:1: unreachable: the host refuses the connection"}},
		"a name that nobody has":          {noTLS, "no-such-broker.invalid:9092", []string{"broker no-such-broker.invalid:9092:", "no-such-broker.invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := secured(t, func(*lock) way { return c.way }, func(*lock) way { return c.way })
			if c.server != "" {
				w.deployment.Inlets[0].Servers, w.deployment.Outlets[0].Servers = c.server, c.server
			}
			p := w.double(throughSpec, to("out").handle)
			s := w.sidecar(p.Addr())
			s.logs(30*time.Second, append([]string{"level=WARN", "inlet=in"}, c.words...)...)
			s.logs(30*time.Second, append([]string{"level=WARN", "outlet=out"}, c.words...)...)
			if s.isReady() {
				t.Error("it is ready")
			}
			s.terminated(15 * time.Second)
			if n := s.lines(c.words...); n > 20 {
				t.Errorf("it was said %d times", n)
			}
		})
	}
}

func TestAClockThatIsNotTheKDCsIsToldInWords(t *testing.T) {
	kerberos := func(l *lock) way { return l.ways(t)["GSSAPI"] }
	w := secured(t, kerberos, kerberos)
	l, err := locked()
	if err != nil {
		t.Fatal(err)
	}
	w.env = []string{"KRB5_CONFIG=" + l.path("ahead/krb5.conf")}
	s := w.sidecar(w.double(throughSpec, to("out").handle).Addr())
	s.logs(30*time.Second, "level=WARN", "inlet=in", "the clock here and the KDC's differ too much", "set it")
	s.logs(30*time.Second, "level=WARN", "outlet=out", "the clock here and the KDC's differ too much", "set it")
	if s.isReady() {
		t.Error("it is ready")
	}
	s.terminated(15 * time.Second)
}

// allow gives bob an ACL.
func (l *lock) allow(t *testing.T, make func(*kadm.ACLBuilder) *kadm.ACLBuilder, operations ...kadm.ACLOperation) {
	t.Helper()
	if err := l.Admin(func(admin *kadm.Client) error {
		results, err := admin.CreateACLs(context.Background(), make(kadm.NewACLs().Allow("User:bob").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...)))
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNotAuthorizedIsNamedAndHealsWhenItIs(t *testing.T) {
	for name, c := range map[string]struct {
		at        func(w *world) func(*kadm.ACLBuilder) *kadm.ACLBuilder
		operation kadm.ACLOperation
		port      string
		words     func(w *world) []string
		protocol  string // group.protocol
	}{
		"read": {func(w *world) func(*kadm.ACLBuilder) *kadm.ACLBuilder {
			return func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Topics(w.topic("in")) }
		}, kadm.OpRead, "inlet=in", func(w *world) []string { return []string{"does not authorize READ on topic '" + w.topic("in") + "'"} }, "classic"},
		"group": {func(w *world) func(*kadm.ACLBuilder) *kadm.ACLBuilder {
			return func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Groups(w.groups()[0]) }
		}, kadm.OpRead, "inlet=in", func(w *world) []string { return []string{"does not authorize READ on group '" + w.groups()[0] + "'"} }, "classic"},
		"group of the consumer protocol": {func(w *world) func(*kadm.ACLBuilder) *kadm.ACLBuilder {
			return func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Groups(w.groups()[0]) }
		}, kadm.OpRead, "inlet=in", func(w *world) []string { return []string{"does not authorize READ on group '" + w.groups()[0] + "'"} }, "consumer"},
		"write": {func(w *world) func(*kadm.ACLBuilder) *kadm.ACLBuilder {
			return func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.Topics(w.topic("out")) }
		}, kadm.OpWrite, "outlet=out", func(w *world) []string { return []string{"does not authorize WRITE on topic '" + w.topic("out") + "'"} }, "classic"},
	} {
		t.Run(name, func(t *testing.T) {
			bob := func(l *lock) way {
				return l.ways(t)["SCRAM-SHA-256"].with("sasl.jaas.config", jaas("scram.ScramLoginModule", "bob", alicePassword))
			}
			w := secured(t, bob, bob)
			w.deployment.Inlets[0].Consumer = map[string]string{"group.protocol": c.protocol}
			l, _ := locked()
			// An ACL that allows something else takes away what everybody may without one.
			l.allow(t, c.at(w), kadm.OpDescribe)
			p := w.double(throughSpec, to("out").handle)
			w.produce(testkit.Load(w.topic("in"), 1, 10))
			s := w.sidecar(p.Addr())
			s.logs(30*time.Second, append(c.words(w), "level=WARN", c.port)...)
			if s.isReady() {
				t.Error("it is ready")
			}
			l.allow(t, c.at(w), c.operation)
			s.ready(30 * time.Second)
			w.allCommitted(30 * time.Second)
			w.judge(to("out").expect, nil)
			s.terminated(15 * time.Second)
		})
	}
}

func TestAWrongPasswordHealsWhenTheBrokerLearnsIt(t *testing.T) {
	carol := func(l *lock) way {
		return l.ways(t)["SCRAM-SHA-512"].with("sasl.jaas.config", jaas("scram.ScramLoginModule", "carol", alicePassword))
	}
	w := secured(t, carol, carol)
	p := w.double(throughSpec, to("out").handle)
	w.produce(testkit.Load(w.topic("in"), 1, 10))
	s := w.sidecar(p.Addr())
	s.logs(30*time.Second, "level=WARN", "does not accept the credentials")
	l, _ := locked()
	if err := l.user("carol", alicePassword); err != nil {
		t.Fatal(err)
	}
	s.ready(30 * time.Second)
	w.allCommitted(20 * time.Second)
	s.logs(time.Second, "level=INFO", "the trouble with broker localhost:", "is over")
	w.judge(to("out").expect, nil)
	s.terminated(15 * time.Second)
}

func TestAStoreThatChangesOnDiskIsUsedForNewConnections(t *testing.T) {
	trust := filepath.Join(t.TempDir(), "trust.pem")
	replace := func(l *lock, file string) {
		content, err := os.ReadFile(l.path(file))
		if err == nil {
			err = os.WriteFile(trust, content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tls := func(l *lock) way {
		replace(l, "otherca.pem")
		return l.ways(t)["SSL, PEM"].with("ssl.truststore.location", trust)
	}
	w := secured(t, tls, tls)
	p := w.double(throughSpec, to("out").handle)
	s := w.sidecar(p.Addr())
	s.logs(30*time.Second, "level=WARN", "is not trusted by the trust store")
	l, _ := locked()
	replace(l, "ca.pem")
	s.ready(30 * time.Second)
	w.produce(testkit.Load(w.topic("in"), 1, 10))
	w.allCommitted(20 * time.Second)
	w.judge(to("out").expect, nil)
	s.terminated(15 * time.Second)
}

func TestAnInletAndAnOutletOnTwoClustersWithDifferentSecurity(t *testing.T) {
	other, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	way := func(l *lock) way { return l.ways(t)["SASL_SSL"] }
	w := secured(t, way, way)
	w.deployment.Outlets[0].Reach = testkit.Reach{Servers: other.servers()}
	if err := other.Create(w.ctx, w.topic("out"), 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	p := w.double(throughSpec, to("out").handle)
	w.produce(testkit.Load(w.topic("in"), 1, 10))
	s := w.sidecar(p.Addr())
	w.allCommitted(30 * time.Second)
	s.ready(time.Second)
	written, err := other.Read(w.ctx, w.topic("out"))
	if err != nil || len(written) != 10 {
		t.Errorf("%d records, %v", len(written), err)
	}
	s.terminated(15 * time.Second)
}
