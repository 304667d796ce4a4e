package drivertest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// imaged are the tests of drivers that can use an image's EROFS file.
var imaged = map[string]func(*testing.T, *suite){
	"ImageWithoutShell":  imageWithoutShell,
	"ImageWithShell":     imageWithShell,
	"ImageOwners":        imageOwners,
	"ImageDiskLimit":     imageDiskLimit,
	"ImageIsShared":      imageIsShared,
	"ImageOfTheHostile":  imageOfTheHostile,
	"ImageRoot":          imageRoot,
	"ImageEnvIsData":     imageEnvIsData,
	"ImageRecovers":      imageRecovers,
	"ImageThatIsMissing": imageThatIsMissing,
}

// unwritten are the tests that also apply to drivers whose instances cannot write over the image's own files.
var unwritten = []string{"ImageOfTheHostile", "ImageEnvIsData", "ImageRecovers", "ImageThatIsMissing"}

// A driver that has only the host's programs refuses images with a clear error.
func refusesImages(t *testing.T, s *suite) {
	spec := s.spec("image")
	spec.Root = image.Root{EROFS: "/image.erofs"}
	if inst, err := s.driver.Create(t.Context(), spec); err == nil {
		own(t, inst)
		t.Error("an instance was made from an image's file")
	} else if !errors.Is(err, hutch.Unsupported) {
		t.Errorf("the refusal is %s", explain(err))
	}
}

// An image can contain one program and nothing else: no shell, no list of users, no folder.
func imageWithoutShell(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{Env: []string{"WHO=image"}, WorkingDir: "/srv/app"})
	p := s.create(t, "scratch")
	p.wantProbe(t, "1000 1000 [] /srv/app /home/user", "id")
	if out, exit := p.run(t, "'/probe' 'cat' '/etc/hostname'"); exit.Code != 0 || out != "scratch\n" {
		t.Errorf("a program with arguments in quotes: %q, exit code %d", out, exit.Code)
	}
	_, err := p.agent.Run(t.Context(), wire.Start{ID: "sh", Command: "echo a shell; true"}, nil, nil)
	if !errors.Is(err, hutch.Unsupported) || !strings.Contains(fmt.Sprint(err), "/bin/sh") || !strings.Contains(fmt.Sprint(err), "hutch exec") {
		t.Errorf("a command line without a shell: %v", err)
	}
	for _, dir := range []string{image.Workspace, image.Data, image.Home, "/tmp", "/var/tmp", "/srv/app", "/dev/shm"} {
		p.wantProbe(t, "", "write", dir+"/file", "written")
		p.wantProbe(t, "written", "cat", dir+"/file")
		p.wantProbe(t, "-rw-r--r-- 1000 1000", "stat", dir+"/file")
	}
	for _, path := range []string{"/file", "/etc/hosts", "/usr/file", "/probe", "/.hutch/file", "/.hutch/agent", "/proc/sys/kernel/hostname"} {
		if out, exit := p.probe(t, "write", path, "evil"); exit.Code == 0 && !s.OneOwner {
			t.Errorf("%s could be written to: %s", path, out)
		}
	}
	if out, _ := p.probe(t, "cat", "/etc/hosts"); !strings.Contains(out, "127.0.0.1 localhost scratch") {
		t.Errorf("/etc/hosts is %q", out)
	}
	p.wantProbe(t, "scratch", "cat", "/etc/hostname")
	p.wantProbe(t, "scratch", "cat", "/proc/sys/kernel/hostname")
	if out, _ := p.probe(t, "cat", "/etc/resolv.conf"); !strings.Contains(out, "nameserver") {
		t.Errorf("/etc/resolv.conf is %q", out)
	}
	if out, _ := p.probe(t, "cat", "/proc/self/environ"); !strings.Contains(out, "WHO=image\x00") {
		t.Errorf("the environment is %q", out)
	}
}

// An image can contain a shell and little else.
func imageWithShell(t *testing.T, s *suite) {
	files := hostPrograms(t, "/bin/sh", "/bin/cat", "/usr/bin/id")
	s = s.onImage(t, WriteImage(t, files), image.EROFSOptions{User: &image.Account{UID: 4321, GID: 99, Groups: []int{7, 8}, Home: "/home/other"}})
	if s.OneOwner {
		s.Root.User = nil
	}
	p := s.create(t, "shell")
	p.want(t, "echo one | cat; echo two >&2; cd /tmp && echo three > f && cat f", "one\nthree\ntwo")
	if !s.OneOwner {
		p.want(t, "id -u; id -g; id -G; pwd; echo $HOME", "4321\n99\n99 7 8\n/workspace\n/home/other")
		p.want(t, "cat < /dev/null; echo x > /dev/null; echo y > ~/z; cat /home/other/z", "y")
	}
}

// Owners, modes and links are those of the image.
func imageOwners(t *testing.T, s *suite) {
	if s.OneOwner {
		t.Skip("all files belong to one user here")
	}
	s = s.onImage(t, probeImage(t,
		ImageFile{Path: "/etc", Mode: 0o755 | fs.ModeDir},
		ImageFile{Path: "/etc/shadow", Mode: 0o640, GID: 42, Content: []byte("secret")},
		ImageFile{Path: "/srv", Mode: 0o700 | fs.ModeDir, UID: 70, GID: 70},
		ImageFile{Path: "/mine", Mode: 0o700 | fs.ModeDir, UID: 1000, GID: 1000},
		ImageFile{Path: "/mine/file", Mode: 0o600, UID: 1000, GID: 1000, Content: []byte("mine")},
		ImageFile{Path: "/far", Mode: 0o644, UID: 65534, GID: 65534},
		ImageFile{Path: "/link", Link: "/mine/file"},
	), image.EROFSOptions{})
	p := s.create(t, "owners")
	for path, want := range map[string]string{
		"/etc/shadow": "-rw-r----- 0 42", "/srv": "drwx------ 70 70", "/mine": "drwx------ 1000 1000", "/far": "-rw-r--r-- 65534 65534",
		"/tmp": "dtrwxrwxrwx 0 0", "/probe": "-rwxr-xr-x 0 0",
	} {
		p.wantProbe(t, want, "stat", path)
	}
	for _, path := range []string{"/etc/shadow", "/srv/x"} {
		if out, exit := p.probe(t, "cat", path); exit.Code == 0 {
			t.Errorf("%s could be read: %q", path, out)
		}
	}
	p.wantProbe(t, "", "write", "/mine/file", "changed")
	p.wantProbe(t, "changed", "cat", "/link")
	p.wantProbe(t, "-rw------- 1000 1000", "stat", "/mine/file")
}

// The disk limit applies to files written over an image, and these files are counted.
func imageDiskLimit(t *testing.T, s *suite) {
	s.needLimit(t, "disk")
	s = s.onImage(t, probeImage(t), image.EROFSOptions{})
	p := s.create(t, "full")
	before, err := p.Usage(t.Context())
	if err != nil || before.Disk > 4<<20 {
		t.Errorf("an unused instance has %d bytes of written files, error %v", before.Disk, err)
	}
	out, exit := p.probe(t, "fill", "/workspace/big", strconv.Itoa(2*Limits.Disk))
	if exit.Code == 0 || !strings.Contains(out, "no space left on device") {
		t.Errorf("twice the disk limit could be written: exit code %d, %s", exit.Code, out)
	}
	if u, err := p.Usage(t.Context()); err != nil || u.Disk < int64(Limits.Disk)<<19 || u.Disk > int64(Limits.Disk+4)<<20 {
		t.Errorf("the full instance has %d bytes of written files, error %v", u.Disk, err)
	}
	p.wantProbe(t, "", "rm", "/workspace/big")
	p.wantProbe(t, "", "write", "/workspace/small", "fits")
}

// Instances of one image cannot see each other's files, and cannot change the image.
func imageIsShared(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t, ImageFile{Path: "/mine", Mode: 0o644, UID: 1000, GID: 1000, Content: []byte("image")}), image.EROFSOptions{})
	sum := fileSum(t, s.Root.EROFS)
	one, two := s.create(t, "one"), s.create(t, "two")
	one.wantProbe(t, "", "write", "/mine", "changed")
	one.wantProbe(t, "", "write", "/workspace/file", "one")
	two.wantProbe(t, "image", "cat", "/mine")
	two.wantProbe(t, "", "ls", "/workspace")
	if fileSum(t, s.Root.EROFS) != sum {
		t.Error("the image has changed")
	}
}

func fileSum(t *testing.T, path string) [32]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(text)
}

// The links of an image cannot lead out of the image, and cannot redirect our own files.
func imageOfTheHostile(t *testing.T, s *suite) {
	outside := t.TempDir()
	files := []ImageFile{{Path: "/dev", Link: outside}, {Path: "/proc", Link: "../../../../" + outside}, {Path: "/sys", Link: "/"}, {Path: "/.hutch", Link: outside}, {Path: "/etc", Link: "/proc/1/root/etc"}, {Path: "/tmp", Link: "/loop"}, {Path: "/loop", Link: "/loop"}, {Path: "/workspace", Mode: 0o644, Content: []byte("a file")}, {Path: "/home", Link: outside}}
	s = s.onImage(t, probeImage(t, files...), image.EROFSOptions{WorkingDir: "/workspace"})
	p := s.create(t, "hostile")
	p.wantProbe(t, "", "write", "/tmp/file", "x")
	p.wantProbe(t, "", "write", "/workspace/file", "x")
	p.wantProbe(t, "", "write", "/dev/null", "x")
	if out, _ := p.probe(t, "cat", "/etc/resolv.conf"); !strings.Contains(out, "nameserver") {
		t.Errorf("/etc/resolv.conf is %q", out)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("the host has %v now, error %v", left, err)
	}
	inner := []ImageFile{
		{Path: "/dev/null", Link: "/etc/passwd"}, {Path: "/dev/shm", Link: outside}, {Path: "/dev/pts", Link: outside}, {Path: "/.hutch/agent", Mode: 0o755 | fs.ModeDir}, {Path: "/.hutch/run", Link: outside},
		{Path: "/etc/hosts", Link: outside + "/hosts"}, {Path: "/etc/hostname", Mode: 0o755 | fs.ModeDir}, {Path: "/sys/fs", Link: outside}, {Path: "/proc/self", Link: outside}, {Path: "/sys/devices", Link: outside},
	}
	s = s.onImage(t, probeImage(t, inner...), image.EROFSOptions{})
	p = s.create(t, "hostile-inside")
	p.wantProbe(t, "", "write", "/dev/null", "x")
	p.wantProbe(t, "", "write", "/dev/shm/file", "x")
	p.wantProbe(t, "hostile-inside", "cat", "/etc/hostname")
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("the host has %v now, error %v", left, err)
	}
}

// Commands are root if the image says so and the runtime can protect the agent from root. Otherwise root is refused.
func imageRoot(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{User: &image.Account{Home: "/root"}})
	if can, _ := s.driver.Defaults().CanBeRoot(); !can {
		if inst, err := s.driver.Create(t.Context(), s.spec("root")); err == nil {
			own(t, inst)
			t.Fatal("commands run as user 0")
		} else if !strings.Contains(explain(err), "user 0") {
			t.Errorf("the refusal is %s", explain(err))
		}
		return
	}
	p := s.create(t, "root")
	p.wantProbe(t, "0 0 [] /workspace /root", "id")
	if out, exit := p.probe(t, "attack-as-root"); exit.Code != 0 || strings.Contains(out, "REACHED") || !strings.Contains(out, "denied\tthe root of a changed root") {
		t.Errorf("exit code %d:\n%s", exit.Code, out)
	}
	p.wantProbe(t, "0 0 [] /workspace /root", "id")
}

// The environment of an image does not affect the agent.
func imageEnvIsData(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{Env: []string{"HUTCH_BOOT=e30=", "GODEBUG=inittrace=1", "GOMAXPROCS=64", "HUTCH_PROCESS=theirs"}})
	p := s.create(t, "env")
	out, _ := p.probe(t, "cat", "/proc/self/environ")
	if !strings.Contains(out, "GOMAXPROCS=64\x00") || strings.Contains(out, "HUTCH_PROCESS=theirs") {
		t.Errorf("the environment is %q", out)
	}
}

// An instance of an image is found after a restart of the daemon.
func imageRecovers(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{})
	p := s.create(t, "survivor")
	p.wantProbe(t, "", "write", "/workspace/file", "kept")
	p.agent.Close()
	inst, err := s.New(t, s.dir).Recover(t.Context(), "survivor", p.Handle())
	if err != nil {
		t.Fatalf("recover: %s", explain(err))
	}
	own(t, inst).wantProbe(t, "kept", "cat", "/workspace/file")
}

// Creating an instance whose image is missing is an error, and leaves nothing.
func imageThatIsMissing(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{})
	s.Root.EROFS += ".gone"
	if inst, err := s.driver.Create(t.Context(), s.spec("none")); err == nil {
		own(t, inst)
		t.Fatal("an instance was made from nothing")
	}
	if n, err := s.driver.Sweep(t.Context(), func(string) bool { return false }); n != 0 || err != nil {
		t.Errorf("%d leftovers, error %v", n, err)
	}
}

// savedImages are the tests of drivers that can also save instances.
var savedImages = map[string]func(*testing.T, *suite){
	"ImageSaves":    imageSaves,
	"ImagePrepares": imagePrepares,
}

// An instance of an image can be saved, and then continues, completely or only with its files.
func imageSaves(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t,
		ImageFile{Path: "/mine", Mode: 0o644, UID: 1000, GID: 1000, Content: []byte("image")},
		ImageFile{Path: "/own", Mode: 0o755 | fs.ModeDir, UID: 1000, GID: 1000},
		ImageFile{Path: "/own/kept", Mode: 0o644, Content: []byte("image")}, ImageFile{Path: "/own/removed", Mode: 0o644, Content: []byte("image")},
	), image.EROFSOptions{})
	p := s.create(t, "one")
	p.startTicking(t)
	p.wantProbe(t, "", "write", "/mine", "changed")
	p.wantProbe(t, "", "rm", "/own/removed")
	dir := s.Dir(t)
	p.save(t, dir)
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	restorer := s.driver.(driver.Restorer)
	inst, err := restorer.Restore(t.Context(), s.spec("one"), dir)
	if err != nil {
		t.Fatalf("restore: %s", explain(err))
	}
	p = own(t, inst)
	p.wantTicking(t)
	p.wantProbe(t, "changed", "cat", "/mine")
	if out, exit := p.probe(t, "fill", "/workspace/big", strconv.Itoa(2*Limits.Disk)); exit.Code == 0 {
		t.Errorf("restored, it has no disk limit: %s", out)
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inst, err = restorer.RestoreFiles(t.Context(), s.spec("one"), dir); err != nil {
		t.Fatalf("restore the files: %s", explain(err))
	}
	p = own(t, inst)
	p.wantProbe(t, "changed", "cat", "/mine")
	p.wantProbe(t, "-rw-r--r-- 1000 1000", "stat", "/mine")
	p.wantProbe(t, "kept", "ls", "/own")
	if out, exit := p.probe(t, "fill", "/workspace/big", strconv.Itoa(2*Limits.Disk)); exit.Code == 0 {
		t.Errorf("with its files only, it has no disk limit: %s", out)
	}
}

// A copy of an instance of an image can start in an instance that was prepared before.
func imagePrepares(t *testing.T, s *suite) {
	s = s.onImage(t, probeImage(t), image.EROFSOptions{})
	p, d := s.create(t, "parent"), s.driver.(driver.Restorer)
	p.startTicking(t)
	dir := s.Dir(t)
	if err := errors.Join(p.agent.Park(t.Context()), p.Instance.(driver.Saver).Copy(t.Context(), dir)); err != nil {
		t.Fatalf("copy: %s", explain(err))
	}
	v, err := d.Prepare(t.Context(), driver.Spec{ID: "one", Root: s.Root, Limits: Limits})
	if err != nil {
		t.Fatalf("prepare: %s", explain(err))
	}
	inst, err := v.Restore(t.Context(), dir)
	if err != nil {
		t.Fatalf("restore: %s", explain(err))
	}
	one := s.adopt(t, inst, "one")
	one.wantTicking(t)
	one.wantProbe(t, "one", "cat", "/etc/hostname")
	p.wantTicking(t)
	p.wantProbe(t, "parent", "cat", "/etc/hostname")
}

const ticks = "/workspace/ticks"

func (p *instance) startTicking(t *testing.T) {
	t.Helper()
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "ticks", Argv: []string{"/probe", "tick", ticks}}); err != nil {
		t.Fatal(explain(err))
	}
	p.wantTicking(t)
}

// wantTicking waits until the program has counted further.
func (p *instance) wantTicking(t *testing.T) {
	t.Helper()
	first := -1
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		out, _ := p.probe(t, "cat", ticks)
		n, err := strconv.Atoi(out)
		if err != nil {
			continue // the file is still being written
		}
		if first < 0 {
			first = n
		}
		if n > first {
			return
		}
	}
	t.Error("the program does not continue")
}
