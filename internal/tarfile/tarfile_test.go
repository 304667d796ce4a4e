package tarfile

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// changing is an archive that calls change after the first header.
type changing struct {
	bytes.Buffer
	change func()
}

func (c *changing) Write(p []byte) (int, error) {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return c.Buffer.Write(p)
}

// A file that grows while it is written has its earlier size, and the next file follows it. A file that shrinks is an
// error.
func TestFilesThatChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	grows, other := filepath.Join(dir, "grows"), filepath.Join(dir, "other")
	for _, path := range []string{grows, other} {
		if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var to changing
	out := tar.NewWriter(&to)
	to.change = func() { os.WriteFile(grows, []byte("hello, world"), 0o600) }
	err := errors.Join(AddPath(out, grows, tar.Header{Name: "a", Mode: 0o640}), AddPath(out, other, tar.Header{Name: "b"}), out.Close())
	in := tar.NewReader(&to)
	for _, name := range []string{"a", "b"} {
		h, nextErr := in.Next()
		if err != nil || nextErr != nil || h.Name != name || h.Typeflag != tar.TypeReg {
			t.Fatalf("%+v, %v, %v", h, err, nextErr)
		}
		if text, err := io.ReadAll(in); string(text) != "hello" || err != nil {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	out = tar.NewWriter(&to)
	to.change = func() { os.Truncate(other, 2) }
	if err := AddPath(out, other, tar.Header{Name: "b"}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that shrinks: %v", err)
	}
}
