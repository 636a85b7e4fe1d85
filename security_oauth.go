package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

const (
	oauthPackage   = loginModules + "oauthbearer."
	tokenTimeout   = 10 * time.Second // for connecting to the token endpoint, and for its answer; Java's default
	maxTokenAnswer = 1 << 20          // bytes
	tokenLife      = 5 * time.Minute  // of a token that does not say how long it lives
)

// tokenSource gives OAUTHBEARER tokens: those of a token endpoint, by client credentials, or the one in a file.
type tokenSource struct {
	endpoint                *url.URL // nil: file says the token
	file                    string
	readFile                func(name string) ([]byte, error)
	clientID, secret, scope string
	encoded                 bool // id and secret are URL-encoded in the header, as RFC 6749 has it and Java by default has not
	extensions              map[string]string
	tls                     *tlsClient
	connectTimeout          time.Duration
	readTimeout             time.Duration

	mu    sync.Mutex
	token string
	stale time.Time // when the next connection gets a new one
}

// oauthMechanism builds OAUTHBEARER. The properties of 4.1 count before the options of JAAS, as in Java.
func (d *portProperties) oauthMechanism() func(network) sasl.Mechanism {
	before := len(d.problems)
	options := map[string]string{}
	if jaas := d.security.jaas; jaas != nil {
		options = jaas.options
		if !strings.HasPrefix(strings.TrimSpace(jaas.module), oauthPackage) {
			d.problem(d.given["sasl.jaas.config"], "its login module must be %sOAuthBearerLoginModule for sasl.mechanism OAUTHBEARER", oauthPackage)
		}
	}
	d.onlyClasses("sasl.login.callback.handler.class", oauthPackage+"OAuthBearerLoginCallbackHandler", oauthPackage+"secured.OAuthBearerLoginCallbackHandler")
	d.onlyClasses("sasl.oauthbearer.jwt.retriever.class", oauthPackage+"DefaultJwtRetriever", oauthPackage+"ClientCredentialsJwtRetriever", oauthPackage+"FileJwtRetriever")
	either := func(name, option string) string {
		if d.has(name) {
			return d.text(name)
		}
		return options[option]
	}
	s := &tokenSource{
		readFile:       d.outside.readFile,
		clientID:       either("sasl.oauthbearer.client.credentials.client.id", "clientId"),
		secret:         either("sasl.oauthbearer.client.credentials.client.secret", "clientSecret"),
		scope:          either("sasl.oauthbearer.scope", "scope"),
		encoded:        strings.EqualFold(d.text("sasl.oauthbearer.header.urlencode"), "true"),
		extensions:     d.saslExtensions(options),
		connectTimeout: d.millis("sasl.login.connect.timeout.ms"),
		readTimeout:    d.millis("sasl.login.read.timeout.ms"),
	}
	d.tokenEndpoint(s, options)
	if len(d.problems) > before {
		return nil
	}
	return func(n network) sasl.Mechanism {
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.get(ctx, n)
			return oauth.Auth{Token: token, Extensions: s.extensions}, err
		})
	}
}

// tokenEndpoint reads where tokens come from.
func (d *portProperties) tokenEndpoint(s *tokenSource, options map[string]string) {
	const name = "sasl.oauthbearer.token.endpoint.url"
	endpoint, err := url.Parse(d.text(name))
	switch {
	case !d.has(name):
		d.problem(d.either("sasl.mechanism", "security.protocol"), "sasl.mechanism OAUTHBEARER needs %s: https://…, or file:///… for a token in a file", name)
	case err == nil && endpoint.Scheme == "file" && endpoint.Path != "":
		s.file = endpoint.Path
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https":
		d.problem(d.given[name], "it is %s, but must be https://…, http://…, or file:///… for a token in a file", quote(d.text(name)))
	default:
		s.endpoint = endpoint
		if s.clientID == "" {
			d.problem(d.given[name], "the client's id is missing; give it in sasl.oauthbearer.client.credentials.client.id, or as option clientId of sasl.jaas.config")
		}
		if s.secret == "" {
			d.problem(d.given[name], "the client's secret is missing; give it in sasl.oauthbearer.client.credentials.client.secret, or as option clientSecret of sasl.jaas.config")
		}
		s.tls = d.endpointTLS(options)
	}
}

// endpointTLS is how the token endpoint is trusted: as the ssl.* options of JAAS say, else by the system's roots, as in Java.
func (d *portProperties) endpointTLS(options map[string]string) *tlsClient {
	of := portProperties{client: d.client, port: d.port, outside: d.outside}
	var given []property
	for name, value := range options {
		if strings.HasPrefix(name, "ssl.") {
			given = append(given, property{name: name, value: value, place: d.given["sasl.jaas.config"].place})
		}
	}
	of.read([][]property{given})
	client := of.tlsClient()
	d.problems, d.warnings = append(d.problems, of.problems...), append(d.warnings, of.warnings...)
	return client
}

// onlyClasses refuses the Java classes that something here does not do the work of.
func (d *portProperties) onlyClasses(name string, known ...string) {
	if given, ok := d.given[name]; ok && !slices.Contains(known, d.text(name)) {
		d.problem(given, "it is %s, but must be %s or left out; a class of your own cannot run here", quote(d.text(name)), oneOf(known))
	}
}

func (d *portProperties) millis(name string) time.Duration {
	n, err := strconv.ParseInt(d.text(name), 10, 32)
	if err != nil || n <= 0 {
		return tokenTimeout
	}
	return time.Duration(n) * time.Millisecond
}

var extensionName, extensionValue = regexp.MustCompile(`^[A-Za-z]+$`), regexp.MustCompile(`^[\x21-\x7E \t\r\n]+$`)

// saslExtensions are the options of JAAS that begin with extension_ (RFC 7628, section 3.1, with Java's rules).
func (d *portProperties) saslExtensions(options map[string]string) map[string]string {
	extensions := map[string]string{}
	for option, value := range options {
		name, ok := strings.CutPrefix(option, "extension_")
		if !ok {
			continue
		}
		if !extensionName.MatchString(name) || name == "auth" || !extensionValue.MatchString(value) {
			d.problem(d.given["sasl.jaas.config"], "an option that begins with extension_ must go on with letters, not be 'auth', and have a value of printable ASCII")
		}
		extensions[name] = value
	}
	return extensions
}

// get returns a token that has a fifth of its life before it.
func (s *tokenSource) get(ctx context.Context, n network) (string, error) {
	if s.endpoint == nil {
		content, err := s.readFile(s.file)
		if err != nil {
			return "", fmt.Errorf("the token in %s cannot be read: %w", quote(s.file), err)
		}
		return strings.TrimSpace(string(content)), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != "" && time.Now().Before(s.stale) {
		return s.token, nil
	}
	token, life, err := s.fetch(ctx, n)
	if err != nil {
		return "", fmt.Errorf("no token could be had of %s: %w", quote(s.endpoint.Redacted()), err)
	}
	s.token, s.stale = token, time.Now().Add(life*4/5)
	return token, nil
}

// fetch asks the endpoint for a token (RFC 6749, section 4.4).
func (s *tokenSource) fetch(ctx context.Context, n network) (token string, life time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout+s.readTimeout)
	defer cancel()
	form := url.Values{"grant_type": {"client_credentials"}}
	if s.scope != "" {
		form.Set("scope", s.scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	id, secret := s.clientID, s.secret
	if s.encoded {
		id, secret = url.QueryEscape(id), url.QueryEscape(secret)
	}
	req.SetBasicAuth(id, secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	resp, err := httpClient(n, s.tls, s.connectTimeout).Do(req)
	if err != nil {
		return "", 0, errors.Unwrap(err) // the URL is said already
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	if err != nil {
		return "", 0, err
	}
	var answer struct {
		AccessToken string      `json:"access_token"`
		IDToken     string      `json:"id_token"`
		ExpiresIn   json.Number `json:"expires_in"`
		Error       string      `json:"error"`
		Description string      `json:"error_description"`
	}
	err = json.Unmarshal(body, &answer)
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("it answered %s %s; are the client's id and secret right?", resp.Status, quote(strings.TrimSpace(answer.Error+" "+answer.Description)))
	}
	if token = answer.AccessToken; token == "" {
		token = answer.IDToken
	}
	if err != nil || token == "" {
		return "", 0, errors.New("what it answered holds no access_token")
	}
	if seconds, err := answer.ExpiresIn.Int64(); err == nil && seconds > 0 {
		return token, time.Duration(min(seconds, 1<<31)) * time.Second, nil
	}
	return token, lifeOfToken(token), nil
}

// lifeOfToken is how long a JWT says that it lives, from now on.
func lifeOfToken(token string) time.Duration {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return tokenLife
	}
	var claims struct {
		Exp float64 `json:"exp"` // seconds since 1970
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return tokenLife
	}
	return max(0, time.Until(time.Unix(int64(claims.Exp), 0)))
}
