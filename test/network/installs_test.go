package network

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/ociimages"
	"hutch/internal/images"
)

// TestInstalls: root of an image installs packages with apt-get, pip and npm from the registries that the rules allow,
// and an ordinary user becomes root with sudo, without a password. apt-get fetches as a user of its own, and dpkg gives
// files to other users.
func TestInstalls(t *testing.T) {
	images := openInstalls(t)
	each(t, func(t *testing.T, runtime string) {
		if !hutchtest.HasRoot(runtime) {
			t.Skip("no command is root on native without root and subordinate ids")
		}
		w := newWorld(t)
		w.sites = packageSites(t)
		s := w.debian(t, runtime, images, hutch.Network{Allow: hutch.Rules("deb.example.com", "pypi.example.com", "npm.example.com")})
		for _, c := range []struct{ user, command, want string }{
			{"app", "id -u; sudo -n id -u; sudo -n -u _apt id -u", "1000\n0\n100\n"},
			{"app", "sudo -n apt-get -q update && sudo -n DEBIAN_FRONTEND=noninteractive apt-get -qy install gift && stat -c '%u %g %a' /srv/web /srv/web/index /usr/bin/giftid && giftid -u && cat /srv/web/index",
				"33 33 755\n77 88 640\n0 0 4755\n0\ncat: /srv/web/index: Permission denied\n"},
			{"root", "PIP_CERT=/workspace/ca.pem PIP_BREAK_SYSTEM_PACKAGES=1 pip install -q --no-cache-dir --disable-pip-version-check --root-user-action=ignore --index-url https://pypi.example.com/simple/ wheelgift && wheelgift", "a gift of pip\n"},
			{"root", "NODE_EXTRA_CA_CERTS=/workspace/ca.pem npm install -g --loglevel=error --no-audit --no-fund --no-update-notifier --registry https://npm.example.com/ nodegift && nodegift", "a gift of npm\n"},
			{"app", "wheelgift && nodegift", "a gift of pip\na gift of npm\n"},
			{"root", "echo 'deb [trusted=yes] http://evil.example.net/ ./' >/etc/apt/sources.list && apt-get -q update 2>&1 | grep -q \"Could not resolve 'evil.example.net'\" && echo refused", "refused\n"},
		} {
			if out, code := s.runAs(t, c.user, c.command); !strings.HasSuffix(out, c.want) {
				t.Errorf("%s as %s exits with %d: %s", c.command, c.user, code, out)
			}
		}
		for _, c := range s.log(t) {
			if c.Verdict == hutch.Refused && c.Host != evil {
				t.Errorf("refused: %+v", c)
			}
		}
	})
}

// TestSubordinate: a server without root that has subordinate ids installs as well.
func TestSubordinate(t *testing.T) {
	if !hutchtest.Full() {
		t.Skip("make test-full has it")
	}
	hutchtest.OpenTun(t)
	hutchtest.Subordinate(t, "TestInstalls/native")
}

// runAs runs a command line as a user and returns all it printed.
func (s *sandbox) runAs(t *testing.T, user, command string) (string, int) {
	t.Helper()
	res, err := s.engine.Exec(t.Context(), s.id, hutch.ExecRequest{Command: "exec 2>&1; " + command, User: user, Timeout: 120}, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(res.Stdout), res.ExitCode
}

// installTools are the packages of the image. PAM and apt have no settings, because their install scripts have not run.
var installTools = []string{
	"apt", "mawk", "dash", "sed", "gzip", "findutils", "libc-bin", "diffutils", "debconf", "perl-base", "passwd", "util-linux", "sudo", "libpam-modules", "python3-pip",
}

const installSettings = `set -e
printf '_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\napp:x:1000:1000::/home/user:/bin/bash\n' >>/etc/passwd
printf 'root:x:0:\nadm:x:4:\nshadow:x:42:\nnogroup:x:65534:\napp:x:1000:\n' >/etc/group
mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial /var/log/apt /var/lib/dpkg/info /var/lib/dpkg/updates /etc/apt/apt.conf.d /etc/apt/preferences.d /etc/pam.d /etc/sudoers.d
touch /var/lib/dpkg/available
for kind in auth account password session session-noninteractive; do echo "${kind%-*} required pam_permit.so" >/etc/pam.d/common-$kind; done
echo 'app ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/app
chmod 0440 /etc/sudoers.d/app
echo 'deb [trusted=yes] http://deb.example.com/ ./' >/etc/apt/sources.list`

const installsName = "localhost/installs:1"

// openInstalls makes the image: a Debian with package managers.
func openInstalls(t *testing.T) *images.Images {
	t.Helper()
	node, nodePackage := program(t, "node")
	npm, npmPackage := program(t, "npm")
	return ociimages.Open(t, installsName, v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}, func(w *tar.Writer) error {
		if npmPackage != nodePackage { // npm is Debian's own, in many packages
			return debian.WriteWith(w, append(installTools, nodePackage, npmPackage)...)
		}
		dir := filepath.Dir(filepath.Dir(npm)) // npm can have been replaced after its package was installed
		return errors.Join(debian.WriteWith(w, installTools...), debian.WriteTree(w, node), debian.WriteTree(w, "/usr/bin/npm"), debian.WriteTree(w, dir))
	})
}

// debian returns a sandbox of the image. Its commands run as an ordinary user.
func (w *world) debian(t *testing.T, runtime string, images *images.Images, n hutch.Network) *sandbox {
	t.Helper()
	e := w.engine(t, runtime, func(o *engine.Options) { ociimages.Use(o, images) })
	sb, err := e.Create(t.Context(), hutch.CreateRequest{Image: installsName, User: "1000", Network: n, Limits: hutch.Limits{Memory: 512, Disk: 256}})
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	s := &sandbox{w, e, sb.ID}
	if _, err := e.WriteFile(t.Context(), s.id, hutch.WriteRequest{Path: "ca.pem"}, bytes.NewReader(w.authority)); err != nil {
		t.Fatal(err)
	}
	if out, code := s.runAs(t, "root", installSettings); code != 0 {
		t.Fatalf("the settings of the image: %s", out)
	}
	return s
}

// program returns the path of a program, and the package of this machine that has it.
func program(t *testing.T, name string) (path, owner string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		hutchtest.Skip(t, "%s is missing: apt-get install %s", name, name)
	}
	out, err := exec.Command("dpkg", "-S", path).Output()
	owner, _, ok := strings.Cut(string(out), ":")
	if err != nil || !ok {
		hutchtest.Skip(t, "%s is not of a package of Debian: %v", path, err)
	}
	return path, owner
}

// packageSites returns registries with one package each, by the names of their hosts.
func packageSites(t *testing.T) map[string]http.Handler {
	deb, wheel, tarball := debPackage(t), pythonPackage(t), nodePackage(t)
	serve := func(files map[string][]byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			content, ok := files[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Write(content)
		})
	}
	sum := sha512.Sum512(tarball)
	return map[string]http.Handler{
		"deb.example.com": serve(map[string][]byte{
			"/./gift.deb": deb, "/gift.deb": deb,
			"/./Packages": packageIndex(deb), "/Packages": packageIndex(deb),
		}),
		"pypi.example.com": serve(map[string][]byte{
			"/simple/wheelgift/":                    fmt.Appendf(nil, `<!DOCTYPE html><a href="/files/wheelgift-1.0-py3-none-any.whl#sha256=%x">wheelgift-1.0-py3-none-any.whl</a>`, sha256.Sum256(wheel)),
			"/files/wheelgift-1.0-py3-none-any.whl": wheel,
		}),
		"npm.example.com": serve(map[string][]byte{
			"/nodegift": fmt.Appendf(nil, `{"name":"nodegift","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"nodegift","version":"1.0.0","bin":{"nodegift":"gift.js"},
"dist":{"tarball":"https://npm.example.com/nodegift/-/nodegift-1.0.0.tgz","integrity":"sha512-%s"}}}}`, base64.StdEncoding.EncodeToString(sum[:])),
			"/nodegift/-/nodegift-1.0.0.tgz": tarball,
		}),
	}
}

const giftControl = "Package: gift\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: gift\n"

func packageIndex(deb []byte) []byte {
	return fmt.Appendf(nil, "%sFilename: ./gift.deb\nSize: %d\nSHA256: %x\n", giftControl, len(deb), sha256.Sum256(deb))
}

// file is a file of a package.
type file struct {
	name, content string
	mode          int64
	uid, gid      int
}

func tarOf(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.uid, Gid: f.gid, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.content)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// debPackage returns a package with a setuid program, a file of another user, and a script that gives a folder away.
func debPackage(t *testing.T) []byte {
	t.Helper()
	id, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range []struct {
		name    string
		content []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar.gz", tarOf(t, file{"./control", giftControl, 0o644, 0, 0}, file{"./postinst", "#!/bin/sh\nset -e\nchown 33:33 /srv/web\n", 0o755, 0, 0})},
		{"data.tar.gz", tarOf(t, file{"./usr/", "", 0o755, 0, 0}, file{"./usr/bin/", "", 0o755, 0, 0}, file{"./usr/bin/giftid", string(id), 0o4755, 0, 0},
			file{"./srv/", "", 0o755, 0, 0}, file{"./srv/web/", "", 0o755, 0, 0}, file{"./srv/web/index", "text\n", 0o640, 77, 88})},
	} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, 0, 0, 0, 0o100644, len(m.content))
		b.Write(m.content)
		if len(m.content)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// pythonPackage returns a wheel with a command.
func pythonPackage(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"wheelgift.py":                             "def main():\n    print('a gift of pip')\n",
		"wheelgift-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: wheelgift\nVersion: 1.0\n",
		"wheelgift-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"wheelgift-1.0.dist-info/entry_points.txt": "[console_scripts]\nwheelgift = wheelgift:main\n",
		"wheelgift-1.0.dist-info/RECORD":           "wheelgift.py,,\n",
	} {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nodePackage returns a package of npm with a command.
func nodePackage(t *testing.T) []byte {
	t.Helper()
	return tarOf(t,
		file{"package/package.json", `{"name":"nodegift","version":"1.0.0","bin":{"nodegift":"gift.js"}}`, 0o644, 0, 0},
		file{"package/gift.js", "#!/usr/bin/env node\nconsole.log('a gift of npm')\n", 0o755, 0, 0})
}
