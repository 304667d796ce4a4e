package images

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
)

// as runs a command as a user and returns what it printed; it must succeed.
func (b *bed) as(t *testing.T, id, user, command string) string {
	t.Helper()
	res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: command, User: user}, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("as %q: %s: exit code %d, %v\n%s%s", user, command, res.ExitCode, err, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// TestRoot: root of an image is root inside. It can give files away and become other users, and other users become root
// by a setuid bit. Copies keep all of that.
func TestRoot(t *testing.T) { eachWithRoot(t, testRoot) }

// eachWithRoot runs a test on each runtime on which commands of an image can be root.
func eachWithRoot(t *testing.T, test func(*testing.T, *bed)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			if !hutchtest.HasRoot(runtime) {
				t.Skip("no command is root on native without root and subordinate ids")
			}
			test(t, newDebian(t, runtime))
		})
	}
}

func testRoot(t *testing.T, b *bed) {
	sb := b.make(t, python)
	b.run(t, sb.ID, "cp /usr/bin/id /usr/local/bin/rootid && chmod 4755 /usr/local/bin/rootid; touch f && chown 500:600 f && chmod 2750 f; install -d -o 500 -m 700 private; mkdir -p /opt/tool && echo tool >/opt/tool/t")
	check := func(when string) {
		t.Helper()
		for command, want := range map[string]string{
			"id -u; id -g; pwd; echo ~; stat -c %u /workspace /data": "0\n0\n/workspace\n/root\n0\n0",
			"stat -c '%u %g %a' f private":                           "500 600 2750\n500 0 700",
			"cat /opt/tool/t; head -c 5 /etc/shadow":                 "tool\nroot:",
			"grep CapEff /proc/self/status":                          "CapEff:\t00000000a00404fb",
			"python3 -c 'import os; os.setgroups([5]); os.setgid(7); os.setuid(9); os.execv(\"/bin/bash\", [\"bash\", \"-c\", \"id -u; id -G; rootid -u; cat /etc/shadow 2>&1 | tail -c 18\"])'": "9\n7 5\n0\nPermission denied",
		} {
			if got := b.run(t, sb.ID, command); got != want {
				t.Errorf("%s, %s prints %q, not %q", when, command, got, want)
			}
		}
	}
	check("at first")
	forks, err := b.Fork(t.Context(), sb.ID, hutch.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	check("after it was copied")
	sb = forks[0]
	check("as a copy with memory")
	snap, err := b.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if sb, err = b.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID}); err != nil {
		t.Fatal(err)
	}
	check("from its files")
}

// TestChangedFilesOfAnImage: files of an image that were changed in place, and not replaced, are kept like others.
func TestChangedFilesOfAnImage(t *testing.T) { each(t, testChangedFilesOfAnImage) }

func testChangedFilesOfAnImage(t *testing.T, b *bed) {
	sb := b.make(t, python)
	const look = "tail -n 1 /etc/passwd; stat -c '%u %g %a' /usr/bin/cut; tail -c 3 /usr/bin/id; md5sum </usr/bin/second; cat /workspace/file"
	b.run(t, sb.ID, "echo x:x:77:77::/:/bin/sh >>/etc/passwd; chown 3:4 /usr/bin/cut; chmod 710 /usr/bin/cut; printf end >>/usr/bin/id; ln /usr/bin/tr /usr/bin/second; echo mine >/workspace/file")
	want := b.run(t, sb.ID, look)
	snap, err := b.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	next, err := b.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.run(t, next.ID, look); got != want {
		t.Errorf("from its files: %q, not %q", got, want)
	}
	made, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "localhost/changed"})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.run(t, b.make(t, made.ID).ID, look); got != want {
		t.Errorf("from its image: %q, not %q", got, want)
	}
}

// TestRootless: the files of a server without root are found as well.
func TestRootless(t *testing.T) {
	hutchtest.Rootless(t, hutchtest.Pattern("TestCommit$/native|TestRootIsRefused", "TestChangedFilesOfAnImage|TestCommit$|TestRootIsRefused"))
}

// TestRootIsRefused: without subordinate ids, root and builds are refused, and the error names what is missing. An
// image of root runs as the ordinary user.
func TestRootIsRefused(t *testing.T) {
	t.Parallel()
	if hutchtest.HasRoot("native") {
		t.Skip("TestRootless runs it as a user without subordinate ids")
	}
	b := newBed(t, "native")
	sb := b.make(t, "shout:1")
	if out := b.run(t, sb.ID, "/program x"); !strings.HasPrefix(out, "1000 ") {
		t.Errorf("it prints %q", out)
	}
	_, err := b.Create(t.Context(), hutch.CreateRequest{Image: "shout:1", User: "0"})
	if !errors.Is(err, hutch.Unsupported) {
		t.Fatalf("root on native: %v", err)
	}
	for _, what := range []string{"subordinate ids", "no account in /etc/passwd", "useradd", "gvisor"} {
		if !strings.Contains(err.Error(), what) {
			t.Errorf("the refusal does not say %q: %v", what, err)
		}
	}
}

// TestSubordinate: a server without root that has subordinate ids can still run images as root.
func TestSubordinate(t *testing.T) {
	hutchtest.Subordinate(t, hutchtest.Pattern("TestRoot$/native|TestFileUser/native|TestUsers|TestUnpackedImageIsRemoved",
		"TestRoot$/native|TestFileUser/native|TestChangedFilesOfAnImage/native|TestCommit$/native|TestUsers|TestUnpackedImageIsRemoved"))
}

// TestRootReadsAll: in a sandbox whose user is root, the API reads and archives the files of all users, and nothing of
// the agent's.
func TestRootReadsAll(t *testing.T) {
	t.Parallel()
	b := newDebian(t, "gvisor")
	sb := b.make(t, python)
	b.run(t, sb.ID, "install -d -o 500 -m 700 web; echo text >web/file; chown 500 web/file; chmod 600 web/file; ln -s /.hutch/own/run/agent.sock socket; ln -s /proc/1/environ environ")
	var got, archive bytes.Buffer
	if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "web/file"}, &got); err != nil || got.String() != "text\n" {
		t.Errorf("a file of another user is %q, %v", got.String(), err)
	}
	if err := b.Pack(t.Context(), sb.ID, hutch.PackRequest{Dir: "/workspace", Paths: []string{"web"}, Format: hutch.Tar}, &archive); err != nil || !bytes.Contains(archive.Bytes(), []byte("text\n")) {
		t.Errorf("an archive of %d bytes, %v", archive.Len(), err)
	}
	for _, path := range []string{"socket", "environ", "/proc/1/environ", "/proc/1/mem"} {
		if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: path}, &got); err == nil {
			t.Errorf("%s can be read", path)
		}
	}
	if _, err := b.WriteFile(t.Context(), sb.ID, hutch.WriteRequest{Path: "/.hutch/own/file", Create: true}, strings.NewReader("x")); !errors.Is(err, hutch.Denied) {
		t.Errorf("a file in the agent's folder: %v", err)
	}
	const socketDir = "/.hutch/own/run"
	for name, err := range map[string]error{
		"delete": b.Delete(t.Context(), sb.ID, socketDir+"/agent.sock", false),
		"move":   b.Move(t.Context(), sb.ID, socketDir+"/agent.sock", socketDir+"/aside", true),
		"copy":   b.Copy(t.Context(), sb.ID, "web", socketDir+"/web", true),
		"chmod":  b.Chmod(t.Context(), sb.ID, socketDir, 0o777),
		"mkdir":  b.Mkdir(t.Context(), sb.ID, socketDir+"/folder", true),
		"unpack": b.Unpack(t.Context(), sb.ID, hutch.UnpackRequest{Dir: socketDir, Format: hutch.Tar}, bytes.NewReader(archive.Bytes())),
	} {
		if !errors.Is(err, hutch.Denied) {
			t.Errorf("%s where daemon and agent meet: %v", name, err)
		}
	}
}

// TestUsers: a command runs as the user that its request names, from the sandbox's own list of users. So do processes,
// terminals and contexts, and the files of a sandbox belong to its user.
func TestUsers(t *testing.T) { eachWithRoot(t, testUsers) }

func testUsers(t *testing.T, b *bed) {
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: python, User: "1234:2345"})
	if err != nil || sb.User != "1234:2345" {
		t.Fatalf("created for the user %q, %v", sb.User, err)
	}
	for user, want := range map[string]string{"": "1234 2345 /", "root": "0 0 /root", "0": "0 0 /root", "0:5": "0 5 /root", "77": "77 0 /"} {
		if got := b.as(t, sb.ID, user, "echo $(id -u) $(id -g) $HOME"); got != want {
			t.Errorf("as %q: %q, not %q", user, got, want)
		}
	}
	b.as(t, sb.ID, "root", "echo 'web:x:500:500::/srv/web:/bin/sh' >>/etc/passwd; echo 'adm:x:9:web' >>/etc/group; mkdir -p /srv/web; chown 500 /srv/web")
	if got := b.as(t, sb.ID, "web", "id -u; id -G; echo ~; touch ~/x; stat -c %u ~/x"); got != "500\n500 9\n/srv/web\n500" {
		t.Errorf("as a user that was just made: %q", got)
	}
	if _, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "id", User: "stranger"}, nil); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("an unknown user: %v", err)
	}
	for _, size := range []*hutch.Size{nil, {Columns: 80, Rows: 24}} {
		p, err := b.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Command: "id -u >/dev/stdout", User: "web", Terminal: size})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := b.Logs(t.Context(), hutch.LogsRequest{SandboxID: sb.ID, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error { out.Write(o.Data); return nil }); err != nil || strings.TrimSpace(out.String()) != "500" {
			t.Errorf("a process prints %q, %v", out.String(), err)
		}
	}
	c, err := b.CreateContext(t.Context(), sb.ID, hutch.ContextRequest{Language: "python", User: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := b.RunCode(t.Context(), sb.ID, hutch.RunRequest{ContextID: c.ID, Code: "import os; print(os.getuid(), input())", Stdin: strings.NewReader("in\n")}, nil); err != nil || string(run.Stdout) != "500 in\n" {
		t.Errorf("a context prints %q %q, %v", run.Stdout, run.Stderr, err)
	}
	if _, err := b.WriteFile(t.Context(), sb.ID, hutch.WriteRequest{Path: "new", Create: true}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteFile(t.Context(), sb.ID, hutch.WriteRequest{Path: "/srv/web/new", Create: true}, strings.NewReader("x")); !errors.Is(err, hutch.Denied) {
		t.Errorf("a file in a folder of another user: %v", err)
	}
	if got := b.as(t, sb.ID, "", "stat -c '%u %g' new"); got != "1234 2345" {
		t.Errorf("a file of the API belongs to %q", got)
	}
}

// TestUsersRefused: users that the image does not have or allow are refused, and the error says what to do.
func TestUsersRefused(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		if _, err := b.Create(t.Context(), hutch.CreateRequest{Image: python, User: "stranger"}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("a user that the image does not know: %v", err)
		}
		if _, err := b.Create(t.Context(), hutch.CreateRequest{User: "root"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "--image") {
			t.Errorf("root on the host's image: %v", err)
		}
		host, err := b.Create(t.Context(), hutch.CreateRequest{User: "1000"})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.as(t, host.ID, "user", "id -u"); got != "1000" {
			t.Errorf("the host image's user is %q", got)
		}
		if _, err := b.Exec(t.Context(), host.ID, hutch.ExecRequest{Command: "id", User: "root"}, nil); !errors.Is(err, hutch.Unsupported) {
			t.Errorf("root in a sandbox of the host's image: %v", err)
		}
	})
}

// TestFileUser: file operations run as the user that their request names, with only the ids of that user.
func TestFileUser(t *testing.T) { eachWithRoot(t, testFileUser) }

func testFileUser(t *testing.T, b *bed) {
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: python, User: "1234:2345"})
	if err != nil {
		t.Fatal(err)
	}
	b.as(t, sb.ID, "root", "install -d -o 500 -g 600 -m 700 /web; echo text >/web/file; chown 500:600 /web/file; chmod 600 /web/file; echo 'web:x:500:600::/web:/bin/sh' >>/etc/passwd")
	web, root := hutch.AsUser(t.Context(), "web"), hutch.AsUser(t.Context(), "root")
	var got bytes.Buffer
	if _, err := b.ReadFile(t.Context(), sb.ID, hutch.ReadRequest{Path: "/web/file"}, &got); !errors.Is(err, hutch.Denied) {
		t.Errorf("the sandbox's user reads %q, %v", got.String(), err)
	}
	for _, ctx := range []context.Context{web, root} {
		got.Reset()
		if _, err := b.ReadFile(ctx, sb.ID, hutch.ReadRequest{Path: "/web/file"}, &got); err != nil || got.String() != "text\n" {
			t.Errorf("%s reads %q, %v", hutch.FileUser(ctx), got.String(), err)
		}
	}
	var archive bytes.Buffer
	for what, err := range map[string]error{
		"write":  second(b.WriteFile(web, sb.ID, hutch.WriteRequest{Path: "/web/new", Create: true}, strings.NewReader("old"))),
		"edit":   second(b.EditFile(web, sb.ID, hutch.EditRequest{Path: "/web/new", Old: "old", New: "new"})),
		"mkdir":  b.Mkdir(web, sb.ID, "/web/a/b", true),
		"copy":   b.Copy(web, sb.ID, "/web/file", "/web/copy", false),
		"move":   b.Move(web, sb.ID, "/web/copy", "/web/moved", false),
		"chmod":  b.Chmod(web, sb.ID, "/web/moved", 0o604),
		"pack":   b.Pack(web, sb.ID, hutch.PackRequest{Dir: "/web", Paths: []string{"file"}, Format: hutch.Tar}, &archive),
		"unpack": b.Unpack(web, sb.ID, hutch.UnpackRequest{Dir: "/web/unpacked", Format: hutch.Tar}, &archive),
		"list":   b.ListFiles(web, sb.ID, hutch.ListRequest{Path: "/web"}, func(hutch.FileInfo) error { return nil }),
		"root":   second(b.WriteFile(root, sb.ID, hutch.WriteRequest{Path: "/etc/mine", Create: true}, strings.NewReader("x"))),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := b.as(t, sb.ID, "root", "stat -c '%u %g %a' /web/new /web/a /web/a/b /web/moved /web/unpacked/file /etc/mine; cat /web/new"); got != "500 600 644\n500 600 755\n500 600 755\n500 600 604\n500 600 600\n0 0 644\nnew" {
		t.Errorf("what they made is %q", got)
	}
	for what, err := range map[string]error{
		"write of another's file": second(b.WriteFile(web, sb.ID, hutch.WriteRequest{Path: "/etc/passwd"}, strings.NewReader("x"))),
		"delete of another's":     b.Delete(web, sb.ID, "/etc/mine", false),
		"the sandbox's user":      b.Delete(t.Context(), sb.ID, "/web/new", false),
		"a folder of the agent":   b.Mkdir(root, sb.ID, "/.hutch/mine", false),
	} {
		if !errors.Is(err, hutch.Denied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, user := range []string{"stranger", "a b", "4294967294"} {
		if _, err := b.Stat(hutch.AsUser(t.Context(), user), sb.ID, "/web"); !errors.Is(err, hutch.Invalid) {
			t.Errorf("the user %q: %v", user, err)
		}
	}
}

// second returns the error of a call that also has another result.
func second[T any](_ T, err error) error { return err }
