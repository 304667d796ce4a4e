package escape

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver/drivertest"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
)

// TestHostileImage runs a program of an image that was made to break out. The program belongs to root and has the
// setuid bit. The image has devices of the host and environment variables meant for the agent, and its configuration
// asks for root.
func TestHostileImage(t *testing.T) {
	t.Parallel()
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			root := hostileImage(t)
			e := hutchtest.Engine(t, runtime, func(o *engine.Options) {
				o.Image = func(context.Context, string) (image.Root, error) { return root, nil }
			})
			s, err := e.Create(t.Context(), hutch.CreateRequest{ID: "image"})
			if err != nil {
				t.Fatal(err, hutch.AsError(err).Cause)
			}
			r, err := e.Exec(t.Context(), s.ID, hutch.ExecRequest{Command: "/attack attack", Timeout: hutch.InSeconds(patience)}, nil)
			if err != nil {
				t.Fatal(err, hutch.AsError(err).Cause)
			}
			checkAttack(t, runtime, string(r.Stdout))
			if r, err := e.Exec(t.Context(), s.ID, hutch.ExecRequest{Command: "/attack stat /attack"}, nil); (os.Geteuid() == 0 || canBeRoot("native")) && string(r.Stdout) != "ugrwxr-xr-x 0 0\n" {
				t.Errorf("the program is %q, and could not be root's: %v", r.Stdout, err)
			}
			who := "0 0 "
			if !canBeRoot(runtime) {
				who = "1000 1000 "
			}
			if r, err := e.Exec(t.Context(), s.ID, hutch.ExecRequest{Command: "/attack id", Timeout: hutch.InSeconds(patience)}, nil); err != nil || !strings.HasPrefix(string(r.Stdout), who) {
				t.Errorf("after the attack: %q, %v", r.Stdout, err)
			}
		})
	}
}

// canBeRoot reports whether commands of an image can be root.
func canBeRoot(runtime string) bool { return hutchtest.HasRoot(runtime) }

func checkAttack(t *testing.T, runtime, said string) {
	t.Helper()
	const attempts = 26
	may := map[string]bool{}
	if !canBeRoot(runtime) {
		// One user owns all files, and each sandbox changes only its own copies.
		may["replace the names"], may["write the names"] = true, true
	}
	if canBeRoot(runtime) { // the image's user is root then, and these are the sandbox's own files and users
		for _, own := range []string{"root by the setuid bit", "become user 0", "join group 0", "replace the names", "write the names", "give a file to root"} {
			may[own] = true
		}
	}
	if runtime == "native" && canBeRoot(runtime) {
		may["list the socket folder"] = true // an empty mount point, without the socket between daemon and agent
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != attempts {
		t.Errorf("%d attempts were made, not %d:\n%s", len(lines), attempts, said)
	}
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, "REACHED\t"); ok && !may[name] {
			t.Errorf("the program of an image could %s", name)
		}
	}
	t.Log(said)
}

func hostileImage(t *testing.T) image.Root {
	t.Helper()
	program, err := drivertest.Probe()
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.FromEROFS(drivertest.WriteImage(t, []drivertest.ImageFile{
		{Path: "/attack", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid, Content: program},
		{Path: "/nodes/mem", Device: uint32(unix.Mkdev(1, 1))},
		{Path: "/nodes/kmsg", Device: uint32(unix.Mkdev(1, 11))},
		{Path: "/nodes/disk", Device: uint32(unix.Mkdev(254, 0))},
		{Path: "/.hutch/run", Link: "/tmp"},
	}), image.EROFSOptions{
		User: &image.Account{UID: 0, Home: "/root"},
		Env:  []string{"HUTCH_BOOT=eyJ2ZXJzaW9uIjoyfQ==", "LD_PRELOAD=/evil.so", "GODEBUG=x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}
