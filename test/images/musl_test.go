package images

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/musl"
)

// TestMusl: an image without glibc and bash works like others, and its programs find names, users and threads.
func TestMusl(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, runtime)
			b.pullMusl(t)
			sb := b.make(t, muslImage)
			b.muslPrograms(t, sb.ID)
			b.muslShells(t, sb.ID)
			b.muslUsers(t)
			b.muslSleeps(t, sb.ID)
			b.muslNetwork(t)
		})
	}
}

const muslImage = "musl:1"

// pullMusl makes the server pull the image.
func (b *bed) pullMusl(t *testing.T) {
	t.Helper()
	if missing := musl.Missing(); missing != "" {
		hutchtest.Skip(t, "%s is missing: apt-get install %s", missing, missing)
	}
	if err := publishMusl(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PullImage(t.Context(), hutch.PullRequest{Image: muslImage}, nil); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) muslPrograms(t *testing.T, id string) {
	user := "app 1500 1501"
	if !hutchtest.HasRoot(b.runtime) {
		user = "user 1000 1000"
	}
	for command, want := range map[string]string{
		"tool whoami":           user,
		"'tool' 'threads' '50'": "50 threads",
		"tool libraries":        "ld-musl",
		"set -- a b; echo $# | while read n; do echo $((n + 40)); done; exit 0":                                   "42",
		"echo $HOME; cd ~ && echo kept >file && tool cat file":                                                    "kept",
		"for f in /lib64/* /lib/*libc.so.6 /usr/bin/bash /bin/bash; do [ -e $f ] && echo has $f; done; echo none": "none",
	} {
		if got := b.run(t, id, command); !strings.Contains(got, want) || strings.Contains(got, "libc.so.6") || strings.Contains(got, "has ") {
			t.Errorf("%s prints %q, not %q", command, got, want)
		}
	}
	var got bytes.Buffer
	if _, err := b.WriteFile(t.Context(), id, hutch.WriteRequest{Path: "a/b", Create: true, Parents: true}, strings.NewReader("text")); err != nil {
		t.Error(err)
	}
	if _, err := b.ReadFile(t.Context(), id, hutch.ReadRequest{Path: "/workspace/a/b"}, &got); err != nil || got.String() != "text" {
		t.Errorf("a file: %q, %v", got.String(), err)
	}
	got.Reset()
	if err := b.Pack(t.Context(), id, hutch.PackRequest{Dir: "/workspace", Paths: []string{"a"}, Format: hutch.Tar}, &got); err != nil {
		t.Error(err)
	}
	if err := b.Unpack(t.Context(), id, hutch.UnpackRequest{Dir: "/workspace/copy", Format: hutch.Tar}, &got); err != nil {
		t.Error(err)
	}
}

// muslShells: a shell in a terminal is the image's. A call that needs bash fails with an error that says so.
func (b *bed) muslShells(t *testing.T, id string) {
	p, err := b.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: hutch.ImageLoginShell, Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Input(t.Context(), id, p.ID, strings.NewReader("x=6; echo $((x * 7)) answers; exit 5\n"), false); err != nil {
		t.Error(err)
	}
	var shown bytes.Buffer
	if _, err := b.Logs(t.Context(), hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error { shown.Write(o.Data); return nil }); err != nil || !strings.Contains(shown.String(), "42 answers") {
		t.Errorf("the terminal shows %q, %v", shown.String(), err)
	}
	if p, err := b.Client.Process(t.Context(), id, p.ID); err != nil || p.ExitCode == nil || *p.ExitCode != 5 {
		t.Errorf("the shell has ended as %+v, %v", p, err)
	}
	if _, err := b.CreateContext(t.Context(), id, hutch.ContextRequest{Language: "bash"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "bash") {
		t.Errorf("a session, which needs bash: %v", err)
	}
}

// muslUsers: commands run as root or as another user of the image's own list.
func (b *bed) muslUsers(t *testing.T) {
	if !hutchtest.HasRoot(b.runtime) {
		return
	}
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: muslImage, User: "root", Limits: hutch.Limits{Memory: 512, Disk: 128}})
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, sb.ID, "echo 'web:x:77:88:web:/tmp:/bin/sh' >>/etc/passwd; echo 'help:x:5:web' >>/etc/group")
	for user, want := range map[string]string{"": "root 0 0", "app": "app 1500 1501", "web": "web 77 88 +5", "5": "? 5 0"} {
		if got := b.as(t, sb.ID, user, "tool whoami"); got != want {
			t.Errorf("as %q: %q, not %q", user, got, want)
		}
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Error(err)
	}
}

// muslSleeps: with memory, a server continues to count; files are kept on every runtime, in copies as well.
func (b *bed) muslSleeps(t *testing.T, id string) {
	p, err := b.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "tool serve 8080", Name: "server"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), id, p.ID, hutch.WaitRequest{Port: 8080, Timeout: 60}); err != nil {
		t.Fatal(err)
	}
	b.run(t, id, "echo mine >/workspace/mine")
	first := b.run(t, id, "tool get 127.0.0.1 8080")
	forks, err := b.Fork(t.Context(), id, hutch.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	slept, err := b.Hibernate(t.Context(), id, hutch.HibernateRequest{FilesOnly: b.runtime == "native"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{id, forks[0].ID} {
		if got := b.run(t, id, "tool cat /workspace/mine ~/file"); got != "mine\nkept" {
			t.Errorf("after its sleep it has %q", got)
		}
	}
	if b.runtime == "native" { // native keeps no memory
		return
	}
	if slept.Status != hutch.Hibernated {
		t.Errorf("it sleeps as %s", slept.Status)
	}
	for _, id := range []string{id, forks[0].ID} {
		if got := b.run(t, id, "tool get 127.0.0.1 8080"); got == first || !strings.HasPrefix(got, "answer ") {
			t.Errorf("before, the server said %q, and then %q", first, got)
		}
	}
}

// muslNetwork: musl's own resolver finds what the rules allow, and nothing else.
func (b *bed) muslNetwork(t *testing.T) {
	limits := hutch.Limits{Memory: 512, Disk: 128}
	if _, err := b.Create(t.Context(), hutch.CreateRequest{ID: "web", Image: muslImage, Limits: limits}); err != nil {
		t.Fatal(err)
	}
	p, err := b.StartProcess(t.Context(), "web", hutch.ProcessRequest{Command: "tool serve 8080"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), "web", p.ID, hutch.WaitRequest{Port: 8080, Timeout: 60}); err != nil {
		t.Fatal(err)
	}
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: muslImage, Limits: limits, Network: hutch.Network{Mode: hutch.NetworkAllowList, Links: hutch.Links("web")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.run(t, sb.ID, "tool get web.sandbox.internal 8080"); !strings.HasPrefix(got, "answer ") {
		t.Errorf("a linked sandbox: %q", got)
	}
	res, err := b.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "tool get evil.example.net 80"}, nil)
	if err != nil || res.ExitCode != 1 || strings.Join(res.Denied, " ") != "evil.example.net" {
		t.Errorf("a name that is not allowed: %+v, %v", res, err)
	}
}
