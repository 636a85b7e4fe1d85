package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// checkAnswerWithin bounds check's one discovery call; start-up's has FLOW_DISCOVERY_TIMEOUT and is made again for ever.
const checkAnswerWithin = 15 * time.Second

// checkProcess asks the process once what it is, and tells each difference to what is deployed. The process is not told
// of it, as start-up would tell it.
func checkProcess(ctx context.Context, cfg *Config, w world, f *findings) {
	asked := *cfg
	asked.DiscoveryTimeout = min(cfg.DiscoveryTimeout, checkAnswerWithin)
	dial := func(_ context.Context, address string) (*grpc.ClientConn, error) {
		return dialProcess(address, w.network.dial)
	}
	conn, spec, err := askProcess(ctx, &asked, dial)
	if err != nil {
		cause := fmt.Sprintf("%s: %s", cfg.ProcessAddress, explainNoAnswer(err, &asked))
		ports := slices.Clone(usualPorts)
		if isLoopback(cfg.ProcessAddress) {
			ports = append(ports, listeningPorts(w.files.ReadFile)...)
		}
		if found := findProcess(ctx, cfg, ports, dial); found != "" {
			f.problem("%s", further(cause, found))
		} else {
			f.problem("%s", further(cause, "start the process, or set FLOW_PROCESS_ADDRESS to where it listens"))
		}
		return
	}
	closeConn(conn)
	problems := checkAnswer(cfg.Spec, spec)
	for _, text := range problems {
		f.problem("%s; deploy the process and %s of one build", text, descriptorFile)
	}
	if len(problems) == 0 {
		f.ok("%s answers as streamlet %s (%s), protocol %s: it is what is deployed", cfg.ProcessAddress, quote(spec.GetStreamlet().GetName()),
			shorten(strings.TrimSpace(spec.GetSdk().GetName()+" "+spec.GetSdk().GetVersion())), shorten(spec.GetProtocolVersion()))
	}
}

// usualPorts are where processes listen that do not listen where they were told: the protocol's port, its neighbours, gRPC's.
var usualPorts = []int{9010, 9011, 9012, 9009, 9000, 9090, 8080, 50051}

// findProcess looks for a process that answers on another port of the same host, and says where, in words that end a
// sentence, or returns nothing.
func findProcess(ctx context.Context, cfg *Config, ports []int, dial func(context.Context, string) (*grpc.ClientConn, error)) string {
	host, port, err := net.SplitHostPort(cfg.ProcessAddress)
	if err != nil {
		return ""
	}
	ports = slices.Compact(slices.Sorted(slices.Values(ports)))
	names := make([]string, len(ports)) // of the streamlet that answered there
	asked := *cfg
	asked.DiscoveryTimeout = min(cfg.DiscoveryTimeout, time.Second)
	var asking sync.WaitGroup
	for i, other := range ports {
		if strconv.Itoa(other) == port || other == cfg.MetricsPort {
			continue
		}
		asking.Go(func() {
			elsewhere := asked
			elsewhere.ProcessAddress = net.JoinHostPort(host, strconv.Itoa(other))
			if conn, spec, err := askProcess(ctx, &elsewhere, dial); err == nil {
				closeConn(conn)
				names[i] = spec.GetStreamlet().GetName()
			}
		})
	}
	asking.Wait()
	// That of the deployed streamlet first.
	for _, wanted := range []bool{true, false} {
		for i, name := range names {
			if name != "" && (!wanted || name == cfg.Spec.GetStreamlet().GetName()) {
				address := net.JoinHostPort(host, strconv.Itoa(ports[i]))
				return fmt.Sprintf("the process of streamlet %s answers on %s: set FLOW_PROCESS_ADDRESS=%s, or let it listen on port %s", quote(name), address, address, port)
			}
		}
	}
	return ""
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip.IsLoopback())
}

// listeningPorts are those that something on this host listens on, where the system tells (Linux's /proc/net/tcp).
func listeningPorts(readFile func(string) ([]byte, error)) []int {
	const most, listening = 100, "0A"
	var ports []int
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := readFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line) // sl local_address rem_address st …
			if len(fields) < 4 || fields[3] != listening {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil && len(ports) < most {
				ports = append(ports, int(port))
			}
		}
	}
	return ports
}
