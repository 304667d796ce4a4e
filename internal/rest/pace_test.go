package rest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
)

// flood is a process that prints until it gets Ctrl-C. By then it has printed 64 MiB more; it prints a prompt and
// waits. Its output grows with each read.
type flood struct {
	svc     *fakeservice.Service
	printed atomic.Int64
	end     atomic.Int64  // where the prompt is; 0 until the flood ends
	skipped chan struct{} // closed when a read skips the output before the prompt
	once    sync.Once
}

const piece, prompt = 32 << 10, "prompt$ "

// newest returns the position after all output.
func (f *flood) newest(process string) int64 {
	if strings.Contains(f.svc.Written(process), "\x03") {
		f.end.CompareAndSwap(0, f.printed.Load()+64<<20)
	}
	if at := f.end.Load(); at > 0 {
		return at + int64(len(prompt))
	}
	return f.printed.Add(piece)
}

func (f *flood) logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	newest := f.newest(req.ProcessID)
	if !req.Follow {
		return newest, nil
	}
	cursor := min(req.Cursor, newest)
	if f.end.Load() > 0 {
		f.once.Do(func() { close(f.skipped) })
	}
	for {
		if newest = f.newest(req.ProcessID); cursor == newest {
			<-ctx.Done()
			return cursor, context.Cause(ctx)
		}
		data := strings.Repeat("y", int(min(piece, newest-cursor)))
		if at := f.end.Load(); at > 0 && cursor < at {
			data = data[:min(int64(len(data)), at-cursor)]
		} else if at > 0 {
			data = prompt[cursor-at:]
		}
		cursor += int64(len(data))
		if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte(data), Cursor: cursor}); err != nil {
			return cursor, err
		}
	}
}

// flooding returns a server with a flood, and the path of its process.
func flooding(t *testing.T) (*bench, *flood, string) {
	t.Helper()
	f := &flood{svc: &fakeservice.Service{}, skipped: make(chan struct{})}
	f.svc.OnLogs = f.logs
	b, path := terminal(t, f.svc)
	return b, f, path
}

// terminal starts a terminal on a server, and returns its path.
func terminal(t *testing.T, svc *fakeservice.Service) (*bench, string) {
	t.Helper()
	b := serve(t, svc, rest.Options{})
	p, err := svc.StartProcess(t.Context(), "s", hutch.ProcessRequest{Command: "yes", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	return b, "/v1/sandboxes/s/processes/" + p.ID
}

const window = 64 << 10

// A client that acknowledges nothing gets no more output than its window.
func TestWindowHoldsBack(t *testing.T) {
	t.Parallel()
	b, _, path := flooding(t)
	c := dialTerminal(t, b, path+"/terminal?window="+fmt.Sprint(window))
	c.SetReadLimit(-1)
	got := 0
	read := func() {
		for got < window {
			output, _ := screen(t, c)
			got += len(output)
		}
	}
	read()
	more, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, extra, err := c.Read(more); err == nil || got != window {
		t.Fatalf("%d bytes came, and then %d, in a window of %d", got, len(extra), window)
	}
}

// After Ctrl-C, a client that draws slowly sees the prompt without the 64 MiB that the program had printed before.
func TestInterruptSkipsWhatWaits(t *testing.T) {
	t.Parallel()
	b, f, path := flooding(t)
	c := dialTerminal(t, b, path+"/terminal?catchUp=true&window="+fmt.Sprint(window))
	c.SetReadLimit(-1)
	taken, tail := 0, ""
	read := func() {
		output, _ := screen(t, c)
		tail = (tail + output)[max(0, len(tail)+len(output)-100):]
		taken += len(output)
	}
	for taken < window {
		read()
	}
	c.Write(t.Context(), websocket.MessageBinary, []byte("\x03"))
	select {
	case <-f.skipped:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is skipped for a client that has typed Ctrl-C and takes nothing")
	}
	for !strings.HasSuffix(tail, prompt) {
		c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"taken":%d}`, taken))
		read()
		if taken > 2*window {
			t.Fatalf("%d bytes were sent to a client that had typed Ctrl-C", taken)
		}
	}
}

// The skipped output begins after the sent output, even if only part of a piece was sent.
func TestSkipNeverGoesBack(t *testing.T) {
	t.Parallel()
	const all = window + 4<<10
	looks := make(chan struct{}, 100)
	svc := &fakeservice.Service{OnLogs: func(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		if !req.Follow {
			looks <- struct{}{}
			return all, nil
		}
		if err := out(hutch.Output{Stream: hutch.Stdout, Data: make([]byte, all-req.Cursor), Cursor: all}); err != nil {
			return req.Cursor, err
		}
		<-ctx.Done()
		return all, context.Cause(ctx)
	}}
	b, path := terminal(t, svc)
	c := dialTerminal(t, b, path+"/terminal?catchUp=true&window="+fmt.Sprint(window))
	c.SetReadLimit(-1)
	if _, text := screen(t, c); text["cursor"] != 0.0 {
		t.Errorf("it begins with %v", text)
	}
	<-looks
	got := 0
	for got < window {
		output, _ := screen(t, c)
		got += len(output)
	}
	c.Write(t.Context(), websocket.MessageBinary, []byte("\x03"))
	<-looks // the server has seen that only little output waits
	c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"taken":%d}`, got))
	if output, text := screen(t, c); got+len(output) != all {
		t.Errorf("%d bytes come after %d of %d: %v", len(output), got, all, text)
	}
}
