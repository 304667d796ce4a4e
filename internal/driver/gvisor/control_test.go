package gvisor

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hostile is a control socket whose connections are handled by a corrupted sentry.
func hostile(t *testing.T, answer func(net.Conn)) control {
	path := filepath.Join(t.TempDir(), "sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() }) // the connection stays open until the end of the test
			served.Go(func() { answer(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		served.Wait()
	})
	return control{path}
}

func TestHostileSentry(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"silence":         func(net.Conn) {},
		"hangs up":        func(c net.Conn) { c.Close() },
		"nonsense":        func(c net.Conn) { c.Write([]byte("\x00\xff{")); c.Close() },
		"no success":      func(c net.Conn) { c.Write([]byte(`{"success":false,"err":"no"}`)) },
		"a number":        func(c net.Conn) { c.Write([]byte(`7`)) },
		"without an end":  func(c net.Conn) { sendForever(c, `{"err":"`, strings.Repeat("x", 1<<16)) },
		"nests":           func(c net.Conn) { sendForever(c, `{"result":`, strings.Repeat("[", 1<<16)) },
		"more than asked": func(c net.Conn) { c.Write([]byte(`{"success":true,"result":{"results":[{},{}]}}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := hostile(t, answer)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if text, err := c.readGroup(ctx, "pids", "pids.current"); err == nil {
				t.Errorf("read %q", text)
			} else if len(err.Error()) > 10_000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func sendForever(c net.Conn, begin, more string) {
	defer c.Close()
	for _, err := c.Write([]byte(begin)); err == nil; {
		_, err = c.Write([]byte(more))
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	c := hostile(t, func(net.Conn) {})
	cause := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	if err := c.start(ctx, nil); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}
