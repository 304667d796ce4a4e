package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/builds"
	"hutch/internal/driver/gvisor/contract"
	"hutch/internal/durable"
)

// saveTime bounds how long writing a sandbox to disk can take.
const saveTime = 10 * time.Minute

// filesLayer is an additional copy of the writable layer in a save, as an archive. Saved memory can be used only with
// exactly the same programs, and the host can have other programs later.
const filesLayer = "files.tar"

const configFile = "config.json"

// saved are the open files of a save, in gVisor's order.
type saved []*os.File

var savedNames = []string{"state", "pages.meta", "pages"}

func openSaved(dir string, flag int) (saved, error) {
	var s saved
	for _, name := range savedNames {
		f, err := os.OpenFile(filepath.Join(dir, name), flag, 0o600)
		if err != nil {
			s.close()
			return nil, err
		}
		s = append(s, f)
	}
	return s, nil
}

func (s saved) close() {
	for _, f := range s {
		f.Close()
	}
}

// Save implements driver.Saver.
func (i *instance) Save(ctx context.Context, dir string) error {
	if err := i.copyFiles(ctx, dir); err != nil {
		return err
	}
	if err := i.checkpoint(ctx, dir); err != nil {
		return err
	}
	// Later changes would not be saved, so the sandbox is stopped.
	if err := i.sentry.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	return syncAll(dir)
}

// Copy implements driver.Saver.
func (i *instance) Copy(ctx context.Context, dir string) error {
	err := i.checkpoint(ctx, dir)
	return errors.Join(err, i.Resume(ctx))
}

// checkpoint writes the memory. It cannot be cancelled, because the sandbox would continue to write without us.
func (i *instance) checkpoint(ctx context.Context, dir string) error {
	build, err := builds.Marked(i.dir)
	if err := errors.Join(err, builds.Build{Name: build}.Mark(dir), copyFile(filepath.Join(dir, configFile), i.config())); err != nil {
		return err
	}
	files, err := openSaved(dir, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer files.close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	if err := i.sentry.Signal(contract.Hurry); err != nil {
		return err
	}
	// With Resume, an error of the disk does not end the sandbox.
	arg := map[string]any{"have_pages_file": true, "Resume": true, "metadata": map[string]string{"compression": "none"}}
	return i.control().call(ctx, contract.Checkpoint, arg, nil, files...)
}

// copyFiles writes the writable layer while the programs run.
func (i *instance) copyFiles(ctx context.Context, dir string) error {
	layer, err := os.OpenFile(filepath.Join(dir, filesLayer), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer layer.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	return i.control().call(ctx, "Fs.TarRootfsUpperLayer", map[string]any{}, nil, layer)
}

// syncAll returns when all files in dir are on disk. It returns their names.
func syncAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := durable.Sync(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return durable.Sync(dir)
}

// Resume implements driver.Saver.
func (i *instance) Resume(ctx context.Context) error {
	if err := i.sentry.Signal(unix.SIGCONT); err != nil {
		return err
	}
	arg := map[string]any{"CID": container, "Signo": unix.SIGUSR1}
	if err := i.control().call(ctx, contract.Signal, arg, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return i.answer(ctx)
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// Restore implements driver.Restorer.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
	files, err := openSaved(dir, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer files.close()
	build, err := d.buildOf(dir)
	if err != nil {
		return nil, err
	}
	var was specs.Spec
	if err := readConfig(filepath.Join(dir, configFile), &was); err != nil {
		return nil, err
	}
	config, err := json.Marshal(moved(was, d.folder(spec.ID).socketDir(), spec.Boot.Hostname))
	if err != nil {
		return nil, err
	}
	return d.make(ctx, spec, origin{memory: files, config: config, build: build})
}

// moved adapts the configuration of a saved sandbox to another instance. Everything else must be identical.
func moved(s specs.Spec, folder, hostname string) specs.Spec {
	s.Hostname = hostname
	s.Mounts = slices.Clone(s.Mounts)
	for i := range s.Mounts {
		if s.Mounts[i].Destination == socketDir {
			s.Mounts[i].Source = folder
		}
	}
	return s
}

// RestoreFiles implements driver.Restorer.
func (d *Driver) RestoreFiles(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
	layer := filepath.Join(dir, filesLayer)
	if _, err := os.Stat(layer); errors.Is(err, fs.ErrNotExist) { // a save that Copy wrote has no such archive
		return nil, hutch.Errorf(hutch.Unavailable, "its memory could not be restored here, and a checkpoint has no copy of the files beside it: the log of the server has the cause")
	}
	return d.make(ctx, spec, origin{layer: layer})
}

// origin is the saved state that a sandbox starts from; the zero origin means none.
type origin struct {
	memory saved        // memory and files
	config []byte       // the configuration of the saved sandbox, which must be identical
	build  builds.Build // the programs that saved it
	layer  string       // the path of an archive of its writable layer
}
