package escape

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/volume"
)

// eachVolume runs a test on each runtime with the volume "data" of 1 MiB.
func eachVolume(t *testing.T, test func(t *testing.T, e *engine.Engine, s *volume.Store)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			s, err := volume.Open(filepath.Join(t.TempDir(), "volumes"), volume.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create("", hutch.VolumeRequest{Name: "data", Quota: 1}); err != nil {
				t.Fatal(err)
			}
			test(t, hutchtest.Engine(t, runtime, func(o *engine.Options) { o.Volumes = s }), s)
		})
	}
}

func volumeBox(t *testing.T, e *engine.Engine, id string, readOnly bool) {
	t.Helper()
	_, err := e.Create(t.Context(), hutch.CreateRequest{ID: id, Volumes: []hutch.VolumeMount{{Name: "data", Path: "/workspace/data", ReadOnly: readOnly}}})
	if err != nil {
		t.Fatal(err)
	}
}

func inBox(t *testing.T, e *engine.Engine, id, command string) string {
	t.Helper()
	r, err := e.Exec(t.Context(), id, hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

// entriesOf lists the names in a volume with their types.
func entriesOf(t *testing.T, s *volume.Store) (list map[string]byte, all string) {
	t.Helper()
	var b bytes.Buffer
	if err := s.ReadPath("", "data", "", &b); err != nil {
		t.Fatal(err)
	}
	list = map[string]byte{}
	all = b.String()
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode&^0o777 != 0 {
			t.Errorf("%s has the mode %o", h.Name, h.Mode)
		}
		list[h.Name] = h.Typeflag
	}
}

// TestHostileVolume: nothing that programs put into a volume leads out of it when it is saved, when another sandbox
// mounts it, or when the server reads it.
func TestHostileVolume(t *testing.T) {
	eachVolume(t, func(t *testing.T, e *engine.Engine, s *volume.Store) {
		outside := filepath.Join(hutchtest.Dir(t), "outside")
		if err := os.WriteFile(outside, []byte("untouched"), 0o666); err != nil {
			t.Fatal(err)
		}
		volumeBox(t, e, "one", false)
		inBox(t, e, "one", strings.ReplaceAll(`cd data; echo kept > real; echo x > suid; chmod 6755 suid
ln -s OUTSIDE link; ln -s / everything; ln -s /proc/1/root root; ln -s . loop; ln -s ../../../../etc up; mkfifo pipe; ln real hard
python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("socket")
for name in (b"-rf", b"--to-command=touch evil", b"new\nline", b"\xff\xfe", b"*", b".wh.real", b"..."): open(name, "wb").close()
'; mknod null c 1 3; mknod sda b 8 0`, "OUTSIDE", outside))
		if _, err := e.SaveVolumes(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		list, _ := entriesOf(t, s)
		for name, want := range map[string]byte{"real": tar.TypeReg, "hard": tar.TypeReg, "suid": tar.TypeReg, "link": tar.TypeSymlink, "up": tar.TypeSymlink, "\xff\xfe": tar.TypeReg, "pipe": 0, "socket": 0, "null": 0, "sda": 0} {
			if list[name] != want {
				t.Errorf("%q is saved as %q, want %q", name, list[name], want)
			}
		}
		if _, err := e.Destroy(t.Context(), "one", false); err != nil {
			t.Fatal(err)
		}
		volumeBox(t, e, "two", false)
		if got := inBox(t, e, "two", "cat data/real; readlink data/link; stat -c %a data/suid; cat data/link"); !strings.HasPrefix(got, "kept\n"+outside+"\n755\n") || strings.Contains(got, "untouched") {
			t.Errorf("the next sandbox has %q", got)
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
			t.Errorf("the file outside holds %q, %v", b, err)
		}
	})
}

// TestVolumeFolderIsReplaced: during a save, a program replaces the folder of the volume by a link, over and over. The
// save has only files that the program's user can read inside.
func TestVolumeFolderIsReplaced(t *testing.T) {
	eachVolume(t, func(t *testing.T, e *engine.Engine, s *volume.Store) {
		volumeBox(t, e, "one", false)
		inBox(t, e, "one", `echo mine > data/mine; (while :; do mv data real; ln -s /etc data; ln -s /root secret 2>/dev/null; rm data; mv real data; done) >/dev/null 2>&1 &
sleep 0.2; disown`)
		for range 20 {
			_, err := e.SaveVolumes(t.Context(), "one")
			if kind := hutch.KindOf(err); err != nil && kind != hutch.Conflict && kind != hutch.NotFound && kind != hutch.Denied && kind != hutch.Exhausted {
				t.Errorf("saved: %v", err)
			}
			if _, all := entriesOf(t, s); strings.Contains(all, "root:$") || strings.Contains(all, "BEGIN OPENSSH") {
				t.Fatal("the volume has a secret of the host")
			}
		}
		if _, err := e.Destroy(t.Context(), "one", true); err != nil {
			t.Error(err)
		}
	})
}

// TestReadOnlyVolume: nothing that a reader does changes the volume, or what another reader sees.
func TestReadOnlyVolume(t *testing.T) {
	eachVolume(t, func(t *testing.T, e *engine.Engine, s *volume.Store) {
		volumeBox(t, e, "writer", false)
		inBox(t, e, "writer", "mkdir data/d; echo original > data/d/f")
		if _, err := e.Destroy(t.Context(), "writer", false); err != nil {
			t.Fatal(err)
		}
		before, _ := s.Find("", "data")
		volumeBox(t, e, "eve", true)
		volumeBox(t, e, "ada", true)
		if got := inBox(t, e, "eve", "echo x > data/d/f; echo x > data/new; rm -rf data/d"); strings.Count(got, "ermission denied") < 3 {
			t.Errorf("a write says %q", got)
		}
		inBox(t, e, "eve", "chmod -R u+w data; echo hers > data/d/f; rm -rf data/d; head -c 8000000 /dev/zero > data/big")
		if names, err := e.SaveVolumes(t.Context(), "eve"); err != nil || len(names) != 0 {
			t.Errorf("a reader saved %v, %v", names, err)
		}
		if got := inBox(t, e, "ada", "cat data/d/f"); got != "original\n" {
			t.Errorf("another reader has %q", got)
		}
		if _, err := e.Destroy(t.Context(), "eve", false); err != nil {
			t.Error(err)
		}
		if after, _ := s.Find("", "data"); after.Version != before.Version {
			t.Errorf("the volume was %+v and is %+v", before, after)
		}
	})
}

// TestVolumePastItsQuota: a program that writes without end, or files with holes, or very many files, costs the server no more
// than the quota, and what was saved before stays.
func TestVolumePastItsQuota(t *testing.T) {
	eachVolume(t, func(t *testing.T, e *engine.Engine, s *volume.Store) {
		volumeBox(t, e, "one", false)
		inBox(t, e, "one", "echo good > data/good")
		if _, err := e.SaveVolumes(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		for name, attack := range map[string]string{
			"large": "head -c 1100000 /dev/urandom > data/x",
			"holes": "truncate -s 1T data/x",
			"many":  "mkdir data/x; cd data/x; seq 2100 | xargs touch",
		} {
			inBox(t, e, "one", attack)
			if _, err := e.SaveVolumes(t.Context(), "one"); hutch.KindOf(err) != hutch.Exhausted {
				t.Errorf("%s: saved: %v", name, err)
			}
			if list, _ := entriesOf(t, s); len(list) != 1 || list["good"] == 0 {
				t.Errorf("%s: the volume has %d entries", name, len(list))
			}
			inBox(t, e, "one", "rm -rf data/x")
		}
		if _, err := e.SaveVolumes(t.Context(), "one"); err != nil {
			t.Errorf("within the quota again: %v", err)
		}
	})
}
