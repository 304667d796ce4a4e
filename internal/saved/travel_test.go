package saved

import (
	archive "archive/tar"
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/travel"
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

// TestSendAndReceive: an image that is sent to another machine is the same there, holes included.
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

// TestReceiveLandsNowhereElse: Receive writes only regular files in the folder of the sandbox.
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

// TestArrivalsAreKept: while it is unknown whether a sandbox has moved to this machine, a sweep keeps its files, until
// their note is removed.
func TestArrivalsAreKept(t *testing.T) {
	d := open(t)
	none := func(string) hutch.Status { return "" }
	write := func(key string, memory bool) {
		t.Helper()
		err := os.WriteFile(d.Archive(key), []byte("files"), 0o600)
		if memory {
			err = d.WriteMemory(key, func(dir string) error { return os.WriteFile(filepath.Join(dir, "pages"), nil, 0o600) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("archive", false)
	write("memory", true)
	write("left", false)
	for _, key := range []string{"archive", "memory"} {
		if err := d.NoteArrival(travel.Arrival{Sandbox: "sb-" + key, RecordKey: key, Image: "image"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sweep(none); err != nil {
		t.Fatal(err)
	}
	if !d.Has("archive", hutch.Stopped) || !d.Has("memory", hutch.Hibernated) || d.Has("left", hutch.Stopped) {
		t.Error("the sweep removed what a note names, or kept what none names")
	}
	notes, err := d.Arrivals()
	if err != nil || len(notes) != 2 || notes["memory"].Sandbox != "sb-memory" || notes["memory"].Image != "image" {
		t.Errorf("%+v %v", notes, err)
	}
	if err := os.WriteFile(d.arrival("archive"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if notes, err := d.Arrivals(); !errors.Is(err, travel.ErrBadNote) || len(notes) != 1 || notes["memory"].Sandbox != "sb-memory" {
		t.Errorf("with a bad note: %+v %v", notes, err)
	}
	if err := d.Sweep(none); !errors.Is(err, travel.ErrBadNote) || !d.Has("archive", hutch.Stopped) {
		t.Errorf("a sweep with a bad note: %v", err)
	}
	for key := range notes {
		if err := d.ForgetArrival(key); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sweep(none); err != nil {
		t.Fatal(err)
	}
	if d.Has("archive", hutch.Stopped) || d.Has("memory", hutch.Hibernated) {
		t.Error("the sweep kept files without a note")
	}
}
