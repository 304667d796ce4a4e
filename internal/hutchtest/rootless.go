package hutchtest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"hutch/internal/linux/subid"
)

// ordinary is a user id that no account has, so it has no privileges anywhere.
const ordinary = 48_731

// supplementary is an additional group of the users that run the tests. A sandbox must not get it.
const supplementary = 48_732

// Rootless runs those tests of the package that match pattern once more, as an ordinary user. It is skipped if the
// tests already run as an ordinary user.
func Rootless(t *testing.T, pattern string) { rootless(t, pattern, ordinary, ordinary) }

// account is a user with subordinate ids, which useradd assigns. Only tests run as this user.
const account = "hutch-test"

// Subordinate is Rootless as a user with subordinate ids. For such a user, commands of an image can be root on native.
func Subordinate(t *testing.T, pattern string) {
	t.Helper()
	u, err := user.Lookup(account)
	if err != nil {
		Skip(t, "the test user is missing: apt-get install uidmap && useradd --no-create-home --shell /usr/sbin/nologin %s", account)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if err := errors.Join(errUID, errGID); err != nil {
		t.Fatal(err)
	}
	rootless(t, pattern, uid, gid)
}

// OpenTun lets every user create network devices during the test, as on most systems. Without root it does nothing.
func OpenTun(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const device = "/dev/net/tun"
	info, err := os.Stat(device)
	if err == nil {
		err = os.Chmod(device, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(device, info.Mode().Perm()) })
}

// HasRoot reports whether commands of an image can be root on a runtime, for this user.
func HasRoot(runtime string) bool {
	if runtime == "gvisor" || os.Geteuid() == 0 {
		return true
	}
	_, err := subordinate()
	return err == nil
}

var subordinate = sync.OnceValues(subid.Find)

func rootless(t *testing.T, pattern string, uid, gid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user's test run already")
	}
	dir := Dir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"test": self, "hutch": Program(t, "hutch"), "hutch-agent": Program(t, "hutch-agent"),
		"hutch-runsc": Program(t, "hutch-runsc"), "hutch-gofer": Program(t, "hutch-gofer"),
	} {
		copyProgram(t, path, filepath.Join(dir, name))
	}
	home := filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, uid, gid)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), "-test.v", "-test.run="+pattern, "-test.timeout=10m")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{supplementary}}}
	out, err := cmd.CombinedOutput()
	t.Logf("as an ordinary user:\n%s", out)
	if err != nil {
		t.Errorf("as an ordinary user: %v", err)
	}
	if os.Getenv("CI") != "" && !strings.Contains(string(out), "--- PASS") {
		t.Error("as an ordinary user nothing ran")
	}
}

// copyProgram copies a program to a place where every user can execute it.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}
