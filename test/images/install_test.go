package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/linux/subid"
)

// TestInstalls: apt-get of an image installs a package as root. It fetches as the user _apt, and gives files away.
func TestInstalls(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			if !hutchtest.HasRoot(runtime) {
				t.Skip("no command is root on native without root and subordinate ids")
			}
			testInstalls(t, newBed(t, runtime))
		})
	}
}

func testInstalls(t *testing.T, b *bed) {
	const name = "localhost/apt:1"
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(debian.WriteArchive(w, name, func(w *tar.Writer) error {
			return debian.WriteWith(w, "apt", "mawk", "dash", "sed", "gzip", "findutils", "libc-bin", "diffutils", "debconf", "perl-base", "passwd", "util-linux")
		}))
	}()
	if _, err := b.LoadImages(t.Context(), "", r); err != nil {
		t.Fatal(err)
	}
	sb, err := b.Create(t.Context(), hutch.CreateRequest{Image: name, Limits: hutch.Limits{Memory: 512, Disk: 256}})
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	b.run(t, sb.ID, `set -e
printf '_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n' >>/etc/passwd
printf 'root:x:0:\nadm:x:4:\nshadow:x:42:\nnogroup:x:65534:\n' >/etc/group
mkdir -p /repo/p/DEBIAN /repo/p/usr/bin /repo/p/srv/web /var/cache/apt/archives/partial /var/lib/apt/lists/partial /var/log/apt /var/lib/dpkg/info /var/lib/dpkg/updates /etc/apt/apt.conf.d /etc/apt/preferences.d
touch /var/lib/dpkg/available
cd /repo
printf 'Package: gift\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: gift\n' >p/DEBIAN/control
printf '#!/bin/sh\nset -e\nchown 33:33 /srv/web\n' >p/DEBIAN/postinst
chmod 755 p/DEBIAN/postinst
cp /usr/bin/id p/usr/bin/giftid; chmod 4755 p/usr/bin/giftid
echo text >p/srv/web/index; chown 77:88 p/srv/web/index; chmod 640 p/srv/web/index
dpkg-deb --build p gift.deb >/dev/null; rm -r p
(cat <<END
Package: gift
Version: 1
Architecture: all
Maintainer: t <t@example.com>
Filename: ./gift.deb
Size: $(stat -c %s gift.deb)
SHA256: $(sha256sum gift.deb | cut -d' ' -f1)
Description: gift
END
) >Packages
echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -qy install gift`)
	if got := b.run(t, sb.ID, "stat -c '%u %g %a' /srv/web /srv/web/index /usr/bin/giftid; setpriv --reuid 77 --regid 88 --clear-groups sh -c 'giftid -u; cat /srv/web/index'"); got != "33 33 755\n77 88 640\n0 0 4755\n0\ntext" {
		t.Errorf("after the installation: %q", got)
	}
}

// TestUnpackedImageIsRemoved: files that belong to subordinate ids go with their image, and a start of the server
// removes those that a killed server has left.
func TestUnpackedImageIsRemoved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("TestSubordinate runs it as a user with subordinate ids")
	}
	ids, err := subid.Find()
	if err != nil {
		t.Skip(err)
	}
	b := newBed(t, "native")
	sb := b.make(t, "hello:1")
	roots, temp := filepath.Join(b.data, datadir.OCI, "roots"), filepath.Join(b.data, datadir.OCI, "tmp")
	trees, err := filepath.Glob(roots + "/*.tree-*")
	if err != nil || len(trees) != 1 {
		t.Fatalf("the unpacked images are %v, %v", trees, err)
	}
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	b.End(t)
	for _, dir := range []string{roots + "/.new-killed", temp + "/gone-killed"} { // half given away
		if err := errors.Join(os.MkdirAll(dir+"/tree/a/b", 0o755), os.WriteFile(dir+"/tree/a/file", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := ids.Give(dir+"/tree", []subid.Owner{{Path: "a/b", UID: 7, GID: 8}, {Path: "a/file"}, {Path: "a"}}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	b.start(t)
	if err := b.DeleteImage(t.Context(), "hello:1"); err != nil {
		t.Fatal(err)
	}
	sb = b.make(t, "shout:1") // unpacking removes what was left there
	if _, err := b.Destroy(t.Context(), sb.ID, true); err != nil {
		t.Fatal(err)
	}
	var left []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		there, _ := filepath.Glob(temp + "/*")
		killed, _ := filepath.Glob(roots + "/.new-*")
		if left = append(there, killed...); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(trees[0]); !os.IsNotExist(err) {
		t.Errorf("the unpacked image is still there: %v", err)
	}
}
