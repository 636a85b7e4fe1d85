package main

import (
	"context"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/iana/patype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
	"github.com/twmb/franz-go/pkg/sasl"
)

const (
	krb5Module  = "com.sun.security.auth.module.Krb5LoginModule"
	krb5Conf    = "/etc/krb5.conf"
	kdcTimeout  = 10 * time.Second // for one answer
	maxKDCBytes = 1 << 20
)

// kerberos authenticates by the keys of a keytab. Each authentication asks the KDC for tickets: there are few. gokrb5 has the
// messages; the asking is here, since its own client goes over no network but the system's.
type kerberos struct {
	service, keytab, conf string // conf and keytab are files, read each time
	principal             types.PrincipalName
	realm                 string
	readFile              func(name string) ([]byte, error)
}

func (d *portProperties) kerberosMechanism(at property) func(network) sasl.Mechanism {
	before := len(d.problems)
	options := d.security.jaas.options
	k := &kerberos{keytab: options["keyTab"], service: d.text("sasl.kerberos.service.name"), conf: krb5Conf, readFile: d.outside.readFile}
	if k.service == "" {
		k.service = options["serviceName"]
	}
	if conf, ok := d.outside.lookupEnv("KRB5_CONFIG"); ok && conf != "" {
		k.conf = conf
	}
	name, realm, hasRealm := strings.Cut(options["principal"], "@")
	k.principal, k.realm = types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, name), realm
	if strings.TrimSpace(d.security.jaas.module) != krb5Module {
		d.problem(at, "its login module must be %s for sasl.mechanism GSSAPI", krb5Module)
	}
	if k.keytab == "" || !strings.EqualFold(options["useKeyTab"], "true") {
		d.problem(at, "its options must have useKeyTab=true and keyTab=\"/a/file\"; a ticket cache is not read")
	}
	if name == "" {
		d.problem(at, "its option principal is missing, such as principal=\"client@EXAMPLE.COM\"")
	}
	if k.service == "" {
		d.problem(d.either("sasl.kerberos.service.name", "sasl.mechanism"), "sasl.kerberos.service.name is missing; it is the first part of the brokers' principals, mostly kafka")
	}
	if len(d.problems) > before {
		return nil
	}
	conf, err := k.configuration()
	if err != nil {
		d.problem(at, "%v", err)
		return nil
	}
	if !hasRealm {
		k.realm = conf.LibDefaults.DefaultRealm
	}
	if _, err := k.keys(conf); err != nil {
		d.problem(at, "%v", err)
	} else if _, err := k.kdcs(conf); err != nil {
		d.problem(at, "%v", err)
	}
	if len(d.problems) > before {
		return nil
	}
	return func(n network) sasl.Mechanism { return &kerberosMechanism{k, n} }
}

// configuration reads krb5.conf.
func (k *kerberos) configuration() (*config.Config, error) {
	text, err := (&store{location: k.conf, readFile: k.readFile}).content()
	if err != nil {
		return nil, fmt.Errorf("no configuration of Kerberos: %w; KRB5_CONFIG may name another file", err)
	}
	conf, err := config.NewFromString(string(text))
	if err != nil {
		var unsupported config.UnsupportedDirective
		if !errors.As(err, &unsupported) {
			return nil, fmt.Errorf("%s cannot be read: %w", quote(k.conf), err)
		}
	}
	return conf, nil
}

// keys reads the keytab, and lets conf ask for the encryptions that it has keys for.
func (k *kerberos) keys(conf *config.Config) (*credentials.Credentials, error) {
	content, err := (&store{location: k.keytab, readFile: k.readFile}).content()
	if err != nil {
		return nil, fmt.Errorf("the keytab: %w", err)
	}
	tab := keytab.New()
	if err := tab.Unmarshal(content); err != nil {
		return nil, fmt.Errorf("%s is no keytab: %w", quote(k.keytab), err)
	}
	// Those that GSS-API wraps messages with as it is done today (RFC 4121).
	var kinds []int32
	for _, kind := range []int32{etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA384_192, etypeID.AES128_CTS_HMAC_SHA256_128} {
		if _, _, err := tab.GetEncryptionKey(k.principal, k.realm, 0, kind); err == nil {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("the keytab %s has no AES key of principal %s in realm %s", quote(k.keytab), quote(k.principal.PrincipalNameString()), quote(k.realm))
	}
	conf.LibDefaults.DefaultTktEnctypeIDs, conf.LibDefaults.DefaultTGSEnctypeIDs = kinds, kinds
	return credentials.NewFromPrincipalName(k.principal, k.realm).WithKeytab(tab), nil
}

// kdcs are the realm's, as host:port.
func (k *kerberos) kdcs(conf *config.Config) ([]string, error) {
	for _, realm := range conf.Realms {
		if realm.Realm == k.realm && len(realm.KDC) > 0 {
			return realm.KDC, nil
		}
	}
	return nil, fmt.Errorf("%s names no kdc for realm %s in [realms]; it is not looked for in DNS", quote(k.conf), quote(k.realm))
}

// ask sends a message to the realm's KDCs, one after another until one answers.
func (k *kerberos) ask(ctx context.Context, n network, conf *config.Config, message []byte) ([]byte, error) {
	kdcs, err := k.kdcs(conf)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, kdc := range kdcs {
		answer, err := askKDC(ctx, n, kdc, message)
		if err != nil {
			failed = append(failed, fmt.Errorf("KDC %s: %w", kdc, err))
			continue
		}
		var refusal messages.KRBError
		if refusal.Unmarshal(answer) == nil {
			return nil, refusal
		}
		return answer, nil
	}
	return nil, errors.Join(failed...)
}

// askKDC sends one message over TCP (RFC 4120, section 7.2.2).
func askKDC(ctx context.Context, n network, kdc string, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, kdcTimeout)
	defer cancel()
	conn, err := n.dial(ctx, "tcp", kdc)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	if n := binary.BigEndian.Uint32(size[:]); n > maxKDCBytes {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(conn, answer)
	return answer, err
}

// ticket gets the broker's ticket and its session key: first the one for tickets, then the broker's.
func (k *kerberos) ticket(ctx context.Context, n network, host string) (ticket messages.Ticket, key types.EncryptionKey, err error) {
	conf, err := k.configuration()
	if err != nil {
		return ticket, key, err
	}
	creds, err := k.keys(conf)
	if err != nil {
		return ticket, key, err
	}
	asked, err := messages.NewASReqForTGT(k.realm, conf, k.principal)
	if err != nil {
		return ticket, key, err
	}
	if err := k.preauthenticate(&asked, creds.Keytab(), conf); err != nil {
		return ticket, key, err
	}
	message, err := asked.Marshal()
	if err != nil {
		return ticket, key, err
	}
	answer, err := k.ask(ctx, n, conf, message)
	if err != nil {
		return ticket, key, err
	}
	var granting messages.ASRep
	if err := granting.Unmarshal(answer); err != nil {
		return ticket, key, err
	}
	if ok, err := granting.Verify(conf, creds, asked); !ok {
		return ticket, key, err
	}
	service := types.NewPrincipalName(nametype.KRB_NT_SRV_HST, k.service+"/"+host)
	wanted, err := messages.NewTGSReq(k.principal, k.realm, conf, granting.Ticket, granting.DecryptedEncPart.Key, service, false)
	if err != nil {
		return ticket, key, err
	}
	if message, err = wanted.Marshal(); err != nil {
		return ticket, key, err
	}
	if answer, err = k.ask(ctx, n, conf, message); err != nil {
		return ticket, key, err
	}
	var granted messages.TGSRep
	if err := granted.Unmarshal(answer); err != nil {
		return ticket, key, err
	}
	if err := granted.DecryptEncPart(granting.DecryptedEncPart.Key); err != nil {
		return ticket, key, err
	}
	if ok, err := granted.Verify(conf, wanted); !ok {
		return ticket, key, err
	}
	return granted.Ticket, granted.DecryptedEncPart.Key, nil
}

// preauthenticate adds the time, encrypted with the client's key (RFC 4120, section 5.2.7.2).
func (k *kerberos) preauthenticate(asked *messages.ASReq, tab *keytab.Keytab, conf *config.Config) error {
	key, version, err := tab.GetEncryptionKey(k.principal, k.realm, 0, conf.LibDefaults.DefaultTktEnctypeIDs[0])
	if err != nil {
		return err
	}
	now, err := types.GetPAEncTSEncAsnMarshalled()
	if err != nil {
		return err
	}
	encrypted, err := crypto.GetEncryptedData(now, key, keyusage.AS_REQ_PA_ENC_TIMESTAMP, version)
	if err != nil {
		return err
	}
	value, err := encrypted.Marshal()
	asked.PAData = append(asked.PAData, types.PAData{PADataType: patype.PA_ENC_TIMESTAMP, PADataValue: value})
	return err
}

// explainKerberos says in words what a KDC refused.
func (k *kerberos) explainKerberos(err error, host string) error {
	var refusal messages.KRBError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("no Kerberos ticket could be had: %w", err)
	}
	client := quote(k.principal.PrincipalNameString() + "@" + k.realm)
	switch refusal.ErrorCode {
	case errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN:
		return fmt.Errorf("the KDC knows no principal %s", client)
	case errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN:
		return fmt.Errorf("the KDC knows no principal '%s/%s' of the broker; compare sasl.kerberos.service.name and the host name with it", k.service, host)
	case errorcode.KDC_ERR_PREAUTH_FAILED:
		return fmt.Errorf("the KDC does not accept the key of %s in the keytab %s; export it anew", client, quote(k.keytab))
	case errorcode.KRB_AP_ERR_SKEW:
		return fmt.Errorf("the clock here and the KDC's differ too much (here %s, there %s); set it", time.Now().UTC().Format(time.RFC3339), refusal.STime.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("the KDC refuses %s: %w", client, refusal)
}

// kerberosMechanism is SASL's GSSAPI (RFC 4752) without a security layer, as Kafka uses it.
type kerberosMechanism struct {
	*kerberos
	network network
}

func (*kerberosMechanism) Name() string { return "GSSAPI" }

// Authenticate begins with a Kerberos AP-REQ in a GSS-API token (RFC 2743, section 3.1; RFC 4121, section 4.1).
func (m *kerberosMechanism) Authenticate(ctx context.Context, address string) (sasl.Session, []byte, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	ticket, key, err := m.ticket(ctx, m.network, host)
	if err != nil {
		return nil, nil, m.explainKerberos(err, host)
	}
	authenticator, err := types.NewAuthenticator(m.realm, m.principal)
	if err != nil {
		return nil, nil, err
	}
	const gssChecksum, bindingBytes, confidentialityAndIntegrity = 0x8003, 16, 0x30
	checksum := binary.LittleEndian.AppendUint32(nil, bindingBytes)
	checksum = append(checksum, make([]byte, bindingBytes)...)
	authenticator.Cksum = types.Checksum{CksumType: gssChecksum, Checksum: binary.LittleEndian.AppendUint32(checksum, confidentialityAndIntegrity)}
	request, err := messages.NewAPReq(ticket, key, authenticator)
	if err != nil {
		return nil, nil, err
	}
	body, err := request.Marshal()
	if err != nil {
		return nil, nil, err
	}
	mechanism, err := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 113554, 1, 2, 2}) // Kerberos 5
	if err != nil {
		return nil, nil, err
	}
	body = append(append(mechanism, 1, 0), body...) // 01 00: an AP-REQ
	token, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassApplication, Tag: 0, IsCompound: true, Bytes: body})
	return &kerberosSession{key: key}, token, err
}

// kerberosSession answers the broker's one question: which security layer. Key is the session key.
type kerberosSession struct{ key types.EncryptionKey }

func (s *kerberosSession) Challenge(offer []byte) (bool, []byte, error) {
	const noLayer = 1
	var wrapped gssapi.WrapToken
	if err := wrapped.Unmarshal(offer, true); err != nil {
		return false, nil, err
	}
	if ok, err := wrapped.Verify(s.key, keyusage.GSSAPI_ACCEPTOR_SEAL); !ok {
		return false, nil, fmt.Errorf("the broker's token is not what its ticket's key makes: %w", err)
	}
	if len(wrapped.Payload) != 4 || wrapped.Payload[0]&noLayer == 0 {
		return false, nil, errors.New("the broker asks for a GSS-API security layer, which Kafka does not have")
	}
	answer, err := gssapi.NewInitiatorWrapToken([]byte{noLayer, 0, 0, 0}, s.key)
	if err != nil {
		return false, nil, err
	}
	last, err := answer.Marshal()
	return true, last, err
}
