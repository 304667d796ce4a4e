package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hutch/internal/driver"
	"hutch/internal/durable"
)

// Relocate implements driver.Relocator. It replaces all paths of the host by the paths of a new instance with the spec.
// Otherwise, saved state of another machine could choose which files of this host are visible inside.
func (d *Driver) Relocate(spec driver.Spec, dir string) error {
	path := filepath.Join(dir, configFile)
	var was specs.Spec
	if err := readConfig(path, &was); err != nil {
		if errors.Is(err, fs.ErrNotExist) { // the save has only files
			return nil
		}
		return err
	}
	build, err := d.buildOf(dir)
	if err != nil {
		return err
	}
	here, err := bundle(spec, build.Agent)
	if err != nil {
		return err
	}
	if err := relocate(&was, here); err != nil {
		return err
	}
	was.Annotations = annotations(spec)
	text, err := json.Marshal(was)
	if err != nil {
		return err
	}
	return durable.Replace(path, text)
}

func relocate(was, here *specs.Spec) error {
	sources := map[string]specs.Mount{}
	for _, m := range here.Mounts {
		sources[m.Destination] = m
	}
	for i, m := range was.Mounts {
		if m.Type != "bind" || m.Destination == socketDir {
			continue
		}
		is, ok := sources[m.Destination]
		if !ok {
			return fmt.Errorf("the sandbox had %.200q of its machine, which this one does not have", m.Destination)
		}
		was.Mounts[i] = is
	}
	was.Root, was.Linux = here.Root, here.Linux
	return nil
}
