package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkRoad sends b.N records of 100 bytes through a whole sidecar: 12 partitions of an in-process broker, a process
// double that echoes, over loopback. The broker and the process share the processor with the sidecar.
func BenchmarkRoad(b *testing.B) {
	const partitions = 12
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "in", "out"))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	spec := testkit.Spec("echo", testkit.Ports("in"), testkit.Ports("out"))
	process := testkit.NewProcess(listener, spec, echo)
	defer process.Close()

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	value := []byte(strings.Repeat("x", 100))
	for range b.N {
		client.Produce(context.Background(), &kgo.Record{Topic: "in", Value: value}, nil)
	}
	if err := client.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}

	files := newMemFiles()
	files.write("/etc/flow/config/descriptor.json", testkit.DescriptorJSON(spec))
	files.write("/etc/flow/config/streamlet.conf", testkit.Deployment{
		Pipeline: "pipe", Streamlet: "echo", Servers: strings.Join(cluster.ListenAddrs(), ","),
		Inlets: []testkit.Inlet{{Name: "in", Topic: "in"}}, Outlets: []testkit.OutletPort{{Name: "out", Topic: "out"}},
	}.Conf())
	vars := map[string]string{"FLOW_PROCESS_ADDRESS": process.Addr(), "FLOW_LOG_LEVEL": "error"}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan int, 1)
	kafka := &testkit.Kafka{Seeds: cluster.ListenAddrs()}
	b.ResetTimer()
	go func() {
		dialer := &net.Dialer{}
		done <- run(ctx, world{
			lookupEnv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }, stdout: io.Discard, files: files,
			network: network{dial: dialer.DialContext, listen: func(network, _ string) (net.Listener, error) { return net.Listen(network, "127.0.0.1:0") }},
		})
	}()
	testkit.Eventually(b, 5*time.Minute, "every record is committed", func() (bool, string) {
		committed, err := kafka.Committed(context.Background(), "pipe.echo.in")
		if err != nil {
			return false, err.Error()
		}
		var sum int64
		for _, offset := range committed {
			sum += offset
		}
		return sum >= int64(b.N), ""
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	stop()
	if code := <-done; code != exitStopped {
		b.Errorf("exit code %d", code)
	}
}
