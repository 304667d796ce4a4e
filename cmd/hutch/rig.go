package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/images"
	"hutch/internal/secret"
)

// embedded is an engine for this process only; nothing of it outlives the process.
type embedded struct {
	hutch.Service // the engine behind the redactor
	engine        *engine.Engine
	dir           string
	lock          *os.File
	images        *images.Images // nil if there are no images of registries
	closeImages   func() error
}

// embed starts an engine with one runtime, for sandboxes of one image.
func (h *home) embed(ctx context.Context, runtime, imageName string, log *slog.Logger) (_ *embedded, err error) {
	if err := checkRuntime(runtime); err != nil {
		return nil, err
	}
	if err := h.open(); err != nil {
		return nil, err
	}
	all, err := h.data().Make(datadir.Embedded)
	if err != nil {
		return nil, err
	}
	sweepEmbedded(ctx, all, log)
	m := &embedded{dir: filepath.Join(all, rand.Text()[:12]), closeImages: func() error { return nil }}
	if err := os.Mkdir(m.dir, 0o711); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(m.dir)
		}
	}()
	if m.lock, _, err = datadir.Lock(m.dir); err != nil {
		return nil, err
	}
	ds, err := host.Drivers(m.dir, log)
	if err != nil {
		return nil, err
	}
	d, err := h.choose(ctx, ds, runtime, log)
	if err != nil {
		return nil, err
	}
	vault := secret.Given(secrets())
	programs := hostPrograms()
	programs.Log = log
	opt := engine.Options{
		Dir: m.dir, Drivers: []driver.Driver{d}, Image: host.Images(h.data().Images(), programs), Ephemeral: true, Gateway: host.Gateways("", nil, nil),
		Secret: vault.Value, Log: log,
	}
	if imageName != "" && imageName != image.HostName {
		all, closeImages, err := h.ownImages(programs, log)
		if err != nil {
			return nil, err
		}
		opt.Image, opt.Resolve, m.images, m.closeImages = all.Root, all.Resolve, all, closeImages
	}
	m.engine = engine.New(opt)
	m.Service = secret.Redact(m.engine, vault.Redactor)
	return m, m.engine.Start(ctx)
}

// choose returns the wanted runtime, or the first that works. Checking takes longer than running most programs, so
// the result is remembered for this build and this boot of the host.
func (h *home) choose(ctx context.Context, all []driver.Driver, want string, log *slog.Logger) (driver.Driver, error) {
	all, err := host.Prefer(all, want)
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
		all = all[:1] // the person chose this runtime
	}
	for i, d := range all {
		if _, err = host.Working(ctx, all[i:i+1], want, nil, log); err != nil {
			continue
		}
		if i == 0 {
			os.WriteFile(note, []byte(sign), 0o600) // if that fails, the next run checks again
		}
		return d, nil
	}
	return nil, err
}

// secrets returns the credentials of our environment that sandboxes can ask for.
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
		return err // the folder stays, so that the next process sweeps it
	}
	return errors.Join(m.closeImages(), os.RemoveAll(m.dir), m.lock.Close())
}

// sweepEmbedded removes what killed processes left: the folders whose locks are free.
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
		return err // the folder is so new that its creator may not hold the lock yet
	}
	f, free, err := datadir.Lock(dir)
	if err != nil || !free {
		return err
	}
	defer f.Close()
	ds, err := host.Drivers(dir, nil)
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
