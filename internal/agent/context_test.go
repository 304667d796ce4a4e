package agent_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/kernel"
	"hutch/internal/wire"
)

// outcome is everything that a run returned.
type outcome struct {
	begun  wire.Begun
	end    wire.RunEnd
	out    string // stdout, and stderr between «»
	result []string
	fault  *hutch.CodeError
}

// kernelContext makes a context in a language.
func kernelContext(t *testing.T, c *wire.Client, id, language string, env ...string) kernel.Kernel {
	t.Helper()
	k, err := kernel.Lookup(language)
	if err != nil {
		t.Fatal(err)
	}
	req := k.Context()
	req.ID, req.Env = id, env
	if _, err := c.CreateContext(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return k
}

func runIn(t *testing.T, c *wire.Client, k kernel.Kernel, id string, code kernel.Code, limit time.Duration, stdin io.Reader) outcome {
	t.Helper()
	o, err := tryRun(t, c, k, id, code, limit, stdin)
	if err != nil {
		t.Fatalf("%.60q: %v", code.Text, err)
	}
	return o
}

func tryRun(t *testing.T, c *wire.Client, k kernel.Kernel, id string, code kernel.Code, limit time.Duration, stdin io.Reader) (o outcome, err error) {
	code.ID, code.Stdin = rand.Text(), stdin != nil
	run, err := k.Run(code)
	if err != nil {
		return o, err
	}
	run.Context, run.TimeoutMS = id, limit.Milliseconds()
	var b strings.Builder
	o.begun, o.end, err = c.RunIn(t.Context(), run, stdin, nil, func(out hutch.Output) error {
		if out.Stream == hutch.Stderr {
			fmt.Fprintf(&b, "«%s»", out.Data)
		} else {
			b.Write(out.Data)
		}
		return nil
	}, func(m []byte) error {
		e, err := kernel.Parse(m)
		if err != nil {
			return err
		}
		if e.Result != nil {
			var text string
			json.Unmarshal(e.Result.Data["text/plain"], &text)
			o.result = append(o.result, text)
			fmt.Fprintf(&b, "[%s]", text)
		} else {
			o.fault = e.Error
		}
		return nil
	})
	o.out = b.String()
	return o, err
}

// step is a run and its expected outcome.
type step struct {
	code   string
	stdin  string
	limit  time.Duration
	out    string // with results in [] and stderr in «», in order
	exit   int
	fault  string // name of the error, and a part of its traceback
	ended  bool
	late   bool
	maybes bool // out is only a part of the output
	env    map[string]string
}

func checkSteps(t *testing.T, language string, steps []step, env ...string) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	k := kernelContext(t, c, "c", language, env...)
	fresh := true
	for _, s := range steps {
		var stdin io.Reader
		if s.stdin != "" {
			stdin = strings.NewReader(s.stdin)
		}
		limit := s.limit
		if limit == 0 {
			limit = 20 * time.Second
		}
		o := runIn(t, c, k, "c", kernel.Code{Text: s.code, Env: s.env}, limit, stdin)
		if len(o.out) > 1000 {
			o.out = o.out[:1000] + "..."
		}
		if o.out != s.out && !(s.maybes && strings.Contains(o.out, s.out)) {
			t.Errorf("%s\ngave %q, want %q", s.code, o.out, s.out)
		}
		if o.end.Code != s.exit || o.end.Ended != s.ended || o.end.TimedOut != s.late || o.begun.Fresh != fresh {
			t.Errorf("%s\nended as %+v, fresh %v, want exit %d, ended %v, late %v, fresh %v", s.code, o.end, o.begun.Fresh, s.exit, s.ended, s.late, fresh)
		}
		name, part, _ := strings.Cut(s.fault, "|")
		switch {
		case (o.fault != nil) != (s.fault != ""):
			t.Errorf("%s\nraised %+v, want %q", s.code, o.fault, s.fault)
		case o.fault != nil && (o.fault.Name != name || !strings.Contains(o.fault.Traceback, part)):
			t.Errorf("%s\nraised %+v, want %q", s.code, o.fault, s.fault)
		}
		fresh = o.end.Ended
	}
}

// pythonSteps returns steps whose outcomes must be the same with and without IPython.
func pythonSteps() []step {
	return []step{
		{code: "x = 20\nx + 22", out: `[42]`},
		{code: "print('a'); x", out: `a
[20]`},
		{code: "import sys\nfor i in range(3): print(i); print('e', i, file=sys.stderr)", out: "0\n«e 0\n»1\n«e 1\n»2\n«e 2\n»"},
		{code: "print('no newline', end=''); display(1); print(2)", out: "no newline[1]2\n"},
		{code: "def f():\n  return 1/0\nf()", exit: 1, fault: "ZeroDivisionError|return 1/0"},
		{code: "x y", exit: 1, fault: "SyntaxError|x y"},
		{code: "class R:\n  def __repr__(self): raise ValueError('r')\nR()", exit: 1, fault: "ValueError|raise ValueError('r')"},
		{code: "import asyncio\nawait asyncio.sleep(0.01, 'w')", out: `['w']`},
		{code: "asyncio.run(asyncio.sleep(0, 1))", out: `[1]`},
		{code: "input('name? ')", stdin: "Ünï\n", out: `name? ['Ünï']`},
		{code: "input()", exit: 1, fault: "EOFError|"},
		{code: "import os; os.read(0, 10)", stdin: "raw", out: `[b'raw']`},
		{code: "import sys; sys.exit(3)", exit: 3},
		{code: "sys.exit('why')", exit: 1, out: "«why\n»"},
		{code: "x", out: `[20]`},
		{code: "if os.fork() == 0: print('child')\nelse: os.wait(); print('parent')", out: "child\nparent\n"},
		{code: "for fd in range(21):\n  try: os.close(fd)\n  except OSError: pass"},
		{code: "print('alive', x)", out: "alive 20\n"},
		{code: "for fd in range(21, 1024):\n  try:\n    if 'socket' in os.readlink(f'/proc/self/fd/{fd}'): os.write(fd, b'\\x00garbage {}\\n' * 9); os.write(fd, b'z' * 100000)\n  except OSError: pass\nx", out: `[20]`},
		{code: "import time\ntime.sleep(60)", limit: 200 * time.Millisecond, late: true, exit: 1, fault: "KeyboardInterrupt|time.sleep(60)"},
		{code: "while True: pass", limit: 200 * time.Millisecond, late: true, exit: 1, fault: "KeyboardInterrupt|while True"},
		{code: "await asyncio.sleep(60)", limit: 200 * time.Millisecond, late: true, exit: 1, fault: "KeyboardInterrupt|"},
		{code: "os.system('sleep 60; exit 1')", limit: 200 * time.Millisecond, late: true, out: "[", maybes: true},
		{code: "x", out: `[20]`},
		{code: "while True:\n  try: time.sleep(60)\n  except KeyboardInterrupt: pass", limit: 200 * time.Millisecond, late: true, exit: 137, ended: true},
		{code: "x", exit: 1, fault: "NameError|x"},
		{code: "import os; print('bye', flush=True); os._exit(7)", out: "bye\n", exit: 7, ended: true},
		{code: "import os; os.kill(os.getpid(), 9)", exit: 137, ended: true},
		{code: "import os; os.closerange(0, 4096)\nprint(1)", exit: 120, ended: true},
		{code: "import threading, time\ndef f():\n  time.sleep(0.5); print('late')\nthreading.Thread(target=f).start()"},
		{code: "time.sleep(0.8); 1", out: `[1]`, maybes: true},
		{code: "'\\ud800'", out: `['\ud800']`},
		{code: "1;"},
		{code: "display({'text/html': '<b>'}, raw=True)", out: "[]"},
	}
}

// systemPython selects the system's own Python, which has IPython.
const systemPython = "PATH=/usr/bin:/bin"

func TestPython(t *testing.T) {
	checkSteps(t, "python", append(pythonSteps(), step{code: "get_ipython()", exit: 1, fault: "NameError|get_ipython"}), systemPython, "HUTCH_IPYTHON=0")
}

// TestNewPackages imports the first package that a user installs while the context runs, in the same run and in the
// next one. An import of a missing package still fails.
func TestNewPackages(t *testing.T) {
	install := `import os, site
os.makedirs(site.getusersitepackages())
for name in "first", "second":
    open(site.getusersitepackages() + "/installed_" + name + ".py", "w").write("name = %r" % name)
`
	for _, ipython := range []string{"0", "1"} {
		t.Run(ipython, func(t *testing.T) {
			checkSteps(t, "python", []step{
				{code: "import installed_first", exit: 1, fault: "ModuleNotFoundError"},
				{code: install + "import installed_first\nprint(installed_first.name)", out: "first\n"},
				{code: "import installed_second\nprint(installed_second.name)", out: "second\n"},
				{code: "import installed_third", exit: 1, fault: "ModuleNotFoundError"},
			}, systemPython, "HUTCH_IPYTHON="+ipython, "PYTHONUSERBASE="+t.TempDir())
		})
	}
}

func TestIPython(t *testing.T) {
	needIPython(t)
	checkSteps(t, "python", append(pythonSteps(), []step{
		{code: "%%bash\necho $((6 * 7))", out: "42\n"},
		{code: "print('a')\n!echo b\nprint('c')", out: "a\nb\nc\n"},
		{code: "got = !echo x\ngot[0]", out: "['x']"},
		{code: "_, _i", out: `[('x', 'got = !echo x\ngot[0]')]`},
		{code: "%cd /tmp", out: "/tmp\n"},
		{code: "%pwd", out: "['/tmp']"},
		{code: "%timeit -n1 -r1 pass", out: "1 loop each", maybes: true},
		{code: "%nothing", exit: 1, fault: "UsageError|%nothing"},
		{code: "open('/tmp/bad.py', 'w').write('1/0')\n%run /tmp/bad.py", exit: 1, fault: "ZeroDivisionError|1/0"},
		{code: "from IPython.display import HTML, display\ndisplay(HTML('<b>'))", out: "[<IPython.core.display.HTML object>]"},
		{code: "len?", out: "number of items", maybes: true},
		{code: "!exit 3\n_exit_code", out: "[3]"},
		{code: "!sleep 60", limit: 200 * time.Millisecond, late: true, maybes: true},
		{code: "exit(4)", exit: 4},
		{code: "1", out: "[1]"},
	}...), systemPython)
}

// needIPython skips a test if IPython is missing; CI installs it.
func needIPython(t *testing.T) {
	t.Helper()
	if exec.Command("/usr/bin/python3", "-c", "import IPython").Run() == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("this machine has no python3-ipython")
	}
	t.Skip("needs python3-ipython")
}

func TestBash(t *testing.T) {
	checkSteps(t, "bash", []step{
		{code: "cd /tmp; export A=1; f() { echo f $A; }; alias ll='echo aliased'; shopt -s nullglob"},
		{code: "pwd; f; ll x\nshopt -q nullglob && echo on", out: "/tmp\nf 1\naliased x\non\n"},
		{code: "false", exit: 1},
		{code: "echo $?", out: "1\n"},
		{code: "cat", stdin: "in\n", out: "in\n"},
		{code: "read a; echo got $a", stdin: "x y\n", out: "got x y\n"},
		{code: "cat", out: ""},
		{code: "true; export KEPT=old PLAIN=; PLAIN=p; export -n PLAIN; echo $LENT", out: "\n"},
		{code: "true; (echo $LENT $KEPT $PLAIN); printenv LENT KEPT PLAIN; LENT=y; cat", stdin: "in\n",
			env: map[string]string{"LENT": "it's x", "KEPT": "new", "PLAIN": "q", "no-name": "z"}, out: "it's x new q\nit's x\nnew\nq\nin\n"},
		{code: "echo ${LENT-unset} $PLAIN; printenv KEPT; printenv PLAIN", out: "unset p\nold\n", exit: 1},
		{code: "sleep 60", env: map[string]string{"KEPT": "new"}, limit: 200 * time.Millisecond, late: true, exit: 130, maybes: true},
		{code: "echo $KEPT", out: "old\n"},
		{code: "echo 'a b'\" it's\"", out: "a b it's\n"},
		{code: "printf '\\xff\\x00\\n'", out: "\xff\x00\n"},
		{code: "if", exit: 2, out: "syntax error", maybes: true},
		{code: "sleep 60; echo not", limit: 200 * time.Millisecond, late: true, exit: 130, maybes: true},
		{code: "while :; do :; done", limit: 200 * time.Millisecond, late: true, exit: 130, maybes: true},
		{code: "(trap '' INT; sleep 60)", limit: 200 * time.Millisecond, late: true, exit: 137, maybes: true},
		{code: "f", out: "f 1\n"},
		{code: "exit 3", exit: 3, ended: true, maybes: true},
		{code: "echo $A", out: "\n"},
		{code: "set -e; false; echo not", exit: 1, ended: true, maybes: true},
		{code: "kill -9 $$", exit: 137, ended: true},
		{code: "for i in {3..9}; do eval \"exec $i>&-\"; done; echo out", out: "out\n", maybes: true},
		{code: "# " + strings.Repeat("long ", 20000) + "\necho é", out: "é\n", maybes: true},
	})
}

func TestJavaScript(t *testing.T) {
	checkSteps(t, "javascript", []step{
		{code: "const x = 20; let y = 1; x + 22", out: `[42]`},
		{code: "const x = 21; x", out: `[21]`},
		{code: "console.log('a'); console.error('b'); console.log('c'); display([1]); console.log('d')", out: "a\n«b\n»c\n[[ 1 ]]d\n"},
		{code: "await new Promise(r => setTimeout(() => r('w'), 10))", out: `['w']`},
		{code: "const fs = require('fs'); typeof fs.readFileSync", out: `['function']`},
		{code: "import os, { platform as p } from 'node:os'\np() + typeof os.cpus", out: `['linuxfunction']`},
		{code: "(await import('node:path')).join('a', 'b') // import('x')", out: `['a/b']`},
		{code: "'import(1)'", out: `['import(1)']`},
		{code: "throw new TypeError('boo')", exit: 1, fault: "TypeError|boo"},
		{code: "x y", exit: 1, fault: "SyntaxError|"},
		{code: "({a: 1, b: [1, 2]})", out: `[{ a: 1, b: [ 1, 2 ] }]`},
		{code: "fs.readFileSync(0, 'utf8')", stdin: "in", out: `['in']`},
		{code: "for (let i = 0; i < 3; i++) try { fs.closeSync(i) } catch {}"},
		{code: "console.log('back')", out: "back\n"},
		{code: "for(;;){}", limit: 200 * time.Millisecond, late: true, exit: 1, fault: "Interrupted|"},
		{code: "await new Promise(() => {})", limit: 200 * time.Millisecond, late: true, exit: 1, fault: "Interrupted|"},
		{code: "x", out: `[21]`},
		{code: "process.exit(4)", exit: 4, ended: true},
		{code: "10n ** 20n", out: `[100000000000000000000n]`},
	})
}

func TestTypeScript(t *testing.T) {
	checkSteps(t, "typescript", []step{
		{code: "interface P { a: number }\nconst p: P = {a: 3}; p.a", out: `[3]`},
		{code: "enum E { A = 4 }; import * as path from 'node:path'"},
		{code: "path.join('a', 'b') + p.a + E.A", out: `['a/b34']`},
		{code: "const q: = 3", exit: 1, fault: "SyntaxError|"},
	})
}

func TestNotTooManyContexts(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	made := func(i int) error {
		_, err := c.CreateContext(t.Context(), wire.Context{ID: fmt.Sprintf("c%d", i), Argv: []string{"sleep", "1000"}})
		return err
	}
	for i := range wire.MaxContexts {
		if err := made(i); err != nil {
			t.Fatalf("context %d: %v", i, err)
		}
	}
	err := made(wire.MaxContexts)
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), fmt.Sprint(wire.MaxContexts)) {
		t.Errorf("one more: %v", err)
	}
	if err := made(7); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := c.DeleteContext(t.Context(), "c7"); err != nil {
		t.Error(err)
	}
	if err := made(wire.MaxContexts); err != nil {
		t.Errorf("after one is deleted: %v", err)
	}
}
