package httpio_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch/internal/httpio"
)

// serve returns the address of a server with one handler.
func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// ask sends the head of a request and returns the connection.
func ask(t *testing.T, addr, head string) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, head+"\r\nHost: x\r\n\r\n")
	return c
}

// An answer fails if its client does not read. A client that reads slowly can take
// longer than the limit for the whole answer.
func TestWriterLimitsEachPiece(t *testing.T) {
	const limit = 300 * time.Millisecond
	ended := make(chan error, 1)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hw := httpio.NewWriter(w, r, limit)
		if r.URL.Path == "/slow" {
			var err error
			for i := 0; i < 8 && err == nil; i++ {
				_, err = hw.Write([]byte("a piece "))
				err = errors.Join(err, hw.FlushError())
				time.Sleep(limit / 4)
			}
			ended <- err
			return
		}
		n, err := hw.Write(make([]byte, 64<<20))
		if n >= 64<<20 {
			err = nil
		}
		ended <- err
	})

	ask(t, addr, "GET /deaf HTTP/1.1")
	if err := <-ended; err == nil {
		t.Error("64 MiB were written to a client that reads none of it")
	}
	c := ask(t, addr, "GET /slow HTTP/1.1")
	go io.Copy(io.Discard, c)
	if err := <-ended; err != nil {
		t.Errorf("a client that reads was cut off: %v", err)
	}
}

// Over HTTP/2, a deadline that stayed set would end a silent stream.
func TestWriterOverHTTP2(t *testing.T) {
	const limit = 100 * time.Millisecond
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hw := httpio.NewWriter(w, r, limit)
		hw.Write([]byte("one "))
		hw.FlushError()
		time.Sleep(3 * limit)
		hw.Write([]byte("two"))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); string(b) != "one two" || err != nil || resp.ProtoMajor != 2 {
		t.Errorf("the answer over %s is %q, %v", resp.Proto, b, err)
	}
}

func TestBody(t *testing.T) {
	const silence = 300 * time.Millisecond
	type end struct {
		text string
		err  error
	}
	ended := make(chan end, 1)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ended" {
			ctx, cancel := context.WithCancelCause(r.Context())
			cancel(errors.New("the token has ended"))
			r = r.WithContext(ctx)
		}
		b, err := io.ReadAll(httpio.NewBody(w, r, silence))
		ended <- end{string(b), err}
	})

	c := ask(t, addr, "POST /slow HTTP/1.1\r\nContent-Length: 8")
	for range 8 { // together longer than the longest silence between two pieces
		time.Sleep(silence / 4)
		io.WriteString(c, "x")
	}
	if e := <-ended; e.text != "xxxxxxxx" || e.err != nil {
		t.Errorf("a slow body is %q, %v", e.text, e.err)
	}
	c = ask(t, addr, "POST /silent HTTP/1.1\r\nContent-Length: 8")
	io.WriteString(c, "x")
	if e := <-ended; e.text != "x" || e.err == nil {
		t.Errorf("a body that stops after one byte is %q, %v", e.text, e.err)
	}
	ask(t, addr, "POST /ended HTTP/1.1\r\nContent-Length: 8")
	if e := <-ended; e.err == nil || e.err.Error() != "the token has ended" {
		t.Errorf("the body of a request that was ended fails with %v", e.err)
	}
}

func TestEvents(t *testing.T) {
	w := httptest.NewRecorder()
	es := httpio.NewEvents(httpio.NewWriter(w, httptest.NewRequest("GET", "/", nil), time.Minute), time.Hour)
	if es.Begun() || len(w.Header()) > 0 {
		t.Error("the answer begins before its first event")
	}
	es.Comment(" listening")
	es.Send("7", "change", []byte(`{"text":"a"}`))
	es.Send("", "end", []byte("1"))
	es.Close()
	es.Close()
	const want = ": listening\n\nid: 7\nevent: change\ndata: {\"text\":\"a\"}\n\nevent: end\ndata: 1\n\n"
	if got := w.Body.String(); got != want || w.Header().Get("Content-Type") != httpio.EventStream || !w.Flushed {
		t.Errorf("sent %q with %v, want %q", got, w.Header(), want)
	}
}

func TestEventsKeepAlive(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		es := httpio.NewEvents(httpio.NewWriter(w, r, time.Minute), 10*time.Millisecond)
		defer es.Close()
		<-r.Context().Done()
	})
	c := ask(t, addr, "GET / HTTP/1.1")
	var got []byte
	for b := make([]byte, 1024); bytes.Count(got, []byte(":\n\n")) < 3; {
		n, err := c.Read(b)
		if got = append(got, b[:n]...); err != nil {
			t.Fatalf("a silent stream brought %q, then %v", strings.TrimSpace(string(got)), err)
		}
	}
}

// TestInterrupt: Interrupt ends a Read that waits for a silent client, even if an outer handler has wrapped the body
// already.
func TestInterrupt(t *testing.T) {
	ended := make(chan error, 1)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body = httpio.NewBody(w, r, time.Minute)
		body := httpio.NewBody(w, r, time.Minute)
		first := make([]byte, 1)
		body.Read(first)
		time.AfterFunc(50*time.Millisecond, body.Interrupt)
		_, err := body.Read(first)
		_, again := body.Read(first)
		if again == nil {
			err = nil
		}
		ended <- err
	})
	c := ask(t, addr, "POST / HTTP/1.1\r\nContent-Length: 8")
	io.WriteString(c, "x")
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the body was read")
		}
	case <-time.After(20 * time.Second):
		t.Error("the body was not interrupted")
	}
}

// TestInterruptAfterTheBody: once the body has arrived, an interrupt changes nothing: neither the context of the request
// nor the next request on its connection.
func TestInterruptAfterTheBody(t *testing.T) {
	causes := make(chan error, 2)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := httpio.NewBody(w, r, time.Minute)
		io.Copy(io.Discard, body)
		body.Interrupt()
		time.Sleep(50 * time.Millisecond) // net/http reads the connection meanwhile
		causes <- context.Cause(r.Context())
		w.Header().Set("Content-Length", "0")
	})
	c := ask(t, addr, "POST / HTTP/1.1\r\nContent-Length: 1")
	io.WriteString(c, "x")
	answers := bufio.NewReader(c)
	for i := range 2 {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if cause := <-causes; cause != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("answer %d is %s, and its context has ended: %v", i, resp.Status, cause)
		}
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	}
}
