// Command go is the cart router in Go, on the protocol alone: carts over the threshold go to review, the others to valid.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"os"

	pb "github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc"
)

type router struct {
	pb.UnimplementedDiscoveryServer
	pb.UnimplementedStreamletServer
}

// Discover says what this streamlet is. The sidecar compares it with descriptor.json.
func (router) Discover(context.Context, *pb.SidecarInfo) (*pb.Spec, error) {
	carts := &pb.Contract{Format: "json", SchemaName: "cart-events.v1", Fingerprint: "nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM="}
	return &pb.Spec{ProtocolVersion: "1.0", Sdk: &pb.SdkInfo{Name: "none", Version: "1"}, Streamlet: &pb.StreamletDescriptor{
		Name:             "cart-router",
		Inlets:           []*pb.Port{{Name: "in", Contract: carts}},
		Outlets:          []*pb.Port{{Name: "review", Contract: carts}, {Name: "valid", Contract: carts}},
		ConfigParameters: []*pb.ConfigParameter{{Key: "review-threshold", Type: pb.ConfigType_INTEGER, DefaultValue: "100"}},
	}}, nil
}

// ReportError hears why the sidecar will not work with this process.
func (router) ReportError(_ context.Context, problems *pb.Problems) (*pb.Empty, error) {
	for _, problem := range problems.GetProblems() {
		log.Println("refused:", problem.GetMessage())
	}
	return &pb.Empty{}, nil
}

// route is the answer to a batch: its emits, then an Ack.
func route(batch *pb.Batch, threshold float64) (answer []*pb.FromProcess) {
	for _, in := range batch.GetRecords() {
		var cart struct{ Total *float64 }
		if json.Unmarshal(in.GetRecord().GetValue(), &cart) != nil || cart.Total == nil {
			continue // not a cart: no emit for a record skips it
		}
		outlet := "valid"
		if *cart.Total > threshold {
			outlet = "review"
		}
		answer = append(answer, &pb.FromProcess{Message: &pb.FromProcess_Emit{Emit: &pb.Emit{BatchId: batch.GetBatchId(), Outlet: outlet, Record: in.GetRecord()}}})
	}
	return append(answer, &pb.FromProcess{Message: &pb.FromProcess_Ack{Ack: &pb.Ack{BatchId: batch.GetBatchId()}}})
}

// Run is one conversation: Start, then batches. Of each partition there is one at a time.
func (router) Run(stream grpc.BidiStreamingServer[pb.ToProcess, pb.FromProcess]) error {
	var config struct {
		Threshold float64 `json:"review-threshold"`
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil // the sidecar stops
		} else if err != nil {
			return err
		}
		if start := message.GetStart(); start != nil {
			if err := json.Unmarshal([]byte(start.GetConfigJson()), &config); err != nil {
				return err
			}
		}
		if batch := message.GetBatch(); batch != nil {
			for _, answer := range route(batch, config.Threshold) {
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("FLOW_PROCESS_PORT"), "9010"))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterDiscoveryServer(server, router{})
	pb.RegisterStreamletServer(server, router{})
	log.Fatal(server.Serve(listener))
}
