package servicetest

import (
	"slices"
	"strings"
	"testing"

	"hutch"
)

// languageTests are tests of source code that is run once.
type languageTests struct{ *suite }

func (s languageTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"list":                               s.list,
		"each runs":                          s.eachRuns,
		"a compile error is not a run error": s.compileError,
		"arguments":                          s.arguments,
	}
}

// languages returns the languages of a new sandbox with enough memory for compilers.
func (s languageTests) languages(t *testing.T) (id string, list []hutch.Language) {
	t.Helper()
	id = s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 2048}}).ID
	list, err := s.svc.Languages(bounded(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return id, list
}

func (s languageTests) list(t *testing.T) {
	_, list := s.languages(t)
	if !slices.IsSortedFunc(list, func(a, b hutch.Language) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("not by name: %+v", list)
	}
	names := map[string]bool{}
	for _, l := range list {
		names[l.Name] = true
		contexts := slices.Contains([]string{"bash", "javascript", "python", "typescript"}, l.Name)
		if l.Version == "" || l.Aliases == nil || l.Contexts != contexts {
			t.Errorf("%+v", l)
		}
	}
	if !names["bash"] || !names["python"] {
		t.Errorf("%+v", list)
	}
}

func (s languageTests) eachRuns(t *testing.T) {
	id, list := s.languages(t)
	for _, l := range list {
		if source, ok := hello[l.Name]; ok {
			s.speaks(t, id, l.Name, source)
		}
	}
}

func (s languageTests) compileError(t *testing.T) {
	id, list := s.languages(t)
	if !slices.ContainsFunc(list, func(l hutch.Language) bool { return l.Name == "c" }) {
		t.Skip("there is no compiler")
	}
	for _, l := range list {
		source, compiled := uncompilable[l.Name]
		if !compiled {
			continue
		}
		res := s.do(t, id, hutch.ExecRequest{Language: l.Name, Command: source, Timeout: 60})
		if !res.CompileError || res.Success() || !strings.Contains(string(res.Stderr), "nothing") {
			t.Errorf("%s: %+v", l.Name, res)
		}
	}
	res := s.do(t, id, hutch.ExecRequest{Language: "c", Command: "#include <stdio.h>\nint main(void) { fputs(\"error: did not compile\\n\", stderr); return 1; }"})
	if res.CompileError || res.ExitCode != 1 {
		t.Errorf("a program that says so: %+v", res)
	}
}

func (s languageTests) arguments(t *testing.T) {
	id := s.open(t)
	res := s.do(t, id, hutch.ExecRequest{Command: `printf '%s|' "$@"`, Args: []string{"a b", "$X", "", "-c", "é"}})
	if got := string(res.Stdout); got != "a b|$X||-c|é|" {
		t.Errorf("%q", got)
	}
	for name, args := range map[string][]string{"NUL": {"a\x00source"}, "too long": {strings.Repeat("x", 2<<20)}} {
		_, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "true", Args: args}, nil)
		wantKind(t, hutch.Invalid, err, "%s", name)
	}
}

// uncompilable are programs that do not compile.
var uncompilable = map[string]string{
	"c":    "int main(void) { return nothing; }",
	"c++":  "int main() { return nothing; }",
	"java": "class A { public static void main(String[] a) { nothing(); } }",
	"rust": "fn main() { nothing(); }",
}

// hello are programs that print their argument and their input.
var hello = map[string]string{
	"bash":       `read x; echo "$1 $x"`,
	"c":          "#include <stdio.h>\nint main(int n, char **v) { char s[9]; if (scanf(\"%8s\", s) == 1) printf(\"%s %s\\n\", v[1], s); }",
	"javascript": `console.log(process.argv[2] + ' ' + require('fs').readFileSync(0, 'utf8').trim())`,
	"perl":       `$x = <STDIN>; print "$ARGV[0] $x"`,
	"python":     "import sys\nprint(sys.argv[1], input())",
	"typescript": "const x: string = require('fs').readFileSync(0, 'utf8').trim(); console.log(process.argv[2] + ' ' + x)",
}

func (s languageTests) speaks(t *testing.T, id, name, source string) {
	t.Helper()
	res := s.do(t, id, hutch.ExecRequest{Language: name, Command: source, Args: []string{"an-arg"}, Stdin: strings.NewReader("input\n")})
	if got := string(res.Stdout); got != "an-arg input\n" || !res.Success() {
		t.Errorf("%s: %q, stderr %q, exit code %d", name, got, res.Stderr, res.ExitCode)
	}
}
