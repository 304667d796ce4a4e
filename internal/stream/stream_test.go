package stream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/stream"
)

var outputs = []hutch.Output{
	{Stream: hutch.Stdout, Data: []byte("plain\n"), Cursor: 6},
	{Stream: hutch.Stderr, Data: []byte("\xff\xfe\x00"), Cursor: 1 << 60, Lost: 7},
	{Stream: hutch.Stdout, Data: []byte("ünïcödé 🙂 \u2028</script>"), Cursor: 40},
	{Stream: hutch.Stderr, Data: []byte("half a rune \xf0\x9f"), Cursor: 14},
	{Stream: hutch.Stdout, Data: []byte{}, Cursor: 0},
	{Stream: hutch.Stderr, Data: []byte("at a time"), Cursor: 9, Redacted: true, Time: time.UnixMilli(1790000000123).UTC()},
}

func TestOutputAsJSON(t *testing.T) {
	t.Parallel()
	for _, o := range outputs {
		b, err := json.Marshal(stream.NewPiece(o))
		if err != nil {
			t.Fatal(err)
		}
		var p stream.Piece
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		got, err := p.Output()
		if err != nil || got.Stream != o.Stream || !bytes.Equal(got.Data, o.Data) || got.Cursor != o.Cursor || got.Lost != o.Lost || !got.Time.Equal(o.Time) {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
	if o, err := (stream.Piece{Data: "no base64!", Encoding: "base64"}).Output(); err == nil {
		t.Errorf("%+v", o)
	}
}

func TestOutputAsMessages(t *testing.T) {
	t.Parallel()
	for _, o := range outputs {
		got, err := stream.ParseOutput(stream.AppendOutput([]byte(nil), o))
		if err != nil || got.Stream != o.Stream || !bytes.Equal(got.Data, o.Data) || got.Cursor != o.Cursor || got.Redacted != o.Redacted || !got.Time.Equal(o.Time) {
			t.Errorf("%+v: %+v, %v", o, got, err)
		}
	}
	for _, b := range []string{"", "\x01", "\x0112345678"[:8], "\x0012345678", "\x0312345678data", "\x09123456781234567"} {
		if o, err := stream.ParseOutput([]byte(b)); err == nil {
			t.Errorf("%q is %+v", b, o)
		}
	}
}

func TestOneStandardInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cmd  stream.Command
		want string
		ok   bool
	}{
		{stream.Command{}, "", true},
		{stream.Command{Text: "text"}, "text", true},
		{stream.Command{Binary: []byte("\xff\x00")}, "\xff\x00", true},
		{stream.Command{Open: true}, "", true},
		{stream.Command{Text: "a", Binary: []byte("b")}, "", false},
		{stream.Command{Text: "a", Open: true}, "", false},
		{stream.Command{Binary: []byte("b"), Open: true}, "", false},
	} {
		if err := c.cmd.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.cmd, err)
			continue
		}
		var got []byte
		if r := c.cmd.Request().Stdin; c.ok && r != nil {
			got, _ = io.ReadAll(r)
		}
		if c.ok && string(got) != c.want {
			t.Errorf("%+v: %q", c.cmd, got)
		}
	}
}

// FileHeader can hold any name that a file can have.
func FuzzFileHeader(f *testing.F) {
	for _, name := range []string{"plain.txt", "line\nfeed\r\nHutch-File: x", "ünïcödé 🙂 \u2028", "\xff\xfe", `"quoted\"`, "del\x7f\x1b", "\ufffd"} {
		f.Add(name, name)
	}
	f.Fuzz(func(t *testing.T, name, target string) {
		info := hutch.FileInfo{Path: "/" + name, Name: name, Target: target, Type: hutch.Symlink, Size: 5 << 30, Mode: 0o644, Modified: time.Unix(1, 5).UTC()}
		value := stream.FormatFile(info)
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q is not fit for a header", value)
		}
		h := http.Header{stream.FileHeader: {value}}
		if got, err := stream.ParseFile(h.Get("Hutch-File")); err != nil || !reflect.DeepEqual(got, info) {
			t.Fatalf("%+v, %v; want %+v", got, err, info)
		}
	})
}
