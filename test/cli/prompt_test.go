package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"hutch/internal/hutchtest"
)

// person is a person at a terminal.
type person struct {
	t     *testing.T
	tty   *os.File
	cmd   *exec.Cmd
	mu    sync.Mutex
	seen  strings.Builder
	ended chan error
}

// startInTerminal starts a program in a terminal.
func startInTerminal(t *testing.T, env []string, args ...string) *person {
	t.Helper()
	p := &person{t: t, cmd: exec.Command(hutchtest.Program(t, "hutch"), args...), ended: make(chan error, 1)}
	p.cmd.Env = env
	tty, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	p.tty = tty
	go func() {
		io.Copy(p, tty)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() { p.cmd.Process.Kill(); tty.Close() })
	return p
}

func (p *person) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

// shown returns the output of the terminal since the last reset.
func (p *person) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

// types types keys, and waits until the terminal shows a text.
func (p *person) types(keys, want string) {
	p.t.Helper()
	p.mu.Lock()
	p.seen.Reset()
	p.mu.Unlock()
	if _, err := io.WriteString(p.tty, keys); err != nil {
		p.t.Fatal(err)
	}
	p.wantOutput(want)
}

func (p *person) wantOutput(want string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(p.shown(), want); {
		if time.Now().After(end) {
			p.t.Fatalf("the terminal does not show %q, but %q", want, p.shown())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// leaves waits for the end of the program.
func (p *person) leaves(code int) {
	p.t.Helper()
	select {
	case err := <-p.ended:
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		}
		if got != code {
			p.t.Errorf("the exit code is %d, not %d: %q", got, code, p.shown())
		}
	case <-time.After(patience):
		p.t.Fatalf("it does not end: %q", p.shown())
	}
}

// serve starts a server, and returns the environment of its clients.
func serve(t *testing.T, runtime string, flags ...string) (env []string) {
	hutchtest.Driver(t, runtime, hutchtest.Dir(t)) // skips the test where the runtime does not work
	data, home := hutchtest.Dir(t), hutchtest.Dir(t)
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HUTCH_DATA=" + data, "TERM=xterm"}
	cmd := exec.Command(hutchtest.Program(t, "hutch"), "serve", "--listen", "127.0.0.1:0", "--runtime", runtime, "--quiet", "--cold-compilers")
	cmd.Args = append(cmd.Args, flags...)
	said := &hutchtest.Buffer{}
	cmd.Env, cmd.Stdout, cmd.Stderr = env, said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		rm := exec.Command(hutchtest.Program(t, "hutch"), "rm", "--all", "--force")
		rm.Env = env
		if out, err := rm.CombinedOutput(); err != nil {
			t.Errorf("remove the sandboxes: %v: %s", err, out)
		}
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v: %s", err, said)
		}
		if err := leftovers(data); err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(data, "server/address")); err == nil && said.Holds("URL") {
			return env
		}
		if time.Now().After(end) {
			t.Fatalf("the server does not start: %s", said)
		}
	}
}

// TestPromptIsInterrupted: Ctrl-C interrupts the code and nothing else, as often
// as it is pressed.
func TestPromptIsInterrupted(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			p := startInTerminal(t, serve(t, runtime), "code", "demo")
			p.wantOutput("> ")
			p.types("x = 41\r", "> ")
			for i := range 2 {
				p.types(fmt.Sprintf("import time; print('up' + '%d', flush=True); time.sleep(600)\r", i), fmt.Sprintf("up%d", i))
				p.types("\x03", "KeyboardInterrupt")
				p.wantOutput("> ")
				p.types("x + 1\r", "42")
			}
			// At the prompt, Ctrl-C discards the line.
			p.types("x = 0", "x = 0")
			p.types("\x03", "> ")
			p.types("if True:\r", ". ")
			p.types("\tx = 0\x03", "> ")
			p.types("x + 2\r", "43")
			// Tab indents.
			p.types("if x:\r\tprint('ta' + 'bbed')\r\r", "tabbed")
			p.types("exit()\r", "")
			p.leaves(0)
		})
	}
}

// TestErrorWithoutColours: an error of code is red at a terminal, unless NO_COLOR or the kind of terminal turns colours
// off.
func TestErrorWithoutColours(t *testing.T) {
	env := serve(t, "native")
	for variable, red := range map[string]bool{"COLORTERM=": true, "NO_COLOR=1": false, "TERM=dumb": false} {
		p := startInTerminal(t, append(slices.Clip(env), variable), "code", "-c", "1/0", "demo")
		p.wantOutput("ZeroDivisionError")
		p.leaves(1)
		if strings.Contains(p.shown(), "\x1b[31m") != red {
			t.Errorf("%s: %q", variable, p.shown())
		}
	}
}

// TestMadeIsTold: a person learns when a typo created a sandbox; a script gets no such line.
func TestMadeIsTold(t *testing.T) {
	t.Parallel()
	env := serve(t, "native")
	p := startInTerminal(t, env, "exec", "dmeo", "echo in; sleep 0.1")
	p.wantOutput("hutch: made the sandbox dmeo")
	p.leaves(0)
	p = startInTerminal(t, env, "exec", "dmeo", "echo again")
	p.wantOutput("again")
	p.leaves(0)
	if strings.Contains(p.shown(), "made") {
		t.Errorf("the second time it shows %q", p.shown())
	}
	script := exec.Command(hutchtest.Program(t, "hutch"), "exec", "other", "true")
	script.Env = env
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a script sees %q, %v", out, err)
	}
}

// TestNoLimitAtATerminal: the server's time limit for commands applies only to programs.
func TestNoLimitAtATerminal(t *testing.T) {
	t.Parallel()
	env := serve(t, "native", "--exec-timeout", "1s")
	p := startInTerminal(t, env, "exec", "demo", "sleep 2; echo do''ne")
	p.wantOutput("done")
	p.leaves(0)
	script := exec.Command(hutchtest.Program(t, "hutch"), "exec", "demo", "sleep 20")
	script.Env = env
	if out, err := script.CombinedOutput(); err == nil || !strings.Contains(string(out), "--timeout") {
		t.Errorf("a script sees %q, %v", out, err)
	}
	p = startInTerminal(t, serve(t, "native", "--exec-timeout", "1s", "--max-timeout", "1m"), "exec", "demo", "sleep 20")
	p.wantOutput("allow more with --timeout")
	p.leaves(137)
}

// TestMCPAtATerminal: a person who starts `hutch mcp` is shown what it waits for, and can end it.
func TestMCPAtATerminal(t *testing.T) {
	t.Parallel()
	hutchtest.Driver(t, "native", hutchtest.Dir(t)) // skips the test where the runtime does not work
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + hutchtest.Dir(t), "HUTCH_DATA=" + hutchtest.Dir(t), "TERM=xterm"}
	p := startInTerminal(t, env, "mcp", "--runtime", "native")
	p.wantOutput(`{"mcpServers": {"hutch": {"command": "hutch", "args": ["mcp"]}}}`)
	p.wantOutput("Ctrl-D ends it.")
	p.types("\x04", "")
	p.leaves(0)
}

// TestRequestsAtATerminal: at a terminal, a server shows requests only if it is asked to, because they would hide its
// URL.
func TestRequestsAtATerminal(t *testing.T) {
	t.Parallel()
	hutchtest.Driver(t, "native", hutchtest.Dir(t)) // skips the test where the runtime does not work
	for _, flag := range []string{"", "--verbose"} {
		env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + hutchtest.Dir(t), "HUTCH_DATA=" + hutchtest.Dir(t), "TERM=xterm"}
		p := startInTerminal(t, env, strings.Fields("serve --listen 127.0.0.1:0 --runtime native "+flag)...)
		p.wantOutput("HUTCH_URL=")
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			list := exec.Command(hutchtest.Program(t, "hutch"), "ls")
			list.Env = env
			out, err := list.CombinedOutput()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v: %s", err, out)
			}
		}
		io.WriteString(p.tty, "\x03")
		p.leaves(0)
		if shown := strings.Contains(p.shown(), "/v1/sandboxes"); shown != (flag != "") {
			t.Errorf("with the flag %q, a request is shown: %v; %q", flag, shown, p.shown())
		}
	}
}
