package servicetest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"hutch"
)

// archiveTests are tests of reading and writing folders as archives.
type archiveTests struct{ *suite }

func (s archiveTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"ThereAndBack":    s.thereAndBack,
		"ByPrograms":      s.byPrograms,
		"ChosenPaths":     s.packChosen,
		"Hostile":         s.hostileArchives,
		"OverWhatIs":      s.unpackOver,
		"NotAnArchive":    s.notArchive,
		"Bombs":           s.bombs,
		"FullDisk":        s.fullDisk,
		"BrokenOffUpload": s.brokenArchive,
	}
}

// planted creates files to pack, and show lists the resulting files.
const (
	planted = `mkdir -p t/sub/deep t/empty && cd t && printf 'a\0b' > bin && echo x > "odd name" && head -c 200000 /dev/urandom > sub/big &&
		ln -s ../bin sub/link && ln -s /nowhere abs && chmod 750 sub bin && chmod 555 empty && touch -d '2020-02-02 02:02:02' bin && echo h > .hidden && mkfifo pipe`
	show = `find . ! -type p -printf '%P %y %m %l\n' | LC_ALL=C sort; cat bin "odd name" sub/big .hidden | md5sum; stat -c %Y bin`
)

func (s archiveTests) thereAndBack(t *testing.T) {
	id := s.open(t)
	s.run(t, id, planted)
	want := s.run(t, id, "cd t && chmod 755 . && "+show)
	for _, format := range []hutch.ArchiveFormat{hutch.Tar, hutch.TarGz, hutch.Zip} {
		var b bytes.Buffer
		if err := s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "t", Format: format}, &b); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		for _, given := range []hutch.ArchiveFormat{format, ""} {
			dir := "out-" + string(format) + "-" + string(given)
			if err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: dir, Format: given}, bytes.NewReader(b.Bytes())); err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			if got := s.run(t, id, "cd "+dir+" && "+show); got != want {
				t.Errorf("%s: %s\nwant %s", format, got, want)
			}
		}
	}
	s.run(t, id, "chmod -R u+w .") // so that the folder can be removed
}

func (s archiveTests) byPrograms(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p t/d && echo x > t/d/f && ln t/d/f t/d/hard && /bin/tar cf a.tar -C t . && /bin/tar czf a.tgz -C t d && python3 -m zipfile -c a.zip t/d")
	for name, file := range map[string]string{"a.tar": "d/hard", "a.tgz": "d/hard", "a.zip": "d/f"} {
		var b bytes.Buffer
		if _, err := s.svc.ReadFile(bounded(t), id, hutch.ReadRequest{Path: name}, &b); err != nil {
			t.Fatal(err)
		}
		if err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "from-" + name}, &b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.get(t, id, "from-"+name+"/"+file); got != "x\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	var b bytes.Buffer
	if err := s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "t", Format: hutch.Zip}, &b); err != nil {
		t.Fatal(err)
	}
	s.put(t, id, "b.zip", b.String())
	if got := s.run(t, id, "python3 -m zipfile -t b.zip && python3 -m zipfile -e b.zip x && cat x/d/f"); !strings.HasSuffix(got, "x\n") {
		t.Errorf("%q", got)
	}
}

func (s archiveTests) packChosen(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p t/a t/b .dot && touch t/a/1 t/b/2 t/3 .dot/4")
	var b bytes.Buffer
	if err := s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: ".", Paths: []string{"t/a", "t/3", ".dot"}}, &b); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "t/a/ t/a/1 t/3 .dot/ .dot/4" {
		t.Error(got)
	}
	for _, name := range []string{"..", "/etc", "t/../.."} {
		err := s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "t", Paths: []string{name}}, io.Discard)
		wantKind(t, hutch.Invalid, err, "pack %s", name)
	}
	wantKind(t, hutch.NotFound, s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "t", Paths: []string{"none"}}, io.Discard), "pack nothing")
	wantKind(t, hutch.Invalid, s.svc.Pack(bounded(t), id, hutch.PackRequest{Dir: "t", Format: "rar"}, io.Discard), "pack a rar")
}

// tarOf makes a tar archive with some headers, and with content in every file.
func tarOf(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Size = 5
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			io.WriteString(w, "owned")
		}
	}
	w.Close()
	return &b
}

func (s archiveTests) hostileArchives(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p in/there outside && echo safe > outside/f && ln -s ../outside in/link && ln -s /tmp in/abs")
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, archive := range map[string]*bytes.Buffer{
		"parent":             tarOf(t, tar.Header{Name: "../outside/f"}),
		"hidden parent":      tarOf(t, tar.Header{Name: "there/../../outside/f"}),
		"absolute":           tarOf(t, tar.Header{Name: "/tmp/hutch-owned"}),
		"a link's target":    tarOf(t, link("l", "../outside"), tar.Header{Name: "l/f"}),
		"an absolute link's": tarOf(t, link("m", "/tmp"), tar.Header{Name: "m/hutch-owned"}),
		"links to links":     tarOf(t, link("x", "y"), link("y", ".."), tar.Header{Name: "x/outside/f"}),
		"what was there":     tarOf(t, tar.Header{Name: "link/f"}),
		"what was absolute":  tarOf(t, tar.Header{Name: "abs/hutch-owned"}),
		"a hard link":        tarOf(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/f"}),
		"a hard link by one": tarOf(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "link/f"}),
		"a device":           tarOf(t, tar.Header{Name: "dev", Typeflag: tar.TypeBlock, Devmajor: 8}),
		"a folder by a link": tarOf(t, tar.Header{Name: "link/new/", Typeflag: tar.TypeDir}),
		"zip":                zipOf(t, "../outside/f"),
		"absolute zip":       zipOf(t, "/tmp/hutch-owned"),
		"zip by a link":      zipOf(t, "link/f"),
	} {
		err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "in"}, archive)
		wantKind(t, hutch.Denied, err, "%s", name)
	}
	if got := s.run(t, id, "cat outside/*; ls outside; ls /tmp/hutch-owned 2>&1 | grep -c '^/tmp' || true"); got != "safe\nf\n0\n" {
		t.Errorf("%q", got)
	}
	if err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "in"}, tarOf(t, tar.Header{Name: "link"}, tar.Header{Name: "./there/f"})); err != nil {
		t.Error(err)
	}
	if got := s.run(t, id, "cat in/link in/there/f outside/f"); got != "ownedownedsafe\n" {
		t.Errorf("%q", got)
	}
}

func zipOf(t *testing.T, names ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, "owned")
	}
	w.Close()
	return &b
}

func (s archiveTests) unpackOver(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p d/dir && echo old > d/f && echo other > o && ln o d/hard")
	if err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "d"}, tarOf(t, tar.Header{Name: "f"}, tar.Header{Name: "hard"}, tar.Header{Name: "dir/g"})); err != nil {
		t.Fatal(err)
	}
	if got := s.run(t, id, "cat d/f d/hard d/dir/g o"); got != "ownedownedownedother\n" {
		t.Errorf("%q", got)
	}
	err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "d"}, tarOf(t, tar.Header{Name: "dir"}))
	wantKind(t, hutch.Conflict, err, "a file in place of a folder")
}

func (s archiveTests) notArchive(t *testing.T) {
	id := s.open(t)
	whole := tarOf(t, tar.Header{Name: "f"})
	for name, content := range map[string]string{
		"text":          strings.Repeat("this is no archive\n", 100),
		"half a tar":    string(whole.Bytes()[:514]),
		"half a gzip":   "\x1f\x8b\x08\x00",
		"half a zip":    "PK\x03\x04 and so on",
		"noise in gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + strings.Repeat("\xa5", 1000),
	} {
		err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "x"}, strings.NewReader(content))
		wantKind(t, hutch.Invalid, err, "%s", name)
	}
	err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "x", Format: "rar"}, strings.NewReader("x"))
	wantKind(t, hutch.Invalid, err, "a rar")
}

// bomb is a gzipped tar archive with a file of 64 MiB of zeros. It is made once, because compression takes long with
// the race detector.
var bomb = sync.OnceValue(func() []byte {
	const size = 64 << 20
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size})
	io.CopyN(w, zeroReader{}, size)
	w.Close()
	gz.Close()
	return b.Bytes()
})

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func (s archiveTests) bombs(t *testing.T) {
	if s.NoIsolation {
		t.Skip("without isolation there is no disk limit")
	}
	id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 128, Disk: 16}}).ID
	err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "x"}, bytes.NewReader(bomb()))
	wantKind(t, hutch.Exhausted, err, "a bomb")
	if got := s.run(t, id, "rm -r x; echo alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}

func (s archiveTests) fullDisk(t *testing.T) {
	if s.NoIsolation {
		t.Skip("without isolation there is no disk limit")
	}
	id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 128, Disk: 16}}).ID
	s.put(t, id, "f", "old")
	_, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "f"}, &counting{size: 64 << 20})
	wantKind(t, hutch.Exhausted, err, "a file over the disk limit")
	if got := s.run(t, id, "cat f; ls -A | grep -c hutch- || true"); got != "old0\n" {
		t.Errorf("%q", got)
	}
	if _, err := s.svc.WriteFile(bounded(t), id, hutch.WriteRequest{Path: "f"}, &counting{size: 4 << 20}); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

func (s archiveTests) brokenArchive(t *testing.T) {
	id := s.open(t)
	oops := errors.New("oops")
	err := s.svc.Unpack(bounded(t), id, hutch.UnpackRequest{Dir: "x"}, broken{bytes.NewReader(tarOf(t, tar.Header{Name: "f"}).Bytes()[:700]), oops})
	if !errors.Is(err, oops) {
		t.Errorf("%v", err)
	}
}
