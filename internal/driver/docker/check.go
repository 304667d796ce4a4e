package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/linux/tun"
	"hutch/internal/wire"
)

// checkTime bounds the whole check.
const checkTime = 30 * time.Second

// Check implements driver.Driver. It creates a small sandbox and removes it, because only that shows whether sandboxes
// work here.
func (d *Driver) Check(ctx context.Context) driver.Report {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	info, findings := d.checkEngine(ctx)
	if findings[0].Level != driver.Good {
		return driver.Report{Findings: findings}
	}
	findings = append(findings, checkLimits(info), checkSeccomp(info), d.checkNetwork(), checkFiles(), d.attempt(ctx))
	r := driver.Report{OK: true, Findings: findings}
	for _, f := range findings {
		r.OK = r.OK && f.Level != driver.Bad
	}
	return r
}

func (d *Driver) checkEngine(ctx context.Context) (info client.SystemInfoResult, findings []driver.Finding) {
	f := driver.Finding{Name: "engine", Level: driver.Good}
	api, err := d.api, d.noAPI
	if err == nil {
		info, err = api.Info(ctx, client.InfoOptions{})
	}
	switch {
	case err != nil:
		f.Level, f.Detail = driver.Bad, strings.ReplaceAll(err.Error(), "\n", " ")
		f.Fix = "apt-get install docker.io, add this user to the group docker, or set DOCKER_HOST to the engine's unix socket"
	case info.Info.OSType != "linux":
		f.Level, f.Detail, f.Fix = driver.Bad, "its containers are those of "+info.Info.OSType, "use an engine with Linux containers"
	default:
		f.Detail = fmt.Sprintf("version %s on %s; whoever has its socket is root on this host", info.Info.ServerVersion, api.DaemonHost())
	}
	return info, []driver.Finding{f}
}

func checkLimits(info client.SystemInfoResult) driver.Finding {
	f := driver.Finding{Name: "limits", Level: driver.Good, Detail: "CPU, memory and processes are limited"}
	if i := info.Info; !i.MemoryLimit || !i.CPUCfsQuota || !i.PidsLimit {
		f.Level = driver.Bad
		f.Detail = fmt.Sprintf("the engine limits memory %t, CPU %t, processes %t", i.MemoryLimit, i.CPUCfsQuota, i.PidsLimit)
		f.Fix = "start the host with the control groups memory, cpu and pids; a rootless engine needs cgroup v2 with delegation"
	}
	return f
}

func checkSeccomp(info client.SystemInfoResult) driver.Finding {
	f := driver.Finding{Name: "seccomp", Level: driver.Good, Detail: "Docker's profile, and our filter"}
	for _, o := range info.Info.SecurityOptions {
		if strings.HasPrefix(o, "name=seccomp") && !strings.Contains(o, "unconfined") {
			return f
		}
	}
	f.Level, f.Detail = driver.Warning, "only our filter: the engine has no profile"
	f.Fix = "start dockerd without --seccomp-profile=unconfined"
	return f
}

// checkNetwork checks whether network devices can be created, without creating one.
func (d *Driver) checkNetwork() driver.Finding {
	f := driver.Finding{Name: "network devices", Level: driver.Good, Detail: "a sandbox can have a network of its own"}
	err := tun.Check()
	if !d.root {
		err = errors.Join(errElsewhere, err)
	}
	if err != nil {
		f.Level = driver.Warning
		f.Detail = strings.ReplaceAll(fmt.Sprintf("sandboxes have no network: %v", err), "\n", "; ")
		f.Fix = "start the server as root, with /dev/net/tun (sudo modprobe tun)"
	}
	return f
}

func checkFiles() driver.Finding {
	return driver.Finding{
		Name: "files of the host", Level: driver.Warning,
		Detail: "a sandbox can watch who opens the host's programs, and lock them",
		Fix:    "use the runtime gvisor or native, where they work",
	}
}

// attempt creates a sandbox with only its agent.
func (d *Driver) attempt(ctx context.Context) driver.Finding {
	begin := time.Now()
	if err := d.try(ctx); err != nil {
		if cause := hutch.AsError(err).Cause; cause != nil {
			err = cause
		}
		return driver.Finding{
			Name: "sandbox", Level: driver.Bad, Detail: strings.ReplaceAll(err.Error(), "\n", " "),
			Fix: "look at the error; the engine must be on this host and see its files",
		}
	}
	return driver.Finding{Name: "sandbox", Level: driver.Good, Detail: fmt.Sprintf("made and removed in %v", time.Since(begin).Round(time.Millisecond))}
}

func (d *Driver) try(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "hutch-docker-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := image.Root{Dir: filepath.Join(dir, "root")}
	if err := bare(root.Dir); err != nil {
		return err
	}
	inst, err := d.Create(ctx, driver.Spec{
		ID: "check-" + strings.ToLower(rand.Text()[:8]), Root: root,
		Limits: hutch.Limits{CPU: 1, Memory: 64, Disk: 1, PIDs: 16, Processes: 1},
		Boot:   wire.Boot{Token: rand.Text(), Home: "/", Dir: "/", Hostname: "check"},
	})
	if err == nil {
		err = inst.Destroy(context.WithoutCancel(ctx))
	}
	if api, noAPI := d.engine(); noAPI == nil {
		api.ImageRemove(context.WithoutCancel(ctx), imageName(root), client.ImageRemoveOptions{})
	}
	return err
}

// bare makes a skeleton that has only mount points.
func bare(dir string) error {
	for _, name := range append([]string{"proc", "sys", "dev", "etc", filepath.Dir(image.AgentPath)}, image.Writable...) {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	err := os.WriteFile(filepath.Join(dir, image.AgentPath), nil, 0o755)
	for _, name := range nameFiles {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "etc", name), nil, 0o644))
	}
	return err
}
