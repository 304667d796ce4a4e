// Command grpc is the server of gRPC's own interoperability tests, as far as
// the tests of previews need it, at the port that is its argument.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func main() {
	ln, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	testpb.RegisterTestServiceServer(srv, service{})
	log.Fatal(srv.Serve(ln))
}

type service struct {
	testpb.UnimplementedTestServiceServer
}

// EmptyCall never answers.
func (service) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// UnaryCall answers with the request's bytes and that many zeros, or with the status that the request names. Headers
// and trailers repeat the request's metadata.
func (service) UnaryCall(ctx context.Context, req *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	in, _ := metadata.FromIncomingContext(ctx)
	grpc.SetHeader(ctx, metadata.MD{"authority": in[":authority"], "token": in["hutch-token"]})
	grpc.SetTrailer(ctx, metadata.MD{"echo-bin": in["echo-bin"]})
	if s := req.GetResponseStatus(); s.GetCode() != 0 {
		return nil, status.Error(codes.Code(s.GetCode()), s.GetMessage())
	}
	body := append(req.GetPayload().GetBody(), make([]byte, req.GetResponseSize())...)
	return &testpb.SimpleResponse{Payload: &testpb.Payload{Body: body}}, nil
}

// StreamingOutputCall sends as many answers as are asked for.
func (service) StreamingOutputCall(req *testpb.StreamingOutputCallRequest, out testpb.TestService_StreamingOutputCallServer) error {
	return send(req, out)
}

// FullDuplexCall answers each request before it reads the next one.
func (service) FullDuplexCall(both testpb.TestService_FullDuplexCallServer) error {
	for {
		req, err := both.Recv()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = send(req, both)
		}
		if err != nil {
			return err
		}
	}
}

func send(req *testpb.StreamingOutputCallRequest, out interface {
	Send(*testpb.StreamingOutputCallResponse) error
}) error {
	for _, p := range req.GetResponseParameters() {
		body := append(req.GetPayload().GetBody(), make([]byte, p.GetSize())...)
		if err := out.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: body}}); err != nil {
			return err
		}
	}
	return nil
}
