package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

var stallInTests = stallWarning{
	pipeline: "cart", streamlet: "router", inlet: "in", topic: "shop.cart-events.v1", partition: 3, offset: 57, exact: true,
	since: time.UnixMicro(1), age: 5 * time.Minute, cause: "cannot decode the cart",
}

// lastWords is more than TLS takes to say goodbye over a connection whose other end no longer reads.
const lastWords = 10 * time.Second

// inCluster runs f with an API server and a recorder of the pod cart-0 that reaches it under host.
func inCluster(t *testing.T, host string, f func(t *testing.T, api *apiServer, r *recorder, account *memFiles, n *memnet)) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet()
		l, err := n.listen("tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		api := newAPIServer(t, l, host)
		files := newMemFiles()
		files.write(accountDir+"/token", []byte(projectedToken(1)+"\n"))
		files.write(accountDir+"/ca.crt", api.caPEM)
		want := net.JoinHostPort(host, "443")
		r := newRecorder(&Config{PodName: "cart-0", PodNamespace: "shop", KubernetesHost: host, KubernetesPort: "443"}, files, network{
			dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != want {
					t.Errorf("dialed %s, not %s", address, want)
				}
				return n.dial(ctx, network, l.Addr().String())
			},
		})
		f(t, api, r, files, n)
		time.Sleep(lastWords)
	})
}

func TestAStallIsAnEventThatDescribingThePodShows(t *testing.T) {
	for _, host := range []string{"10.96.0.1", "fd00:10:96::1", "kubernetes.default.svc"} {
		t.Run(host, func(t *testing.T) {
			inCluster(t, host, func(t *testing.T, api *apiServer, r *recorder, _ *memFiles, _ *memnet) {
				if err := r.record(t.Context(), stallInTests); err != nil {
					t.Fatal(err)
				}
				notes := api.describePod("cart-0", testPodUID)
				if len(notes) != 1 {
					t.Fatalf("describing the pod shows %d Events; all: %v", len(notes), api.events)
				}
				for _, part := range []string{"'cart'", "'router'", "'in'", "partition 3", "offset 57", "5m0s", "cannot decode the cart"} {
					if !strings.Contains(notes[0], part) {
						t.Errorf("the note lacks %q: %s", part, notes[0])
					}
				}
			})
		})
	}
}

func TestWhateverIsInAStallItsEventIsTaken(t *testing.T) {
	long := strings.Repeat("ö", 600)
	for name, w := range map[string]stallWarning{
		"a long cause of two-byte letters": {cause: long},
		"the cut one byte further":         {cause: "x" + long},
		"a cause that is not UTF-8":        {cause: "a\xff\xfe" + long},
		"long names":                       {pipeline: long, streamlet: long, inlet: long, topic: long},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, _ *memFiles, _ *memnet) {
				w.since = time.Now()
				r.pod = strings.Repeat("p", 180) + "." + strings.Repeat("q", 72)
				if err := r.record(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				for _, note := range api.describePod(r.pod, testPodUID) {
					if !utf8.ValidString(note) || len(note) < 1000 {
						t.Errorf("the note is cut to %d bytes, valid UTF-8: %t", len(note), utf8.ValidString(note))
					}
				}
			})
		})
	}
}

func TestAPostThatLandedUnheardMakesNoSecondEvent(t *testing.T) {
	inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, _ *memFiles, _ *memnet) {
		api.next(loseTheAnswer)
		if err := r.record(t.Context(), stallInTests); err != nil {
			t.Fatal(err)
		}
		if n := len(api.events); n != 1 || api.answered() != "201 409" {
			t.Errorf("%d Events, answers %s", n, api.answered())
		}
		another := stallInTests
		another.since = another.since.Add(time.Hour)
		if err := r.record(t.Context(), another); err != nil || len(api.events) != 2 {
			t.Errorf("a later stall of the partition: %v, %d Events", err, len(api.events))
		}
	})
}

func TestAnAPIServerInTroubleIsAskedOnceMoreAndNoMore(t *testing.T) {
	inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, _ *memFiles, n *memnet) {
		api.next(answerWith(503))
		if err := r.record(t.Context(), stallInTests); err != nil || len(api.events) != 1 {
			t.Errorf("after one 503: %v, %d Events", err, len(api.events))
		}
		api.next(answerWith(500), answerWith(429))
		if err := r.record(t.Context(), stallInTests); err == nil || !strings.Contains(err.Error(), "429 Too Many Requests") {
			t.Errorf("after two: %v", err)
		}
		if api.answered() != "503 201 500 429" {
			t.Errorf("answers %s", api.answered())
		}
		began := time.Now()
		for key := range n.listeners {
			n.freeze(key)
		}
		err := r.record(t.Context(), stallInTests)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "did not answer within 5s") || took != 2*eventTimeout+eventRetryWait {
			t.Errorf("an API server that hangs: %v after %s", err, took)
		}
		n.thaw()
	})
}

func TestARefusalOfAnEventIsToldByItsCauseAndNotRepeated(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(api *apiServer, r *recorder, account *memFiles)
		cause  string
		asked  string // the answers
	}{
		"a token that is over":      {func(api *apiServer, _ *recorder, _ *memFiles) { clear(api.tokens) }, "401 Unauthorized: the token is not accepted", "401"},
		"no role":                   {func(api *apiServer, _ *recorder, _ *memFiles) { api.role = false }, "403 Forbidden: the pod's service account may not create events.events.k8s.io", "403"},
		"another API":               {func(_ *apiServer, r *recorder, _ *memFiles) { r.url += "s" }, "404 Not Found", "404"},
		"a body it cannot read":     {func(api *apiServer, _ *recorder, _ *memFiles) { api.next(answerWith(400)) }, "400 Bad Request", "400"},
		"another content type":      {func(api *apiServer, _ *recorder, _ *memFiles) { api.next(answerWith(415)) }, "415 Unsupported Media Type", "415"},
		"a pod's name that is none": {func(_ *apiServer, r *recorder, _ *memFiles) { r.pod = "Cart_0" }, "422 Unprocessable Entity", "422"},
		"a redirect":                {func(api *apiServer, _ *recorder, _ *memFiles) { api.next(redirect) }, "307 Temporary Redirect", "307"},
		"no token":                  {func(_ *apiServer, _ *recorder, account *memFiles) { _ = account.Remove(accountDir + "/token") }, "the service account's token cannot be read", ""},
		"no certificates":           {func(_ *apiServer, _ *recorder, account *memFiles) { account.write(accountDir+"/ca.crt", nil) }, "the cluster's certificates cannot be read", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, account *memFiles, _ *memnet) {
				tt.change(api, r, account)
				err := r.record(t.Context(), stallInTests)
				if err == nil || !strings.Contains(err.Error(), tt.cause) || api.answered() != tt.asked {
					t.Errorf("%v; answers %q", err, api.answered())
				}
				if err != nil && strings.Contains(err.Error(), projectedToken(1)) {
					t.Error("the token is in the error")
				}
			})
		})
	}
}

func TestAnotherClustersCertificateIsNotTrusted(t *testing.T) {
	inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, account *memFiles, n *memnet) {
		l, err := n.listen("tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		account.write(accountDir+"/ca.crt", newAPIServer(t, l, "10.96.0.1").caPEM)
		var untrusted *tls.CertificateVerificationError
		if err := r.record(t.Context(), stallInTests); !errors.As(err, &untrusted) || api.answered() != "" {
			t.Errorf("%v; answers %q", err, api.answered())
		}
	})
}

func TestTheTokenIsReadAtEachPost(t *testing.T) {
	inCluster(t, "10.96.0.1", func(t *testing.T, api *apiServer, r *recorder, account *memFiles, _ *memnet) {
		for serial := 1; serial <= 3; serial++ {
			account.write(accountDir+"/token", []byte(projectedToken(serial)))
			api.mu.Lock()
			api.tokens = map[string]bool{projectedToken(serial): true}
			api.mu.Unlock()
			w := stallInTests
			w.partition = int32(serial)
			if err := r.record(t.Context(), w); err != nil {
				t.Errorf("token %d: %v", serial, err)
			}
		}
	})
}

// stallInPod stalls partition 1 of a sidecar in a pod beside an API server.
func stallInPod(t *testing.T, f func(t *testing.T, b *bed, api *apiServer, s *instance)) {
	inBubble(t, 3, func(t *testing.T, b *bed) {
		l, err := b.net.listen("tcp", "")
		if err != nil {
			t.Fatal(err)
		}
		api := newAPIServer(t, l, "127.0.0.1")
		b.produce(600)
		b.process.Inject(testkit.Fault{Do: testkit.FailBatch, When: testkit.AtOffset("in", 1, 57), Text: "cannot decode the cart"})
		s := b.start("FLOW_POD_NAME=cart-0", "FLOW_POD_NAMESPACE=shop", "KUBERNETES_SERVICE_HOST="+api.host, "KUBERNETES_SERVICE_PORT="+api.port)
		s.files.write(accountDir+"/token", []byte(projectedToken(1)))
		s.files.write(accountDir+"/ca.crt", api.caPEM)
		f(t, b, api, s)
		time.Sleep(lastWords)
	})
}

func TestInAPodAStallIsOneEventAndNoLogLine(t *testing.T) {
	stallInPod(t, func(t *testing.T, _ *bed, api *apiServer, s *instance) {
		time.Sleep(20 * time.Minute)
		notes := api.describePod("cart-0", testPodUID)
		if len(notes) != 1 || !strings.Contains(notes[0], "the record at offset 57 fails") || !strings.Contains(notes[0], "cannot decode the cart") {
			t.Errorf("Events: %q", notes)
		}
		if strings.Contains(s.log.String(), "PartitionStalled") {
			t.Error("the warning is in the log too")
		}
	})
}

func TestAStallWhoseEventIsRefusedIsALogLineWithTheRefusalsCause(t *testing.T) {
	stallInPod(t, func(t *testing.T, _ *bed, api *apiServer, s *instance) {
		api.mu.Lock()
		api.role = false
		api.mu.Unlock()
		time.Sleep(20 * time.Minute)
		log := s.log.String()
		if strings.Count(log, "PartitionStalled") != 1 || !strings.Contains(log, "no_event=\"403 Forbidden") || !strings.Contains(log, "offset=57") {
			t.Errorf("the log:\n%s", log)
		}
	})
}

func TestAStopDoesNotWaitForAnAPIServerThatHangs(t *testing.T) {
	stallInPod(t, func(t *testing.T, b *bed, api *apiServer, s *instance) {
		b.net.freeze(net.JoinHostPort(api.host, api.port))
		time.Sleep(5*time.Minute + 2*time.Second)
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > 2*time.Second || !strings.Contains(s.log.String(), "PartitionStalled") {
			t.Errorf("stopped after %s; the log:\n%s", took, s.log)
		}
		b.net.thaw()
	})
}
