package httpio_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch/internal/httpio"
)

// TestReadAfterTheAnswer: a Read of the body of a request that was answered already returns an error, over HTTP/2 too.
func TestReadAfterTheAnswer(t *testing.T) {
	t.Parallel()
	bodies := make(chan *httpio.Body, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bodies <- httpio.NewBody(w, r, time.Minute)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	body := <-bodies
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := body.Read(make([]byte, 10)); err != nil && err != io.EOF {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it can be read for ever")
		}
	}
}
