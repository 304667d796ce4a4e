package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor"
	"hutch/internal/driver/native"
	"hutch/internal/engine"
	"hutch/internal/image"
	"hutch/internal/secret"
)

// drivers are the runtimes of this program in the order of preference, with
// their state below dir.
func drivers(dir string, log *slog.Logger) ([]driver.Driver, error) {
	agent, runsc := program("hutch-agent"), program("hutch-runsc")
	g, err := gvisor.New(gvisor.Options{Options: driver.Options{Dir: filepath.Join(dir, "gvisor"), Agent: agent}, Runsc: runsc, Log: log})
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	n, err := native.New(driver.Options{Dir: filepath.Join(dir, "native"), Agent: agent})
	if err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	return []driver.Driver{g, n}, nil
}

// program finds one of the programs that come with this one: beside it, or on
// the search path. A missing one is named by where it should be.
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

// working are the drivers that can create places here, the wanted one first, and
// those that have sandboxes: these are to be found again, though for want of room
// or memory no other can be made just now.
func working(ctx context.Context, all []driver.Driver, want string, inhabited []string, log *slog.Logger) ([]driver.Driver, error) {
	all, err := prefer(all, want)
	if err != nil {
		return nil, err
	}
	var ok []driver.Driver
	for _, d := range all {
		report := d.Check(ctx)
		switch {
		case report.OK:
			ok = append(ok, d)
		case slices.Contains(inhabited, d.Name()):
			log.Warn("a runtime makes no sandboxes now, and has some; see `hutch doctor`", "driver", d.Name(), "err", worst(report))
			ok = append(ok, d)
		case d.Name() == want:
			return nil, hutch.Errorf(hutch.Unsupported, "the runtime %s does not work here: %s", want, worst(report))
		default:
			log.Warn("a runtime does not work here; see `hutch doctor`", "driver", d.Name())
		}
	}
	if len(ok) == 0 {
		return nil, hutch.Errorf(hutch.Unsupported, "no runtime works on this host: run `hutch doctor`, which says what to do")
	}
	return ok, nil
}

// prefer puts the wanted driver first.
func prefer(all []driver.Driver, want string) ([]driver.Driver, error) {
	if want == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(d driver.Driver) bool { return d.Name() == want })
	if i < 0 {
		return nil, usageError{fmt.Errorf("there is no runtime %q: use gvisor or native", want)}
	}
	return append([]driver.Driver{all[i]}, slices.Delete(slices.Clone(all), i, i+1)...), nil
}

// worst is the first finding that keeps a driver from working, and its mend.
func worst(r driver.Report) string {
	for _, f := range r.Findings {
		if f.Level == driver.Bad {
			return fmt.Sprintf("%s: %s. %s", f.Name, f.Detail, f.Mend)
		}
	}
	return "run `hutch doctor`"
}

// images makes root file systems by name, in which programs trust an authority
// beside those of this machine, if it is not empty. What the host image is made of may
// change while the daemon runs; once in a while it is looked at again.
func images(dir string, authority []byte, log *slog.Logger) func(context.Context, string) (image.Root, error) {
	const fresh = time.Minute
	var (
		mu   sync.Mutex
		root image.Root
		made time.Time
	)
	return func(ctx context.Context, name string) (image.Root, error) {
		if name != "host" {
			return image.Root{}, hutch.Errorf(hutch.Invalid, "there is no image %q: this server has \"host\"", name)
		}
		mu.Lock()
		defer mu.Unlock()
		if time.Since(made) < fresh {
			return root, nil
		}
		userHome, _ := os.UserHomeDir()
		r, err := image.Host(ctx, dir, image.HostOptions{Path: os.Getenv("PATH"), Home: userHome, Authority: authority, Log: log})
		if err != nil {
			return image.Root{}, err
		}
		root, made = r, time.Now()
		return root, nil
	}
}

// embedded is an engine of this process alone; nothing of it outlives it.
type embedded struct {
	hutch.Service // the engine behind the redactor
	engine        *engine.Engine
	dir           string
	lock          *os.File
}

// embed starts an engine with one runtime.
func (h *home) embed(ctx context.Context, runtime string, log *slog.Logger) (_ *embedded, err error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	all, err := h.folder("embedded")
	if err != nil {
		return nil, err
	}
	sweepEmbedded(ctx, all, log)
	m := &embedded{dir: filepath.Join(all, rand.Text()[:12])}
	if err := os.Mkdir(m.dir, 0o711); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(m.dir)
		}
	}()
	if m.lock, _, err = lock(m.dir); err != nil {
		return nil, err
	}
	ds, err := drivers(m.dir, log)
	if err != nil {
		return nil, err
	}
	d, err := h.choose(ctx, ds, runtime, log)
	if err != nil {
		return nil, err
	}
	vault := secret.Given(secrets())
	m.engine = engine.New(engine.Options{
		Dir: m.dir, Drivers: []driver.Driver{d}, Image: images(h.images(), nil, log), Ephemeral: true, Gateway: gateways("", nil, nil),
		Secret: vault.Value, Log: log,
	})
	m.Service = secret.Redact(m.engine, vault.Redactor)
	return m, m.engine.Start(ctx)
}

// choose returns the wanted runtime, or the first that works. To look takes
// longer than to run most programs, so it is noted what was found to work, for
// as long as this build runs on this boot of the host.
func (h *home) choose(ctx context.Context, all []driver.Driver, want string, log *slog.Logger) (driver.Driver, error) {
	all, err := prefer(all, want)
	if err != nil {
		return nil, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	note := filepath.Join(h.dir, "works-"+all[0].Name())
	sign := fmt.Sprintf("%s %d %s", fullVersion(), os.Geteuid(), boot)
	if seen, err := os.ReadFile(note); err == nil && string(seen) == sign {
		return all[0], nil
	}
	if want != "" {
		all = all[:1] // no other will do
	}
	for i, d := range all {
		if _, err = working(ctx, all[i:i+1], want, nil, log); err != nil {
			continue
		}
		if i == 0 {
			os.WriteFile(note, []byte(sign), 0o600) // if not, the next one looks again
		}
		return d, nil
	}
	return nil, err
}

// secrets are the credentials of our environment that sandboxes can ask for.
func secrets() map[string]string {
	if key := os.Getenv("ANTHROPIC_API_KEY"); key != "" {
		return map[string]string{"ANTHROPIC_API_KEY": key}
	}
	return nil
}

// Close ends everything and removes the engine's folder.
func (m *embedded) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.engine.Close(ctx); err != nil {
		return err // the folder stays, so that the next one sweeps it
	}
	return errors.Join(os.RemoveAll(m.dir), m.lock.Close())
}

// sweepEmbedded removes what killed processes left behind: their locks are
// free.
func sweepEmbedded(ctx context.Context, all string, log *slog.Logger) {
	entries, err := os.ReadDir(all)
	if err != nil {
		log.Warn("look for leftovers", "err", err)
		return
	}
	for _, entry := range entries {
		if err := sweepOne(ctx, filepath.Join(all, entry.Name())); err != nil {
			log.Warn("remove leftovers", "dir", entry.Name(), "err", err)
		}
	}
}

func sweepOne(ctx context.Context, dir string) error {
	if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Second {
		return err // so young that its maker may not hold the lock yet
	}
	f, free, err := lock(dir)
	if err != nil || !free {
		return err
	}
	defer f.Close()
	ds, err := drivers(dir, nil)
	if err != nil {
		return err
	}
	for _, d := range ds {
		if _, err := d.Sweep(ctx, func(string) bool { return false }); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
