package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/conversation"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/policy"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// open returns a server of conversations whose sandboxes are those of svc, and its folder.
func open(t testing.TB, svc hutch.Service, opt conversation.Options) (s *conversation.Server, folder string) {
	t.Helper()
	if opt.Folder == "" {
		opt.Folder = filepath.Join(t.TempDir(), "root")
	}
	if opt.Secret == nil {
		opt.Secret = []byte("a secret")
	}
	s, err := conversation.New(svc, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, opt.Folder
}

// run runs bash in a conversation, and expects success.
func run(t testing.TB, s *conversation.Server, id, code string) conversation.Result {
	t.Helper()
	res, err := s.Run(t.Context(), conversation.Request{ConversationID: id, Language: "bash", Code: "set -e; " + code}, nil)
	if err != nil || !res.Success() {
		t.Fatalf("%s: %v, exit %d, %s%s", code, err, res.ExitCode, res.Stdout, res.Stderr)
	}
	return res
}

func fileNames(files []conversation.File) []string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = f.Name
	}
	return list
}

// conversations lists the conversations in a root.
func conversations(root string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(root)
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == ".hutch-layout" }), err
}

// TestFilesStay: files are kept from run to run, and after the end of the sandbox, on every runtime.
func TestFilesStay(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			svc := hutchtest.Engine(t, runtime, nil)
			s, folder := open(t, svc, conversation.Options{})
			one := run(t, s, "Chat_1", "echo one > a; mkdir -p d/e; echo two > d/e/b; echo x > .hidden; ln -s a l; pwd; id -u; echo '#' > s; chmod 755 s")
			if got := fileNames(one.Files); !slices.Equal(got, []string{".hidden", "a", "d/e/b", "s"}) || string(one.Stdout) != "/data\n1000\n" {
				t.Fatalf("made %q, printed %q", got, one.Stdout)
			}
			if two := run(t, s, "Chat_1", "cat a d/e/b; echo 2 >> a; rm -r d"); string(two.Stdout) != "one\ntwo\n" || !slices.Equal(fileNames(two.Files), []string{"a"}) {
				t.Errorf("made %q, printed %q", fileNames(two.Files), two.Stdout)
			}
			if _, err := os.Lstat(filepath.Join(folder, "Chat_1", "files", "d")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what was removed is still kept: %v", err)
			}
			drop(t, svc)
			three := run(t, s, "Chat_1", "cat a .hidden l; ls; test -x s")
			if string(three.Stdout) != "one\n2\nx\none\n2\na\nl\ns\n" || len(three.Files) != 0 {
				t.Errorf("in a new sandbox: made %q, printed %q", fileNames(three.Files), three.Stdout)
			}
			if other := run(t, s, "chat_1", "ls -A"); len(other.Stdout) != 0 {
				t.Errorf("another conversation sees %q", other.Stdout)
			}
		})
	}
}

// drop destroys all sandboxes, as idleness would.
func drop(t testing.TB, svc hutch.Service) {
	t.Helper()
	all, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range all {
		if _, err := svc.Destroy(t.Context(), sb.ID, true); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", nil)
	s, _ := open(t, svc, conversation.Options{})
	run(t, s, "a", "true")
	all, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if sb := all[0]; sb.Limits.CPU != 0.5 || sb.Limits.Memory != 256 || sb.OnIdle != hutch.IdleDestroy || sb.SleepAfter != 300 || sb.Environment.HasAnthropicCredentials {
		t.Errorf("the sandbox of a conversation is %+v", sb)
	}
	if res, err := s.Run(t.Context(), conversation.Request{ConversationID: "a", Language: "bash", Code: "exec 3<>/dev/tcp/1.1.1.1/53"}, nil); err != nil || res.Success() {
		t.Errorf("there is a network: %v, %+v", err, res)
	}
}

// TestStaleSandbox: a new server does not trust the content of an older server's sandbox; the folder counts.
func TestStaleSandbox(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", nil)
	s, folder := open(t, svc, conversation.Options{})
	run(t, s, "a", "echo old > f")
	if err := os.WriteFile(filepath.Join(folder, "a", "files", "f"), []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = open(t, svc, conversation.Options{Folder: folder})
	if res := run(t, s, "a", "cat f"); string(res.Stdout) != "new\n" {
		t.Errorf("read %q", res.Stdout)
	}
}

// TestCancelledRunKeepsFiles cancels a run that has written a file.
func TestCancelledRunKeepsFiles(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	res, err := s.Run(ctx, conversation.Request{ConversationID: "a", Language: "bash", Code: "echo half > f; echo ready; sleep 100"},
		func(hutch.Output) error { cancel(); return nil })
	if err == nil {
		t.Fatalf("a cancelled run gave %+v", res)
	}
	if b, err := os.ReadFile(filepath.Join(folder, "a", "files", "f")); string(b) != "half\n" || err != nil {
		t.Errorf("kept %q, %v", b, err)
	}
}

func TestRunsTakeTurns(t *testing.T) {
	t.Parallel()
	s, _ := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { run(t, s, "a", "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n") })
	}
	group.Wait()
	if res := run(t, s, "a", "cat n"); string(res.Stdout) != "8\n" {
		t.Errorf("8 runs counted to %q", res.Stdout)
	}
}

// TestSilentConversationMakesRoom has more conversations than sandboxes.
func TestSilentConversationMakesRoom(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", func(o *engine.Options) { o.MaxSandboxes = 2 })
	s, _ := open(t, svc, conversation.Options{})
	for i := range 4 {
		run(t, s, fmt.Sprint("chat", i), "echo mine > f")
	}
	if res := run(t, s, "chat0", "cat f"); string(res.Stdout) != "mine\n" {
		t.Errorf("read %q", res.Stdout)
	}
	drop(t, svc)
	for _, id := range []string{"x", "y"} { // other folders are left alone
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Run(t.Context(), conversation.Request{ConversationID: "z", Language: "bash", Code: "true"}, nil); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("with no room: %v", err)
	}
}

func TestOwnersShareNothing(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	for _, owner := range []string{"", "ann", "bob", "../ann"} {
		ctx := caller.WithOwner(t.Context(), caller.Owner{ID: owner})
		res, err := s.Run(ctx, conversation.Request{ConversationID: "a", Language: "bash", Code: "ls; touch f"}, nil)
		if err != nil || len(res.Stdout) != 0 || len(res.Files) != 1 {
			t.Errorf("%q: %v, %+v", owner, err, res)
		}
	}
	if entries, err := conversations(folder); len(entries) != 4 || err != nil {
		t.Errorf("folders %v, %v", entries, err)
	}
}

// TestTokens uses tokens of several scopes and owners, with the daemon's policy.
func TestTokens(t *testing.T) {
	t.Parallel()
	p, err := policy.New(t.Context(), hutchtest.Engine(t, "native", nil), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, folder := open(t, p, conversation.Options{})
	as := func(owner string, scopes ...hutch.Scope) (conversation.Result, error) {
		ctx := t.Context()
		if owner != "nobody" {
			ctx = caller.As(ctx, &caller.Principal{ID: owner, Name: owner, Owner: owner, Scopes: scopes, Limits: caller.Unlimited})
		}
		return s.Run(ctx, conversation.Request{ConversationID: "a", Language: "bash", Code: "ls; touch f"}, nil)
	}
	for _, owner := range []string{"ann", "bob"} {
		if res, err := as(owner, hutch.ScopeExec, hutch.ScopeFiles); err != nil || len(res.Stdout) != 0 || len(res.Files) != 1 {
			t.Errorf("%s: %v, %+v", owner, err, res)
		}
	}
	for owner, scopes := range map[string][]hutch.Scope{"nobody": nil, "reader": {hutch.ScopeRead, hutch.ScopeFiles}, "ann": {hutch.ScopeRead}} {
		if res, err := as(owner, scopes...); !errors.Is(err, hutch.Denied) {
			t.Errorf("%s with %q ran code: %v, %+v", owner, scopes, err, res)
		}
	}
	if entries, err := conversations(folder); len(entries) != 2 || err != nil {
		t.Errorf("folders %v, %v", entries, err)
	}
}

func TestBadConversations(t *testing.T) {
	t.Parallel()
	s, folder := open(t, nil, conversation.Options{}) // any call of the service would panic
	for _, id := range []string{"", ".", "..", "../a", "a/b", ".a", "a b", "a\n", "a\x00", "é", "a~b", "-a", "%2e", strings.Repeat("a", 129)} {
		if _, err := s.Run(t.Context(), conversation.Request{ConversationID: id, Language: "bash", Code: "true"}, nil); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if entries, err := conversations(folder); len(entries) != 0 || err != nil {
		t.Errorf("folders %v, %v", entries, err)
	}
}

// TestHostileFiles creates files that could mislead a server, and checks what is left on the host.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", nil)
	s, folder := open(t, svc, conversation.Options{})
	outside := filepath.Join(filepath.Dir(folder), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	ln := fmt.Sprintf("ln -s %s out; ln -s ../../../outside up; ln -s .. ..up; ln -s . self; ln -s loop loop", outside)
	run(t, s, "a", ln+"; mkfifo pipe; touch -- $'new\\nline' '\"quoted\"' $'\\xff' ' ' '-rf'; mkdir dir; touch dir/f; chmod 0 dir/f; mkdir closed; touch closed/f; chmod 0 closed")
	// Links are replaced by folders with files in them, and the other way round.
	run(t, s, "a", "rm out up self; mkdir out up self; echo evil > out/f; echo evil > up/f; echo evil > self/f; chmod 700 closed; rm -r dir; ln -s /etc dir; rm pipe; mkdir pipe")
	run(t, s, "a", "rm -r out up self; echo plain > out; ln -s /proc/self/root up")
	drop(t, svc)
	if res := run(t, s, "a", "cat out; ls -A | wc -l"); string(res.Stdout) != "plain\n13\n" {
		t.Errorf("what came back: %q", res.Stdout)
	}
	if entries, err := os.ReadDir(outside); len(entries) != 0 || err != nil {
		t.Errorf("written outside: %v, %v", entries, err)
	}
	entries, err := os.ReadDir(filepath.Join(folder, "a", "files"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".hutch-new-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestTooManyFiles: too many files do not fill the host's disk.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	s, folder := open(t, hutchtest.Engine(t, "native", nil), conversation.Options{})
	_, err := s.Run(t.Context(), conversation.Request{ConversationID: "a", Language: "bash", Code: "seq 20001 | xargs touch"}, nil)
	if !errors.Is(err, hutch.Exhausted) {
		t.Errorf("20001 files: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(folder, "a", "files")); len(entries) != 0 || err != nil {
		t.Errorf("%d are kept, %v", len(entries), err)
	}
	run(t, s, "a", "ls | xargs rm; echo fine > f")
}

func TestRunners(t *testing.T) {
	t.Parallel()
	svc := hutchtest.Engine(t, "native", nil)
	s, _ := open(t, svc, conversation.Options{})
	for range 2 {
		list, err := s.Runners(t.Context())
		if err != nil || !slices.ContainsFunc(list, func(l hutch.Language) bool { return l.Name == "bash" && l.Version != "" }) {
			t.Errorf("%+v, %v", list, err)
		}
	}
	if all, err := svc.Sandboxes(t.Context(), hutch.Filter{}); len(all) != 0 || err != nil {
		t.Errorf("to look left %v, %v", all, err)
	}
}
