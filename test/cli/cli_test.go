// Package cli tests the program as people use it: the scripts in testdata are terminal sessions with the built
// programs. Those in testdata/each run on every runtime, as root and as an ordinary user.
package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hutch": hutch, "background": background})
}

// Environment variables of a script that the commands of this test read.
const (
	varProgram = "HUTCH_TEST_PROGRAM" // the path of the program
	varUser    = "HUTCH_TEST_USER"    // the user it runs as
	varPath    = "HUTCH_TEST_PATH"    // PATH without the commands of this test
)

// hutch becomes the program, as the script's user.
func hutch() {
	program, path := os.Getenv(varProgram), os.Getenv(varPath)
	err := become(os.Getenv(varUser))
	for _, name := range []string{varProgram, varUser, varPath} {
		os.Unsetenv(name)
	}
	os.Setenv("PATH", path)
	if err == nil {
		err = syscall.Exec(program, append([]string{"hutch"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "start hutch:", err)
	os.Exit(1)
}

func become(user string) error {
	uid, _ := strconv.Atoi(user)
	if uid == os.Geteuid() {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid)
}

// stage has what scripts run with: the programs, and a user.
type stage struct {
	dir  string // every user can walk through it
	user int
	path string   // PATH outside of scripts
	on   []string // the runtimes of the scripts that run on each
	turn int      // 1 or 2: only every second script runs on each runtime, from the first or the second; 0: all of them
}

// stranger is a user id that does not exist on any host.
const stranger = 12345

// TestSessions runs all scripts as root and as an ordinary user. Unless the test is full, each script in testdata/each
// runs only once: the first on gvisor as root, the next on native as an ordinary user, and so on.
func TestSessions(t *testing.T) {
	path := os.Getenv("PATH")
	_, path, _ = strings.Cut(path, string(os.PathListSeparator)) // the first folder has this test's commands
	s := stage{dir: install(t), user: os.Geteuid(), path: path, on: hutchtest.Runtimes}
	if s.user == 0 {
		if !hutchtest.Full() {
			s.on, s.turn = []string{"gvisor"}, 1
		}
		t.Run("root", s.run)
		if !hutchtest.Full() {
			s.on, s.turn = []string{"native"}, 2
		}
		s.user = stranger
	}
	t.Run("user", s.run)
}

// install copies the programs and the example to a place that every user can reach.
func install(t *testing.T) string {
	dir := hutchtest.Dir(t)
	bin := filepath.Join(dir, "bin")
	example := filepath.Join(dir, "examples", "weather")
	for _, d := range []string{bin, example} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		duplicate(t, hutchtest.Program(t, name), filepath.Join(bin, name), 0o755)
	}
	for _, name := range []string{"seattle.csv", "summary.py"} {
		duplicate(t, filepath.Join("../../examples/weather", name), filepath.Join(example, name), 0o644)
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "weather"), "../../examples/weather").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	return dir
}

func duplicate(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s stage) run(t *testing.T) {
	works := s.runtimes(t)
	t.Run("any", func(t *testing.T) { s.scripts(t, "any", "") })
	for _, runtime := range s.on {
		t.Run(runtime, func(t *testing.T) {
			if why, ok := works[runtime]; !ok || why != "" {
				hutchtest.Skip(t, "%s does not work here: %s", runtime, cmp.Or(why, "unknown to hutch doctor"))
			}
			s.scripts(t, "each", runtime)
		})
	}
}

// runtimes returns, for each runtime, why it does not work according to `hutch doctor`; "" means that it works.
func (s stage) runtimes(t *testing.T) map[string]string {
	cmd := exec.Command(filepath.Join(s.dir, "bin/hutch"), "doctor", "--json", "--data", s.data(t))
	cmd.Env = []string{"PATH=" + s.path, "HOME=" + s.home(t)}
	if s.user != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.user), Gid: uint32(s.user)}}
	}
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	var reports []struct {
		Part     string
		OK       bool
		Findings json.RawMessage
	}
	if jerr := json.Unmarshal(out, &reports); jerr != nil {
		t.Fatalf("hutch doctor: %v, %v: %s", err, jerr, out)
	}
	works := map[string]string{}
	for _, r := range reports {
		works[r.Part] = ""
		if !r.OK {
			works[r.Part] = string(bytes.TrimSpace(r.Findings))
		}
	}
	return works
}

// data creates a data folder with a short path. The folder belongs to the stage's user.
func (s stage) data(t testing.TB) string {
	dir := hutchtest.Dir(t)
	if err := os.Chown(dir, s.user, s.user); err != nil && s.user != os.Geteuid() {
		t.Fatal(err)
	}
	return dir
}

// hasNetwork reports whether the stage's user can give sandboxes a network. An ordinary user needs /dev/net/tun for
// that.
func (s stage) hasNetwork() bool {
	tun, err := os.Stat("/dev/net/tun")
	return s.user == 0 || err == nil && tun.Mode().Perm()&0o006 == 0o006
}

// home returns the home folder of the stage's user: the one of this process, or an empty one.
func (s stage) home(t testing.TB) string {
	if s.user != os.Geteuid() {
		return s.data(t)
	}
	home, _ := os.UserHomeDir()
	return home
}

// scripts runs the scripts of a folder, side by side.
func (s stage) scripts(t *testing.T, folder, runtime string) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scripts: %v", err)
	}
	if s.turn != 0 && runtime != "" {
		var mine []string
		for i, file := range files {
			if i%2 == s.turn-1 {
				mine = append(mine, file)
			}
		}
		files = mine
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		WorkdirRoot:         s.work(t),
		Condition: func(name string) (bool, error) {
			switch name {
			case "root", "user":
				return (s.user == 0) == (name == "root"), nil
			case "network": // whether sandboxes can have a network
				return s.hasNetwork(), nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "signal": signal, "eventually": eventually, "alone": awaitUnused,
			"server": server, "end": end, "crash": crash, "eavesdrop": eavesdrop, "heard": checkHeard,
			"end-by-down": endByDown, "nothing": nothing,
		},
		Setup: func(env *testscript.Env) error {
			data := s.data(t)
			for name, value := range map[string]string{
				varProgram: filepath.Join(s.dir, "bin/hutch"), varUser: strconv.Itoa(s.user), varPath: s.path,
				"HUTCH_DATA": data, "HUTCH_URL": "http://127.0.0.1:1", "HOME": s.home(t), "RUNTIME": runtime,
				"XDG_CONFIG_HOME": filepath.Join(env.WorkDir, ".config"),
				"EXAMPLE":         filepath.Join(s.dir, "examples/weather"), "WEATHER": filepath.Join(s.dir, "bin/weather"),
			} {
				env.Setenv(name, value)
			}
			env.Values[serverKey{}] = &daemon{}
			env.Values[spyKey{}] = &hutchtest.Buffer{}
			env.Defer(func() { clean(env) })
			return filepath.WalkDir(env.WorkDir, func(path string, _ fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				return os.Lchown(path, s.user, -1)
			})
		},
	})
}

// work creates a folder for the scripts that every user can read.
func (s stage) work(t *testing.T) string {
	dir := hutchtest.Dir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSessionsGoOn: no script uses a command of testscript that would end it early and let it pass.
func TestSessionsGoOn(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no sessions: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^(\[.*\] )?(stop|skip)\b`).Match(text) {
			t.Errorf("%s stops before its end: the server is ended with `end`", name)
		}
	}
}

// TestEveryFlagIsDocumented compares docs/cli.md with the program's help.
func TestEveryFlagIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	for _, name := range []string{"serve", "run", "exec", "ls", "rm", "mcp", "doctor", "version"} {
		help, err := exec.Command(hutchtest.Program(t, "hutch"), name, "--help").Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range flag.FindAllString(string(help), -1) {
			if f != "--help" && !bytes.Contains(doc, []byte("`"+f)) {
				t.Errorf("docs/cli.md lacks %s of `hutch %s`", f, name)
			}
		}
		if !bytes.Contains(doc, []byte("`hutch "+name+"`")) {
			t.Errorf("docs/cli.md lacks `hutch %s`", name)
		}
	}
}
