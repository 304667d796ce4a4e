package httpio

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestSilentClients: a client that sends a part of a body and nothing more is answered, and loses its connection. What it
// sends later is not taken for another request.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	for name, read := range map[string]func(w http.ResponseWriter, r *http.Request){
		"read as a whole": func(w http.ResponseWriter, r *http.Request) {
			if b, err := ReadAll(w, r, 1000, limit); err == nil {
				t.Errorf("it is %q", b)
			}
		},
		"read in pieces": func(w http.ResponseWriter, r *http.Request) {
			if b, err := io.ReadAll(NewBody(w, r, limit)); err == nil {
				t.Errorf("it is %q", b)
			}
		},
		"not read": func(http.ResponseWriter, *http.Request) {},
	} {
		for end, handle := range map[string]http.HandlerFunc{
			"": func(w http.ResponseWriter, r *http.Request) {
				read(w, r)
				w.WriteHeader(http.StatusBadRequest)
			},
			", drained": func(w http.ResponseWriter, r *http.Request) {
				defer drain(w, r.Body, limit)
				read(w, r)
				w.WriteHeader(http.StatusBadRequest)
			},
			", both ways": func(w http.ResponseWriter, r *http.Request) {
				r.Body = NewBody(w, r, limit)
				defer duplex(w, r, limit)()
				read(w, r)
				w.WriteHeader(http.StatusBadRequest)
			},
		} {
			if name == "not read" && end == "" {
				continue // the limit is that of package listen
			}
			t.Run(name+end, func(t *testing.T) {
				t.Parallel()
				requests := make(chan string, 10)
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests <- r.URL.Path
					handle(w, r)
				}))
				defer srv.Close()
				c, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				rest := "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
				fmt.Fprintf(c, "POST /first HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nbegin", len("begin")+len(rest))
				time.AfterFunc(10*limit, func() { io.WriteString(c, rest) })
				c.SetDeadline(time.Now().Add(20 * time.Second))
				text, err := io.ReadAll(c)
				if !strings.HasPrefix(string(text), "HTTP/1.1 400 ") || strings.Count(string(text), "HTTP/1.1 ") != 1 {
					t.Errorf("the answer is %q, %v", text, err)
				}
				if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
					t.Error("the connection stays")
				}
				if <-requests; len(requests) > 0 {
					t.Errorf("another request: %s", <-requests)
				}
			})
		}
	}
}

// TestEarlyAnswerOfAProxy: if the server behind a proxy answers before it has the whole body, the request ends, even if
// its client sends no more of the body.
func TestEarlyAnswerOfAProxy(t *testing.T) {
	t.Parallel()
	early := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		io.WriteString(w, "an answer")
		rc.Flush()
		time.Sleep(100 * time.Millisecond)
	}))
	defer early.Close()
	to, err := url.Parse(early.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	ended := make(chan bool, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- true }()
		r.Body = NewBody(w, r, 200*time.Millisecond)
		proxy.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nbegin")
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the request does not end")
	}
}
