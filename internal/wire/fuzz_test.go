package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"hutch"
)

// answers returns some answers of an agent, as seeds.
func answers() [][]byte {
	say := func(script func(w *Writer)) []byte {
		var b bytes.Buffer
		w := NewWriter(&b)
		w.WriteJSON(TypeWelcome, welcome("token", knownNonce()))
		script(w)
		return b.Bytes()
	}
	return [][]byte{
		nil,
		say(func(w *Writer) { w.WriteJSON(TypeReply, Stats{Live: 1}); w.WriteJSON(TypeReply, Stats{Live: 2}) }),
		say(func(w *Writer) { w.WriteJSON(TypeReply, []Process{{ID: "a", StartMS: 1}, {}}) }),
		say(func(w *Writer) { w.WriteJSON(TypeError, Failure{Kind: hutch.NotFound, Message: "no"}) }),
		say(func(w *Writer) {
			w.WriteJSON(TypeStarted, Process{ID: "x"})
			w.WriteOutput(TypeStdout, 3, []byte("out"))
			w.WriteCount(TypeGap, 5)
			w.WriteOutput(TypeStderr, 11, []byte("err"))
			w.WriteCount(TypeWindow, 2)
			w.WriteJSON(TypeExit, Exit{State: hutch.ProcessExited, Cursor: 11})
		}),
		say(func(w *Writer) {
			w.WriteJSON(TypeStarted, Process{ID: "x", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
			w.WriteCount(TypeWindow, 1)
			w.WriteJSON(TypeReply, Waited{Met: true})
		}),
		say(func(w *Writer) { w.WriteJSON(TypeReply, Cleaned{Removed: 3}) }),
		say(func(w *Writer) { w.WriteJSON(TypeReply, []ContextInfo{{ID: "c", Language: "python"}}) }),
		say(func(w *Writer) {
			w.WriteJSON(TypeStarted, ContextInfo{ID: "c"})
			w.WriteJSON(TypeBegun, Begun{Fresh: true})
			w.Write(TypeMessage, []byte(`+{"result":`))
			w.Write(TypeMessage, []byte(`.{"data":{}}}`))
			w.WriteOutput(TypeStdout, 3, []byte("out"))
			w.WriteJSON(TypeExit, RunEnd{Code: 1, Runs: 1, Cursor: 3})
		}),
		say(func(w *Writer) { w.Write(TypeReply, []byte(strings.Repeat("[", 2000))) }),
		[]byte("h\xff\xff\xff\xff"),
	}
}

func FuzzReader(f *testing.F) {
	for _, seed := range answers() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		const most = 1 << 10
		r := NewReader(bytes.NewReader(input), most)
		var again bytes.Buffer
		w := NewWriter(&again)
		for {
			ty, payload, err := r.Next()
			if err != nil {
				break
			}
			if len(payload) > most {
				t.Fatalf("%d bytes", len(payload))
			}
			if c, data, err := parseOutput(payload); err == nil && (c < int64(len(data)) || c > maxCount) {
				t.Fatalf("cursor %d behind %d bytes", c, len(data))
			}
			if n, err := parseCount(payload); err == nil && (n < 0 || n > maxCount) {
				t.Fatalf("count %d", n)
			}
			w.Write(ty, payload)
		}
		if !bytes.HasPrefix(input, again.Bytes()) {
			t.Fatalf("%q was read as %q", input, again.Bytes())
		}
	})
}

// FuzzClient gives every connection the same arbitrary answers: each request ends with a printable error or with a
// result in range.
func FuzzClient(f *testing.F) {
	for _, seed := range answers() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		c := NewClient(func(context.Context) (net.Conn, error) { return &recording{Reader: bytes.NewReader(input)}, nil }, "token")
		c.nonce = knownNonce
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), replyTime)
		defer cancel()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fuzzRecords(t, ctx, c)
		fuzzStreams(t, ctx, c, len(input))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20+100*uint64(len(input)) {
			t.Errorf("%d MiB for %d bytes", used>>20, len(input))
		}
		if ctx.Err() != nil {
			t.Error("not in time")
		}
	})
}

func fuzzRecords(t *testing.T, ctx context.Context, c *Client) {
	s, err := c.Ping(ctx)
	shown(t, err)
	if s.Live < 0 || s.Processes < 0 {
		t.Errorf("%+v", s)
	}
	shown(t, c.Signal(ctx, "p", 9))
	shown(t, c.Resize(ctx, Resize{Process: "p", Size: hutch.Size{Columns: 80, Rows: 24}}))
	n, err := c.Clean(ctx)
	shown(t, err)
	if n < 0 {
		t.Errorf("%d processes forgotten", n)
	}
	_, err = c.Wait(ctx, Wait{Process: "p", Port: 80})
	shown(t, err)
	shown(t, c.Input(ctx, Input{Process: "p", End: true}, strings.NewReader("input")))
	p, err := c.Start(ctx, Start{ID: "p", Command: "x"})
	shown(t, err)
	ps, err := c.List(ctx)
	shown(t, err)
	for _, p := range append(ps, p) {
		for _, ms := range []int64{p.StartMS, p.EndMS} {
			if _, err := time.UnixMilli(ms).UTC().MarshalJSON(); err != nil {
				t.Errorf("%d ms: %v", ms, err)
			}
		}
		if p.PID < 0 || p.Restarts < 0 || p.ExitCode != nil && *p.ExitCode&^255 != 0 {
			t.Errorf("%+v", p)
		}
	}
}

func fuzzStreams(t *testing.T, ctx context.Context, c *Client, size int) {
	var at, sum int64
	out := func(o hutch.Output) error {
		if o.Lost < 0 || o.Cursor != at+o.Lost+int64(len(o.Data)) {
			t.Errorf("after %d: cursor %d, %d bytes, %d lost", at, o.Cursor, len(o.Data), o.Lost)
		}
		at, sum = o.Cursor, sum+int64(len(o.Data))
		return nil
	}
	check := func(x Exit, err error) {
		shown(t, err)
		if err == nil && (x.Code&^255 != 0 || x.Cursor < at) || sum > int64(size) {
			t.Errorf("%+v at %d of %d", x, at, size)
		}
		at, sum = 0, 0
	}
	check(c.Run(ctx, Start{ID: "r", Command: "x", TimeoutMS: 1000}, nil, out))
	check(c.Run(ctx, Start{ID: "r", Command: "x", Stdin: true}, strings.NewReader("in"), out))
	check(c.Attach(ctx, Attach{Process: "p", Follow: true}, out))
	fuzzContexts(t, ctx, c, out, size)
}

func fuzzContexts(t *testing.T, ctx context.Context, c *Client, out func(hutch.Output) error, size int) {
	info, err := c.CreateContext(ctx, Context{ID: "c", Argv: []string{"x"}})
	shown(t, err)
	list, err := c.Contexts(ctx)
	shown(t, err)
	for _, info := range append(list, info) {
		if _, err := time.UnixMilli(info.UsedMS).UTC().MarshalJSON(); err != nil || info.Runs < 0 {
			t.Errorf("%+v: %v", info, err)
		}
	}
	shown(t, c.Interrupt(ctx, "c"))
	shown(t, c.DeleteContext(ctx, "c"))
	_, end, err := c.RunIn(ctx, Run{ID: "r", Context: "c", TimeoutMS: 1000}, nil, nil, out, func(m []byte) error {
		if len(m) > size {
			t.Errorf("a message of %d bytes from %d", len(m), size)
		}
		return nil
	})
	shown(t, err)
	if err == nil && (end.Code&^255 != 0 || end.Runs < 0) {
		t.Errorf("%+v", end)
	}
}

// shown checks that an error is fit for people to read.
func shown(t *testing.T, err error) {
	if e, ok := errors.AsType[*hutch.Error](err); err != nil && (!ok || len(e.Message) > 2100) {
		t.Errorf("%#v", err)
	}
}

// recording is a connection with recorded input that accepts any output.
type recording struct{ io.Reader }

func (*recording) Write(b []byte) (int, error)      { return len(b), nil }
func (*recording) Close() error                     { return nil }
func (*recording) LocalAddr() net.Addr              { return nil }
func (*recording) RemoteAddr() net.Addr             { return nil }
func (*recording) SetDeadline(time.Time) error      { return nil }
func (*recording) SetReadDeadline(time.Time) error  { return nil }
func (*recording) SetWriteDeadline(time.Time) error { return nil }
