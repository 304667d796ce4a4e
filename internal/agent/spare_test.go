package agent_test

import (
	"strings"
	"testing"
	"time"

	"hutch/internal/kernel"
	"hutch/internal/wire"
)

// loaded is code that shows whether the module colorsys is loaded, which only the spare interpreter imports; the value
// of WHOSE; and whether Python is in UTF-8 mode.
const loaded = "import os, sys\n'colorsys' in sys.modules, os.environ.get('WHOSE'), sys.flags.utf8_mode"

// spared makes an agent with one spare interpreter.
func spared(t *testing.T, modules ...string) *wire.Client {
	t.Helper()
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	k, err := kernel.Lookup("python")
	if err != nil {
		t.Fatal(err)
	}
	req, err := k.Spare(modules)
	if err != nil {
		t.Fatal(err)
	}
	req.Env = plainPython
	if err := c.Spare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return c
}

var plainPython = []string{systemPython, "HUTCH_IPYTHON=0"}

func check(t *testing.T, c *wire.Client, id, want string, env ...string) outcome {
	t.Helper()
	k := kernelContext(t, c, id, "python", append(plainPython, env...)...)
	o := runIn(t, c, k, id, kernel.Code{Text: loaded}, time.Minute, nil)
	if got := strings.Join(o.result, ""); got != want || !o.begun.Fresh || o.end.Runs != 1 {
		t.Errorf("context %s: %s, not %s (%+v)", id, got, want, o)
	}
	return o
}

func TestSpareNode(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	k, err := kernel.Lookup("javascript")
	if err != nil {
		t.Fatal(err)
	}
	req, err := k.Spare([]string{"zlib", "none"})
	if err != nil {
		t.Fatal(err)
	}
	req.Env = []string{"BORN=spare"}
	if err := c.Spare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	const code = `const born: string = require('fs').readFileSync('/proc/self/environ', 'latin1');
[process.env.WHOSE, process.env.BORN, born.includes('BORN=spare')]`
	ts := kernelContext(t, c, "ts", "typescript", "WHOSE=ours")
	o := runIn(t, c, ts, "ts", kernel.Code{Text: code}, time.Minute, nil)
	if got := strings.Join(o.result, ""); got != "[ 'ours', undefined, true ]" || !o.begun.Fresh {
		t.Errorf("it gave %q (%+v)", got, o)
	}
}

func TestSpare(t *testing.T) {
	c := spared(t, "colorsys", "no_such_module")
	check(t, c, "first", "(True, 'ours', 1)", "WHOSE=ours")
	check(t, c, "second", "(False, None, 1)")
}

// Settings that only count when an interpreter starts cannot be applied to a spare one.
func TestSpareIsNotForAll(t *testing.T) {
	c := spared(t, "colorsys")
	check(t, c, "other", "(False, None, 0)", "PYTHONUTF8=0")
	check(t, c, "like", "(True, None, 1)")
}

// ownKernels lists the interpreters of the agent that runs this code; other agents on this host have interpreters,
// too.
const ownKernels = `for d in /proc/[0-9]*; do p=${d#/proc/}
grep -qzx "AGENT_TEST=$AGENT_TEST" $d/environ 2>/dev/null && grep -qzx ".*/kernel.py" $d/cmdline || continue
`

// Code inside can attack a spare interpreter like any other process of its user.
func TestSpareThatIsAttacked(t *testing.T) {
	for _, signal := range []string{"KILL", "STOP"} {
		t.Run(signal, func(t *testing.T) {
			c := spared(t, "colorsys")
			run(t, c, wire.Start{ID: "attacker", Command: ownKernels + "kill -" + signal + " $p; done"})
			k := kernelContext(t, c, "c", "python", plainPython...)
			o, err := tryRun(t, c, k, "c", kernel.Code{Text: "6 * 7"}, 2*time.Second, nil)
			if err != nil {
				t.Fatal(err)
			}
			if o.end.Ended || o.end.TimedOut { // the spare interpreter was used, although it was dead or stopped: the next one is new
				o = runIn(t, c, k, "c", kernel.Code{Text: "6 * 7"}, time.Minute, nil)
			}
			if got := strings.Join(o.result, ""); got != "42" {
				t.Errorf("it gave %q (%+v)", got, o)
			}
		})
	}
}
