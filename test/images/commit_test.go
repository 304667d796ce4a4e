package images

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch"
)

// TestCommit: the files of a sandbox, which may sleep, become an image that sandboxes can have, and that is valid outside.
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
	b.run(t, sb.ID, "truncate -s 3G hole")
	if _, err := b.CommitImage(t.Context(), sb.ID, hutch.CommitRequest{Name: "mine"}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("a hole of 3 GiB: %v", err)
	}
	if list, err := b.Images(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("refused commits leave %+v, %v", list, err)
	}
}
