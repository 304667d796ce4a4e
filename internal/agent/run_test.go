package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

func TestRun(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{Home: "/home/x", Env: []string{"A=boot", "B=boot"}})
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	os.WriteFile(filepath.Join(dir, "script"), []byte("echo no shebang $0\n"), 0o755)
	for name, tt := range map[string]struct {
		start          wire.Start
		stdout, stderr string
		code, signal   int
	}{
		"both streams":    {start: wire.Start{Command: "echo out; echo err >&2; exit 3"}, stdout: "out\n", stderr: "err\n", code: 3},
		"bash":            {start: wire.Start{Command: `a=(1 2); [[ ${a[1]} == 2 ]] && echo bash`}, stdout: "bash\n"},
		"plain":           {start: wire.Start{Command: "ls -d /usr /etc\n"}, stdout: "/etc\n/usr\n"},
		"plain fails":     {start: wire.Start{Command: "false"}, code: 1},
		"no command":      {start: wire.Start{Command: "no-such-command-x"}, stderr: "bash: line 1: no-such-command-x: command not found\n", code: 127},
		"no file":         {start: wire.Start{Command: "/none/x"}, stderr: "bash: line 1: /none/x: No such file or directory\n", code: 127},
		"a folder":        {start: wire.Start{Command: "/usr"}, stderr: "bash: line 1: /usr: Is a directory\n", code: 126},
		"no shebang":      {start: wire.Start{Command: "./script", Dir: dir}, stdout: "no shebang ./script\n"},
		"quotes":          {start: wire.Start{Command: `echo "a  b" 'c'`}, stdout: "a  b c\n"},
		"signal":          {start: wire.Start{Command: "kill -TERM $$"}, code: 143, signal: 15},
		"argv":            {start: wire.Start{Argv: []string{"printf", "%s|", "a b", "$X", ""}}, stdout: "a b|$X||"},
		"arguments":       {start: wire.Start{Command: `printf '%s|' "$#" "$@"; echo "$0"`, Argv: []string{"a b", "-c", ""}}, stdout: "3|a b|-c||bash\n"},
		"folder":          {start: wire.Start{Command: "pwd; echo $PWD", Dir: "/usr"}, stdout: "/usr\n/usr\n"},
		"relative folder": {start: wire.Start{Command: "pwd -P", Dir: "usr"}, stdout: "/usr\n"},
		"environment":     {start: wire.Start{Command: "echo $A $B $C $HOME", Env: []string{"B=start", "C=c=c"}}, stdout: "boot start c=c /home/x\n"},
		"id":              {start: wire.Start{ID: "x-42", Command: "echo $HUTCH_PROCESS", Env: []string{"HUTCH_PROCESS=other"}}, stdout: "x-42\n"},
		"empty stdin":     {start: wire.Start{Command: "cat; echo end"}, stdout: "end\n"},
		"compiled":        {start: wire.Start{Compile: []string{"sh", "-c", `echo compiles; cp "$1" "$2"; chmod +x "$2"; cat`, "sh", wire.SourceArg, wire.ProgramArg}, Argv: []string{wire.ProgramArg, "a"}, Source: "#!/bin/sh\necho $1; exit 4", SourceName: "main.sh"}, stdout: "a\n", stderr: "compiles\n", code: 4},
		"no program":      {start: wire.Start{Compile: []string{"sh", "-c", "echo wrong; exit 1"}, Argv: []string{wire.ProgramArg}, Source: "x", SourceName: "main.sh"}, stderr: "wrong\n", code: 1},
		"long command":    {start: wire.Start{Command: "echo begin; : " + strings.Repeat("x", 300<<10) + "\necho end"}, stdout: "begin\nend\n"},
		"opens stdout":    {start: wire.Start{Command: "echo a > /dev/stdout; echo b > /dev/stderr"}, stdout: "a\n", stderr: "b\n"},
		"limits":          {start: wire.Start{Command: "ulimit -n"}, stdout: "1024\n"},
		"descriptors":     {start: wire.Start{Argv: []string{"ls", "/proc/self/fd"}}, stdout: "0\n1\n2\n3\n"},
		"bash function":   {start: wire.Start{Command: "true", Env: []string{"BASH_FUNC_true%%=() { echo mine; }"}}, stdout: "mine\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, c, tt.start)
			if r.Compile != (name == "no program") {
				t.Errorf("%+v", r.Exit)
			}
			r.Compile = false
			if r.stdout != tt.stdout || r.stderr != tt.stderr {
				t.Errorf("printed %.200q and %.200q, want %q and %q", r.stdout, r.stderr, tt.stdout, tt.stderr)
			}
			state := hutch.ProcessFailed
			if tt.code == 0 {
				state = hutch.ProcessExited
			}
			want := wire.Exit{State: state, Code: tt.code, Signal: tt.signal, Cursor: int64(len(tt.stdout) + len(tt.stderr))}
			if r.Exit != want {
				t.Errorf("ended as %+v, want %+v", r.Exit, want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, []byte("data"), 0o644)
	for name, tt := range map[string]struct {
		start wire.Start
		kind  hutch.Kind
		says  string
	}{
		"no folder":    {wire.Start{Command: "true", Dir: "/no/such"}, hutch.Invalid, `"/no/such": it does not exist`},
		"not a folder": {wire.Start{Command: "pwd", Dir: file}, hutch.Invalid, "it is not a folder"},
		"nothing":      {wire.Start{}, hutch.Invalid, "command line or arguments"},
		"a terminal":   {wire.Start{Command: "true", Terminal: &hutch.Size{Columns: 80, Rows: 24}}, hutch.Invalid, "background"},
		"no size":      {wire.Start{Command: "true", Detach: true, Terminal: &hutch.Size{}}, hutch.Invalid, "columns"},
		"restarted":    {wire.Start{Command: "true", Detach: true, Restart: hutch.RestartAlways, Terminal: &hutch.Size{Columns: 80, Rows: 24}}, hutch.Invalid, "not restarted"},
		"compiled":     {wire.Start{Argv: []string{wire.ProgramArg}, Compile: []string{"cc"}, Detach: true}, hutch.Invalid, "waited for"},
		"no source":    {wire.Start{Argv: []string{wire.ProgramArg}, Compile: []string{"cc"}}, hutch.Invalid, "source"},
		"bad id":       {wire.Start{ID: "../x", Command: "true"}, hutch.Invalid, "id"},
		"zero byte":    {wire.Start{Command: "echo a\x00b"}, hutch.Invalid, "zero byte"},
		"zero in env":  {wire.Start{Command: "true", Env: []string{"A=\x00"}}, hutch.Invalid, "zero byte"},
		"env":          {wire.Start{Command: "true", Env: []string{"A"}}, hutch.Invalid, "NAME=value"},
		"no program":   {wire.Start{Argv: []string{"no-such-program"}}, hutch.Unsupported, `"no-such-program"`},
		"no permit":    {wire.Start{Argv: []string{file}}, hutch.Invalid, "permission denied"},
		"too long":     {wire.Start{Argv: []string{"true", strings.Repeat("x", 200<<10)}}, hutch.Invalid, "too long"},
		"source name":  {wire.Start{Argv: []string{"cat", wire.SourceArg}, Source: "x", SourceName: "../x"}, hutch.Invalid, "cannot be called"},
		"restart":      {wire.Start{Command: "true", Detach: true, Restart: "maybe"}, hutch.Invalid, "never, on-failure or always"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			if tt.start.Detach {
				tt.start.ID = hutch.NewID("p")
				_, err = c.Start(t.Context(), tt.start)
			} else {
				_, err = try(t, c, tt.start)
			}
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %s with %q", err, tt.kind, tt.says)
			}
		})
	}
}

func TestBinaryOutput(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	data := make([]byte, 5<<20+17)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var cursor int64
	x, err := c.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Argv: []string{"cat", file}}, nil, func(o hutch.Output) error {
		got.Write(o.Data)
		if cursor += int64(len(o.Data)); o.Cursor != cursor || o.Lost != 0 {
			t.Errorf("cursor %d behind %d bytes, %d lost", o.Cursor, cursor, o.Lost)
		}
		return nil
	})
	if err != nil || x.Code != 0 || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d of %d bytes, %+v, %v", got.Len(), len(data), x, err)
	}
}

func TestInterleaved(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	var cursor int64
	var out, err bytes.Buffer
	_, fail := c.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: "for i in {1..2000}; do echo o$i; echo e$i >&2; done"}, nil, func(o hutch.Output) error {
		if cursor += int64(len(o.Data)); o.Cursor != cursor {
			t.Errorf("cursor %d, want %d", o.Cursor, cursor)
		}
		map[hutch.Stream]*bytes.Buffer{hutch.Stdout: &out, hutch.Stderr: &err}[o.Stream].Write(o.Data)
		return nil
	})
	if fail != nil || strings.Count(out.String(), "o") != 2000 || strings.Count(err.String(), "e") != 2000 {
		t.Errorf("%d and %d bytes: %v", out.Len(), err.Len(), fail)
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<18) // 4 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(big))
	for name, tt := range map[string]struct {
		command string
		in      io.Reader
		want    string
	}{
		"echoed":      {"cat", strings.NewReader("hello\x00\xff"), "hello\x00\xff"},
		"large":       {"sha256sum | cut -c1-64", bytes.NewReader(big), sum + "\n"},
		"through":     {"cat | sha256sum | cut -c1-64", bytes.NewReader(big), sum + "\n"},
		"unread":      {"echo done", bytes.NewReader(big), "done\n"},
		"closed":      {"exec <&-; sleep 0.1; echo done", bytes.NewReader(big), "done\n"},
		"partly read": {"head -c 5", bytes.NewReader(big), "01234"},
		"empty":       {"cat; echo done", strings.NewReader(""), "done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r result
			x, err := c.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: tt.command, Stdin: true}, tt.in, r.add)
			if err != nil || x.Code != 0 || r.stdout != tt.want {
				t.Errorf("printed %.100q, %+v, %v", r.stdout, x, err)
			}
		})
	}
	t.Run("connections stay good", func(t *testing.T) {
		if r := run(t, c, wire.Start{Command: "echo fine"}); r.stdout != "fine\n" {
			t.Errorf("%+v", r)
		}
	})
}

// headless is a process that looks like a zombie: its first thread has ended.
const headless = `
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)`

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"sleeps":         `echo before; sleep 1000`,
		"plain":          `sleep 1000`,
		"ignores":        `trap "" TERM INT HUP; echo before; while :; do sleep 1000; done`,
		"double fork":    `echo before; (setsid bash -c '(setsid sleep 1000 & ) ; sleep 1000' &) ; sleep 1000`,
		"orphans":        `echo before; for i in 1 2 3 4 5; do (setsid sleep 1000 &) ; done; exec env -i sleep 1000`,
		"no environment": `echo before; (setsid env -i bash -c 'sleep 1000 & sleep 1000' &) ; sleep 1000`,
		"closes":         `echo before; exec >&- 2>&- <&-; sleep 1000`,
		"stopped":        `echo before; kill -STOP $$`,
		"background":     `sleep 1000 & echo before; wait`,
		"headless":       `echo before; python3 -c '` + headless + `' & sleep 1000`,
		"headless root":  `echo before; exec python3 -c '` + headless + `'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, wire.Boot{})
			mark := "MARK=" + hutch.NewID("m")
			began := time.Now()
			r := run(t, c, wire.Start{Command: command, TimeoutMS: 500, Env: []string{mark}})
			if took := time.Since(began); took < 500*time.Millisecond || took > 4*time.Second {
				t.Errorf("took %v", took)
			}
			// On kernels other than Linux, a stopped root can receive SIGHUP when its children end.
			if !r.TimedOut || r.Signal == 0 || r.Code != 128+r.Signal || name != "plain" && r.stdout != "before\n" {
				t.Errorf("%+v", r)
			}
			if left := processesWith(mark); len(left) > 0 {
				t.Errorf("survivors: %q", left)
			}
		})
	}
}

// Four processes fork, leave their session and end, over and over: a search for them finds only their parents.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	bomb := `for (1..4) {
		next if fork;
		for (1..5000) { exit if fork; setsid(); select(undef, undef, undef, 0.0002) } exit
	}
	print "on\n"; close STDOUT; 1 while wait() > 0; sleep 1000`
	r := run(t, c, wire.Start{Argv: []string{"perl", "-MPOSIX", "-e", bomb}, TimeoutMS: 400, Env: []string{mark}})
	if !r.TimedOut || r.stdout != "on\n" {
		t.Errorf("%+v", r)
	}
	if left := processesWith(mark); len(left) > 0 {
		t.Errorf("%d survivors: %.300q", len(left), left)
	}
}

func TestHangUpKills(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Run(ctx, wire.Start{ID: hutch.NewID("x"), Command: "(setsid sleep 1000 &) ; trap '' TERM; echo on; sleep 1000; sleep 1000", Env: []string{mark}}, nil, func(hutch.Output) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
}

func TestOutputFailureKills(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	full := errors.New("full")
	_, err := c.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: "yes", Env: []string{mark}}, nil, func(hutch.Output) error { return full })
	if err != full {
		t.Error(err)
	}
	eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
}

// Output that no client reads stops the program; the time limit and a closed connection still end it.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	count := filepath.Join(t.TempDir(), "count")
	mark := "MARK=" + hutch.NewID("m")
	start := wire.Start{ID: hutch.NewID("x"), Command: `i=0; while :; do printf '%065536d' 0; echo $((++i)) > ` + count + `; done`, Env: []string{mark}}

	held := func() int { // waits until the count no longer changes, and returns it
		last, since := -1, time.Now()
		eventually(t, "the program is paused", func() bool {
			b, _ := os.ReadFile(count)
			n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			if n != last || n == 0 {
				last, since = n, time.Now()
			}
			return time.Since(since) > 300*time.Millisecond
		})
		return last
	}
	t.Run("hang up", func(t *testing.T) {
		l := newLine(t, dial)
		l.hello(token)
		l.request(wire.Request{Op: "start", Start: &start})
		if n := held(); n > 64 {
			t.Errorf("%d × 64 KiB were written and not read", n)
		}
		l.Close()
		eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
	})
	t.Run("time limit", func(t *testing.T) {
		start.ID, start.TimeoutMS = hutch.NewID("x"), 800
		l := newLine(t, dial)
		l.hello(token)
		l.request(wire.Request{Op: "start", Start: &start})
		eventually(t, "it lives", func() bool { return len(processesWith(mark)) > 0 })
		eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
		if x := l.exit(); !x.TimedOut {
			t.Errorf("%+v", x)
		}
	})
	t.Run("signal", func(t *testing.T) {
		start.ID, start.TimeoutMS = hutch.NewID("x"), 0
		l := newLine(t, dial)
		l.hello(token)
		l.request(wire.Request{Op: "start", Start: &start})
		held()
		l.send(wire.TypeSignal, wire.Signal{Signal: int(syscall.SIGTERM)})
		eventually(t, "all are dead", func() bool { return len(processesWith(mark)) == 0 })
		if x := l.exit(); x.TimedOut || x.Signal != 15 {
			t.Errorf("%+v", x)
		}
	})
	if _, err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	r := run(t, c, wire.Start{
		Argv:   []string{"bash", wire.SourceArg, "arg"},
		Source: `stat -c '%a' "$(dirname "$0")" "$0"; echo "$1"; echo "$0"`, SourceName: "main.sh",
	})
	lines := strings.Split(r.stdout, "\n")
	if len(lines) != 5 || strings.Join(lines[:3], " ") != "700 600 arg" || filepath.Base(lines[3]) != "main.sh" {
		t.Fatalf("%q %q", r.stdout, r.stderr)
	}
	eventually(t, "the source is gone", func() bool {
		_, err := os.Stat(filepath.Dir(lines[3]))
		return errors.Is(err, os.ErrNotExist)
	})
}

// Programs that a shell leaves in the background continue; the call does not wait for them.
func TestLeftoversStay(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	r := run(t, c, wire.Start{Command: "(for i in {1..100000}; do echo noise; done; exec sleep 1000) & echo done", Env: []string{mark}})
	if !strings.Contains(r.stdout, "done\n") || r.Code != 0 {
		t.Errorf("%+v", r.Exit)
	}
	eventually(t, "the leftover gets its output written", func() bool {
		left := processesWith(mark)
		return len(left) == 1 && strings.HasSuffix(left[0], "sleep\x001000\x00")
	})
	if r := run(t, c, wire.Start{Command: "echo next"}); r.stdout != "next\n" {
		t.Errorf("%+v", r)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	manyAtOnce(t, c)
}

func manyAtOnce(t *testing.T, c *wire.Client) {
	t.Helper()
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			r, err := try(t, c, wire.Start{Command: fmt.Sprintf("echo %d; exit %d", i, i%100)})
			if err != nil || r.stdout != fmt.Sprintf("%d\n", i) || r.Code != i%100 {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		})
	}
	group.Wait()
}

func TestMuchOutput(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	var n int64
	x, err := c.Run(t.Context(), wire.Start{ID: hutch.NewID("x"), Command: "head -c 1000000000 /dev/zero"}, nil, func(o hutch.Output) error {
		n += int64(len(o.Data))
		return nil
	})
	if err != nil || n != 1_000_000_000 || x.Cursor != n {
		t.Errorf("%d bytes, %+v, %v", n, x, err)
	}
}
