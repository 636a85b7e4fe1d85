package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	accountDir     = "/var/run/secrets/kubernetes.io/serviceaccount" // where a pod finds its service account
	eventTimeout   = 5 * time.Second                                 // of one post
	eventRetryWait = time.Second                                     // before the one retry
	eventsAtOnce   = 4                                               // posts under way together

	// The API server's limits, in bytes (KUBERNETES: an Event that a real API server takes).
	maxEventNote     = 1024
	maxEventInstance = 128
	maxEventName     = 253
)

// recorder records stall warnings as Events on the sidecar's pod. It keeps nothing between two posts: token and
// certificates are read at each, since Kubernetes changes them while the pod runs.
type recorder struct {
	files     files
	network   network
	url       string // of the namespace's events
	pod       string
	namespace string
}

// newRecorder returns nil outside a pod: then warnings are log lines.
func newRecorder(cfg *Config, files files, network network) *recorder {
	if cfg.PodName == "" || cfg.PodNamespace == "" || cfg.KubernetesHost == "" || cfg.KubernetesPort == "" {
		return nil
	}
	host := strings.Trim(cfg.KubernetesHost, "[]") // an IPv6 address comes without brackets, and is wanted with them
	return &recorder{
		files: files, network: network, pod: cfg.PodName, namespace: cfg.PodNamespace,
		url: "https://" + net.JoinHostPort(host, cfg.KubernetesPort) + "/apis/events.k8s.io/v1/namespaces/" + url.PathEscape(cfg.PodNamespace) + "/events",
	}
}

// event is what the sidecar says of an events.k8s.io/v1 Event.
type event struct {
	APIVersion          string        `json:"apiVersion"`
	Kind                string        `json:"kind"`
	Metadata            eventMetadata `json:"metadata"`
	EventTime           string        `json:"eventTime"`
	ReportingController string        `json:"reportingController"`
	ReportingInstance   string        `json:"reportingInstance"`
	Action              string        `json:"action"`
	Reason              string        `json:"reason"`
	Regarding           eventObject   `json:"regarding"`
	Note                string        `json:"note"`
	Type                string        `json:"type"`
}

type eventMetadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type eventObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid,omitempty"`
}

// record posts w, once more when the answer to the first post did not come. The Event's name is the stall's own, so a post
// that landed unheard is not there twice. The error says why there may be no Event.
func (r *recorder) record(ctx context.Context, w stallWarning) error {
	at := time.Now()
	again, err := r.post(ctx, w, at)
	if err == nil || !again || !wait(ctx, eventRetryWait) {
		return err
	}
	_, err = r.post(ctx, w, at)
	return err
}

// post makes one attempt. again says that another may succeed.
func (r *recorder) post(ctx context.Context, w stallWarning, at time.Time) (again bool, err error) {
	token, err := r.files.ReadFile(accountDir + "/token")
	if err != nil {
		return false, fmt.Errorf("the service account's token cannot be read: %w", err)
	}
	bearer := strings.TrimSpace(string(token))
	ca, err := r.files.ReadFile(accountDir + "/ca.crt")
	if err != nil {
		return false, fmt.Errorf("the cluster's certificates cannot be read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return false, fmt.Errorf("the cluster's certificates cannot be read: %s/ca.crt has none", accountDir)
	}
	body, err := json.Marshal(r.event(w, at, podUID(bearer)))
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "ankka-flow-sidecar/"+sidecarVersion())
	request.Header.Set("Authorization", "Bearer "+bearer)
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: r.network.dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for nobody else
	}
	response, err := client.Do(request)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return true, fmt.Errorf("the API server did not answer within %s", eventTimeout)
		}
		return true, fmt.Errorf("the API server could not be asked: %w", withoutURL(err))
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // what can be read of it explains a refusal
	return eventAnswer(response.StatusCode, answer)
}

// withoutURL takes off what http.Client puts before an error: the same words at each post.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// eventAnswer turns the API server's answer into what a person can mend.
func eventAnswer(code int, body []byte) (again bool, err error) {
	why := ""
	switch {
	case code == http.StatusCreated, code == http.StatusOK, code == http.StatusAccepted:
		return false, nil
	case code == http.StatusConflict:
		return false, nil // it is there: an earlier post landed, whose answer was lost
	case code == http.StatusUnauthorized:
		why = "the token is not accepted: is it bound to a pod that is gone, or for another audience?"
	case code == http.StatusForbidden:
		why = "the pod's service account may not create events.events.k8s.io in its namespace"
	case code == http.StatusNotFound:
		why = "there is no such namespace or API: is FLOW_POD_NAMESPACE right?"
	case code == http.StatusBadRequest, code == http.StatusUnsupportedMediaType, code == http.StatusUnprocessableEntity:
		why = "the API server does not accept the Event as it is"
	case code == http.StatusTooManyRequests, code >= 500:
		again, why = true, "the API server is in trouble"
	default:
		why = "an answer that nothing is known of"
	}
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		why += " (" + shorten(status.Message) + ")"
	}
	return again, fmt.Errorf("%d %s: %s", code, http.StatusText(code), why)
}

// event is the Event of w.
func (r *recorder) event(w stallWarning, at time.Time, uid string) event {
	return event{
		APIVersion: "events.k8s.io/v1", Kind: "Event",
		Metadata:            eventMetadata{Name: r.eventName(w, uid), Namespace: r.namespace},
		EventTime:           at.UTC().Format("2006-01-02T15:04:05.000000Z"), // exactly six digits: anything else is refused
		ReportingController: "ankka-flow-sidecar", ReportingInstance: cutBytes(r.pod, maxEventInstance),
		Action: "Consume", Reason: "PartitionStalled", Type: "Warning",
		Regarding: eventObject{APIVersion: "v1", Kind: "Pod", Name: r.pod, Namespace: r.namespace, UID: uid},
		Note:      cutBytes(w.String(), maxEventNote),
	}
}

// eventName is the stall's own: the same for each post of it, and another for every other stall.
func (r *recorder) eventName(w stallWarning, uid string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d/%d", uid, r.pod, w.inlet, w.partition, w.since.UnixNano()))
	suffix := "." + hex.EncodeToString(sum[:8])
	return strings.TrimRight(r.pod[:min(len(r.pod), maxEventName-len(suffix))], ".-") + suffix
}

// podUID is the pod that a projected token is bound to, empty for one that is bound to none. Without it, describing the pod
// does not list the Event. The token is the sidecar's own and is not verified.
func podUID(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		Kubernetes struct {
			Pod struct {
				UID string `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Kubernetes.Pod.UID
}

// cutBytes is text in at most so many bytes, cut before a rune and marked where it was cut.
func cutBytes(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= most {
		return text
	}
	const mark = "…"
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
