package builds

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"hutch"
)

// testCase is a Dockerfile, its context, and the expected result.
type testCase struct {
	name       string
	dockerfile string
	files      []entry
	req        hutch.BuildRequest

	text   map[string]string // contents of files in the layers above the base
	paths  []string          // all files except folders; nil is not checked
	modes  map[string]string // mode, user and group
	links  map[string]string
	check  func(t *testing.T, o *built)
	log    string   // part of the output of commands
	kind   error    // of the error
	errors []string // parts of the text of the error
}

// tarOf returns an archive of files.
func tarOf(t *testing.T, list ...any) string {
	b, err := io.ReadAll(pack(t, files(list...)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func gzipped(text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	io.WriteString(w, text)
	w.Close()
	return out.String()
}

func config(check func(o *built) bool) func(*testing.T, *built) {
	return func(t *testing.T, o *built) {
		if !check(o) {
			t.Errorf("the configuration is %s", show(o.config))
		}
	}
}

// cases returns the cases that are built on one server.
func cases(t *testing.T) []testCase {
	archive := tarOf(t, "in/", "in/x", "X", entry{name: "in/run", content: "R", mode: 0o755})
	return []testCase{
		// The configuration of an image.
		{name: "env", dockerfile: "FROM localhost/base\nENV A=1 B=\"two words\"\nENV C $COLOUR-$A", check: config(func(o *built) bool {
			return slices.Contains(o.config.Env, "B=two words") && slices.Contains(o.config.Env, "C=red-1") && slices.Contains(o.config.Env, "COLOUR=red")
		})},
		{name: "config", dockerfile: "FROM localhost/base\nUSER 7:8\nEXPOSE 80 53/udp\nVOLUME /v\nSTOPSIGNAL SIGINT\nLABEL a=b\nHEALTHCHECK --interval=5s CMD true\nENTRYPOINT [\"/a\"]\nCMD [\"b\"]", check: config(func(o *built) bool {
			c := o.config
			_, udp := c.ExposedPorts["53/udp"]
			_, volume := c.Volumes["/v"]
			return c.User == "7:8" && udp && volume && c.StopSignal == "SIGINT" && c.Labels["a"] == "b" && c.Labels["of"] == "base" && c.Healthcheck != nil && c.Entrypoint[0] == "/a" && c.Cmd[0] == "b"
		})},
		{name: "shell form", dockerfile: "FROM localhost/base\nSHELL [\"/bin/dash\", \"-ec\"]\nCMD echo $A", check: config(func(o *built) bool { return slices.Equal(o.config.Cmd, []string{"/bin/dash", "-ec", "echo $A"}) })},
		{name: "labels of the request", dockerfile: "FROM localhost/base", req: hutch.BuildRequest{Labels: map[string]string{"x": "y"}}, check: config(func(o *built) bool { return o.config.Labels["x"] == "y" })},
		{name: "entrypoint resets cmd", dockerfile: "FROM localhost/base\nCMD [\"x\"]\nENTRYPOINT [\"e\"]", check: config(func(o *built) bool { return o.config.Entrypoint[0] == "e" })},

		// Arguments.
		{name: "arg", dockerfile: "ARG V=1\nFROM localhost/base\nARG V\nARG W=w\nENV X=$V-$W", req: hutch.BuildRequest{Args: map[string]string{"V": "2"}}, check: config(func(o *built) bool { return slices.Contains(o.config.Env, "X=2-w") })},
		{name: "arg in from", dockerfile: "ARG B=base\nFROM localhost/${B}", check: config(func(o *built) bool { return o.config.Labels["of"] == "base" })},
		{name: "default of a variable", dockerfile: "FROM localhost/base\nENV X=${NONE:-a}${COLOUR:+b}", check: config(func(o *built) bool { return slices.Contains(o.config.Env, "X=ab") })},

		// WORKDIR.
		{name: "workdir", dockerfile: "FROM localhost/base\nWORKDIR /a/b\nWORKDIR c\nCOPY f .", files: files("f", "1"), text: map[string]string{"a/b/c/f": "1"}, check: config(func(o *built) bool { return o.config.WorkingDir == "/a/b/c" })},

		// COPY.
		{name: "copy a file", dockerfile: "FROM localhost/base\nCOPY a /x/y", files: files("a", "1"), text: map[string]string{"x/y": "1"}, modes: map[string]string{"x/y": "644 0 0", "x": "755 0 0"}},
		{name: "copy into a folder", dockerfile: "FROM localhost/base\nCOPY a b /x/", files: files("a", "1", "b", "2"), paths: []string{"x/a", "x/b"}},
		{name: "copy a folder", dockerfile: "FROM localhost/base\nCOPY d /x", files: files("d/", "d/a", "1", "d/e/", "d/e/b", "2"), paths: []string{"x/a", "x/e/b"}},
		{name: "copy all", dockerfile: "FROM localhost/base\nCOPY . /x/", files: files("a", "1", "d/b", "2"), paths: []string{"x/a", "x/d/b"}},
		{name: "copy to a folder that is there", dockerfile: "FROM localhost/base\nCOPY a /usr", files: files("a", "1"), paths: []string{"usr/a"}},
		{name: "copy over a link", dockerfile: "FROM localhost/base\nCOPY a /bin/", files: files("a", "1"), paths: []string{"usr/bin/a"}},
		{name: "glob", dockerfile: "FROM localhost/base\nCOPY *.txt d/?.go /x/", files: files("a.txt", "1", "b.txt", "2", "c.md", "3", "d/e.go", "4", "d/ff.go", "5"), paths: []string{"x/a.txt", "x/b.txt", "x/e.go"}},
		{name: "glob of folders", dockerfile: "FROM localhost/base\nCOPY */a /x/", files: files("p/a", "1", "q/b", "2"), paths: []string{"x/a"}},
		{name: "glob of nothing", dockerfile: "FROM localhost/base\nCOPY a *.none /x/", files: files("a", "1"), paths: []string{"x/a"}},
		{name: "chown", dockerfile: "FROM localhost/base\nCOPY --chown=7:8 d /x", files: files("d/a", "1"), modes: map[string]string{"x/a": "644 7 8", "x": "755 7 8"}},
		{name: "chown to a number", dockerfile: "FROM localhost/base\nCOPY --chown=7 a /x\n", files: files("a", "1"), modes: map[string]string{"x": "644 7 7"}},
		{name: "chown by name", dockerfile: "FROM localhost/base\nCOPY passwd group /etc/\nCOPY --chown=ada:team a /x", files: files("passwd", "root:x:0:0::/root:/bin/sh\nada:x:71:72::/:/bin/sh\n", "group", "team:x:73:\n", "a", "1"), modes: map[string]string{"x": "644 71 73"}},
		{name: "chown to a stranger", dockerfile: "FROM localhost/base\nCOPY --chown=nobodyknows a /x", files: files("a", "1"), kind: hutch.Invalid, errors: []string{"nobodyknows"}},
		{name: "chmod", dockerfile: "FROM localhost/base\nCOPY --chmod=750 a /x\nCOPY --chmod=u=rwX,go=rX d /y", files: files("a", "1", "d/b", "2"), modes: map[string]string{"x": "750 0 0", "y/b": "644 0 0"}},
		{name: "mode of the context", dockerfile: "FROM localhost/base\nCOPY a /x", files: files(entry{name: "a", content: "1", mode: 0o755}), modes: map[string]string{"x": "755 0 0"}},
		{name: "links stay links", dockerfile: "FROM localhost/base\nCOPY d /x", files: files("d/a", "1", entry{name: "d/l", link: "a"}, entry{name: "d/m", link: "/etc/shadow"}), links: map[string]string{"x/l": "a", "x/m": "/etc/shadow"}},
		{name: "a link as source", dockerfile: "FROM localhost/base\nCOPY l /x", files: files("d/a", "1", entry{name: "l", link: "d/a"}), text: map[string]string{"x": "1"}},
		{name: "parents", dockerfile: "FROM localhost/base\nCOPY --parents d/e/a /x/", files: files("d/e/a", "1", "d/b", "2"), paths: []string{"x/d/e/a"}},
		{name: "exclude", dockerfile: "FROM localhost/base\nCOPY --exclude=*.md . /x/", files: files("a", "1", "b.md", "2"), paths: []string{"x/a"}},
		{name: "heredoc", dockerfile: "FROM localhost/base\nARG V=7\nCOPY <<one <<\"two\" /x/\nis $V\none\nis $V\ntwo\n", text: map[string]string{"x/one": "is 7\n", "x/two": "is $V\n"}},
		{name: "missing", dockerfile: "FROM localhost/base\nCOPY a /x", files: files("b", "1"), kind: hutch.NotFound, errors: []string{"/a", ".dockerignore"}},
		{name: "a folder over a file", dockerfile: "FROM localhost/base\nCOPY f /x\nCOPY d /x", files: files("f", "1", "d/a", "2"), kind: hutch.Invalid, errors: []string{"/x is not a folder"}},

		// Stages.
		{name: "stages", dockerfile: "FROM localhost/base AS one\nCOPY a /made\nFROM scratch\nCOPY --from=one /made /out", files: files("a", "1"), paths: []string{"out"}, check: func(t *testing.T, o *built) {
			if o.layers != 1 {
				t.Errorf("it has %d layers", o.layers)
			}
		}},
		{name: "from an image", dockerfile: "FROM scratch\nCOPY --from=localhost/base /etc/passwd /p", text: map[string]string{"p": "root:x:0:0:root:/root:/bin/bash\n"}},
		{name: "from a stage by number", dockerfile: "FROM localhost/base\nCOPY a /m\nFROM scratch\nCOPY --from=0 /m /o", files: files("a", "1"), paths: []string{"o"}},
		{name: "a stage of a stage", dockerfile: "FROM localhost/base AS one\nENV A=1\nCOPY a /m\nFROM one\nCOPY a /n", files: files("a", "1"), paths: []string{"m", "n"}, check: config(func(o *built) bool { return slices.Contains(o.config.Env, "A=1") })},
		{name: "target", dockerfile: "FROM localhost/base AS one\nCOPY a /m\nFROM one AS two\nCOPY a /n", req: hutch.BuildRequest{Target: "one"}, files: files("a", "1"), paths: []string{"m"}},
		{name: "no such target", dockerfile: "FROM localhost/base", req: hutch.BuildRequest{Target: "none"}, kind: hutch.Invalid, errors: []string{"none"}},
		{name: "an unused stage is not built", dockerfile: "FROM localhost/base AS broken\nCOPY missing /m\nFROM localhost/base\nCOPY a /n", files: files("a", "1"), paths: []string{"n"}},
		{name: "scratch", dockerfile: "FROM scratch\nCOPY a /a\nENTRYPOINT [\"/a\"]", files: files("a", "1"), paths: []string{"a"}},
		{name: "scratch alone", dockerfile: "FROM scratch\nENV A=1", check: config(func(o *built) bool { return slices.Contains(o.config.Env, "A=1") })},

		// ADD.
		{name: "add an archive", dockerfile: "FROM localhost/base\nADD a.tar /x/", files: files("a.tar", archive), text: map[string]string{"x/in/x": "X"}, modes: map[string]string{"x/in/run": "755 501 20"}},
		{name: "add a compressed archive", dockerfile: "FROM localhost/base\nADD --chown=3:4 a.tgz /x/", files: files("a.tgz", gzipped(archive)), modes: map[string]string{"x/in/x": "644 3 4"}},
		{name: "add a file", dockerfile: "FROM localhost/base\nADD a /x", files: files("a", "no archive"), text: map[string]string{"x": "no archive"}},
		{name: "copy keeps an archive", dockerfile: "FROM localhost/base\nCOPY a.tar /x/", files: files("a.tar", archive), paths: []string{"x/a.tar"}},
		{name: "add what is compressed and no archive", dockerfile: "FROM localhost/base\nADD a.gz /x/", files: files("a.gz", gzipped("text")), paths: []string{"x/a.gz"}},
		{name: "add xz", dockerfile: "FROM localhost/base\nADD a.tar.xz /x/", files: files("a.tar.xz", xzArchive), text: map[string]string{"x/etc/word": "hello\n"}},
		{name: "add what begins as xz", dockerfile: "FROM localhost/base\nADD a.tar.xz /x/", files: files("a.tar.xz", "\xfd7zXZ\x00rest"), paths: []string{"x/a.tar.xz"}},
		{name: "add a repository by ssh", dockerfile: "FROM localhost/base\nADD git@github.com:owner/name.git /x", kind: hutch.Unsupported, errors: []string{"https://"}},

		// .dockerignore and where the Dockerfile is.
		{name: "dockerignore", dockerfile: "FROM localhost/base\nCOPY . /x/", files: files(".dockerignore", "*.md\n!keep.md\nd\n", "a", "1", "b.md", "2", "keep.md", "3", "d/e", "4"), paths: []string{"x/.dockerignore", "x/a", "x/keep.md"}},
		{name: "in the context", files: files("sub/My.dockerfile", "FROM localhost/base\nCOPY a /x", "a", "1"), req: hutch.BuildRequest{File: "sub/My.dockerfile"}, paths: []string{"x"}},
		{name: "by its usual name", files: files("Dockerfile", "FROM localhost/base\nCOPY a /x", "a", "1"), paths: []string{"x"}},
		{name: "none", files: files("a", "1"), kind: hutch.NotFound, errors: []string{"Dockerfile"}},

		// ONBUILD: the second case starts from the image of the first.
		{name: "onbuild", dockerfile: "FROM localhost/base\nONBUILD COPY a /triggered", req: hutch.BuildRequest{Name: "localhost/onbuild"}, paths: []string{}},
		{name: "onbuild of the base", dockerfile: "FROM localhost/onbuild\nENV A=1", files: files("a", "1"), paths: []string{"triggered"}},

		// Builds that cannot be read.
		{name: "empty", dockerfile: "\n", kind: hutch.Invalid},
		{name: "no from", dockerfile: "COPY a b", kind: hutch.Invalid},
		{name: "unknown instruction", dockerfile: "FROM localhost/base\nFETCH x", kind: hutch.Invalid, errors: []string{"FETCH", "line 2"}},
		{name: "no such image", dockerfile: "FROM localhost/none", kind: hutch.NotFound},
		{name: "syntax line", dockerfile: "# syntax=evil.example/frontend\nFROM localhost/base", log: "# syntax=evil.example/frontend is ignored"},
		{name: "variables without end", dockerfile: "FROM localhost/base\nENV A=xxxxxxxxxx\n" + growing("A", 30), kind: hutch.Exhausted, errors: []string{"variables"}},
		{name: "variables without end over lines", dockerfile: "FROM localhost/base\nENV A=xxxxxxxxxx \\\n  # comment\n  B=1\n" + growing("A", 30), kind: hutch.Exhausted, errors: []string{"variables"}},

		// Nothing outside the context and the image can be reached.
		{name: "copy from above", dockerfile: "FROM localhost/base\nCOPY ../../../etc/passwd /x", files: files("a", "1"), kind: hutch.NotFound},
		{name: "copy through a link out", dockerfile: "FROM localhost/base\nCOPY l/passwd /x", files: files(entry{name: "l", link: "/etc"}), kind: hutch.NotFound},
		{name: "a link out in the context", dockerfile: "FROM localhost/base\nCOPY l /x", files: files(entry{name: "l", link: "../../../etc/passwd"}), kind: hutch.NotFound},
		{name: "a circle", dockerfile: "FROM localhost/base\nCOPY l /x", files: files(entry{name: "l", link: "l"}), kind: hutch.Invalid, errors: []string{"circle"}},
		{name: "names out of the context", dockerfile: "FROM localhost/base\nCOPY . /x/", files: files("../../evil", "1", "/abs", "2"), paths: []string{"x/abs", "x/evil"}},
		{name: "names out of an archive", dockerfile: "FROM localhost/base\nADD a.tar /x/", files: files("a.tar", tarOf(t, "../../evil", "1", entry{name: "out", link: "/etc"}, "out/passwd", "2")), paths: []string{"x/evil", "x/out"}},
		{name: "not a tar", dockerfile: "FROM localhost/base\nADD a.tar.bz2 /x/", files: files("a.tar.bz2", "BZh9 not"), paths: []string{"x/a.tar.bz2"}},
		{name: "patterns without end", dockerfile: "FROM localhost/base\nCOPY a /x", files: files(".dockerignore", strings.Repeat("no\n", 1001), "a", "1"), kind: hutch.Exhausted, errors: []string{".dockerignore", "patterns"}},
		{name: "patterns of a copy without end", dockerfile: "FROM localhost/base\nCOPY " + strings.Repeat("--exclude=no ", 1001) + "a /x", files: files("a", "1"), kind: hutch.Exhausted, errors: []string{"patterns"}},
		{name: "a file as a whiteout", dockerfile: "FROM localhost/base\nCOPY . /usr/", files: files(".wh.bin", "1"), kind: hutch.Invalid, errors: []string{".wh."}},
	}
}

// growing returns lines that each set a variable. Its value names the variable of the line before ten times.
func growing(name string, lines int) string {
	var all []string
	for i := range lines {
		next := string(rune('a'+i%26)) + string(rune('a'+i/26))
		all = append(all, "ENV "+next+"="+strings.Repeat("$"+name, 10))
		name = next
	}
	return strings.Join(all, "\n")
}

// Builds without commands, on one server.
func TestFiles(t *testing.T) {
	b := newBed(t, "gvisor")
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) { c.run(t, b) })
	}
	t.Run("from a digest", b.fromDigest)
	b.clean(t)
}

// fromDigest checks that FROM finds an image without a name by its digest. The name before the digest can be any name.
func (b *bed) fromDigest(t *testing.T) {
	first, err := b.build(t, hutch.BuildRequest{Dockerfile: "FROM scratch\nCOPY a /a\nUSER eva"}, files("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := b.build(t, hutch.BuildRequest{Dockerfile: "FROM localhost/any@" + first.ID + "\nCOPY b /b"}, files("b", "2"))
	if err != nil || !slices.Equal(next.paths(), []string{"a", "b"}) || next.config.User != "eva" {
		t.Errorf("%q, %+v, %v", next.paths(), next.config, err)
	}
}

func (c testCase) run(t *testing.T, b *bed) {
	req := c.req
	req.Dockerfile = c.dockerfile
	o, err := b.build(t, req, c.files)
	if c.kind != nil {
		if !errors.Is(err, c.kind) {
			t.Fatalf("the error is %v, and not %v", err, c.kind)
		}
		for _, text := range c.errors {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the error %q does not say %q", err, text)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.log(), c.log) {
		t.Errorf("the log %q has no %q", o.log(), c.log)
	}
	for name, want := range c.text {
		if got, ok := o.text[name]; !ok || got != want {
			t.Errorf("%s is %q, and not %q; there are %q", name, got, want, o.paths())
		}
	}
	if c.paths != nil && !slices.Equal(o.paths(), c.paths) {
		t.Errorf("the files are %q, and not %q", o.paths(), c.paths)
	}
	for name, want := range c.modes {
		if got := modeOf(o.files[name]); got != want {
			t.Errorf("%s has %s, and not %s", name, got, want)
		}
	}
	for name, want := range c.links {
		if h := o.files[name]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != want {
			t.Errorf("%s is %+v, and no link to %s", name, h, want)
		}
	}
	if c.check != nil {
		c.check(t, o)
	}
}

// xzArchive is a tar archive with the file etc/word, made by Python's lzma.
const xzArchive = "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x1c\x00\x00\x00\x10\xcf\x58\xcc\xe0\x07\xff\x00\x45\x5d\x00\x32\x9d\x08\x86\x14\xee\x21\xb2\x06\xe2\x85\x03\x96\xb7\xa3\xc3\x5d\x32\xe1\x16\x5c\x38\x2f\x58\xf5\x2c\xdc\x05\x14\x1f\x5a\x8f\x6b\xa6\xc3\x7f\x7b\x36\xdf\x26\xbb\xeb\xd0\xfc\xee\x39\x34\xa6\x9d\x40\x67\xa0\x7c\x0b\xd4\xaa\x25\x47\x91\xde\xc0\xef\xb0\xf9\x40\xe5\x7b\x43\x00\x00\x00\x00\x00\x66\xaf\x31\x8c\x02\x11\xa6\x69\x00\x01\x61\x80\x10\x00\x00\x00\x2f\xef\x02\xe1\xb1\xc4\x67\xfb\x02\x00\x00\x00\x00\x04\x59\x5a"
