package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program starts itself as two other programs: one enters an image, the other builds the host image with the
// rights of the user that runs it.
const enterEnv, makeEnv = "HUTCH_TEST_ENTER", "HUTCH_TEST_MAKE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(enterEnv) != "":
		fmt.Fprintln(os.Stderr, enter(os.Getenv(enterEnv), os.Args[1:]))
		os.Exit(125)
	case os.Getenv(makeEnv) != "":
		os.Exit(makeAlone(os.Getenv(makeEnv)))
	}
	code := m.Run()
	if hostDir != "" {
		os.RemoveAll(hostDir)
	}
	os.Exit(code)
}

// makeAlone builds the host image with a umask that hides everything.
func makeAlone(dir string) int {
	syscall.Umask(0o077)
	root, err := Host(context.Background(), dir, HostOptions{Path: os.Getenv("PATH"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	json.NewEncoder(os.Stdout).Encode(root)
	return 0
}

// place is an image, and the mount point at which to assemble it.
type place struct {
	Root Root
	At   string
	User bool // become the user, which requires root
}

// inside runs a bash command line in an image, as a driver would: with private mounts, and everything read only
// except the user's folders.
func inside(t *testing.T, root Root, who *syscall.Credential, command string) (stdout, stderr string, code int) {
	t.Helper()
	at, err := os.MkdirTemp("", "hutch-enter-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(at) }) // not RemoveAll: mounts left in it would be a bug
	spec, err := json.Marshal(place{root, at, who == nil && os.Geteuid() == 0})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "bash", "-c", command)
	cmd.Env = append([]string{enterEnv + "=" + string(spec)}, root.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if uid, gid := ids(who); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.Credential = &syscall.Credential{NoSetGroups: true} // root in the new user namespace
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err = cmd.Run()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		unavailable(t, "no namespaces here: "+err.Error())
	}
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 125 {
		t.Fatalf("enter: %v: %s", err, diag.String())
	}
	return out.String(), diag.String(), cmd.ProcessState.ExitCode()
}

func ids(who *syscall.Credential) (uid, gid int) {
	if who != nil {
		return int(who.Uid), int(who.Gid)
	}
	return os.Geteuid(), os.Getegid()
}

// unavailable skips a test; in CI as root, where it must run, it fails.
func unavailable(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" && os.Geteuid() == 0 {
		t.Fatal(why)
	}
	t.Skip(why)
}

// enter assembles the image, enters it, and executes the command.
func enter(spec string, argv []string) error {
	runtime.LockOSThread()
	var p place
	if err := json.Unmarshal([]byte(spec), &p); err != nil {
		return err
	}
	os.Unsetenv(enterEnv)
	if err := p.mount(); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(p.At), unix.Chdir(Workspace)); err != nil {
		return err
	}
	if p.User {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(GID), syscall.Setuid(UID)); err != nil {
			return err
		}
	}
	program, ok := Root{Dir: "/", Env: os.Environ()}.LookPath(argv[0])
	if !ok {
		return fmt.Errorf("%s: not found in %s", argv[0], os.Getenv("PATH"))
	}
	return unix.Exec(program, argv, os.Environ())
}

func (p place) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	binds := append([]Bind{{p.Root.Dir, "/"}}, p.Root.Binds...)
	for _, b := range binds {
		if err := bindReadOnly(b.Source, filepath.Join(p.At, b.Target)); err != nil {
			return fmt.Errorf("%s: %w", b.Target, err)
		}
	}
	for _, dir := range Writable {
		if err := unix.Mount("tmpfs", p.At+dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := unix.Mount("proc", p.At+"/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := unix.Mount("tmpfs", p.At+"/dev", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, name := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		if err := errors.Join(os.WriteFile(p.At+name, nil, 0o644), unix.Mount(name, p.At+name, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	return nil
}

func bindReadOnly(source, target string) error {
	// A mount point that is a link would lead out of the image.
	if real, err := filepath.EvalSymlinks(target); err != nil || real != target {
		return fmt.Errorf("the mount point is %q: %w", real, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
}

// mounts counts the mounts that this process sees, to check that none is left.
func mounts(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}
