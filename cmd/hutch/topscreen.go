package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"hutch"
	"hutch/client"
	"hutch/internal/delay"
	"hutch/internal/text"
)

// topScreen shows a topView in a terminal. Only run changes the view; tasks send it changes.
type topScreen struct {
	svc     *client.Client
	view    *topView
	in, out *os.File
	changes chan func(*topView)
	stop    context.CancelFunc // ends the tasks of the detail
}

const (
	// topEnter shows the alternate screen, hides the cursor, and ends the wrapping of lines: a terminal can count the width
	// of a line differently. topLeave undoes this.
	topEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	topLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l"

	topRetry   = 2 * time.Second
	mostLogs   = 1000 // lines that are kept
	mostOfLine = 500  // runes
)

var topStyles = map[int]string{plainLine: "", boldLine: "\x1b[1m", inverseLine: "\x1b[7m"}

// run shows the view until the user or the end of ctx ends it. An error before the first report is returned.
func (t *topScreen) run(ctx context.Context, req hutch.StatsRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan error, 1)
	t.changes = make(chan func(*topView))
	go t.follow(ctx, req, first)
	select {
	case err := <-first:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	restore, err := raw(int(t.in.Fd()))
	if err != nil {
		return err
	}
	defer restore()
	io.WriteString(t.out, topEnter)
	defer io.WriteString(t.out, topLeave)
	keys := make(chan []string)
	go t.read(ctx, keys) // ends with the program, because nothing interrupts a Read
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		t.draw()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-resized:
		case change := <-t.changes:
			change(t.view)
		case pressed, ok := <-keys:
			if !ok || slices.ContainsFunc(pressed, func(key string) bool { return t.press(ctx, key) }) {
				return nil
			}
		}
	}
}

// do makes run apply a change to the view.
func (t *topScreen) do(ctx context.Context, change func(*topView)) error {
	select {
	case t.changes <- change:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow receives reports, also from a restarted server. first gets nil with the first report, or the error.
func (t *topScreen) follow(ctx context.Context, req hutch.StatsRequest, first chan<- error) {
	for began := false; ; {
		err := t.svc.Stats(ctx, req, func(r hutch.StatsReport) error {
			if !began {
				began = true
				first <- nil
			}
			return t.do(ctx, func(v *topView) { v.apply(r) })
		})
		if !began {
			first <- err
			return
		}
		if ctx.Err() != nil || t.do(ctx, func(v *topView) { v.problem = hutch.AsError(err).Message }) != nil {
			return
		}
		if delay.Wait(ctx, topRetry) != nil {
			return
		}
	}
}

// draw writes the screen at once.
func (t *topScreen) draw() {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	b := bytes.NewBufferString("\x1b[H")
	for i, l := range t.view.lines(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(topStyles[l.style] + l.text + "\x1b[0m\x1b[K")
	}
	b.WriteString("\x1b[J")
	t.out.Write(b.Bytes())
}

// topKeys are the sequences of keys that have names.
var topKeys = map[string]string{
	"\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down", "\x1b[5~": "page up", "\x1b[6~": "page down", " ": "page down",
	"\x1b[H": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1b[4~": "end", "\r": "enter", "\n": "enter", "\x1b": "back", "\x1b[D": "back", "q": "back", "\x7f": "back", "\x03": "quit", "Q": "quit",
}

// read passes keys on until the end of the input.
func (t *topScreen) read(ctx context.Context, keys chan<- []string) {
	defer close(keys)
	buf := make([]byte, 256)
	for {
		n, err := t.in.Read(buf)
		if err != nil {
			return
		}
		select {
		case keys <- keysOf(string(buf[:n])):
		case <-ctx.Done():
			return
		}
	}
}

// keysOf names the keys in a terminal's input. A sequence without a name is left out.
func keysOf(sent string) (keys []string) {
	for len(sent) > 0 {
		n := 1
		if sent[0] == '\x1b' && len(sent) > 2 && (sent[1] == '[' || sent[1] == 'O') {
			for n = 3; n < len(sent) && sent[n-1] < '@'; n++ {
			}
		}
		if name := topKeys[sent[:n]]; name != "" {
			keys = append(keys, name)
		} else if n == 1 {
			keys = append(keys, sent[:1])
		}
		sent = sent[n:]
	}
	return keys
}

// press handles a key, and reports whether it ends the program.
func (t *topScreen) press(ctx context.Context, key string) (end bool) {
	v := t.view
	steps := map[string]int{"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -1 << 20, "end": 1 << 20}
	by, moves := steps[key]
	switch {
	case key == "quit", key == "back" && v.detail == nil:
		return true
	case key == "back":
		t.back(ctx)
	case v.detail != nil && moves:
		v.detail.chosen = min(max(v.detail.chosen+by, 0), max(len(v.detail.processes)-1, 0))
	case moves:
		v.move(by)
	case key == "enter" && v.detail == nil:
		if v.rows[v.chosen] != nil {
			t.open(ctx)
		}
	case key == "enter":
		t.openLogs(ctx)
	case key == "r":
		v.reverse = !v.reverse
	default:
		if i := slices.IndexFunc(topColumns, func(c topColumn) bool { return string(c.key) == key }); i >= 0 {
			v.column, v.reverse = i, false
		}
	}
	return false
}

// back leaves the logs, or the detail.
func (t *topScreen) back(ctx context.Context) {
	t.stop()
	if t.view.detail.logs == nil {
		t.view.detail = nil
		return
	}
	t.open(ctx)
}

// open shows the processes of the chosen sandbox.
func (t *topScreen) open(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	d := &topDetail{}
	t.view.detail = d
	go t.processes(ctx, t.view.chosen, d)
}

// processes reads the list of processes at intervals. The list is a record, so reading it wakes no sandbox.
func (t *topScreen) processes(ctx context.Context, of topKey, d *topDetail) {
	for {
		list, err := processesOf(ctx, t.svc, of)
		failed := t.do(ctx, func(*topView) {
			d.processes, d.problem = list, ""
			if err != nil {
				d.problem = hutch.AsError(err).Message
			}
			d.chosen = min(d.chosen, max(len(list)-1, 0))
		})
		if failed != nil {
			return
		}
		if delay.Wait(ctx, topRetry) != nil {
			return
		}
	}
}

// processesOf lists the processes of a row's sandbox. An administrator sees rows of all owners, but a call cannot name
// the sandbox of another owner. If the row's id means a different sandbox in the call, the error is that of a missing
// sandbox.
func processesOf(ctx context.Context, svc interface {
	Sandbox(ctx context.Context, id string) (hutch.Sandbox, error)
	Processes(ctx context.Context, sandbox string) ([]hutch.Process, error)
}, row topKey) ([]hutch.Process, error) {
	sb, err := svc.Sandbox(ctx, row.id)
	if hutch.KindOf(err) == hutch.NotFound || err == nil && sb.Owner != row.owner {
		return nil, hutch.Errorf(hutch.NotFound, "the sandbox of %s is gone, or this token cannot use it: use a token of its owner, or let the owner share it (hutch share)", cmp.Or(row.owner, "the server"))
	}
	if err != nil {
		return nil, err
	}
	return svc.Processes(ctx, row.id)
}

// openLogs shows the logs of the chosen process. Reading logs would wake a sleeping sandbox.
func (t *topScreen) openLogs(ctx context.Context) {
	d, row := t.view.detail, t.view.rows[t.view.chosen]
	if row == nil || d.logs != nil || d.chosen >= len(d.processes) {
		return
	}
	if row.Status != hutch.Running {
		d.problem = "the sandbox is " + string(row.Status) + ": its logs can be read when it is awake (hutch resume " + row.SandboxID + ")"
		return
	}
	t.stop()
	p := d.processes[d.chosen]
	ctx, t.stop = context.WithCancel(ctx)
	shown := &topDetail{logs: []string{}, title: "LOGS of " + p.ID + "  " + text.Line(p.Command)}
	t.view.detail = shown
	go t.logs(ctx, row.SandboxID, p.ID, shown)
}

// logs follows the output of a process.
func (t *topScreen) logs(ctx context.Context, sandbox, process string, d *topDetail) {
	_, err := t.svc.Logs(ctx, hutch.LogsRequest{SandboxID: sandbox, ProcessID: process, Follow: true}, func(o hutch.Output) error {
		return t.do(ctx, func(*topView) { d.add(string(o.Data)) })
	})
	if err != nil {
		t.do(ctx, func(*topView) { d.problem = hutch.AsError(err).Message })
	}
}

// add adds output to the logs, whose last line is unfinished.
func (d *topDetail) add(out string) {
	lines := strings.Split(strings.ToValidUTF8(out, "\uFFFD"), "\n")
	if len(d.logs) > 0 {
		lines[0] = d.logs[len(d.logs)-1] + lines[0]
		d.logs = d.logs[:len(d.logs)-1]
	}
	for _, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if runes := []rune(l); len(runes) > mostOfLine {
			l = string(runes[:mostOfLine])
		}
		d.logs = append(d.logs, text.Line(l))
	}
	d.logs = d.logs[max(0, len(d.logs)-mostLogs):]
}
