package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

// troubles tells in words what is between a port and its brokers: each trouble at once, again after a wait that doubles, and
// when it is over. It lives as long as the port, since clients come and go with conversations.
type troubles struct {
	connection Connection
	log        *slog.Logger
	client     clientLog // of every client of the port

	mu    sync.Mutex
	told  map[string]map[string]*trouble // by what it is about, then by sentence
	fresh map[string]bool                // brokers, host:port, of whom nothing was heard since the connection was made
}

// trouble is one thing that goes wrong, perhaps again and again.
type trouble struct {
	since, next time.Time // when it began, and not before when it is told again
	pause       time.Duration
	times       int
}

// newTrouble is one that is told again after a first pause.
func newTrouble(now time.Time, pause time.Duration) *trouble {
	return &trouble{since: now, pause: pause}
}

// due counts it and says whether it is to be told now. The pauses between double up to longest.
func (k *trouble) due(now time.Time, longest time.Duration) bool {
	k.times++
	if now.Before(k.next) {
		return false
	}
	k.next, k.pause = now.Add(k.pause), min(2*k.pause, longest)
	return true
}

const (
	firstTroublePause = 15 * time.Second
	maxTroublePause   = 5 * time.Minute
	maxSentences      = 4 // about one thing; more are told as one, since some differ at each attempt
)

// newTroubles is a port's. log has its name, as inlet or outlet.
func newTroubles(connection Connection, topic string, log *slog.Logger) *troubles {
	return &troubles{connection: connection, log: log, client: clientLog{log: log.With("topic", topic), topic: topic}, told: map[string]map[string]*trouble{}, fresh: map[string]bool{}}
}

// tell says a sentence about something, unless it was said a short time ago.
func (t *troubles) tell(about, sentence string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	sentences := t.told[about]
	if sentences == nil {
		sentences = map[string]*trouble{}
		t.told[about] = sentences
	}
	key := sentence
	if sentences[key] == nil && len(sentences) >= maxSentences {
		key = "" // any other
	}
	known := sentences[key]
	if known == nil {
		known = newTrouble(now, firstTroublePause)
		sentences[key] = known
	}
	if known.due(now, maxTroublePause) {
		t.log.Warn(sentence, "since", utc(known.since))
	}
}

// over says that nothing is wrong with it any more, if something was.
func (t *troubles) over(about string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var since time.Time
	for _, known := range t.told[about] {
		if since.IsZero() || known.since.Before(since) {
			since = known.since
		}
	}
	delete(t.told, about)
	if !since.IsZero() {
		t.log.Info("the trouble with "+about+" is over", "after", time.Since(since).Round(time.Millisecond))
	}
}

// refused tells of an answer that is about authorization, if it is one. operation is an ACL's.
func (t *troubles) refused(err error, operation, about string) bool {
	if isUnauthorized(err) {
		t.tell(about, unauthorized(operation, about))
		return true
	}
	return false
}

func isUnauthorized(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

func unauthorized(operation, about string) string {
	return fmt.Sprintf("the broker does not authorize %s on %s for this client; add an ACL for its principal", operation, about)
}

// clientTroubles hears of the connections of one client.
type clientTroubles struct {
	*troubles
	conns *connections
}

var _ interface {
	kgo.HookBrokerConnect
	kgo.HookBrokerRead
} = (*clientTroubles)(nil)

func addressOf(meta kgo.BrokerMetadata) string {
	return net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
}

// OnBrokerConnect is called when a connection is ready for requests, or failed to become so.
func (t *clientTroubles) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	address := addressOf(meta)
	about := "broker " + address
	switch {
	case err == nil:
		t.mu.Lock()
		t.fresh[address] = true
		t.mu.Unlock()
		t.over(about)
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed), t.conns.alive.Err() != nil:
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		t.conns.ask(func() {
			enabled, askErr := t.enabledMechanisms(address)
			if t.conns.alive.Err() != nil {
				return
			}
			if askErr != nil {
				enabled = []string{"unknown: " + askErr.Error()}
			}
			t.tell(about, fmt.Sprintf("%s: sasl.mechanism %s is not enabled on this listener; enabled are: %s", about, t.connection.MechanismName, strings.Join(enabled, ", ")))
		})
	default:
		t.tell(about, about+": "+t.explain(err))
	}
}

// OnBrokerRead notices a listener that closes the connection at the first request: one that wants SASL does.
func (t *clientTroubles) OnBrokerRead(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if slices.Contains([]int16{(*kmsg.ApiVersionsRequest)(nil).Key(), (*kmsg.SASLHandshakeRequest)(nil).Key(), (*kmsg.SASLAuthenticateRequest)(nil).Key()}, key) {
		return
	}
	address := addressOf(meta)
	about := "the first request to broker " + address
	t.mu.Lock()
	fresh := t.fresh[address]
	if err == nil {
		delete(t.fresh, address)
	}
	t.mu.Unlock()
	if !fresh {
		return
	}
	if err == nil {
		t.over(about)
	} else if wasClosed(err) && t.connection.MechanismName == "" && t.conns.alive.Err() == nil {
		t.tell(about, fmt.Sprintf("broker %s closed the connection at the first request: the listener asks for SASL, it seems, and security.protocol is %s", address, t.connection.Protocol))
	}
}

func wasClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// knownMechanism marks what fails before the broker is asked, at a token endpoint or a KDC: else it would pass for the broker's.
type knownMechanism struct{ sasl.Mechanism }

type mechanismError struct{ cause error }

func (e *mechanismError) Error() string { return e.cause.Error() }

func (m knownMechanism) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	session, first, err := m.Mechanism.Authenticate(ctx, host)
	if err != nil && ctx.Err() == nil {
		err = &mechanismError{err}
	}
	return session, first, err
}

// explain says why there is no connection that requests can go over.
func (t *troubles) explain(err error) string {
	var dns *net.DNSError
	var kafka *kerr.Error
	var eof *kgo.ErrFirstReadEOF
	var broken *net.OpError
	var mechanism *mechanismError
	secure := t.connection.Secure != nil
	switch {
	case errors.As(err, &mechanism):
		return fmt.Sprintf("not logged in by sasl.mechanism %s: %v", t.connection.MechanismName, mechanism.cause)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("there is no host %s in DNS; bootstrap.servers, or what the broker advertises, has a wrong name", quote(dns.Name))
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be looked up: %s", quote(dns.Name), dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "unreachable: the host refuses the connection; the broker is down, or the port is wrong"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Sprintf("unreachable: no answer within socket.connection.setup.timeout.ms (%d)", t.connection.DialTimeout.Milliseconds())
	case tlsAlert(err) != "":
		return fmt.Sprintf("it ended the TLS connection (%s): it does not accept the client's certificate, or asks for one and ssl.keystore.* gives none", tlsAlert(err))
	case errors.As(err, &kafka):
		return t.explainSASL(kafka, err)
	case !secure && (errors.As(err, &eof) || strings.Contains(err.Error(), "invalid large response size") || wasClosed(err)):
		return fmt.Sprintf("it closed the connection at once or answered nonsense: the listener speaks TLS, it seems, and security.protocol is %s", t.connection.Protocol)
	case errors.As(err, &broken):
		return "the connection failed: " + broken.Err.Error() // without ports, which are others every time
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func (t *troubles) explainSASL(kafka *kerr.Error, err error) string {
	switch kafka {
	case kerr.SaslAuthenticationFailed:
		return fmt.Sprintf("it does not accept the credentials of sasl.mechanism %s: %v", t.connection.MechanismName, err)
	case kerr.IllegalSaslState:
		return fmt.Sprintf("the listener does not use SASL, and security.protocol is %s", t.connection.Protocol)
	}
	return err.Error()
}

// enabledMechanisms asks a broker on a connection of its own.
func (t *clientTroubles) enabledMechanisms(address string) ([]string, error) {
	ctx, cancel := context.WithTimeout(t.conns.alive, 10*time.Second)
	defer cancel()
	conn, err := t.conns.connect(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, t.connection.MechanismName
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 0)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	const least, most = 4, 64 << 10 // a correlation id; far more than names of mechanisms
	n := binary.BigEndian.Uint32(size[:])
	if n < least || n > most {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	if err := resp.ReadFrom(answer[least:]); err != nil {
		return nil, err
	}
	return resp.SupportedMechanisms, nil
}
