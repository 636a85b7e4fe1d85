package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
)

const (
	// The waits between discovery attempts (seeds: Start-up and exit codes, 2).
	firstDiscoveryWait   = 500 * time.Millisecond
	longestDiscoveryWait = 10 * time.Second
	reportErrorTimeout   = 5 * time.Second
	lookElsewhereAt      = 3 // the attempt; a process that starts slowly is no mistake

	// maxReceiveBytes is more than the protocol's 4 MiB, so that a message over the rule can still be read, and its batch
	// named.
	maxReceiveBytes = 32 << 20

	// maxProblems bounds what one refusal may cost in a log and in a ReportError, which a gRPC server takes up to 4 MiB.
	maxProblems = 200
)

// refusal is the error of a process that is not what was deployed. Each problem is for the log; the process has been told
// them. The sidecar exits with 1.
type refusal struct{ problems []string }

func (r *refusal) Error() string {
	return "the process is not what was deployed: " + strings.Join(r.problems, "; ")
}

// discover asks the process what it is, again and again, until it answers; nothing but an answer or ctx ends it. It returns
// the connection that answered, which the caller owns and closes, or a *refusal, or ctx's error. restarted says that a
// connection was refused or reset on the way, as it is while a process is being restarted. Each attempt has
// cfg.DiscoveryTimeout, dials anew, logs one line and is told to attempted. A process that is not there at the third attempt
// is looked for on the ports elsewhere, once. (protocol: "Discovery")
func discover(ctx context.Context, log *slog.Logger, cfg *Config, elsewhere []int, dial func(ctx context.Context, address string) (*grpc.ClientConn, error), attempted func(result string)) (conn *grpc.ClientConn, restarted bool, err error) {
	wait := firstDiscoveryWait
	for attempt := 1; ; attempt++ {
		conn, spec, err := askProcess(ctx, cfg, dial)
		if ctx.Err() != nil {
			closeConn(conn)
			return nil, restarted, ctx.Err()
		}
		log := log.With("address", cfg.ProcessAddress, "attempt", attempt)
		if err == nil {
			if problems := checkAnswer(cfg.Spec, spec); len(problems) > 0 {
				attempted(discoveryRefused)
				log.Info("discovery: the process answered and is refused", "problems", len(problems))
				reportProblems(ctx, log, conn, problems)
				closeConn(conn)
				return nil, restarted, &refusal{problems}
			}
			attempted(discoveryAnswered)
			log.Info("discovery: the process answered", "streamlet", spec.GetStreamlet().GetName(), "sdk", strings.TrimSpace(spec.GetSdk().GetName()+" "+spec.GetSdk().GetVersion()),
				"protocol", spec.GetProtocolVersion())
			return conn, restarted, nil
		}
		restarted = restarted || connectionBroke(err)
		attempted(discoveryNoAnswer)
		cause := explainNoAnswer(err, cfg)
		if attempt == lookElsewhereAt && len(elsewhere) > 0 {
			if found := findProcess(ctx, cfg, elsewhere, dial); found != "" {
				cause = further(cause, found)
			}
		}
		log.Info("discovery: no answer yet", "cause", cause, "next_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, restarted, ctx.Err()
		}
		wait = min(2*wait, longestDiscoveryWait)
	}
}

// askProcess makes one Discover call over a new connection, which it closes unless there is an answer.
func askProcess(ctx context.Context, cfg *Config, dial func(ctx context.Context, address string) (*grpc.ClientConn, error)) (*grpc.ClientConn, *flowv1.Spec, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.DiscoveryTimeout)
	defer cancel()
	conn, err := dial(ctx, cfg.ProcessAddress)
	if err != nil {
		return nil, nil, err
	}
	spec, err := flowv1.NewDiscoveryClient(conn).Discover(ctx, &flowv1.SidecarInfo{ProtocolVersion: protocolVersion, SidecarVersion: sidecarVersion()})
	if err != nil {
		closeConn(conn)
		return nil, nil, err
	}
	return conn, spec, nil
}

func closeConn(conn *grpc.ClientConn) {
	if conn != nil {
		_ = conn.Close() // it fails only for a connection that is closed already
	}
}

// checkAnswer returns every reason to refuse the process that answered.
func checkAnswer(deployed, answered *flowv1.Spec) []string {
	var problems []string
	if problem := checkProtocolVersion(answered.GetProtocolVersion()); problem != "" {
		problems = append(problems, problem)
	}
	for _, problem := range validateSpec(answered) {
		problems = append(problems, "the process's descriptor is not valid: "+problem)
	}
	problems = append(problems, compareSpecs(deployed, answered)...)
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return problems
}

// checkProtocolVersion returns why a process of that version cannot be served, or nothing. Majors must be equal; an earlier
// minor is accepted, a later one is not (protocol: "Discovery", 2). A version that is none is validateSpec's to report.
func checkProtocolVersion(version string) string {
	major, minor, ok := parseVersion(version)
	ourMajor, ourMinor, _ := parseVersion(protocolVersion)
	switch {
	case !ok || major == ourMajor && minor <= ourMinor:
		return ""
	case major == ourMajor:
		return fmt.Sprintf("the process speaks protocol version %s, which is later than this sidecar's %s; use a sidecar that is as new as the process's SDK", version, protocolVersion)
	default:
		return fmt.Sprintf("the process speaks protocol version %s and this sidecar speaks %s; their major versions must be equal", version, protocolVersion)
	}
}

// reportProblems tells the process why it is refused, as well as that can be done in five seconds.
func reportProblems(ctx context.Context, log *slog.Logger, conn *grpc.ClientConn, problems []string) {
	ctx, cancel := context.WithTimeout(ctx, reportErrorTimeout)
	defer cancel()
	message := &flowv1.Problems{}
	for _, problem := range problems {
		message.Problems = append(message.Problems, &flowv1.Problem{Message: problem})
	}
	if _, err := flowv1.NewDiscoveryClient(conn).ReportError(ctx, message); err != nil {
		log.Info("discovery: the process could not be told why it is refused", "cause", shorten(status.Convert(err).Message()))
	}
}

// connectionBroke says that a connection was refused or closed by the other side. gRPC hands on no error but its text.
func connectionBroke(err error) bool {
	return status.Code(err) == codes.Unavailable && containsAny(err.Error(), "connection refused", "connection reset", "broken pipe", "closed pipe", "EOF")
}

// explainNoAnswer is why an attempt had no answer, in words for a person.
func explainNoAnswer(err error, cfg *Config) string {
	text := status.Convert(err).Message()
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %gs", cfg.DiscoveryTimeout.Seconds())
	case code == codes.Unimplemented:
		return "UNIMPLEMENTED: something else listens there (not a streamlet process)"
	case code == codes.ResourceExhausted && strings.Contains(text, "larger than max"):
		return fmt.Sprintf("the answer is larger than %d bytes: something else listens there (not a streamlet process)", maxReceiveBytes)
	case code != codes.Unavailable && code != codes.Unknown:
		return strings.ToUpper(code.String()) + ": " + shorten(text)
	case strings.Contains(text, "connection refused"):
		return "connection refused: is the process listening on " + cfg.ProcessAddress + "?"
	case containsAny(text, "http2: frame too large", "malformed HTTP", "first record does not look like", "unexpected HTTP status code"):
		return "something listens there that does not speak gRPC in plain text (not a streamlet process)"
	case containsAny(text, "no such host", "server misbehaving", "Temporary failure in name resolution"):
		return "the host's name does not resolve: is FLOW_PROCESS_ADDRESS right?"
	case connectionBroke(err):
		return "the connection was closed before an answer: is the process starting or stopping?"
	default:
		return shorten(text)
	}
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// dialProcess makes a connection to the process for one discovery and the conversation after it. It connects with the first
// call, and only through dialNet: plain text, no proxy, nothing looked up. It sends no keepalive pings, which a gRPC server
// of any default policy would answer with GOAWAY, and it is never closed for being idle. The caller closes it.
func dialProcess(address string, dialNet func(ctx context.Context, network, address string) (net.Conn, error)) (*grpc.ClientConn, error) {
	const window = 1 << 20 // bytes of answers that may be under way
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dialNet(ctx, "tcp", address) }),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		// Windows of a given size: gRPC finds out the best by a ping for nearly every message, which costs the process more than
		// the windows give.
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithUserAgent("ankka-flow-sidecar/"+sidecarVersion()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceiveBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// The waits that count are discovery's and the sidecar's own: a connection by itself waits no longer than they do.
			Backoff: backoff.Config{BaseDelay: firstDiscoveryWait, Multiplier: 1, MaxDelay: firstDiscoveryWait},
			// The deadline of the call bounds the connecting, not this.
			MinConnectTimeout: 365 * 24 * time.Hour,
		}),
	)
}
