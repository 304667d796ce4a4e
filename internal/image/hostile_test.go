package image

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Folders that no kernel can make are refused before a folder is planned for each of their parts.
func TestImpossibleFolders(t *testing.T) {
	t.Parallel()
	path := writeEROFS(t, map[string]string{"/program": "x"})
	for name, folder := range map[string]string{
		"deep": strings.Repeat("/a", 3000), "long name": "/" + strings.Repeat("a", 256), "NUL": "/a\x00b",
	} {
		for what, opt := range map[string]EROFSOptions{
			"working folder": {WorkingDir: folder}, "home": {User: &Account{UID: 5, Home: folder}},
		} {
			if root, err := FromEROFS(path, opt); !errors.Is(err, ErrFolder) {
				t.Errorf("%s %s: %v, and %d files", name, what, err, len(root.Files))
			}
		}
	}
}

// A working folder is below the root, whatever it is called.
func TestRelativeWorkingDir(t *testing.T) {
	t.Parallel()
	path := writeEROFS(t, map[string]string{"/program": "x"})
	for given, want := range map[string]string{"srv/app": "/srv/app", "../..": "/", "/a/../../b": "/b", "": Workspace} {
		root, err := FromEROFS(path, EROFSOptions{WorkingDir: given})
		check(t, err)
		if got := root.Workdir(); got != want {
			t.Errorf("%q: commands start in %s, not %s", given, got, want)
		}
		if _, ok := root.file(want); !ok {
			t.Errorf("%q: there is no %s", given, want)
		}
	}
}

// An image cannot make every sandbox write a store of certificates at thousands of paths.
func TestManyJavaStores(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("/opt/a/%d/lib/security/cacerts", i)] = ""
	}
	authority, _ := newAuthority(t)
	began := time.Now()
	root, err := FromEROFS(writeEROFS(t, files), EROFSOptions{Authority: authority})
	check(t, err)
	if len(root.Files) > 200 {
		t.Errorf("each sandbox gets %d files, after %v", len(root.Files), time.Since(began))
	}
}

// An image can have anything in place of a bundle of certificates, and nothing fails.
func TestStrangeBundles(t *testing.T) {
	t.Parallel()
	authority, _ := newAuthority(t)
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	for name, files := range map[string]map[string]string{
		"folder": {bundle + "/x": "x"}, "huge": {bundle: strings.Repeat("\n", mostBundle+1)}, "loop": {bundle: "->" + bundle},
	} {
		if _, err := FromEROFS(writeEROFS(t, files), EROFSOptions{Authority: authority}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A home or a working folder does not replace a file or a mount point of Hutch.
func TestFoldersOverOurs(t *testing.T) {
	t.Parallel()
	path := writeEROFS(t, map[string]string{"/program": "x"})
	for _, at := range []string{"/etc/hosts", "/etc/hosts/x", AgentPath + "/x", SocketDir + "/x", "/.hutch/x", "/proc/x", "/dev/x"} {
		root, err := FromEROFS(path, EROFSOptions{WorkingDir: at, User: &Account{UID: 5, Home: at}})
		check(t, err)
		if f, ok := root.file(at); ok && f.Mode.IsDir() {
			t.Errorf("%s is %+v", at, f)
		}
		if f, ok := root.file("/etc/hosts"); !ok || f.Content == "" {
			t.Errorf("%s: the file of names is %+v", at, f)
		}
	}
}
