package jupyter_test

import (
	"net/http"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/compat/jupyter"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// asleep puts the only sandbox to sleep.
func asleep(t *testing.T, e *engine.Engine) {
	t.Helper()
	list, err := e.Sandboxes(t.Context(), hutch.Filter{Brief: true})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d sandboxes, %v", len(list), err)
	}
	sb, err := e.Hibernate(t.Context(), list[0].ID, hutch.HibernateRequest{})
	if err != nil || !sb.Status.Sleeps() {
		t.Fatalf("%s, %v", sb.Status, err)
	}
}

// TestKernelsThatSleep: on gVisor, a kernel's state survives the hibernation of its sandbox: variables, open files,
// generators, imports, the count of runs. A client that stayed connected finds the state, and so does a client that
// connects later.
func TestKernelsThatSleep(t *testing.T) {
	t.Parallel()
	e := hutchtest.Engine(t, "gvisor", nil)
	d := serve(t, e, jupyter.Options{})
	d.user = "ada"
	id, shell := d.start(`{"name":"python3"}`), d.start(`{"name":"bash"}`)
	l, s := d.dial(id), d.dial(shell)
	l.run("a", "import itertools, os\nx = 41\ng = itertools.count(7); next(g)\nf = open('kept', 'w+'); f.write('written before')\ndef add(n):\n  global x\n  x += n\n  return x")
	s.run("a", "y=of-bash; cd /tmp")
	for round, want := range []string{"42 8 written before", "43 9 written before"} {
		asleep(t, e)
		got := l.run("b", "f.seek(0); print(add(1), next(g), f.read())")
		if out := text(got, "stdout"); out != want+"\n" || of(got, "execute_reply")["status"] != "ok" || of(got, "execute_reply")["execution_count"] != float64(round+2) {
			t.Fatalf("after sleep %d the next cell gave %v", round+1, got)
		}
		if strings.Contains(types(got), "starting") || strings.Contains(types(got), "restarting") {
			t.Errorf("the client hears of a new kernel: %s", types(got))
		}
		if got := s.run("c", "echo $y $PWD"); text(got, "stdout") != "of-bash /tmp\n" {
			t.Errorf("bash after sleep %d: %v", round+1, got)
		}
	}
	// Looking at kernels does not wake the sandbox; a client that connects and sends a request does.
	asleep(t, e)
	if got := d.want(http.StatusOK, "GET", "kernels/"+id, ""); got["execution_state"] != "idle" {
		t.Errorf("a kernel that sleeps is %v", got)
	}
	if list, err := e.Sandboxes(t.Context(), hutch.Filter{Brief: true}); err != nil || list[0].Status != hutch.Hibernated {
		t.Errorf("looking woke it: %v, %v", list, err)
	}
	other := d.dial(id)
	other.send("k", "shell", "complete_request", object{"code": "itertools.coun", "cursor_pos": 14})
	if got := of(other.until("k", "status", "idle"), "complete_reply"); !strings.Contains(toText(got["matches"]), "count") {
		t.Errorf("completion after the wake: %v", got)
	}
	// A run of a kernel after the wake can be interrupted.
	other.send("r", "shell", "execute_request", object{"code": "print('on', flush=True)\nimport time; time.sleep(600)"})
	other.until("r", "stream", "")
	d.want(http.StatusNoContent, "POST", "kernels/"+id+"/interrupt", "")
	if got := other.until("r", "status", "idle"); of(got, "error")["ename"] != "KeyboardInterrupt" {
		t.Errorf("interrupted after the wake: %v", got)
	}
	if got := other.run("v", "x"); plain(of(got, "execute_result")) != "43" {
		t.Errorf("and after that: %v", got)
	}
	// A server that starts again finds a kernel that sleeps.
	asleep(t, e)
	second := serve(t, e, jupyter.Options{})
	second.user = "ada"
	if got := second.dial(id).run("w", "add(1)"); plain(of(got, "execute_result")) != "44" {
		t.Errorf("another server: %v", got)
	}
}

func toText(v any) string {
	list, _ := v.([]any)
	var all []string
	for _, x := range list {
		s, _ := x.(string)
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

// TestKernelsThatSleepWithoutMemory: on native, where a sandbox keeps only its files, the client is informed that the
// kernel was restarted, and the next cell works.
func TestKernelsThatSleepWithoutMemory(t *testing.T) {
	t.Parallel()
	e := hutchtest.Engine(t, "native", nil)
	d := serve(t, e, jupyter.Options{})
	l := d.dial(d.start(`{"name":"python3"}`))
	l.run("a", "x = 41; open('kept', 'w').write('written before')")
	asleep(t, e)
	got := l.run("b", "print(open('kept').read(), 'x' in globals())")
	if text(got, "stdout") != "written before False\n" {
		t.Errorf("%v", got)
	}
	if said := text(got, "stderr") + text(l.run("c", "pass"), "stderr"); !strings.Contains(said, "started again") {
		t.Errorf("the client is told %q", said)
	}
}
