package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// apiServer is a Kubernetes API server as far as Events go. It refuses all that a real one was seen to refuse (KUBERNETES: an
// Event that a real API server takes).
type apiServer struct {
	host, port string
	caPEM      []byte

	mu      sync.Mutex
	tokens  map[string]bool                  // accepted
	role    bool                             // the account may create events.events.k8s.io
	events  map[string]map[string]any        // by name
	answers []string                         // what was answered, in order
	trouble []func(http.ResponseWriter) bool // for the next requests; true: the request has no effect
}

const testPodUID = "8f4a1c52-6d0e-4b7f-9a55-0d7e9f3f2b10"

// projectedToken is a JWT as the kubelet mounts it; its signature is nobody's.
func projectedToken(serial int) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	claims := map[string]any{"serial": serial, "kubernetes.io": map[string]any{"namespace": "shop", "pod": map[string]any{"name": "cart-0", "uid": testPodUID}}}
	return part(map[string]any{"alg": "RS256"}) + "." + part(claims) + ".c2lnbmF0dXJl"
}

// newAPIServer serves on l, with a certificate for names, until the test ends. Its clock is the bubble's.
func newAPIServer(t *testing.T, l net.Listener, names ...string) *apiServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	a := &apiServer{
		host: host, port: port, caPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		tokens: map[string]bool{projectedToken(1): true}, role: true, events: map[string]map[string]any{},
	}
	server := &http.Server{Handler: a, ErrorLog: log.New(io.Discard, "", 0)}
	secure := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	go func() { _ = server.Serve(secure) }()
	t.Cleanup(func() { _ = server.Close() })
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	var trouble func(http.ResponseWriter) bool
	if len(a.trouble) > 0 {
		trouble, a.trouble = a.trouble[0], a.trouble[1:]
	}
	a.mu.Unlock()
	recorded := &answer{header: http.Header{}}
	if trouble != nil {
		if trouble(recorded) {
			a.finish(w, recorded)
			return
		}
		code, message := a.create(r, body)
		recorded.lost(code, message) // it took effect, and nobody hears of it
		a.finish(w, recorded)
		return
	}
	code, message := a.create(r, body)
	recorded.say(code, message)
	a.finish(w, recorded)
}

// answer is what a request is answered with.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	hang   time.Duration
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (a *answer) say(code int, message string) {
	a.code = code
	_ = json.NewEncoder(&a.body).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "code": code, "message": message})
}

func (a *answer) lost(code int, message string) {
	a.say(code, message)
	a.hang = time.Hour
}

func (a *apiServer) finish(w http.ResponseWriter, recorded *answer) {
	a.mu.Lock()
	a.answers = append(a.answers, fmt.Sprint(recorded.code))
	a.mu.Unlock()
	if recorded.hang > 0 {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), recorded.header)
	w.WriteHeader(recorded.code)
	_, _ = w.Write(recorded.body.Bytes())
}

var (
	subdomain     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	qualifiedName = regexp.MustCompile(`^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	microTime     = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$`)
)

// create takes an Event, or refuses it.
func (a *apiServer) create(r *http.Request, body []byte) (int, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	namespace, isEvents := strings.CutPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/")
	namespace, isCollection := strings.CutSuffix(namespace, "/events")
	switch {
	case !isBearer || !a.tokens[token]:
		return 401, "Unauthorized"
	case !isEvents || !isCollection:
		return 404, "the server could not find the requested resource"
	case !a.role || r.Method != http.MethodPost || namespace != "shop":
		return 403, `events.events.k8s.io is forbidden: User "system:serviceaccount:shop:cart" cannot create resource "events"`
	case r.Header.Get("Content-Type") != "application/json":
		return 415, "the body of the request was in an unknown format"
	}
	var e map[string]any
	if err := json.Unmarshal(body, &e); err != nil {
		return 400, err.Error()
	}
	text := func(m map[string]any, field string) string { s, _ := m[field].(string); return s }
	meta, _ := e["metadata"].(map[string]any)
	regarding, _ := e["regarding"].(map[string]any)
	if !microTime.MatchString(text(e, "eventTime")) {
		return 400, "cannot parse eventTime " + text(e, "eventTime")
	}
	if ns := text(meta, "namespace"); ns != "" && ns != namespace {
		return 400, "the namespace of the provided object does not match the namespace sent on the request"
	}
	if text(e, "apiVersion") != "events.k8s.io/v1" || text(e, "kind") != "Event" {
		return 400, "the object is not an Event of events.k8s.io/v1"
	}
	var invalid []string
	need := func(field string, most int) {
		if s := text(e, field); s == "" || len(s) > most {
			invalid = append(invalid, fmt.Sprintf("%s: Invalid value, required and at most %d", field, most))
		}
	}
	need("reason", 128)
	need("action", 128)
	need("reportingInstance", 128)
	if !qualifiedName.MatchString(text(e, "reportingController")) {
		invalid = append(invalid, "reportingController: Invalid value")
	}
	if s := text(e, "type"); s != "Warning" && s != "Normal" {
		invalid = append(invalid, "type: Invalid value")
	}
	if len(text(e, "note")) > 1024 {
		invalid = append(invalid, "note: can have at most 1024 bytes")
	}
	if text(regarding, "namespace") != namespace {
		invalid = append(invalid, "regarding.namespace: does not match metadata.namespace")
	}
	for field := range e {
		if strings.HasPrefix(field, "deprecated") {
			invalid = append(invalid, field+": must not be set")
		}
	}
	if series, ok := e["series"].(map[string]any); ok {
		if count, _ := series["count"].(float64); count < 2 || !microTime.MatchString(text(series, "lastObservedTime")) {
			invalid = append(invalid, "series: needs count >= 2 and lastObservedTime")
		}
	}
	name := text(meta, "name")
	if prefix := text(meta, "generateName"); name == "" && prefix != "" {
		name = fmt.Sprintf("%s%05d", prefix, len(a.events))
		if strings.HasSuffix(prefix, ".") || !subdomain.MatchString(name) {
			invalid = append(invalid, "metadata.generateName: Invalid value")
		}
	}
	if len(name) > 253 || !subdomain.MatchString(name) {
		invalid = append(invalid, "metadata.name: Invalid value: a lowercase RFC 1123 subdomain")
	}
	if len(invalid) > 0 {
		return 422, "Event is invalid: " + strings.Join(invalid, ", ")
	}
	if a.events[name] != nil {
		return 409, "events " + name + " already exists"
	}
	a.events[name] = e
	return 201, ""
}

// describePod lists the notes that describing the pod shows: those whose regarding is the pod, its uid included.
func (a *apiServer) describePod(name, uid string) (notes []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if about := e["regarding"].(map[string]any); about["kind"] == "Pod" && about["name"] == name && about["uid"] == uid {
			notes = append(notes, e["note"].(string))
		}
	}
	return notes
}

func (a *apiServer) answered() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.answers, " ")
}

// next gives the next requests trouble. What returns false loses the answer of a request that takes effect.
func (a *apiServer) next(trouble ...func(http.ResponseWriter) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trouble = append(a.trouble, trouble...)
}

func answerWith(code int) func(http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool { w.WriteHeader(code); return true }
}

func loseTheAnswer(http.ResponseWriter) bool { return false }

func redirect(w http.ResponseWriter) bool {
	w.Header().Set("Location", "https://elsewhere.example/")
	w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}
