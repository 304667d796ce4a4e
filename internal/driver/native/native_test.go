package native

import (
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

var agentPath = filepath.Join(os.TempDir(), fmt.Sprint("hutch-agent-", os.Getpid()))

// agent is the path of the agent program, built once.
var agent = sync.OnceValues(func() (string, error) {
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
	drivertest.Run(t, drivertest.Config{
		New:  func(t *testing.T, dir string) driver.Driver { return newDriver(t, dir) },
		Dir:  func(t *testing.T) string { return t.TempDir() },
		Root: root(t),
		Kill: func(t *testing.T, d driver.Driver, id string) {
			r, err := readRecord(filepath.Join(d.(*Driver).dir, id))
			if err != nil {
				t.Fatal(err)
			}
			syscall.Kill(r.PID, syscall.SIGKILL)
		},
		Isolated: true,
		Limited:  []string{"memory", "pids", "disk"},
	})
}
