package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// This file is a whole streamlet process, small enough to copy: the router of the cart pipeline. It knows nothing of Kafka. It says what
// it is (Discover), is then given batches of records (Run), and answers each with what is to be written and an Ack.

// cart is what the records hold, as JSON. The key is the customer.
type cart struct {
	Event    string `json:"event"` // unique
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

// lookup stands for what a real router would ask somebody else about each cart. It is there so that a kill comes in the middle of work.
const lookup = time.Millisecond

// cartSpec is what Discover answers. descriptor.json, which the sidecar compares it with, holds the same.
func cartSpec() *flowv1.Spec {
	carts := &flowv1.Contract{Format: "json", SchemaName: "cart-events.v1", Fingerprint: "nXhoFwNZSB7DKScFuZUtZ1gnAYkIxadumsXNHWwbLfM="} // Base64 of SHA-256 of the name
	return &flowv1.Spec{
		ProtocolVersion: "1.0",
		Sdk:             &flowv1.SdkInfo{Name: "ankka-flow-sidecar-demo", Version: "1"},
		Streamlet: &flowv1.StreamletDescriptor{
			Name:        "cart-router",
			Description: "Sends carts over the threshold to review.",
			Inlets:      []*flowv1.Port{{Name: "in", Contract: carts}},
			Outlets:     []*flowv1.Port{{Name: "valid", Contract: carts}, {Name: "review", Contract: carts}},
			ConfigParameters: []*flowv1.ConfigParameter{
				{Key: "review-threshold", Description: "A cart over it is reviewed.", Type: flowv1.ConfigType_INTEGER, DefaultValue: "100"},
			},
		},
	}
}

// outletFor is the router's whole decision.
func outletFor(c cart, threshold int) string {
	if c.Total > threshold {
		return "review"
	}
	return "valid"
}

// serveCart is the process: it serves on l until l is closed.
func serveCart(l net.Listener) error {
	server := grpc.NewServer()
	flowv1.RegisterDiscoveryServer(server, discovery{})
	flowv1.RegisterStreamletServer(server, router{})
	return server.Serve(l)
}

type discovery struct {
	flowv1.UnimplementedDiscoveryServer
}

// Discover says what the streamlet is.
func (discovery) Discover(_ context.Context, sidecar *flowv1.SidecarInfo) (*flowv1.Spec, error) {
	fmt.Println("discovered by sidecar", sidecar.GetSidecarVersion())
	return cartSpec(), nil
}

// ReportError is told why the sidecar refuses the process: its code is not what was deployed.
func (discovery) ReportError(_ context.Context, problems *flowv1.Problems) (*flowv1.Empty, error) {
	for _, problem := range problems.GetProblems() {
		fmt.Println("refused:", problem.GetMessage())
	}
	return &flowv1.Empty{}, nil
}

type router struct {
	flowv1.UnimplementedStreamletServer
}

// Run is one conversation: Start, then batches. A new one begins after every failure, so nothing is kept from one to the next.
func (router) Run(stream grpc.BidiStreamingServer[flowv1.ToProcess, flowv1.FromProcess]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var config struct {
		Threshold int `json:"review-threshold"` // the configured value, else the descriptor's default: it is always there
	}
	if err := json.Unmarshal([]byte(first.GetStart().GetConfigJson()), &config); err != nil {
		return status.Errorf(codes.InvalidArgument, "the conversation does not begin with a Start that has a configuration: %v", err)
	}

	// At most one batch of each partition is here at a time, and different partitions do not wait for each other. They share the
	// stream, which takes one sender at a time.
	var working sync.WaitGroup
	defer working.Wait() // the stream must not be used once Run has returned
	var sending sync.Mutex
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil // the sidecar is stopping; what is in work is finished and still counts
		}
		if err != nil {
			return err
		}
		batch := message.GetBatch()
		if batch == nil {
			continue // Stop: the end of the sidecar's side follows
		}
		working.Go(func() {
			emits := routeBatch(batch, config.Threshold)
			sending.Lock()
			defer sending.Unlock()
			for _, emit := range emits {
				_ = stream.Send(&flowv1.FromProcess{Message: &flowv1.FromProcess_Emit{Emit: emit}}) // a broken stream is Recv's to report
			}
			_ = stream.Send(&flowv1.FromProcess{Message: &flowv1.FromProcess_Ack{Ack: &flowv1.Ack{BatchId: batch.GetBatchId()}}})
		})
	}
}

// routeBatch is what the streamlet emits for a batch. Each record goes on as it came: with its key, an outlet has a customer's carts in
// the order of the inlet.
func routeBatch(batch *flowv1.Batch, threshold int) (emits []*flowv1.Emit) {
	for _, in := range batch.GetRecords() {
		time.Sleep(lookup)
		var c cart
		if json.Unmarshal(in.GetRecord().GetValue(), &c) != nil {
			continue // not a cart: to acknowledge it without an emit is how a streamlet skips a record
		}
		emits = append(emits, &flowv1.Emit{BatchId: batch.GetBatchId(), Outlet: outletFor(c, threshold), Record: in.GetRecord()})
	}
	return emits
}
