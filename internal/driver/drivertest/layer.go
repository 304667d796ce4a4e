package drivertest

import (
	"errors"
	"fmt"
	"testing"

	"hutch"
	"hutch/internal/driver"
)

// layered are the tests of drivers whose instances can share files.
var layered = map[string]func(*testing.T, *suite){
	"LayerIsShared":     layerIsShared,
	"LayerOutlives":     layerOutlives,
	"LayerThatIsLarge":  layerThatIsLarge,
	"LayerOfTheHostile": layerOfTheHostile,
}

// laid creates the content of the suite's layer.
const laid = `cd /workspace && mkdir -p d/e many && echo one > d/file && echo two > d/e/file && ln d/file linked && ln -s d/file soft && mkfifo pipe &&
truncate -s 1G sparse && chmod 640 d/file && chmod 700 d/e && touch -d @1000000000 d/e/file && head -c 4M /dev/urandom > large && echo h > ~/.rc && touch many/{1..50}`

func (s *suite) layer(t *testing.T, commands string) driver.Layer {
	t.Helper()
	p := s.create(t, "below")
	p.want(t, commands, "")
	p.agent.Close()
	l, err := s.driver.(driver.Layerer).Layer(t.Context(), p.Instance)
	if err != nil {
		t.Fatalf("layer: %s", explain(err))
	}
	t.Cleanup(func() { l.Close() })
	gone(t, p.Instance)
	return l
}

func (s *suite) onto(t *testing.T, l driver.Layer, id string) *instance {
	t.Helper()
	spec := s.spec(id)
	spec.Layer = l
	inst, err := s.driver.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create %s on a layer: %s", id, explain(err))
	}
	return own(t, inst)
}

// Instances see the files of a layer as their own. Each can do everything with them that the original instance could,
// and other instances do not see the changes.
func layerIsShared(t *testing.T, s *suite) {
	l := s.layer(t, laid)
	one, two := s.onto(t, l, "one"), s.onto(t, l, "two")
	const look = `cd /workspace; cat d/file d/e/file ~/.rc; readlink soft; stat -c '%A %U %G %h' d/file; stat -c '%A %Y' d/e/file; stat -c %A d/e pipe; stat -c '%s %b' sparse; find . -xdev -type f | wc -l; [ d/file -ef linked ] && echo same`
	const seen = "one\ntwo\nh\nd/file\n-rw-r----- user user 2\n-rw-r--r-- 1000000000\ndrwx------\nprw-r--r--\n1073741824 0\n55\nsame"
	for _, p := range []*instance{one, two} {
		p.want(t, look+"; hostname; cat /etc/hostname;"+ownAddress, seen+map[*instance]string{one: "\none\none\none 127.0.0.1", two: "\ntwo\ntwo\ntwo 127.0.0.1"}[p])
	}
	if u, err := one.Usage(t.Context()); err != nil || u.Disk > 1<<20 {
		t.Errorf("untouched, it uses %d bytes of its own: %v", u.Disk, err)
	}
	one.want(t, "cd /workspace; echo more >> linked; cat d/file; [ d/file -ef linked ] && echo same", "one\nmore\nsame")
	one.want(t, `cd /workspace; python3 -c 'import os; os.rename("d", "moved")'; cat moved/e/file; ls`, "two\nlarge\nlinked\nmany\nmoved\npipe\nsoft\nsparse")
	one.want(t, "cd /workspace; rm -r many; ls -d many 2>/dev/null; mkdir many; ls many; mv moved /tmp; cat /tmp/moved/e/file", "two")
	one.want(t, "cd /workspace; mknod whiteout c 0 0 2>/dev/null; rm large; echo x > large; chmod 600 large; cat large", "x")
	two.want(t, look, seen)
	two.want(t, "cmp <(head -c 4M /dev/zero) <(head -c 4M /workspace/large) >/dev/null || echo kept", "kept")
	s.onto(t, l, "three").want(t, look, seen)
}

// An instance keeps its layer when the layer is closed, and when another daemon takes over.
func layerOutlives(t *testing.T, s *suite) {
	l := s.layer(t, laid)
	p := s.onto(t, l, "one")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("late")
	spec.Layer = l
	if inst, err := s.driver.Create(t.Context(), spec); err == nil {
		own(t, inst)
		t.Error("an instance was made on a closed layer")
	}
	inst, err := s.New(t, s.dir).Recover(t.Context(), "one", p.Handle())
	if err != nil {
		t.Fatalf("recover: %s", explain(err))
	}
	p.want(t, "cat /workspace/d/e/file; rm -r /workspace/d; ls -d /workspace/d 2>&1 | wc -l", "two\n1")
	if u, err := inst.Usage(t.Context()); err != nil || u.Disk == 0 || u.Disk > 1<<20 {
		t.Errorf("recovered, it uses %d bytes of its own: %v", u.Disk, err)
	}
}

// A layer counts towards the limit of an instance: the layer and the instance's own files together stay within it.
func layerThatIsLarge(t *testing.T, s *suite) {
	const mb = "head -c %dM /dev/zero > /workspace/%s"
	half := Limits.Disk / 2
	p := s.onto(t, s.layer(t, fmt.Sprintf(mb, half-1, "zero")), "one")
	p.want(t, fmt.Sprintf(mb, half-1, "zero"), "") // all of it is available again
	if out, exit := p.run(t, fmt.Sprintf(mb, 4, "more")); exit.Code == 0 {
		t.Errorf("more than limits.disk was written: %s", out)
	}
	big := s.create(t, "big")
	big.want(t, fmt.Sprintf(mb, half+1, "zero"), "")
	if l, err := s.driver.(driver.Layerer).Layer(t.Context(), big.Instance); !errors.Is(err, hutch.Unsupported) {
		l.Close()
		t.Errorf("a layer of more than half the disk: %v", err)
	}
	gone(t, big.Instance)
}

// A hostile layer cannot lead outside, and its special files have no meaning in the overlay.
func layerOfTheHostile(t *testing.T, s *suite) {
	l := s.layer(t, `cd /workspace && ln -s / root && ln -s ../../../../etc/shadow up && mkdir dir && echo below > dir/file && mkdir $'odd\nname:,\\' &&
mkdir proc && ln -s /proc/self/fd/0 fd && chmod 0 dir && python3 - <<'END'
import os
for name, value in [("user.overlay.opaque", b"y"), ("user.overlay.redirect", b"/etc"), ("user.overlay.whiteout", b"y"), ("trusted.overlay.opaque", b"y"), ("trusted.overlay.redirect", b"/etc")]:
    try: os.setxattr("dir", name, value)
    except OSError: pass
try: os.mknod("white", 0o020666, os.makedev(0, 0))
except OSError: pass
import ctypes
open("moved", "w").close()
ctypes.CDLL(None).renameat2(-100, b"moved", -100, b"here", 4) # RENAME_WHITEOUT
END`)
	p := s.onto(t, l, "one")
	p.want(t, "cd /workspace; chmod 700 dir; cat dir/file; cat root/etc/hostname; cat up 2>/dev/null || echo none; readlink fd; ls -d odd*", "below\none\nnone\n/proc/self/fd/0\nodd\nname:,\\")
	p.want(t, "cd /workspace; stat -c %n * >/dev/null || ls; ls -d white moved here 2>/dev/null | cat", "moved") // every name has a file
	p.want(t, `python3 -c '
import os
for name in ["trusted.overlay.opaque", "trusted.overlay.redirect"]:
    try: os.setxattr("/workspace/dir", name, b"y"); print("set", name)
    except OSError: pass
try: os.mknod("/workspace/white2", 0o020666, os.makedev(0, 0)); print("whiteout")
except OSError: pass
'; grep -c ' / overlay ' /proc/mounts`, "1")
}
