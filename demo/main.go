// Command demo shows the sidecar at work on this machine, and checks what it shows. It builds the sidecar and runs it as a process of its
// own, between a Kafka that it brings along and the process of a streamlet, the cart router of the documentation (cart.go, which is there
// to be copied). Carts are produced all the while; in the middle the process is killed, for the sidecar to recover. In the end everything
// that came out is compared with what went in, and the demo exits with 1 if anything is not as promised.
//
//	go run ./demo
//	go run ./demo -keep                             until Ctrl-C, checked all the while
//	go run ./demo -brokers localhost:9092           on a Kafka of yours
//	go run ./demo -process localhost:9010           with a process of yours
//
// Nothing has to be cloned: go run github.com/thinkmorestupidless/ankka-flow-sidecar/demo@latest does the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitFine        = 0
	exitNotAsItMust = 1 // a check found something
	exitNoDemo      = 2 // it could not be run
	exitInterrupted = 130
)

// options are the flags.
type options struct {
	brokers     []string
	process     string
	keep        bool
	duration    time.Duration
	metricsPort int
	sidecar     string
}

// cartRole is the argument with which the demo starts itself as the streamlet's process.
const cartRole = "cart-process"

func main() {
	if len(os.Args) == 2 && os.Args[1] == cartRole {
		os.Exit(cartProcess())
	}
	opts, err := parseOptions(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(exitFine)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(exitNoDemo)
	}
	insisted, insist := context.WithCancel(context.Background())
	asked, ask := context.WithCancel(insisted)
	signals := make(chan os.Signal, 2)
	// A closed terminal and a reader of our output that is gone are reasons to end in order too.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		if <-signals != syscall.SIGPIPE {
			ask()
			<-signals
		}
		insist()
	}()
	os.Exit(run(asked, insisted, opts, newScreen(os.Stdout), os.Stderr))
}

// parseOptions reads the flags. It writes the help on help when that is asked for.
func parseOptions(args []string, help io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	servers := flags.String("brokers", "", "`host:port,…` of a Kafka of yours, in place of the one that the demo brings\n"+
		"along. Plain text, no login. The demo creates its topics there, under the names\n"+
		"of the documentation, or, where those or their consumer group exist, with a\n"+
		"suffix, and deletes them at the end. It touches nothing else")
	flags.StringVar(&opts.process, "process", "", "`host:port` of a streamlet process of yours with one inlet, in place of the cart\n"+
		"router. It gets carts as JSON, {\"event\", \"customer\", \"total\"}, and is not\n"+
		"killed. Of what it emits, records that keep the event are checked")
	flags.BoolVar(&opts.keep, "keep", false, "run on until Ctrl-C, with a check after every -duration")
	flags.DurationVar(&opts.duration, "duration", 20*time.Second, "for what `time` carts are produced before the check")
	flags.IntVar(&opts.metricsPort, "metrics-port", 0, "`port` of the sidecar's metrics (default: a free one)")
	flags.StringVar(&opts.sidecar, "sidecar", "", "`file` of a sidecar that is built already, in place of building it")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(help, "The sidecar at work, and a check of what it did.\n\nUsage: go run ./demo [flags]\n\n")
		flags.SetOutput(help)
		flags.PrintDefaults()
		return opts, err
	case err != nil && strings.Contains(err.Error(), "-duration"):
		return opts, fmt.Errorf("%w: a duration has a unit, as in 20s or 2m", err)
	case err != nil:
		return opts, fmt.Errorf("%w; see -help", err)
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("%q is no flag, and the demo takes nothing else; see -help", flags.Arg(0))
	}
	for server := range strings.SplitSeq(*servers, ",") {
		if server = strings.TrimSpace(server); server == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(server); err != nil {
			return opts, fmt.Errorf("-brokers: %q is not host:port", server)
		}
		opts.brokers = append(opts.brokers, server)
	}
	if _, _, err := net.SplitHostPort(opts.process); opts.process != "" && err != nil {
		return opts, fmt.Errorf("-process: %q is not host:port", opts.process)
	}
	if opts.duration < time.Second {
		return opts, errors.New("-duration: less than a second shows nothing")
	}
	return opts, nil
}

// cartProcess is the demo as the streamlet's process. As in a container of one, the platform tells it the port and nothing else.
func cartProcess() int {
	// When the demo is gone, however it went, so is its end of the pipe.
	if stdin, err := os.Stdin.Stat(); err == nil && stdin.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitInterrupted)
		}()
	}
	port := os.Getenv("FLOW_PROCESS_PORT")
	if port == "" {
		port = "9010"
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		err = serveCart(l)
	}
	fmt.Fprintln(os.Stderr, "cart process:", err)
	return exitNoDemo
}
