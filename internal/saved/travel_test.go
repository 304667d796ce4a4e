package saved

import (
	archive "archive/tar"
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func fine(string) error { return nil }

// TestSendAndReceive: an image that was sent from one machine is the same on another, holes included.
func TestSendAndReceive(t *testing.T) {
	from, to := open(t), open(t)
	content := append(append([]byte("begin"), make([]byte, 1<<20)...), "end"...)
	err := from.WriteMemory("p", func(dir string) error { return os.WriteFile(filepath.Join(dir, "pages"), content, 0o600) })
	if err == nil {
		err = os.WriteFile(from.Archive("q"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, path := range map[string]string{"p": filepath.Join(to.Memory("p"), "pages"), "q": to.Archive("q")} {
		var sent bytes.Buffer
		if err := from.Send(key, key == "p", &sent); err != nil {
			t.Fatal(err)
		}
		whole := sent.Bytes()
		if err := to.Receive(key, bytes.NewReader(whole[:len(whole)/2]), fine); err == nil {
			t.Errorf("%s: half of it was taken", key)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: half of it counts", key)
		}
		if err := to.Receive(key, bytes.NewReader(whole), fine); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
}

// TestReceiveLandsNowhereElse: everything that is received is a regular file in the folder of the sandbox.
func TestReceiveLandsNowhereElse(t *testing.T) {
	for _, h := range []archive.Header{
		{Name: "../out", Typeflag: archive.TypeReg}, {Name: "/out", Typeflag: archive.TypeReg}, {Name: "a/b", Typeflag: archive.TypeReg}, {Name: "..", Typeflag: archive.TypeReg},
		{Name: "link", Typeflag: archive.TypeSymlink, Linkname: "/etc/passwd"}, {Name: "dir", Typeflag: archive.TypeDir}, {Name: "dev", Typeflag: archive.TypeChar},
		{Name: archiveEntry, Typeflag: archive.TypeSymlink, Linkname: "/etc/passwd"},
	} {
		d := open(t)
		var b bytes.Buffer
		w := archive.NewWriter(&b)
		h.Mode = 0o777
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := d.Receive("p", &b, fine); err == nil || !strings.Contains(err.Error(), "cannot be in the saved state") {
			t.Errorf("%s: %v", h.Name, err)
		}
		err := filepath.WalkDir(d.path, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				t.Errorf("%s: %s is left", h.Name, path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
