package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
)

// writeOver makes a file of layers over a base and returns its path.
func writeOver(t testing.TB, base string, layers []Layer, o Options) (string, error) {
	t.Helper()
	f, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o.Base = f
	return write(t, layers, o)
}

// testBases makes a file of layers several times, each time with a base of more of the layers, and compares it with
// the file that was made of all layers at once.
func testBases(t *testing.T, name string, layers []Layer, all string) {
	t.Helper()
	want, err := os.ReadFile(all)
	if err != nil {
		t.Fatal(err)
	}
	for n := range layers {
		base, err := write(t, layers[:n], Options{})
		if err != nil {
			t.Fatal(err)
		}
		path, err := writeOver(t, base, layers[n:], Options{})
		if err != nil {
			t.Errorf("%s: over a base of %d layers: %v", name, n, err)
			continue
		}
		if got, err := os.ReadFile(path); !bytes.Equal(got, want) {
			t.Errorf("%s: over a base of %d layers the file is not that of all layers: %v", name, n, err)
		}
	}
}

// A base changes no byte: contents, sizes, owners, times, links and whiteouts are as if all layers were read.
func TestBase(t *testing.T) {
	var first, second []entry
	for _, size := range []int{0, 1, 4032, 4095, 4096, 4097, 70000} {
		first = append(first, entry{name: fmt.Sprintf("d/%06d", size), kind: tar.TypeReg, text: strings.Repeat("c", size), mode: 0o4755, uid: size})
		second = append(second, hard(fmt.Sprintf("e/%06d", size), fmt.Sprintf("d/%06d", size)))
	}
	first = append(first, sym("lib", "usr/lib"), reg("usr/lib/x", "1"), entry{name: "p", kind: tar.TypeFifo, mode: 0o600}, dir("./"), dir("gone/a/b"))
	second = append(second, reg("lib/y", "2"), reg(".wh.gone", ""), reg("usr/.wh..wh..opq", ""), entry{name: "d", kind: tar.TypeDir, mode: 0o1777, uid: 1 << 31})
	layers := []Layer{plain(t, first...), plain(t, second...), plain(t, reg("d/000001", "other"), entry{name: "./", kind: tar.TypeDir, mode: 0o700, uid: 9})}
	all, err := write(t, layers, Options{})
	if err != nil {
		t.Fatal(err)
	}
	testBases(t, "all", layers, all)
}

func TestBaseTimes(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, at := range []time.Time{time.Unix(-5, 0), time.Unix(0, 0), time.Unix(0, 7), time.Unix(1<<33, 999_999_999)} {
		w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg, ModTime: at, Format: tar.FormatPAX})
	}
	w.Close()
	layers := []Layer{layerOf(b.Bytes(), b.Bytes()), plain(t, reg("a", "1"))}
	all, err := write(t, layers, Options{})
	if err != nil {
		t.Fatal(err)
	}
	testBases(t, "times", layers, all)
}

// The layers of a base count against the limits as if they were read again.
func TestBaseCounts(t *testing.T) {
	lower := []Layer{plain(t, reg("a/b", strings.Repeat("x", 100_000)), hard("a/c", "a/b")), plain(t, reg(".wh.a", ""))}
	base, err := write(t, lower, Options{})
	if err != nil {
		t.Fatal(err)
	}
	upper := plain(t, reg("d", strings.Repeat("y", 50_000)), reg("e", ""))
	for what, l := range map[string]Limits{
		"files":   {Bytes: 249_999, Entries: 100, Names: 1 << 20, Path: 4095, Ratio: 20},
		"base":    {Bytes: 150_000, Entries: 100, Names: 1 << 20, Path: 4095, Ratio: 20},
		"entries": {Bytes: 1 << 20, Entries: 4, Names: 1 << 20, Path: 4095, Ratio: 20},
		"names":   {Bytes: 1 << 20, Entries: 100, Names: 12, Path: 4095, Ratio: 20},
	} {
		_, read := write(t, append(lower[:2:2], upper), Options{Limits: l})
		_, based := writeOver(t, base, []Layer{upper}, Options{Limits: l})
		if !errors.Is(based, hutch.Exhausted) || fmt.Sprint(read) != fmt.Sprint(based) {
			t.Errorf("%s: over a base: %v; of all layers: %v", what, based, read)
		}
	}
	if _, err := writeOver(t, base, []Layer{upper}, Options{Limits: Limits{Bytes: 260_000, Entries: 5, Names: 13, Path: 4095, Ratio: 20}}); err != nil {
		t.Errorf("within the limits: %v", err)
	}
}

// A base that was changed anywhere, or cut off, or that has no seal, is not used.
func TestDamagedBase(t *testing.T) {
	path, err := write(t, []Layer{plain(t, reg("a", strings.Repeat("x", 9000)), dir("b"))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	use := func(content []byte) error {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := writeOver(t, path, []Layer{plain(t, reg("c", ""))}, Options{})
		return err
	}
	if err := use(good); err != nil {
		t.Fatal(err)
	}
	end := len(good) - blockSize
	for _, at := range []int{0, 1024, 5000, end - 1, end + 9, end + 40, end + 200, len(good) - 1} {
		bad := bytes.Clone(good)
		bad[at] ^= 1
		if err := use(bad); !errors.Is(err, ErrDamaged) {
			t.Errorf("changed at %d of %d: %v", at, len(good), err)
		}
	}
	for what, content := range map[string][]byte{
		"an empty file": {}, "one block": good[:blockSize], "only the seal": good[end:], "without its seal": good[:end], "cut off": good[:len(good)-1],
	} {
		if err := use(content); !errors.Is(err, ErrUnsealed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
