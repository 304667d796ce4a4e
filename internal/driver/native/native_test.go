package native

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
)

var (
	workFlag   = flag.String("work", "", "a folder with what another run of this program has made")
	daemonFlag = flag.String("daemon", "", "only make instances in this state folder, until killed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *daemonFlag != "" {
		fmt.Println(daemon(*daemonFlag))
		os.Exit(1)
	}
	os.Exit(run(m))
}

// run makes the folder with the agent program and the image.
func run(m *testing.M) int {
	if *workFlag == "" {
		work, err := os.MkdirTemp("", "hutch-native-")
		if err == nil {
			err = os.Chmod(work, 0o711)
		}
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(work)
		*workFlag = work
	}
	return m.Run()
}

// agent returns the path of the agent program, which it builds once.
var agent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(*workFlag, "hutch-agent")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.Command("go", "build", "-o", path, "../../../cmd/hutch-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// root returns the image that tests make instances from.
func root(t testing.TB) image.Root {
	t.Helper()
	r, err := hostImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func hostImage(ctx context.Context) (image.Root, error) {
	return image.Host(ctx, imageFolder(os.Geteuid()), image.HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME")})
}

func imageFolder(uid int) string { return filepath.Join(*workFlag, fmt.Sprint("images-", uid)) }

// skip skips a test that needs something that root always has in CI.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" && os.Geteuid() == 0 {
		t.Fatal(why)
	}
	t.Skip(why)
}

func newDriver(t testing.TB, dir string) *Driver {
	t.Helper()
	program, err := agent()
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(driver.Options{Dir: dir, Agent: program})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestContract(t *testing.T) {
	t.Parallel()
	limited := []string{"pids", "disk"}
	if newDriver(t, t.TempDir()).tree != nil {
		limited = append(limited, "memory")
	}
	drivertest.Run(t, drivertest.Config{
		Dir:  func(t *testing.T) string { return t.TempDir() },
		New:  func(t *testing.T, dir string) driver.Driver { return newDriver(t, dir) },
		Root: root(t),
		Kill: func(t *testing.T, d driver.Driver, id string) {
			r, err := readRecord(filepath.Join(d.(*Driver).dir, id))
			if err != nil {
				t.Fatal(err)
			}
			syscall.Kill(r.PID, syscall.SIGKILL)
		},
		Isolated:  true,
		Images:    true,
		OneOwner:  newDriver(t, t.TempDir()).canBeRoot() != nil,
		Networked: networked(t),
		Adopts:    true,
		Layers:    os.Geteuid() == 0,
		Limited:   limited,
	})
}

// networked reports whether network devices can be made here.
func networked(t *testing.T) bool {
	f := newDriver(t, t.TempDir()).checkNetwork()
	if f.Level != driver.Good {
		t.Log("without networks: " + f.Detail)
	}
	return f.Level == driver.Good
}

// TestNetworksAreTested fails in CI if the tests of networks are skipped.
func TestNetworksAreTested(t *testing.T) {
	if !networked(t) {
		skip(t, "no network device can be made here")
	}
}

// openToAll lets every user create network devices during the test, as on most systems. It is not hutchtest.OpenTun,
// because hutchtest imports this package.
func openToAll(t *testing.T) {
	const device = "/dev/net/tun"
	info, err := os.Stat(device)
	if err != nil {
		t.Log(err)
		return
	}
	if err := os.Chmod(device, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(device, info.Mode().Perm()) })
}

// TestAsOrdinaryUser runs the tests again without root.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it is an ordinary user who runs this already")
	}
	const nobody = 1_234_567
	t.Parallel()
	runAs(t, nobody, nobody, ".")
}

// TestAsUserWithSubordinateIDs runs the tests of images again, as a user to whom useradd has assigned subordinate ids.
func TestAsUserWithSubordinateIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it is an ordinary user who runs this already")
	}
	u, err := user.Lookup("hutch-test")
	if err != nil {
		skip(t, "the test user is missing: apt-get install uidmap && useradd --no-create-home --shell /usr/sbin/nologin hutch-test")
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	runAs(t, uid, gid, "TestContract|Image|Subordinate")
}

// runAs runs the tests whose names match pattern as a user.
func runAs(t *testing.T, uid, gid int, pattern string) {
	openToAll(t)
	if _, err := agent(); err != nil {
		t.Fatal(err)
	}
	probe, err := drivertest.Probe()
	if err != nil {
		t.Fatal(err)
	}
	probeFile := filepath.Join(*workFlag, "probe")
	if err := os.WriteFile(probeFile, probe, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := imageFolder(uid)
	if err := errors.Join(os.Mkdir(tmp, 0o755), os.Chown(tmp, uid, gid)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.v="+fmt.Sprint(testing.Verbose()), "-test.run="+pattern, "-work="+*workFlag, "-test.short="+fmt.Sprint(testing.Short()))
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp, drivertest.ProbeEnv+"="+probeFile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}
