package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tlsClient secures connections as the ssl.* properties of a port say.
type tlsClient struct {
	trust     *reloading[[]*x509.Certificate] // nil: the system's roots
	trustName string                          // for a person
	key       *reloading[*tls.Certificate]    // nil: the client has no certificate
	anyName   bool                            // the chain is verified, the name is not
	versions  [2]uint16                       // lowest and highest
	ciphers   []uint16                        // of TLS 1.2; nil: Go's choice
}

// secure is a Connection's Secure.
func (c *tlsClient) secure(ctx context.Context, conn net.Conn, address string, warn func(string)) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg, err := c.config(host, warn)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, handshakeTrouble(err)
	}
	return secured, nil
}

// config is for one connection to a host: the stores are read anew.
func (c *tlsClient) config(host string, warn func(string)) (*tls.Config, error) {
	roots, trusted := (*x509.CertPool)(nil), []*x509.Certificate(nil)
	if c.trust != nil {
		var err error
		if trusted, err = c.trust.get(warn); err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		for _, certificate := range trusted {
			roots.AddCert(certificate)
		}
	}
	cfg := &tls.Config{
		ServerName: host, MinVersion: c.versions[0], MaxVersion: c.versions[1], CipherSuites: c.ciphers,
		// Chain and name are verified below, since each may be asked for without the other, names the Java way.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.verify(state.PeerCertificates, host, roots, trusted)
		},
	}
	if c.key != nil {
		pair, err := c.key.get(warn)
		if err != nil {
			return nil, err
		}
		// Also when it is of no authority that the broker names, so that the broker says what is wrong with it.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return cfg, nil
}

// untrusted is a broker's certificate that will not do.
type untrusted struct{ sentence string }

func (u *untrusted) Error() string { return u.sentence }

func (c *tlsClient) verify(chain []*x509.Certificate, host string, roots *x509.CertPool, trusted []*x509.Certificate) error {
	leaf := chain[0]
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	now := time.Now()
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: now})
	presented := fmt.Sprintf("the broker's certificate (subject %s, issuer %s)", quote(leaf.Subject.String()), quote(leaf.Issuer.String()))
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		at := invalid.Cert
		return &untrusted{fmt.Sprintf("%s is not valid now: %s holds from %s to %s, and the clock here says %s; renew the certificate, or set the clock",
			presented, quote(at.Subject.String()), at.NotBefore.UTC().Format(time.RFC3339), at.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case err != nil:
		var names []string
		for _, certificate := range trusted {
			names = append(names, quote(certificate.Subject.String()))
		}
		who := "the system's root certificates; give the authority's certificate in ssl.truststore.*"
		if roots != nil {
			who = fmt.Sprintf("%s, which trusts %s", c.trustName, strings.Join(names[:min(5, len(names))], ", "))
		}
		return &untrusted{fmt.Sprintf("%s is not trusted by %s (%v)", presented, who, err)}
	}
	if c.anyName || leaf.VerifyHostname(host) == nil || commonNameMatches(leaf, host) {
		return nil
	}
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		names = []string{cmp.Or(leaf.Subject.CommonName, "no name")}
	}
	return &untrusted{fmt.Sprintf("%s is for %s, not for the host %s that was dialed; connect by one of these names, or set ssl.endpoint.identification.algorithm to nothing to verify the chain alone",
		presented, strings.Join(names, ", "), quote(host))}
}

// commonNameMatches says that the certificate is for the host by its subject's common name, which Java looks at when the
// certificate has no DNS names, and Go never does.
func commonNameMatches(leaf *x509.Certificate, host string) bool {
	if len(leaf.DNSNames) > 0 || net.ParseIP(host) != nil || leaf.Subject.CommonName == "" {
		return false
	}
	return (&x509.Certificate{DNSNames: []string{leaf.Subject.CommonName}}).VerifyHostname(host) == nil
}

// handshakeTrouble says in words why a TLS handshake failed.
func handshakeTrouble(err error) error {
	var told *untrusted
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &told):
		return told
	case errors.As(err, &record):
		return fmt.Errorf("the port does not speak TLS (what came is no TLS record); security.protocol asks for TLS: is this the address of a plaintext listener?: %w", err)
	case tlsAlert(err) != "":
		return fmt.Errorf("the broker refused the TLS handshake (%s); compare ssl.enabled.protocols, ssl.cipher.suites and the client's certificate with what it asks for", tlsAlert(err))
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET): // not wrapped: kgo would put its own guess in its place
		return fmt.Errorf("the connection was closed during the TLS handshake (%v); security.protocol asks for TLS: is this the address of a plaintext listener?", err)
	}
	return err
}

// tlsAlert is what the other side of a TLS connection ended it with, empty when it did not.
func tlsAlert(err error) string {
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		return remote.Err.Error()
	}
	return ""
}

// javaProtocols are the names of ssl.enabled.protocols and ssl.protocol.
var javaProtocols = map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

// cipherSuites finds suites by their Java names, which are those of IANA. Those of TLS 1.3 are Go's choice; unknown are those
// that cannot be had.
func cipherSuites(names []string) (of12 []uint16, has13 bool, unknown []string) {
	suites := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	for _, name := range names {
		i := slices.IndexFunc(suites, func(s *tls.CipherSuite) bool {
			return s.Name == name || s.Name == name+"_SHA256" && strings.Contains(name, "CHACHA20")
		})
		switch {
		case i < 0:
			unknown = append(unknown, name)
		case slices.Contains(suites[i].SupportedVersions, tls.VersionTLS13):
			has13 = true
		default:
			of12 = append(of12, suites[i].ID)
		}
	}
	return of12, has13, unknown
}
