package openterminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"hutch"
)

// FuzzPatterns: a pattern is refused or can be matched, and a pattern without special characters matches itself.
func FuzzPatterns(f *testing.F) {
	f.Add("*.py")
	f.Add("[!a-")
	f.Add(`\d+(`)
	f.Fuzz(func(t *testing.T, text string) {
		set, err := patterns([]string{text})
		if err == nil && text != "" && text != "null" && !strings.ContainsAny(text, "*?[]") && strings.ToValidUTF8(text, "") == text && !set.match(text) {
			t.Errorf("%q does not match itself", text)
		}
	})
}

// A program in the sandbox chooses the names that this server compares with patterns. So the steps of the patterns are
// limited, and the work of a request, too.
func TestCostOfPatterns(t *testing.T) {
	long := strings.Repeat("*a", maxPattern/2)
	for what, list := range map[string][]string{"a long pattern": {long}, "many patterns": slices.Repeat([]string{strings.Repeat("*a", 10)}, maxPatterns)} {
		if _, err := patterns(list); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	set, err := patterns([]string{strings.Repeat("*a", 100), "*.py"})
	if err != nil {
		t.Fatal(err)
	}
	name, spent, n := strings.Repeat("a/", 2000), work(0), 0
	for ; spent.add(set, name) == nil; n++ {
		if n == 10_000 {
			t.Fatal("there is no end of it")
		}
	}
	if n < 100 {
		t.Errorf("only %d long names can be compared", n)
	}
}

// FuzzReplacement: a replacement changes only the lines that it names.
func FuzzReplacement(f *testing.F) {
	f.Add("one\ntwo\n", "o", "0", 1, 1, true)
	f.Add("", "x", "", -5, 1<<40, false)
	f.Fuzz(func(t *testing.T, content, target, replacement string, first, last int, all bool) {
		got, err := chunk{Target: target, Replacement: replacement, First: &first, Last: &last, All: all}.in(content)
		if err != nil {
			return
		}
		lines := slices.Collect(strings.Lines(content))
		from := min(max(first, 1)-1, len(lines))
		to := max(min(last, len(lines)), from)
		if before, after := strings.Join(lines[:from], ""), strings.Join(lines[to:], ""); !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
			t.Errorf("%q became %q", content, got)
		}
	})
}

// FuzzUnescape: a text without backslashes stays as it is.
func FuzzUnescape(f *testing.F) {
	f.Add(`a\n\x03\\`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := unescape(text); len(got) > 2*len(text) || !strings.Contains(text, `\`) && got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// FuzzFrontMatter: a text without front matter is not changed, and the rest of a text after its front matter is a part
// of the text.
func FuzzFrontMatter(f *testing.F) {
	f.Add("---\nname: a\ndescription: |\n  b\n\tc\n---\nText")
	f.Add("---\n---")
	f.Fuzz(func(t *testing.T, text string) {
		head, body := frontMatter(text)
		if head == nil && strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) != body || len(body) > len(text) {
			t.Errorf("%q became %q", text, body)
		}
	})
}

// TestOutputsOfACell: whatever a cell sends, the output that is kept has a limit, even if each part is empty.
func TestOutputsOfACell(t *testing.T) {
	t.Parallel()
	stream := func(s hutch.Stream) hutch.RunEvent {
		return hutch.RunEvent{Output: &hutch.Output{Stream: s, Data: []byte("x")}}
	}
	for name, events := range map[string][]hutch.RunEvent{
		"results of our own types": {{Result: &hutch.CodeResult{Data: map[string]json.RawMessage{ourTypes + "x": json.RawMessage("0")}}}},
		"empty results":            {{Result: &hutch.CodeResult{}}},
		"errors":                   {{Error: &hutch.CodeError{Name: "E"}}},
		"lines of an error":        {{Error: &hutch.CodeError{Traceback: strings.Repeat("\n", 1<<20)}}},
		"alternating streams":      {stream(hutch.Stdout), stream(hutch.Stderr)},
	} {
		o := cellOutput{ctx: t.Context(), list: []map[string]any{}}
		for range 20_000 {
			for _, e := range events {
				if err := o.add(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		res := o.result(hutch.RunResult{TimedOut: true})
		lines := 0
		for _, one := range res.Outputs {
			list, _ := one["traceback"].([]string)
			lines += len(list)
		}
		if n := len(res.Outputs); n > maxOutputs/outputCost+3 || lines > maxOutputs/lineCost+3 {
			t.Errorf("%s: %d outputs with %d lines are kept", name, n, lines)
		}
		last := res.Outputs[len(res.Outputs)-2:]
		if res.Status != "error" || last[0]["ename"] != "TimeoutError" || last[1]["name"] != "stderr" {
			t.Errorf("%s: the last outputs are %v", name, last)
		}
	}
}

// TestListsInLists: a short notebook with many values in deeply nested lists does not become long by indentation. The
// test is not parallel, because it measures what the process allocates.
func TestListsInLists(t *testing.T) {
	deep := `{"nbformat":4,"metadata":` + strings.Repeat("[", 9000) + strings.Repeat("1,", 20_000) + "1" + strings.Repeat("]", 9000) + `,"cells":[{"cell_type":"code"}]}`
	var nb notebook
	if err := json.Unmarshal([]byte(deep), &nb.fields); err != nil {
		t.Fatal(err)
	}
	nb.cells = []json.RawMessage{json.RawMessage(`{"cell_type":"code"}`)}
	c := &call{ctx: t.Context()}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, err := nb.with(0, cell{fields: map[string]json.RawMessage{"cell_type": json.RawMessage(`"code"`)}}, cellResult{Outputs: []map[string]any{{"text": "out"}}})
	text = c.indented(text)
	runtime.ReadMemStats(&after)
	if err != nil || !json.Valid(text) || !strings.Contains(string(text), "out") {
		t.Errorf("it cannot be saved: %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("%d MiB were allocated for a notebook of %d KiB", n>>20, len(deep)>>10)
	}
}

// TestIndented: the size of indented JSON is known in advance.
func TestIndented(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `7`, `""`, `[[]]`, `[{}]`, `{"a":[]}`, `{"a":{"b":[1,2,[3,{}]],"c":"x"},"d":[]}`, `["[,:{\"}]\\",null]`, `[[[1],[2,3]],{"a,b":[":"]}]` + "\n",
	} {
		got := (&call{ctx: t.Context()}).indented([]byte(text))
		var want bytes.Buffer
		if err := json.Indent(&want, []byte(text), "", " "); err != nil {
			t.Fatal(err)
		}
		if n := indentedSize([]byte(text)); string(got) != want.String() || n != want.Len() {
			t.Errorf("%s: %q, of %d bytes and not %d", text, got, want.Len(), n)
		}
	}
}

// TestSpan: lines are found, also those after the end of the file.
func TestSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text        string
		first, last int
		want        string
		lines       int
	}{
		{"a\nb\nc", 2, 2, "b\n", 3}, {"a\nb\nc", 1, 1 << 40, "a\nb\nc", 3}, {"a\nb\n", 2, 9, "b\n", 2}, {"a\nb\n", 3, 9, "", 2}, {"a\nb\n", 2, 1, "", 2},
		{"a\nb\n", -5, 1, "a\n", 2}, {"a\nb\n", 1, 0, "", 2}, {"", 1, 1, "", 0}, {"\n\n", 2, 2, "\n", 2},
	} {
		from, to, lines := span(c.text, c.first, c.last)
		if c.text[from:to] != c.want || lines != c.lines {
			t.Errorf("lines %d to %d of %q are %q, of %d", c.first, c.last, c.text, c.text[from:to], lines)
		}
	}
}

// TestEmptyLines: a text of empty lines takes no more memory than another text of its size. The test is not parallel,
// because it measures what the process allocates.
func TestEmptyLines(t *testing.T) {
	text := strings.Repeat("\n", 8<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := (chunk{Target: "x"}).in(text); err == nil {
		t.Error("the target was found")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("%d MiB were allocated for a text of 8 MiB", n>>20)
	}
}

// TestChatsOfOwners: the many chats of one owner do not replace the working folder of another owner's chat.
func TestChatsOfOwners(t *testing.T) {
	t.Parallel()
	var d dirs
	d.set("ada", "chat", "/of-ada")
	for i := range 3 * maxChats {
		d.set("eve", fmt.Sprint(i), "/of-eve")
	}
	if got := d.get("ada", "chat"); got != "/of-ada" {
		t.Errorf("the folder of ada's chat is %q", got)
	}
	if n := len(d.byOwner["eve"]); n > maxChats || d.get("eve", fmt.Sprint(3*maxChats-1)) != "/of-eve" {
		t.Errorf("%d folders of eve's chats are kept, or not the newest", n)
	}
}
