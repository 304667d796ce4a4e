package servicetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

func contextDone(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(bounded(t))
}

// once calls f with the first output.
func once(f func()) func(hutch.Output) error {
	var first sync.Once
	return func(hutch.Output) error {
		first.Do(f)
		return nil
	}
}

// endless is an input that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// execTests are tests of commands that run to their end.
type execTests struct{ *suite }

func (s execTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"a result":                   s.result,
		"exit codes":                 s.exitCodes,
		"bytes are exact":            s.exactBytes,
		"environment and folder":     s.environment,
		"files stay":                 s.filesStay,
		"no stdin is an empty stdin": s.noStdin,
		"large stdin":                s.largeStdin,
		"stdin there and back":       s.stdinAndBack,
		"stdin left unread":          s.unreadStdin,
		"stdin as it comes":          s.stdinAsItComes,
		"languages":                  s.language,
		"bad requests":               s.refused,
		"the longest command":        s.longestCommand,
		"many at once":               s.manyAtOnce,
		"a background job does not delay the result": s.backgroundJob,
	}
}

func (s execTests) result(t *testing.T) {
	id, before := s.open(t), time.Now()
	const command = "echo out; echo err >&2; exit 3"
	res := s.do(t, id, hutch.ExecRequest{Command: command})
	switch {
	case res.ExitCode != 3, res.Success(), res.TimedOut, res.Truncated, res.Limit != "":
		t.Errorf("%+v", res)
	case string(res.Stdout) != "out\n", string(res.Stderr) != "err\n":
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	case res.SandboxID != id, res.Command != command:
		t.Errorf("of %q in %q", res.Command, res.SandboxID)
	case res.Duration < 0, res.Duration > patience, res.Timestamp.Before(before.Add(-time.Second)), res.Timestamp.After(time.Now().Add(time.Second)):
		t.Errorf("at %v for %v", res.Timestamp, res.Duration)
	}
}

func (s execTests) exitCodes(t *testing.T) {
	id := s.open(t)
	for command, want := range map[string]int{
		"true": 0, "false": 1, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143,
		"no-such-program-anywhere": 127, "/": 126, "echo 'unclosed": 2,
		"exec >&- 2>&- <&-; exit 4":            4,
		"exec >&- 2>&- <&-; sleep 0.1; exit 5": 5,
		"(sleep 0.1; exit 9) & wait $!":        9,
	} {
		if res := s.do(t, id, hutch.ExecRequest{Command: command}); res.ExitCode != want || res.TimedOut {
			t.Errorf("%s: exit code %d, want %d (%q)", command, res.ExitCode, want, res.Stderr)
		}
	}
}

func (s execTests) exactBytes(t *testing.T) {
	id := s.open(t)
	res := s.do(t, id, hutch.ExecRequest{Command: `printf '\x00\xff\xfe\r\n\xc3'; printf '\x80é' >&2`})
	if string(res.Stdout) != "\x00\xff\xfe\r\n\xc3" || string(res.Stderr) != "\x80é" {
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	}
}

func (s execTests) environment(t *testing.T) {
	id := s.open(t)
	res := s.do(t, id, hutch.ExecRequest{
		Command: `printf '%s|%s' "$A" "$PWD"`, Dir: "/tmp", Env: map[string]string{"A": "b 'c'\n$d"},
	})
	if string(res.Stdout) != "b 'c'\n$d|/tmp" {
		t.Errorf("got %q", res.Stdout)
	}
	if got := s.run(t, id, `echo "$A"`); got != "\n" {
		t.Errorf("the next command still has A=%q", got)
	}
	if !s.NoIsolation {
		if got := s.run(t, id, "pwd; whoami; echo ~"); got != "/workspace\nuser\n/home/user\n" {
			t.Errorf("by default: %q", got)
		}
	}
}

func (s execTests) filesStay(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p a/b && echo 1 > a/b/c")
	if got := s.run(t, id, "cat a/b/c"); got != "1\n" {
		t.Errorf("got %q", got)
	}
}

func (s execTests) noStdin(t *testing.T) {
	if got := s.run(t, s.open(t), "wc -c"); strings.TrimSpace(got) != "0" {
		t.Errorf("read %q bytes", got)
	}
}

func (s execTests) largeStdin(t *testing.T) {
	data := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{7}).Read(data)
	res := s.do(t, s.open(t), hutch.ExecRequest{Command: "sha256sum", Stdin: bytes.NewReader(data)})
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); string(res.Stdout) != want {
		t.Errorf("got %q, want %q", res.Stdout, want)
	}
}

func (s execTests) stdinAndBack(t *testing.T) {
	data := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{8}).Read(data)
	var got bytes.Buffer
	res, err := s.svc.Exec(bounded(t), s.open(t), hutch.ExecRequest{Command: "cat", Stdin: bytes.NewReader(data)}, func(o hutch.Output) error {
		got.Write(o.Data)
		return nil
	})
	if err != nil || !res.Success() || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d of %d bytes came back, or others; exit code %d, %v", got.Len(), len(data), res.ExitCode, err)
	}
}

func (s execTests) unreadStdin(t *testing.T) {
	id := s.open(t)
	if res := s.do(t, id, hutch.ExecRequest{Command: "exit 6", Stdin: endless{}}); res.ExitCode != 6 {
		t.Errorf("exit code %d", res.ExitCode)
	}
	if res := s.do(t, id, hutch.ExecRequest{Command: "head -c 5 | wc -c", Stdin: endless{}}); strings.TrimSpace(string(res.Stdout)) != "5" {
		t.Errorf("got %q", res.Stdout)
	}
}

func (s execTests) stdinAsItComes(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	var got strings.Builder
	lines := []string{"two\n", "three\n"}
	go io.WriteString(w, "one\n")
	_, err := s.svc.Exec(bounded(t), s.open(t), hutch.ExecRequest{Command: `while read -r x; do echo "<$x>"; done`, Stdin: r}, func(o hutch.Output) error {
		got.Write(o.Data)
		if len(lines) == 0 {
			return w.Close()
		}
		line := lines[0]
		lines = lines[1:]
		go io.WriteString(w, line)
		return nil
	})
	if err != nil || got.String() != "<one>\n<two>\n<three>\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func (s execTests) language(t *testing.T) {
	id := s.open(t)
	res := s.do(t, id, hutch.ExecRequest{Language: "python", Command: "import sys\nprint(sum(range(5)), sys.stdin.read())", Stdin: strings.NewReader("in")})
	if string(res.Stdout) != "10 in\n" || !res.Success() {
		t.Errorf("stdout %q, stderr %q", res.Stdout, res.Stderr)
	}
	res = s.do(t, id, hutch.ExecRequest{Language: "python", Command: "1/0"})
	if res.ExitCode != 1 || !strings.Contains(string(res.Stderr), "ZeroDivisionError") {
		t.Errorf("exit code %d, stderr %q", res.ExitCode, res.Stderr)
	}
	_, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Language: "klingon", Command: "nuqneH"}, nil)
	wantKind(t, hutch.Invalid, err, "unknown language")
}

func (s execTests) refused(t *testing.T) {
	id := s.open(t)
	for name, req := range map[string]hutch.ExecRequest{
		"empty":              {},
		"blank":              {Command: " \n\t"},
		"NUL":                {Command: "echo a\x00b"},
		"too long":           {Command: strings.Repeat("x", hutch.MaxCommand+1)},
		"10 MB":              {Command: strings.Repeat("x", 10<<20)},
		"negative timeout":   {Command: "true", Timeout: -1},
		"huge timeout":       {Command: "true", Timeout: 1e18},
		"negative maxOutput": {Command: "true", MaxOutput: -1},
		"huge maxOutput":     {Command: "true", MaxOutput: 16<<20 + 1},
		"relative folder":    {Command: "true", Dir: "here"},
		"missing folder":     {Command: "true", Dir: "/no/such/folder"},
		"folder with NUL":    {Command: "true", Dir: "/tmp\x00"},
		"env name":           {Command: "true", Env: map[string]string{"A=B": ""}},
		"env without name":   {Command: "true", Env: map[string]string{"": "x"}},
		"env value":          {Command: "true", Env: map[string]string{"A": "\x00"}},
	} {
		_, err := s.svc.Exec(bounded(t), id, req, nil)
		wantKind(t, hutch.Invalid, err, "%s", name)
		_, err = s.svc.Exec(bounded(t), id, req, once(func() { t.Errorf("%s: printed something", name) }))
		wantKind(t, hutch.Invalid, err, "%s, streamed", name)
	}
	s.run(t, id, "true")
}

func (s execTests) longestCommand(t *testing.T) {
	id := s.open(t)
	command := "echo ok #"
	command += strings.Repeat("x", hutch.MaxCommand-len(command))
	if res := s.do(t, id, hutch.ExecRequest{Command: command}); string(res.Stdout) != "ok\n" {
		t.Errorf("bash: %q %q", res.Stdout, res.Stderr)
	}
	source := "print('ok') #"
	source += strings.Repeat("x", hutch.MaxCommand-len(source))
	if res := s.do(t, id, hutch.ExecRequest{Command: source, Language: "python"}); string(res.Stdout) != "ok\n" {
		t.Errorf("python: %q %q", res.Stdout, res.Stderr)
	}
}

func (s execTests) manyAtOnce(t *testing.T) {
	id := s.open(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			want := fmt.Sprintln(i)
			res, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "echo " + want}, nil)
			if err != nil || string(res.Stdout) != want {
				t.Errorf("%d: %q, %v", i, res.Stdout, err)
			}
		})
	}
	wg.Wait()
}

func (s execTests) backgroundJob(t *testing.T) {
	id, began := s.open(t), time.Now()
	pid := s.run(t, id, "sleep 300 & echo $!")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("waited %v for a background job", took)
	}
	s.run(t, id, "kill "+pid)
}

// tree prints a line, and starts all kinds of children that outlive a plain kill of the shell.
const tree = `trap '' TERM INT HUP; echo before; echo before >&2; sleep 300 & (setsid sleep 300 &) ; (nohup bash -c 'sleep 300; true' >/dev/null 2>&1 &); while :; do sleep 300; done`

// killTests are tests of commands that are killed: by a time limit, or with their caller.
type killTests struct{ *suite }

func (s killTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"the time limit kills the tree":        s.timeLimit,
		"a command within its time limit":      s.withinTimeLimit,
		"cancelling kills the tree":            s.cancelled,
		"a deadline kills the tree":            s.deadline,
		"an output that fails kills the tree":  s.failingOutput,
		"cancelling while it reads and writes": s.cancelledInPipe,
		"cancelled before":                     s.cancelledBefore,
	}
}

func (s killTests) timeLimit(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	res := s.do(t, id, hutch.ExecRequest{Command: tree, Env: env, Timeout: 0.4})
	if !res.TimedOut || res.Success() || string(res.Stdout) != "before\n" || string(res.Stderr) != "before\n" {
		t.Errorf("timed out %v, stdout %q, stderr %q", res.TimedOut, res.Stdout, res.Stderr)
	}
	if res.Duration < 390*time.Millisecond || res.Duration > 5*time.Second {
		t.Errorf("after %v", res.Duration)
	}
	s.gone(t, id, find)
}

func (s killTests) withinTimeLimit(t *testing.T) {
	if res := s.do(t, s.open(t), hutch.ExecRequest{Command: "echo quick", Timeout: 20}); res.TimedOut || !res.Success() {
		t.Errorf("%+v", res)
	}
}

func (s killTests) cancelled(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	ctx, cancel := contextDone(t)
	defer cancel()
	res, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: tree, Env: env}, once(cancel))
	if !errors.Is(err, context.Canceled) || !strings.Contains(string(res.Stdout)+string(res.Stderr), "before\n") {
		t.Errorf("stdout %q, stderr %q, %v", res.Stdout, res.Stderr, err)
	}
	s.gone(t, id, find)
}

func (s killTests) deadline(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	if _, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: tree, Env: env}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.gone(t, id, find)
}

func (s killTests) failingOutput(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	full := errors.New("the disk is full")
	res, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: tree, Env: env}, func(hutch.Output) error { return full })
	if !errors.Is(err, full) || !strings.Contains(string(res.Stdout)+string(res.Stderr), "before\n") {
		t.Errorf("stdout %q, stderr %q, %v", res.Stdout, res.Stderr, err)
	}
	s.gone(t, id, find)
}

func (s killTests) cancelledInPipe(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	ctx, cancel := contextDone(t)
	defer cancel()
	_, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "cat", Env: env, Stdin: endless{}}, once(cancel))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.gone(t, id, find)
}

func (s killTests) cancelledBefore(t *testing.T) {
	id := s.open(t)
	ctx, cancel := contextDone(t)
	cancel()
	if _, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "touch ran"}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := s.run(t, id, "ls"); got != "" {
		t.Errorf("it ran: %q", got)
	}
}

// outputTests are tests of output of commands: as a stream, and in the result.
type outputTests struct{ *suite }

func (s outputTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"in pieces, with cursors":         s.cursors,
		"as it is printed":                s.asPrinted,
		"the result keeps head and tail":  s.headAndTail,
		"only a stream":                   s.streamOnly,
		"100 MB":                          s.hundredMB,
		"a slow reader slows the program": s.slowReader,
	}
}

func (s outputTests) cursors(t *testing.T) {
	var got [2]bytes.Buffer
	var cursor int64
	res, err := s.svc.Exec(bounded(t), s.open(t), hutch.ExecRequest{Command: "for i in {1..500}; do echo out $i; echo err $i >&2; done"}, func(o hutch.Output) error {
		if cursor += int64(len(o.Data)); o.Cursor != cursor || o.Lost != 0 {
			t.Errorf("cursor %d, lost %d, after %d bytes", o.Cursor, o.Lost, cursor)
		}
		if o.Stream == hutch.Stderr {
			got[1].Write(o.Data)
		} else {
			got[0].Write(o.Data)
		}
		return nil
	})
	if err != nil || res.Truncated {
		t.Fatalf("truncated %v, %v", res.Truncated, err)
	}
	if !bytes.Equal(got[0].Bytes(), res.Stdout) || !bytes.Equal(got[1].Bytes(), res.Stderr) || !strings.HasSuffix(got[1].String(), "err 500\n") {
		t.Errorf("out got %d and %d bytes, the result has %d and %d", got[0].Len(), got[1].Len(), len(res.Stdout), len(res.Stderr))
	}
}

func (s outputTests) asPrinted(t *testing.T) {
	id := s.open(t)
	ctx := bounded(t)
	_, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "printf partial; until test -e go; do sleep 0.02; done"}, once(func() {
		_, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "touch go"}, nil)
		if err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Error(err)
	}
}

func (s outputTests) headAndTail(t *testing.T) {
	id := s.open(t)
	var whole bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintln(&whole, i)
	}
	all, n := whole.String(), whole.Len()
	for _, limit := range []int{1, 7, 1000, n - 1, n, n + 1} {
		res := s.do(t, id, hutch.ExecRequest{Command: "seq 0 9999; echo short >&2", MaxOutput: limit})
		want := all
		if limit < n {
			want = all[:(limit+1)/2] + all[n-limit/2:]
		}
		if string(res.Stdout) != want || res.Truncated != (limit < n || limit < len("short\n")) {
			t.Errorf("limit %d of %d: %d bytes, truncated %v", limit, n, len(res.Stdout), res.Truncated)
		}
	}
}

func (s outputTests) streamOnly(t *testing.T) {
	var all bytes.Buffer
	res, err := s.svc.Exec(bounded(t), s.open(t), hutch.ExecRequest{Command: "echo out; echo err >&2; exit 3", StreamOnly: true}, func(o hutch.Output) error {
		all.Write(o.Data)
		return nil
	})
	if err != nil || res.ExitCode != 3 || len(res.Stdout)+len(res.Stderr) > 0 || res.Truncated || all.Len() != len("out\nerr\n") {
		t.Errorf("%+v, %v; streamed %q", res, err, all.String())
	}
}

func (s outputTests) hundredMB(t *testing.T) {
	id := s.open(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var total int64
	res, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "head -c 100M /dev/zero"}, func(o hutch.Output) error {
		if total += int64(len(o.Data)); o.Cursor != total {
			return fmt.Errorf("cursor %d after %d bytes", o.Cursor, total)
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	if err != nil || !res.Success() || total != 100<<20 {
		t.Errorf("%d bytes, exit code %d, %v", total, res.ExitCode, err)
	}
	if !res.Truncated || len(res.Stdout) != 1<<20 {
		t.Errorf("the result has %d bytes, truncated %v", len(res.Stdout), res.Truncated)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 80<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func (s outputTests) slowReader(t *testing.T) {
	id := s.open(t)
	ctx := bounded(t)
	_, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "head -c 64M /dev/zero; touch done"}, once(func() {
		res, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "sleep 0.3; test ! -e done"}, nil)
		if err != nil || !res.Success() {
			t.Errorf("64 MB were printed that nobody had read (%v)", err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.run(t, id, "test -e done")
}
