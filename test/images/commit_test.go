package images

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/dockerd"
)

// TestCommit: the files of a sandbox, even one that sleeps, become an image that sandboxes can use, and that is valid
// outside.
func TestCommit(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		sb := b.make(t, python)
		b.run(t, sb.ID, "echo mine >file; mkdir -p ~/bin; printf '#!/bin/bash\\necho tool' >~/bin/tool; chmod +x ~/bin/tool; ln -s bin/tool ~/link")
		if _, err := b.Pause(t.Context(), sb.ID); err != nil && !errors.Is(err, hutch.Unsupported) {
			t.Fatal(err)
		}
		made, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "localhost/mine:1"})
		if err != nil {
			t.Fatal(err)
		}
		base, err := b.Image(t.Context(), python)
		if err != nil || len(made.Layers) != len(base.Layers)+1 || made.Config.Env[0] != base.Config.Env[0] || made.Config.Command[0] != "python3" {
			t.Errorf("the new image is %+v; its base %+v, %v", made, base, err)
		}
		next := b.make(t, "localhost/mine:1")
		if got := b.run(t, next.ID, "cat /workspace/file; ~/link; python3 -c 'print(1)'; test $(stat -c %u /workspace/file) = $(id -u) && echo own; echo more >>/workspace/file"); got != "mine\ntool\n1\nown" {
			t.Errorf("a sandbox of the new image prints %q", got)
		}
		again, err := b.CommitImage(t.Context(), next.ID, hutch.CommitRequest{Name: "localhost/mine:2"})
		if err != nil || len(again.Layers) != len(made.Layers)+1 {
			t.Errorf("a commit over a commit: %+v, %v", again, err)
		}
		path := filepath.Join(t.TempDir(), "mine.tar")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.SaveImage(t.Context(), "localhost/mine:2", file), file.Close()); err != nil {
			t.Fatal(err)
		}
		archive, err := tarball.ImageFromPath(path, nil)
		if err != nil {
			t.Fatalf("the saved image: %v", err)
		}
		layers, err := archive.Layers()
		if err != nil {
			t.Fatal(err)
		}
		config, err := archive.ConfigFile()
		for i, layer := range layers {
			content, err := layer.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := v1.SHA256(content); err != nil || got != config.RootFS.DiffIDs[i] {
				t.Errorf("layer %d of the saved image is %v, not %v: %v", i, got, config.RootFS.DiffIDs[i], err)
			}
		}
		if err != nil || len(layers) != len(config.RootFS.DiffIDs) || len(config.RootFS.DiffIDs) != len(base.Layers)+2 || !strings.Contains(config.History[len(config.History)-1].CreatedBy, next.ID) {
			t.Errorf("its configuration is %+v, %v", config, err)
		}
	})
}

// TestCommitWithoutDeletedFiles: the image of a sandbox does not have the files that were deleted in the sandbox.
// Committing a snapshot starts no sandbox, so the image of a snapshot has only the written files.
func TestCommitWithoutDeletedFiles(t *testing.T) {
	each(t, func(t *testing.T, b *bed) {
		if !hutchtest.HasRoot(b.runtime) {
			t.Skip("only root can delete files of the image")
		}
		sb := b.make(t, python)
		b.run(t, sb.ID, "echo mine >/workspace/file; rm /usr/bin/tac; rm -r /usr/share/doc; rm -r /etc/apt; echo file >/etc/apt; rm -r /etc/skel; mkdir /etc/skel; echo own >/etc/skel/own")
		snap, err := b.Snapshot(t.Context(), sb.ID, hutch.SnapshotRequest{Name: "kept"})
		if err != nil {
			t.Fatal(err)
		}
		made, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "localhost/less"})
		if err != nil {
			t.Fatal(err)
		}
		ofSnapshot, err := b.CommitSnapshot(t.Context(), "kept", hutch.CommitRequest{Name: "localhost/kept"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
			t.Fatal(err)
		}
		if err := b.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Fatal(err)
		}
		const look = "cat /workspace/file /etc/apt; ls -A /etc/skel; test -e /usr/bin/tac && echo tac; test -e /usr/share/doc && echo doc; find / -xdev -name '.wh.*'; test -s /etc/hosts && test -c /dev/null && echo provided"
		if got := b.run(t, b.make(t, made.ID).ID, look); got != "mine\nfile\nown\nprovided" {
			t.Errorf("an image of the sandbox has %q", got)
		}
		if got := b.run(t, b.make(t, ofSnapshot.ID).ID, "cat /workspace/file /etc/skel/own; test -e /usr/bin/tac && echo tac"); got != "mine\nown\ntac" {
			t.Errorf("an image of the snapshot has %q", got)
		}
	})
}

// TestCommitRunsInDocker: an image of a sandbox is one that Docker loads and runs, without the deleted files.
func TestCommitRunsInDocker(t *testing.T) {
	engine := dockerd.StartHere(t).Host
	program, err := exec.LookPath("docker")
	if err != nil {
		hutchtest.Skip(t, "docker is missing (apt-get install docker.io)")
	}
	b := newDebian(t, "native")
	sb := b.make(t, python)
	b.run(t, sb.ID, "echo mine >/workspace/file; rm -r /usr/share/doc; printf '#!/bin/bash\necho $COLOUR tool' >/usr/bin/tool; chmod +x /usr/bin/tool")
	if _, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "localhost/mine:1"}); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := b.SaveImage(t.Context(), "localhost/mine:1", &archive); err != nil {
		t.Fatal(err)
	}
	docker := func(in io.Reader, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--host", engine}, args...)...)
		cmd.Stdin = in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("docker %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	docker(&archive, "load")
	if got := docker(nil, "run", "--rm", "--network", "none", "localhost/mine:1", "bash", "-c", "cat /workspace/file; tool; python3 -c 'print(6*7)'; test -e /usr/share/doc || echo gone"); got != "mine\nred tool\n42\ngone" {
		t.Errorf("in Docker it prints %q", got)
	}
}

// TestCommitIsRefused: the image host cannot be a base, and a sandbox's own files are never larger than its disk.
func TestCommitIsRefused(t *testing.T) {
	b := newBed(t, "native")
	host, err := b.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.CommitImage(t.Context(), host.ID, hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "--image") {
		t.Errorf("the image host: %v", err)
	}
	sb := b.make(t, python)
	for _, name := range []string{"", "host", "sha256:" + strings.Repeat("a", 64), "a@sha256:" + strings.Repeat("a", 64)} {
		if _, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: name}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if _, err := b.CommitImage(t.Context(), "missing", hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a missing sandbox: %v", err)
	}
	if _, err := b.CommitSnapshot(t.Context(), "missing", hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a missing snapshot: %v", err)
	}
	if _, err := b.Snapshot(t.Context(), host.ID, hutch.SnapshotRequest{Name: "of-host"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CommitSnapshot(t.Context(), "of-host", hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.Unsupported) || !strings.Contains(err.Error(), "--image") {
		t.Errorf("a snapshot of the image host: %v", err)
	}
	b.run(t, sb.ID, "truncate -s 3G hole")
	if _, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a hole of 3 GiB: %v", err)
	}
	if list, err := b.Images(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("refused commits leave %+v, %v", list, err)
	}
}
