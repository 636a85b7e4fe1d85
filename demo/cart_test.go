package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// aProcess serves the cart process and gives a connection to it.
func aProcess(t *testing.T) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serveCart(l) }()
	t.Cleanup(func() { _ = l.Close() })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTheCartProcessSpeaksTheProtocol(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := aProcess(t)
	spec, err := flowv1.NewDiscoveryClient(conn).Discover(ctx, &flowv1.SidecarInfo{ProtocolVersion: "1.0"})
	if err != nil || !proto.Equal(spec, cartSpec()) {
		t.Fatalf("discovered %v, %v", spec, err)
	}
	stream, err := flowv1.NewStreamletClient(conn).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *flowv1.ToProcess) {
		t.Helper()
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Start{Start: &flowv1.Start{ConfigJson: `{"review-threshold": 50}`}}})
	for id := range uint64(2) { // two partitions at once
		batch := &flowv1.Batch{BatchId: id + 1, Inlet: "in", Partition: int32(id)}
		for _, value := range []string{`{"event":"1","total":50}`, `{"event":"2","total":51}`, "no cart"} {
			batch.Records = append(batch.Records, &flowv1.InputRecord{Record: &flowv1.Record{Key: []byte("k"), Value: []byte(value)}})
		}
		send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Batch{Batch: batch}})
	}
	send(&flowv1.ToProcess{Message: &flowv1.ToProcess_Stop{Stop: &flowv1.Stop{}}})
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answers := map[uint64]string{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break // its side is completed when everything is answered
		}
		if err != nil {
			t.Fatal(err)
		}
		answers[m.GetEmit().GetBatchId()] += fmt.Sprintf("%s %s %s;", m.GetEmit().GetOutlet(), m.GetEmit().GetRecord().GetKey(), m.GetEmit().GetRecord().GetValue())
		answers[m.GetAck().GetBatchId()] += "ack;"
	}
	want := `valid k {"event":"1","total":50};review k {"event":"2","total":51};ack;`
	if answers[1] != want || answers[2] != want {
		t.Errorf("got %v", answers)
	}
}

func TestTheDescriptorIsTheOneOfTheDocuments(t *testing.T) {
	spec, want := cartSpec(), testkit.CartRouter()
	for i, outlet := range []string{"valid", "review"} {
		if spec.Streamlet.Outlets[i].Name != outlet {
			t.Errorf("outlet %d is %s", i, spec.Streamlet.Outlets[i].Name)
		}
	}
	for _, port := range append(spec.Streamlet.Inlets, spec.Streamlet.Outlets...) {
		if !proto.Equal(port.Contract, want.Streamlet.Inlets[0].Contract) {
			t.Errorf("the contract of %s is %v", port.Name, port.Contract)
		}
	}
	text, err := descriptorJSON(spec)
	if err != nil {
		t.Fatal(err)
	}
	read := &flowv1.Spec{}
	if err := protojson.Unmarshal(text, read); err != nil || !proto.Equal(read, spec) {
		t.Errorf("read back it is %v, %v", read, err)
	}
	if again, _ := descriptorJSON(spec); string(again) != string(text) || !strings.HasPrefix(string(text), "{\n  \"protocol_version\": \"1.0\",\n") {
		t.Errorf("the text is\n%s", text)
	}
}

func TestTheConfigurationIsTheOneOfTheDocuments(t *testing.T) {
	d := deploy(cartSpec(), "")
	d.servers = []string{"kafka:9092"}
	const want = `flow {
  pipeline  = cart
  streamlet = router
  config    = { review-threshold = 100 }
  inlets {
    in {
      topic             = "shop.cart-events.v1"
      group             = "cart.router.in"
      client-id         = "cart.router.in"
      bootstrap.servers = "kafka:9092"
      connection-config {}
      consumer-config { auto.offset.reset = earliest }
      batch { max-records = 100, max-bytes = 1 MiB }
    }
  }
  outlets {
    valid {
      topic             = "cart.valid-carts"
      client-id         = "cart.router.valid"
      bootstrap.servers = "kafka:9092"
      connection-config {}
      producer-config {}
    }
    review {
      topic             = "cart.review-carts"
      client-id         = "cart.router.review"
      bootstrap.servers = "kafka:9092"
      connection-config {}
      producer-config {}
    }
  }
}
`
	if got := d.conf(); got != want {
		t.Errorf("got\n%s", got)
	}
	other := deploy(cartSpec(), "-12ab")
	if topics := strings.Join(other.topics(), " "); other.group != "cart.router.in-12ab" || topics != "shop.cart-events.v1-12ab cart.valid-carts-12ab cart.review-carts-12ab" {
		t.Errorf("the group is %s, the topics are %s", other.group, topics)
	}
}
