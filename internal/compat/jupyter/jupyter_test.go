package jupyter_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/jupyter"
	"hutch/internal/hutchtest/fakeengine"
)

// Open WebUI starts a kernel without a body, runs code, reads until the kernel is idle, and deletes the kernel.
func TestOpenWebUI(t *testing.T) {
	t.Parallel()
	e := fakeengine.Start(t)
	d := serve(t, e, jupyter.Options{})
	id := d.start("")
	l := d.dial(id)
	got := l.run("r1", "import sys\nprint('é')\nprint('oops', file=sys.stderr)\ndisplay('shown')\n6 * 7")
	if want := "busy execute_input stream stream display_data execute_result execute_reply idle"; types(got) != want {
		t.Errorf("%s, want %s", types(got), want)
	}
	if text(got, "stdout") != "é\n" || text(got, "stderr") != "oops\n" || plain(of(got, "display_data")) != "'shown'" || plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
	if c := of(got, "execute_reply"); c["status"] != "ok" || c["execution_count"] != 1.0 {
		t.Errorf("%v", c)
	}
	got = l.run("r2", "1/0")
	if c := of(got, "error"); c["ename"] != "ZeroDivisionError" || !strings.Contains(plainLines(c["traceback"]), "division by zero") {
		t.Errorf("%v", c)
	}
	if c := of(got, "execute_reply"); c["status"] != "error" || c["ename"] != "ZeroDivisionError" || c["execution_count"] != 2.0 {
		t.Errorf("%v", c)
	}
	d.want(http.StatusNoContent, "DELETE", "kernels/"+id, "")
	if list, err := e.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(list), err)
	}
	d.want(http.StatusNotFound, "GET", "kernels/"+id, "")
}

func plainLines(v any) (all string) {
	lines, _ := v.([]any)
	for _, l := range lines {
		all += l.(string) + "\n"
	}
	return all
}

func TestKernels(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	if v := d.want(http.StatusOK, "GET", "../api", ""); v["version"] == "" {
		t.Errorf("%v", v)
	}
	specs := d.want(http.StatusOK, "GET", "kernelspecs", "")
	if all, _ := specs["kernelspecs"].(object); specs["default"] != "python3" || len(all) != 4 {
		t.Errorf("%v", specs)
	}
	if s := d.want(http.StatusOK, "GET", "kernelspecs/bash", ""); s["name"] != "bash" {
		t.Errorf("%v", s)
	}
	d.want(http.StatusNotFound, "GET", "kernelspecs/cobol", "")
	d.want(http.StatusNotFound, "POST", "kernels", `{"name":"cobol"}`)
	d.want(http.StatusNotImplemented, "POST", "kernels", `{"magic":1}`)
	one, two := d.start(`{"name":"python3","env":{"GREETING":"hi"}}`), d.start(`{"name":"bash"}`)
	var list []object
	d.ask("GET", "kernels", "", &list)
	if len(list) != 2 {
		t.Errorf("%v", list)
	}
	l := d.dial(one)
	if got := l.run("a", "import os; x = 1; os.environ['GREETING']"); plain(of(got, "execute_result")) != "'hi'" {
		t.Errorf("%v", got)
	}
	if k := d.want(http.StatusOK, "GET", "kernels/"+one, ""); k["connections"] != 1.0 || len(k["last_activity"].(string)) != len("2026-01-02T03:04:05.678901Z") || k["execution_state"] != "idle" || k["name"] != "python3" {
		t.Errorf("%v", k)
	}
	d.want(http.StatusOK, "POST", "kernels/"+one+"/restart", "")
	if got := l.run("b", "x"); of(got, "error")["ename"] != "NameError" || of(got, "execute_reply")["execution_count"] != 1.0 {
		t.Errorf("after a restart: %v", got)
	}
	shell := d.dial(two)
	if got := shell.run("c", "echo $((6*7)); false"); text(got, "stdout") != "42\n" || of(got, "execute_reply")["evalue"] != "1" {
		t.Errorf("bash: %v", got)
	}
	d.want(http.StatusNoContent, "POST", "kernels/"+two+"/interrupt", "")
}

// A kernel outlives the server, because its record is in the labels of its sandbox.
func TestServerStartsAgain(t *testing.T) {
	t.Parallel()
	e := fakeengine.Start(t)
	first := serve(t, e, jupyter.Options{})
	session := first.want(http.StatusCreated, "POST", "sessions", `{"path":"a.ipynb","name":"","type":"notebook","kernel":{"name":"python3"}}`)
	id := session["kernel"].(object)["id"].(string)
	first.dial(id).run("a", "x = 42")
	second := serve(t, e, jupyter.Options{})
	if got := second.dial(id).run("b", "x"); plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
	if s := second.want(http.StatusOK, "GET", "sessions/"+session["id"].(string), ""); s["path"] != "a.ipynb" {
		t.Errorf("%v", s)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	e := fakeengine.Start(t)
	d := serve(t, e, jupyter.Options{})
	const body = `{"path":"dir/a.ipynb","name":"a","type":"notebook","kernel":{"id":null,"name":"python3"}}`
	s := d.want(http.StatusCreated, "POST", "sessions", body)
	id, kernel := s["id"].(string), s["kernel"].(object)["id"].(string)
	if again := d.want(http.StatusCreated, "POST", "sessions", body); again["id"] != id {
		t.Errorf("the same path has another session: %v", again)
	}
	s = d.want(http.StatusOK, "PATCH", "sessions/"+id, `{"path":"b.ipynb"}`)
	if s["path"] != "b.ipynb" || s["name"] != "a" || s["kernel"].(object)["id"] != kernel {
		t.Errorf("%v", s)
	}
	s = d.want(http.StatusOK, "PATCH", "sessions/"+id, `{"kernel":{"name":"javascript"}}`)
	if k := s["kernel"].(object); s["id"] != id || k["name"] != "javascript" || k["id"] == kernel {
		t.Errorf("%v", s)
	}
	d.want(http.StatusNotFound, "GET", "kernels/"+kernel, "")
	d.want(http.StatusBadRequest, "PATCH", "sessions/"+id, `{"path":"`+strings.Repeat("x", 800)+`"}`)
	d.want(http.StatusNoContent, "DELETE", "sessions/"+id, "")
	d.want(http.StatusNotFound, "GET", "sessions/"+id, "")
	if list, err := e.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(list), err)
	}
}

// The kernels of one user share a sandbox, which no other user of the token can use.
func TestUsers(t *testing.T) {
	t.Parallel()
	e := fakeengine.Start(t)
	d := serve(t, e, jupyter.Options{})
	ann, bob := *d, *d
	ann.user, bob.user = "ann", "bob"
	one, two, other := ann.start(""), ann.start(`{"name":"bash"}`), bob.start(`{"env":{"KERNEL_USERNAME":"bob"}}`)
	if one[:18] != two[:18] || one[:18] == other[:18] {
		t.Errorf("%s, %s and %s", one, two, other)
	}
	bob.want(http.StatusNotFound, "GET", "kernels/"+one, "")
	bob.want(http.StatusNotFound, "DELETE", "kernels/"+one, "")
	var list []object
	if bob.ask("GET", "kernels", "", &list); len(list) != 1 || list[0]["id"] != other {
		t.Errorf("bob sees %v", list)
	}
	ann.want(http.StatusNoContent, "DELETE", "kernels/"+one, "")
	ann.want(http.StatusOK, "GET", "kernels/"+two, "")
	if list, err := e.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("%d sandboxes, %v: that of a user stays", len(list), err)
	}
}

// All clients of a kernel get what it publishes, and only the client that asked gets the answer.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	one, two := d.dial(id), d.dial(id)
	two.send("info", "shell", "kernel_info_request", object{})
	two.until("info", "status", "idle")
	content := object{"code": "print(1)"}
	b := strings.Replace(string(request("r", "shell", "execute_request", content)), `"session":"s"`, `"session":"other"`, 1)
	if err := one.Write(t.Context(), 1, []byte(b)); err != nil {
		t.Fatal(err)
	}
	if got := types(one.until("r", "status", "idle")); !strings.Contains(got, "execute_reply") {
		t.Errorf("the client that asked hears %s", got)
	}
	if got := types(two.until("r", "status", "idle")); got != "busy execute_input stream idle" {
		t.Errorf("the other hears %s", got)
	}
}

func TestBinaryProtocol(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""), jupyter.BinaryProtocol)
	if l.Subprotocol() != jupyter.BinaryProtocol {
		t.Fatalf("the protocol is %q", l.Subprotocol())
	}
	var m struct {
		Header, Content json.RawMessage
	}
	if err := json.Unmarshal(request("r", "shell", "execute_request", object{"code": "6*7"}), &m); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(t.Context(), 2, jupyter.Frame("shell", m.Header, []byte("{}"), []byte("{}"), m.Content)); err != nil {
		t.Fatal(err)
	}
	for {
		typ, b, err := l.Read(t.Context())
		if err != nil || typ != 2 {
			t.Fatal(typ, err)
		}
		parts := jupyter.Parts(b)
		if strings.Contains(string(parts[1]), `"execute_result"`) {
			if string(parts[0]) != "iopub" || !strings.Contains(string(parts[2]), `"msg_id":"r"`) || !strings.Contains(string(parts[4]), `"text/plain":"42"`) {
				t.Errorf("%q", parts)
			}
			return
		}
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""))
	l.send("r", "shell", "execute_request", object{"code": "import getpass\n(input('name? '), getpass.getpass('secret? '))", "allow_stdin": true})
	first := l.until("r", "input_request", "")
	if c := of(first, "input_request"); c["prompt"] != "name? " || c["password"] != false || text(first, "stdout") != "" {
		t.Errorf("%v", first)
	}
	l.send("i1", "stdin", "input_reply", object{"value": "Ann", "status": "ok"})
	if c := of(l.until("r", "input_request", ""), "input_request"); c["prompt"] != "secret? " || c["password"] != true {
		t.Errorf("%v", c)
	}
	l.send("i2", "stdin", "input_reply", object{"value": "x y"})
	if got := l.until("r", "status", "idle"); plain(of(got, "execute_result")) != "('Ann', 'x y')" {
		t.Errorf("%v", got)
	}
	if got := l.run("none", "input()"); of(got, "error")["ename"] != "EOFError" {
		t.Errorf("without stdin: %v", got)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	l := d.dial(id)
	for i, interrupt := range []func(){
		func() { d.want(http.StatusNoContent, "POST", "kernels/"+id+"/interrupt", "") },
		func() { l.send("stop", "control", "interrupt_request", object{}) },
	} {
		r, next := string(rune('a'+i)), string(rune('m'+i))
		l.send(r, "shell", "execute_request", object{"code": "print('on', flush=True)\nimport time; time.sleep(60)"})
		l.send(next, "shell", "execute_request", object{"code": "print('never')"})
		l.until(r, "stream", "")
		interrupt()
		var reply, aborted object
		for reply == nil || aborted == nil {
			switch m := l.next(); {
			case m.Type == "execute_reply" && m.Parent.ID == r:
				reply = m.Content
			case m.Type == "execute_reply" && m.Parent.ID == next:
				aborted = m.Content
			}
		}
		if reply["ename"] != "KeyboardInterrupt" || aborted["status"] != "aborted" {
			t.Errorf("%v, and then %v", reply, aborted)
		}
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""))
	ask := func(typ string, content object) object {
		t.Helper()
		l.send(typ, "shell", typ+"_request", content)
		return of(l.until(typ, "status", "idle"), typ+"_reply")
	}
	if c := ask("kernel_info", object{}); c["protocol_version"] != "5.3" || c["language_info"].(object)["name"] != "python" {
		t.Errorf("%v", c)
	}
	l.run("def", "def greeting(name):\n  'Says \\u2028 hello.'\n  return 'é' + name\nvalue = 7")
	if c := ask("complete", object{"code": "'é\u2028'; gree", "cursor_pos": 10}); len(c["matches"].([]any)) != 1 || c["cursor_start"] != 6.0 || c["cursor_end"] != 10.0 {
		t.Errorf("%v", c)
	}
	if c := ask("inspect", object{"code": "greeting(", "cursor_pos": 8, "detail_level": 0}); c["found"] != true || !strings.Contains(plain(c), "hello.") {
		t.Errorf("%v", c)
	}
	if c := ask("inspect", object{"code": "nothing", "cursor_pos": 3}); c["found"] != false || c["status"] != "ok" {
		t.Errorf("%v", c)
	}
	for code, want := range map[string]string{"x = 1": "complete", "for i in x:": "incomplete", "x = = 1": "invalid"} {
		if c := ask("is_complete", object{"code": code}); c["status"] != want {
			t.Errorf("%s: %v", code, c)
		}
	}
	if c := ask("comm_info", object{}); c["status"] != "ok" {
		t.Errorf("%v", c)
	}
	if c := ask("debug", object{}); c["status"] != "error" {
		t.Errorf("%v", c)
	}
	got := l.run("expr", "value", "user_expressions", object{"good": "value + 1", "bad": "1/0"})
	values := of(got, "execute_reply")["user_expressions"].(object)
	if plain(values["good"].(object)) != "8" || values["bad"].(object)["ename"] != "ZeroDivisionError" {
		t.Errorf("%v", values)
	}
	if n := of(got, "execute_reply")["execution_count"]; n != 2.0 {
		t.Errorf("questions count as runs: %v", n)
	}
	if got := l.run("silent", "_ = 1; value = 9; value", "silent", true, "store_history", false); types(got) != "busy execute_reply idle" {
		t.Errorf("%s", types(got))
	}
	if c := ask("history", object{"hist_access_type": "tail", "n": 1}); len(c["history"].([]any)) != 1 || c["history"].([]any)[0].([]any)[2] != "value" {
		t.Errorf("%v", c)
	}
	if c := ask("history", object{"hist_access_type": "search", "pattern": "*def*"}); len(c["history"].([]any)) != 1 {
		t.Errorf("%v", c)
	}
}

func TestDisplays(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""))
	got := l.run("r", "h = display('one', display_id='x')\nh.update('two')\nfrom hutch_notebook import clear_output\nclear_output(wait=True)")
	shown, changed := of(got, "display_data"), of(got, "update_display_data")
	if shown["transient"].(object)["display_id"] != "x" || changed["transient"].(object)["display_id"] != "x" || plain(changed) != "'two'" || of(got, "clear_output")["wait"] != true {
		t.Errorf("%v", got)
	}
	if data := shown["data"].(object); len(data) != 1 {
		t.Errorf("%v", data)
	}
}

// A cell continues when its client leaves, and a client that returns to its session gets the answer.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	l := d.dial(id)
	l.send("r", "shell", "execute_request", object{"code": "print('on', flush=True)\nimport time; time.sleep(1)\nx = 42"})
	l.until("r", "stream", "")
	l.CloseNow()
	back := d.dial(id)
	back.send("i", "control", "kernel_info_request", object{})
	if got := back.until("r", "status", "idle"); of(got, "execute_reply")["status"] != "ok" {
		t.Errorf("%v", got)
	}
	if got := back.run("s", "x"); plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
}

// An interpreter that dies is reported as a Jupyter server reports it: the waiting client gets a failed cell.
func TestKernelDies(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	l := d.dial(d.start(""))
	l.run("set", "x = 1")
	got := l.run("r", "import os; os.kill(os.getpid(), 9)")
	if of(got, "error")["ename"] != "DeadKernel" || of(got, "execute_reply")["status"] != "error" {
		t.Errorf("%v", got)
	}
	if got := l.run("after", "'x' in globals()"); plain(of(got, "execute_result")) != "False" || text(got, "stderr") != "" {
		t.Errorf("%v", got)
	}
}

func TestDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	id := d.start("")
	l := d.dial(id)
	l.send("r", "shell", "execute_request", object{"code": "print('on', flush=True)\nimport time; time.sleep(60)"})
	l.until("r", "stream", "")
	began := time.Now()
	d.want(http.StatusNoContent, "DELETE", "kernels/"+id, "")
	for {
		if _, _, err := l.Read(t.Context()); err != nil {
			break
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
