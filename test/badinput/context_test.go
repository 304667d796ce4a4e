package badinput

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
)

// hostile is code that fights the interpreter that runs it.
var hostile = []struct {
	name     string
	language string
	code     string
	timeout  hutch.Seconds
	lost     bool // the interpreter ends when it runs the code
	late     bool
	sent     int64  // bytes of output; -1 means any number
	says     string // what stdout begins with
}{
	{name: "prints a flood", timeout: 240, sent: flood, says: "xxx", code: fmt.Sprintf("import os\nfor _ in range(%d): os.write(1, b'x' * (1 << 16))", flood>>16)},
	{name: "never ends a line", timeout: 1, late: true, sent: -1, says: "yyy", code: "while True: print('y' * 1000, end='')"},
	{name: "never ends a line", language: "bash", timeout: 1, late: true, sent: -1, says: "zzz", code: "while :; do printf zzzzzzzzzzzz; done"},
	{name: "never ends a line", language: "javascript", timeout: 1, late: true, sent: -1, says: "www", code: "for (;;) process.stdout.write('w'.repeat(1000))"},
	{name: "exits at once", lost: true, sent: 4, says: "bye\n", code: "import os\nos.write(1, b'bye\\n')\nos._exit(7)"},
	{name: "exits at once", language: "javascript", lost: true, code: "process.reallyExit(7)"},
	{name: "exits at once", language: "bash", lost: true, sent: -1, code: "kill -9 $BASHPID"},
	{name: "crashes", lost: true, code: "import ctypes\nctypes.string_at(0)", sent: -1},
	{name: "forks, and the child continues", sent: -1, code: `
import os, sys
if os.fork() == 0:
    for fd in range(3, 1024):
        try: os.write(fd, b'\n$0\n' * 100)
        except OSError: pass
    raise SystemExit(0)
os.wait()`},
	{name: "closes standard output", code: "import os, sys\nsys.stdout.close()\nos.close(1); os.close(2); os.close(0)"},
	{name: "closes standard output", language: "bash", sent: -1, code: "exec 1>&- 2>&- 0<&-"},
	{name: "closes standard output", language: "javascript", code: "for (const fd of [0, 1, 2]) require('fs').closeSync(fd)"},
	{name: "closes everything", lost: true, sent: -1, code: "import os\nos.closerange(0, 1 << 16)"},
	{name: "writes to every descriptor", sent: -1, code: `
import fcntl, os
for fd in range(1024):
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        os.write(fd, b'\x00\xff\n{"id":"x"}\nack 1\n' + b'+' * 100000 + b'\n')
    except OSError: pass
    try: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    except OSError: pass`},
	{name: "loops in C", timeout: 1, late: true, lost: true, code: "import itertools\nsum(itertools.repeat(1))"},
	{name: "loops behind an await", language: "javascript", timeout: 1, late: true, lost: true, code: "await 1; for (;;) {}"},
	{name: "does not hear", language: "bash", timeout: 1, late: true, lost: true, sent: -1, code: "trap '' INT; while :; do :; done"},
	{name: "stops itself", timeout: 1, late: true, lost: true, code: "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"},
}

// remember and recall show that a context has kept its state.
var (
	remember = map[string]string{"python": "kept = 1", "javascript": "globalThis.kept = 1", "bash": "kept=1"}
	recall   = map[string]string{"python": "print('kept' in globals())", "javascript": "console.log('kept' in globalThis)", "bash": "[[ -n $kept ]] && echo true || echo false"}
)

func TestHostileContexts(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		id := b.sandbox(t, hutch.CreateRequest{})
		for _, h := range hostile {
			if h.language == "" {
				h.language = "python"
			}
			t.Run(h.name+" in "+h.language, func(t *testing.T) {
				b.code(t, id, h.language, remember[h.language])
				leave := b.watch(t)
				var sent int64
				began := time.Now()
				r, err := b.RunCode(t.Context(), id, hutch.RunRequest{Language: h.language, Code: h.code, Timeout: h.timeout}, func(e hutch.RunEvent) error {
					if e.Output != nil {
						sent += int64(len(e.Output.Data))
					}
					return nil
				})
				took := time.Since(began)
				leave()
				if err != nil {
					t.Fatal(err)
				}
				if r.Ended != h.lost || r.TimedOut != h.late || h.sent >= 0 && sent != h.sent || !strings.HasPrefix(string(r.Stdout), h.says) {
					t.Errorf("ended %v, timed out %v, %d bytes sent, stdout %.100q, stderr %.300q, %+v", r.Ended, r.TimedOut, sent, r.Stdout, r.Stderr, r.Error)
				}
				if cut := len(r.Stdout) == 1<<20; r.Truncated != cut || r.Truncated != (sent > 1<<20) {
					t.Errorf("%d of %d bytes kept, truncated %v", len(r.Stdout), sent, r.Truncated)
				}
				if took > h.timeout.Duration()+grace {
					t.Errorf("it took %v", took)
				}
				next := b.code(t, id, h.language, recall[h.language])
				if got := strings.ToLower(strings.TrimSpace(string(next.Stdout))); next.Fresh != h.lost || (got == "true") == h.lost {
					t.Errorf("the next run: fresh %v, state kept: %q, stderr %.300q", next.Fresh, next.Stdout, next.Stderr)
				}
				b.checkWorks(t, id)
			})
		}
		b.checkWorks(t, b.neighbour)
	})
}

// code runs code that must end by itself.
func (b *bed) code(t *testing.T, id, language, code string) hutch.RunResult {
	t.Helper()
	r, err := b.RunCode(t.Context(), id, hutch.RunRequest{Language: language, Code: code}, nil)
	if err != nil || !r.Success() {
		t.Fatalf("%s: %+v, %v", code, r, err)
	}
	return r
}
