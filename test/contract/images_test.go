package contract

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/ociimages"
	"hutch/internal/servicetest"
)

const contractImage = "localhost/contract:1"

// TestImage runs the contract in sandboxes of an image: a Debian made of this machine's packages. A full test runs it
// on all runtimes.
func TestImage(t *testing.T) {
	images := ociimages.Open(t, contractImage, v1.Config{User: "user", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}}, writeContractImage)
	for _, runtime := range oneRuntime() {
		t.Run(runtime, func(t *testing.T) {
			e := hutchtest.Engine(t, runtime, func(o *engine.Options) { ociimages.Use(o, images) })
			servicetest.Run(t, func(t *testing.T) hutch.Service { return imaged{e} }, servicetest.Options{Image: contractImage})
		})
	}
}

// imaged is a service whose sandboxes have the image by default.
type imaged struct{ hutch.Service }

func (s imaged) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if req.Image == "" && req.Snapshot == "" && req.Template == "" {
		req.Image = contractImage
	}
	return s.Service.Create(ctx, req)
}

// writeContractImage writes what the contract uses: bash, coreutils, python3 and git, and node for its languages.
func writeContractImage(w *tar.Writer) error {
	node, err := exec.LookPath("node")
	if err == nil {
		node, err = filepath.EvalSymlinks(node)
	}
	if err == nil {
		err = errors.Join(debian.WriteWith(w, "dash", "git", "tar", "gzip", "findutils", "sed", "procps", "util-linux", "hostname", "diffutils", "libstdc++6", "ncurses-bin", "ncurses-base"), debian.WriteTree(w, node))
	}
	const users = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(users))}) // replaces the one with only root
	}
	if err == nil {
		_, err = io.WriteString(w, users)
	}
	return err
}
