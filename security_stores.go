package main

import (
	"bytes"
	"crypto"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

// store is a trust or key store as ssl.* properties name it: a file, or text of their own.
type store struct {
	location    string // of a file; empty when text says it
	text        string // PEM
	kind        string // JKS, PKCS12 or PEM as the user gave it; empty is found out by content
	password    string // of the store
	hasPassword bool
	keyPassword string // of the key in it
	readFile    func(name string) ([]byte, error)
}

func (s *store) content() ([]byte, error) {
	if s.location == "" {
		return []byte(s.text), nil
	}
	content, err := s.readFile(s.location)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s; is its Secret mounted?", quote(s.location))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the file %s may not be read; make it readable for the user that the sidecar runs as", quote(s.location))
	case err != nil:
		return nil, fmt.Errorf("the file %s cannot be read: %w", quote(s.location), err)
	}
	return content, nil
}

// name is where the store is, for a person.
func (s *store) name() string {
	if s.location == "" {
		return "the PEM text"
	}
	return quote(s.location)
}

// kindOf finds out a store's kind. JKS and PKCS12 are each taken for the other, as Java does.
func (s *store) kindOf(content []byte) (string, error) {
	found := "PEM"
	switch {
	case bytes.HasPrefix(content, []byte{0xFE, 0xED, 0xFE, 0xED}):
		found = "JKS"
	case len(content) > 1 && content[0] == 0x30:
		found = "PKCS12"
	case !bytes.Contains(content, []byte("-----BEGIN ")):
		return "", fmt.Errorf("%s is neither a JKS nor a PKCS12 nor a PEM store", s.name())
	}
	if s.kind != "" && (s.kind == "PEM") != (found == "PEM") {
		return "", fmt.Errorf("%s is a %s store, but the type given is %s", s.name(), found, s.kind)
	}
	return found, nil
}

var errStorePassword = errors.New("its password is not the one given")

// trusted reads the certificates of a trust store.
func (s *store) trusted(content []byte) ([]*x509.Certificate, error) {
	kind, err := s.kindOf(content)
	if err != nil {
		return nil, err
	}
	var certificates []*x509.Certificate
	switch kind {
	case "JKS":
		certificates, err = s.trustedOfJKS(content)
	case "PKCS12":
		certificates, err = s.trustedOfPKCS12(content)
	default:
		certificates, err = certificatesOfPEM(content)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s, a %s store, cannot be read: %w", s.name(), kind, err)
	case len(certificates) == 0:
		return nil, fmt.Errorf("%s, a %s store, holds no trusted certificate", s.name(), kind)
	}
	return certificates, nil
}

// keyPair reads the key and its chain of a key store.
func (s *store) keyPair(content []byte) (*tls.Certificate, error) {
	kind, err := s.kindOf(content)
	if err != nil {
		return nil, err
	}
	var key crypto.PrivateKey
	var chain []*x509.Certificate
	switch kind {
	case "JKS":
		key, chain, err = s.keyOfJKS(content)
	case "PKCS12":
		key, chain, err = s.keyOfPKCS12(content)
	default:
		key, chain, err = s.keyOfPEM(content)
	}
	if err == nil {
		chain, err = leafFirst(key, chain)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, a %s store, cannot be read: %w", s.name(), kind, err)
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}

// leafFirst begins a chain with the certificate of the key.
func leafFirst(key crypto.PrivateKey, chain []*x509.Certificate) ([]*x509.Certificate, error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("its key is of a kind that cannot sign")
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	for i, c := range chain {
		if ok && public.Equal(c.PublicKey) {
			rest := append(append([]*x509.Certificate{}, chain[:i]...), chain[i+1:]...)
			return append([]*x509.Certificate{c}, rest...), nil
		}
	}
	return nil, errors.New("no certificate in it belongs to its key")
}

func (s *store) loadJKS(content []byte) (*keystore.KeyStore, error) {
	password := []byte(s.password)
	if !s.hasPassword {
		// Without a password Java reads a store as it is. The library always checks the digest at its end, which is that
		// of the password and the content: it gets the one of a password of ours.
		if len(content) < sha1.Size {
			return nil, errors.New("it is cut off")
		}
		password = []byte("any")
		body := content[:len(content)-sha1.Size]
		digest := sha1.New()
		for _, c := range password {
			digest.Write([]byte{0, c})
		}
		digest.Write([]byte("Mighty Aphrodite"))
		digest.Write(body)
		content = digest.Sum(bytes.Clone(body))
	}
	ks := keystore.New(keystore.WithOrderedAliases())
	if err := ks.Load(bytes.NewReader(content), password); err != nil {
		if strings.Contains(err.Error(), "digest") {
			return nil, errStorePassword
		}
		return nil, err
	}
	return &ks, nil
}

func (s *store) trustedOfJKS(content []byte) (certificates []*x509.Certificate, err error) {
	ks, err := s.loadJKS(content)
	if err != nil {
		return nil, err
	}
	for _, alias := range ks.Aliases() {
		var entries []keystore.Certificate
		if ks.IsTrustedCertificateEntry(alias) {
			entry, err := ks.GetTrustedCertificateEntry(alias)
			if err != nil {
				return nil, err
			}
			entries = []keystore.Certificate{entry.Certificate}
		} else if chain, err := ks.GetPrivateKeyEntryCertificateChain(alias); err == nil && len(chain) > 0 {
			entries = chain[:1] // Java trusts the certificate of a key too
		}
		for _, entry := range entries {
			c, err := x509.ParseCertificate(entry.Content)
			if err != nil {
				return nil, err
			}
			certificates = append(certificates, c)
		}
	}
	return certificates, nil
}

func (s *store) keyOfJKS(content []byte) (crypto.PrivateKey, []*x509.Certificate, error) {
	ks, err := s.loadJKS(content)
	if err != nil {
		return nil, nil, err
	}
	password := s.keyPassword
	if password == "" {
		password = s.password
	}
	for _, alias := range ks.Aliases() {
		if !ks.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := ks.GetPrivateKeyEntry(alias, []byte(password))
		if err != nil {
			return nil, nil, errors.New("the password of its key (ssl.key.password, else ssl.keystore.password) is not the one given")
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return nil, nil, err
		}
		var chain []*x509.Certificate
		for _, c := range entry.CertificateChain {
			certificate, err := x509.ParseCertificate(c.Content)
			if err != nil {
				return nil, nil, err
			}
			chain = append(chain, certificate)
		}
		return key, chain, nil
	}
	return nil, nil, errNoKey
}

var errNoKey = errors.New("it holds no private key")

func (s *store) trustedOfPKCS12(content []byte) ([]*x509.Certificate, error) {
	certificates, err := pkcs12.DecodeTrustStore(content, s.password)
	if err == nil && len(certificates) > 0 {
		return certificates, nil
	}
	if errors.Is(err, pkcs12.ErrIncorrectPassword) {
		return nil, errStorePassword
	}
	if _, leaf, _, err := pkcs12.DecodeChain(content, s.password); err == nil {
		return []*x509.Certificate{leaf}, nil // Java trusts the certificate of a key too
	}
	if strings.Contains(err.Error(), "not marked as trusted") {
		return nil, errors.New("its certificates are not marked as trusted, and Java would pass over them too; make it with keytool -importcert, or give the PEM file itself")
	}
	return nil, err
}

func (s *store) keyOfPKCS12(content []byte) (crypto.PrivateKey, []*x509.Certificate, error) {
	key, leaf, others, err := pkcs12.DecodeChain(content, s.password)
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return nil, nil, errStorePassword
	case err != nil && strings.Contains(err.Error(), "private key missing"):
		return nil, nil, errNoKey
	case err != nil:
		return nil, nil, err
	}
	return key, append([]*x509.Certificate{leaf}, others...), nil
}

func pemBlocks(content []byte) (blocks []*pem.Block) {
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			return blocks
		}
		blocks, content = append(blocks, block), rest
	}
}

func certificatesOfPEM(content []byte) ([]*x509.Certificate, error) {
	return certificatesOf(pemBlocks(content))
}

func certificatesOf(blocks []*pem.Block) (certificates []*x509.Certificate, err error) {
	for _, block := range blocks {
		if !strings.HasSuffix(block.Type, "CERTIFICATE") {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, c)
	}
	return certificates, nil
}

func (s *store) keyOfPEM(content []byte) (key crypto.PrivateKey, chain []*x509.Certificate, err error) {
	blocks := pemBlocks(content)
	if chain, err = certificatesOf(blocks); err != nil {
		return nil, nil, err
	}
	if len(chain) == 0 {
		return nil, nil, errors.New("it holds no certificate")
	}
	for _, block := range blocks {
		switch block.Type {
		case "ENCRYPTED PRIVATE KEY":
			if s.keyPassword == "" {
				return nil, nil, errors.New("its key is encrypted, and ssl.key.password is not given")
			}
			if key, err = pkcs8.ParsePKCS8PrivateKey(block.Bytes, []byte(s.keyPassword)); err != nil {
				return nil, nil, errors.New("ssl.key.password is not the password of its key, or its key is encrypted in a way that is not known here (openssl's -v2 aes256 is)")
			}
			return key, chain, nil
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
			return key, chain, err
		case "RSA PRIVATE KEY", "EC PRIVATE KEY":
			return nil, nil, fmt.Errorf("its key is a '%s', but must be PKCS #8, as for Java: openssl pkcs8 -topk8", block.Type)
		}
	}
	return nil, nil, errNoKey
}

// reloading is what a file says. It is read again for each use, since a Secret that is mounted changes on disk.
type reloading[T any] struct {
	read  func() ([]byte, error)
	parse func([]byte) (T, error)

	mu      sync.Mutex
	content []byte // that value was parsed from
	value   T
	known   bool   // there is a value
	told    string // the trouble with the file that was told last
}

// get returns what the file says now. When a file that could be read before cannot be any more, it is half written or
// wrong: what it said last goes on being used, and warn is told, once.
func (r *reloading[T]) get(warn func(string)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	content, err := r.read()
	if err == nil && r.known && bytes.Equal(content, r.content) {
		r.told = ""
		return r.value, nil
	}
	var value T
	if err == nil {
		value, err = r.parse(content)
	}
	switch {
	case err == nil:
		r.content, r.value, r.known, r.told = content, value, true, ""
	case r.known && r.told != err.Error():
		r.told = err.Error()
		warn(fmt.Sprintf("a store has changed and cannot be used; the one read before stays in use: %v", err))
	case !r.known:
		return value, err
	}
	return r.value, nil
}
