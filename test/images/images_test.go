package images

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
	"hutch/internal/oci"
)

// TestDebian: a sandbox with an image shows the image's files and programs, keeps what it writes within its limit, and
// remembers the digest.
func TestDebian(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb := b.make(t, python)
		if name, digest, _ := strings.Cut(sb.Image, "@"); name != "docker.io/library/"+python || !strings.HasPrefix(digest, "sha256:") {
			t.Errorf("its image is on record as %q", sb.Image)
		}
		for command, want := range map[string]string{
			"grep -o bookworm /etc/os-release | head -1": "bookworm",
			"python3 -c 'print(6*7)'":                    "42",
			"echo $COLOUR":                               "red",
			"pwd":                                        "/workspace",
			"touch x && ls":                              "x",
			"test -d ~ && test -w ~ && test -w /tmp && echo yes": "yes",
			"greet":                     "hello from the image",
			"stat -c %u:%g /etc/shadow": "0:42",
			"python3 -c 'import ssl; print(bool(ssl.create_default_context().get_ca_certs()))'": "True",
		} {
			if got := b.run(t, sb.ID, command); got != want {
				t.Errorf("%s prints %q, not %q", command, got, want)
			}
		}
		res, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "head -c 200M /dev/urandom >big; rm big"}, nil)
		if err != nil || !strings.Contains(string(res.Stderr), "No space") {
			t.Errorf("a file over the disk limit: %+v, %v", res, err)
		}
		run, err := b.RunCode(t.Context(), sb.ID, hutch.RunRequest{Language: "python", Code: "import sys; print(sys.version_info[0])"}, nil)
		if err != nil || string(run.Stdout) != "3\n" {
			t.Errorf("Python in a context: %q %q, %v", run.Stdout, run.Stderr, err)
		}
	})
}

// TestFiles: file operations, a missing git, and processes work as on the host's image.
func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb := b.make(t, python)
		if _, err := b.WriteFile(t.Context(), sb.ID, hutch.WriteRequest{Path: "a/b.txt", Create: true, Parents: true}, strings.NewReader("text")); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "/workspace/a/b.txt"}, &got); err != nil || got.String() != "text" {
			t.Errorf("the file is %q, %v", got.String(), err)
		}
		got.Reset()
		if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "/etc/debian_version"}, &got); err != nil || !strings.HasPrefix(got.String(), "12") {
			t.Errorf("/etc/debian_version is %q, %v", got.String(), err)
		}
		p, err := b.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Command: "exec python3 -m http.server 8000"})
		if err != nil {
			t.Fatal(err)
		}
		if w, err := b.Wait(t.Context(), sb.ID, p.ID, hutch.WaitRequest{Port: 8000, Timeout: 20}); err != nil {
			t.Errorf("the server does not listen: %+v, %v", w, err)
		}
	})
}

// TestState: a sandbox with an image sleeps and wakes, is copied, and survives the server.
func TestState(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb := b.make(t, python)
		b.run(t, sb.ID, "echo kept >file; mkdir -p ~/deep/er; echo home >~/deep/er/file; echo temporary >/tmp/t")
		if _, err := b.RunCode(t.Context(), sb.ID, hutch.RunRequest{Language: "python", Code: "x = 41"}, nil); err != nil {
			t.Fatal(err)
		}
		snap, err := b.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		forks, err := b.Fork(t.Context(), sb.ID, hutch.ForkRequest{Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		begun, err := b.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID})
		if err != nil {
			t.Fatal(err)
		}
		b.End(t)
		b.start(t)
		for what, id := range map[string]string{"the first": sb.ID, "a fork": forks[0].ID, "one from the snapshot": begun.ID} {
			if got := b.run(t, id, "cat file ~/deep/er/file /tmp/t; python3 -c 'print(1)'"); got != "kept\nhome\ntemporary\n1" {
				t.Errorf("%s prints %q", what, got)
			}
			if !snap.Memory {
				continue
			}
			if run, err := b.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: "print(x+1)"}, nil); err != nil || string(run.Stdout) != "42\n" {
				t.Errorf("%s has lost its variable: %q %q, %v", what, run.Stdout, run.Stderr, err)
			}
		}
		if err := b.DeleteImage(t.Context(), python); !errors.Is(err, hutch.Conflict) {
			t.Errorf("the image in use is deleted: %v", err)
		}
	})
}

// TestStatic: an image with one program and nothing else, neither a shell nor /etc/passwd nor a libc, works. A call
// that needs a shell fails with an error that says so.
func TestStatic(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb := b.make(t, "hello:1")
		if got := b.run(t, sb.ID, "/program"); got != "hello 7000 7001 /data 1" {
			t.Errorf("a program prints %q", got)
		}
		if got := b.run(t, sb.ID, "/program one 'two three'"); got != "hello 7000 7001 /data 3" {
			t.Errorf("a program with arguments prints %q", got)
		}
		if _, err := b.WriteFile(t.Context(), sb.ID, hutch.WriteRequest{Path: "x", Create: true}, strings.NewReader("text")); err != nil {
			t.Errorf("a file: %v", err)
		}
		_, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "/program | /program"}, nil)
		needsShell(t, "a pipe", err)
		_, err = b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "echo one; echo two"}, nil)
		needsShell(t, "two commands", err)
		b.cannotExecute(t, sb.ID)
		if _, err := b.CreateContext(t.Context(), sb.ID, hutch.ContextRequest{Language: "bash"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "bash") {
			t.Errorf("a context: %v", err)
		}
		if _, err := b.RunCode(t.Context(), sb.ID, hutch.RunRequest{Language: "python", Code: "1"}, nil); !errors.Is(err, hutch.Unsupported) && !errors.Is(err, hutch.NotFound) || !strings.Contains(err.Error(), "python") {
			t.Errorf("Python: %v", err)
		}
	})
}

// cannotExecute runs a program that does not exist, and a program of this machine whose loader the image does not have.
func (b *bed) cannotExecute(t *testing.T, id string) {
	t.Helper()
	program, err := os.ReadFile("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteFile(t.Context(), id, hutch.WriteRequest{Path: "env", Create: true, Mode: 0o755}, bytes.NewReader(program)); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"/data/env": "loader", "/no-such-program": `no program "no-such-program"`} {
		if _, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// needsShell checks the error of a call that cannot be done without a shell.
func needsShell(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "shell") {
		t.Errorf("%s: %v (%v)", what, err, hutch.KindOf(err))
	}
}

// TestPull: an image is pulled once, listed, and removed when nothing uses it.
func TestPull(t *testing.T) {
	b := newBed(t, "native")
	var last hutch.Transfer
	img, err := b.PullImage(t.Context(), hutch.PullRequest{Image: "hello:1"}, func(tr hutch.Transfer) error { last = tr; return nil })
	if err != nil || last.Total == 0 || last.Done != last.Total {
		t.Fatalf("pull: %+v, %v; the last progress is %+v", img, err, last)
	}
	if list, err := b.Images(t.Context()); err != nil || len(list) != 1 || list[0].ID != img.ID || list[0].Config.User != "7000:7001" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	at, _ := serveRegistry()
	if _, err := b.PullImage(t.Context(), hutch.PullRequest{Image: at + "/missing:1"}, nil); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a missing image: %v", err)
	}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{Image: python, Pull: hutch.PullNever}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("never pull: %v", err)
	}
	if _, err := b.PullImage(t.Context(), hutch.PullRequest{Image: "127.0.0.1:1/x"}, nil); !errors.Is(err, hutch.Denied) {
		t.Errorf("a registry on loopback: %v", err)
	}
	if err := b.DeleteImage(t.Context(), "hello:1"); err != nil {
		t.Error(err)
	}
	if _, err := b.Image(t.Context(), "hello:1"); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a deleted image: %v", err)
	}
}

// runner returns a function that runs `hutch` with an input and additional variables, and returns its output. The
// command must succeed.
func runner(t *testing.T) func(stdin string, env []string, args ...string) string {
	program := hutchtest.Program(t, "hutch")
	return func(stdin string, env []string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("hutch %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
}

// served returns the variables with which `hutch` uses the server of a bed.
func (b *bed) served() []string {
	return []string{"HUTCH_URL=" + b.URL, "HUTCH_TOKEN=" + server.Token}
}

// alone returns the variables with which `hutch` uses no server.
func (b *bed) alone() []string {
	return []string{"HUTCH_DATA=" + filepath.Join(b.dir, "alone"), "HUTCH_URL=", "HUTCH_TOKEN="}
}

// TestRun: `hutch run --image` runs what the image says, through a server and without one.
func TestRun(t *testing.T) {
	b := newBed(t, "native")
	hutchRuns := runner(t)
	run := func(stdin string, env []string, args ...string) string {
		t.Helper()
		return hutchRuns(stdin, env, append([]string{"run", "--runtime", "native"}, args...)...)
	}
	served := b.served()
	if got := run("", served, "--image", "hello:1"); got != "hello 7000 7001 /data 1" {
		t.Errorf("the entrypoint prints %q", got)
	}
	if got := run("print(6*7)", served, "--image", python); got != "42" {
		t.Errorf("the command with an input prints %q", got)
	}
	if list, err := b.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("%d sandboxes are left, %v", len(list), err)
	}

	var archive bytes.Buffer
	if err := b.SaveImage(t.Context(), "hello:1", &archive); err != nil {
		t.Fatal(err)
	}
	alone, err := oci.Open(filepath.Join(b.dir, "alone", datadir.OCI), oci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Load(t.Context(), &archive, oci.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	alone.Close()
	if got := run("", b.alone(), "--image", "hello:1"); got != "hello 7000 7001 /data 1" {
		t.Errorf("without a server the entrypoint prints %q", got)
	}
}

// TestImageFiles: `--image` accepts an archive and the folder of an OCI layout, through a server and without one. The
// server refuses such a name, and says what to do.
func TestImageFiles(t *testing.T) {
	b := newBed(t, "native")
	hutchRuns := runner(t)
	if _, err := b.PullImage(t.Context(), hutch.PullRequest{Image: "hello:1"}, nil); err != nil {
		t.Fatal(err)
	}
	file, folder := filepath.Join(b.dir, "hello.tar"), filepath.Join(b.dir, "hello folder")
	hutchRuns("", b.served(), "image", "save", "--output", file, "hello:1")
	if err := b.DeleteImage(t.Context(), "hello:1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", file, "-C", folder).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	archive, layout := "docker-archive:"+file, "oci:"+folder
	const want = "hello 7000 7001 /data 1"
	for _, name := range []string{archive, layout, "oci-archive:" + file} {
		for how, env := range map[string][]string{"with a server": b.served(), "alone": b.alone()} {
			if got := hutchRuns("", env, "run", "--runtime", "native", "--image", name); got != want {
				t.Errorf("%s, hutch run --image %s prints %q", how, name, got)
			}
		}
	}
	hutchRuns("", b.served(), "create", "--runtime", "native", "--image", layout, "one")
	sb, err := b.Sandbox(t.Context(), "one")
	if err != nil || !strings.HasPrefix(sb.Image, "sha256:") {
		t.Errorf("the sandbox has the image %q, %v", sb.Image, err)
	}
	hutchRuns("", b.served(), "start", "--runtime", "native", "--image", archive, "--entrypoint", "one") // the sandbox exists, and its image is that of the archive
	for _, name := range []string{archive, layout, "oci:/etc"} {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{Image: name}); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "hutch create --image") || !strings.Contains(err.Error(), "hutch image load") {
			t.Errorf("the server answers %v for %s", err, name)
		}
	}
}
