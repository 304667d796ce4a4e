package coding_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/coding"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/patch"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// scripted is an agent without a model: it runs the prompt as a bash script.
func scripted(t testing.TB) coding.Definition {
	t.Helper()
	text, err := os.ReadFile("testdata/scripted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := coding.ParseDefinition(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// service is an engine with secrets.
type service struct {
	hutch.Service
	secrets []hutch.Secret
}

func (s service) Secrets(context.Context) ([]hutch.Secret, error) { return s.secrets, nil }

// folder returns a folder with a repository that has what a stranger could put into one: links, filters, hooks, a
// password.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"main.txt": "one\ntwo\nthree\n", "gone.txt": "x\n", "dos.txt": "a\r\nb\r\n", "caf\xe9": "name\n",
		".gitignore": "*.log\n/build/\n", "kept.log": "tracked all the same\n", "build/out": "ignored\n",
		".gitattributes": "*.txt text eol=lf filter=evil diff=evil\n", "deep/file": "x\n",
	})
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", "-A")
	git(t, dir, "add", "-f", "kept.log")
	write(t, dir, map[string]string{"gone before": "x\n"})
	git(t, dir, "add", "gone before")
	git(t, dir, "commit", "-q", "-m", "first")
	if err := os.Remove(filepath.Join(dir, "gone before")); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": "/etc/passwd", "up": "../../x", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "config", "filter.evil.clean", "sh -c 'echo filtered'")
	git(t, dir, "config", "remote.origin.url", "https://user:hunter2@example.com/repo.git")
	write(t, dir, map[string]string{".git/hooks/post-commit": "#!/bin/sh\necho ran >> hooked\n", ".git/worktrees/w/config.worktree": "hunter2\n"})
	if err := os.Chmod(filepath.Join(dir, ".git/hooks/post-commit"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return string(out)
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func open(t *testing.T, svc coding.Service, dir string) *coding.Session {
	t.Helper()
	s, err := coding.Open(t.Context(), svc, scripted(t), hutch.CreateRequest{}, coding.Repository{Unpack: coding.FromFolder(dir)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func prompt(t *testing.T, s *coding.Session, text string, show func(coding.Event) error) hutch.AgentResult {
	t.Helper()
	res, err := s.Prompt(t.Context(), text, time.Minute, show)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func onEach(t *testing.T, test func(t *testing.T, svc coding.Service)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			test(t, service{Service: hutchtest.Engine(t, runtime, nil)})
		})
	}
}

// TestFolder: an agent works on a copy of a folder, does what it likes with git, and its change is applied to the
// folder.
func TestFolder(t *testing.T) {
	onEach(t, func(t *testing.T, svc coding.Service) {
		dir := folder(t)
		s := open(t, svc, dir)
		var events []string
		res := prompt(t, s, `
git log --format=said:%s
cat .git/config .git/hooks/post-commit .git/worktrees/w/config.worktree 2>&1 | grep -c -e hunter2 -e evil -e ran || echo nothing of the settings
sed -i s/two/TWO/ main.txt
git switch -q -c elsewhere
git -c user.name=a -c user.email=a@b commit -qam 'on another branch'
rm gone.txt; printf 'a\r\nc\r\n' >dos.txt; echo more >>kept.log; echo more >>build/out; printf '\0\1\2' >new.bin; echo x >"caf`+"\xe9"+`"
mkdir -p fresh; echo run >fresh/tool; chmod +x fresh/tool; ln -s ../main.txt fresh/link`, func(e coding.Event) error {
			events = append(events, fmt.Sprintf("%s %s%s", e.Type, e.Tool, e.Text))
			return nil
		})
		for _, want := range []string{"began scripted", "said I begin", "log said:first", "log nothing of the settings", "called Bashthe prompt", "ended done"} {
			if !slices.Contains(events, want) {
				t.Errorf("the events lack %q: %q", want, events)
			}
		}
		if !res.Success || res.ExitCode != 0 || res.Answer != "done" || res.Usage != (hutch.AgentUsage{Turns: 1, InputTokens: 10, OutputTokens: 5, Cost: 0.01}) || res.Files != 8 {
			t.Errorf("the result is %+v", res)
		}
		p, err := patch.Parse([]byte(res.Diff))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Apply(dir); err != nil {
			t.Fatalf("%v\n%s", err, res.Diff)
		}
		for name, want := range map[string]string{
			"main.txt": "one\nTWO\nthree\n", "dos.txt": "a\r\nc\r\n", "kept.log": "tracked all the same\nmore\n", "build/out": "ignored\n",
			"new.bin": "\x00\x01\x02", "caf\xe9": "x\n", "fresh/tool": "run\n", "fresh/link": "one\nTWO\nthree\n",
		} {
			if got := content(t, dir, name); got != want {
				t.Errorf("%q is %q, not %q", name, got, want)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "gone.txt")); err == nil {
			t.Error("gone.txt is still there")
		}
		if _, err := os.Lstat(filepath.Join(dir, "hooked")); err == nil {
			t.Error("a hook ran on this machine")
		}
	})
}

// TestSessions: a session is left, followed again, given a second prompt, stopped, listed and copied.
func TestSessions(t *testing.T) {
	onEach(t, func(t *testing.T, svc coding.Service) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a": "one\n"})
		s := open(t, svc, dir)
		process, err := s.Start(t.Context(), "echo first >>a; while [ ! -e ../go ]; do sleep .05; done; echo went", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		left := errors.New("left")
		if _, err := s.Follow(t.Context(), process, func(coding.Event) error { return left }); !errors.Is(err, left) {
			t.Errorf("following ended with %v", err)
		}
		if _, err := s.Start(t.Context(), "true", 0); !errors.Is(err, hutch.Conflict) {
			t.Errorf("a second prompt at once gave %v", err)
		}
		list, err := coding.List(t.Context(), svc)
		if err != nil || len(list) != 1 || list[0].ID != s.ID || list[0].Agent != "scripted" || list[0].Work != coding.Working {
			t.Errorf("the list is %+v, %v", list, err)
		}
		other, err := coding.Find(t.Context(), svc, s.ID, coding.Definition{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Start(t.Context(), "true", 0); !errors.Is(err, hutch.NotFound) {
			t.Errorf("an agent of one's own was prompted without its definition: %v", err)
		}
		if s, err = coding.Find(t.Context(), svc, s.ID, scripted(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := svc.WriteFile(t.Context(), s.ID, hutch.WriteRequest{Path: "go"}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
		last, err := s.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Follow(t.Context(), last.ID, nil)
		if err != nil || !res.Success || res.Added != 1 {
			t.Errorf("followed again: %+v, %v", res, err)
		}
		copies, err := s.Fork(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range copies {
			if res := prompt(t, c, fmt.Sprintf("echo copy %d $RESUMED >>a", i), nil); res.Added != 2 || !strings.Contains(res.Diff, fmt.Sprintf("+copy %d yes\n", i)) {
				t.Errorf("the copy has %q", res.Diff)
			}
		}
		res = prompt(t, s, "echo $RESUMED >>a", nil)
		if !strings.Contains(res.Diff, "+first\n+yes\n") || strings.Contains(res.Diff, "copy") {
			t.Errorf("the second prompt gave %q", res.Diff)
		}
		if _, err := s.Start(t.Context(), "sleep 1000", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last, err = s.Last(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res, err := s.Follow(t.Context(), last.ID, nil); err != nil || res.Success {
			t.Errorf("stopped, it gave %+v, %v", res, err)
		}
	})
}

// TestHostileAgents: whatever an agent leaves in the folder, its diff can be applied, or an error says why not.
func TestHostileAgents(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	for name, c := range map[string]struct {
		prompt string
		want   string // in the difference
		err    error
	}{
		"git's folder is gone":     {"rm -rf .git; echo x >a", "+x", nil},
		"a repository inside":      {"git init -q sub; echo x >a", "+x", nil},
		"one with a commit":        {"git init -q sub; git -C sub -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; echo x >a", "Subproject commit", nil},
		"files that none may read": {"echo x >a; echo y >b; chmod 0 b", "+x", nil},
		"a filter of its own":      {"git config filter.f.clean 'tr x y'; echo '* filter=f' >.gitattributes; echo x >a", "+x", nil},
		"settings of git":          {"git config --global diff.noprefix true; git config --global color.diff always; export GIT_DIR=/nowhere; echo x >a", "+++ b/a", nil},
		"our repository is gone":   {"rm -rf ../.hutch-agent; echo x >a", "", hutch.Conflict},
		"too much":                 {"head -c 40000000 /dev/urandom >big", "", hutch.Exhausted},
		"the folder is gone":       {"cd ..; rm -rf repo", "", hutch.Conflict},
		"no room on the disk":      {"echo x >a; echo '*.log' >.gitignore; head -c 999999999 /dev/zero >f.log; true", "", hutch.Exhausted},
		"a lock that is left":      {"echo x >a; touch ../.hutch-agent/base.git/index.lock", "+x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"a": "one\n"})
			d := scripted(t)
			s, err := coding.Open(t.Context(), svc, d, hutch.CreateRequest{Limits: hutch.Limits{Memory: 1024, Disk: 512}}, coding.Repository{Unpack: coding.FromFolder(dir)})
			if err != nil {
				t.Fatal(err)
			}
			res, err := s.Prompt(t.Context(), c.prompt, time.Minute, nil)
			if c.err != nil && !errors.Is(err, c.err) || c.err == nil && (err != nil || !strings.Contains(res.Diff, c.want)) {
				t.Errorf("it gave %v, %q", err, res.Diff)
			}
			if err := svc.remove(t, s.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

func (s service) remove(t *testing.T, id string) error {
	_, err := s.Destroy(t.Context(), id, true)
	return err
}

// TestOutputOfAnyKind: cut, long and malformed lines become events, and the result has the exit code.
func TestOutputOfAnyKind(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	s := open(t, svc, t.TempDir())
	var all bytes.Buffer
	res := prompt(t, s, `echo '{"type":"assistant"' ; echo '{"type":"assistant","message":{"content":"text alone"}}'; echo '[1]'; printf '\033[2J\n'; head -c 3000000 /dev/zero | tr '\0' x; echo; echo '{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"given"}],"is_error":true}]}}'; echo oops >&2; exit 3`, func(e coding.Event) error {
		if len(e.Text) > 80<<10 {
			t.Errorf("an event has %d bytes", len(e.Text))
		}
		fmt.Fprintf(&all, "%s|%v|%.40s\n", e.Type, e.Failed, e.Text)
		return nil
	})
	for _, want := range []string{"log|false|{\"type\":\"assistant\"\n", "said|false|text alone\n", "log|false|[1]\n", "got|true|given\n", "log|false|oops\n", "log|false|xxxx"} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("the events lack %q:\n%s", want, all.Bytes())
		}
	}
	if res.ExitCode != 3 || res.Success || res.Diff != "" || res.Files != 0 {
		t.Errorf("the result is %+v", res)
	}
	if res := prompt(t, s, "exit 124", nil); res.TimedOut || res.Success || res.ExitCode != 124 {
		t.Errorf("an agent that chose the code of a time limit gave %+v", res)
	}
	if res, err := s.Prompt(t.Context(), "trap '' TERM; sleep 1000", time.Second, nil); err != nil || !res.TimedOut || res.Success {
		t.Errorf("over its time it gave %+v, %v", res, err)
	}
	for _, text := range []string{"", "  \n", strings.Repeat("x", hutch.MaxPrompt+1)} {
		if _, err := s.Start(t.Context(), text, 0); !errors.Is(err, hutch.Invalid) {
			t.Errorf("a prompt of %d bytes gave %v", len(text), err)
		}
	}
}

// TestKeys: an agent gets only secrets that no program in the sandbox can read.
func TestKeys(t *testing.T) {
	t.Parallel()
	fake := service{Service: hutchtest.Engine(t, "native", nil)}
	d := scripted(t)
	d.Keys = []coding.Key{{Secret: "KEY", Host: "api.example.com", BaseURL: "BASE_URL"}}
	openWith := func(secrets ...hutch.Secret) error {
		fake.secrets = secrets
		_, err := coding.Open(t.Context(), fake, d, hutch.CreateRequest{}, coding.Repository{Unpack: coding.FromFolder(t.TempDir())})
		return err
	}
	if err := openWith(); !errors.Is(err, hutch.NotFound) || !strings.Contains(err.Error(), "hutch secret set KEY --host api.example.com") {
		t.Errorf("without the secret: %v", err)
	}
	if err := openWith(hutch.Secret{Name: "KEY"}); !errors.Is(err, hutch.Denied) {
		t.Errorf("with one that programs can read: %v", err)
	}
	d.Keys[0].BaseURL = ""
	if err := openWith(hutch.Secret{Name: "KEY", Brokered: &hutch.Brokering{Hosts: []string{"other.example.com"}}}); !errors.Is(err, hutch.Conflict) {
		t.Errorf("with one for another host: %v", err)
	}
	if left, err := fake.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}

// TestBeginLeavesNothing: a session whose first prompt cannot begin is destroyed, because it would be useless.
func TestBeginLeavesNothing(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	repo := coding.Repository{Unpack: coding.FromFolder(t.TempDir())}
	if _, _, err := coding.Begin(t.Context(), svc, coding.Task{Agent: scripted(t), Repository: repo, Prompt: "x", Timeout: -time.Second}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("it gave %v", err)
	}
	if left, err := svc.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}

// TestWorksAlone: the sandbox of an agent that no client follows does not sleep before the agent's time is over.
func TestWorksAlone(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			svc := service{Service: hutchtest.Engine(t, runtime, func(o *engine.Options) { o.SleepAfter = time.Second })}
			s := open(t, svc, t.TempDir())
			if _, err := s.Start(t.Context(), "sleep 1000", time.Hour); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if sb, err := svc.Sandbox(t.Context(), s.ID); err != nil || sb.Status != hutch.Running {
					t.Fatalf("while its agent works the sandbox is %s, %v", sb.Status, err)
				}
			}
			p, err := s.Last(t.Context())
			if err == nil {
				err = s.Stop(t.Context())
			}
			if err == nil {
				_, err = s.Follow(t.Context(), p.ID, nil)
			}
			sb, serr := svc.Sandbox(t.Context(), s.ID)
			if err = errors.Join(err, serr); err != nil || sb.SleepAfter != 1 {
				t.Errorf("when its agent has ended the sandbox sleeps after %v s, %v", sb.SleepAfter, err)
			}
		})
	}
}

// TestOnePromptAtATime: when several callers prompt one session at once, one caller is served, with its own prompt. The
// others are refused, and leave nothing that looks like a prompt.
func TestOnePromptAtATime(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			svc := service{Service: hutchtest.Engine(t, runtime, nil)}
			s := open(t, svc, t.TempDir())
			const callers = 6
			begun := make([]string, callers)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					var err error
					if begun[i], err = s.Start(t.Context(), fmt.Sprintf("echo %d >>mine; sleep 1000", i), time.Hour); err != nil && !errors.Is(err, hutch.Conflict) {
						t.Errorf("caller %d: %v", i, err)
					}
				})
			}
			all.Wait()
			begun = slices.DeleteFunc(begun, func(id string) bool { return id == "" })
			p, err := s.Last(t.Context())
			if err != nil || len(begun) != 1 || begun[0] != p.ID || !p.Status.Live() {
				t.Fatalf("%q began, and the last is %s, %s, %v", begun, p.ID, p.Status, err)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			res, err := s.Follow(t.Context(), p.ID, nil)
			if err != nil || res.Files > 1 || res.Added > 1 {
				t.Errorf("the agents changed %+v, %v", res, err)
			}
			if res, err := s.Prompt(t.Context(), "echo next >>mine", time.Hour, nil); err != nil || !res.Success {
				t.Errorf("the next prompt: %+v, %v", res, err)
			}
		})
	}
}

// TestSleepsAsBefore: after agents have ended, followed or not, a sandbox sleeps after the time that its owner has set.
func TestSleepsAsBefore(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	s := open(t, svc, t.TempDir())
	if _, err := svc.Update(t.Context(), s.ID, hutch.UpdateRequest{SleepAfter: new(hutch.Seconds(77))}); err != nil {
		t.Fatal(err)
	}
	p, err := s.Start(t.Context(), "true", time.Hour)
	if err == nil {
		_, err = svc.Wait(t.Context(), s.ID, p, hutch.WaitRequest{})
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Prompt(t.Context(), "true", 2*time.Hour, nil)
	if err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
	if sb, err := svc.Sandbox(t.Context(), s.ID); err != nil || sb.SleepAfter != 77 {
		t.Errorf("it sleeps after %v s, %v", sb.SleepAfter, err)
	}
}

// stubborn is a service that refuses to change a sandbox.
type stubborn struct{ service }

func (stubborn) Update(context.Context, string, hutch.UpdateRequest) (hutch.Sandbox, error) {
	return hutch.Sandbox{}, hutch.Errorf(hutch.Exhausted, "not now")
}

// TestForks: copies have the lifetime that their original was created with. Either all copies are made or none.
func TestForks(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	keep := coding.Repository{Unpack: coding.FromFolder(t.TempDir())}
	s, err := coding.Open(t.Context(), stubborn{svc}, scripted(t), hutch.CreateRequest{Timeout: 3600}, keep)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fork(t.Context(), 2); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("copies without a label: %v", err)
	}
	if left, err := svc.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) != 1 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
	if s, err = coding.Find(t.Context(), svc, s.ID, scripted(t)); err != nil {
		t.Fatal(err)
	}
	copies, err := s.Fork(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := svc.Sandbox(t.Context(), copies[0].ID)
	if err != nil || sb.ExpiresAt == nil || time.Until(*sb.ExpiresAt) > time.Hour+time.Minute || sb.Labels[coding.Label] != "scripted" {
		t.Errorf("the copy is there until %v, with the labels %v: %v", sb.ExpiresAt, sb.Labels, err)
	}
}

// TestPasswordsInURLs: no error repeats a password.
func TestPasswordsInURLs(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	for _, url := range []string{"https://bob:hunter2@-x/r.git", "https://bob:hunter2@10.0.0.1.x:99999/r.git", "https://bob:hunter2@no host/r.git", "https://bob:hun%zzter2@x/r.git"} {
		_, err := coding.Open(t.Context(), svc, scripted(t), hutch.CreateRequest{}, coding.Repository{GitCloneRequest: hutch.GitCloneRequest{URL: url}})
		if err == nil || strings.Contains(err.Error(), "hun") {
			t.Errorf("%s gave %v", url, err)
		}
	}
}

// TestOpenLeavesNothing: a repository that cannot be cloned or unpacked leaves no sandbox.
func TestOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	for name, repo := range map[string]coding.Repository{
		"no folder":  {Unpack: coding.FromFolder(filepath.Join(t.TempDir(), "none"))},
		"no URL":     {},
		"not a host": {GitCloneRequest: hutch.GitCloneRequest{URL: "https://no host/x.git"}},
		"an option":  {GitCloneRequest: hutch.GitCloneRequest{URL: "--upload-pack=x"}},
		"nothing":    {GitCloneRequest: hutch.GitCloneRequest{URL: "/nowhere/at/all"}},
		"too large":  {Unpack: coding.FromFolder(large(t))},
	} {
		if _, err := coding.Open(t.Context(), svc, scripted(t), hutch.CreateRequest{Limits: hutch.Limits{Disk: 32}}, repo); err == nil {
			t.Errorf("%s: it was opened", name)
		} else if hutch.KindOf(err) == hutch.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := svc.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}

// large returns a folder with a large sparse file, which takes no space on the disk.
func large(t *testing.T) string {
	dir := t.TempDir()
	write(t, dir, map[string]string{"big": ""})
	if err := os.Truncate(filepath.Join(dir, "big"), 64<<20); err != nil {
		t.Fatal(err)
	}
	return dir
}
