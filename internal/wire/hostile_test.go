package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"hutch"
)

// everyRequest makes each kind of request.
func everyRequest(ctx context.Context, c *Client) map[string]error {
	start := Start{ID: "r", Command: "x", TimeoutMS: 1000}
	withStdin := start
	withStdin.Stdin = true
	errs := map[string]error{}
	_, errs["ping"] = c.Ping(ctx)
	_, errs["list"] = c.List(ctx)
	errs["signal"] = c.Signal(ctx, "p", 9)
	_, errs["start"] = c.Start(ctx, start)
	_, errs["run"] = c.Run(ctx, start, nil, nil)
	_, errs["run with stdin"] = c.Run(ctx, withStdin, strings.NewReader("in"), nil)
	_, errs["attach"] = c.Attach(ctx, Attach{Process: "p"}, nil)
	return errs
}

// Whatever an agent sends instead of an answer, the request ends with an error that says so.
func TestGarbageInsteadOfAnAnswer(t *testing.T) {
	t.Parallel()
	frame := func(ty Type, payload string) string {
		var b bytes.Buffer
		NewWriter(&b).Write(ty, []byte(payload))
		return b.String()
	}
	for name, garbage := range map[string]string{
		"nothing":          "",
		"noise":            "\x17\x03\x03 GET / HTTP/1.1\r\n\r\n",
		"a huge length":    "r\xff\xff\xff\xff",
		"half a header":    "r\x00\x00",
		"half a frame":     "r\x00\x00\x00\x09{}",
		"no JSON":          frame(TypeReply, "{"),
		"another JSON":     frame(TypeReply, `"text"`),
		"a deep JSON":      frame(TypeReply, strings.Repeat("[", 1<<19)),
		"a welcome":        frame(TypeWelcome, `{"version":1}`),
		"a request":        frame(TypeRequest, `{"op":"ping"}`),
		"an exit":          frame(TypeExit, `{"state":"exited"}`),
		"no type":          frame(0, ""),
		"an error of none": frame(TypeError, "no JSON"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := agent(t, func(p *peer) {
				p.hello().request()
				io.WriteString(p.Conn, garbage)
			})
			for request, err := range everyRequest(t.Context(), c) {
				if !errors.Is(err, hutch.Unavailable) {
					t.Errorf("%s: %v", request, err)
				}
			}
		})
	}
}

func TestGarbageInsteadOfAWelcome(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(*peer){
		"closes":        func(p *peer) {},
		"no JSON":       func(p *peer) { p.send(TypeWelcome, "{") },
		"another frame": func(p *peer) { p.send(TypeReply, "{}") },
		"echoes":        func(p *peer) { io.Copy(p.Conn, p.Conn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := agent(t, script)
			if _, err := c.Ping(t.Context()); !errors.Is(err, hutch.Unavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An agent of another version is reported as such, whatever it answers to the hello. An agent of this version with
// another token is not.
func TestAgentOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script   func(*peer)
		outdated bool
	}{
		"a later one": {func(p *peer) { p.WriteJSON(TypeWelcome, Welcome{Version: Version + 1}) }, true},
		"the first": {func(p *peer) {
			p.WriteJSON(TypeError, Failure{Kind: hutch.Denied, Message: "the agent does not know this token"})
		}, true},
		"another token": {func(p *peer) { p.WriteJSON(TypeWelcome, welcome("other", NewNonce())) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, _ := agent(t, func(p *peer) {
				p.r.Next() // the hello: an agent that closes the connection earlier breaks it
				c.script(p)
			})
			_, err := client.Ping(t.Context())
			if errors.Is(err, ErrOutdated) != c.outdated || errors.Is(err, hutch.Unsupported) != c.outdated {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An impostor that does not know the token learns nothing about requests, and none of its answers is accepted.
func TestImpostor(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(h Hello) Welcome{
		"no proof": func(Hello) Welcome { return Welcome{Version: Version, Nonce: NewNonce()} },
		"no nonce": func(h Hello) Welcome {
			return Welcome{Version: Version, Proof: Nonces{Daemon: h.Nonce}.Proof("token", AgentSide)}
		},
		"another token":      func(h Hello) Welcome { return welcome("other", h.Nonce) },
		"another connection": func(Hello) Welcome { return welcome("token", NewNonce()) },
		"the daemon's words": func(h Hello) Welcome {
			n := Nonces{Daemon: h.Nonce, Agent: h.Nonce}
			return Welcome{Version: Version, Nonce: h.Nonce, Proof: n.Proof("token", DaemonSide)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan string, 10)
			c, _ := agent(t, func(p *peer) {
				_, payload, _ := p.r.Next()
				var h Hello
				json.Unmarshal(payload, &h)
				p.WriteJSON(TypeWelcome, answer(h))
				p.WriteJSON(TypeReply, Stats{Live: 7})
				rest, _ := io.ReadAll(p.r.r)
				heard <- string(payload) + string(rest)
			})
			if s, err := c.Ping(t.Context()); !errors.Is(err, hutch.Denied) {
				t.Errorf("%+v, %v", s, err)
			}
			if said := <-heard; strings.Contains(said, "token") || strings.Contains(said, "ping") || strings.Contains(said, "\x00P") {
				t.Errorf("it heard %q", said)
			}
		})
	}
}

func TestLiesInAStream(t *testing.T) {
	t.Parallel()
	number := func(n uint64, data string) string { return string(binary.BigEndian.AppendUint64(nil, n)) + data }
	for name, script := range map[string]func(*peer){
		"cursor goes back":          func(p *peer) { p.send(TypeStdout, number(10, "x")); p.send(TypeStdout, number(10, "x")) },
		"cursor before the data":    func(p *peer) { p.send(TypeStdout, number(2, "three")) },
		"cursor is negative":        func(p *peer) { p.send(TypeStdout, number(1<<63, "x")) },
		"output without cursor":     func(p *peer) { p.send(TypeStderr, "x") },
		"gap is negative":           func(p *peer) { p.send(TypeGap, number(1<<63, "")) },
		"gap without number":        func(p *peer) { p.send(TypeGap, "") },
		"window is short":           func(p *peer) { p.send(TypeWindow, "1") },
		"started twice":             func(p *peer) { p.started() },
		"a reply":                   func(p *peer) { p.send(TypeReply, "{}") },
		"exit is no JSON":           func(p *peer) { p.send(TypeExit, "0") },
		"exit code out of range":    func(p *peer) { p.send(TypeExit, `{"state":"failed","code":256}`) },
		"exit code is negative":     func(p *peer) { p.send(TypeExit, `{"state":"failed","code":-1}`) },
		"exit signal out of range":  func(p *peer) { p.send(TypeExit, `{"state":"failed","signal":65}`) },
		"exit without state":        func(p *peer) { p.send(TypeExit, `{}`) },
		"exit in a state of no one": func(p *peer) { p.send(TypeExit, `{"state":"destroyed"}`) },
		"exit before the output":    func(p *peer) { p.send(TypeStdout, number(10, "x")); p.send(TypeExit, `{"state":"exited","cursor":9}`) },
		"exit far behind it":        func(p *peer) { p.send(TypeExit, `{"state":"exited","cursor":9223372036854775807}`) },
		"closes in the middle":      func(p *peer) { p.send(TypeStdout, number(1, "x")); io.WriteString(p.Conn, "1\x00\x00") },
		"closes":                    func(p *peer) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := agent(t, func(p *peer) {
				p.hello().request()
				p.started()
				script(p)
			})
			if x, err := c.Run(t.Context(), Start{ID: "r", Command: "x", TimeoutMS: 1000}, nil, nil); !errors.Is(err, hutch.Unavailable) {
				t.Errorf("run: %v, %v", x, err)
			}
			if x, err := c.Attach(t.Context(), Attach{Process: "p", Follow: true}, nil); !errors.Is(err, hutch.Unavailable) {
				t.Errorf("attach: %v, %v", x, err)
			}
		})
	}
}

func TestProcessThatRunsOnIsNoExitOfARun(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		p.WriteJSON(TypeExit, Exit{State: hutch.ProcessRunning})
	})
	if _, err := c.Run(t.Context(), Start{ID: "r", Command: "x"}, nil, nil); !errors.Is(err, hutch.Unavailable) {
		t.Errorf("run: %v", err)
	}
	if x, err := c.Attach(t.Context(), Attach{Process: "p"}, nil); err != nil || x.State != hutch.ProcessRunning {
		t.Errorf("attach: %v, %v", x, err)
	}
}

func TestNumbersOfRecords(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		`{"live":-1}`, `{"processes":-1}`, `{"live":1e99}`, `{"pid":-1}`, `{"restarts":-1}`, `{"startMs":-1}`,
		`{"startMs":253402300800000}`, `{"endMs":9223372036854775807}`, `{"exitCode":-1}`, `{"exitCode":256}`, `{"pid":0.5}`,
	} {
		c, _ := agent(t, func(p *peer) {
			p.hello()
			if req, _ := p.request(); req.Op == "list" {
				p.send(TypeReply, "["+answer+"]")
				return
			}
			p.send(TypeReply, answer)
		})
		_, pingErr := c.Ping(t.Context())
		_, startErr := c.Start(t.Context(), Start{ID: "p", Command: "x"})
		_, listErr := c.List(t.Context())
		if !errors.Is(pingErr, hutch.Unavailable) && !(errors.Is(startErr, hutch.Unavailable) && errors.Is(listErr, hutch.Unavailable)) {
			t.Errorf("%s: %v, %v, %v", answer, pingErr, startErr, listErr)
		}
	}
}

// An array of empty records would take a hundred times the memory of its text.
func TestListThatExplodes(t *testing.T) {
	list := "[" + strings.Repeat("{},", MaxReply/3-2) + "{}]"
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.send(TypeReply, list)
		p.r.Next()
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.List(t.Context())
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, hutch.Unavailable) || used > 16<<20 {
		t.Errorf("%v after %d MiB", err, used>>20)
	}
}

// TestListsWithoutEnd: callers collect lists of files in memory, and rely on the limit of their request, also when the
// agent does not keep it.
func TestListsWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 7} {
		endless := func(item string) func(*peer) {
			return func(p *peer) {
				p.hello().request()
				p.send(TypeStarted, "{}")
				for all := "[" + strings.Repeat(item+",", 99) + item + "]"; p.send(TypeItems, all) == nil; {
				}
			}
		}
		files, matches := 0, 0
		c, _ := agent(t, endless(`{"path":"/a","type":"file","mode":"0644","modified":"2026-01-01T00:00:00Z"}`))
		list := hutch.ListRequest{Path: "d", Limit: limit}
		err := c.Files(t.Context(), list, func(hutch.FileInfo) error { files++; return nil })
		if !errors.Is(err, hutch.Unavailable) || files != list.Most() {
			t.Errorf("limit %d: %d files, %v", limit, files, err)
		}
		c, _ = agent(t, endless(`{"path":"/a","line":1,"column":1}`))
		search := hutch.SearchRequest{Path: "d", Pattern: "p", Limit: limit}
		err = c.Search(t.Context(), search, func(hutch.Match) error { matches++; return nil })
		if !errors.Is(err, hutch.Unavailable) || matches != search.Most() {
			t.Errorf("limit %d: %d matches, %v", limit, matches, err)
		}
	}
}

// TestRunThatBeginsAgain: the time limit of a run counts from its begun frame, which comes only once.
func TestRunThatBeginsAgain(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.send(TypeStarted, "{}")
		for p.send(TypeBegun, "{}") == nil {
		}
	})
	if _, _, err := c.RunIn(t.Context(), Run{ID: "r", Context: "c", TimeoutMS: 50}, nil, nil, nil, nil); !errors.Is(err, hutch.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestRefusalsAreBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		failure Failure
		want    hutch.Kind
	}{
		"long":        {Failure{Kind: hutch.Conflict, Message: strings.Repeat("ü", 100_000)}, hutch.Conflict},
		"escapes":     {Failure{Kind: hutch.Invalid, Message: "\x1b]0;title\a\x1b[2Jgone\r\n\u202eback\x00"}, hutch.Invalid},
		"not UTF-8":   {Failure{Kind: hutch.Invalid, Message: "a\xffb"}, hutch.Invalid},
		"kind":        {Failure{Kind: "root", Message: "x"}, hutch.Internal},
		"not theirs":  {Failure{Kind: hutch.Timeout, Message: "x"}, hutch.Internal},
		"no kind":     {Failure{}, hutch.Internal},
		"percent":     {Failure{Kind: hutch.Invalid, Message: "100%s %n"}, hutch.Invalid},
		"their fault": {Failure{Kind: hutch.Internal, Message: "x"}, hutch.Internal},
		"their cause": {Failure{Kind: hutch.Internal, Message: "x", Cause: "broken\x1b[2J\n" + strings.Repeat("ü", 100_000)}, hutch.Internal},
	} {
		c, dialed := agent(t, func(p *peer) {
			p.hello()
			for {
				if _, err := p.request(); err != nil {
					return
				}
				p.WriteJSON(TypeError, f.failure)
			}
		})
		for request, err := range everyRequest(t.Context(), c) {
			text := err.Error()
			if cause := hutch.AsError(err).Cause; cause == nil || len(cause.Error()) > 2100 || strings.ContainsFunc(cause.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(cause.Error(), "broken") != (f.failure.Cause != "") {
				t.Errorf("%s: %s: the cause is %q", name, request, cause)
			}
			if hutch.KindOf(err) != f.want || len(text) > 2100 || !utf8.ValidString(text) || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("%s: %s: %v: %q", name, request, hutch.KindOf(err), text)
			}
		}
		if dialed.Load() != 1 {
			t.Errorf("%s: a refusal in good order cost %d connections", name, dialed.Load())
		}
	}
}

// TestLimitsOfRefusals: an agent can name its own limits, but not those of the server and of tokens.
func TestLimitsOfRefusals(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"processes": "processes", "disk": "disk", "sandboxes": "", "memory": "", "\x1b[2J": "", "": ""} {
		payload, _ := json.Marshal(Failure{Kind: hutch.Exhausted, Message: "full", Limit: name})
		if got := hutch.AsError(refusal(payload)).Limit(); got != want {
			t.Errorf("an agent that names the limit %q: got %q, want %q", name, got, want)
		}
	}
}

// Data after the end of an answer must not count as the next answer.
func TestAnswersAheadOfTheirRequest(t *testing.T) {
	t.Parallel()
	c, dialed := agent(t, func(p *peer) {
		p.hello().request()
		var b bytes.Buffer
		w := NewWriter(&b)
		w.WriteJSON(TypeReply, Stats{Live: 1})
		w.WriteJSON(TypeReply, Stats{Live: 666})
		p.Conn.Write(b.Bytes())
		p.r.Next()
	})
	for range 3 {
		if s, err := c.Ping(t.Context()); err != nil || s.Live != 1 {
			t.Errorf("%v, %v", s, err)
		}
	}
	if dialed.Load() != 3 {
		t.Errorf("%d connections", dialed.Load())
	}
}

func TestFloodAfterTheExit(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) { // the agent returns when the connection has ended
		p.hello().request()
		p.started()
		p.exit(0, 0)
		for p.WriteOutput(TypeStdout, 1<<20, make([]byte, 64<<10)) == nil {
		}
	})
	if x, err := c.Run(t.Context(), Start{ID: "r", Command: "x"}, nil, nil); err != nil || x.Code != 0 {
		t.Errorf("%v, %v", x, err)
	}
	if _, err := c.Ping(t.Context()); err == nil {
		t.Error("output is taken for an answer")
	}
}

// silent returns an agent that calls says, and then sends nothing more.
func silent(says func(*peer)) func(*peer) {
	return func(p *peer) {
		says(p)
		io.Copy(io.Discard, p.Conn) // to the end of the connection
	}
}

func TestSilence(t *testing.T) {
	for name, script := range map[string]func(*peer){
		"after the connect":   silent(func(*peer) {}),
		"after the welcome":   silent(func(p *peer) { p.hello() }),
		"after half a header": silent(func(p *peer) { p.hello().request(); p.Conn.Write([]byte("r\x00")) }),
		"after half a frame":  silent(func(p *peer) { p.hello().request(); p.Conn.Write([]byte("r\x00\x00\x00\xff{")) }),
		"after started":       silent(func(p *peer) { p.hello().request(); p.started() }),
		"after output":        silent(func(p *peer) { p.hello().request(); p.started(); p.WriteOutput(TypeStdout, 1, []byte("x")) }),
		"and deaf":            nil,
		"a byte every 4 s":    func(p *peer) { p.hello().request(); p.started(); trickle(p, "1\x00\x00\xff\xff") },
		"an empty output a time": func(p *peer) {
			p.hello().request()
			p.started()
			trickle(p, "1\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00")
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, request := range []string{"ping", "run", "run a large one", "attach"} {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var conns []net.Conn
					c := NewClient(func(context.Context) (net.Conn, error) {
						ours, theirs := net.Pipe()
						mu.Lock()
						conns = append(conns, theirs)
						mu.Unlock()
						if script == nil {
							go newPeer(theirs).hello()
						} else {
							go func() { defer theirs.Close(); script(newPeer(theirs)) }()
						}
						return ours, nil
					}, "token")
					begin := time.Now()
					err := ask(context.Background(), c, request)
					if took := time.Since(begin); !errors.Is(err, hutch.Unavailable) || took > 2*replyTime {
						t.Errorf("%s: %v after %v", request, err, took)
					}
					mu.Lock()
					for _, nc := range conns {
						nc.Close()
					}
					mu.Unlock()
					time.Sleep(time.Minute) // until the agents have seen that the connections are closed
				})
			}
		})
	}
}

func ask(ctx context.Context, c *Client, request string) (err error) {
	start := Start{ID: "r", Command: "x", TimeoutMS: 1000}
	switch request {
	case "ping":
		_, err = c.Ping(ctx)
	case "run":
		_, err = c.Run(ctx, start, nil, nil)
	case "run a large one":
		start.Source = strings.Repeat("x", hutch.MaxCommand)
		_, err = c.Run(ctx, start, nil, nil)
	case "attach":
		_, err = c.Attach(ctx, Attach{Process: "p"}, nil)
	}
	return err
}

// trickle sends text for ever, a piece every four seconds.
func trickle(p *peer, text string) {
	for {
		if _, err := io.WriteString(p.Conn, text); err != nil {
			return
		}
		time.Sleep(4 * time.Second)
	}
}

// Idle connections that all became silent must not be tried one after the other.
func TestSilenceOfManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeAgent(t, silent(func(p *peer) {
			p.hello().request()
			time.Sleep(time.Second)
			p.WriteJSON(TypeReply, Stats{})
		}))
		done := make(chan error)
		for range 20 {
			go func() { _, err := c.Ping(t.Context()); done <- err }()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		err := ask(t.Context(), c, "run")
		if took := time.Since(begin); !errors.Is(err, hutch.Unavailable) || took > 2*replyTime {
			t.Errorf("%v after %v", err, took)
		}
		time.Sleep(time.Minute) // until the agents have seen that the connections are closed
	})
}

func TestDialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "token")
		begin := time.Now()
		if err := ask(t.Context(), c, "run"); !errors.Is(err, hutch.Unavailable) || time.Since(begin) > 2*replyTime {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// A process that should be dead can have some output left, but not more.
func TestFloodAfterTheTimeLimit(t *testing.T) {
	for name, size := range map[string]int{"of output": 64 << 10, "of empty frames": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := pipeAgent(t, func(p *peer) {
					p.hello().request()
					p.started()
					time.Sleep(2 * time.Second)
					for cursor := int64(size); p.WriteOutput(TypeStdout, cursor, make([]byte, size)) == nil; cursor += int64(size) {
					}
				})
				var got int
				_, err := c.Run(t.Context(), Start{ID: "r", Command: "x", TimeoutMS: 1000}, nil, func(o hutch.Output) error {
					got += len(o.Data)
					return nil
				})
				if !errors.Is(err, hutch.Unavailable) || got > maxLate+MaxReply {
					t.Errorf("%v after %d bytes", err, got)
				}
				time.Sleep(time.Minute) // until the agents have seen that the connections are closed
			})
		})
	}
}

// A connection whose agent sends but never reads blocks nothing else.
func TestDeafToStdin(t *testing.T) {
	t.Parallel()
	c, _ := agent(t, func(p *peer) {
		p.hello().request()
		p.started()
		for i := range int64(100) {
			p.WriteCount(TypeWindow, 1<<60+i) // claims that there is plenty of space
			p.WriteOutput(TypeStdout, i+1, []byte("x"))
		}
		p.exit(0, 100)
		<-t.Context().Done()
	})
	x, err := c.Run(t.Context(), Start{ID: "r", Command: "x", Stdin: true}, endless{}, nil)
	if err != nil || x.Cursor != 100 {
		t.Errorf("%v, %v", x, err)
	}
	if len(c.idle) != 0 {
		t.Error("a connection that is still written to is kept")
	}
}

func TestFaultsSayNothingOfTheHost(t *testing.T) {
	t.Parallel()
	c := NewClient(func(context.Context) (net.Conn, error) {
		return nil, fmt.Errorf("dial /secret/path/of/the/host: no such file")
	}, "token")
	for request, err := range everyRequest(t.Context(), c) {
		if strings.Contains(err.Error(), "secret") || !errors.Is(err, hutch.Unavailable) {
			t.Errorf("%s: %v", request, err)
		}
	}
}

// TestMessagesAreCharged: an interpreter can begin a message of 8 MiB in each of many runs, and never end it.
func TestMessagesAreCharged(t *testing.T) {
	t.Parallel()
	for _, room := range []int{0, 1 << 20, 1 << 30} {
		left, most, got := room, 0, 0
		c, _ := agent(t, func(p *peer) {
			p.hello().request()
			p.send(TypeStarted, "{}")
			p.send(TypeBegun, "{}")
			for range 2 {
				for n := 0; n < maxMessage-MaxPiece; n += MaxPiece {
					if p.send(TypeMessage, "+"+strings.Repeat("x", MaxPiece)) != nil {
						return
					}
				}
				p.send(TypeMessage, ".")
			}
			p.send(TypeExit, `{"runs":1}`)
			p.r.Next()
		})
		take := func(n int) bool {
			if n > left {
				return false
			}
			left -= n
			most += n
			return true
		}
		_, _, err := c.RunIn(t.Context(), Run{ID: "r", Context: "c"}, nil, take, nil, func([]byte) error { got++; return nil })
		switch {
		case room < 2*maxMessage && (!errors.Is(err, hutch.Exhausted) || got != 0):
			t.Errorf("with %d bytes: %d messages, %v", room, got, err)
		case room > 2*maxMessage && (err != nil || got != 2 || most < maxMessage || most > 2*maxMessage):
			t.Errorf("%d messages took %d bytes, %v", got, most, err)
		}
	}
}
