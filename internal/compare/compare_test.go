package compare

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"hutch"
)

// file is an entry of a test archive.
type file struct {
	name, content string
	kind          byte // the default is a regular file
	link          string
	mode          int64
}

func pack(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatPAX}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func archive(content []byte) Archive {
	return Archive{Name: `the snapshot "x"`, Most: 1 << 20, Read: func(_ context.Context, read func(io.Reader) error) error {
		return read(bytes.NewReader(content))
	}}
}

func compared(t *testing.T, a, b []byte, opt Options) string {
	t.Helper()
	d, err := Archives(t.Context(), archive(a), archive(b), opt)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range d.Files {
		list = append(list, strings.TrimSpace(fmt.Sprint(f.Kind, " ", f.Path(), " ", f.Patch, f.NoPatch)))
	}
	return fmt.Sprintf("%d %d %d: %s", d.Added, d.Changed, d.Deleted, strings.Join(list, ", "))
}

// The order of an archive does not count, nor which name of a linked file comes first. If a path is in the archive
// twice, only the last entry counts.
func TestOrderDoesNotCount(t *testing.T) {
	a := pack(t, file{name: "home/a", content: "1"}, file{name: "home/b", content: "2"}, file{name: "home/c", kind: tar.TypeLink, link: "home/a"}, file{name: "d/", kind: tar.TypeDir})
	b := pack(t, file{name: "./d", kind: tar.TypeDir}, file{name: "/home/c", content: "1"}, file{name: "home/b", content: "old"}, file{name: "home/a", kind: tar.TypeLink, link: "home/c"}, file{name: "x/../home/b", content: "2"})
	if got := compared(t, a, b, Options{Text: true}); got != "0 0 0: " {
		t.Error(got)
	}
	if got := compared(t, b, a, Options{Text: true}); got != "0 0 0: " {
		t.Error(got)
	}
	twice := pack(t, file{name: "a", content: "same"}, file{name: "a", content: "last"})
	if got := compared(t, pack(t, file{name: "a", content: "same"}), twice, Options{Text: true}); got != "0 1 0: changed /a @@ -1 +1 @@\n-same\n\\ No newline at end of file\n+last\n\\ No newline at end of file" {
		t.Error(got)
	}
}

// A change of content is found under each name of a file. If only a part of the tree is compared, a link to a file
// outside of it is refused.
func TestLinks(t *testing.T) {
	a := pack(t, file{name: "a", content: "1"}, file{name: "d/b", kind: tar.TypeLink, link: "a"})
	b := pack(t, file{name: "a", content: "2"}, file{name: "d/b", kind: tar.TypeLink, link: "a"})
	if got := compared(t, a, b, Options{}); got != "0 2 0: changed /a, changed /d/b" {
		t.Error(got)
	}
	if _, err := Archives(t.Context(), archive(a), archive(b), Options{Path: "/d"}); !errors.Is(err, hutch.Conflict) {
		t.Error(err)
	}
}

// Programs inside can write any archive. Whatever it contains, the comparison ends with an answer or with an error that
// people understand.
func TestHostileArchives(t *testing.T) {
	good := pack(t, file{name: "a", content: "1"})
	for name, c := range map[string]struct {
		b    []byte
		want hutch.Kind
	}{
		"no archive":     {[]byte(strings.Repeat("x", 4096)), hutch.Unavailable},
		"cut short":      {pack(t, file{name: "a", content: strings.Repeat("1", 4096)})[:1024], hutch.Unavailable},
		"larger content": {pack(t, file{name: "a", content: strings.Repeat("1", 1<<20+1)}), hutch.Exhausted},
		"empty":          {nil, ""},
		"paths outside":  {pack(t, file{name: "../../etc/passwd", content: "1"}, file{name: "..", kind: tar.TypeDir}, file{name: "l", kind: tar.TypeLink, link: "../../nowhere"}), ""},
		"devices":        {pack(t, file{name: "sda", kind: tar.TypeBlock}, file{name: "p", kind: tar.TypeFifo}), ""},
		"odd names":      {pack(t, file{name: "\x1b[31m\xff\n", content: "1"}), ""},
		"a large hole":   {hole(), hutch.Exhausted},
	} {
		d, err := Archives(t.Context(), archive(good), archive(c.b), Options{Text: true})
		if hutch.KindOf(err) != c.want && !(err == nil && c.want == "") {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range d.Files {
			if !fs.ValidPath(strings.TrimPrefix(f.Path(), "/")) && name != "odd names" {
				t.Errorf("%s: the path %q", name, f.Path())
			}
		}
	}
}

// hole is an archive of some bytes with a file of 1 EiB, as tar writes sparse files.
func hole() []byte {
	b := make([]byte, 1536)
	copy(b, "a")
	copy(b[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(b[257:], "ustar  \x00")
	b[483] = 0x80 // the real size, in base 256
	b[487] = 0x10
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// The bounds hold, the counts include the changes that the list leaves out, and memory is reserved.
func TestBounds(t *testing.T) {
	var many []file
	for i := range maxChanges + 10 {
		many = append(many, file{name: fmt.Sprint("f", i)})
	}
	d, err := Archives(t.Context(), archive(nil), Archive{Name: "b", Most: 1, Read: archive(pack(t, many...)).Read}, Options{})
	if err != nil || d.Added != maxChanges+10 || len(d.Files) != maxChanges || !d.Truncated {
		t.Errorf("%d added, %d in the list, truncated: %t, %v", d.Added, len(d.Files), d.Truncated, err)
	}
	long := strings.Repeat("d/", hutch.MaxPath) + "f"
	if d, err := Archives(t.Context(), archive(nil), archive(pack(t, file{name: long})), Options{}); err != nil || d.Added != 1 || len(d.Files) != 0 || !d.Truncated {
		t.Errorf("a long path: %+v, %v", d, err)
	}
	refuse := func(int) bool { return false }
	if _, err := Archives(t.Context(), archive(nil), archive(pack(t, many...)), Options{Take: refuse}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("without memory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Archives(ctx, archive(pack(t, many...)), archive(nil), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var texts []file
	for i := range 40 {
		texts = append(texts, file{name: fmt.Sprint("t", i), content: strings.Repeat("x\n", hutch.MaxPatchedFile/2)})
	}
	d, err = Archives(t.Context(), archive(nil), Archive{Name: "b", Most: 1 << 30, Read: archive(pack(t, texts...)).Read}, Options{Text: true})
	size, left := 0, 0
	for _, f := range d.Files {
		if size += len(f.Patch); f.NoPatch == hutch.PatchLimit {
			left++
		}
	}
	if err != nil || size > maxPatches || left == 0 || left == len(texts) {
		t.Errorf("%d bytes of patches, %d left out, %v", size, left, err)
	}
}

// FuzzArchives: no archive makes a comparison panic or exceed its limits.
func FuzzArchives(f *testing.F) {
	f.Add(pack(f, file{name: "a", content: "1"}, file{name: "b", kind: tar.TypeLink, link: "a"}), pack(f, file{name: "a", kind: tar.TypeSymlink, link: "b"}))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		d, err := Archives(t.Context(), archive(a), archive(b), Options{Text: true})
		if err == nil && len(d.Files) > d.Added+d.Changed+d.Deleted {
			t.Errorf("%+v", d)
		}
	})
}
