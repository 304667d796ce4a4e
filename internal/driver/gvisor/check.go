package gvisor

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/linux/cgroup"
	"hutch/internal/wire"
)

// Check implements driver.Driver. It creates a small sandbox and removes it, because only that shows whether
// sandboxes work here.
func (d *Driver) Check(ctx context.Context) driver.Report {
	findings := []driver.Finding{program("hutch-runsc", d.opt.Runsc), goferProgram(d.opt.Runsc), program("hutch-agent", d.opt.Agent), limiting()}
	if usable(findings) {
		findings = append(findings, d.attempt(ctx))
	}
	return driver.Report{OK: usable(findings), Findings: findings}
}

func usable(findings []driver.Finding) bool {
	for _, f := range findings {
		if f.Level == driver.Bad {
			return false
		}
	}
	return true
}

func program(name, path string) driver.Finding {
	if err := unix.Access(path, unix.X_OK); err != nil {
		return driver.Finding{Name: name, Level: driver.Bad, Detail: fmt.Sprintf("%s: %v", path, err), Fix: "make build"}
	}
	return driver.Finding{Name: name, Level: driver.Good, Detail: path}
}

// goferProgram checks that hutch-runsc will find the gofer program.
func goferProgram(runsc string) driver.Finding {
	if real, err := filepath.EvalSymlinks(runsc); err == nil {
		runsc = real
	}
	f := program("hutch-gofer", filepath.Join(filepath.Dir(runsc), "hutch-gofer"))
	if f.Level == driver.Bad {
		f.Level, f.Detail = driver.Warning, f.Detail+": sandboxes work, but each takes 2 MiB more"
	}
	return f
}

// limiting reports which limits can be enforced.
func limiting() driver.Finding {
	tree, err := cgroup.Find()
	if err == nil {
		return driver.Finding{Name: "control groups", Level: driver.Good, Detail: fmt.Sprintf("version %d", tree.Version())}
	}
	return driver.Finding{
		Name: "control groups", Level: driver.Warning,
		Detail: fmt.Sprintf("sandboxes work, but nothing bounds their CPU and memory: %v", err),
		Fix:    cgroup.Advice(),
	}
}

// attempt creates a sandbox with only its agent.
func (d *Driver) attempt(ctx context.Context) driver.Finding {
	const patience = 30 * time.Second
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := d.try(ctx); err != nil {
		f := driver.Finding{Name: "sandbox", Level: driver.Bad, Detail: err.Error(), Fix: "make build: the programs in bin must be of one build; else look at the error"}
		if cause := hutch.AsError(err).Cause; cause != nil {
			f.Detail = cause.Error()
		}
		if setting, ok := forbidden(); ok && os.Geteuid() != 0 {
			f.Fix = "sudo sysctl -w " + setting
		}
		return f
	}
	return driver.Finding{Name: "sandbox", Level: driver.Good, Detail: fmt.Sprintf("made and removed in %v", time.Since(begin).Round(time.Millisecond))}
}

func (d *Driver) try(ctx context.Context) error {
	// A sandbox's id never begins with a dot. Sweep removes the remains of sandboxes and of checks.
	dir, err := os.MkdirTemp(d.opt.Dir, ".check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := bare(filepath.Join(dir, "root"))
	if err != nil {
		return err
	}
	inst, err := d.Create(ctx, driver.Spec{
		ID:     filepath.Base(dir) + "-instance",
		Root:   root,
		Limits: hutch.Limits{CPU: 1, Memory: 64, Disk: 1, PIDs: 16, Processes: 1},
		Boot:   wire.Boot{Token: rand.Text(), Home: "/", Dir: "/"},
	})
	if err != nil {
		return err
	}
	return inst.Destroy(context.WithoutCancel(ctx))
}

// bare creates an image that contains only a mount point for the agent.
func bare(dir string) (image.Root, error) {
	for _, name := range []string{"proc", "sys", "dev", "tmp", filepath.Dir(image.AgentPath)} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return image.Root{}, err
		}
	}
	return image.Root{Dir: dir}, os.WriteFile(filepath.Join(dir, image.AgentPath), nil, 0o755)
}

// forbidden returns the kernel setting, if any, that stops an ordinary user from creating user namespaces, and the
// value it should have.
func forbidden() (setting string, ok bool) {
	for _, s := range []struct{ name, bad, good string }{
		{"kernel.unprivileged_userns_clone", "0", "1"},             // Debian
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "0"}, // Ubuntu
		{"user.max_user_namespaces", "0", "10000"},                 // Red Hat
	} {
		if sysctl(s.name) == s.bad {
			return s.name + "=" + s.good, true
		}
	}
	return "", false
}

func sysctl(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	return strings.TrimSpace(string(text))
}
