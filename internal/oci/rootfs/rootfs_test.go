package rootfs

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/erofs/go-erofs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"hutch"
)

var small = Limits{Bytes: 256 << 20, Entries: 1000, Names: 1 << 20, Path: 4095, Ratio: 20}

// entry is one entry of a layer. Its text is the content of a file, the target of a link, or what else its kind needs.
type entry struct {
	name string
	kind byte
	text string
	mode int64
	uid  int
}

func reg(name, text string) entry {
	return entry{name: name, kind: tar.TypeReg, text: text, mode: 0o644}
}
func dir(name string) entry         { return entry{name: name, kind: tar.TypeDir, mode: 0o755} }
func sym(name, target string) entry { return entry{name: name, kind: tar.TypeSymlink, text: target} }
func hard(name, target string) entry {
	return entry{name: name, kind: tar.TypeLink, text: target}
}

func tarOf(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Uid: e.uid, Gid: e.uid, ModTime: time.Unix(1700000000, 0)}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.text))
		case tar.TypeLink, tar.TypeSymlink:
			h.Linkname = e.text
		case tar.TypeChar, tar.TypeBlock:
			fmt.Sscanf(e.text, "%d:%d", &h.Devmajor, &h.Devminor)
		}
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "x"}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			io.WriteString(w, e.text)
		}
	}
	w.Close()
	return b.Bytes()
}

func layerOf(plain, raw []byte) Layer {
	sum := sha256.Sum256(plain)
	return Layer{"sha256:test", "sha256:" + hex.EncodeToString(sum[:]), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	}}
}

func plain(t testing.TB, entries ...entry) Layer {
	b := tarOf(t, entries...)
	return layerOf(b, b)
}

func zipped(t testing.TB, plain []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(plain)
	w.Close()
	return b.Bytes()
}

// write makes a file of layers and returns its path.
func write(t testing.TB, layers []Layer, o Options) (string, error) {
	t.Helper()
	o.Temp = t.TempDir()
	if o.Limits == (Limits{}) {
		o.Limits = small
	}
	f, err := os.Create(filepath.Join(o.Temp, "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = Write(context.Background(), f, layers, o)
	if left, _ := filepath.Glob(filepath.Join(o.Temp, "contents*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	return f.Name(), err
}

// listing describes all that an EROFS file holds, one line each, and reads all contents.
func listing(t testing.TB, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v %d", path, i.Sys().(*erofs.Stat).Mode, i.Sys().(*erofs.Stat).UID)
		if len(i.Sys().(*erofs.Stat).Xattrs) != 0 {
			t.Errorf("%s has extended attributes", path)
		}
		switch {
		case i.Mode().IsRegular():
			if layout := i.Sys().(*erofs.Stat).InodeLayout; layout != 0 {
				t.Errorf("%s lies within a block of names: %d", path, layout)
			}
			b, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			line += " " + string(b)
		case i.Mode()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(root, path)
			if err != nil {
				return err
			}
			line += " " + target
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLayers checks the files that result from several layers.
func TestLayers(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]entry
		want   []string
	}{
		"kinds": {[][]entry{{dir("./"), dir("a"), {name: "a/su", kind: tar.TypeReg, text: "x", mode: 0o6755, uid: 100000}, sym("l", "/a/su"), {name: "p", kind: tar.TypeFifo, mode: 0o600}, {name: "t/", kind: tar.TypeDir, mode: 0o1777}}},
			[]string{"a drwxr-xr-x 0", "a/su ugrwxr-xr-x 100000 x", "l Lrwxrwxrwx 0 /a/su", "p prw------- 0", "t dtrwxrwxrwx 0"}},
		"absolute":            {[][]entry{{reg("/etc/x", "1")}}, []string{"etc drwxr-xr-x 0", "etc/x -rw-r--r-- 0 1"}},
		"replaced":            {[][]entry{{reg("a", "1"), reg("b/c", "2")}, {reg("a", "3"), reg("b", "4")}}, []string{"a -rw-r--r-- 0 3", "b -rw-r--r-- 0 4"}},
		"merged":              {[][]entry{{reg("a/1", "1")}, {{name: "a", kind: tar.TypeDir, mode: 0o700, uid: 7}, reg("a/2", "2")}}, []string{"a drwx------ 7", "a/1 -rw-r--r-- 0 1", "a/2 -rw-r--r-- 0 2"}},
		"whiteout":            {[][]entry{{reg("a/1", "1"), reg("a/2", "2"), reg("d/e/f", "")}, {reg("a/.wh.1", ""), reg(".wh.d", "")}}, []string{"a drwxr-xr-x 0", "a/2 -rw-r--r-- 0 2"}},
		"whiteout of all":     {[][]entry{{reg("a/1", "1")}, {reg(".wh..wh..opq", "")}}, nil},
		"opaque after":        {[][]entry{{reg("a/1", "1"), reg("a/b/c", "")}, {reg("a/2", "2"), reg("a/b/d", ""), reg("a/.wh..wh..opq", "")}}, []string{"a drwxr-xr-x 0", "a/2 -rw-r--r-- 0 2", "a/b drwxr-xr-x 0", "a/b/d -rw-r--r-- 0 "}},
		"own whiteout":        {[][]entry{{reg("a", "1"), reg(".wh.a", "")}}, []string{"a -rw-r--r-- 0 1"}},
		"made again":          {[][]entry{{reg("a/1", "1")}, {reg(".wh.a", ""), reg("a/2", "2")}}, []string{"a drwxr-xr-x 0", "a/2 -rw-r--r-- 0 2"}},
		"whiteout device":     {[][]entry{{reg("a", "1"), reg("b", "2")}, {{name: "a", kind: tar.TypeChar, text: "0:0"}}}, []string{"b -rw-r--r-- 0 2"}},
		"whiteout of nothing": {[][]entry{{reg(".wh.", ""), reg(".wh...", ""), reg("a/.wh.x", ""), reg(".wh..wh.plnk", "")}}, []string{"a drwxr-xr-x 0"}},
		"hard link":           {[][]entry{{reg("a", "1"), hard("b", "./a")}, {hard("c", "/b"), reg("a", "2"), hard("c", "c")}}, []string{"a -rw-r--r-- 0 2", "b -rw-r--r-- 0 1", "c -rw-r--r-- 0 1"}},
		"link below":          {[][]entry{{sym("lib", "usr/lib")}, {reg("lib/x", "1")}}, []string{"lib drwxr-xr-x 0", "lib/x -rw-r--r-- 0 1"}},
		"link beside":         {[][]entry{{sym("lib", "../../usr/./lib"), reg("lib/x", "1"), sym("q/r", "../lib"), reg("q/r/y", "2")}}, []string{"lib Lrwxrwxrwx 0 ../../usr/./lib", "q drwxr-xr-x 0", "q/r Lrwxrwxrwx 0 ../lib", "usr drwxr-xr-x 0", "usr/lib drwxr-xr-x 0", "usr/lib/x -rw-r--r-- 0 1", "usr/lib/y -rw-r--r-- 0 2"}},
		"loop of links":       {[][]entry{{sym("a", "b"), sym("b", "a"), reg("a/x", "1")}}, nil},
		"dev":                 {[][]entry{{{name: "dev/null", kind: tar.TypeChar, text: "1:3"}, {name: "dev/sda", kind: tar.TypeBlock, text: "8:0"}, reg("a", "")}}, []string{"a -rw-r--r-- 0 "}},
		"empty":               {[][]entry{{}}, nil},
		"no layers":           {nil, nil},
	} {
		var layers []Layer
		for _, entries := range c.layers {
			layers = append(layers, plain(t, entries...))
		}
		path, err := write(t, layers, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := listing(t, path); !slices.Equal(got, c.want) && name != "loop of links" {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
		testBases(t, name, layers, path)
	}
}

// Malicious layers are refused, with a limit or a path in the message.
func TestHostile(t *testing.T) {
	long := strings.Repeat("x", 256)
	huge := tarOf(t, reg("a", strings.Repeat("\x00", 70<<20)))
	some := tarOf(t, reg("a", strings.Repeat("some text", 1000)))
	linked := []entry{reg("a", strings.Repeat("y", 1<<20))}
	many := []entry{}
	for i := range 900 {
		linked = append(linked, hard(fmt.Sprint(i), "a"))
	}
	for i := range 1001 {
		many = append(many, reg(fmt.Sprintf("m/%d", i), ""))
	}
	for name, c := range map[string]struct {
		layer Layer
		kind  hutch.Kind
		says  string
	}{
		"up":             {plain(t, reg("a/../../etc/passwd", "x")), hutch.Invalid, "a/../../etc/passwd"},
		"link up":        {plain(t, hard("a", "../../etc/passwd")), hutch.Invalid, "../../etc/passwd"},
		"link out":       {plain(t, hard("a", "/etc/shadow")), hutch.Invalid, "/etc/shadow"},
		"link to folder": {plain(t, dir("d"), hard("a", "d")), hutch.Invalid, "hard link"},
		"link to nobody": {plain(t, sym("a", "")), hutch.Invalid, "0 bytes"},
		"device":         {plain(t, entry{name: "etc/disk", kind: tar.TypeBlock, text: "8:0"}), hutch.Unsupported, "etc/disk"},
		"long name":      {plain(t, reg(long, "")), hutch.Invalid, "255"},
		"long path":      {plain(t, reg(strings.Repeat("d/", 2100)+"x", "")), hutch.Exhausted, "4095"},
		"root file":      {plain(t, reg(".", "x")), hutch.Invalid, "root"},
		"bomb":           {layerOf(huge, zipped(t, huge)), hutch.Exhausted, "20 times"},
		"links":          {plain(t, linked...), hutch.Exhausted, "hard links"},
		"entries":        {plain(t, many...), hutch.Exhausted, "1000 files"},
		"cut":            {layerOf(some, some[:4000]), hutch.Invalid, "cannot be read"},
		"cut gzip":       {layerOf(some, zipped(t, some)[:60]), hutch.Invalid, "cannot be read"},
		"noise":          {layerOf(some, bytes.Repeat([]byte("noise"), 1000)), hutch.Invalid, "cannot be read"},
		"no xz":          {layerOf(some, []byte("\xfd7zXZ\x00....")), hutch.Invalid, "cannot be decompressed"},
		"cut xz":         {layerOf(some, xzWord[:100]), hutch.Invalid, "cannot be read"},
		"greedy xz":      {layerOf(some, xzGreedy), hutch.Invalid, "cannot be decompressed"},
		"xz bomb":        {layerOf(some, bytes.Repeat(xzMiB, 80)), hutch.Exhausted, "20 times"},
		"cut bzip2":      {layerOf(some, bzip2Word[:60]), hutch.Invalid, "cannot be read"},
		"lie":            {layerOf(some, tarOf(t, reg("a", ""))), hutch.Invalid, "damaged"},
	} {
		_, err := write(t, []Layer{c.layer}, Options{})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file with holes that expand too far is refused, before it takes time of the disk.
func TestSparseBomb(t *testing.T) {
	head := make([]byte, 512)
	copy(head, "sparse")
	copy(head[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	head[156] = 'S'
	copy(head[257:], "ustar  \x00")
	copy(head[386:], "01000000000\x0000000000000\x00") // nothing at 128 MiB
	copy(head[483:], "01000000000\x00")
	sum := 8 * int(' ')
	for i, b := range head {
		if i < 148 || i >= 156 {
			sum += int(b)
		}
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	raw := append(head, make([]byte, 1024)...)
	limits := small
	limits.Bytes = 8 << 30
	_, err := write(t, []Layer{layerOf(raw, raw)}, Options{Limits: limits})
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "holes") {
		t.Error(err)
	}
}

// An archive with the file etc/word, made by Python's lzma and bz2; the same with a dictionary of 128 MiB, which is more than xz -9
// has; and a MiB of zeros.
var (
	xzWord    = unbase64("/Td6WFoAAATm1rRGAgAhARwAAAAQz1jM4Af/AEVdADKdCIYU7iGyBuKFA5a3o8NdMuEWXDgvWPUs3AUUH1qPa6bDf3s23ya769D87jk0pp1AZ6B8C9SqJUeR3sDvsPlA5XtDAAAAAABmrzGMAhGmaQABYYAQAAAAL+8C4bHEZ/sCAAAAAARZWg==")
	bzip2Word = unbase64("QlpoOTFBWSZTWdjjmJIAAC1bgMmQQAD1gABAbkSegAgIIABURAnomTEyMTHqglCmhk0yMg0BR5h8g4QI2k8nGGKAoWbebhLlEKsg0KLXKhmkslLFB9khrwAwJIR+LuSKcKEhsccxJA==")
	xzGreedy  = unbase64("/Td6WFoAAATm1rRGAgAhAR4AAACbB1Fm4Af/AERdADKdCIYU7iGyBuKFA5a3o8L+1srwIkBwo+jIp0SxqYPEFXwudrjNv+7cfDsLzJ5K1mwbjVUXaHlU7aUyUgXroayFRucAAGavMYwCEaZpAAFggBAAAACKPF4qscRn+wIAAAAABFla")
	xzMiB     = unbase64("/Td6WFoAAATm1rRGAgAhARYAAAB0L+Wj7///ANldAABv/f//o7f/Rz5IFXI5YVG4kijmo4YH+e7kHoLTL8U6PAFLsX7JiopNL6MN2X+m44wjEVPgWRjFdYrid/i2lH8MasDedElk4ulcU7IE2PdEDKtfDW1G6eXDdoi3llestk3haR1v+0uIEGxCy4g/XACP0E6vJiiUcR89jyThcJ6nI1/sKMuF0ZWYin4qkfIndfcZwAaYTZj92K/VkA/EJVP49ZE2MQWlsO5vwXBNRwzRkRGqrWAdus6xJxhcWYbpZlJYvul2rFnk5VsFCPnH2q38+1Iq9+SVJQAAAAAAwva6PqJwa2AAAfUBgIBAAHmXf0exxGf7AgAAAAAEWVo=")
)

func unbase64(text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

func TestCompressed(t *testing.T) {
	content := tarOf(t, reg("a", "1"))
	z, _ := zstd.NewWriter(nil)
	for name, raw := range map[string][]byte{"gzip": zipped(t, content), "zstd": z.EncodeAll(content, nil), "plain": content} {
		path, err := write(t, []Layer{layerOf(content, raw)}, Options{})
		if err != nil || len(listing(t, path)) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, raw := range map[string][]byte{"xz": xzWord, "bzip2": bzip2Word} { // which Go cannot write
		r, err := Decompress(t.Context(), bytes.NewReader(raw), name, 20)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || len(content) != 2048 {
			t.Fatalf("%s: %d bytes, %v", name, len(content), err)
		}
		path, err := write(t, []Layer{layerOf(content, raw)}, Options{})
		if got := fmt.Sprint(listing(t, path)); err != nil || !strings.Contains(got, "etc/word") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// The same layers give the same bytes, so that a file can be made again.
func TestSameBytes(t *testing.T) {
	l := []Layer{plain(t, reg("a/b", "1"), reg("a/c", strings.Repeat("z", 9000)), sym("q", "a"))}
	one, err1 := write(t, l, Options{})
	two, err2 := write(t, l, Options{})
	b1, _ := os.ReadFile(one)
	b2, _ := os.ReadFile(two)
	if err1 != nil || err2 != nil || !bytes.Equal(b1, b2) {
		t.Error("they differ", err1, err2)
	}
}

// Files of all sizes around that of a block are read as they were written.
func TestSizes(t *testing.T) {
	var entries []entry
	var want []string
	for _, size := range []int{0, 1, 4031, 4032, 4033, 4064, 4065, 4095, 4096, 4097, 8191, 8192} {
		content := strings.Repeat("c", size)
		entries = append(entries, entry{name: fmt.Sprintf("%06d", size), kind: tar.TypeReg, text: content, mode: 0o644, uid: size * 50})
		want = append(want, fmt.Sprintf("%06d -rw-r--r-- %d %s", size, size*50, content))
	}
	path, err := write(t, []Layer{plain(t, entries...)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, path); !slices.Equal(got, want) {
		t.Error("they differ")
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := Write(ctx, nil, []Layer{plain(t, reg("a", "1"))}, Options{Limits: small, Temp: t.TempDir()})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestUsers(t *testing.T) {
	path, err := write(t, []Layer{plain(t,
		reg("usr/lib/passwd", "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/srv:/bin/false\n1000:x:7:7::relative:\nbroken\nbad:x:z:1::/:\n"),
		sym("etc/passwd", "../usr/lib/passwd"),
		reg("etc/group", "root:x:0:\nwww:x:34:web\nadm:x:4:root,web\nbad:x:q:web\n"))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":         "{root 0 0 [4] /root /bin/sh}",
		"web":      "{web 33 34 [4] /srv /bin/false}",
		"33":       "{web 33 34 [4] /srv /bin/false}",
		"web:adm":  "{web 33 4 [] /srv /bin/false}",
		"web:99":   "{web 33 99 [] /srv /bin/false}",
		"5000":     "{ 5000 0 [] / }",
		"5000:www": "{ 5000 34 [] / }",
		"1000":     "{1000 7 7 [] / }",
	} {
		u, err := LookupUser(path, text)
		if got := fmt.Sprint(u); got != want || err != nil {
			t.Errorf("%q: %s %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"nobody", "web:none", "-1", "4294967295", "bad"} {
		if u, err := LookupUser(path, text); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v %v", text, u, err)
		}
	}
	bare, _ := write(t, nil, Options{})
	if u, err := LookupUser(bare, ""); err != nil || u.UID != 0 || u.Home != "/" {
		t.Errorf("without /etc/passwd: %v %v", u, err)
	}
}

// The kernel reads what was written.
func TestMounted(t *testing.T) {
	path, err := write(t, []Layer{plain(t, entry{name: "bin/su", kind: tar.TypeReg, text: strings.Repeat("s", 10000), mode: 0o4755, uid: 70000}, reg("small", "1"), sym("l", "small"))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if err := unix.Mount(path, at, "erofs", unix.MS_RDONLY, ""); err != nil {
		t.Skipf("this kernel or user mounts no EROFS file: %v", err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	mapped, err := os.Open(filepath.Join(at, "small"))
	if err != nil {
		t.Fatal(err)
	}
	defer mapped.Close()
	page, err := unix.Mmap(int(mapped.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil || page[0] != '1' {
		t.Fatalf("the small file in memory is %q, %v", page, err)
	}
	unix.Munmap(page)
	i, err := os.Stat(filepath.Join(at, "bin/su"))
	if err != nil || i.Mode() != fs.ModeSetuid|0o755 || i.Sys().(*syscall.Stat_t).Uid != 70000 || i.ModTime().Unix() != 1700000000 {
		t.Errorf("%v %v", i, err)
	}
	b, err := os.ReadFile(filepath.Join(at, "bin/su"))
	one, err1 := os.ReadFile(filepath.Join(at, "l"))
	if len(b) != 10000 || string(one) != "1" || err != nil || err1 != nil {
		t.Errorf("%d bytes, %q, %v, %v", len(b), one, err, err1)
	}
}
