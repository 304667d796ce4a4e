package docker

import (
	"io/fs"
	"slices"
	"testing"

	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
)

// TestOneImageForAllUsers: anyone can name any user of an image, but the engine keeps only one copy.
func TestOneImageForAllUsers(t *testing.T) {
	path := drivertest.WriteImage(t, []drivertest.ImageFile{
		{Path: "/etc/ssl/certs", Mode: 0o755 | fs.ModeDir}, {Path: "/home", Link: "/srv"}, {Path: "/program", Mode: 0o755},
	})
	for _, dir := range []string{"", "/srv/app", "/home/one"} {
		root, err := image.FromEROFS(path, image.EROFSOptions{WorkingDir: dir, User: &image.Account{UID: 1001, GID: 1001, Home: "/home/one"}, Authority: []byte("authority")})
		if err != nil {
			t.Fatal(err)
		}
		root.Files = over(root)
		for _, want := range []string{"/etc/hosts", image.AgentPath, image.SocketDir, root.Workdir(), "/proc", "/dev", "/sys", "/tmp"} {
			if !slices.ContainsFunc(root.Files, func(f image.File) bool { return f.Path == want }) {
				t.Errorf("%q: it lacks %s", dir, want)
			}
		}
		for _, user := range []image.Account{{UID: 1002, GID: 1002, Home: "/home/two"}, {UID: 1003, Home: "/a/b/c"}, {UID: 7, GID: 8, Home: "/"}, image.HostAccount()} {
			other, err := image.FromEROFS(path, image.EROFSOptions{WorkingDir: dir, User: &image.Account{UID: 1001, GID: 1001, Home: "/home/one"}, Authority: []byte("authority")})
			if err == nil {
				other, err = other.As(user)
			}
			if err != nil {
				t.Fatal(err)
			}
			other.Files = over(other)
			if a, b := imageName(root), imageName(other); a != b {
				t.Errorf("%q: the engine gets %s for one user and %s for %+v", dir, a, b, user)
			}
		}
	}
}
