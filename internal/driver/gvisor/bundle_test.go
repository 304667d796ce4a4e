package gvisor

import (
	"os"
	"path/filepath"
	"testing"

	"hutch/internal/image"
)

// A mask for a file that the host lacks is left out, because runsc would create the file on the host to mount on it.
func TestMasksOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pip.conf"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := image.Root{Dir: t.TempDir(), Binds: []image.Bind{{Source: dir, Target: "/tool"}}}
	for _, path := range []string{"/tool/pip.conf", "/tool/.env"} {
		root.Masks = append(root.Masks, path)
		root.Binds = append(root.Binds, image.Bind{Source: os.DevNull, Target: path})
	}
	shown := map[string]bool{}
	for _, m := range mounts(root, "/agent") {
		shown[m.Destination] = true
	}
	if !shown["/tool"] || !shown["/tool/pip.conf"] || shown["/tool/.env"] {
		t.Errorf("%v is mounted", shown)
	}
}
