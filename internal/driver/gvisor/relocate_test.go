package gvisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"hutch/internal/driver"
	"hutch/internal/image"
)

// TestRelocate: an instance that was saved on another host does not choose which files of this host are visible inside.
func TestRelocate(t *testing.T) {
	d := &Driver{opt: Options{Options: driver.Options{Agent: "/here/agent"}}}
	root := image.Root{Dir: "/here/root", User: &image.Account{UID: 1000, GID: 1000, Home: "/home/user"}, Masks: []string{"/usr/here"}}
	spec := driver.Spec{ID: "p", Root: root}
	was, err := bundle(spec, "/there/agent")
	if err != nil {
		t.Fatal(err)
	}
	was.Root.Path, was.Annotations = "/etc", map[string]string{"dev.gvisor.spec.rootfs.source": "/etc/shadow"}
	was.Hostname = "kept"
	write := func() string {
		dir := t.TempDir()
		text, err := json.Marshal(was)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, configFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := write()
	if err := d.Relocate(spec, dir); err != nil {
		t.Fatal(err)
	}
	var is specs.Spec
	if err := readConfig(filepath.Join(dir, configFile), &is); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(is)
	if is.Root.Path != "/here/root" || is.Hostname != "kept" || strings.Contains(string(text), "/there/") || strings.Contains(string(text), "shadow") {
		t.Errorf("%s", text)
	}
	was.Mounts = append(was.Mounts, specs.Mount{Destination: "/opt/more", Type: "bind", Source: "/etc"})
	if err := d.Relocate(spec, write()); err == nil || !strings.Contains(err.Error(), "/opt/more") {
		t.Errorf("a mount that this machine does not have: %v", err)
	}
	if err := d.Relocate(spec, t.TempDir()); err != nil {
		t.Errorf("only files: %v", err)
	}
}
