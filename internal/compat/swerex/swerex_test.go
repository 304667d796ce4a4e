package swerex_test

import (
	"archive/zip"
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/swerex"
	"hutch/internal/hutchtest/fakeengine"
)

func TestExecute(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	if a := b.ask("is_alive", ""); a.field("is_alive") != true {
		t.Errorf("is_alive: %d %s", a.status, a.body)
	}
	a := b.want("execute", fields{"command": []string{"sh", "-c", `printf 'a\377b'; echo err >&2; exit 3`}})
	if a.field("stdout") != `a\xffb` || a.field("stderr") != "err\n" || a.field("exit_code") != 3.0 {
		t.Errorf("execute: %s", a.body)
	}
	a = b.want("execute", fields{"command": "echo $A; echo e >&2", "shell": true, "env": fields{"A": "<b>"}, "merge_output_streams": true})
	if a.field("stdout") != "<b>\ne\n" || a.field("stderr") != "" {
		t.Errorf("in a shell: %s", a.body)
	}
	if text := b.raises("NonZeroExitCodeError", "execute", fields{"command": []string{"false"}, "check": true, "error_msg": "it broke"}); !strings.HasPrefix(text, "it broke: ") {
		t.Errorf("check: %s", text)
	}
	b.raises("CommandTimeoutError", "execute", fields{"command": []string{"sleep", "60"}, "timeout": 0.2})
	b.raises("ValueError", "execute", fields{"command": []string{"true"}, "timeout": 1e300})
	b.raises("ValueError", "execute", fields{"command": []string{"true"}, "cwd": "relative"})
}

func TestFiles(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("write_file", fields{"path": "new/a.txt", "content": "ä\r\n"})
	if a := b.want("read_file", fields{"path": "new/a.txt"}); a.field("content") != "ä\r\n" {
		t.Errorf("read: %s", a.body)
	}
	b.want("execute", fields{"command": `printf 'a\377b' > bytes; truncate -s 9M large`, "shell": true})
	for mode, want := range map[string]string{"ignore": "ab", "backslashreplace": `a\xffb`, "replace": "a\ufffdb"} {
		if a := b.want("read_file", fields{"path": "bytes", "errors": mode}); a.field("content") != want {
			t.Errorf("%s: %s", mode, a.body)
		}
	}
	if a := b.want("read_file", fields{"path": "bytes", "encoding": "Latin_1"}); a.field("content") != "aÿb" {
		t.Errorf("latin-1: %s", a.body)
	}
	b.raises("ValueError", "read_file", fields{"path": "bytes"})
	b.raises("NotImplementedError", "read_file", fields{"path": "bytes", "encoding": "utf-16"})
	b.raises("NotImplementedError", "read_file", fields{"path": "bytes", "errors": "xmlcharrefreplace"})
	b.raises("FileNotFoundError", "read_file", fields{"path": "none"})
	if text := b.raises("ValueError", "read_file", fields{"path": "large"}); !strings.Contains(text, "8 MiB") {
		t.Errorf("a large file: %s", text)
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, swerex.Options{})
	if a := b.upload("first", "target_path", "x/one", "unzip", "false"); a.status != http.StatusOK {
		t.Fatalf("upload: %d %s", a.status, a.body)
	}
	if a := b.upload("second", "target_path", "x/one", "unzip", "false"); a.status != http.StatusOK {
		t.Errorf("over a file: %d %s", a.status, a.body)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	if f, err := z.Create("sub/f"); err != nil {
		t.Fatal(err)
	} else {
		f.Write([]byte("of the folder"))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if a := b.upload(archive.String(), "target_path", "up", "unzip", "true"); a.status != http.StatusOK {
		t.Errorf("unzip: %d %s", a.status, a.body)
	}
	// A file that replaces a folder would remove everything in the folder.
	if class, _ := b.upload("third", "target_path", "x/", "unzip", "false").exception(); class != "IsADirectoryError" {
		t.Errorf("over a folder: %s", class)
	}
	for path, want := range map[string]string{"x/one": "second", "up/sub/f": "of the folder"} {
		if a := b.want("read_file", fields{"path": path}); a.field("content") != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	for name, a := range map[string]answer{
		"no path":      b.upload("x"),
		"a wrong flag": b.upload("x", "target_path", "y", "unzip", "perhaps"),
		"two files":    b.upload("x", "target_path", "y", "file", "z"),
		"a long field": b.upload("x", "target_path", strings.Repeat("y", 9<<10)),
		"many fields":  b.upload("x", "unzip", "", "unzip", "", "unzip", "", "unzip", "", "unzip", "", "unzip", "", "unzip", "", "unzip", ""),
		"no form":      b.ask("upload", "{}"),
	} {
		if a.status != http.StatusUnprocessableEntity || a.field("detail") == nil {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := b.upload("x", "target_path", "y", "mode", "0755"); a.status != http.StatusNotImplemented || !strings.Contains(a.body, "mode") {
		t.Errorf("an unknown field: %d %s", a.status, a.body)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("write_file", fields{"path": "start.sh", "content": "export STARTED=yes PS1='other> '; echo sourced\n"})
	if a := b.want("create_session", fields{"startup_source": []string{"start.sh"}, "startup_timeout": 1}); !strings.Contains(a.body, `sourced\n`) {
		t.Errorf("create_session: %s", a.body)
	}
	b.raises("SessionExistsError", "create_session", fields{})
	if a := b.run("x=42; echo $STARTED\n\n echo 'a\n b'\n"); a.field("output") != "yes\na\n b\n" || a.field("exit_code") != 0.0 {
		t.Errorf("run: %s", a.body)
	}
	if a := b.run("cat <<EOF\n$x\nEOF"); a.field("output") != "42\n" {
		t.Errorf("state: %s", a.body)
	}
	if a := b.run("(exit 7)", "check", "silent"); a.field("exit_code") != 7.0 {
		t.Errorf("exit code: %s", a.body)
	}
	if a := b.run("(exit 7)", "check", "ignore"); a.field("exit_code") != nil {
		t.Errorf("ignored: %s", a.body)
	}
	b.raises("NonZeroExitCodeError", "run_in_session", action("false"))
	b.raises("BashIncorrectSyntaxError", "run_in_session", action("(a"))
	b.raises("SessionDoesNotExistError", "run_in_session", action("true", "session", "none"))
	if a := b.run("echo ready; read line", "expect", []string{"never", "ready"}); a.field("expect_string") != "ready" {
		t.Errorf("expect: %s", a.body)
	}
	if a := b.run("", "is_interactive_command", true); a.field("expect_string") != "SHELLPS1PREFIX" {
		t.Errorf("after the read: %s", a.body)
	}
	b.want("close_session", fields{})
	b.raises("SessionDoesNotExistError", "close_session", fields{})
	b.want("create_session", fields{}) // the name is free
	if a := b.run("echo $x"); a.field("output") != "\n" {
		t.Errorf("a new session has the state of the last: %s", a.body)
	}
	b.want("close", nil)
	b.want("create_session", fields{})
	b.raises("EOF", "run_in_session", action("exit"))
}

// TestLateCommand: a command that is sent while the shell is busy, and times out before it begins, never runs.
func TestLateCommand(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("create_session", fields{})
	b.raises("CommandTimeoutError", "run_in_session", action("echo begun; sleep 1", "timeout", 0.2))
	b.raises("CommandTimeoutError", "run_in_session", action("touch ran-late", "timeout", 0.2))
	out, _ := b.run("echo back").field("output").(string)
	if !strings.HasPrefix(out, "begun\n") || !strings.HasSuffix(out, "back\n") || strings.Contains(out, "7770") {
		t.Errorf("after it: %q", out)
	}
	if a := b.want("execute", fields{"command": []string{"test", "-e", "ran-late"}}); a.field("exit_code") != 1.0 {
		t.Error("a command ran after its client had been told that its time was over")
	}
}

// TestStubborn: a program that ignores Ctrl-C is stopped and killed.
func TestStubborn(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("create_session", fields{})
	stubborn := `sh -c 'trap "" INT; echo deaf; while :; do sleep 0.1; done'`
	if a := b.run(stubborn, "expect", []string{"deaf"}); a.field("expect_string") != "deaf" {
		t.Fatal(a.body)
	}
	b.want("run_in_session", fields{"action_type": "bash_interrupt", "timeout": 0.3, "n_retry": 1})
	if a := b.run("echo back"); !strings.Contains(a.body, `back\n`) { // bash can report the killed program after it
		t.Errorf("after it: %s", a.body)
	}
}

// TestOneSession: of many calls that create a session at the same time, one succeeds, and one shell is left.
func TestOneSession(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, swerex.Options{})
	b.want("execute", fields{"command": "true"})
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 4 {
		all.Go(func() {
			if a := b.ask("create_session", "{}"); a.status == http.StatusOK {
				mu.Lock()
				made++
				mu.Unlock()
			} else if class, _ := a.exception(); class != "SessionExistsError" {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	if made != 1 {
		t.Errorf("%d calls created the session", made)
	}
	b.run("true")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := svc.Processes(t.Context(), "box")
		if err != nil {
			t.Fatal(err)
		}
		live := 0
		for _, p := range list {
			if p.Status.Live() {
				live++
			}
		}
		if live == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d shells are left", live)
		}
	}
}

// TestFailedStart leaves no session.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	b := serve(t, fakeengine.Start(t), swerex.Options{})
	b.want("write_file", fields{"path": "bad.sh", "content": "exit 1\n"})
	b.raises("EOF", "create_session", fields{"startup_source": []string{"bad.sh"}})
	b.want("create_session", fields{})
}

// TestCopies: sessions in a copy of a sandbox have the same process ids as in the original, but are separate sessions.
func TestCopies(t *testing.T) {
	t.Parallel()
	svc := &twins{Service: fakeengine.Start(t)}
	b := serve(t, svc, swerex.Options{})
	other := &bench{b.Server, t, "copy"}
	b.want("create_session", fields{})
	other.want("create_session", fields{})
	b.run("x=one")
	other.run("x=two")
	for box, want := range map[*bench]string{b: "one\n", other: "two\n"} {
		if a := box.run("echo $x"); a.field("output") != want {
			t.Errorf("in %s: %s", box.box, a.body)
		}
	}
}

var _ hutch.Service = (*twins)(nil)
