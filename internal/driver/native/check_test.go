package native

import (
	"path/filepath"
	"strings"
	"testing"

	"hutch/internal/driver"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	r := d.Check(t.Context())
	if !r.OK {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Findings {
		if f.Name == "files of the host" && f.Level != driver.Good {
			t.Errorf("this kernel has overlays: %+v", f)
		}
		if f.Level != driver.Good && f.Fix == "" || f.Detail == "" {
			t.Errorf("what to do? %+v", f)
		}
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Error(left)
	}
}

func TestCheckWithoutAgent(t *testing.T) {
	t.Parallel()
	d, err := New(driver.Options{Dir: t.TempDir(), Agent: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	r := d.Check(t.Context())
	if f := r.Findings[0]; r.OK || f.Level != driver.Bad || !strings.Contains(f.Fix, "make build") {
		t.Errorf("%+v", r)
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Error(left)
	}
}
