package native

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
)

var (
	agentFlag = flag.String("agent", "", "the agent program; built when empty")
	agentPath = filepath.Join(os.TempDir(), fmt.Sprint("hutch-agent-", os.Getpid()))
)

// agent is the path of the agent program, built once.
var agent = sync.OnceValues(func() (string, error) {
	if *agentFlag != "" {
		return *agentFlag, nil
	}
	build := exec.Command("go", "build", "-o", agentPath, "hutch/cmd/hutch-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return agentPath, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.Remove(agentPath)
	os.Exit(code)
}

// root is the image that tests make places from.
func root(t testing.TB) image.Root {
	t.Helper()
	r, err := image.Host(t.Context(), filepath.Join(os.TempDir(), fmt.Sprint("hutch-test-images-", os.Geteuid())), image.HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME")})
	if err != nil {
		t.Fatal(err)
	}
	return r
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
		Isolated: true,
		Limited:  limited,
	})
}

// TestAsOrdinaryUser runs the tests again without root.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it is an ordinary user who runs this already")
	}
	t.Parallel()
	const nobody = 1_234_567
	tmp := t.TempDir()
	for dir := tmp; dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o711)
	}
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	program, err := agent()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.v="+fmt.Sprint(testing.Verbose()), "-agent="+program, "-test.short="+fmt.Sprint(testing.Short()))
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}
