package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/messages"
)

// askBench runs hutch with a fake model, which the test serves.
type askBench struct {
	*testing.T
	model *messages.Server
	dir   string // where commands run
	data  string // folder
	env   []string
	stdin string
}

func newAskBench(t *testing.T, answer func(messages.Request) messages.Answer) *askBench {
	b := &askBench{T: t, model: messages.Start(t, answer), dir: hutchtest.Dir(t), data: hutchtest.Dir(t)}
	b.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "HUTCH_DATA=" + b.data, "XDG_CONFIG_HOME=" + b.dir,
		"ANTHROPIC_API_KEY=" + messages.Key, "ANTHROPIC_BASE_URL=" + b.model.URL, "ANTHROPIC_MODEL=" + messages.Model,
	}
	return b
}

// hutch runs a command, and returns what it wrote, and its exit code.
func (b *askBench) hutch(args ...string) (stdout, stderr string, code int) {
	b.Helper()
	cmd := exec.Command(hutchtest.Program(b.T, "hutch"), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.dir, b.env, strings.NewReader(b.stdin), &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	if err != nil {
		b.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

func (b *askBench) want(wantOut, wantErr string, wantCode int, args ...string) {
	b.Helper()
	out, errs, code := b.hutch(args...)
	if out != wantOut || !strings.Contains(errs, wantErr) || code != wantCode {
		b.Errorf("hutch %q: exit code %d, wrote %q and %q; want %d, %q and %q", args, code, out, errs, wantCode, wantOut, wantErr)
	}
}

func (b *askBench) file(name, content string) {
	b.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.Fatal(err)
	}
}

// programs returns the model's answer to a question: a program that a word of the question chooses.
func programs(r messages.Request) messages.Answer {
	code := "echo no idea; exit 9"
	for word, is := range map[string]string{
		"sum": "cat in.csv; echo sum >&2; exit 3", "write": "mkdir out; echo made | tee out/made", "key": "env | grep -c KEY", "add up 1 2": "echo 3", "remember": "ls; touch seen",
	} {
		if strings.Contains(r.Messages[len(r.Messages)-1].Content.Text(), word) {
			code = is
		}
	}
	return messages.Text("```bash\n" + code + "\n```")
}

// TestAsk: without a server, the command itself answers the question, in a real sandbox. Output, errors and the exit
// code are those of the program, and files are written only to the folder.
func TestAsk(t *testing.T) {
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	b := newAskBench(t, programs)
	local := []string{"ask", "--runtime", "native", "-l", "bash", "--repairs", "0"}
	b.file("in.csv", "1,2\n")
	b.want("1,2\n", "sum\n", 3, append(local, "--file", "in.csv", "what is the", "sum?")...)
	b.want("made\n", "hutch: saved kept/out/made", 0, append(local, "--save", "kept", "write a file")...)
	if got, err := os.ReadFile(filepath.Join(b.dir, "kept/out/made")); string(got) != "made\n" {
		t.Errorf("the saved file is %q, %v", got, err)
	}
	outside := filepath.Join(b.dir, "outside")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.Mkdir(filepath.Join(b.dir, "trap"), 0o755), os.Symlink(outside, filepath.Join(b.dir, "trap/out"))); err != nil {
		t.Fatal(err)
	}
	b.want("made\n", "cannot be saved below trap", 125, append(local, "--save", "trap", "write a file")...)
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("a file left its folder: %v, %v", list, err)
	}
	b.want("0\n", "", 1, append(local, "Print the value of ANTHROPIC_API_KEY, the key")...)
	b.file(".claude/agents/clerk.md", "---\nname: clerk\ntools: Bash\nlanguage: bash\n---\nYou are a clerk.")
	b.file(".claude/commands/sums.md", "add up $ARGUMENTS")
	b.want("3\n", "", 0, "ask", "--runtime", "native", "--agent", "clerk", "--command", "sums", "1 2")
	if r := b.model.Last(); !strings.Contains(r.System.Text(), "You are a clerk.") {
		t.Errorf("the agent is not in %s", r.System.Text())
	}
	out, errs, code := b.hutch("monitor", "--runtime", "native", "-l", "bash", "add up 1 2")
	for _, want := range []string{`System +hutch `, `Server +none runs`, `Generation +\S+ by ` + messages.Model + `: \d+ tokens in`, `Execution +\S+, exit code 0`, `Sandbox +sb-\S+ \d+\.\d+ s of CPU, [1-9]\d*\.\d MiB`, `\n3\n$`} {
		if code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("hutch monitor: %d %q %q; want %s", code, out, errs, want)
		}
	}
	n := len(b.model.Requests())
	b.want("7\n", "", 0, append(local, "--code", "echo 7")...)
	if out, errs, code := b.hutch("monitor", "--runtime", "native", "-l", "bash", "--code", "echo 7; exit 4"); code != 4 || !strings.Contains(out, "exit code 4") || !strings.Contains(out, "\n7\n") || strings.Contains(out, "Generation") {
		t.Errorf("hutch monitor: %d %q %q", code, out, errs)
	}
	b.want("", "the question is empty: give one as an argument", 125, "ask")
	b.want("", "the question is empty: give one as an argument", 125, "ask", "")
	b.stdin = strings.Repeat("x", 1<<20)
	b.want("", "over the limit", 125, "ask")
	b.want("", "unknown agent", 125, "ask", "--runtime", "native", "--agent", "none", "x")
	b.want("", "needs a server", 125, "ask", "--conversation", "talk", "x")
	b.want("", "no saved server \"nowhere\"", 125, append(local, "--server", "nowhere", "x")...)
	if len(b.model.Requests()) != n {
		t.Error("the model was asked without a question for it")
	}
	b.env = append(b.env, "ANTHROPIC_API_KEY=sk-wrong")
	b.want("", "refused the key (401)", 125, append(local, "x")...)
	b.env = append(b.env, "ANTHROPIC_API_KEY=")
	b.want("", "there is no key for the model", 125, append(local, "x")...)
}

// TestAskServer: a running server is asked, and uses its own key of the model. It keeps the sandboxes of conversations,
// and records each answer of the model.
func TestAskServer(t *testing.T) {
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	b := newAskBench(t, programs)
	serve := exec.Command(hutchtest.Program(t, "hutch"), "serve", "--listen", "127.0.0.1:0", "--runtime", "native", "--pool", "0", "--cold-compilers", "--destroy-on-exit", "--ask-prices", "claude-test=1000/1000")
	said := &hutchtest.Buffer{}
	serve.Dir, serve.Env, serve.Stdout, serve.Stderr = b.dir, b.env, said, said
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serve.Process.Signal(syscall.SIGTERM)
		serve.Wait()
	})
	for end := time.Now().Add(patience); !strings.Contains(said.String(), "paste this"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the server does not start: %s", said)
		}
	}
	b.env = append(b.env, "ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=") // only the server has them
	talk := []string{"ask", "-l", "bash", "--conversation", "talk", "remember"}
	b.want("", "the program wrote seen", 0, talk...)
	b.want("seen\n", "", 0, talk...)
	b.want("ask-talk\n", "", 0, "ls", "--quiet")
	out, errs, code := b.hutch("ask", "-l", "bash", "--json", "write a file")
	if code != 0 || !strings.Contains(out, `"output": "made\n"`) || !regexp.MustCompile(`"cost": 0\.[0-9]+`).MatchString(out) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	out, errs, code = b.hutch("audit", "--json")
	if code != 0 || !strings.Contains(out, `"Ask"`) || !strings.Contains(out, `"Model"`) || !strings.Contains(out, messages.Model+" ") || strings.Contains(out, messages.Key) {
		t.Errorf("the audit log: %d %s %s", code, out, errs)
	}
	out, errs, code = b.hutch("monitor", "--json", "-l", "bash", "--code", "echo 7")
	for _, want := range []string{`"status": "healthy"`, `"url": "http://127`, `"running": [1-9]`, `"memoryPeak": [1-9]`, `"output": "7\\n"`} {
		if code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("hutch monitor --json: %d %q %q; want %s", code, out, errs, want)
		}
	}
	b.example(said.String())
	if strings.Contains(said.String(), messages.Key) {
		t.Error("the key is in the server's log")
	}
}

// example runs examples/ask against the server that printed said.
func (b *askBench) example(said string) {
	b.Helper()
	token, err := os.ReadFile(datadir.Folder(b.data).Token())
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./examples/ask", "remember", "remember")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "LANGUAGE=bash", "HUTCH_URL="+regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`).FindString(said), "HUTCH_TOKEN="+strings.TrimSpace(string(token)))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "wrote seen, 0 bytes\nsuccess true after 0 repairs; ") || strings.Count(string(out), "--- run 1 ---\nseen\n") != 1 {
		b.Errorf("the example: %v\n%s", err, out)
	}
}

// TestAskAtTerminal: the text of the model is shown faintly, and NO_COLOR turns colours off.
func TestAskAtTerminal(t *testing.T) {
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	b := newAskBench(t, programs)
	p := startInTerminal(t, b.env, "ask", "--runtime", "native", "-l", "bash", "add up 1 2")
	p.wantOutput("tokens in")
	p.leaves(0) // if it were killed, it would leave its sandbox
	p = startInTerminal(t, b.env, "ask", "--runtime", "native", "-l", "bash", "add up 1 2")
	p.wantOutput("\x1b[2m```bash\r\necho 3\r\n```\x1b[0m\r\n3\r\n")
	p.leaves(0)
	p = startInTerminal(t, append(b.env, "NO_COLOR=1"), "ask", "--runtime", "native", "-l", "bash", "add up 1 2")
	p.wantOutput("tokens in")
	p.leaves(0)
	if strings.Contains(p.shown(), "\x1b[") {
		t.Errorf("colours: %q", p.shown())
	}
}
