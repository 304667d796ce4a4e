package listen_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"hutch/internal/listen"
)

// A server of one connection ends with that connection, in a way that lets the client read the whole answer.
func TestOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer client.Close()
	conn, err := l.Accept()
	must(t, err)
	ended := make(chan error)
	go func() {
		srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })}
		ended <- srv.Serve(listen.Once(conn))
	}()
	go io.WriteString(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\n\r\n"+strings.Repeat("x", 1<<20))
	answer, err := io.ReadAll(client)
	if err != nil || !strings.HasSuffix(string(answer), "served") {
		t.Errorf("%q, %v", answer, err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the server ended with %v", err)
	}
}
