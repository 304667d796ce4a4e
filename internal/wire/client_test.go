package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
)

// peer is an agent's end of a connection, played by a test.
type peer struct {
	net.Conn
	r *Reader
	*Writer
}

func newPeer(c net.Conn) *peer { return &peer{c, NewReader(c, MaxRequest), NewWriter(c)} }

// Write sends a frame. It hides the connection's Write.
func (p *peer) Write(t Type, payload []byte) error { return p.Writer.Write(t, payload) }

func (p *peer) send(t Type, payload string) error { return p.Write(t, []byte(payload)) }

// hello accepts the daemon.
func (p *peer) hello() *peer {
	_, payload, _ := p.r.Next()
	var h Hello
	json.Unmarshal(payload, &h)
	p.WriteJSON(TypeWelcome, welcome("token", h.Nonce))
	p.r.Next() // the daemon's proof
	return p
}

// welcome is the answer of an agent that knows the token.
func welcome(token string, nonce []byte) Welcome {
	n := Nonces{Daemon: nonce, Agent: NewNonce()}
	return Welcome{Version: Version, Nonce: n.Agent, Proof: n.Proof(token, AgentSide)}
}

// knownNonce is the nonce for agents that send everything in advance.
func knownNonce() []byte { return make([]byte, nonceSize) }

// request reads the next request.
func (p *peer) request() (req Request, err error) {
	t, payload, err := p.r.Next()
	if err == nil && t != TypeRequest {
		err = fmt.Errorf("frame %q", t)
	}
	if err == nil {
		err = json.Unmarshal(payload, &req)
	}
	return req, err
}

func (p *peer) started() { p.WriteJSON(TypeStarted, Process{ID: "x"}) }

func (p *peer) exit(code int, cursor int64) {
	state := hutch.ProcessExited
	if code != 0 {
		state = hutch.ProcessFailed
	}
	p.WriteJSON(TypeExit, Exit{State: state, Code: code, Cursor: cursor})
}

// honest answers requests as an agent does. A process with stdin copies its stdin; any other prints its request.
func (p *peer) honest() {
	p.hello()
	for {
		req, err := p.request()
		if err != nil {
			return
		}
		switch {
		case req.Op == "ping":
			p.WriteJSON(TypeReply, Stats{Live: 1, Processes: 2})
		case req.Op == "list":
			p.WriteJSON(TypeReply, []Process{{ID: "a"}, {ID: "b"}})
		case req.Op == "signal":
			p.WriteJSON(TypeError, Failure{Kind: hutch.NotFound, Message: "no such process"})
		case req.Start != nil && req.Start.Detach:
			p.WriteJSON(TypeReply, Process{ID: req.Start.ID, Status: hutch.ProcessRunning, PID: 7})
		case req.Start != nil && req.Start.Stdin:
			p.started()
			p.exit(0, p.echo())
		default:
			p.started()
			out := fmt.Sprintf("%+v", req)
			p.WriteOutput(TypeStdout, int64(len(out)), []byte(out))
			p.exit(3, int64(len(out)))
		}
	}
}

// echo sends stdin back, and confirms it.
func (p *peer) echo() (cursor int64) {
	for {
		t, payload, err := p.r.Next()
		if err != nil || t == TypeStdinEnd {
			return cursor
		}
		cursor += int64(len(payload))
		p.WriteOutput(TypeStdout, cursor, payload)
		p.WriteCount(TypeWindow, cursor)
	}
}

// agent returns a client of an agent that plays script on every connection,
// over real sockets, and the number of connections.
func agent(t testing.TB, script func(*peer)) (*Client, *atomic.Int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var dialed atomic.Int32
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			dialed.Add(1)
			wg.Go(func() { defer c.Close(); script(newPeer(c)) })
		}
	})
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}, "token")
	t.Cleanup(func() { c.Close(); ln.Close(); wg.Wait() })
	return c, &dialed
}

// pipeAgent does the same as agent, without sockets, for tests with fake time.
func pipeAgent(t *testing.T, script func(*peer)) *Client {
	t.Helper()
	c := NewClient(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { defer theirs.Close(); script(newPeer(theirs)) }()
		return ours, nil
	}, "token")
	t.Cleanup(c.Close)
	return c
}

func collect(into *bytes.Buffer) func(hutch.Output) error {
	return func(o hutch.Output) error { into.Write(o.Data); return nil }
}

func TestRequests(t *testing.T) {
	t.Parallel()
	c, dialed := agent(t, (*peer).honest)
	ctx := t.Context()
	if s, err := c.Ping(ctx); s != (Stats{1, 2}) || err != nil {
		t.Errorf("ping: %v, %v", s, err)
	}
	if ps, err := c.List(ctx); len(ps) != 2 || err != nil {
		t.Errorf("list: %v, %v", ps, err)
	}
	if err := c.Signal(ctx, "p", 9); !errors.Is(err, hutch.NotFound) || err.Error() != "no such process" {
		t.Errorf("signal: %v", err)
	}
	if p, err := c.Start(ctx, Start{ID: "p", Command: "x"}); p.ID != "p" || p.PID != 7 || err != nil {
		t.Errorf("start: %v, %v", p, err)
	}
	var out bytes.Buffer
	if x, err := c.Run(ctx, Start{ID: "r", Command: "x", TimeoutMS: 1000}, nil, collect(&out)); x.Code != 3 || x.Cursor != int64(out.Len()) || err != nil {
		t.Errorf("run: %v, %v", x, err)
	}
	if x, err := c.Attach(ctx, Attach{Process: "p", Cursor: 0}, nil); x.Code != 3 || err != nil {
		t.Errorf("attach: %v, %v", x, err)
	}
	if n := dialed.Load(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	c, dialed := agent(t, (*peer).honest)
	in := bytes.Repeat([]byte("0123456789abcdef"), 4*StdinWindow/16)
	for range 3 {
		var out bytes.Buffer
		x, err := c.Run(t.Context(), Start{ID: "r", Argv: []string{"echo"}, Stdin: true}, bytes.NewReader(in), collect(&out))
		if err != nil || x.Code != 0 || !bytes.Equal(out.Bytes(), in) {
			t.Fatalf("%v, %v: %d bytes of %d", x, err, out.Len(), len(in))
		}
	}
	if n := dialed.Load(); n > 3 {
		t.Errorf("%d connections", n)
	}
}

func TestStdinStaysInItsWindow(t *testing.T) {
	t.Parallel()
	got := make(chan int, 1)
	full := make(chan struct{})
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		n := 0
		for n <= StdinWindow-32<<10 { // input that must arrive without a confirmation
			_, payload, err := p.r.Next()
			if err != nil {
				break
			}
			n += len(payload)
		}
		close(full)
		p.exit(0, 0)
		for {
			_, payload, err := p.r.Next()
			if n += len(payload); err != nil {
				break
			}
		}
		got <- n
	})
	x, err := c.Run(t.Context(), Start{ID: "r", Command: "x", Stdin: true}, endless{}, nil)
	if err != nil || x.Code != 0 {
		t.Fatal(x, err)
	}
	<-full
	if n := <-got; n > StdinWindow {
		t.Errorf("%d bytes under way", n)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// A stdin that fails must not look complete to the program.
func TestStdinThatFails(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		for {
			ty, _, err := p.r.Next()
			if err != nil {
				ended <- nil
				return
			}
			if ty == TypeStdinEnd {
				ended <- errors.New("told that stdin has ended")
			}
		}
	})
	broke := errors.New("upload broke off")
	_, err := c.Run(t.Context(), Start{ID: "r", Command: "x", Stdin: true}, io.MultiReader(strings.NewReader("half"), fails{broke}), nil)
	if !errors.Is(err, broke) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type fails struct{ error }

func (f fails) Read([]byte) (int, error) { return 0, f.error }

// The program can end during a read of stdin that blocks, and that nothing can interrupt.
func TestStdinThatBlocks(t *testing.T) {
	t.Parallel()
	c, dialed := agent(t, func(p *peer) {
		p.hello()
		for {
			if _, err := p.request(); err != nil {
				return
			}
			p.started()
			p.exit(0, 0)
		}
	})
	in, w := io.Pipe()
	defer w.Close()
	for range 2 {
		if _, err := c.Run(t.Context(), Start{ID: "r", Command: "x", Stdin: true}, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := dialed.Load(); n != 2 {
		t.Errorf("%d connections: one whose stdin may still be written is not free", n)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	hungUp := make(chan error, 1)
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		p.WriteOutput(TypeStdout, 1, []byte("x"))
		_, _, err := p.r.Next()
		hungUp <- err
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the caller left")
	_, err := c.Run(ctx, Start{ID: "r", Command: "x"}, nil, func(hutch.Output) error { cancel(why); return nil })
	if err != why {
		t.Errorf("got %v", err)
	}
	if err := <-hungUp; err != io.EOF {
		t.Errorf("the agent sees %v", err)
	}
}

func TestOutputFunctionThatFails(t *testing.T) {
	t.Parallel()
	hungUp := make(chan error, 1)
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		p.WriteOutput(TypeStdout, 1, []byte("x"))
		_, _, err := p.r.Next()
		hungUp <- err
	})
	why := errors.New("nobody reads this")
	if _, err := c.Run(t.Context(), Start{ID: "r", Command: "x"}, nil, func(hutch.Output) error { return why }); err != why {
		t.Errorf("got %v", err)
	}
	<-hungUp
}

func TestDeadIdleConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	var old sync.Map
	c, dialed := agent(t, func(p *peer) {
		old.Store(p, true)
		p.honest()
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { c.Ping(t.Context()) })
	}
	wg.Wait()
	before := dialed.Load()
	old.Range(func(p, _ any) bool { p.(*peer).Close(); return true })
	if _, err := c.Ping(t.Context()); err != nil || dialed.Load() != before+1 {
		t.Errorf("%v after %d new connections", err, dialed.Load()-before)
	}
}

func TestConnectionsInParallel(t *testing.T) {
	t.Parallel()
	var here atomic.Int32
	all := make(chan struct{})
	c, _ := agent(t, func(p *peer) {
		p.hello()
		for {
			if _, err := p.request(); err != nil {
				return
			}
			if here.Add(1) == 40 {
				close(all)
			}
			<-all
			p.WriteJSON(TypeReply, Stats{})
		}
	})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, err := c.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(c.idle); n > maxIdle {
		t.Errorf("%d connections are kept", n)
	}
}

func TestIdleConnectionsKeepLittleMemory(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) {
		p.hello()
		for {
			if _, err := p.request(); err != nil {
				return
			}
			p.started()
			p.WriteOutput(TypeStdout, MaxReply-8, make([]byte, MaxReply-8))
			p.exit(0, MaxReply-8)
		}
	})
	if _, err := c.Run(t.Context(), Start{ID: "r", Argv: []string{"x"}, Source: strings.Repeat("x", hutch.MaxCommand)}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(c.idle) != 1 {
		t.Fatalf("%d idle", len(c.idle))
	}
	if cn := c.idle[0]; cap(cn.r.buf) > maxSpare || cap(cn.w.buf) > maxSpare {
		t.Errorf("kept %d and %d bytes", cap(cn.r.buf), cap(cn.w.buf))
	}
}

// A connection that is accepted and then forgotten delays its request by seconds; an agent that forgets all of them
// counts as gone.
func TestConnectionsNobodyWelcomes(t *testing.T) {
	for silent, want := range map[int]time.Duration{1: welcomeTime, 2: 3 * welcomeTime, 100: replyTime} {
		synctest.Test(t, func(t *testing.T) {
			dials, deaf := 0, []net.Conn{}
			c := NewClient(func(context.Context) (net.Conn, error) {
				near, far := net.Pipe()
				if dials++; dials > silent {
					go newPeer(far).honest()
				} else {
					deaf = append(deaf, far)
				}
				return near, nil
			}, "token")
			defer c.Close()
			begin := time.Now()
			_, err := c.Ping(t.Context())
			if took := time.Since(begin); took != want || (err == nil) != (silent < 100) {
				t.Errorf("%d silent connections of %d: %v after %v, not %v", min(silent, dials), dials, err, took, want)
			}
			if err != nil && !errors.Is(err, hutch.Unavailable) {
				t.Error(err)
			}
			for _, far := range deaf {
				if _, err := far.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("a connection that was given up is open: %v", err)
				}
			}
		})
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, (*peer).honest)
	if _, err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.Ping(t.Context()); !errors.Is(err, hutch.Unavailable) || len(c.idle) != 0 {
		t.Errorf("%v, %d idle", err, len(c.idle))
	}
}

func TestRequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	c, dialed := agent(t, (*peer).honest)
	if _, err := c.Run(t.Context(), Start{ID: "r", Command: strings.Repeat("x", MaxRequest)}, nil, nil); !errors.Is(err, hutch.Invalid) {
		t.Errorf("got %v", err)
	}
	if dialed.Load() != 0 {
		t.Error("it was dialed for")
	}
}

func TestGapsAreTold(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		p.WriteCount(TypeGap, 90)
		p.WriteOutput(TypeStdout, 105, []byte("01234"))
		p.WriteOutput(TypeStderr, 108, []byte("567"))
		p.WriteOutput(TypeStderr, 120, []byte("9"))
		p.exit(0, 130)
	})
	var got []string
	x, err := c.Attach(t.Context(), Attach{Process: "p", Cursor: 10}, func(o hutch.Output) error {
		got = append(got, fmt.Sprintf("%s %s at %d lost %d", o.Stream, o.Data, o.Cursor, o.Lost))
		return nil
	})
	want := "stdout 01234 at 105 lost 90; stderr 567 at 108 lost 0; stderr 9 at 120 lost 11"
	if strings.Join(got, "; ") != want || err != nil || x.Cursor != 130 {
		t.Errorf("%v, %v, %v", got, x, err)
	}
}

// The agent is not to blame for a slow reader.
func TestSlowReaderOutlivesTheTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeAgent(t, func(p *peer) {
			p.hello().request()
			p.started()
			for i := range int64(10) {
				p.WriteOutput(TypeStdout, i+1, []byte("x"))
			}
			p.WriteJSON(TypeExit, Exit{State: hutch.ProcessFailed, Code: 137, Signal: 9, TimedOut: true, Cursor: 10})
			p.r.Next()
		})
		n := 0
		x, err := c.Run(t.Context(), Start{ID: "r", Command: "x", TimeoutMS: 1000}, nil, func(hutch.Output) error {
			n++
			time.Sleep(time.Minute)
			return nil
		})
		if n != 10 || !x.TimedOut || err != nil {
			t.Errorf("%d outputs, %v, %v", n, x, err)
		}
	})
}

// The times of output come only if they were requested, and an agent that is too old for them sends none.
func TestTimesOfOutput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked bool
		ms    int64 // -1: none is sent
		want  time.Time
		bad   bool
	}{
		{true, 1790000000123, time.UnixMilli(1790000000123), false}, {true, -1, time.Time{}, false},
		{true, lastMS + 1, time.Time{}, true}, {false, 5, time.Time{}, true},
	} {
		client, _ := agent(t, func(p *peer) {
			p.hello().request()
			p.started()
			if c.ms >= 0 {
				p.WriteCount(TypeTime, c.ms)
			}
			p.WriteOutput(TypeStdout, 50, []byte("x"))
			p.exit(0, 50)
		})
		var got []hutch.Output
		_, err := client.Attach(t.Context(), Attach{Process: "p", SinceMS: 1, Times: c.asked}, func(o hutch.Output) error {
			got = append(got, o)
			return nil
		})
		if c.bad != (err != nil) || !c.bad && (len(got) != 1 || !got[0].Time.Equal(c.want) || got[0].Lost != 0) {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}
