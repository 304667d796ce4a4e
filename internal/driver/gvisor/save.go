package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hutch/internal/driver"
)

// saveTime bounds how long a sandbox is written to disk.
const saveTime = 10 * time.Minute

// filesLayer is the writable layer within what is saved, once more and as an
// archive: memory is of no use without the programs it belongs to, and the
// host may have others tomorrow.
const filesLayer = "files.tar"

const configFile = "config.json"

// saved are the open files of a saved sandbox, in the order that gVisor wants
// them.
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

func (s saved) sync() error {
	var errs []error
	for _, f := range s {
		errs = append(errs, f.Sync())
	}
	return errors.Join(errs...)
}

// Save implements driver.Saver. A broken-off checkpoint would go on without us,
// so this one cannot be.
func (i *instance) Save(ctx context.Context, dir string) error {
	files, err := openSaved(dir, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer files.close()
	layer, err := os.OpenFile(filepath.Join(dir, filesLayer), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer layer.Close()
	if err := copyFile(filepath.Join(dir, configFile), i.config()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	if err := i.control().call(ctx, "Fs.TarRootfsUpperLayer", map[string]any{}, nil, layer); err != nil {
		return err
	}
	arg := map[string]any{"have_pages_file": true, "Resume": true, "metadata": map[string]string{"compression": "none"}}
	if err := i.control().call(ctx, "containerManager.Checkpoint", arg, nil, files...); err != nil {
		return err
	}
	// Resume, or an error of the disk would end the sandbox. What it does from
	// now on is not saved, so it shall do nothing.
	if err := i.sentry.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	return errors.Join(files.sync(), layer.Sync())
}

// Resume implements driver.Saver.
func (i *instance) Resume(ctx context.Context) error {
	if err := i.sentry.Signal(unix.SIGCONT); err != nil {
		return err
	}
	arg := map[string]any{"CID": container, "Signo": unix.SIGUSR1}
	if err := i.control().call(ctx, "containerManager.Signal", arg, nil); err != nil {
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
	config, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	return d.make(ctx, spec, origin{memory: files, config: config})
}

// RestoreFiles implements driver.Restorer.
func (d *Driver) RestoreFiles(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
	return d.make(ctx, spec, origin{layer: filepath.Join(dir, filesLayer)})
}

// origin is what a sandbox begins with; the zero origin is an empty one.
type origin struct {
	memory saved  // all of it
	config []byte // the configuration of the one that was saved, which has to be the same
	layer  string // the path of an archive of its writable layer
}
