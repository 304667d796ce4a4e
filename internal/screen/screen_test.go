package screen

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/png"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
)

// scriptedConn is a connection with scripted input, which records everything that is written to it.
type scriptedConn struct {
	net.Conn // nil
	io.Reader
	written bytes.Buffer
}

func (s *scriptedConn) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s *scriptedConn) Write(b []byte) (int, error) { return s.written.Write(b) }
func (s *scriptedConn) Close() error                { return nil }
func (s *scriptedConn) SetDeadline(time.Time) error { return nil }

// greeting is the first message of a screen of 8 × 4 pixels.
var greeting = slices.Concat([]byte("RFB 003.008\n\x01\x01\x00\x00\x00\x00\x00\x08\x00\x04"), make([]byte, 16), []byte("\x00\x00\x00\x01d"))

func update(rects ...[]byte) []byte {
	return append([]byte{0, 0, 0, byte(len(rects))}, slices.Concat(rects...)...)
}

func rect(x, y, w, h uint16, encoding int32, data ...byte) (b []byte) {
	for _, v := range []uint16{x, y, w, h} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(encoding)), data...)
}

// watch reads a picture from a screen that sends the bytes b.
func watch(b []byte) (*image.RGBA, error) {
	r, err := open(&scriptedConn{Reader: bytes.NewReader(b)})
	if err != nil {
		return nil, err
	}
	return r.picture(image.Rect(0, 0, min(r.width, 64), min(r.height, 64)))
}

func TestPicture(t *testing.T) {
	t.Parallel()
	upper := bytes.Repeat([]byte{1, 2, 3, 0}, 8*2)
	picture, err := watch(slices.Concat(greeting,
		[]byte{2}, []byte("\x03\x00\x00\x00\x00\x00\x00\x02hi"), // a bell, and a clipboard
		update(rect(0, 0, 8, 4, encodeSize, make([]byte, 4+16)...)), // the size alone
		update(rect(0, 0, 8, 2, encodeRaw, upper...), rect(0, 2, 8, 2, encodeRaw, make([]byte, 8*2*4)...)),
	))
	if err != nil || picture.RGBAAt(7, 1).G != 2 || picture.RGBAAt(7, 2).G != 0 || picture.RGBAAt(0, 3).A != 0xff {
		t.Errorf("%v, %v", picture, err)
	}
}

// A program that pretends to be a screen causes an error, and never much use of memory or a panic.
func TestHostileScreens(t *testing.T) {
	t.Parallel()
	size := func(w, h uint16) []byte { return rect(0, 0, w, h, encodeSize, make([]byte, 4+16)...) }
	raw := rect(0, 0, 1, 1, encodeRaw, 0, 0, 0, 0)
	for name, b := range map[string][]byte{
		"web server":       []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"old":              []byte("RFB 003.003\n"),
		"password":         []byte("RFB 003.008\n\x01\x02"),
		"endless reason":   append([]byte("RFB 003.008\n\x00\xff\xff\xff\xff"), make([]byte, 1<<20)...),
		"refused":          []byte("RFB 003.008\n\x01\x01\x00\x00\x00\x01\x00\x00\x00\x02no"),
		"huge screen":      slices.Concat(greeting[:18], []byte{0xff, 0xff, 0xff, 0xff}, greeting[22:]),
		"no screen":        slices.Concat(greeting[:18], []byte{0, 0, 0, 0}, greeting[22:]),
		"huge name":        slices.Concat(greeting[:38], []byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<16)),
		"grows":            slices.Concat(greeting, update(size(0xffff, 0xffff))),
		"outside":          slices.Concat(greeting, update(rect(8, 0, 1, 1, encodeRaw, 0, 0, 0, 0))),
		"wraps":            slices.Concat(greeting, update(rect(0xffff, 0xffff, 0xffff, 0xffff, encodeRaw))),
		"rows of nothing":  slices.Concat(greeting, update(rect(0, 0, 0, 0xffff, encodeRaw))),
		"nothing outside":  slices.Concat(greeting, update(rect(0xffff, 0, 0, 1, encodeRaw))),
		"other encoding":   slices.Concat(greeting, update(rect(0, 0, 8, 4, 16, 0xff, 0xff, 0xff, 0xff))),
		"other message":    slices.Concat(greeting, []byte{0x50}),
		"clipboard bomb":   slices.Concat(greeting, []byte("\x03\x00\x00\x00\x7f\xff\xff\xff")),
		"clipboard below":  slices.Concat(greeting, []byte("\x03\x00\x00\x00\x80\x00\x00\x00")),
		"colours":          slices.Concat(greeting, []byte("\x01\x00\x00\x00\xff\xff")),
		"bells for ever":   slices.Concat(greeting, bytes.Repeat([]byte{2}, 1<<16)),
		"nothing for ever": slices.Concat(greeting, bytes.Repeat(update(), 1<<16)),
		"pixel by pixel":   slices.Concat(greeting, bytes.Repeat(update(raw), 1<<10)),
	} {
		if picture, err := watch(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v, %v", name, picture != nil, err)
		}
	}
}

func FuzzScreen(f *testing.F) {
	f.Add(slices.Concat(greeting, update(rect(0, 0, 8, 4, encodeRaw, make([]byte, 8*4*4)...))))
	f.Add(slices.Concat(greeting, update(rect(0, 0, 8, 4, encodeSize, make([]byte, 4+16)...))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if picture, err := watch(b); (picture == nil) == (err == nil) {
			t.Errorf("a picture: %v, and an error: %v", picture != nil, err)
		}
		queryPointer(&scriptedConn{Reader: bytes.NewReader(b)})
	})
}

// fakeSandbox is a sandbox whose screen is f. If f is nil, it has no screen.
type fakeSandbox struct {
	Verbs // nil
	f     func(net.Conn)
}

func (d fakeSandbox) DialPort(_ context.Context, _ string, port int) (net.Conn, error) {
	if port != hutch.ScreenPort || d.f == nil {
		return nil, hutch.Errorf(hutch.Unavailable, "nothing listens").Naming(hutch.AboutPort, port)
	}
	here, there := net.Pipe()
	go d.f(there)
	return here, nil
}

// bareSandbox is a sandbox without a screen, and without the program for one.
type bareSandbox struct {
	fakeSandbox
	started *int
}

func (d bareSandbox) Exec(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
	return hutch.ExecResult{ExitCode: 127}, nil
}

func (d bareSandbox) StartProcess(context.Context, string, hutch.ProcessRequest) (hutch.Process, error) {
	*d.started++
	return hutch.Process{}, errors.New("started")
}

// TestMissingProgram: if a sandbox lacks a program that screens need, the error says how to get the program, and no
// process is started.
func TestMissingProgram(t *testing.T) {
	started := 0
	bare := bareSandbox{started: &started}
	_, err := Of(bare, "s").Start(t.Context(), hutch.ScreenRequest{})
	if !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "apt-get install tigervnc-standalone-server") {
		t.Errorf("a screen: %v", err)
	}
	bare.f = func(c net.Conn) { c.Close() }
	if err := Of(bare, "s").WriteClipboard(t.Context(), "text"); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "xclip") {
		t.Errorf("a clipboard: %v", err)
	}
	if _, err := Of(bare, "s").Open(t.Context(), "https://example.com"); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "chromium") {
		t.Errorf("a browser: %v", err)
	}
	if started != 0 {
		t.Errorf("%d processes were started", started)
	}
}

// A call of a screen that sends nothing ends at its deadline, or when the call's context ends.
func TestSilentScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := Of(fakeSandbox{f: func(c net.Conn) { io.Copy(io.Discard, c) }}, "s")
		_, err := silent.Screenshot(t.Context(), hutch.ScreenshotRequest{})
		if !errors.Is(err, hutch.Timeout) {
			t.Errorf("a silent screen: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := silent.Screenshot(ctx, hutch.ScreenshotRequest{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that ends: %v", err)
		}
	})
}

// drawing is a screen of 8 × 4 pixels that draws the requested pixels, and counts them.
func drawing(pixels *atomic.Int64) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		c.Write(greeting[:12])
		io.CopyN(io.Discard, c, 12)
		c.Write(greeting[12:14])
		io.CopyN(io.Discard, c, 1)
		c.Write(greeting[14:18])
		io.CopyN(io.Discard, c, 1)
		c.Write(greeting[18:])
		io.CopyN(io.Discard, c, 20+4+3*4) // the format of pixels, and three encodings
		ask := make([]byte, 10)
		for {
			if _, err := io.ReadFull(c, ask); err != nil {
				return
			}
			v := func(i int) uint16 { return binary.BigEndian.Uint16(ask[2+2*i:]) }
			n := int(v(2)) * int(v(3))
			pixels.Add(int64(n))
			c.Write(update(rect(v(0), v(1), v(2), v(3), encodeRaw, make([]byte, 4*n)...)))
		}
	}
}

// A result has one picture. The other pictures of its request, up to 100 of a large screen, are not taken: they would
// cost memory and time.
func TestOnePictureIsTaken(t *testing.T) {
	t.Parallel()
	var pixels atomic.Int64
	res, err := Of(fakeSandbox{f: drawing(&pixels)}, "s").Control(t.Context(), hutch.ControlRequest{Actions: []hutch.ScreenAction{
		{Action: hutch.TakeScreenshot}, {Action: hutch.TakeScreenshot}, {Action: hutch.ZoomIn, Region: []int{0, 0, 3, 2}}, {Action: hutch.FindCursor},
	}})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := png.DecodeConfig(bytes.NewReader(res.Image))
	if err != nil || shown.Width != 3 || shown.Height != 2 || pixels.Load() != 3*2+1 { // and one pixel, whose arrival shows that all is done
		t.Errorf("%d × %d pixels of %d, %v", shown.Width, shown.Height, pixels.Load(), err)
	}
}

// A viewer without control can send only the messages that pictures need, in whatever pieces they come. Others are
// dropped.
func TestWatcher(t *testing.T) {
	t.Parallel()
	hello := []byte("RFB 003.008\n\x01\x00")
	format, encodings, ask := make([]byte, 20), []byte{2, 0, 0, 1, 0, 0, 0, 0}, []byte{3, 0, 0, 0, 0, 0, 0, 8, 0, 4}
	all := slices.Concat(hello, format, encodings,
		[]byte{4, 1, 0, 0, 0, 0, 0, 'a'}, []byte{5, 1, 0, 1, 0, 1}, []byte("\x06\x00\x00\x00\x00\x00\x00\x05paste"), []byte("\x06\x00\x00\x00\xff\xff\xff\xfePA"),
		ask, []byte{251, 0, 0, 1, 0, 1, 1, 0}, make([]byte, 16), []byte{255, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{250, 0, 1, 2}, ask)
	want := slices.Concat(hello[:13], []byte{1}, format, encodings, ask, ask)
	for _, piece := range []int{1, 3, 7, len(all)} {
		s := &scriptedConn{}
		w := &watcher{Conn: s}
		for part := range slices.Chunk(all, piece) {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatalf("in pieces of %d: %d, %v", piece, n, err)
			}
		}
		if got := s.written.Bytes(); !bytes.Equal(got, want) {
			t.Errorf("in pieces of %d: %q, not %q", piece, got, want)
		}
	}
	for name, b := range map[string][]byte{
		"old version": []byte("RFB 003.003\n\x01\x01"), "tls": []byte("RFB 003.008\n\x13\x01"), "unknown": slices.Concat(hello, []byte{99}), "audio": slices.Concat(hello, []byte{255, 1}),
		"extended pointer": slices.Concat(hello, []byte{5, 0x80, 0, 1, 0, 1, 2, 0, 0, 0}),
	} {
		if _, err := (&watcher{Conn: &scriptedConn{}}).Write(b); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server answers each part of the handshake before the viewer says the next, so no part waits for another.
func TestWatcherPassesEachPartOfTheHandshake(t *testing.T) {
	t.Parallel()
	s := &scriptedConn{}
	w, want := &watcher{Conn: s}, ""
	for _, part := range []string{"RFB 003.008\n", "\x01", "\x01"} {
		want += part
		if _, err := w.Write([]byte(part)); err != nil || s.written.String() != want {
			t.Errorf("after %q the server heard %q, %v", want, s.written.String(), err)
		}
	}
}

func FuzzWatcher(f *testing.F) {
	f.Add([]byte("RFB 003.008\n\x01\x01\x03\x00\x00\x00\x00\x00\x00\x08\x00\x04"))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, pieces := &scriptedConn{}, &scriptedConn{}
		_, err := (&watcher{Conn: whole}).Write(b)
		w := &watcher{Conn: pieces}
		var bad error
		for i := range b {
			if _, bad = w.Write(b[i : i+1]); bad != nil {
				break
			}
		}
		if (err == nil) != (bad == nil) || err == nil && !bytes.Equal(whole.written.Bytes(), pieces.written.Bytes()) {
			t.Errorf("as a whole %v %q, in pieces %v %q", err, whole.written.Bytes(), bad, pieces.written.Bytes())
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][][]uint32{
		"Return": {{0xff0d}}, "ctrl+shift+t": {{0xffe3, 0xffe1, 't'}}, "Down Down": {{0xff54}, {0xff54}}, "+": {{'+'}}, "ctrl++": {{0xffe3, '+'}},
		"F12": {{0xffc9}}, "é": {{0xe9}}, "€": {{0x010020ac}}, " ": {{' '}}, "PAGE_DOWN": {{0xff56}},
	} {
		if got, err := chords(text); err != nil || !slices.EqualFunc(got, want, slices.Equal[[]uint32]) {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
	for _, text := range []string{"nonsense", "ctrl+", "+a", "F25", "F0", "a+b+nonsense"} {
		if got, err := chords(text); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
}
