package bridge_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func listDir(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, err
}

// dial opens a terminal and reads its first message.
func (b *bench) dial(ctx context.Context, path string) *websocket.Conn {
	b.t.Helper()
	conn, _, err := websocket.Dial(ctx, b.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.CloseNow() })
	if _, first, err := conn.Read(ctx); err != nil || string(first) != `{"type":"ready"}` {
		b.t.Fatalf("first %s: %v", first, err)
	}
	return conn
}

func write(t *testing.T, ctx context.Context, conn *websocket.Conn, typ websocket.MessageType, text string) {
	t.Helper()
	if err := conn.Write(ctx, typ, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// until reads the terminal until it shows a text.
func until(t *testing.T, ctx context.Context, conn *websocket.Conn, text string) {
	t.Helper()
	seen := ""
	for !strings.Contains(seen, text) {
		_, b, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(b)
	}
}

// shown reads the terminal to its end. It returns what the terminal showed, and the last message.
func shown(t *testing.T, ctx context.Context, conn *websocket.Conn) (text, last string) {
	t.Helper()
	for {
		typ, b, err := conn.Read(ctx)
		switch {
		case err != nil:
			t.Fatalf("%v after %q", err, text)
		case typ == websocket.MessageText:
			return text, string(b)
		}
		text += string(b)
	}
}
