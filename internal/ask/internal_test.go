package ask

import (
	"strings"
	"testing"
	"unicode/utf8"

	"hutch"
	"hutch/internal/runner"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	python, err := runner.Lookup("python")
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]string{
		"```python\nprint(1)\n```":                                    "print(1)\n",
		"Here:\n```py\nprint(1)\n```\nand this is the output:\n":      "print(1)\n",
		"~~~\nprint(1)\n~~~":                                          "print(1)\n",
		"````python\ns = '''\n```\n'''\n````":                         "s = '''\n```\n'''\n",
		"  ```python\n  if 1:\n    print(1)\n  ```":                   "if 1:\n  print(1)\n",
		"```python\nprint(1)":                                         "print(1)",
		"```python\r\nprint(1)\r\n```\r\n":                            "print(1)\r\n",
		"```text\nexample\n```\n```python title=\"a\"\nprint(1)\n```": "print(1)\n",
		"Use `print(1)`.":                                             "",
		"```print(1)```":                                              "",
		"```python\n```":                                              "",
	} {
		got, problem := extract(answer, python)
		if got != want || (problem == nil) != (want != "") {
			t.Errorf("%q: %q, %v", answer, got, problem)
		}
	}
}

// FuzzExtract: whatever a model writes, an extracted program is a part of its text, and an error is one bounded line.
func FuzzExtract(f *testing.F) {
	for _, seed := range []string{"```python\nprint(1)\n```", "~~~\nx\n~~~~", "``` \n\n```py", "\x1b[2J```", "```python\n\xff\n```"} {
		f.Add(seed)
	}
	python, err := runner.Lookup("python")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		code, problem := extract(answer, python)
		switch {
		case problem == nil && strings.TrimSpace(code) == "":
			t.Errorf("%q: an empty program", answer)
		case problem == nil && len(code) > len(answer):
			t.Errorf("%q: a program of %d bytes", answer, len(code))
		case problem != nil && (len(problem.Message) > 1000 || strings.ContainsFunc(problem.Message, func(r rune) bool { return r < ' ' }) || !utf8.ValidString(problem.Message)):
			t.Errorf("%q: %q", answer, problem.Message)
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	b := newBounded[int, string](3, 10)
	put := func(k int, v string) { b.change(k, func(string) (string, int) { return v, len(v) }) }
	for i := range 4 {
		put(i, "abc")
	}
	if _, ok := b.get(0); ok || b.bytes != 9 {
		t.Errorf("%d bytes", b.bytes)
	}
	b.get(1)
	put(4, "abcdef")
	if _, ok := b.get(1); !ok || b.bytes != 9 || len(b.byKey) != 2 {
		t.Errorf("%d entries, %d bytes", len(b.byKey), b.bytes)
	}
	put(1, strings.Repeat("x", 11))
	if _, ok := b.get(1); ok || b.bytes != 6 {
		t.Errorf("%d bytes", b.bytes)
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	p := Prices{"claude": {1, 5}, "claude-big": {10, 50}}
	cost := p.cost(Reply{Model: "claude-big-7", Usage: hutch.ModelUsage{InputTokens: 3_000_000, OutputTokens: 1_000_000}, CacheWrites: 1_000_000, CacheReads: 1_000_000})
	if cost == nil || *cost != 10+12.5+1+50 {
		t.Errorf("%v", cost)
	}
	if p.cost(Reply{Model: "other"}) != nil {
		t.Error("a model without a price has a cost")
	}
	for _, wrong := range []string{"", "3", "3/x", "-1/2", "NaN/1", "1/1e9"} {
		if _, err := ParsePrice(wrong); err == nil {
			t.Errorf("%q is a price", wrong)
		}
	}
}

// TestFrontMatterOfClaudeCode: Claude Code's own files are often not valid YAML.
func TestFrontMatterOfClaudeCode(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]component{
		"name: reviewer\ndescription: Use it after changes. Examples: <example>user: \"x\"</example>\ntools: Glob, Grep\nmodel: sonnet\ncolor: green": {Name: "reviewer", Model: "sonnet"},
		"argument-hint: [number] [priority]\nallowed-tools: Bash(git add:*), Bash(git status:*)\nmax-tokens: 7\nlanguage: bash":                       {MaxTokens: 7, Language: "bash"},
	} {
		c, err := parseComponent([]byte("---\n" + head + "\n---\nDo it."))
		if want.body = "Do it."; err != nil || c.Name != want.Name || c.Model != want.Model || c.MaxTokens != want.MaxTokens || c.Language != want.Language || c.body != want.body {
			t.Errorf("%q: %+v, %v", head, c, err)
		}
	}
	for _, head := range []string{"\t: [", "name: x\nno key", "max-tokens: many", "name: [\nx: ["} {
		if c, err := parseComponent([]byte("---\n" + head + "\n---\nDo it.")); err == nil {
			t.Errorf("%q: %+v", head, c)
		}
	}
}

// TestCharacters: output is passed on in pieces of whole characters, and nothing is lost.
func TestCharacters(t *testing.T) {
	t.Parallel()
	var got []string
	o := &output{take: func(int) bool { return true }, out: func(e hutch.AnswerEvent) error {
		got = append(got, e.Output.Text)
		return nil
	}}
	for _, b := range []byte("aü世\xff") {
		if err := o.add(hutch.Output{Stream: hutch.Stdout, Data: []byte{b}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.add(hutch.Output{Stream: hutch.Stdout, Data: []byte("\xe4")}); err != nil {
		t.Fatal(err)
	}
	if err := o.flush(); err != nil || strings.Join(got, "|") != "a|ü|世|\ufffd|\ufffd" {
		t.Errorf("%q, %v", got, err)
	}
}
