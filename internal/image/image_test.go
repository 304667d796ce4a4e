package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes files below a new folder: "name" is a file, "name/" a folder,
// "name -> target" a link. Files are executable.
func tree(t testing.TB, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range entries {
		name, target, isLink := strings.Cut(e, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case err == nil:
			err = os.WriteFile(path, []byte(name), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestResolve(t *testing.T) {
	dir := tree(t, "etc/passwd", "bin -> usr/bin", "usr/hidden", "home/u/", "opt/tool/", "escape -> ../../../../../etc/passwd",
		"loop -> loop", "ping -> pong", "pong -> ping", "up -> ..", "abs -> /usr/bin/sh", "out -> /etc/shadow", "file", "viafile -> file/../etc/passwd",
		"long -> /a0", "a0 -> /etc/passwd")
	usr := tree(t, "bin/sh -> dash", "bin/dash", "bin/tool -> /opt/tool/run", "local/etc/secret", "lib/deep -> ../../home/u")
	opt := tree(t, "run", "back -> /usr/bin/sh")
	empty := tree(t)
	r := Root{Dir: dir, Binds: []Bind{{usr, "/usr"}, {opt, "/opt/tool"}, {empty, "/usr/local/etc"}}}
	for path, want := range map[string]string{
		"/":                                    dir,
		"":                                     dir,
		"/etc/passwd":                          dir + "/etc/passwd",
		"etc//./passwd":                        dir + "/etc/passwd",
		"/../../etc/passwd":                    dir + "/etc/passwd",
		"/escape":                              dir + "/etc/passwd", // ".." stops at the root, as in a chroot
		"/bin/sh":                              usr + "/bin/dash",
		"/abs":                                 usr + "/bin/dash",
		"/bin/tool":                            opt + "/run",
		"/opt/tool/back":                       usr + "/bin/dash",
		"/usr/lib/deep":                        dir + "/home/u",
		"/usr/lib/deep/../../etc/passwd":       dir + "/etc/passwd", // ".." is the parent of the link's target
		"/up/up/up/etc/passwd":                 dir + "/etc/passwd",
		"/usr":                                 usr,
		"/usr/local/etc":                       empty,
		"/usr/hidden":                          "", // under the bind
		"/usr/local/etc/secret":                "", // masked
		"/loop":                                "",
		"/loop/x":                              "",
		"/ping":                                "",
		"/out":                                 "", // the host has one, the image does not
		"/file/":                               "",
		"/file/..":                             "",
		"/viafile":                             "",
		"/nothing":                             "",
		"/nothing/../etc/passwd":               "",
		"/etc/passwd\x00":                      "",
		"/" + strings.Repeat("up/", 40) + "up": "", // 41 links
	} {
		got, ok := r.Resolve(path)
		if ok != (want != "") || ok && got != want {
			t.Errorf("Resolve(%q) = %q, %v; want %q", path, got, ok, want)
		}
	}
	if _, ok := r.Resolve("/" + strings.Repeat("up/", 40) + "etc"); !ok {
		t.Error("40 links are too many")
	}
}

// The kernel gives the same answers, with the same folder as its root.
func TestResolveAgreesWithTheKernel(t *testing.T) {
	dir := tree(t, "a/b/file", "a/link -> b/file", "a/up -> ../../../a", "dir -> a/b", "bad -> a/b/file/..", "x -> x",
		"abs -> /a/b/file", "escape -> ../../../../a", "slash -> a/b/file/", "self -> .", "empty/")
	names := []string{"a", "b", "file", "link", "up", "dir", "bad", "x", "abs", "escape", "slash", "self", "empty", "none", "..", ".", ""}
	r := Root{Dir: dir}
	for _, one := range names {
		for _, two := range names {
			for _, three := range names {
				agree(t, r, strings.Join([]string{"", one, two, three}, "/"))
			}
		}
	}
}

func agree(t *testing.T, r Root, path string) {
	t.Helper()
	fd, err := unix.Openat2(unix.AT_FDCWD, r.Dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC})
	if err != nil {
		t.Skipf("openat2: %v", err)
	}
	defer unix.Close(fd)
	got, ok := r.Resolve(path)
	var file int
	for err = unix.EAGAIN; err == unix.EAGAIN; { // something on the machine was renamed meanwhile
		file, err = unix.Openat2(fd, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	}
	if err != nil {
		if ok {
			t.Errorf("Resolve(%q) = %q; the kernel says %v", path, got, err)
		}
		return
	}
	defer unix.Close(file)
	if want, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file)); got != want {
		t.Errorf("Resolve(%q) = %q, %v; the kernel says %q", path, got, ok, want)
	}
}

func TestLookPath(t *testing.T) {
	dir := tree(t, "bin/sh", "bin/dir/", "sbin/sh", "sbin/late", "bin/dangling -> nowhere")
	if err := os.WriteFile(filepath.Join(dir, "bin/late"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := Root{Dir: dir, Env: []string{"X=1", "PATH=/none:/bin:/sbin"}}
	for name, want := range map[string]string{"sh": "/bin/sh", "late": "/sbin/late", "dir": "", "dangling": "", "none": ""} {
		if got, ok := r.LookPath(name); got != want || ok != (want != "") {
			t.Errorf("LookPath(%s) = %q, %v; want %q", name, got, ok, want)
		}
	}
	if _, ok := (Root{Dir: dir}).LookPath("sh"); ok {
		t.Error("found without a PATH")
	}
}
