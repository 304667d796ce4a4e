package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// values are the values of flags of every kind.
type values struct {
	name    string
	on      bool
	n       int
	x       float64
	list    []string
	array   []string
	pairs   map[string]string
	forHost string
}

func (v *values) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.StringVar(&v.name, "name", "default", "")
	f.BoolVar(&v.on, "on", false, "")
	f.IntVar(&v.n, "big-number", 1, "")
	f.Float64Var(&v.x, "x", 0, "")
	f.StringSliceVar(&v.list, "list", nil, "")
	f.StringArrayVar(&v.array, "array", nil, "")
	f.StringToStringVar(&v.pairs, "pairs", nil, "")
	f.StringVar(&v.forHost, "for-host", "", "")
	f.Lookup("for-host").NoOptDefVal = "host"
	f.String("not", "", "")
	return f
}

// apply applies an environment and the text of a file to new flags.
func apply(t *testing.T, env map[string]string, file string, args ...string) (values, map[string]Origin, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "file.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var v values
	f := v.flags()
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	p := Program{
		Prefix: "P_", Not: []string{"not"}, Getenv: func(name string) string { return env[name] },
		Meant: func(name string, names []string) string { return "; did you mean " + names[0] + "?" },
	}
	origins, err := p.Apply(f, path)
	return v, origins, err
}

func TestPrecedence(t *testing.T) {
	const file = "# what a comment says\nname: file\n\nbig-number: 2\nx: 1\nlist: [a]\n"
	env := map[string]string{"P_NAME": "environment", "P_BIG_NUMBER": "3", "P_LIST": "b,c", "P_X": ""}
	v, from, err := apply(t, env, file, "--name", "flag", "--list", "d")
	if err != nil {
		t.Fatal(err)
	}
	if v.name != "flag" || v.n != 3 || v.x != 1 || v.on || !slices.Equal(v.list, []string{"d"}) {
		t.Errorf("the values are %+v", v)
	}
	if from["name"].Kind() != "flag" || from["big-number"].String() != "$P_BIG_NUMBER" || from["x"].Line != 5 || from["on"] != (Origin{}) {
		t.Errorf("the origins are %v", from)
	}
}

// TestValues: the file has values as people write them in YAML.
func TestValues(t *testing.T) {
	v, _, err := apply(t, nil, `
name: "text, with: all"
on: true
big-number: 1_000
x: 0.000014
list:
  - "one, with a comma"
  - two
array: ["a=b,c", 'd"e']
pairs: {cpu: 0.000014, text: "a=b, c"}
for-host: true
`)
	if err != nil {
		t.Fatal(err)
	}
	if v.name != "text, with: all" || !v.on || v.n != 1000 || v.x != 0.000014 || v.forHost != "host" ||
		!slices.Equal(v.list, []string{"one, with a comma", "two"}) || !slices.Equal(v.array, []string{"a=b,c", `d"e`}) ||
		len(v.pairs) != 2 || v.pairs["cpu"] != "0.000014" || v.pairs["text"] != "a=b, c" {
		t.Errorf("the values are %+v", v)
	}
	v, _, err = apply(t, map[string]string{"P_ARRAY": "a=b,c d", "P_PAIRS": "a=1,b=2", "P_FOR_HOST": "other", "P_ON": "true"}, "list: one,two\n")
	if err != nil || !slices.Equal(v.array, []string{"a=b,c", "d"}) || v.pairs["b"] != "2" || v.forHost != "other" || !v.on || !slices.Equal(v.list, []string{"one", "two"}) {
		t.Errorf("the values are %+v, %v", v, err)
	}
}

// TestRefused: the error of every mistake names its position and the right form.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ file, says string }{
		{"x: 1\nnmae: a\n", `file.yaml:2: there is no setting "nmae"; did you mean array?`},
		{"not: a\n", `:1: there is no setting "not"`},
		{"name: 3\n", ":1: name is 3, a number: it takes a text; quotes"},
		{"name: [a]\n", ":1: name is a list: it takes a text"},
		{"name:\n", ":1: name has no value"},
		{"on: yes\n", ":1: on is yes, a text: it takes true or false"},
		{"big-number: 1.5\n", ":1: big-number is 1.5, a number: it takes a whole number"},
		{"big-number: '1'\n", ":1: big-number is 1, a text: it takes a whole number"},
		{"big-number: 99999999999999999999\n", "big-number"},
		{"list: {a: b}\n", ":1: list is a map: it takes a list of texts"},
		{"list: [[a]]\n", ":1: list has an item that is a list"},
		{"list: [1]\n", ":1: list has an item that is a number"},
		{"pairs: [a]\n", ":1: pairs is a list: it takes a map"},
		{"pairs: {a: [b]}\n", `:1: pairs has no plain value for "a"`},
		{"pairs: {a: 1, a: 2}\n", `:1: pairs has "a" twice`},
		{"x: 1\nx: 2\n", ":2: x is set twice: it is also in line 1"},
		{"name: &a b\nlist: *a\n", ":2: list is an alias"},
		{"- a\n", ":1: this is a list: write a setting in each line"},
		{"name: a\n---\nname: b\n", "has more than one document"},
		{"name: [\n", "is not YAML: line"},
		{"x: 1\n# " + strings.Repeat("x", maxFile), "is longer than a MiB"},
	} {
		_, _, err := apply(t, nil, c.file)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40q: %v, which does not say %q", c.file, err, c.says)
		}
	}
	_, _, err := apply(t, map[string]string{"P_BIG_NUMBER": "many", "P_ON": "perhaps"}, "nmae: a\non: 1\n")
	for _, says := range []string{`$P_BIG_NUMBER: "many" is not a whole number`, `$P_ON: "perhaps" is neither true nor false`, ":1: there", ":2: on"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if _, _, err := apply(t, nil, "\n# only a comment\n"); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}
