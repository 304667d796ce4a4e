package wire

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"hutch"
)

// FuzzFiles gives every file request the same arbitrary answers: each request ends with a printable error or with
// records in range.
func FuzzFiles(f *testing.F) {
	say := func(script func(w *Writer)) []byte {
		var b bytes.Buffer
		w := NewWriter(&b)
		w.WriteJSON(TypeWelcome, welcome("token", knownNonce()))
		script(w)
		return b.Bytes()
	}
	info := hutch.FileInfo{Path: "/f\xff", Name: "f\xff", Type: hutch.RegularFile, Size: 3, Mode: 0o644, Modified: time.Unix(1, 0).UTC()}
	f.Add(say(func(w *Writer) {
		w.WriteJSON(TypeStarted, info)
		w.Write(TypeData, []byte("abc"))
		w.Write(TypeReply, []byte("{}"))
	}))
	f.Add(say(func(w *Writer) {
		w.WriteJSON(TypeStarted, info)
		w.WriteJSON(TypeItems, []hutch.FileInfo{info})
		w.WriteJSON(TypeItems, []hutch.FileEvent{{Type: hutch.FileMoved, Path: "a", From: "b"}})
		w.WriteJSON(TypeItems, []hutch.Match{{Path: "a", Line: 1, Column: 1}})
		w.WriteJSON(TypeReply, info)
	}))
	f.Add(say(func(w *Writer) { w.WriteJSON(TypeReply, hutch.Edit{File: info, Replacements: 1, Line: 1}) }))
	f.Fuzz(func(t *testing.T, input []byte) {
		c := NewClient(func(context.Context) (net.Conn, error) { return &recording{Reader: bytes.NewReader(input)}, nil }, "token")
		c.nonce = knownNonce
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), replyTime)
		defer cancel()
		good := func(f hutch.FileInfo) error {
			if err := checkInfo(f); err != nil {
				t.Error(err)
			}
			return nil
		}
		var b bytes.Buffer
		f, err := c.Read(ctx, hutch.ReadRequest{Path: "f"}, &b)
		shown(t, err)
		if err == nil && (checkInfo(f) != nil || f.Size > 0 && int64(b.Len()) != f.Size) {
			t.Errorf("%+v, %d bytes", f, b.Len())
		}
		f, err = c.Write(ctx, hutch.WriteRequest{Path: "f"}, strings.NewReader("in"))
		shown(t, err)
		if err == nil {
			good(f)
		}
		e, err := c.Edit(ctx, hutch.EditRequest{Path: "f", Old: "a", New: "b"})
		shown(t, err)
		if err == nil {
			good(e.File)
		}
		shown(t, c.Files(ctx, hutch.ListRequest{Path: "d"}, good))
		shown(t, c.Search(ctx, hutch.SearchRequest{Path: "d", Pattern: "p"}, func(hutch.Match) error { return nil }))
		shown(t, c.Watch(ctx, hutch.WatchRequest{Path: "d"}, func(hutch.FileEvent) error { return nil }))
		shown(t, c.Pack(ctx, hutch.PackRequest{Dir: "d"}, io.Discard))
		if ctx.Err() != nil {
			t.Error("not in time")
		}
	})
}
