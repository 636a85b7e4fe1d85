//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"

	pb "github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"google.golang.org/grpc"
)

// spec is the streamlet that every process here is.
var spec = testkit.Spec("echo", testkit.Ports("in"), testkit.Ports("out"))

// echo is a process in Go that emits each record unchanged, on generated protobuf.
type echo struct {
	pb.UnimplementedDiscoveryServer
	pb.UnimplementedStreamletServer
	blocked bool // it answers no batch
}

// serveEcho serves until the process is ended.
func serveEcho(address string, blocked bool) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterDiscoveryServer(server, &echo{})
	pb.RegisterStreamletServer(server, &echo{blocked: blocked})
	return server.Serve(l)
}

func (e *echo) Discover(context.Context, *pb.SidecarInfo) (*pb.Spec, error) { return spec, nil }

func (e *echo) ReportError(context.Context, *pb.Problems) (*pb.Empty, error) { return &pb.Empty{}, nil }

func (e *echo) Run(stream grpc.BidiStreamingServer[pb.ToProcess, pb.FromProcess]) error {
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		batch := message.GetBatch()
		if batch == nil || e.blocked {
			continue
		}
		for _, in := range batch.GetRecords() {
			emit := &pb.Emit{BatchId: batch.GetBatchId(), Outlet: "out", Record: in.GetRecord()}
			if err := stream.Send(&pb.FromProcess{Message: &pb.FromProcess_Emit{Emit: emit}}); err != nil {
				return err
			}
		}
		if err := stream.Send(&pb.FromProcess{Message: &pb.FromProcess_Ack{Ack: &pb.Ack{BatchId: batch.GetBatchId()}}}); err != nil {
			return err
		}
	}
}
