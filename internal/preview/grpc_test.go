package preview

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"hutch/internal/listen"
)

// openCalls serves previews of a server that speaks HTTP/2.
func openCalls(t *testing.T, serve http.HandlerFunc) *bed {
	t.Helper()
	b := open(t, nil, nil)
	server := httptest.NewUnstartedServer(serve)
	server.Config.Protocols = listen.Protocols()
	server.Start()
	t.Cleanup(server.Close)
	b.addr = server.Listener.Addr().String()
	return b
}

// grpcClient is a client that speaks HTTP/2 without TLS.
func grpcClient(t *testing.T) *http.Transport {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// begin makes a gRPC call to a label.
func (b *bed) begin(ctx context.Context, transport *http.Transport, label string, body io.Reader, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", b.URL+"/service/Method", body)
	if err != nil {
		return nil, err
	}
	req.Host = label + ".localhost"
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return transport.RoundTrip(req)
}

// Requests that are not gRPC calls reach the server by HTTP/1.1, however they arrived.
func TestWhatIsACall(t *testing.T) {
	b := openCalls(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	for typ, want := range map[string]string{
		"application/grpc": "HTTP/2.0", "application/grpc+proto": "HTTP/2.0", "application/grpc;a=b": "HTTP/2.0",
		"application/grpc-web": "HTTP/1.1", "application/grpc-web+proto": "HTTP/1.1", "application/json": "HTTP/1.1",
	} {
		resp, err := b.begin(t.Context(), grpcClient(t), public, nil, "Content-Type", typ)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(text) != want || resp.ProtoMajor != 2 {
			t.Errorf("%s went in by %s, and came back by %s", typ, text, resp.Proto)
		}
	}
	if _, text := b.ask(t, "POST", public, "/", nil, "Content-Type", "application/grpc"); text != "HTTP/1.1" {
		t.Errorf("a client without HTTP/2 got in by %s", text)
	}
}

// A caller can leave at the moment when the answer begins. The race detector checks this.
func TestCallLeftAsItsAnswerBegins(t *testing.T) {
	b := openCalls(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return net.Dial("tcp", b.addr) }
	transport := newCallTransport(&http.Transport{DialContext: dial})
	t.Cleanup(transport.CloseIdleConnections)
	answers := 0
	for range 200 {
		ctx, leave := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { go leave() }})
		req, err := http.NewRequestWithContext(ctx, "POST", "http://inside/service/Method", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			answers++
			resp.Body.Close()
		}
		leave()
	}
	if answers == 0 {
		t.Error("no call had an answer to leave")
	}
}

func TestRefusedCalls(t *testing.T) {
	b := open(t, nil, nil)
	for label, want := range map[string]string{public: "14", private: "16", "8000-box-none": "5"} {
		resp, err := b.begin(t.Context(), grpcClient(t), label, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != want || resp.Header.Get("Grpc-Message") == "" {
			t.Errorf("%s: %d %v", label, resp.StatusCode, resp.Header)
		}
	}
	if got := callText("a %\n☺"); got != "a %25%0A%E2%98%BA" {
		t.Errorf("a message is written %q", got)
	}
}

func TestCallsAreBounded(t *testing.T) {
	b := openCalls(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxCalls {
		b.handler.calls.begin(public)
	}
	resp, err := b.begin(ctx, grpcClient(t), public, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Grpc-Status") != "8" {
		t.Errorf("the call after %d: %v", maxCalls, resp.Header)
	}
	b.handler.calls.end(public)
	if resp, err = b.begin(ctx, grpcClient(t), public, nil); err != nil || resp.Header.Get("Grpc-Status") != "" {
		t.Errorf("when one has ended: %v %v", resp, err)
	}
	cancel()
	resp.Body.Close()
	for range maxCalls - 1 {
		b.handler.calls.end(public)
	}
	b.untilNoCalls(t)
}

// untilNoCalls waits until no call is in progress.
func (b *bed) untilNoCalls(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		b.handler.calls.mu.Lock()
		n := len(b.handler.calls.of)
		b.handler.calls.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("a call continues without its caller")
		}
	}
}

// If one side does not read, the other side waits, and the memory of this process does not grow.
func TestCallsAreHeldBack(t *testing.T) {
	const most = 8 << 20
	sent := make(chan int, 1)
	t.Run("by the caller", func(t *testing.T) {
		b := openCalls(t, func(w http.ResponseWriter, r *http.Request) { sent <- flood(w, r.Context()) })
		resp, err := b.begin(t.Context(), grpcClient(t), public, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.countHeld(t)
		resp.Body.Close()
		if n := <-sent; n > most {
			t.Errorf("%d MiB were taken for a caller that read none", n>>20)
		}
		b.untilNoCalls(t)
	})
	t.Run("by the server", func(t *testing.T) {
		b := openCalls(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		pr, pw := io.Pipe()
		resp, err := b.begin(t.Context(), grpcClient(t), public, pr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		go func() { sent <- flood(pw, t.Context()) }()
		b.countHeld(t)
		b.cut() // while neither side can continue
		b.untilNoCalls(t)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Trailer.Get("Grpc-Status") != "5" {
			t.Errorf("a call that is cut ends with %v, %v", resp.Trailer, err)
		}
		resp.Body.Close()
		pr.Close()
		if n := <-sent; n > most {
			t.Errorf("%d MiB were taken for a server that read none", n>>20)
		}
	})
}

// A server can end a call before its caller has sent everything.
func TestCallsEndEarly(t *testing.T) {
	b := openCalls(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Write(make([]byte, 5))
		w.Header().Set("Grpc-Status", "9")
	})
	pr, pw := io.Pipe()
	defer pw.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := b.begin(ctx, grpcClient(t), public, pr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || len(text) != 5 || resp.Trailer.Get("Grpc-Status") != "9" {
		t.Errorf("%q, then %v, %v", text, resp.Trailer, err)
	}
	b.untilNoCalls(t)
}

// flood writes until that fails, and returns how much it wrote.
func flood(w io.Writer, ctx context.Context) (total int) {
	for piece := make([]byte, 64<<10); ctx.Err() == nil && total < 1<<30; {
		n, err := w.Write(piece)
		if total += n; err != nil {
			break
		}
	}
	return total
}

// countHeld waits as long as an unbounded flood needs to become large.
func (b *bed) countHeld(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(500 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// peer is a misbehaving HTTP/2 server.
type peer struct {
	*http2.Framer
	conn net.Conn
	head bytes.Buffer
	enc  *hpack.Encoder
}

// fields returns headers in encoded form.
func (p *peer) fields(pairs ...string) []byte {
	p.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	return p.head.Bytes()
}

func (p *peer) begin(stream uint32) {
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: p.fields(":status", "200", "content-type", "application/grpc")})
}

// endless sends a block of headers that never ends.
func (p *peer) endless(stream uint32, end bool, fields ...string) {
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, BlockFragment: p.fields(fields...)})
	for piece := bytes.Clone(p.fields("x", strings.Repeat("a", 8000))); p.WriteContinuation(stream, false, piece) == nil; {
	}
}

// hostile serves HTTP/2 by hand; serve answers each stream.
func hostile(t *testing.T, serve func(p *peer, stream uint32)) string {
	return served(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		r.Discard(len(http2.ClientPreface))
		p := &peer{Framer: http2.NewFramer(conn, r), conn: conn}
		p.enc = hpack.NewEncoder(&p.head)
		p.WriteSettings()
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				go io.Copy(io.Discard, r)
				serve(p, h.StreamID)
				return
			}
		}
	})
}

// TestHostileCallees uses servers that violate HTTP/2 in every way. None of their calls succeeds, and all of them
// end: by themselves or, if a server is allowed to be slow, with their caller.
func TestHostileCallees(t *testing.T) {
	forever := func(do func(p *peer, stream uint32) error) func(*peer, uint32) {
		return func(p *peer, stream uint32) {
			for do(p, stream) == nil {
			}
		}
	}
	for name, test := range map[string]struct {
		serve func(p *peer, stream uint32)
		waits bool // the call ends only when its caller ends it
	}{
		"says nothing":            {func(p *peer, _ uint32) { io.Copy(io.Discard, p.conn) }, true},
		"closes":                  {func(*peer, uint32) {}, false},
		"is no HTTP/2":            {func(p *peer, _ uint32) { io.WriteString(p.conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }, false},
		"never ends its head":     {func(p *peer, stream uint32) { p.endless(stream, false, ":status", "200") }, false},
		"never ends its trailers": {func(p *peer, stream uint32) { p.begin(stream); p.endless(stream, true, "grpc-status", "0") }, false},
		"promises for ever": {forever(func(p *peer, stream uint32) error {
			return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: p.fields(":status", "103", "link", strings.Repeat("a", 1000))})
		}), false},
		"has two heads": {func(p *peer, stream uint32) {
			p.begin(stream)
			p.begin(stream)
			io.Copy(io.Discard, p.conn)
		}, false},
		"sends more than there is room for": {forever(func(p *peer, stream uint32) error {
			p.begin(stream)
			for p.WriteData(stream, false, make([]byte, 16<<10)) == nil {
			}
			return io.EOF
		}), false},
		"resets": {func(p *peer, stream uint32) {
			p.WriteRSTStream(stream, http2.ErrCodeInternal)
			io.Copy(io.Discard, p.conn)
		}, false},
		"says go away for ever":     {forever(func(p *peer, stream uint32) error { return p.WriteGoAway(stream, 0, make([]byte, 8000)) }), true},
		"sends who comes away":      {func(p *peer, stream uint32) { p.WriteGoAway(0, 0, nil) }, false},
		"asks for pings for ever":   {forever(func(p *peer, _ uint32) error { return p.WritePing(false, [8]byte{}) }), true},
		"sets itself up for ever":   {forever(func(p *peer, _ uint32) error { return p.WriteSettings() }), true},
		"opens windows for ever":    {forever(func(p *peer, _ uint32) error { return p.WriteWindowUpdate(0, 1<<31-1) }), false},
		"sends nothing for ever":    {forever(func(p *peer, stream uint32) error { return p.WriteData(stream, false, nil) }), false},
		"answers what nobody asked": {forever(func(p *peer, stream uint32) error { return p.WritePing(true, [8]byte{}) }), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, nil, nil)
			b.addr = hostile(t, test.serve)
			limit := time.Minute
			if test.waits {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			pr, pw := io.Pipe() // a stream from the caller that stays open
			defer pw.Close()
			resp, err := b.begin(ctx, grpcClient(t), public, pr)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if status := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); err == nil && (status == "" || status == "0") {
					t.Errorf("a success: %v, then %v", resp.Header, resp.Trailer)
				}
			}
			if late := ctx.Err() != nil; late && !test.waits {
				t.Errorf("it did not end by itself: %v", err)
			}
			cancel()
			b.untilNoCalls(t)
		})
	}
}

func TestDeadlinesOfCalls(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5S": 5 * time.Second, "2H": 2 * time.Hour, "250m": 250 * time.Millisecond,
		"": 0, "S": 0, "12": 0, "-1S": 0, "1.5S": 0, "99999999H": 0,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Grpc-Timeout", text)
		synctest.Test(t, func(t *testing.T) {
			at := deadlineOf(r)
			if at.IsZero() != (want == 0) || want > 0 && time.Until(at) != want {
				t.Errorf("%q ends at %v", text, at)
			}
		})
	}
}
