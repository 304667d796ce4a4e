// Package host has the parts of an engine that depend on its machine: the runtimes that work there, the image with the
// machine's programs, and the networks of sandboxes. The daemon, the engines of single commands and `hutch doctor` all
// use it.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/docker"
	"hutch/internal/driver/gvisor"
	"hutch/internal/driver/kubernetes"
	"hutch/internal/driver/native"
)

// Drivers makes the drivers of this program, in the order of preference. They keep their state below dir. They keep no
// copies of their programs, so memory that they save can be restored only by the same versions of these programs.
func Drivers(dir string, log *slog.Logger) ([]driver.Driver, error) {
	return drivers(dir, "", Server{Pod: os.Getenv(PodVariable)}, log)
}

// PodVariable is the environment variable that names the file with the template of pods.
const PodVariable = "HUTCH_KUBERNETES_POD"

// Server are the settings of the drivers of a server.
type Server struct {
	// Pod is the file with the template of pods. The runtime kubernetes is among the drivers if Pod is given, or was
	// given earlier.
	Pod string
	// OldBuilds lets the server also wake sandboxes from memory that another version of Hutch saved.
	OldBuilds bool
}

// Drivers makes the drivers of a server, in the order of preference. Below dir they keep their state, and the programs
// that can restore what they have saved.
func (s Server) Drivers(dir string, log *slog.Logger) ([]driver.Driver, error) {
	return drivers(dir, filepath.Join(dir, "builds"), s, log)
}

func drivers(dir, builds string, s Server, log *slog.Logger) ([]driver.Driver, error) {
	agent, runsc := program("hutch-agent"), program("hutch-runsc")
	g, err := gvisor.New(gvisor.Options{
		Options: driver.Options{Dir: filepath.Join(dir, "gvisor"), Agent: agent}, Runsc: runsc, Builds: builds, OldBuilds: s.OldBuilds, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	n, err := native.New(driver.Options{Dir: filepath.Join(dir, "native"), Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	c, err := docker.New(driver.Options{Dir: filepath.Join(dir, "docker"), Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	all := []driver.Driver{g, n, c}
	k, err := kubernetes.New(kubernetes.Options{Dir: filepath.Join(dir, inPods), Pod: s.Pod})
	switch {
	case errors.Is(err, kubernetes.ErrNoTemplate): // this server makes no pods
	case err != nil:
		return nil, err
	default:
		all = append(all, k)
	}
	return all, nil
}

const inPods = "kubernetes"

// onRequest are the runtimes that are used only where they were chosen: access to Docker's engine is access to everything
// on the host, and pods cost what the cluster costs.
var onRequest = []string{"docker", inPods}

// CheckRuntime refuses the name of a runtime that Drivers does not return; "" is
// no choice.
func CheckRuntime(name string) error {
	switch name {
	case "", "gvisor", "native", "docker", inPods:
		return nil
	}
	return unknownRuntime(name)
}

func unknownRuntime(name string) error {
	return hutch.Errorf(hutch.Invalid, "there is no runtime %q: use gvisor, native, docker or kubernetes", name)
}

// program finds one of the programs that are shipped with this one: in the same folder or on the search path. For a
// missing program it returns a path in the same folder.
func program(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	if path, err := exec.LookPath(name); err == nil {
		if path, err := filepath.Abs(path); err == nil {
			return path
		}
	}
	return beside
}

// Working returns the drivers that can create sandboxes now, the wanted one first. It also returns the drivers named in
// occupied, which have sandboxes already: they are needed to find these sandboxes again, even if the disk is too full
// to create others. The runtimes docker and kubernetes are returned only if they are wanted or occupied.
func Working(ctx context.Context, all []driver.Driver, want string, occupied []string, log *slog.Logger) ([]driver.Driver, error) {
	all, err := Prefer(all, want)
	if err != nil {
		return nil, err
	}
	var ok []driver.Driver
	for _, d := range all {
		if slices.Contains(onRequest, d.Name()) && want != d.Name() && !slices.Contains(occupied, d.Name()) {
			sweepAll(ctx, d, log)
			continue
		}
		report := d.Check(ctx)
		switch {
		case report.OK:
			ok = append(ok, d)
		case slices.Contains(occupied, d.Name()):
			log.Warn("a runtime makes no sandboxes now, and has some; see `hutch doctor`", "driver", d.Name(), "err", Problem(report))
			ok = append(ok, d)
		case d.Name() == want:
			return nil, hutch.Errorf(hutch.Unsupported, "the runtime %s does not work here: %s", want, Problem(report))
		default:
			log.Warn("a runtime does not work here; see `hutch doctor`", "driver", d.Name())
		}
	}
	if len(ok) == 0 {
		return nil, hutch.Errorf(hutch.Unsupported, "no runtime works on this host: run `hutch doctor`, which says what to do")
	}
	return ok, nil
}

// sweepAll removes what an earlier server left of a runtime that this server does not use. No record claims any of it.
func sweepAll(ctx context.Context, d driver.Driver, log *slog.Logger) {
	if _, err := d.Sweep(ctx, func(string) bool { return false }); err != nil && log != nil {
		log.Warn("what an earlier server left of a runtime could not be removed", "driver", d.Name(), "err", err)
	}
}

// Prefer puts the wanted driver first; "" is no choice.
func Prefer(all []driver.Driver, want string) ([]driver.Driver, error) {
	if want == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(d driver.Driver) bool { return d.Name() == want })
	if i < 0 && want == inPods {
		return nil, hutch.Errorf(hutch.Invalid, "the runtime kubernetes needs a template of its pods: name the file with --kubernetes-pod or HUTCH_KUBERNETES_POD; deploy/kubernetes/pods/pod.yaml is an example")
	}
	if i < 0 {
		return nil, unknownRuntime(want)
	}
	return append([]driver.Driver{all[i]}, slices.Delete(slices.Clone(all), i, i+1)...), nil
}

// Problem returns the first finding that keeps a driver from working, and how to fix it.
func Problem(r driver.Report) string {
	for _, f := range r.Findings {
		if f.Level == driver.Bad {
			return fmt.Sprintf("%s: %s. %s", f.Name, f.Detail, f.Fix)
		}
	}
	return "run `hutch doctor`"
}
