//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
)

// The passwords of the suites. No log may hold one of them.
var secrets = []string{storePassword, keyPassword, alicePassword, wrongPassword, clientSecret}

const (
	storePassword = "st0re-pass_phrase"
	keyPassword   = "k3y-pass_phrase"
	alicePassword = `al1ce;="'\$@-+ secret`
	wrongPassword = "not-the-passw0rd"
)

// lock is a cluster of one broker with a listener for each way in, and the stores that clients need.
type lock struct {
	*cluster
	dir    string
	ports  map[string]int // by listener
	tokens *tokens
}

// bootedLock is for the end of the suites.
var bootedLock *cluster

// locked boots the lock with the first test that needs it.
var locked = sync.OnceValues(func() (*lock, error) {
	dir, err := os.MkdirTemp(suiteDir, "lock")
	if err != nil {
		return nil, err
	}
	l := &lock{dir: dir, ports: map[string]int{}}
	if err := l.stores(); err != nil {
		return nil, err
	}
	listeners := []listener{{name: "TLS", protocol: "SSL"}, {name: "MUTUAL", protocol: "SSL"}, {name: "OTHERNAME", protocol: "SSL"}, {name: "OPEN", protocol: "SASL_PLAINTEXT"}, {name: "CLOSED", protocol: "SASL_SSL"}, {name: "TOKEN", protocol: "SASL_PLAINTEXT"}, {name: "KERBEROS", protocol: "SASL_PLAINTEXT"}}
	for i := range listeners {
		listeners[i].port = freePort()
		l.ports[listeners[i].name] = listeners[i].port
	}
	properties := []string{
		// Everybody may do what no ACL is about.
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found=true", "super.users=User:ANONYMOUS;User:alice;User:CN=client",
		"ssl.truststore.location=" + l.path("ca.jks"), "ssl.truststore.password=" + storePassword,
		"ssl.keystore.location=" + l.path("broker.p12"), "ssl.keystore.password=" + storePassword, "ssl.keystore.type=PKCS12",
		"listener.name.mutual.ssl.client.auth=required",
		"listener.name.othername.ssl.keystore.location=" + l.path("othername.p12"), "listener.name.othername.ssl.keystore.password=" + storePassword,
	}
	escaped := strings.NewReplacer(`\`, `\\\\`, `"`, `\\"`).Replace(alicePassword)
	for _, listener := range []string{"open", "closed"} {
		properties = append(properties, "listener.name."+listener+".sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"listener.name."+listener+`.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="`+escaped+`";`)
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			properties = append(properties, "listener.name."+listener+"."+mechanism+".sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;")
		}
	}
	if l.tokens, err = newTokens(dir); err != nil {
		return nil, err
	}
	properties = append(properties, "listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER",
		"listener.name.token.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
		"listener.name.token.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
		"listener.name.token.sasl.oauthbearer.jwks.endpoint.url="+l.tokens.keys, "listener.name.token.sasl.oauthbearer.expected.audience=kafka")
	if err := newKDC(dir); err != nil {
		return nil, err
	}
	properties = append(properties, "listener.name.kerberos.sasl.enabled.mechanisms=GSSAPI", "sasl.kerberos.service.name=kafka",
		`listener.name.kerberos.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="`+l.path("broker.keytab")+`" principal="kafka/localhost@SUITES.EXAMPLE";`)
	l.cluster, err = boot(dir, 1, beside{listeners: listeners, jvm: []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + l.tokens.keys, "-Djava.security.krb5.conf=" + l.path("krb5.conf")}}, properties...)
	bootedLock = l.cluster
	if err != nil {
		return nil, err
	}
	return l, errors.Join(l.user("alice", alicePassword), l.user("bob", alicePassword))
})

func (l *lock) path(file string) string { return filepath.Join(l.dir, file) }

// tool runs a command in the directory of the stores.
func (l *lock) tool(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = l.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// stores makes two authorities, a broker's and a client's certificate, and every kind of store of them, with openssl and keytool.
func (l *lock) stores() error {
	script := strings.NewReplacer("STORE", storePassword, "KEY", keyPassword).Replace(`set -eu
for ca in ca otherca; do
	openssl req -x509 -newkey rsa:2048 -nodes -keyout $ca.key -out $ca.pem -days 30 -subj "/CN=$ca of the suites" -addext basicConstraints=critical,CA:TRUE
done
leaf() { # name, authority, subject, names
	openssl req -newkey rsa:2048 -nodes -keyout $1.key -out $1.csr -subj "$3"
	printf "subjectAltName=$4\n" >$1.ext
	openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days 30 -out $1.pem -extfile $1.ext
	cat $1.pem $2.pem >$1.chain
	openssl pkcs12 -export -inkey $1.key -in $1.pem -certfile $2.pem -name $1 -passout pass:STORE -out $1.p12
}
leaf broker ca /CN=broker DNS:localhost,IP:127.0.0.1
leaf othername ca /CN=elsewhere.example DNS:elsewhere.example
leaf client ca /CN=client DNS:client
leaf stranger otherca /CN=stranger DNS:stranger
openssl pkcs8 -topk8 -in client.key -v2 aes256 -passout pass:KEY -out client.enc.key
cat client.enc.key client.chain >client.enc.pem
cat client.key client.chain >client.plain.pem
cat stranger.key stranger.chain >stranger.plain.pem
for ca in ca otherca; do
	keytool -importcert -noprompt -alias $ca -file $ca.pem -storetype JKS -keystore $ca.jks -storepass STORE
	keytool -importcert -noprompt -alias $ca -file $ca.pem -storetype PKCS12 -keystore $ca.p12 -storepass STORE
done
keytool -importkeystore -noprompt -srckeystore client.p12 -srcstorepass STORE -destkeystore client.keytool.p12 -deststoretype PKCS12 -deststorepass STORE
keytool -importkeystore -noprompt -srckeystore client.p12 -srcstorepass STORE -alias client -destkeystore client.jks -deststoretype JKS -deststorepass STORE -destkeypass KEY
`)
	return l.tool("bash", "-c", script)
}

// user gives a user SCRAM credentials.
func (l *lock) user(name, password string) error {
	return l.Admin(func(admin *kadm.Client) error {
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			altered, err := admin.AlterUserSCRAMs(context.Background(), nil, []kadm.UpsertSCRAM{{User: name, Mechanism: mechanism, Iterations: 4096, Password: password}})
			if err == nil {
				err = altered.Error()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// way is one way in: the listener and what a client says.
type way struct {
	listener string
	config   map[string]string
}

// with is the way with some properties changed.
func (v way) with(properties ...string) way {
	changed := way{v.listener, map[string]string{}}
	for name, value := range v.config {
		changed.config[name] = value
	}
	for i := 0; i < len(properties); i += 2 {
		changed.config[properties[i]] = properties[i+1]
	}
	return changed
}

func (l *lock) server(v way) string { return fmt.Sprintf("localhost:%d", l.ports[v.listener]) }

func jaas(module, user, password string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(password)
	return fmt.Sprintf(`org.apache.kafka.common.security.%s required username="%s" password="%s";`, module, user, quoted)
}

func (l *lock) ways(t *testing.T) map[string]way {
	t.Helper()
	read := func(file string) string {
		text, err := os.ReadFile(l.path(file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	trust := map[string]string{"security.protocol": "SSL", "ssl.truststore.location": l.path("ca.pem"), "ssl.truststore.type": "PEM"}
	tls := way{"TLS", trust}
	mutual := way{"MUTUAL", trust}
	plain := way{"OPEN", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("plain.PlainLoginModule", "alice", alicePassword)}}
	scram := plain.with("sasl.mechanism", "SCRAM-SHA-256", "sasl.jaas.config", jaas("scram.ScramLoginModule", "alice", alicePassword))
	closed := scram.with("security.protocol", "SASL_SSL", "ssl.truststore.location", l.path("ca.jks"), "ssl.truststore.password", storePassword, "sasl.mechanism", "SCRAM-SHA-512")
	closed.listener = "CLOSED"
	jks := way{"TLS", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": l.path("ca.jks"), "ssl.truststore.password": storePassword}}
	token := way{"TOKEN", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": l.tokens.url}}
	kerberos := way{"KERBEROS", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka", "sasl.jaas.config": krb5JAAS(l.path("client.keytab"), "client")}}
	otherName := tls.with("ssl.endpoint.identification.algorithm", "")
	otherName.listener = "OTHERNAME"
	return map[string]way{
		"PLAIN":         plain,
		"SCRAM-SHA-256": scram,
		"SCRAM-SHA-512": scram.with("sasl.mechanism", "SCRAM-SHA-512"),
		"GSSAPI":        kerberos,
		"OAUTHBEARER by JAAS": token.with("sasl.jaas.config", fmt.Sprintf(`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="%s" clientSecret="%s" scope="kafka" extension_logicalCluster="lkc-1";`, clientID, clientSecret),
			"sasl.login.callback.handler.class", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"),
		"OAUTHBEARER by properties":       token.with("sasl.oauthbearer.client.credentials.client.id", clientID, "sasl.oauthbearer.client.credentials.client.secret", clientSecret),
		"OAUTHBEARER, a token in a file":  token.with("sasl.oauthbearer.token.endpoint.url", "file://"+l.path("token")),
		"SASL_SSL":                        closed,
		"SSL, JKS":                        jks,
		"SSL, PKCS12 of keytool":          jks.with("ssl.truststore.location", l.path("ca.p12"), "ssl.truststore.type", "PKCS12"),
		"SSL, PEM":                        tls,
		"SSL, inline PEM":                 {"TLS", map[string]string{"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": read("ca.pem")}},
		"SSL, another name, not verified": otherName,
		"mTLS, JKS":                       mutual.with("ssl.keystore.location", l.path("client.jks"), "ssl.keystore.password", storePassword, "ssl.key.password", keyPassword),
		"mTLS, PKCS12 of keytool":         mutual.with("ssl.keystore.location", l.path("client.keytool.p12"), "ssl.keystore.password", storePassword),
		"mTLS, PKCS12 of openssl":         mutual.with("ssl.keystore.location", l.path("client.p12"), "ssl.keystore.password", storePassword, "ssl.keystore.type", "PKCS12"),
		"mTLS, PEM with an encrypted key": mutual.with("ssl.keystore.location", l.path("client.enc.pem"), "ssl.key.password", keyPassword),
		"mTLS, inline PEM":                mutual.with("ssl.keystore.type", "PEM", "ssl.keystore.key", read("client.key"), "ssl.keystore.certificate.chain", read("client.chain")),
		"mTLS, inline PEM, encrypted":     mutual.with("ssl.keystore.type", "PEM", "ssl.keystore.key", read("client.enc.key"), "ssl.key.password", keyPassword, "ssl.keystore.certificate.chain", read("client.chain")),
		"TLS 1.2 with one cipher by name": tls.with("ssl.enabled.protocols", "TLSv1.2", "ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
		"TLS 1.3 alone":                   tls.with("ssl.enabled.protocols", "TLSv1.3"),
	}
}

// throughSpec is the streamlet of these tests: what comes in goes out.
var throughSpec = testkit.Spec("through", testkit.Ports("in"), testkit.Ports("out"))

// secured is a world whose inlet and outlet go in by two ways.
func secured(t *testing.T, inlet, outlet func(l *lock) way) *world {
	t.Helper()
	t.Parallel()
	l, err := locked()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, l.cluster, throughSpec)
	w.create(1, "in", "out")
	in, out := inlet(l), outlet(l)
	w.env = []string{"KRB5_CONFIG=" + l.path("krb5.conf")}
	w.deployment.Inlets[0].Reach = testkit.Reach{Servers: l.server(in), Connection: in.config}
	w.deployment.Outlets[0].Reach = testkit.Reach{Servers: l.server(out), Connection: out.config}
	return w
}

// noSecrets looks for the passwords in the whole log of a sidecar, at the end of every test of the suites.
func noSecrets(t *testing.T, s *sidecar) {
	t.Helper()
	log := s.output()
	for _, secret := range secrets {
		inJAAS := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret)
		for _, written := range []string{secret, inJAAS, strconv.Quote(secret), strconv.Quote(inJAAS)} {
			if strings.Contains(log, strings.Trim(written, `"`)) {
				t.Errorf("the log holds a password")
			}
		}
	}
}

func TestARecordGoesThroughByEveryWayIn(t *testing.T) {
	l, err := locked()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range l.ways(t) {
		t.Run(name, func(t *testing.T) {
			way := func(*lock) way { return v }
			w := secured(t, way, way)
			p := w.double(throughSpec, to("out").handle)
			w.produce(testkit.Load(w.topic("in"), 1, 10))
			s := w.sidecar(p.Addr())
			s.ready(30 * time.Second)
			w.allCommitted(20 * time.Second)
			w.judge(to("out").expect, nil)
			s.terminated(15 * time.Second)
		})
	}
}
