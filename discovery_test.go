package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

const processAddress = "127.0.0.1:9010"

// discovery is one run of discover in a bubble, and what could be seen of it.
type discovery struct {
	conn      *grpc.ClientConn
	restarted bool
	err       error
	log       bytes.Buffer
	took      time.Duration
	results   []string // of the attempts, as they are counted
}

func runDiscovery(ctx context.Context, network *pipeNet, deployed *flowv1.Spec) *discovery {
	d := &discovery{}
	network.start = time.Now()
	cfg := &Config{ProcessAddress: processAddress, DiscoveryTimeout: time.Minute, Spec: deployed}
	d.conn, d.restarted, d.err = discover(ctx, slog.New(slog.NewJSONHandler(&d.log, nil)), cfg, nil, func(_ context.Context, address string) (*grpc.ClientConn, error) {
		return dialProcess(address, network.dial)
	}, func(result string) { d.results = append(d.results, result) })
	d.took = time.Since(network.start)
	return d
}

// logged returns an attribute of every line that has it.
func (d *discovery) logged(t *testing.T, key string) []string {
	t.Helper()
	var values []string
	for line := range strings.Lines(d.log.String()) {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if value, ok := entry[key].(string); ok {
			values = append(values, value)
		}
	}
	return values
}

func TestDiscoveryIsTriedAgainAfterHalfASecondDoublingToTenForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 61500*time.Millisecond)
		defer cancel()
		network := &pipeNet{dials: []func(context.Context) (net.Conn, error){refuse}}
		d := runDiscovery(ctx, network, routerSpec())
		if !errors.Is(d.err, context.DeadlineExceeded) || d.conn != nil {
			t.Errorf("ended with %v, %v", d.conn, d.err)
		}
		var want []time.Duration
		for _, seconds := range []float64{0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5, 55.5} {
			want = append(want, time.Duration(seconds*float64(time.Second)))
		}
		if got := network.dialed(); !slices.Equal(got, want) {
			t.Errorf("dialed at %v", got)
		}
		if causes := d.logged(t, "cause"); len(causes) != len(want) || causes[9] != "connection refused: is the process listening on 127.0.0.1:9010?" {
			t.Errorf("logged %q", causes)
		}
	})
}

func TestACallThatHasNoAnswerEndsAtTheDiscoveryTimeout(t *testing.T) {
	for name, silent := range map[string]func(*testing.T) func(context.Context) (net.Conn, error){
		"unreachable host": func(*testing.T) func(context.Context) (net.Conn, error) { return unreachable },
		"frozen process":   func(*testing.T) func(context.Context) (net.Conn, error) { return frozen },
		"hanging answer": func(t *testing.T) func(context.Context) (net.Conn, error) {
			return process(t, &fakeProcess{discover: func(ctx context.Context, _ *flowv1.SidecarInfo) (*flowv1.Spec, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &pipeNet{dials: []func(context.Context) (net.Conn, error){silent(t), silent(t), process(t, answering(routerSpec()))}}
				d := runDiscovery(t.Context(), network, routerSpec())
				if d.err != nil {
					t.Fatal(d.err)
				}
				defer d.conn.Close()
				if want := []time.Duration{0, 60500 * time.Millisecond, 121500 * time.Millisecond}; !slices.Equal(network.dialed(), want) {
					t.Errorf("dialed at %v, want %v", network.dialed(), want)
				}
				if causes := d.logged(t, "cause"); !slices.Equal(causes, []string{"no answer within 60s", "no answer within 60s"}) {
					t.Errorf("logged %q", causes)
				}
				if d.restarted {
					t.Error("a process that was only silent counts as restarted")
				}
			})
		})
	}
}

func TestTheConnectionThatAnsweredIsReturnedAndTheOthersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sidecar *flowv1.SidecarInfo
		var agent []string
		p := answering(routerSpec())
		p.discover = func(ctx context.Context, info *flowv1.SidecarInfo) (*flowv1.Spec, error) {
			if sidecar == nil {
				sidecar = info
			}
			headers, _ := metadata.FromIncomingContext(ctx)
			agent = headers.Get("user-agent")
			return routerSpec(), nil
		}
		network := &pipeNet{dials: []func(context.Context) (net.Conn, error){frozen, closing, process(t, p)}}
		d := runDiscovery(t.Context(), network, routerSpec())
		if d.err != nil {
			t.Fatal(d.err)
		}
		synctest.Wait()
		if network.open != 1 {
			t.Errorf("%d connections are open", network.open)
		}
		if _, err := flowv1.NewDiscoveryClient(d.conn).Discover(t.Context(), &flowv1.SidecarInfo{}); err != nil {
			t.Errorf("the connection is of no use: %v", err)
		}
		if got := len(network.dialed()); got != 3 {
			t.Errorf("dialed %d times", got)
		}
		if network.networks[0] != "tcp "+processAddress {
			t.Errorf("dialed %s", network.networks[0])
		}
		if sidecar.GetProtocolVersion() == "" || len(agent) != 1 || !strings.HasPrefix(agent[0], "ankka-flow-sidecar/") {
			t.Errorf("the process met %v with user agent %q", sidecar, agent)
		}
		d.conn.Close()
		synctest.Wait()
		if network.open != 0 {
			t.Errorf("%d connections are open", network.open)
		}
	})
}

func TestAnIdleConnectionToTheProcessIsNeitherPingedNorClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &pipeNet{dials: []func(context.Context) (net.Conn, error){process(t, answering(routerSpec())), refuse}}
		d := runDiscovery(t.Context(), network, routerSpec())
		if d.err != nil {
			t.Fatal(d.err)
		}
		defer d.conn.Close()
		time.Sleep(24 * time.Hour) // gRPC's servers answer a ping every five minutes without a call with GOAWAY
		if _, err := flowv1.NewDiscoveryClient(d.conn).Discover(t.Context(), &flowv1.SidecarInfo{}); err != nil {
			t.Error(err)
		}
		if got := len(network.dialed()); got != 1 {
			t.Errorf("dialed %d times", got)
		}
	})
}

// written keeps what is written to a connection.
type written struct {
	net.Conn
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Write(b[:n])
	return n, err
}

// TestTheProcessIsNotPingedForItsAnswers is about what each emit costs the process, which has to answer a ping.
func TestTheProcessIsNotPingedForItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connection written
		dial := func(ctx context.Context) (_ net.Conn, err error) {
			connection.Conn, err = process(t, answering(routerSpec()))(ctx)
			return &connection, err
		}
		d := runDiscovery(t.Context(), &pipeNet{dials: []func(context.Context) (net.Conn, error){dial}}, routerSpec())
		if d.err != nil {
			t.Fatal(d.err)
		}
		const calls = 10
		for range calls {
			if _, err := flowv1.NewDiscoveryClient(d.conn).Discover(t.Context(), &flowv1.SidecarInfo{}); err != nil {
				t.Fatal(err)
			}
		}
		d.conn.Close()
		synctest.Wait()
		connection.bytes.Next(len(http2.ClientPreface))
		framer := http2.NewFramer(nil, &connection.bytes)
		sent := map[http2.FrameType]int{}
		for {
			frame, err := framer.ReadFrame()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if header := frame.Header(); header.Type != http2.FramePing || !header.Flags.Has(http2.FlagPingAck) {
				sent[header.Type]++
			}
		}
		if sent[http2.FrameData] < calls || sent[http2.FramePing] > 0 {
			t.Errorf("sent were %v", sent)
		}
	})
}

func TestAnAttemptSaysWhyItHadNoAnswer(t *testing.T) {
	failing := func(code codes.Code, text string) func(*testing.T) func(context.Context) (net.Conn, error) {
		return func(t *testing.T) func(context.Context) (net.Conn, error) {
			return process(t, &fakeProcess{discover: func(context.Context, *flowv1.SidecarInfo) (*flowv1.Spec, error) { return nil, status.Error(code, text) }})
		}
	}
	plain := func(dial func(context.Context) (net.Conn, error)) func(*testing.T) func(context.Context) (net.Conn, error) {
		return func(*testing.T) func(context.Context) (net.Conn, error) { return dial }
	}
	failure := func(text string) func(*testing.T) func(context.Context) (net.Conn, error) {
		return plain(func(context.Context) (net.Conn, error) { return nil, errors.New(text) })
	}
	for _, test := range []struct {
		name      string
		dial      func(*testing.T) func(context.Context) (net.Conn, error)
		cause     string
		restarted bool
	}{
		{"refused", plain(refuse), "connection refused: is the process listening on 127.0.0.1:9010?", true},
		{"reset", failure("read tcp: connection reset by peer"), "the connection was closed before an answer: is the process starting or stopping?", true},
		{"closed", plain(closing), "the connection was closed before an answer: is the process starting or stopping?", true},
		{"another gRPC server", func(t *testing.T) func(context.Context) (net.Conn, error) { return listening(t, func(*grpc.Server) {}) },
			"UNIMPLEMENTED: something else listens there (not a streamlet process)", false},
		{"an HTTP/1 server", plain(saying("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request")),
			"something listens there that does not speak gRPC in plain text (not a streamlet process)", false},
		{"no such host", failure("dial tcp: lookup host.docker.internal: no such host"), "the host's name does not resolve: is FLOW_PROCESS_ADDRESS right?", false},
		{"no route", failure("dial tcp 10.1.2.3:9010: connect: no route to host"), `connection error: desc = "transport: Error while dialing: dial tcp 10.1.2.3:9010: connect: no route to host"`, false},
		{"an exception in the process", failing(codes.Unknown, "Exception calling application: name 'x' is not defined"), "Exception calling application: name 'x' is not defined", false},
		{"a refusal by the process", failing(codes.PermissionDenied, "line one\nline two"), `PERMISSIONDENIED: line one\nline two`, false},
		{"a process whose own connection is refused", failing(codes.Internal, "database: connection refused"), "INTERNAL: database: connection refused", false},
		{"an answer too large", func(t *testing.T) func(context.Context) (net.Conn, error) {
			return process(t, answering(&flowv1.Spec{ProtocolVersion: strings.Repeat("1", maxReceiveBytes)}))
		}, "the answer is larger than 33554432 bytes: something else listens there (not a streamlet process)", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &pipeNet{dials: []func(context.Context) (net.Conn, error){test.dial(t), process(t, answering(routerSpec()))}}
				d := runDiscovery(t.Context(), network, routerSpec())
				if d.err != nil {
					t.Fatal(d.err)
				}
				defer d.conn.Close()
				if causes := d.logged(t, "cause"); !slices.Equal(causes, []string{test.cause}) {
					t.Errorf("logged %q", causes)
				}
				if d.restarted != test.restarted {
					t.Errorf("restarted = %v", d.restarted)
				}
				if d.took != 500*time.Millisecond {
					t.Errorf("took %v", d.took)
				}
			})
		})
	}
}

func TestProcessOfAnotherVersionIsRefusedWithBothVersionsNamed(t *testing.T) {
	for version, want := range map[string]string{
		"1.0":  "",
		"1.1":  "the process speaks protocol version 1.1, which is later than this sidecar's 1.0",
		"2.0":  "the process speaks protocol version 2.0 and this sidecar speaks 1.0",
		"0.9":  "the process speaks protocol version 0.9 and this sidecar speaks 1.0",
		"10.0": "the process speaks protocol version 10.0 and this sidecar speaks 1.0",
		"1":    "the process's descriptor is not valid: protocol_version '1' is not MAJOR.MINOR",
	} {
		answered := routerSpec()
		answered.ProtocolVersion = version
		var prefixes []string
		if want != "" {
			prefixes = []string{want}
		}
		wantPrefixes(t, checkAnswer(routerSpec(), answered), prefixes)
	}
}

func TestARefusedProcessIsToldEveryProblemInOneReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := routerSpec()
		answered.ProtocolVersion = "2.0"
		answered.Streamlet.Name = "Other"
		answered.Streamlet.Outlets = answered.Streamlet.Outlets[1:]
		p := answering(answered)
		var reports [][]string
		p.reportError = func(_ context.Context, told *flowv1.Problems) (*flowv1.Empty, error) {
			var report []string
			for _, problem := range told.GetProblems() {
				report = append(report, problem.GetMessage())
			}
			reports = append(reports, report)
			return &flowv1.Empty{}, nil
		}
		network := &pipeNet{dials: []func(context.Context) (net.Conn, error){process(t, p)}}
		d := runDiscovery(t.Context(), network, routerSpec())
		var refused *refusal
		if !errors.As(d.err, &refused) || d.conn != nil {
			t.Fatalf("ended with %v, %v", d.conn, d.err)
		}
		wantPrefixes(t, refused.problems, []string{
			"the process speaks protocol version 2.0 and this sidecar speaks 1.0",
			"the process's descriptor is not valid: streamlet name 'Other'",
			"the streamlet's name differs: deployed is 'cart-router', the process has 'Other'",
			"outlet 'valid' is deployed, but the process has no such port"})
		if len(reports) != 1 || !slices.Equal(reports[0], refused.problems) {
			t.Errorf("reported %q", reports)
		}
		synctest.Wait()
		if network.open != 0 {
			t.Errorf("%d connections are open", network.open)
		}
	})
}

func TestARefusalStandsWhenTheProcessCannotBeTold(t *testing.T) {
	for name, tell := range map[string]struct {
		reportError func(context.Context, *flowv1.Problems) (*flowv1.Empty, error)
		took        time.Duration
	}{
		"it fails": {func(context.Context, *flowv1.Problems) (*flowv1.Empty, error) {
			return nil, status.Error(codes.Unimplemented, "unknown method")
		}, 0},
		"it hangs": {func(ctx context.Context, _ *flowv1.Problems) (*flowv1.Empty, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := answering(&flowv1.Spec{})
				p.reportError = tell.reportError
				d := runDiscovery(t.Context(), &pipeNet{dials: []func(context.Context) (net.Conn, error){process(t, p)}}, routerSpec())
				var refused *refusal
				if !errors.As(d.err, &refused) {
					t.Errorf("ended with %v", d.err)
				}
				if d.took != tell.took {
					t.Errorf("took %v, want %v", d.took, tell.took)
				}
			})
		})
	}
}

func TestProblemsOfARefusalAreBounded(t *testing.T) {
	answered := routerSpec()
	for range 1000 {
		answered.Streamlet.Outlets = append(answered.Streamlet.Outlets, &flowv1.Port{Name: "B"})
	}
	problems := checkAnswer(routerSpec(), answered)
	if len(problems) != maxProblems+1 || problems[maxProblems] != "and 1802 more" {
		t.Errorf("%d problems, the last %q", len(problems), problems[len(problems)-1])
	}
}

func TestDiscoveryEndsAtOnceWithItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		dial func(context.Context) (net.Conn, error)
		stop time.Duration
	}{
		"in a wait": {refuse, 20 * time.Second},
		"in a call": {frozen, 20 * time.Second},
		"at once":   {refuse, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				stop := time.AfterFunc(test.stop, cancel)
				defer stop.Stop()
				if test.stop == 0 {
					cancel()
				}
				network := &pipeNet{dials: []func(context.Context) (net.Conn, error){test.dial}}
				d := runDiscovery(ctx, network, routerSpec())
				if !errors.Is(d.err, context.Canceled) || d.conn != nil {
					t.Errorf("ended with %v, %v", d.conn, d.err)
				}
				if d.took != test.stop {
					t.Errorf("took %v, want %v", d.took, test.stop)
				}
				synctest.Wait()
				if network.open != 0 {
					t.Errorf("%d connections are open", network.open)
				}
			})
		})
	}
}

func TestProcessIsDialedAtItsAddressAsItIs(t *testing.T) {
	for _, address := range []string{"127.0.0.1:9010", "[::1]:9010", "host.docker.internal:9010", "a_b:1"} {
		synctest.Test(t, func(t *testing.T) {
			network := &pipeNet{start: time.Now(), dials: []func(context.Context) (net.Conn, error){process(t, answering(routerSpec()))}}
			conn, err := dialProcess(address, network.dial)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := flowv1.NewDiscoveryClient(conn).Discover(t.Context(), &flowv1.SidecarInfo{}); err != nil {
				t.Errorf("%s: %v", address, err)
			}
			if got := network.networks; !slices.Equal(got, []string{"tcp " + address}) {
				t.Errorf("dialed %s", got)
			}
		})
	}
}
