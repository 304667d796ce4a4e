package contract

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/ociimages"
)

// TestDrivers runs the contract of drivers with instances of an image. The drivers' own tests run it with the host's
// image, and with images of one program.
func TestDrivers(t *testing.T) {
	if !hutchtest.Full() || os.Geteuid() != 0 {
		t.Skip("make test-full has it, as root: only root has control groups")
	}
	images := ociimages.Open(t, contractImage, v1.Config{User: "user", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}, writeContractImage)
	name, err := images.Resolve(t.Context(), contractImage, hutch.PullNever)
	if err != nil {
		t.Fatal(err)
	}
	root, err := images.Root(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			var dirs sync.Map // by driver
			drivertest.Run(t, drivertest.Config{
				Dir: func(t *testing.T) string {
					dir := filepath.Join(hutchtest.Dir(t), runtime)
					if err := os.Mkdir(dir, 0o711); err != nil {
						t.Fatal(err)
					}
					return dir
				},
				New: func(t *testing.T, dir string) driver.Driver {
					d := hutchtest.Driver(t, runtime, dir)
					dirs.Store(d, dir)
					return d
				},
				Root: root,
				Kill: func(t *testing.T, d driver.Driver, id string) {
					dir, _ := dirs.Load(d)
					kill(t, dir.(string), id)
				},
				Isolated: true, Images: true, Adopts: true, Networked: true,
				Saves: runtime == "gvisor", Limited: []string{"disk", "memory", "pids"},
			})
		})
	}
}

// kill kills all processes in the control group of an instance.
func kill(t *testing.T, dir, id string) {
	t.Helper()
	killed := 0
	for _, group := range hutchtest.Groups(dir) {
		if !strings.HasSuffix(group, "-"+id) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			syscall.Kill(n, syscall.SIGKILL)
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("%s has no process in a control group", id)
	}
}
