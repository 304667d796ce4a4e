package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/contract"
)

// vacancy is an instance that runsc has created, which is most of the work of a start. No program has started in it,
// and it does not belong to a sandbox yet.
type vacancy struct {
	*instance
	spec driver.Spec
}

var _ driver.Vacancy = (*vacancy)(nil)

// Prepare implements driver.Restorer.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (driver.Vacancy, error) {
	v, err := d.createVacant(ctx, spec, origin{})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Restore implements driver.Vacancy.
func (v *vacancy) Restore(ctx context.Context, dir string) (driver.Instance, error) {
	files, err := v.takes(dir)
	if err != nil {
		return nil, errors.Join(err, v.Destroy(context.WithoutCancel(ctx)))
	}
	defer files.close()
	v.sentry.Signal(contract.Hurry) // if the sentry is dead, fill returns the error
	return v.fill(ctx, files)
}

// takes opens the files of a save, if this instance can continue from it.
func (v *vacancy) takes(dir string) (saved, error) {
	var was, is specs.Spec
	if err := errors.Join(readConfig(filepath.Join(dir, configFile), &was), readConfig(v.config(), &is)); err != nil {
		return nil, err
	}
	if !sameExceptInstance(was, is) {
		return nil, errors.New("what was saved needs an instance that is made for it")
	}
	return openSaved(dir, os.O_RDONLY)
}

func readConfig(path string, spec *specs.Spec) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, spec); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// sameExceptInstance reports whether two configurations differ only in settings of a single instance.
func sameExceptInstance(a, b specs.Spec) bool {
	return reflect.DeepEqual(general(a), general(b))
}

func general(s specs.Spec) specs.Spec {
	if s.Process != nil {
		process := *s.Process
		process.Env = nil
		s.Process = &process
	}
	return moved(s, "", "")
}

// fill starts the instance, from the beginning or from a save. If it fails, nothing is left of the instance.
func (v *vacancy) fill(ctx context.Context, files saved) (driver.Instance, error) {
	if err := v.begin(ctx, v.spec, files); err != nil {
		v.forget()
		return nil, v.undo(ctx, err)
	}
	return v.instance, nil
}
