package escape

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver/drivertest"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
)

// rootImage returns an image whose user is root, with one program that attacks.
func rootImage(t *testing.T) image.Root {
	t.Helper()
	program, err := drivertest.Probe()
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.FromEROFS(drivertest.WriteImage(t, []drivertest.ImageFile{
		{Path: "/attack", Mode: 0o755 | fs.ModeSetuid, Content: program},
		// Any caller of this would become the agent, if the agent's id were an id of the sandbox.
		{Path: "/agents", Mode: 0o755 | fs.ModeSetuid | fs.ModeSetgid, UID: 1<<32 - 2, GID: 1<<32 - 2, Content: program},
		{Path: "/etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0::/root:/none\nagent:x:4294967294:4294967294::/:/none\n")},
	}), image.EROFSOptions{User: &image.Account{Home: "/root"}})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestRootOfAnImage: root inside a sandbox reaches neither the agent nor what limits the sandbox. Whatever it does to
// its own sandbox, the agent answers, and so do the daemon and another sandbox.
func TestRootOfAnImage(t *testing.T) {
	t.Parallel()
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			if !canBeRoot(runtime) {
				t.Skip("no command is root on native without root and subordinate ids")
			}
			rootOfAnImage(t, runtime)
		})
	}
}

func rootOfAnImage(t *testing.T, runtime string) {
	root := rootImage(t)
	e := hutchtest.Engine(t, runtime, func(o *engine.Options) {
		o.Image = func(context.Context, string) (image.Root, error) { return root, nil }
	})
	run := func(t *testing.T, id, command, user string, limit hutch.Seconds) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r, err := e.Exec(ctx, id, hutch.ExecRequest{Command: command, Dir: "/", User: user, Timeout: limit}, nil)
		if len(r.Stderr) > 0 {
			t.Logf("%s in %s: exit code %d, %.300q", command, id, r.ExitCode, r.Stderr)
		}
		return string(r.Stdout), err
	}
	beside, err := e.Create(t.Context(), hutch.CreateRequest{ID: "beside"})
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	well := func(t *testing.T, id string) {
		t.Helper()
		for _, id := range []string{id, beside.ID} {
			if out, err := run(t, id, "/attack id", "", 60); err != nil || !strings.HasPrefix(out, "0 0 ") {
				t.Errorf("afterwards %s prints %q, %v", id, out, err)
			}
		}
	}
	for name, attack := range map[string]struct {
		command string
		limit   hutch.Seconds
	}{
		"by a call":      {"/attack attack-as-root", 30},
		"kill all":       {"/attack kill-all", 10},
		"fork bomb":      {"/attack bomb", 3},
		"memory":         {"/attack eat", 20},
		"disk":           {"/attack fill /big 1000", 20},
		"memory as disk": {"/attack fill /dev/big 1000", 20},
		"traps":          {"/attack spoil", 10},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "memory" && runtime == "native" && os.Geteuid() != 0 {
				t.Skip("without control groups nothing limits the memory of a sandbox, and it takes the neighbours'")
			}
			t.Parallel()
			s, err := e.Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 256, Disk: 64, PIDs: 64}})
			if err != nil {
				t.Fatal(err, hutch.AsError(err).Cause)
			}
			out, err := run(t, s.ID, attack.command, "", attack.limit)
			if strings.Contains(out, "REACHED") || name == "by a call" && (err != nil || strings.Count(out, "denied") < 60) {
				t.Errorf("root inside, %v:\n%s", err, out)
			}
			well(t, s.ID)
			if runtime != "gvisor" {
				return // a copy has only the files, and needs programs that this image does not have
			}
			if forks, err := e.Fork(t.Context(), s.ID, hutch.ForkRequest{Count: 1}); err != nil {
				t.Errorf("it cannot be copied: %v, %v", err, hutch.AsError(err).Cause)
			} else {
				well(t, forks[0].ID)
			}
		})
	}
	for _, user := range []string{"agent", "4294967294", "0:4294967294"} {
		if out, err := run(t, beside.ID, "/attack id", user, 10); !errors.Is(err, hutch.Invalid) {
			t.Errorf("a command runs as %s: %q, %v", user, out, err)
		}
	}
	if out, err := run(t, beside.ID, "/agents id", "1000", 10); err != nil || !strings.HasPrefix(out, "1000 0 ") {
		t.Errorf("a program with the agent's id and a setuid bit prints %q, %v", out, err)
	}
}
