package servicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"hutch"
)

// fileTests are tests of reading, writing and finding files.
type fileTests struct{ *suite }

func (s fileTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"WhatIsWrittenIsRead":    s.writeRead,
		"AnyBytes":               s.anyBytes,
		"PartsOfAFile":           s.parts,
		"WritingIsWholeOrNot":    s.wholeOrNot,
		"ModesAreKept":           s.modes,
		"CreateFindsWhatIsThere": s.createOnly,
		"Append":                 s.appendFile,
		"ThroughLinks":           s.throughLinks,
		"Edit":                   s.edit,
		"AnyName":                s.anyName,
		"List":                   s.listFiles,
		"Search":                 s.search,
		"FoldersAndMoves":        s.foldersAndMoves,
		"Copy":                   s.copyFiles,
		"Delete":                 s.deleteFiles,
		"Chmod":                  s.chmod,
		"WhatIsNoFile":           s.irregular,
		"Denied":                 s.denied,
		"LargeFilesAreStreamed":  s.large,
		"FilesThatShrink":        s.shrinking,
		"ADiskThatIsFull":        s.diskFull,
		"ManyAtOnce":             s.manyReads,
		"NoWaitingForCommands":   s.besideCommands,
		"FilesOfNoSandbox":       s.filesOfNothing,
		"BadPaths":               s.badPaths,
		"WritersThatFail":        s.failingEnds,
	}
}

// put writes a file. The test fails if that fails.
func (s *suite) put(t *testing.T, id, path, content string) hutch.FileInfo {
	t.Helper()
	info, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Parents: true}, strings.NewReader(content))
	if err != nil {
		t.Fatalf("write %q: %v", path, err)
	}
	return info
}

// get reads a file. The test fails if that fails.
func (s *suite) get(t *testing.T, id, path string) string {
	t.Helper()
	return s.part(t, id, hutch.ReadRequest{Path: path})
}

func (s *suite) part(t *testing.T, id string, req hutch.ReadRequest) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.svc.ReadFile(bounded(t), id, req, &b); err != nil {
		t.Fatalf("read %q: %v", req.Path, err)
	}
	return b.String()
}

// names lists a folder, as paths relative to it.
func (s fileTests) names(t *testing.T, id string, req hutch.ListRequest) []string {
	t.Helper()
	top, err := s.svc.Stat(bounded(t), id, req.Path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := s.svc.ListFiles(bounded(t), id, req, func(f hutch.FileInfo) error {
		names = append(names, strings.TrimPrefix(f.Path, top.Path+"/"))
		return nil
	}); err != nil {
		t.Fatalf("list %q: %v", req.Path, err)
	}
	return names
}

func (s fileTests) writeRead(t *testing.T) {
	id := s.open(t)
	info := s.put(t, id, "a/b/c.txt", "hello\n")
	if info.Name != "c.txt" || !strings.HasSuffix(info.Path, "/a/b/c.txt") || info.Path[0] != '/' ||
		info.Type != hutch.RegularFile || info.Size != 6 || info.Mode != 0o644 || info.Modified.IsZero() {
		t.Errorf("%+v", info)
	}
	if got := s.get(t, id, "a/b/c.txt"); got != "hello\n" {
		t.Errorf("%q", got)
	}
	if got := s.run(t, id, "cat a/b/c.txt"); got != "hello\n" {
		t.Errorf("a command sees %q", got)
	}
	again, err := s.svc.Stat(bounded(t), id, info.Path)
	if err != nil || !reflect.DeepEqual(again, info) {
		t.Errorf("%+v, %v; want %+v", again, err, info)
	}
	if ids := s.run(t, id, "stat -c '%u %g' a/b/c.txt"); ids != fmt.Sprintln(info.UID, info.GID) {
		t.Errorf("a command sees the owner and group %q, the record has %d %d", ids, info.UID, info.GID)
	}
	if !s.NoIsolation {
		if who := s.run(t, id, "stat -c %U a a/b/c.txt; id -un"); len(slices.Compact(strings.Fields(who))) != 1 {
			t.Errorf("files belong to %q", who)
		}
	}
	var opened hutch.FileInfo
	read, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: info.Path, Opened: func(f hutch.FileInfo) { opened = f }}, io.Discard)
	if err != nil || !reflect.DeepEqual(read, info) || !reflect.DeepEqual(opened, info) {
		t.Errorf("%+v, %+v, %v", read, opened, err)
	}
	s.attributes(t, id)
}

// attributes tests that attributes are kept with a file, are in lists on request, and end with the file.
func (s fileTests) attributes(t *testing.T, id string) {
	t.Helper()
	const path = "kept/with.txt"
	given := map[string]string{"author": "ada", "e2b.purpose": "ünïcödé"}
	info, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Parents: true, Attributes: given}, strings.NewReader("x"))
	if err != nil || !reflect.DeepEqual(info.Attributes, given) {
		t.Errorf("%+v, %v", info, err)
	}
	if again, err := s.svc.Stat(bounded(t), id, path); err != nil || !reflect.DeepEqual(again, info) {
		t.Errorf("%+v, %v; want %+v", again, err, info)
	}
	for _, asked := range []bool{false, true} {
		err := s.svc.ListFiles(bounded(t), id, hutch.ListRequest{Path: "kept", Attributes: asked}, func(f hutch.FileInfo) error {
			if (len(f.Attributes) == 2) != asked {
				t.Errorf("asked %v: %+v", asked, f)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	s.keepsAttributes(t, id, path, given)
	s.put(t, id, path, "new")
	if again, err := s.svc.Stat(bounded(t), id, path); err != nil || again.Attributes != nil {
		t.Errorf("%+v, %v", again, err)
	}
	for name, value := range map[string]string{"": "x", "x": "\x00", strings.Repeat("x", 251): "", "large": strings.Repeat("x", 5000)} {
		if _, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Attributes: map[string]string{name: value}}, strings.NewReader("x")); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%.10q: %v", name, err)
		}
	}
}

// keepsAttributes checks that an edit and a copy keep the attributes of a file, and that attributes can be set on a
// read-only file.
func (s fileTests) keepsAttributes(t *testing.T, id, path string, given map[string]string) {
	t.Helper()
	if _, err := s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: path, Old: "x", New: "y"}); err != nil {
		t.Error(err)
	}
	if err := s.svc.Copy(bounded(t), id, path, "kept/copy.txt", false); err != nil {
		t.Error(err)
	}
	if _, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "kept/closed.txt", Mode: 0o444, Attributes: given}, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	for _, p := range []string{path, "kept/copy.txt", "kept/closed.txt"} {
		if info, err := s.svc.Stat(bounded(t), id, p); err != nil || !reflect.DeepEqual(info.Attributes, given) {
			t.Errorf("%s: %+v, %v", p, info, err)
		}
	}
}

func (s fileTests) anyBytes(t *testing.T) {
	id := s.open(t)
	all := make([]byte, 300_000)
	for i := range all {
		all[i] = byte(i * i >> 3)
	}
	for _, content := range []string{"", "\x00", "\xff\xfe\xfd", string(all), strings.Repeat("no line feed ", 20_000)} {
		s.put(t, id, "f", content)
		if got := s.get(t, id, "f"); got != content {
			t.Errorf("%d bytes became %d", len(content), len(got))
		}
	}
}

func (s fileTests) parts(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", "one\ntwo\nthree\nfour")
	for want, req := range map[string]hutch.ReadRequest{
		"two":                   {Offset: 4, Length: 3},
		"four":                  {Offset: -4},
		"fo":                    {Offset: -4, Length: 2},
		"one\ntwo\nthree\nfour": {Offset: -1000},
		"":                      {Offset: 1000},
		"two\nthree\n":          {FirstLine: 2, LastLine: 3},
		"three\nfour":           {FirstLine: 3},
		"one\n":                 {LastLine: 1},
		"two\nt":                {FirstLine: 2, Length: 5},
	} {
		req.Path = "f"
		if got := s.part(t, id, req); got != want {
			t.Errorf("%+v: %q, want %q", req, got, want)
		}
	}
	if got := s.part(t, id, hutch.ReadRequest{Path: "f", FirstLine: 9}); got != "" {
		t.Errorf("line 9 is %q", got)
	}
	for _, req := range []hutch.ReadRequest{{Path: "f", Length: -1}, {Path: "f", FirstLine: 3, LastLine: 2}, {Path: "f", FirstLine: 1, Offset: 1}} {
		_, err := s.svc.ReadFile(bounded(t), id, req, io.Discard)
		wantKind(t, hutch.Invalid, err, "%+v", req)
	}
	if !strings.Contains(s.get(t, id, "/proc/meminfo"), "MemTotal:") {
		t.Error("a file without a size is not read")
	}
}

// broken is a reader that returns some bytes and then an error.
type broken struct {
	r   io.Reader
	err error
}

func (b broken) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

func (s fileTests) wholeOrNot(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "d/f", "old")
	oops := errors.New("oops")
	for _, size := range []int{0, 100, 1 << 20} {
		_, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "d/f"}, broken{strings.NewReader(strings.Repeat("new", size)), oops})
		if !errors.Is(err, oops) {
			t.Errorf("%v, want the reader's own error", err)
		}
	}
	eventually(t, "what was written of the new file is gone", func() bool { return s.run(t, id, "ls -A d; cat d/f") == "f\nold" })
}

func (s fileTests) modes(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", "#!/bin/sh\necho one\n")
	if err := s.svc.Chmod(bounded(t), id, "f", 0o751); err != nil {
		t.Fatal(err)
	}
	if info := s.put(t, id, "f", "#!/bin/sh\necho two\n"); info.Mode != 0o751 {
		t.Errorf("mode %s", info.Mode)
	}
	if out := s.run(t, id, "./f"); out != "two\n" {
		t.Errorf("%q", out)
	}
	info, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "f", Mode: 0o600}, strings.NewReader("x"))
	if err != nil || info.Mode != 0o600 {
		t.Errorf("mode %s, %v", info.Mode, err)
	}
}

func (s fileTests) createOnly(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", "old")
	s.run(t, id, "ln -s nowhere link")
	for _, path := range []string{"f", "link"} {
		_, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Create: true}, strings.NewReader("new"))
		wantKind(t, hutch.Conflict, err, "create %s", path)
	}
	if _, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "g", Create: true}, strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if got := s.get(t, id, "f") + s.get(t, id, "g"); got != "oldnew" {
		t.Errorf("%q", got)
	}
}

func (s fileTests) appendFile(t *testing.T) {
	id := s.open(t)
	for _, text := range []string{"a", "b", "c"} {
		info, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "log", Append: true}, strings.NewReader(text))
		if err != nil || info.Name != "log" {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if got := s.get(t, id, "log"); got != "abc" {
		t.Errorf("%q", got)
	}
}

func (s fileTests) throughLinks(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir d && echo old > d/f && ln -s d/f one && ln -s one two && ln -s d dir && ln -s loop loop")
	s.put(t, id, "two", "new")
	if got := s.run(t, id, "cat d/f; readlink one two"); got != "newd/f\none\n" {
		t.Errorf("%q", got)
	}
	if got := s.get(t, id, "dir/f"); got != "new" {
		t.Errorf("%q", got)
	}
	info, err := s.svc.Stat(bounded(t), id, "two")
	if err != nil || info.Type != hutch.Symlink || info.Target != "one" {
		t.Errorf("%+v, %v", info, err)
	}
	_, err = s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: "loop"}, io.Discard)
	wantKind(t, hutch.Invalid, err, "read a loop")
	_, err = s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "loop"}, strings.NewReader("x"))
	wantKind(t, hutch.Invalid, err, "write to a loop")
}

func (s fileTests) edit(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", "one\ntwo\nthree\ntwo\n")
	edit, err := s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: "f", Old: "three\ntwo", New: "3 and 2"})
	if err != nil || edit.Replacements != 1 || edit.Line != 3 || edit.File.Size != 16 {
		t.Errorf("%+v, %v", edit, err)
	}
	s.put(t, id, "f", "two two")
	_, err = s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: "f", Old: "two", New: "2"})
	wantKind(t, hutch.Conflict, err, "text that is there twice")
	_, err = s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: "f", Old: "three", New: "3"})
	wantKind(t, hutch.Conflict, err, "text that is not there")
	_, err = s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: "f", New: "3"})
	wantKind(t, hutch.Invalid, err, "no text")
	if edit, err = s.svc.EditFile(bounded(t), id, hutch.EditRequest{Path: "f", Old: "two", New: "", All: true}); err != nil || edit.Replacements != 2 {
		t.Errorf("%+v, %v", edit, err)
	}
	if got := s.get(t, id, "f"); got != " " {
		t.Errorf("%q", got)
	}
}

// odd are file names that programs often handle wrongly.
var odd = []string{"with space", "line\nfeed", "quote\"'", "ünïcödé 🙂", "\xff\xfebytes", "-rf", "a%2fb", "back\\slash", "tab\t", "*", "$(x)"}

func (s fileTests) anyName(t *testing.T) {
	id := s.open(t)
	for _, name := range odd {
		if info := s.put(t, id, "d/"+name, name); info.Name != name {
			t.Errorf("%q became %q", name, info.Name)
		}
		if got := s.get(t, id, "d/"+name); got != name {
			t.Errorf("%q holds %q", name, got)
		}
	}
	got := s.names(t, id, hutch.ListRequest{Path: "d"})
	if want := slices.Sorted(slices.Values(odd)); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if n := s.run(t, id, "find d -type f -print0 | tr -dc '\\0' | wc -c"); strings.TrimSpace(n) != fmt.Sprint(len(odd)) {
		t.Errorf("a command sees %s files", n)
	}
	for _, name := range odd {
		if err := s.svc.Move(bounded(t), id, "d/"+name, "d/"+name+"2", false); err != nil {
			t.Error(err)
		}
		if err := s.svc.Delete(bounded(t), id, "d/"+name+"2", false); err != nil {
			t.Error(err)
		}
	}
}

func (s fileTests) listFiles(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p l/a/b l/.h && cd l && touch a/x.go a/b/y.go a.txt .h/z.go m.go && ln -s a ln && mkfifo p")
	for _, c := range []struct {
		req  hutch.ListRequest
		want string
	}{
		{hutch.ListRequest{}, "a a.txt ln m.go p"},
		{hutch.ListRequest{Hidden: true}, ".h a a.txt ln m.go p"},
		{hutch.ListRequest{Recursive: true}, "a a/b a/b/y.go a/x.go a.txt ln m.go p"},
		{hutch.ListRequest{Recursive: true, Depth: 2}, "a a/b a/x.go a.txt ln m.go p"},
		{hutch.ListRequest{Glob: "*.go"}, "a/b/y.go a/x.go m.go"},
		{hutch.ListRequest{Glob: "a/*.go"}, "a/x.go"},
		{hutch.ListRequest{Glob: "**/*.go", Hidden: true}, ".h/z.go a/b/y.go a/x.go m.go"},
		{hutch.ListRequest{Glob: "{m,x}.*"}, "a/x.go m.go"},
	} {
		c.req.Path = "l"
		if got := strings.Join(s.names(t, id, c.req), " "); got != c.want {
			t.Errorf("%+v: %s\nwant %s", c.req, got, c.want)
		}
	}
	n := 0
	err := s.svc.ListFiles(bounded(t), id, hutch.ListRequest{Path: "l", Recursive: true, Limit: 3}, func(hutch.FileInfo) error { n++; return nil })
	wantLimit(t, "files", err, "a list over its limit")
	if n != 3 {
		t.Errorf("%d files of 3", n)
	}
	err = s.svc.ListFiles(bounded(t), id, hutch.ListRequest{Path: "l/m.go"}, nil)
	wantKind(t, hutch.Conflict, err, "a list of a file")
	err = s.svc.ListFiles(bounded(t), id, hutch.ListRequest{Path: "l", Glob: "[a"}, nil)
	wantKind(t, hutch.Invalid, err, "a pattern that is not closed")
	enough := errors.New("enough")
	if err := s.svc.ListFiles(bounded(t), id, hutch.ListRequest{Path: "l"}, func(hutch.FileInfo) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func (s fileTests) search(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "s/a.go", "package a\n\nfunc Find() {} // é here\n")
	s.put(t, id, "s/sub/b.py", "def find(): pass\n")
	s.put(t, id, "s/bin", "\x00\x01 find\n")
	s.put(t, id, "s/.hidden", "find\n")
	s.put(t, id, "s/long", strings.Repeat("x", 100_000)+"find\n"+strings.Repeat("y", 5000)+"find\n")
	var got []string
	find := func(req hutch.SearchRequest) error {
		got = nil
		req.Path = "s"
		return s.svc.SearchFiles(bounded(t), id, req, func(m hutch.Match) error {
			if len(m.Text) > 1<<10 {
				t.Errorf("%d bytes of text", len(m.Text))
			}
			_, name, _ := strings.Cut(m.Path, "/s/")
			got = append(got, fmt.Sprintf("%s:%d:%d", name, m.Line, m.Column))
			return nil
		})
	}
	if err := find(hutch.SearchRequest{Pattern: "(?i)find"}); err != nil || !slices.Equal(got, []string{"a.go:3:6", "long:2:5001", "sub/b.py:1:5"}) {
		t.Errorf("%q, %v", got, err)
	}
	if err := find(hutch.SearchRequest{Pattern: "find", Glob: "*.py"}); err != nil || !slices.Equal(got, []string{"sub/b.py:1:5"}) {
		t.Errorf("%q, %v", got, err)
	}
	if err := find(hutch.SearchRequest{Pattern: "find", Hidden: true, Limit: 1}); !errors.Is(err, hutch.Exhausted) || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	wantKind(t, hutch.Invalid, find(hutch.SearchRequest{Pattern: "(a"}), "a pattern that is not closed")
	wantKind(t, hutch.Invalid, find(hutch.SearchRequest{}), "no pattern")
}

func (s fileTests) foldersAndMoves(t *testing.T) {
	id := s.open(t)
	ctx := bounded(t)
	if err := s.svc.Mkdir(ctx, id, "a/b", true); err != nil {
		t.Fatal(err)
	}
	if err := s.svc.Mkdir(ctx, id, "a/b", true); err != nil {
		t.Error(err)
	}
	wantKind(t, hutch.Conflict, s.svc.Mkdir(ctx, id, "a/b", false), "a folder that is there")
	wantKind(t, hutch.NotFound, s.svc.Mkdir(ctx, id, "x/y", false), "a folder in none")
	if err := s.svc.Mkdir(ctx, id, "x/y", false); err == nil || !strings.Contains(err.Error(), `its folder does not exist`) {
		t.Errorf("a folder in none: %v; want the missing folder", err)
	}
	if _, err := s.svc.WriteFile(ctx, id, hutch.WriteRequest{Path: "x/y"}, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), `its folder does not exist`) {
		t.Errorf("a file in none: %v; want the missing folder", err)
	}
	s.put(t, id, "a/b/f", "f")
	s.put(t, id, "g", "g")
	wantKind(t, hutch.Conflict, s.svc.Move(ctx, id, "g", "a/b/f", false), "a move onto a file")
	if got := s.get(t, id, "a/b/f"); got != "f" {
		t.Errorf("%q", got)
	}
	for _, move := range [][2]string{{"g", "a/b/f"}, {"a/b", "c"}, {"c/f", "a"}} {
		if err := s.svc.Move(ctx, id, move[0], move[1], true); err != nil {
			t.Errorf("%q: %v", move, err)
		}
	}
	if got := s.run(t, id, "find . -mindepth 1 -not -path './.*' | sort; cat a"); got != "./a\n./c\ng" {
		t.Errorf("%q", got)
	}
	wantKind(t, hutch.Invalid, s.svc.Move(ctx, id, "c", "c/d", false), "a folder into itself")
	wantKind(t, hutch.NotFound, s.svc.Move(ctx, id, "nothing", "d", false), "a move of nothing")
	if !s.NoIsolation {
		s.put(t, id, "/tmp/there", "x")
		if err := s.svc.Move(ctx, id, "/tmp/there", "here", false); err != nil || s.get(t, id, "here") != "x" {
			t.Error(err)
		}
	}
}

func (s fileTests) copyFiles(t *testing.T) {
	id := s.open(t)
	ctx := bounded(t)
	s.run(t, id, "mkdir -p d/sub && echo f > d/f && chmod 750 d/f d/sub && ln -s f d/link && mkfifo d/pipe && head -c 300000 /dev/urandom > d/sub/big")
	if err := s.svc.Copy(ctx, id, "d", "e", false); err != nil {
		t.Fatal(err)
	}
	if got := s.run(t, id, "cd e && find . | sort; readlink link; stat -c %a f sub; cmp sub/big ../d/sub/big && ls -A .. | grep -c hutch- || true"); got != ".\n./f\n./link\n./sub\n./sub/big\nf\n750\n750\n0\n" {
		t.Errorf("%q", got)
	}
	wantKind(t, hutch.Conflict, s.svc.Copy(ctx, id, "d", "e", false), "a copy onto a folder")
	if err := s.svc.Copy(ctx, id, "d/f", "e", true); err != nil || s.get(t, id, "e") != "f\n" {
		t.Error(err)
	}
	wantKind(t, hutch.Invalid, s.svc.Copy(ctx, id, "d", "d/sub/d", false), "a folder into itself")
	wantKind(t, hutch.Invalid, s.svc.Copy(ctx, id, "d/pipe", "p", false), "a copy of a pipe")
	wantKind(t, hutch.Conflict, s.svc.Copy(ctx, id, "d/f", "d/f", true), "a file onto itself")
	if got := s.run(t, id, "ls -A d/sub; ls -A | grep hutch- || true"); got != "big\n" {
		t.Errorf("left behind: %q", got)
	}
}

func (s fileTests) deleteFiles(t *testing.T) {
	id := s.open(t)
	ctx := bounded(t)
	s.run(t, id, "mkdir -p d/e keep && touch d/f d/e/g keep/k && ln -s ../keep d/e/link && mkfifo d/p")
	wantKind(t, hutch.Conflict, s.svc.Delete(ctx, id, "d", false), "a folder")
	if err := s.svc.Delete(ctx, id, "d", true); err != nil {
		t.Error(err)
	}
	wantKind(t, hutch.NotFound, s.svc.Delete(ctx, id, "d", true), "what is gone")
	if got := s.run(t, id, "ls; ls keep"); got != "keep\nk\n" {
		t.Errorf("%q", got)
	}
	wantKind(t, hutch.Invalid, s.svc.Delete(ctx, id, "/", true), "the root")
	wantKind(t, hutch.Invalid, s.svc.Delete(ctx, id, "keep/..", true), "a folder by way of another")
}

func (s fileTests) chmod(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", "")
	if err := s.svc.Chmod(bounded(t), id, "f", 0); err != nil {
		t.Error(err)
	}
	if got := s.run(t, id, "stat -c %a f"); got != "0\n" {
		t.Errorf("%q", got)
	}
	wantKind(t, hutch.Invalid, s.svc.Chmod(bounded(t), id, "f", 0o1777), "a mode that is none")
	wantKind(t, hutch.NotFound, s.svc.Chmod(bounded(t), id, "g", 0o777), "what is not there")
}

func (s fileTests) irregular(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkfifo p; mkdir d")
	for path, kind := range map[string]hutch.Kind{"p": hutch.Invalid, "/dev/zero": hutch.Invalid, "/dev/null": hutch.Invalid, "d": hutch.Conflict, "p/x": hutch.Conflict, "nothing": hutch.NotFound} {
		_, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: path}, io.Discard)
		wantKind(t, kind, err, "read %s", path)
		if kind == hutch.NotFound {
			continue
		}
		_, err = s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path}, strings.NewReader("x"))
		if path != "/dev/zero" && path != "/dev/null" {
			wantKind(t, kind, err, "write %s", path)
		} else if err == nil {
			t.Errorf("%s was written", path)
		}
		_, err = s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Append: true}, strings.NewReader("x"))
		wantKind(t, kind, err, "append to %s", path)
	}
}

func (s fileTests) denied(t *testing.T) {
	if s.NoIsolation {
		t.Skip("without isolation the test's own user decides")
	}
	id := s.open(t)
	s.run(t, id, "mkdir shut && echo x > shut/f && chmod 0 shut && echo y > locked && chmod 400 locked")
	ctx := bounded(t)
	for _, path := range []string{"shut/f", "/etc/shadow-not", "/root/x"} {
		_, err := s.svc.ReadFile(ctx, id, hutch.ReadRequest{Path: path}, io.Discard)
		if path == "shut/f" {
			wantKind(t, hutch.Denied, err, "read %s", path)
		} else if err == nil {
			t.Errorf("read %s", path)
		}
	}
	for _, path := range []string{"/etc/passwd", "/etc/new", "/new", "/usr/bin/new", "locked", "/proc/1/comm"} {
		_, err := s.svc.WriteFile(ctx, id, hutch.WriteRequest{Path: path}, strings.NewReader("x"))
		wantKind(t, hutch.Denied, err, "write %s", path)
		_, err = s.svc.WriteFile(ctx, id, hutch.WriteRequest{Path: path, Append: true}, strings.NewReader("x"))
		wantKind(t, hutch.Denied, err, "append to %s", path)
	}
	wantKind(t, hutch.Denied, s.svc.Delete(ctx, id, "/etc/passwd", false), "delete")
	wantKind(t, hutch.Denied, s.svc.Chmod(ctx, id, "/etc/passwd", 0o777), "chmod")
	for _, path := range []string{"/proc/self/environ", "/proc/self/mem", "/proc/1/maps", "/proc/self/fd/0"} {
		_, err := s.svc.ReadFile(ctx, id, hutch.ReadRequest{Path: path}, io.Discard)
		if err == nil {
			t.Errorf("%s of the agent can be read", path)
		}
	}
	if got := s.run(t, id, "cat locked"); got != "y\n" {
		t.Errorf("%q", got)
	}
}

// counting is a reader and a writer of many bytes. Each byte depends only on its position.
type counting struct {
	at, size int64
	wrong    int64
}

func (c *counting) Read(p []byte) (int, error) {
	if c.at == c.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.size-c.at)]
	for n := 0; n < len(p); {
		n += copy(p[n:], counted[(c.at+int64(n))%int64(len(counted)):])
	}
	c.at += int64(len(p))
	return len(p), nil
}

// counted is the repeated part of the content: the bytes from 0 to 255, 128 times. Whole blocks are copied and
// compared, because the race detector makes each single access slow.
var counted = func() (all [256 << 7]byte) {
	for i := range all {
		all[i] = byte(i >> 7)
	}
	return all
}()

func (c *counting) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		want := counted[(c.at+int64(n))%int64(len(counted)):]
		want = want[:min(len(want), len(p)-n)]
		if !bytes.Equal(p[n:n+len(want)], want) {
			c.wrong++
		}
		n += len(want)
	}
	c.at += int64(len(p))
	return len(p), nil
}

func (s fileTests) large(t *testing.T) {
	id := s.open(t)
	const size = 40<<20 + 17
	info, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "big"}, &counting{size: size})
	if err != nil || info.Size != size {
		t.Fatalf("%+v, %v", info, err)
	}
	var back counting
	if _, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: "big"}, &back); err != nil || back.at != size || back.wrong > 0 {
		t.Errorf("%+v, %v", back, err)
	}
}

// meddler is a writer that calls do before the first byte, and drops all bytes.
type meddler struct{ do func() }

func (o *meddler) Write(b []byte) (int, error) {
	if o.do != nil {
		o.do()
		o.do = nil
	}
	return len(b), nil
}

func (s fileTests) shrinking(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "truncate -s 100M f") // more than all buffers on the way can hold
	cut := &meddler{func() { s.run(t, id, "truncate -s 1000 f") }}
	_, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: "f"}, cut)
	wantKind(t, hutch.Conflict, err, "a file that became shorter while it was read")
	s.run(t, id, "truncate -s 100M f")
	more := &meddler{func() { s.run(t, id, "truncate -s 110M f") }}
	if info, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: "f"}, more); err != nil || info.Size != 100<<20 {
		t.Errorf("a file that became longer: %d bytes, %v", info.Size, err)
	}
}

func (s fileTests) diskFull(t *testing.T) {
	if s.NoIsolation {
		t.Skip("without isolation there is no limit of the disk")
	}
	id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 128, Disk: 16}}).ID
	s.put(t, id, "f", "old")
	for _, appends := range []bool{false, true} {
		name := map[bool]string{false: "f", true: "log"}[appends]
		_, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: name, Append: appends}, &counting{size: 64 << 20})
		wantLimit(t, "disk", err, "a file larger than the disk")
		s.run(t, id, "rm -f log")
	}
	if got := s.run(t, id, "cat f; ls -A"); got != "oldf\n" {
		t.Errorf("the file, and what is in the folder: %q", got)
	}
	s.put(t, id, "f", "new")
	if got := s.get(t, id, "f"); got != "new" {
		t.Errorf("%q", got)
	}
}

func (s fileTests) manyReads(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "f", strings.Repeat("0123456789", 10_000))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			got := s.part(t, id, hutch.ReadRequest{Path: "f", Offset: int64(i), Length: 50_000})
			if len(got) != 50_000 || got[0] != byte('0'+i%10) {
				t.Errorf("read %d: %d bytes, %.10q", i, len(got), got)
			}
		})
	}
	wg.Wait()
}

func (s fileTests) besideCommands(t *testing.T) {
	id := s.open(t)
	ctx, stop := context.WithCancel(bounded(t))
	running := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "echo; sleep 100"}, func(hutch.Output) error {
			once.Do(func() { close(running) })
			return nil
		})
	}()
	<-running
	s.put(t, id, "f", "x")
	if got := s.get(t, id, "f"); got != "x" {
		t.Errorf("%q", got)
	}
	stop()
	<-done
}

func (s fileTests) filesOfNothing(t *testing.T) {
	_, err := s.svc.Stat(bounded(t), "no-such-sandbox", "/")
	wantKind(t, hutch.NotFound, err, "a file of no sandbox")
	_, err = s.svc.WriteFile(bounded(t), "no-such-sandbox", hutch.WriteRequest{Path: "f"}, strings.NewReader("x"))
	wantKind(t, hutch.NotFound, err, "a file for no sandbox")
}

func (s fileTests) badPaths(t *testing.T) {
	id := s.open(t)
	for _, path := range []string{"", "a\x00b", strings.Repeat("a/", 3000), strings.Repeat("n", 300)} {
		_, err := s.svc.Stat(bounded(t), id, path)
		wantKind(t, hutch.Invalid, err, "stat of %.10q", path)
		_, err = s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path}, strings.NewReader("x"))
		wantKind(t, hutch.Invalid, err, "write to %.10q", path)
	}
}

// narrow is a writer that accepts some bytes and then fails.
type narrow struct{ left int }

var errFull = errors.New("full")

func (f *narrow) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func (s fileTests) failingEnds(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "head -c 5000000 /dev/zero > f")
	for _, room := range []int{0, 300_000} {
		if _, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: "f"}, &narrow{room}); !errors.Is(err, errFull) {
			t.Errorf("%v", err)
		}
		if err := s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "."}, &narrow{room}); !errors.Is(err, errFull) {
			t.Errorf("%v", err)
		}
	}
}
