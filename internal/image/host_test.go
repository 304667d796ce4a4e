package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func hostOptions() HostOptions {
	return HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME")}
}

// host is the image of this host, made once. Folders of the test framework
// are closed to other users, so it has its own.
var host = sync.OnceValues(func() (Root, error) {
	dir, err := os.MkdirTemp("", "hutch-image-")
	if err != nil {
		return Root{}, err
	}
	hostDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return Root{}, err
	}
	return Host(context.Background(), dir, hostOptions())
})

var hostDir string

func hostImage(t *testing.T) Root {
	t.Helper()
	root, err := host()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSkeletonHoldsWhatItShould(t *testing.T) {
	t.Parallel()
	root := hostImage(t)
	for path, want := range map[string]fs.FileMode{
		"/proc": fs.ModeDir | 0o755, "/sys": fs.ModeDir | 0o755, "/dev": fs.ModeDir | 0o755, "/run": fs.ModeDir | 0o755,
		"/root": fs.ModeDir | 0o755, "/workspace": fs.ModeDir | 0o755, "/home/user": fs.ModeDir | 0o755,
		"/tmp": fs.ModeDir | fs.ModeSticky | 0o777, "/var/tmp": fs.ModeDir | fs.ModeSticky | 0o777,
		"/etc/passwd": 0o644, "/etc/hosts": 0o644, "/etc/resolv.conf": 0o644, AgentPath: 0o644,
	} {
		if info, err := os.Lstat(root.Dir + path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ld.so.cache", "/etc/os-release"} {
		if _, err := os.Stat(path); err == nil && resolved(t, root, path) == "" {
			t.Errorf("%s is not shown", path)
		}
	}
	for _, b := range root.Binds {
		if inside, ok := root.follow(b.Target); !ok || inside != b.Target {
			t.Errorf("the mount point %s is a link, or nothing", b.Target)
		}
	}
}

func resolved(t *testing.T, root Root, path string) string {
	t.Helper()
	real, _ := root.Resolve(path)
	return real
}

func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	root := hostImage(t)
	home := os.Getenv("HOME")
	for _, path := range []string{
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private", "/etc/machine-id", "/etc/environment",
		"/etc/fstab", "/etc/npmrc", "/etc/pip.conf", "/etc/wgetrc", "/etc/kubernetes", "/etc/docker", "/etc/krb5.keytab", "/etc/cron.d",
		"/root/.ssh", "/root/.npmrc", "/root/.bash_history", "/root/.netrc", "/root/.cargo/credentials.toml", "/root/.config", "/root/.cache", "/root/.gitconfig",
		home + "/.ssh", home + "/.npmrc", home + "/.aws", home + "/.docker", home + "/.kube",
		"/var/lib", "/var/log", "/var/run/docker.sock", "/run/docker.sock", "/proc/1", "/sys/kernel", "/dev/null", "/boot", "/srv",
	} {
		if real, ok := root.Resolve(path); ok {
			t.Errorf("%s shows %s", path, real)
		}
	}
	mnt, _ := root.Resolve("/mnt")
	if list, err := os.ReadDir(mnt); err != nil || len(list) != 1 || list[0].Name() != "data" || resolved(t, root, dataLink) != resolved(t, root, Workspace) {
		t.Errorf("/mnt has %v, and %s is %s: %v", list, dataLink, resolved(t, root, dataLink), err)
	}
	for _, name := range masks {
		for _, prefix := range []string{"/usr", "/usr/local"} {
			path := filepath.Join(prefix, name)
			if real, ok := root.Resolve(path); ok && !empty(real) {
				t.Errorf("%s shows %s", path, real)
			}
		}
	}
}

// The skeleton contains only files that the lists name, and that everyone can read on the host.
func TestEtcIsAnAllowList(t *testing.T) {
	t.Parallel()
	root := hostImage(t)
	etc := filepath.Join(root.Dir, "etc")
	err := filepath.WalkDir(etc, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(etc, path)
		if err != nil || entry.IsDir() || own[name] != "" || name == "mtab" || filepath.Dir(name) == filepath.Base(filepath.Dir(nodeFile)) {
			return err
		}
		if !slices.ContainsFunc(allowed, func(pattern string) bool { return covers(pattern, name) }) {
			t.Errorf("%s is on no list", name)
		}
		if info, err := os.Lstat(filepath.Join("/etc", name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o004 == 0 {
			t.Errorf("%s is closed on the host", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// covers reports whether a pattern names a file, or a folder above it.
func covers(pattern, name string) bool {
	for ; name != "."; name = filepath.Dir(name) {
		if ok, _ := filepath.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// programs are run inside, if the host has the first word.
var programs = []struct{ command, want string }{
	{`id -u; id -un; pwd; echo ~; touch /workspace/x /tmp/x ~/x && echo may write`, "1000\nuser\n/workspace\n/home/user\nmay write\n"},
	{`python3 -c 'import ssl, sqlite3, ctypes, json, hashlib, zlib; print(json.dumps(6*7))'`, "42\n"},
	{`python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 50)'`, "True\n"},
	{`python3 -m pip --version | cut -d" " -f1`, "pip\n"},
	{`node -e 'console.log(6*7, require("crypto").createHash("md5").update("").digest("hex").length)'`, "42 32\n"},
	{`npm --version >/dev/null && echo ok`, "ok\n"},
	{`git init -q . && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m first && git log --format=%s`, "first\n"},
	{`gcc -x c - -o a <<<'#include <stdio.h>
int main(void){puts("c");}' && ./a`, "c\n"},
	{`g++ -x c++ - -o a <<<'#include <iostream>
int main(){std::cout << "c++\n";}' && ./a`, "c++\n"},
	{`go run <(:) 2>/dev/null; printf 'package main\nfunc main(){println("go")}' >a.go && go run a.go 2>&1`, "go\n"},
	{`javac --version >/dev/null && echo 'class A{public static void main(String[] a){System.out.println("java");}}' >A.java && java A.java`, "java\n"},
	{`rustc --version >/dev/null && echo 'fn main(){println!("rust");}' >a.rs && rustc a.rs && ./a`, "rust\n"},
	{`perl -MPOSIX -e 'print floor(42.5), "\n"'`, "42\n"},
	{`bash -lc 'command -v python3 >/dev/null && echo found'`, "found\n"},
}

func TestProgramsRunInside(t *testing.T) {
	root := hostImage(t)
	before := mounts(t)
	t.Cleanup(func() {
		if after := mounts(t); after != before {
			t.Errorf("%d mounts before, %d after", before, after)
		}
	})
	for _, p := range programs {
		name, _, _ := strings.Cut(p.command, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("the host has no %s", name)
			}
			want := p.want
			if os.Geteuid() != 0 && name == "id" {
				want = strings.Replace(want, "1000\nuser", "0\nroot", 1) // a user namespace of one id
			}
			if stdout, stderr, code := inside(t, root, nil, p.command); stdout != want || code != 0 {
				t.Errorf("%s\nexit code %d, stdout %q, stderr %q", p.command, code, stdout, stderr)
			}
		})
	}
}

func TestNothingInsideCanBeWritten(t *testing.T) {
	t.Parallel()
	root := hostImage(t)
	for _, b := range append(root.Binds, Bind{root.Dir, "/"}, Bind{"", "/etc"}, Bind{"", "/root"}) {
		if _, _, code := inside(t, root, nil, "test -w "+b.Target); code == 0 {
			t.Errorf("%s is writable", b.Target)
		}
	}
}

func TestSecondCallFindsItReady(t *testing.T) {
	first := hostImage(t)
	before := folderStamp(t, hostDir)
	best := time.Hour
	for range 5 {
		start := time.Now()
		second, err := Host(t.Context(), hostDir, hostOptions())
		best = min(best, time.Since(start))
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%v, %v; first %v", second, err, first)
		}
	}
	t.Logf("found in %v; %d binds", best, len(first.Binds))
	if after := folderStamp(t, hostDir); after != before {
		t.Errorf("a call that found the image ready changed its folder: %v, %v before", after, before)
	}
}

// folderStamp is when something was last made or removed in a folder.
func folderStamp(t *testing.T, dir string) time.Time {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func TestManyMakersAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := make([]Root, 8)
	var wg sync.WaitGroup
	for i := range roots {
		wg.Go(func() {
			var err error
			if roots[i], err = Host(t.Context(), dir, hostOptions()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range roots {
		if !reflect.DeepEqual(r, roots[0]) {
			t.Errorf("%v and %v", r, roots[0])
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

func TestAbandonedWorkIsRemoved(t *testing.T) {
	t.Parallel()
	dir := tree(t, newPrefix+"old/file", newPrefix+"young/file", "other/file")
	past := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{newPrefix + "old", "other"} {
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Host(t.Context(), dir, HostOptions{Path: "/usr/bin"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{newPrefix + "old": false, newPrefix + "young": true, "other": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opt := HostOptions{Path: "/usr/bin"}
	root, err := Host(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(root.Dir), rootFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Host(t.Context(), dir, opt); err == nil || !strings.Contains(err.Error(), "remove ") {
		t.Errorf("got %v", err)
	}
}

// fakeHome creates a home folder with a version manager and secrets. Its path
// is not below one of the folders that the image always has.
func fakeHome(t *testing.T) (home string, opt HostOptions) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "home-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if home, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	for _, taken := range Writable {
		if _, ok := below(taken, home); ok {
			t.Skipf("the source is in %s, where the image has a folder of its own", taken)
		}
	}
	put(t, home, ".ssh/id_rsa", "SECRET", 0o600)
	put(t, home, ".npmrc", "SECRET", 0o644)
	put(t, home, ".pyenv/version", "1", 0o644)
	for _, v := range []string{"1", "2"} {
		prefix := filepath.Join(home, ".pyenv/versions", v)
		put(t, prefix, "bin/python3", fmt.Sprintf("#!/bin/sh\necho %[1]s\necho %[1]s\necho %[1]s\n", prefix), 0o755)
		put(t, prefix, "pip.conf", "SECRET", 0o644)
		put(t, prefix, "etc/pip.conf", "", 0o644)
	}
	put(t, home, ".pyenv/shims/python3", fmt.Sprintf("#!/bin/sh\nexec %[1]s/.pyenv/versions/$(cat %[1]s/.pyenv/version)/bin/python3 \"$@\"\n", home), 0o755)
	put(t, home, "bin/git", "#!/bin/sh\n", 0o755) // its prefix would be the home folder
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	return home, HostOptions{Path: home + "/.pyenv/shims:" + home + "/bin:relative:/usr/bin", Home: home}
}

func put(t *testing.T, dir, name, content string, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

func TestVersionManagerBelowHome(t *testing.T) {
	t.Parallel()
	home, opt := fakeHome(t)
	dir := t.TempDir()
	root, err := Host(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(home, ".pyenv/versions/1")
	if path, _ := root.LookPath("python3"); path != one+"/bin/python3" {
		t.Errorf("python3 is %s", path)
	}
	for _, path := range []string{".ssh", ".npmrc", ".pyenv/version", ".pyenv/versions/2", "bin/git"} {
		if real, ok := root.Resolve(filepath.Join(home, path)); ok {
			t.Errorf("%s shows %s", path, real)
		}
	}
	if b, err := os.ReadFile(resolved(t, root, one+"/pip.conf")); err != nil && !errors.Is(err, fs.ErrNotExist) || len(b) > 0 {
		t.Errorf("pip.conf is not masked: %q, %v", b, err)
	}
	for _, b := range root.Binds {
		if strings.HasSuffix(b.Target, "etc/pip.conf") && strings.HasPrefix(b.Target, home) {
			t.Error("an empty file is masked, which costs a mount")
		}
	}
}

func TestChangedHostGetsANewImage(t *testing.T) {
	t.Parallel()
	home, opt := fakeHome(t)
	dir := t.TempDir()
	seen := map[string]bool{}
	make := func(what string) Root {
		t.Helper()
		root, err := Host(t.Context(), dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Host(t.Context(), dir, opt); err != nil || again.Dir != root.Dir {
			t.Errorf("%s: made twice: %v", what, err)
		}
		if seen[root.Dir] {
			t.Errorf("%s: the image is an old one", what)
		}
		seen[root.Dir] = true
		return root
	}
	make("first")
	put(t, home, ".pyenv/version", "2", 0o644)
	root := make("another version")
	two := filepath.Join(home, ".pyenv/versions/2")
	if path, _ := root.LookPath("python3"); path != two+"/bin/python3" {
		t.Errorf("python3 is %s", path)
	}
	put(t, two, ".netrc", "SECRET", 0o644)
	root = make("a secret that came later")
	if b, _ := os.ReadFile(resolved(t, root, two+"/.netrc")); len(b) > 0 {
		t.Errorf(".netrc shows %q", b)
	}
	if err := os.RemoveAll(two); err != nil {
		t.Fatal(err)
	}
	put(t, home, ".pyenv/version", "1", 0o644)
	make("a version that is gone")
	opt.Path = "/usr/bin"
	make("another search path")
	for dir := range seen {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("one that may be in use is gone: %v", err)
		}
	}
}

// The path of a prefix can contain links; the image binds nothing onto a link.
func TestLinkedPrefix(t *testing.T) {
	t.Parallel()
	home, opt := fakeHome(t)
	put(t, home, "versions/real/bin/python3", fmt.Sprintf("#!/bin/sh\necho %s/versions/link\n", home), 0o755)
	if err := os.Symlink("real", filepath.Join(home, "versions/link")); err != nil {
		t.Fatal(err)
	}
	opt.Path = filepath.Join(home, "versions/link/bin")
	root, err := Host(t.Context(), t.TempDir(), opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "real"} {
		if real, ok := root.Resolve(filepath.Join(home, "versions", name, "bin/python3")); !ok || real != filepath.Join(home, "versions/real/bin/python3") {
			t.Errorf("%s: %s, %v", name, real, ok)
		}
	}
	for _, b := range root.Binds {
		if inside, _ := root.follow(b.Target); inside != b.Target {
			t.Errorf("bound onto the link %s", b.Target)
		}
	}
}

func TestPrefixesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := tree(t, "home/.bashrc", "plain/bin/x")
	for _, prefix := range []string{"/", "/opt", "/root", "/home/someone", "/home/someone/.local", "/etc/tool", "/proc/self", "/tmp/tool", "/workspace/tool", dir + "/home", "/usr/local/../../etc/x", ""} {
		if err := checkPrefix(filepath.Clean(prefix), "/home/someone/deep"); err == nil {
			t.Errorf("%q is shown", prefix)
		}
	}
	if err := checkPrefix("/usr/lib", "/usr/lib/home"); err == nil {
		t.Error("a folder above the home folder is shown")
	}
}

func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the whole suite runs as an ordinary user already")
	}
	dir, err := os.MkdirTemp("", "hutch-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{makeEnv + "=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var root Root
	if err := json.Unmarshal(out, &root); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode()&0o004 == 0 {
			t.Errorf("%s is closed: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{emptyFile, emptyFolder} {
		if info, err := os.Stat(filepath.Join(filepath.Dir(root.Dir), name)); err != nil || info.Mode()&0o004 == 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if stdout, stderr, code := inside(t, root, nobody, "perl -e 'print 42' && git --version && cat /etc/passwd /usr/etc/npmrc >/dev/null"); code != 0 || !strings.HasPrefix(stdout, "42git") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func BenchmarkHost(b *testing.B) {
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			if _, err := Host(b.Context(), b.TempDir(), hostOptions()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ready", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			if _, err := Host(b.Context(), dir, hostOptions()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
