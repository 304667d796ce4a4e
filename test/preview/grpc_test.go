package preview

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"hutch"
	"hutch/internal/hutchtest"
)

// grpcServer is the program of the server.
var grpcServer = sync.OnceValues(func() ([]byte, error) { return build("./testdata/grpc") })

const grpcPort = 50051

// grpcBox makes a sandbox with the server of gRPC.
func (b *bed) grpcBox(t *testing.T) string {
	t.Helper()
	program, err := grpcServer()
	if err != nil {
		t.Fatal(err)
	}
	id := b.box(t, hutch.CreateRequest{ID: "calls", Limits: hutch.Limits{Memory: 1024}})
	b.write(t, id, "grpc", 0o755, bytes.NewReader(program))
	p, err := b.StartProcess(bounded(t), id, hutch.ProcessRequest{Command: fmt.Sprintf("exec ./grpc %d", grpcPort)})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := b.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Port: grpcPort, Timeout: 170}); err != nil || !res.Met {
		t.Fatalf("the server of gRPC does not listen: %v", err)
	}
	return id
}

// calls returns a gRPC client of a preview, as any program would use it.
func (b *bed) calls(t *testing.T, p hutch.Port, opts ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	_, target, _ := strings.Cut(p.URL, "://")
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.dial(ctx, "", "") }),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

func TestGRPC(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := open(t, runtime, nil)
			id := b.grpcBox(t)
			p := b.expose(t, id, hutch.ExposeRequest{Port: grpcPort})
			c := b.calls(t, p)
			t.Run("unary", func(t *testing.T) { oneCall(t, c, p) })
			t.Run("large", func(t *testing.T) { largeCall(t, c) })
			t.Run("server stream", func(t *testing.T) { serverStream(t, c) })
			t.Run("both ways", func(t *testing.T) { bothWays(t, c) })
			t.Run("deadline", func(t *testing.T) { deadline(t, c) })
			t.Run("many", func(t *testing.T) { manyCalls(t, c) })
			t.Run("TLS", func(t *testing.T) { b.overTLS(t, p) })
			t.Run("private", func(t *testing.T) { b.privateCalls(t, id) })
			t.Run("refused", func(t *testing.T) { b.refusedCalls(t, p) })
			t.Run("unexposed", func(t *testing.T) { b.unexposedCall(t, c, p) })
		})
	}
}

// oneCall: metadata and errors pass through, in headers and trailers.
func oneCall(t *testing.T, c testpb.TestServiceClient, p hutch.Port) {
	var head, tail metadata.MD
	ctx := metadata.AppendToOutgoingContext(bounded(t), "echo-bin", "\x00\xff")
	res, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: []byte("hello")}}, grpc.Header(&head), grpc.Trailer(&tail))
	if err != nil || string(res.GetPayload().GetBody()) != "hello" {
		t.Fatalf("%v, %v", res, err)
	}
	if got := head.Get("authority"); len(got) != 1 || !strings.HasPrefix(got[0], p.Label()+".localhost") {
		t.Errorf("the host inside: %q", got)
	}
	if got := tail.Get("echo-bin"); len(got) != 1 || got[0] != "\x00\xff" {
		t.Errorf("the trailer: %q", got)
	}
	_, err = c.UnaryCall(bounded(t), &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "not so, 100 % sure ☺"}})
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "not so, 100 % sure ☺" {
		t.Errorf("an error of the program's: %v", err)
	}
	_, err = c.HalfDuplexCall(bounded(t))
	if err != nil {
		t.Errorf("a stream begins: %v", err)
	}
	if _, err := c.UnimplementedCall(bounded(t), &testpb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not there: %v", err)
	}
}

func largeCall(t *testing.T, c testpb.TestServiceClient) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	res, err := c.UnaryCall(bounded(t), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: body}, ResponseSize: 16 << 20})
	if err != nil || !bytes.HasPrefix(res.GetPayload().GetBody(), body) || len(res.GetPayload().GetBody()) != 32<<20 {
		t.Errorf("%d bytes, %v", len(res.GetPayload().GetBody()), err)
	}
}

func serverStream(t *testing.T, c testpb.TestServiceClient) {
	const answers = 1000
	req := &testpb.StreamingOutputCallRequest{}
	for i := range answers {
		req.ResponseParameters = append(req.ResponseParameters, &testpb.ResponseParameters{Size: int32(i)})
	}
	stream, err := c.StreamingOutputCall(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if res, err := stream.Recv(); err != nil || len(res.GetPayload().GetBody()) != i {
			t.Fatalf("answer %d: %d bytes, %v", i, len(res.GetPayload().GetBody()), err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("after the last one: %v", err)
	}
}

// ask sends one message on a stream and reads the answer.
func ask(t *testing.T, stream testpb.TestService_FullDuplexCallClient, text string) {
	t.Helper()
	req := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: []byte(text)}, ResponseParameters: []*testpb.ResponseParameters{{}}}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	if res, err := stream.Recv(); err != nil || string(res.GetPayload().GetBody()) != text {
		t.Fatalf("%v, %v", res, err)
	}
}

func bothWays(t *testing.T, c testpb.TestServiceClient) {
	stream, err := c.FullDuplexCall(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		ask(t, stream, fmt.Sprint("message ", i))
	}
	stream.CloseSend()
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func deadline(t *testing.T, c testpb.TestServiceClient) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.EmptyCall(ctx, &testpb.Empty{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

// manyCalls opens more streams than one connection can have.
func manyCalls(t *testing.T, c testpb.TestServiceClient) {
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			res, err := c.UnaryCall(bounded(t), &testpb.SimpleRequest{ResponseSize: int32(i * 100)})
			if err != nil || len(res.GetPayload().GetBody()) != i*100 {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

func (b *bed) overTLS(t *testing.T, p hutch.Port) {
	server := httptest.NewUnstartedServer(b.daemon.Config.Handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := b.calls(t, p, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}))
	oneCall(t, c, p)
	bothWays(t, c)
}

func (b *bed) privateCalls(t *testing.T, id string) {
	p := b.expose(t, id, hutch.ExposeRequest{Port: grpcPort, Access: hutch.PrivatePort})
	defer b.expose(t, id, hutch.ExposeRequest{Port: grpcPort, Access: hutch.PublicPort})
	c := b.calls(t, p)
	if _, err := c.UnaryCall(bounded(t), &testpb.SimpleRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	var head metadata.MD
	ctx := metadata.AppendToOutgoingContext(bounded(t), "hutch-token", ourToken)
	if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&head)); err != nil || len(head.Get("token")) > 0 {
		t.Errorf("with a token, of which %d went in: %v", len(head.Get("token")), err)
	}
}

// refusedCalls: clients get errors in gRPC's form, with a message for people.
func (b *bed) refusedCalls(t *testing.T, p hutch.Port) {
	nobody := b.calls(t, b.expose(t, p.SandboxID, hutch.ExposeRequest{Port: grpcPort + 1}))
	if _, err := nobody.UnaryCall(bounded(t), &testpb.SimpleRequest{}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "Nothing answers on port 50052") {
		t.Errorf("where nothing listens: %v", err)
	}
	p.URL = strings.Replace(p.URL, p.Token, "another", 1)
	if _, err := b.calls(t, p).UnaryCall(bounded(t), &testpb.SimpleRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("a preview that is not there: %v", err)
	}
}

func (b *bed) unexposedCall(t *testing.T, c testpb.TestServiceClient, p hutch.Port) {
	stream, err := c.FullDuplexCall(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, stream, "hello")
	if err := b.Unexpose(bounded(t), p.SandboxID, p.Port); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("a call of a port that is no longer exposed: %v", err)
	}
}
