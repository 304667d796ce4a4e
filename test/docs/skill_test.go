package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/server"
)

const skill = root + "/skills/hutch"

// The skill has a description in the form that agents look for, and everything that it names exists.
func TestSkill(t *testing.T) {
	text, err := os.ReadFile(skill + "/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(string(text), "---\n", 3)
	if len(parts) != 3 || parts[0] != "" {
		t.Fatal("SKILL.md does not begin with front matter")
	}
	var about struct{ Name, Description string }
	if err := yaml.Unmarshal([]byte(parts[1]), &about); err != nil {
		t.Fatal(err)
	}
	if about.Name != "hutch" || about.Description == "" || len(about.Description) > 1024 {
		t.Errorf("the front matter is %+v", about)
	}
	named := regexp.MustCompile("\\]\\(([^)#:]+)[^)]*\\)|`?((?:scripts|templates|examples)/[\\w./-]+\\w)")
	err = filepath.WalkDir(skill, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			at := filepath.Join(filepath.Dir(path), m[1])
			if m[1] == "" {
				at = filepath.Join(skill, m[2])
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s names %s: %v", path, m[0], err)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Each script does what it describes on a real server, and reports failures.
func TestSkillScripts(t *testing.T) {
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // the default
	bin, data, dir := hutchtest.Dir(t), hutchtest.Dir(t), hutchtest.Dir(t)
	if err := os.Symlink(hutchtest.Program(t, "hutch"), filepath.Join(bin, "hutch")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-r", skill, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	scripted := "name: scripted\nimage: host\ncommand: eval \"$(cat)\"\n" // runs its prompt as a program of bash
	if err := os.WriteFile(filepath.Join(dir, "hutch", "scripted.yaml"), []byte(scripted), 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HUTCH_DATA="+data, "HOME="+dir)
	env = append(env, server.Program(t, data, env)...)
	var tried []string
	for _, c := range []struct {
		name, script, out string
		code              int
	}{
		{"the id of a name", `scripts/sandbox-id.sh 'Chat A/../1'`, "chat-9d86a9227f955df580c5922e69147901\n", 0},
		{"a chat", `scripts/chat-session.sh 'Chat 1' python 'x = 40' && scripts/chat-session.sh 'Chat 1' python 'print(x + 2)'`, "42\n", 0},
		{"another chat", `scripts/chat-session.sh 'Chat 2' python 'print(x)' 2>&1; scripts/chat-session.sh --end 'Chat 2'`, "NameError", 0},
		{"the end of a chat", `scripts/chat-session.sh --end 'Chat 1' && scripts/chat-session.sh 'Chat 1' python 'print(x)' 2>&1`, "NameError", 1},
		{"a program", `scripts/run-code.sh python examples/sales/report.py examples/sales/sales.csv`, `best month: March`, 0},
		{"a program that fails", `echo 'raise SystemExit(3)' > f.py; scripts/run-code.sh python f.py`, `"exitCode": 3`, 3},
		{"a build", `scripts/build.sh examples/project out true make && cat out/greeting`, "hello, world\n", 0},
		{"a build into a folder that exists", `mkdir there; scripts/build.sh examples/project there true make`, "", 2},
		{"a chat that cannot begin", `HUTCH_TOKEN=wrong scripts/chat-session.sh 'Chat 3' python 'print(1)' 2>&1`, "token", 125},
		{"a build that fails", `scripts/build.sh examples/project none true 'exit 4'; code=$?; [ ! -e none ] && exit $code`, "", 4},
		{"tests", `scripts/ci-runner.sh examples/project true 'sh test.sh one' 'sh test.sh two'`, "shard one passed\n=== sh test.sh two: exit 0\nshard two passed\n", 0},
		{"tests that fail", `scripts/ci-runner.sh examples/project 'echo other > name' 'sh test.sh one'`, "=== sh test.sh one: exit 1\n", 1},
		{"a coding agent", `HUTCH_AGENT=./scripted.yaml scripts/agent-on-repository.sh examples/project 'echo new > made' --rm`, "\n+new\n", 0},
		{"a coding agent that fails", `HUTCH_AGENT=./scripted.yaml scripts/agent-on-repository.sh examples/project 'exit 7' --rm`, "", 7},
		{"no arguments", `for f in scripts/*.sh; do $f 2>/dev/null && echo $f; done; exit 0`, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(env, filepath.Join(dir, "hutch"), "bash", "-c", c.script)
			cmd.Stderr = t.Output()
			out, _ := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != c.code || c.out == "" && len(out) > 0 || !strings.Contains(string(out), c.out) {
				t.Errorf("%s: exit %d, %q; wanted exit %d, %q", c.script, code, out, c.code, c.out)
			}
		})
		tried = append(tried, regexp.MustCompile(`[\w-]+\.sh`).FindAllString(c.script, -1)...)
	}
	scripts, err := filepath.Glob(skill + "/scripts/*")
	for _, s := range scripts {
		if !slices.Contains(tried, filepath.Base(s)) {
			t.Errorf("no test runs %s", s)
		}
	}
	if left := command(env, dir, "hutch", "ls", "--quiet"); err != nil || len(output(t, left)) > len("chat-00000000000000000000000000000000\n") {
		t.Errorf("the scripts leave more than the chat, %v", err)
	}
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Error(err)
	}
	return string(out)
}
