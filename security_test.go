package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

// certificate signs one with its authority's key, or by itself.
func certificate(t *testing.T, template *x509.Certificate, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

func authority(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	return certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
}

func TestABrokersCertificateIsVerifiedAsJavaDoesAndWhatIsWrongIsSaid(t *testing.T) {
	ca, caKey := authority(t, "ca")
	other, _ := authority(t, "other")
	named := func(template x509.Certificate, name string) *x509.Certificate {
		template.Subject = pkix.Name{CommonName: name}
		c, _ := certificate(t, &template, ca, caKey)
		return c
	}
	past := time.Now().Add(-48 * time.Hour)
	for name, test := range map[string]struct {
		leaf    *x509.Certificate
		trusted *x509.Certificate
		host    string
		anyName bool
		want    []string
	}{
		"by its DNS name":                           {named(x509.Certificate{DNSNames: []string{"a.example"}}, "x"), ca, "a.example", false, nil},
		"by its address":                            {named(x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}, "x"), ca, "10.0.0.1", false, nil},
		"by its common name, without DNS names":     {named(x509.Certificate{}, "a.example"), ca, "a.example", false, nil},
		"not by its common name, with DNS names":    {named(x509.Certificate{DNSNames: []string{"b.example"}}, "a.example"), ca, "a.example", false, []string{"subject 'CN=a.example'", "issuer 'CN=ca'", "is for b.example, not for the host 'a.example'"}},
		"another name, not verified":                {named(x509.Certificate{DNSNames: []string{"b.example"}}, "x"), ca, "a.example", true, nil},
		"another authority, the name not verified":  {named(x509.Certificate{}, "a.example"), other, "a.example", true, []string{"subject 'CN=a.example'", "issuer 'CN=ca'", "is not trusted by the store", "which trusts 'CN=other'"}},
		"trusted by itself":                         {named(x509.Certificate{DNSNames: []string{"a.example"}}, "x"), nil, "a.example", false, nil},
		"past its end, or the clock is ahead of it": {named(x509.Certificate{DNSNames: []string{"a.example"}, NotBefore: past.Add(-time.Hour), NotAfter: past}, "x"), ca, "a.example", false, []string{"is not valid now", past.UTC().Format("2006-01-02"), "the clock here says", "set the clock"}},
	} {
		if test.trusted == nil {
			test.trusted = test.leaf
		}
		roots := x509.NewCertPool()
		roots.AddCert(test.trusted)
		client := tlsClient{anyName: test.anyName, trustName: "the store"}
		err := client.verify([]*x509.Certificate{test.leaf}, test.host, roots, []*x509.Certificate{test.trusted})
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, words := range test.want {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %q is not in: %v", name, words, err)
			}
		}
	}
}

func TestAStoreOfEveryKindIsReadAndWhatIsWrongWithItIsSaid(t *testing.T) {
	ca, caKey := authority(t, "ca")
	leaf, key := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}}, ca, caKey)
	_, otherKey := authority(t, "other")
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := pkcs8.ConvertPrivateKeyToPKCS8(key, []byte("key-pass"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	certificates := block("CERTIFICATE", leaf.Raw) + block("CERTIFICATE", ca.Raw)
	jks := func(fill func(keystore.KeyStore) error) string {
		ks, out := keystore.New(), bytes.Buffer{}
		if err := errors.Join(fill(ks), ks.Store(&out, []byte("store-pass"))); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	trustJKS := jks(func(ks keystore.KeyStore) error {
		return ks.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: keystore.Certificate{Type: "X509", Content: ca.Raw}})
	})
	keyJKS := jks(func(ks keystore.KeyStore) error {
		return ks.SetPrivateKeyEntry("k", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: der, CertificateChain: []keystore.Certificate{{Type: "X509", Content: leaf.Raw}}}, []byte("key-pass"))
	})
	trust12, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{ca}, "store-pass")
	if err != nil {
		t.Fatal(err)
	}
	key12, err := pkcs12.Modern.Encode(key, leaf, []*x509.Certificate{ca}, "store-pass")
	if err != nil {
		t.Fatal(err)
	}
	wrong12, err := pkcs12.Modern.Encode(otherKey, leaf, nil, "store-pass")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content string
		store   store
		key     bool
		problem string
	}{
		"JKS":                        {trustJKS, store{password: "store-pass", hasPassword: true}, false, ""},
		"JKS without a password":     {trustJKS, store{}, false, ""},
		"JKS called PKCS12":          {trustJKS, store{password: "store-pass", hasPassword: true, kind: "PKCS12"}, false, ""},
		"JKS, wrong password":        {trustJKS, store{password: "no", hasPassword: true}, false, "its password is not the one given"},
		"JKS called PEM":             {trustJKS, store{kind: "PEM"}, false, "is a JKS store, but the type given is PEM"},
		"JKS cut off":                {trustJKS[:10], store{}, false, "a JKS store, cannot be read: it is cut off"},
		"PKCS12":                     {string(trust12), store{password: "store-pass", hasPassword: true}, false, ""},
		"PKCS12, wrong password":     {string(trust12), store{password: "no", hasPassword: true}, false, "its password is not the one given"},
		"PEM":                        {certificates, store{kind: "PEM"}, false, ""},
		"PEM without certificates":   {block("PRIVATE KEY", der), store{}, false, "holds no trusted certificate"},
		"nothing":                    {"nonsense", store{}, false, "is neither a JKS nor a PKCS12 nor a PEM store"},
		"key in JKS":                 {keyJKS, store{password: "store-pass", hasPassword: true, keyPassword: "key-pass"}, true, ""},
		"key in JKS, wrong password": {keyJKS, store{password: "store-pass", hasPassword: true}, true, "the password of its key (ssl.key.password, else ssl.keystore.password) is not the one given"},
		"no key in JKS":              {trustJKS, store{password: "store-pass", hasPassword: true}, true, "it holds no private key"},
		"key in PKCS12":              {string(key12), store{password: "store-pass", hasPassword: true}, true, ""},
		"key in PKCS12 of another":   {string(wrong12), store{password: "store-pass", hasPassword: true}, true, "no certificate in it belongs to its key"},
		"key in PEM":                 {block("PRIVATE KEY", der) + certificates, store{}, true, ""},
		"certificates first":         {certificates + block("PRIVATE KEY", der), store{}, true, ""},
		"encrypted key in PEM":       {block("ENCRYPTED PRIVATE KEY", encrypted) + certificates, store{keyPassword: "key-pass"}, true, ""},
		"encrypted, no password":     {block("ENCRYPTED PRIVATE KEY", encrypted) + certificates, store{}, true, "its key is encrypted, and ssl.key.password is not given"},
		"encrypted, wrong password":  {block("ENCRYPTED PRIVATE KEY", encrypted) + certificates, store{keyPassword: "no"}, true, "ssl.key.password is not the password of its key"},
		"a key that is not PKCS #8":  {block("EC PRIVATE KEY", der) + certificates, store{}, true, "must be PKCS #8, as for Java: openssl pkcs8 -topk8"},
		"PEM without a key":          {certificates, store{}, true, "it holds no private key"},
	} {
		test.store.location = "/mnt/store"
		var err error
		if test.key {
			_, err = test.store.keyPair([]byte(test.content))
		} else {
			_, err = test.store.trusted([]byte(test.content))
		}
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "-pass") {
			t.Errorf("%s: the password is in %v", name, err)
		}
	}
}

func TestAStoreThatIsBrokenOnDiskStaysWhatItWasAndIsToldOnce(t *testing.T) {
	content, readErr := "1", error(nil)
	r := reloading[string]{
		read: func() ([]byte, error) { return []byte(content), readErr },
		parse: func(content []byte) (string, error) {
			if string(content) == "broken" {
				return "", errors.New("it is broken")
			}
			return "value " + string(content), nil
		},
	}
	var told []string
	for _, step := range []struct {
		content string
		err     error
		want    string
		told    int
	}{{"1", nil, "value 1", 0}, {"broken", nil, "value 1", 1}, {"broken", nil, "value 1", 1}, {"", errors.New("gone"), "value 1", 2}, {"2", nil, "value 2", 2}, {"broken", nil, "value 2", 3}} {
		content, readErr = step.content, step.err
		got, err := r.get(func(text string) { told = append(told, text) })
		if err != nil || got != step.want || len(told) != step.told {
			t.Errorf("%+v: %q, %v, told %q", step, got, err, told)
		}
	}
}

func TestTLSAndSASLThatCannotBeAreProblems(t *testing.T) {
	const password = `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";`
	oauth := []string{"security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER"}
	for _, test := range []struct {
		lines []string
		want  string
	}{
		{[]string{"security.protocol=SSL", "ssl.truststore.location=/none"}, "'ssl.truststore.location': there is no file '/none'"},
		{[]string{"security.protocol=SSL", "ssl.truststore.password=p"}, "'ssl.truststore.password': there is no ssl.truststore.location"},
		{[]string{"security.protocol=SSL", "ssl.truststore.location=/none", "ssl.truststore.certificates=x"}, "'ssl.truststore.certificates': it cannot be given together with"},
		{[]string{"security.protocol=SSL", "ssl.truststore.type=JKS", "ssl.truststore.certificates=x"}, "'ssl.truststore.certificates': it is PEM, but"},
		{[]string{"security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=/none", "ssl.truststore.password=p"}, "'ssl.truststore.password': a PEM trust store has no password"},
		{[]string{"security.protocol=SSL", "ssl.keystore.key=x"}, "'ssl.keystore.key': its certificates are missing"},
		{[]string{"security.protocol=SSL", "ssl.keystore.certificate.chain=x"}, "'ssl.keystore.certificate.chain': its private key is missing"},
		{[]string{"security.protocol=SSL", "ssl.keystore.password=x"}, "'ssl.keystore.password': there is no ssl.keystore.location"},
		{[]string{"security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"}, "'sasl.mechanism': security.protocol SASL_SSL with sasl.mechanism PLAIN needs sasl.jaas.config"},
		{[]string{"security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.jaas.config=x.Y required username=a password=b;"}, "'sasl.jaas.config': its login module must be org.apache.kafka.common.security.plain.PlainLoginModule"},
		{[]string{"security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=a;`}, "'sasl.jaas.config': its option password is missing"},
		{oauth, "'sasl.mechanism': sasl.mechanism OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"},
		{append(oauth, "sasl.oauthbearer.token.endpoint.url=ftp://x"), "'sasl.oauthbearer.token.endpoint.url': it is 'ftp://x', but must be"},
		{append(oauth, "sasl.oauthbearer.token.endpoint.url=https://x", "sasl.oauthbearer.client.credentials.client.id=i"), "'sasl.oauthbearer.token.endpoint.url': the client's secret is missing"},
		{append(oauth, "sasl.oauthbearer.token.endpoint.url=file:///t", password), "'sasl.jaas.config': its login module must be org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"},
		{append(oauth, "sasl.oauthbearer.token.endpoint.url=file:///t", "sasl.login.callback.handler.class=x.Y"), "'sasl.login.callback.handler.class': it is 'x.Y', but must be"},
		{[]string{"security.protocol=SASL_SSL", "sasl.mechanism=AWS_MSK_IAM"}, "'sasl.mechanism': there are no AWS credentials in the environment"},
		{[]string{"security.protocol=SSL", "ssl.enabled.protocols=TLSv1.1,TLSv1"}, "'ssl.enabled.protocols': it is 'TLSv1.1,TLSv1', but must be a list with TLSv1.2 or TLSv1.3 in it"},
		{[]string{"ssl.engine.factory.class=x.Y"}, "'ssl.engine.factory.class': no Java code runs here"},
	} {
		_, problems := judge(consumers, test.lines...)
		if len(problems) != 1 || !strings.Contains(problems[0], test.want) {
			t.Errorf("%q: %q", test.lines, problems)
		}
	}
}

func TestAnOldProtocolOrASuiteThatCannotBeHadIsLeftOutWithAWarning(t *testing.T) {
	for line, want := range map[string]string{
		"ssl.enabled.protocols=TLSv1.1,TLSv1.2":                                                       "these are not spoken here and are left out: TLSv1.1",
		"ssl.cipher.suites=TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "these suites cannot be had here and are left out: TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
	} {
		warnings, problems := judge(consumers, "security.protocol=SSL", line)
		if len(problems) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0], want) {
			t.Errorf("%s: %q, %q", line, warnings, problems)
		}
	}
}

// realNetwork dials as main does.
var realNetwork = network{dial: (&net.Dialer{}).DialContext}

func TestATokenIsAskedForAgainAfterFourFifthsOfItsLife(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "id" || secret != "s+c ret%" || r.FormValue("scope") != "a b" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked++
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("token", asked), "expires_in": 1000})
	}))
	defer server.Close()
	endpoint, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &tokenSource{endpoint: endpoint, clientID: "id", secret: "s+c ret%", scope: "a b", connectTimeout: time.Minute, readTimeout: time.Minute}
	get := func() string {
		token, err := s.get(t.Context(), realNetwork)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if first, second := get(), get(); first != "token1" || second != "token1" {
		t.Errorf("tokens %s and %s", first, second)
	}
	if left := time.Until(s.stale); left > 800*time.Second || left < 700*time.Second {
		t.Errorf("it is used for %v more", left)
	}
	s.stale = time.Now()
	if third := get(); third != "token2" {
		t.Errorf("token %s after its time", third)
	}
	s.secret, s.stale = "wrong-secret", time.Now()
	if _, err := s.get(t.Context(), realNetwork); err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("told %v", err)
	}
}

func TestTheIAMPayloadIsSignedByAWSsPublishedAlgorithm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock says 2000-01-01T00:00:00Z
		c := &awsCredentials{outside: withFiles(nil, map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AWS_SESSION_TOKEN": "session/token+="})}
		mechanism := aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) { return c.get(ctx, network{}) })
		_, payload, err := mechanism.Authenticate(t.Context(), "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(payload, &got); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"version": "2020_10_22", "host": "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com", "action": "kafka-cluster:Connect", "x-amz-algorithm": "AWS4-HMAC-SHA256",
			"x-amz-credential": "AKIDEXAMPLE/20000101/eu-west-1/kafka-cluster/aws4_request", "x-amz-date": "20000101T000000Z", "x-amz-expires": "900",
			"x-amz-signedheaders": "host", "x-amz-security-token": "session/token+=",
			// Reckoned apart from the code: HMAC-SHA256 over AWS's canonical request, as its documents on Signature Version 4 say.
			"x-amz-signature": "3e101186dff661da0e1dba33888a22e42164e29886996f4af8f76dcc9fdccce3",
		} {
			if got[name] != want {
				t.Errorf("%s is %q, not %q", name, got[name], want)
			}
		}
	})
}

func TestAWSCredentialsComeFromAWebIdentityOrTheContainersAgentAndAreRenewedBeforeTheyEnd(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		switch {
		case r.URL.Path == "/sts" && r.FormValue("Action") == "AssumeRoleWithWebIdentity" && r.FormValue("RoleArn") == "arn:role" && r.FormValue("WebIdentityToken") == "jwt":
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey><Expiration>%s</Expiration><AccessKeyId>web</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, ends)
		case r.URL.Path == "/agent" && r.Header.Get("Authorization") == "pod-token":
			fmt.Fprintf(w, `{"AccessKeyId":"pod","SecretAccessKey":"s","Token":"t","Expiration":%q}`, ends)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	files := map[string]string{"/token": "jwt\n", "/pod": "pod-token\n"}
	for want, env := range map[string]map[string]string{
		"web": {"AWS_ROLE_ARN": "arn:role", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ENDPOINT_URL_STS": server.URL + "/sts"},
		"pod": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/agent", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/pod"},
	} {
		asked = 0
		c := &awsCredentials{outside: withFiles(files, env)}
		for _, wantAsked := range []int{1, 1, 2} {
			if wantAsked == 2 {
				c.ends = time.Now().Add(awsEarly - time.Second)
			}
			auth, err := c.get(t.Context(), realNetwork)
			if err != nil || auth.AccessKey != want || auth.SecretKey != "s" || auth.SessionToken != "t" || asked != wantAsked {
				t.Errorf("%s: %v, %v, asked %d times, not %d", want, auth.AccessKey, err, asked, wantAsked)
			}
		}
	}
	c := &awsCredentials{outside: withFiles(files, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/agent"})}
	if _, err := c.get(t.Context(), realNetwork); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("told %v", err)
	}
}

func TestATroubleIsToldAtOnceThenEverLessOftenAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		troubles := newTroubles(Connection{}, "t", slog.New(slog.NewTextHandler(&log, nil)))
		for range 3600 {
			troubles.tell("broker b", "b is down")
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "b is down"); n < 15 || n > 22 {
			t.Errorf("told %d times in an hour:\n%s", n, &log)
		}
		if !strings.Contains(log.String(), "since=2000-01-01T00:00:00Z") {
			t.Errorf("since when it is so is not said:\n%s", &log)
		}
		log.Reset()
		troubles.tell("broker b", "b is strange")
		troubles.over("broker b")
		troubles.over("broker b")
		if got := log.String(); strings.Count(got, "b is strange") != 1 || strings.Count(got, `"the trouble with broker b is over" after=1h0m0s`) != 1 {
			t.Errorf("told:\n%s", got)
		}
	})
}
