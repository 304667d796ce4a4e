package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

func TestTableIsWellFormed(t *testing.T) {
	seen := map[string]string{}
	for i, l := range languages {
		if i > 0 && languages[i-1].Name >= l.Name {
			t.Errorf("%s stands behind %s: sort the table by name", l.Name, languages[i-1].Name)
		}
		for _, name := range append([]string{l.Name}, l.Aliases...) {
			if other, taken := seen[name]; taken || name != strings.ToLower(name) || name == "" {
				t.Errorf("%s: the name %q is not in lower case, or also that of %q", l.Name, name, other)
			}
			seen[name] = l.Name
		}
		if !strings.HasPrefix(l.Suffix, ".") || len(l.Programs) == 0 {
			t.Errorf("%s: suffix %q, programs %q", l.Name, l.Suffix, l.Programs)
		}
		if l.run == nil && l.compile == nil {
			t.Errorf("%s: give run or compile", l.Name)
		}
		if n := count(append(slices.Clone(l.run), l.compile...), wire.SourceArg); n != 1 {
			t.Errorf("%s: the arguments name the source %d times", l.Name, n)
		}
		for _, argv := range [][]string{l.compile, l.run} {
			if n := count(argv, wire.ProgramArg); l.compile != nil && argv != nil && n != 1 {
				t.Errorf("%s: the arguments name the program %d times", l.Name, n)
			}
		}
	}
}

func count(list []string, s string) (n int) {
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{
		"python": "python", "py": "python", "Python3": "python", "js": "javascript", "ts": "typescript",
		"sh": "bash", "golang": "go", "C++": "c++", "R": "r",
	} {
		if l, err := Lookup(name); err != nil || l.Name != want {
			t.Errorf("Lookup(%q) = %q, %v; want %s", name, l.Name, err, want)
		}
	}
	for _, name := range []string{"", "cobol", "python ", strings.Repeat("x", 1e6)} {
		_, err := Lookup(name)
		e, ok := errors.AsType[*hutch.Error](err)
		if !ok || e.Kind != hutch.Invalid || e.Data["field"] != "language" || len(e.Message) > 300 || !strings.Contains(e.Message, "python") {
			t.Errorf("Lookup(%.20q): %v", name, err)
			continue
		}
		if known, _ := e.Data["languages"].([]string); !slices.Contains(known, "typescript") {
			t.Errorf("Lookup(%.20q) lists %v", name, known)
		}
	}
}

// programs read stdin, print it to stdout and their argument to stderr, and exit with 3.
var programs = map[string]string{
	"bash":       `read x; echo "got $x"; echo "$1" >&2; exit 3`,
	"c":          "#include <stdio.h>\n#include <math.h>\nint main(int n, char **v){char s[9]; scanf(\"%8s\", s); printf(\"got %s\\n\", s); fprintf(stderr, \"%s\\n\", v[1]); return 3 * (int)cos(0);}",
	"c++":        "#include <iostream>\nint main(int, char **v){std::string s; std::cin >> s; std::cout << \"got \" << s << std::endl; std::cerr << v[1] << \"\\n\"; return 3;}",
	"go":         "package main\nimport (\"fmt\"; \"os\")\nfunc main(){var s string; fmt.Scan(&s); fmt.Println(\"got\", s); fmt.Fprintln(os.Stderr, os.Args[1]); os.Exit(3)}",
	"java":       "import java.util.*;\npublic class Whatever { public static void main(String[] a){ System.out.println(\"got \" + new Scanner(System.in).next()); System.err.println(a[0]); System.exit(3); } }",
	"javascript": "const fs = require('fs'); console.log('got ' + fs.readFileSync(0, 'utf8').trim()); console.error(process.argv[2]); process.exitCode = 3",
	"perl":       `$x = <STDIN>; print "got $x"; print STDERR "$ARGV[0]\n"; exit 3;`,
	"php":        `<?php echo "got " . fgets(STDIN); fwrite(STDERR, "$argv[1]\n"); exit(3);`,
	"python":     "import sys\nprint('got', input())\nprint(sys.argv[1], file=sys.stderr)\nsys.exit(3)",
	"r":          `x <- readLines(file("stdin"), 1); cat("got ", x, "\n", sep=""); message(commandArgs(TRUE)[1]); quit(status=3)`,
	"ruby":       `puts "got #{STDIN.gets}"; STDERR.puts ARGV[0]; exit 3`,
	"rust":       "use std::io;\nfn main(){let mut s = String::new(); io::stdin().read_line(&mut s).unwrap(); println!(\"got {}\", s.trim()); eprintln!(\"{}\", std::env::args().nth(1).unwrap()); std::process::exit(3)}",
	"typescript": "import { readFileSync } from 'node:fs';\ninterface In { text: string }\nconst x: In = { text: readFileSync(0, 'utf8').trim() };\nenum Code { Three = 3 }\nconsole.log(`got ${x.text}`); console.error(process.argv[2]); process.exitCode = Code.Three as number",
}

func TestEveryLanguageRuns(t *testing.T) {
	for _, l := range Languages() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			need(t, l)
			got := run(t, l, programs[l.Name], "x\n", "--an arg")
			if want := (outcome{"got x\n", "--an arg\n", 3, false}); got != want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCompileErrorsAreToldApart(t *testing.T) {
	for _, name := range []string{"c", "c++", "go", "java", "rust"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := Lookup(name)
			need(t, l)
			got := run(t, l, "this is\nno program", "")
			if got.code != 1 || !got.compile || got.stdout != "" || !strings.Contains(strings.ToLower(got.stderr), "main"+l.Suffix) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestLook finds the languages of this machine, and their versions.
func TestLook(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", Look().Argv[1:]...)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := Found(out)
	for _, l := range Languages() {
		var err error
		for _, p := range l.Programs {
			_, perr := exec.LookPath(p)
			err = errors.Join(err, perr)
		}
		i := slices.IndexFunc(found, func(f hutch.Language) bool { return f.Name == l.Name })
		switch {
		case (err == nil) != (i >= 0):
			t.Errorf("%s: found at %d; %v", l.Name, i, err)
		case i >= 0 && (found[i].Version == "" || found[i].Aliases == nil):
			t.Errorf("%+v of %q", found[i], out)
		}
	}
}

func TestFoundBelievesNothing(t *testing.T) {
	t.Parallel()
	said := "evil\t1.2\npython\t\x1b[31m" + strings.Repeat("9", 1000) + "\n\n\t\nc\nnode\t1\ngo\tgo version go1.26.3 linux\ngo\tgo1.27"
	got := Found([]byte(said))
	if len(got) != 3 || got[0].Name != "c" || got[0].Version != "" || got[1].Version != "1.27" || len(got[2].Version) > 50 {
		t.Errorf("%+v", got)
	}
	if got := Found(nil); got == nil || len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNUL(t *testing.T) {
	for _, l := range Languages() {
		if _, err := l.Start("a\x00b"); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%s: %v", l.Name, err)
		}
	}
}

func TestModulesOfTheWorkingDirectory(t *testing.T) {
	for name, c := range map[string]struct{ file, content, source string }{
		"python":     {"helper.py", "x = 'ok'", "import helper; print(helper.x)"},
		"javascript": {"node_modules/helper/index.js", "exports.x = 'ok'", "console.log(require('helper').x)"},
		"ruby":       {"helper.rb", "X = 'ok'", "require 'helper'; puts X"},
		"c":          {"helper.h", `#define X "ok"`, "#include <stdio.h>\n#include \"helper.h\"\nint main(void){puts(X); return 0;}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _ := Lookup(name)
			need(t, l)
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.content), 0o644)); err != nil {
				t.Fatal(err)
			}
			if got := runIn(t, dir, l, c.source, ""); got.stdout != "ok\n" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func need(t *testing.T, l Language) {
	t.Helper()
	for _, p := range l.Programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed here", p)
		}
	}
}

type outcome struct {
	stdout, stderr string
	code           int
	compile        bool // it was the compiler that ended
}

func run(t *testing.T, l Language, source, stdin string, args ...string) outcome {
	t.Helper()
	return runIn(t, t.TempDir(), l, source, stdin, args...)
}

// runIn does with a wire.Start what the engine and the agent do.
func runIn(t *testing.T, dir string, l Language, source, stdin string, args ...string) outcome {
	t.Helper()
	start, err := l.Start(source)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), start.SourceName)
	if err := os.WriteFile(file, []byte(start.Source), 0o644); err != nil {
		t.Fatal(err)
	}
	step := func(argv []string, stdin string) outcome {
		argv = slices.Clone(argv)
		for i := range argv {
			argv[i] = strings.NewReplacer(wire.SourceArg, file, wire.ProgramArg, filepath.Join(filepath.Dir(file), "program")).Replace(argv[i])
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), start.Env...)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), false}
	}
	if start.Compile != nil {
		if o := step(start.Compile, ""); o.code != 0 {
			o.compile = true
			return o
		}
	}
	return step(append(start.Argv, args...), stdin)
}
