package recipe

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"hutch"
)

// uploaded are archives by their hashes. Each entry is a name. A name that ends with a slash is a folder, and a name
// with -> is a link.
type uploaded map[string][]string

func (a uploaded) open(hash string) (io.ReadCloser, error) {
	names, ok := a[hash]
	if !ok {
		return nil, hutch.Errorf(hutch.NotFound, "no such archive")
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(name))}
		from, to, link := strings.Cut(name, "->")
		switch {
		case link:
			h.Typeflag, h.Name, h.Linkname, h.Size = tar.TypeSymlink, from, to, 0
		case strings.HasSuffix(name, "/"):
			h.Typeflag, h.Mode, h.Size = tar.TypeDir, 0o755, 0
		}
		w.WriteHeader(h)
		io.WriteString(w, name[:h.Size])
	}
	w.Close()
	z.Close()
	return io.NopCloser(&b), nil
}

// contextOf returns the names in the context of a recipe.
func contextOf(t *testing.T, r Recipe, files Files) (names []string) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Context(t.Context(), &b, files); err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(&b); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Linkname != "" {
			name += "->" + h.Linkname
		}
		names = append(names, name)
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	r, err := Write(t.Context(), Base{Image: "debian:13", User: "app"}, []Step{
		{Type: "RUN", Args: []string{"echo \"a\" <<EOF\nb $X\nEOF"}},
		{Type: "RUN", Args: []string{"whoami", "root"}},
		{Type: "ENV", Args: []string{"A", `x"y\z $A`, "B", ""}},
		{Type: "WORKDIR", Args: []string{"/a dir/'x'"}},
		{Type: "USER", Args: []string{"1000:1000"}},
		{Type: "USER", Args: []string{"eva"}},
		{Type: "USER", Args: []string{"eva"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `FROM debian:13
RUN ["/bin/bash","-l","-c","echo \"a\" \u003c\u003cEOF\nb $X\nEOF"]
USER root
RUN ["/bin/bash","-l","-c","whoami"]
USER app
ENV A="x\"y\\z $A" B=""
WORKDIR /a dir/\'x\'
USER 1000:1000
USER root
RUN ["/bin/sh","-c",` // and the program that makes a user
	if !strings.HasPrefix(r.Dockerfile, want) || strings.Count(r.Dockerfile, "useradd") != 1 {
		t.Errorf("%s", r.Dockerfile)
	}
	var steps []string
	for _, l := range r.Lines {
		steps = append(steps, l.Kind+l.Step)
	}
	if !slices.Equal(steps, []string{"FROMbase", "RUN1", "RUN2", "WORKDIR4", "RUN6"}) {
		t.Errorf("%v", steps)
	}
}

// BuildKit's parser finds the instructions that were meant, whatever is in the arguments.
func TestNoFurtherInstructions(t *testing.T) {
	t.Parallel()
	files := uploaded{"f": {"a"}}
	for _, text := range []string{
		`\`, `\\`, `\\\`, `x\ `, "x\\\t", `<<EOF`, `<<-'EOF' x`, `"`, `'`, `x" "y`, `"]`, `["a"]`, "`", `# syntax=evil/frontend`, `#`, `--mount=type=secret`,
		"\u2028RUN evil", "\vRUN evil", "\fRUN evil", "\u0085RUN evil", "\ufeffRUN evil", `${X:-"}`, `$(evil)`, `&& evil`, `x=y z=w`, `{"syntax": "evil"}`, " x", "\tx",
	} {
		r, err := Write(t.Context(), Base{Image: "x", User: "app"}, []Step{
			{Type: "RUN", Args: []string{text}}, {Type: "ENV", Args: []string{"A", text, "B", text}}, {Type: "WORKDIR", Args: []string{text}}, {Type: "WORKDIR", Args: []string{"/" + text}},
			{Type: "COPY", Args: []string{"a", text}, FilesHash: "f"}, {Type: "RUN", Args: []string{"last"}},
		}, files.open)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		parsed, err := parser.Parse(strings.NewReader(r.Dockerfile))
		if err != nil {
			t.Errorf("%q: %v in\n%s", text, err, r.Dockerfile)
			continue
		}
		var kinds []string
		for _, n := range parsed.AST.Children {
			kinds = append(kinds, strings.ToUpper(n.Value))
			if len(n.Heredocs) > 0 {
				t.Errorf("%q begins a document in\n%s", text, n.Original)
			}
		}
		if _, _, _, directed := parser.DetectSyntax([]byte(r.Dockerfile)); directed || strings.Join(kinds, " ") != "FROM RUN ENV WORKDIR WORKDIR COPY RUN" {
			t.Errorf("%q: %q in\n%s", text, kinds, r.Dockerfile)
		}
	}
}

// The files of a COPY land where E2B puts them.
func TestCopies(t *testing.T) {
	t.Parallel()
	files := uploaded{
		"folder": {"src/", "src/a", "src/b/", "src/b/c", "src/l->../../etc/passwd"},
		"file":   {"src/a"}, "link": {"l->/etc/passwd"}, "odd": {"[id].js"}, "out": {"../../etc/a", "/src/a"},
	}
	for _, c := range []struct {
		hash, from, to string
		copies, names  string
	}{
		{"folder", "src", "app", `["c0/","app/"]`, "c0/ c0/a c0/b/ c0/b/c c0/l->../../etc/passwd"},
		{"folder", "./src/", "/app/", `["c0/","/app/"]`, "c0/ c0/a c0/b/ c0/b/c c0/l->../../etc/passwd"},
		{"folder", "src/*", "app", `["c0/","app/"]`, "c0/ c0/a c0/b/ c0/b/c c0/l->../../etc/passwd"},
		{"folder", "**/*", "app", `["c0/","app/"]`, "c0/ c0/src/ c0/src/a c0/src/b/ c0/src/b/c c0/src/l->../../etc/passwd"},
		{"folder", ".", "app", `["c0/","app/"]`, "c0/ c0/src/ c0/src/a c0/src/b/ c0/src/b/c c0/src/l->../../etc/passwd"},
		{"folder", "src/b", "app", `["c0/","app/"]`, "c0/ c0/c"},
		{"file", "src/a", "app", `["c0/a","app"]`, "c0/ c0/a"},
		{"file", "src/a", "app/", `["c0/a","app/"]`, "c0/ c0/a"},
		{"link", "l", "app", `["c0/","./"]`, "c0/ c0/app->/etc/passwd"},
		{"link", "l", "app/", `["c0/","app/"]`, "c0/ c0/l->/etc/passwd"},
		{"odd", "[[]id].js", "x/$Y/\"page\"", `["c0/","x/$Y/\\\"page\\\"/"]`, "c0/ c0/[id].js"},
		{"out", "src/a", "app", `["c0/a","app"]`, "c0/ c0/a"},
	} {
		r, err := Write(t.Context(), Base{Image: "x"}, []Step{{Type: "COPY", Args: []string{c.from, c.to}, FilesHash: c.hash}}, files.open)
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		if !strings.HasSuffix(r.Dockerfile, "COPY "+c.copies+"\n") {
			t.Errorf("%s to %s: %s", c.from, c.to, r.Dockerfile)
		}
		if got := strings.Join(contextOf(t, r, files.open), " "); got != c.names {
			t.Errorf("%s to %s: %s, not %s", c.from, c.to, got, c.names)
		}
	}
	r, err := Write(t.Context(), Base{Image: "x", User: "app"}, []Step{{Type: "COPY", Args: []string{"src", "a", "", "0755"}, FilesHash: "folder"}}, files.open)
	if err != nil || !strings.Contains(r.Dockerfile, "COPY --chown=app --chmod=0755 [") {
		t.Errorf("%v %s", err, r.Dockerfile)
	}
}

// A step that is invalid or not supported is refused, and the error says which step it is.
func TestBadSteps(t *testing.T) {
	t.Parallel()
	files := uploaded{"none": {"other"}}
	for name, s := range map[string]Step{
		"no type": {}, "another type": {Type: "ADD", Args: []string{"a", "b"}}, "no command": {Type: "RUN"}, "a bad user": {Type: "RUN", Args: []string{"x", "a b"}},
		"a user with a line": {Type: "USER", Args: []string{"a\nRUN x"}}, "a path with a line": {Type: "WORKDIR", Args: []string{"/a\nRUN x"}},
		"a value with a line": {Type: "ENV", Args: []string{"A", "b\nRUN x"}}, "half a variable": {Type: "ENV", Args: []string{"A"}}, "a bad variable": {Type: "ENV", Args: []string{"A=b c", "x"}},
		"a zero byte": {Type: "RUN", Args: []string{"a\x00"}}, "a bad owner": {Type: "COPY", Args: []string{"a", "b", "x y"}, FilesHash: "none"},
		"a bad mode": {Type: "COPY", Args: []string{"a", "b", "", "rwx"}, FilesHash: "none"}, "no files": {Type: "COPY", Args: []string{"a", "b"}, FilesHash: "none"},
		"no archive": {Type: "COPY", Args: []string{"a", "b"}, FilesHash: "gone"}, "no hash": {Type: "COPY", Args: []string{"a", "b"}},
	} {
		_, err := Write(t.Context(), Base{Image: "x"}, []Step{{Type: "RUN", Args: []string{"true"}}, s}, files.open)
		at, ok := errors.AsType[*Error](err)
		if !ok || at.Step != "2" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// zeros is an endless reader. It calls a function after every read.
type zeros struct{ then func() }

func (z zeros) Read(b []byte) (int, error) {
	clear(b)
	z.then()
	return len(b), nil
}

// An archive that unpacks to an endless number of bytes is refused soon.
func TestEndlessArchive(t *testing.T) {
	t.Parallel()
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 1 << 45}); err != nil {
		t.Fatal(err)
	}
	endless := func(then func()) Files {
		return func(string) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(head.Bytes()), zeros{then})), nil
		}
	}
	over := hutch.Errorf(hutch.Unavailable, "the server ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := endless(func() { cancel(over) })
	if _, err := Write(ctx, Base{Image: "x"}, []Step{{Type: "COPY", Args: []string{"b", "/b"}, FilesHash: "any"}}, ends); !errors.Is(err, over) {
		t.Errorf("Write: %v", err)
	}
	if err := (Recipe{copies: []copied{{folder: "c0", base: "b"}}}).Context(ctx, io.Discard, ends); !errors.Is(err, over) {
		t.Errorf("Context: %v", err)
	}
	few := open(t.Context(), endless(func() {}))
	few.left = 1 << 20
	for range 2 { // the limit is for all archives together
		if err := few.each("any", func(*tar.Header, io.Reader) error { return nil }); hutch.KindOf(err) != hutch.Exhausted {
			t.Errorf("%v", err)
		}
	}
}

// The configuration of an image is untrusted text, too.
func TestUserOfAnImage(t *testing.T) {
	t.Parallel()
	r, err := Write(t.Context(), Base{Image: "x", User: "app\nRUN evil"}, []Step{{Type: "USER", Args: []string{"eva"}}}, nil)
	if at, ok := errors.AsType[*Error](err); !ok || at.Step != BaseStep {
		t.Errorf("%v: %s", err, r.Dockerfile)
	}
}

// Archives are untrusted bytes.
func FuzzContext(f *testing.F) {
	whole, _ := uploaded{"a": {"src/", "src/a", "src/l->x"}}.open("a")
	text, _ := io.ReadAll(whole)
	f.Add(text, "src")
	f.Add([]byte("\x1f\x8b"), "*")
	f.Fuzz(func(t *testing.T, archive []byte, source string) {
		files := func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
		r, err := Write(t.Context(), Base{Image: "x"}, []Step{{Type: "COPY", Args: []string{source, "/to"}, FilesHash: "a"}}, files)
		if err != nil {
			return
		}
		if n := strings.Count(r.Dockerfile, "\n"); n != 2 {
			t.Errorf("%d lines: %s", n, r.Dockerfile)
		}
		var b bytes.Buffer
		if r.Context(t.Context(), &b, files) != nil {
			return
		}
		for in := tar.NewReader(&b); ; {
			h, err := in.Next()
			if err != nil {
				return
			}
			if !strings.HasPrefix(h.Name, "c0/") || strings.Contains("/"+h.Name+"/", "/../") {
				t.Errorf("%q is outside", h.Name)
			}
		}
	})
}
