package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
)

// writeEROFS makes an image file of regular files, and of links where the text
// begins with "->". A name that ends with a slash is a folder.
func writeEROFS(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.erofs")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.Create(f)
	made := map[string]bool{"/": true}
	var mkdir func(dir string)
	mkdir = func(dir string) {
		if !made[dir] {
			made[dir] = true
			mkdir(filepath.Dir(dir))
			check(t, w.Mkdir(dir, 0o755))
		}
	}
	for name, text := range files {
		mkdir(filepath.Dir(filepath.Clean(name)))
		target, link := strings.CutPrefix(text, "->")
		switch {
		case strings.HasSuffix(name, "/"):
			mkdir(filepath.Clean(name))
		case link:
			check(t, w.Symlink(target, name))
		default:
			out, err := w.Create(name)
			check(t, err)
			_, err = io.WriteString(out, text)
			check(t, err)
			check(t, out.Close())
		}
	}
	check(t, w.Close())
	return path
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r Root) file(path string) (File, bool) {
	i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
	if i < 0 {
		return File{}, false
	}
	return r.Files[i], true
}

// A sandbox of an image with a single file has all that it needs.
func TestEmptyEROFS(t *testing.T) {
	t.Parallel()
	root, err := FromEROFS(writeEROFS(t, map[string]string{"/program": "x"}), EROFSOptions{WorkingDir: "/srv/app"})
	check(t, err)
	for path, want := range map[string]File{
		"/proc": {Mode: 0o755 | fs.ModeDir}, "/tmp": {Mode: 0o777 | fs.ModeDir | fs.ModeSticky}, AgentPath: {Mode: 0o755},
		Workspace: {Mode: 0o755 | fs.ModeDir, UID: UID, GID: GID}, Home: {Mode: 0o755 | fs.ModeDir, UID: UID, GID: GID},
		"/srv/app":         {Mode: 0o755 | fs.ModeDir, UID: UID, GID: GID},
		"/etc/resolv.conf": {Mode: 0o644, Content: own["resolv.conf"]},
	} {
		want.Path = path
		if got, ok := root.file(path); !ok || got != want {
			t.Errorf("%s is %+v, not %+v", path, got, want)
		}
	}
	if root.Getenv("PATH") == "" {
		t.Error("there is no PATH")
	}
	other, err := root.As(Account{UID: 7, GID: 8, Home: "home/seven"})
	check(t, err)
	for path, want := range map[string]int{Workspace: 7, "/srv/app": 7, "/home/seven": 7, Home: UID, "/tmp": 0, "/home": 0} {
		if got, ok := other.file(path); !ok || got.UID != want {
			t.Errorf("for another user, %s is %+v", path, got)
		}
	}
	if kept, _ := root.file(Workspace); kept.UID != UID || other.Account().Home != "/home/seven" {
		t.Errorf("another user is %+v, and has changed the first root to %+v", other.Account(), kept)
	}
	seen := map[string]bool{"/": true}
	for _, f := range root.Files {
		if !seen[filepath.Dir(f.Path)] {
			t.Errorf("%s comes before its folder", f.Path)
		}
		seen[f.Path] = true
	}
}

// The links of an image do not change where our files are.
func TestEROFSWithLinks(t *testing.T) {
	t.Parallel()
	root, err := FromEROFS(writeEROFS(t, map[string]string{
		"/etc": "->../../../../var/lib", "/var/lib/hosts": "theirs", "/proc": "->/", "/.hutch": "->/var", "/loop": "->/loop", "/tmp": "->/loop",
	}), EROFSOptions{WorkingDir: "/loop", Authority: []byte("certificate\n")})
	check(t, err)
	for _, path := range []string{"/etc", "/proc", "/.hutch", "/tmp"} {
		if f, ok := root.file(path); !ok || !f.Mode.IsDir() {
			t.Errorf("%s is %+v, and no folder of ours", path, f)
		}
	}
	if f, ok := root.file("/var/lib/hosts"); ok {
		t.Errorf("the link was followed: %+v", f)
	}
}

// The authorities that an image trusts stay trusted, wherever the image keeps their certificates.
func TestEROFSTrusts(t *testing.T) {
	t.Parallel()
	authority, _ := newAuthority(t)
	const bundle = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	root, err := FromEROFS(writeEROFS(t, map[string]string{
		bundle: "theirs\n", "/etc/pki/tls/certs/ca-bundle.crt": "->" + bundle, "/opt/java/openjdk/lib/security/cacerts": "old",
	}), EROFSOptions{Env: []string{"SSL_CERT_FILE=/theirs", "PATH=/bin"}, Authority: authority})
	check(t, err)
	if f, ok := root.file(bundle); !ok || f.Content != "theirs\n"+string(authority) {
		t.Errorf("the bundle is %+v", f)
	}
	if f, ok := root.file("/opt/java/openjdk/lib/security/cacerts"); !ok || f.Content == "" || f.Content == "old" {
		t.Error("Java does not trust the authority")
	}
	if got := root.Getenv("SSL_CERT_FILE"); got != bundle {
		t.Errorf("SSL_CERT_FILE is %s", got)
	}
	if _, ok := root.file("/etc/ssl/certs/ca-certificates.crt"); ok {
		t.Error("the image got a second bundle")
	}
}

// An image without a bundle gets the authorities of this machine and ours: programs that bring their own use the bundle, too,
// and must reach the hosts that they reach elsewhere.
func TestEROFSWithoutBundle(t *testing.T) {
	t.Parallel()
	authority, _ := newAuthority(t)
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	for name, c := range map[string]struct {
		files map[string]string
		at    string
	}{
		"none":     {map[string]string{"/bin/sh": "x"}, bundle},
		"a folder": {map[string]string{bundle + "/x": "x"}, "/etc/ssl/certs/hutch-bundle.pem"},
	} {
		root, err := FromEROFS(writeEROFS(t, c.files), EROFSOptions{Authority: authority})
		check(t, err)
		f, ok := root.file(c.at)
		if !ok || root.Getenv("REQUESTS_CA_BUNDLE") != c.at || !strings.HasSuffix(f.Content, string(authority)) {
			t.Fatalf("%s: REQUESTS_CA_BUNDLE is %s, and %s is %+v", name, root.Getenv("REQUESTS_CA_BUNDLE"), c.at, f)
		}
		if got, want := len(certificates([]byte(f.Content))), len(certificates([]byte(machineBundle())))+1; got != want {
			t.Errorf("%s: the bundle has %d authorities, not %d", name, got, want)
		}
	}
}

// TestWriteTar: an archive of an image has what a sandbox has over it, and nothing behind a link of the image.
func TestWriteTar(t *testing.T) {
	path := writeEROFS(t, map[string]string{"etc/passwd": "root", "etc/hosts": "of the image", "bin/tool": "tool", "sh": "->bin/tool", "tmp": "->/etc", "workspace/a": "1"})
	root, err := FromEROFS(path, EROFSOptions{})
	check(t, err)
	var out bytes.Buffer
	check(t, root.WriteTar(&out))
	found := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		check(t, err)
		if _, twice := found[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		text, err := io.ReadAll(r)
		check(t, err)
		found[h.Name] = fmt.Sprintf("%c%o %d %s%s", h.Typeflag, h.Mode, h.Uid, h.Linkname, text)
	}
	for name, want := range map[string]string{
		"etc/passwd": "0644 0 root", "bin/tool": "0644 0 tool", "sh": "2777 0 bin/tool", "tmp/": "51777 0 ", "workspace/": "5755 1000 ", "workspace/a": "0644 0 1", "etc/": "5755 0 ",
	} {
		if got := found[name]; got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if hosts := found["etc/hosts"]; strings.Contains(hosts, "of the image") || !strings.Contains(hosts, "127.0.0.1") {
		t.Errorf("etc/hosts is %q", hosts)
	}
}
