package mount

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDeviceMustBeTheDevice(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can clone mounts")
	}
	fake := filepath.Join(t.TempDir(), "null")
	if err := os.WriteFile(fake, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	link := fake + "-link"
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fake, link, "/dev/zero"} {
		if tree, err := Device(path, 1, 3); err == nil {
			tree.Close()
			t.Errorf("%s was taken for /dev/null", path)
		}
	}
	tree, err := Device("/dev/null", 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	tree.Close()
}
