package servicetest_test

import (
	"bytes"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/rest"
)

// flaky relays connections to a server, and breaks each after some bytes of its
// answers.
func flaky(t *testing.T, server string, after int64) (address string, broken func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	breaks := 0
	var tasks sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		up, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer up.Close()
		tasks.Go(func() { io.Copy(up, c); up.Close() })
		if n, _ := io.CopyN(c, up, after); n == after {
			mu.Lock()
			breaks++
			mu.Unlock()
		}
	}
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); tasks.Wait() })
	return "http://" + l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return breaks }
}

// A resumable command is read to its end over connections that break, without a
// gap and without repetition.
func TestResumableSurvivesItsConnections(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(newEngine(t), rest.Options{})
	srv := httptest.NewServer(h)
	defer func() { h.Close(); srv.Close() }()
	address, broken := flaky(t, srv.Listener.Addr().String(), 20_000)
	c := client.New(address, "")
	defer c.Close()
	box, err := c.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var cursor int64
	res, err := c.Exec(t.Context(), box.ID, hutch.ExecRequest{Command: "for i in $(seq 20); do seq $((i*1000)) $((i*1000+999)); sleep 0.05; done; exit 4", Resumable: true, MaxOutput: 1000}, func(o hutch.Output) error {
		if o.Lost != 0 || o.Cursor-int64(len(o.Data)) != cursor {
			t.Errorf("after %d: %d bytes to %d, %d lost", cursor, len(o.Data), o.Cursor, o.Lost)
		}
		cursor = o.Cursor
		got.Write(o.Data)
		return nil
	})
	if err != nil || res.ExitCode != 4 || res.Duration > time.Minute {
		t.Fatalf("%+v, %v", res, err)
	}
	lines := bytes.Split(bytes.TrimSpace(got.Bytes()), []byte("\n"))
	if len(lines) != 20_000 || string(lines[19_999]) != "20999" {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	if broken() < 2 {
		t.Errorf("the connection broke %d times", broken())
	}
}
